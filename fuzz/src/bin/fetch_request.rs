//! Fetch requests: what is understood can be said again.
#![no_main]

use bytes::BytesMut;
use dataplane::wire::FetchRequest;
use libfuzzer_sys::fuzz_target;

// The first byte chooses the version.
fuzz_target!(|input: &[u8]| {
    let Some((version, body)) = input.split_first() else { return };
    let versions = FetchRequest::VERSION_MAX - FetchRequest::VERSION_MIN + 1;
    let version = FetchRequest::VERSION_MIN + i16::from(*version) % versions;
    let Ok(request) = FetchRequest::decode(version, body) else { return };
    let mut again = BytesMut::new();
    request.encode(version, &mut again);
    assert_eq!(FetchRequest::decode(version, &again), Ok(request));
});
