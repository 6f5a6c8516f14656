//! Request headers of any API and version: what is understood can be said again.
#![no_main]

use bytes::BytesMut;
use dataplane::wire::{RequestHeader, response_header_len};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let mut body = frame;
    let Ok(header) = RequestHeader::decode(&mut body) else { return };
    assert!(frame.ends_with(body));
    assert!((4..=5).contains(&response_header_len(header.api_key, header.api_version)));
    let mut again = BytesMut::new();
    header.encode(&mut again);
    let mut rest = &again[..];
    assert_eq!(RequestHeader::decode(&mut rest).as_ref(), Ok(&header));
    assert!(rest.is_empty());
});
