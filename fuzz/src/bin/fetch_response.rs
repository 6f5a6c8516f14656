//! The Fetch response stream: however it is cut, the parser tells the same.
#![no_main]

use dataplane::wire::{FetchEvent, FetchRequest, FetchResponseParser, WireError};
use libfuzzer_sys::fuzz_target;

// The first byte chooses the version, the second how the rest is cut.
fuzz_target!(|input: &[u8]| {
    let Some((&[version, piece_bytes], frame)) = input.split_first_chunk() else { return };
    let versions = FetchRequest::VERSION_MAX - FetchRequest::VERSION_MIN + 1;
    let version = FetchRequest::VERSION_MIN + i16::from(version) % versions;
    let whole = parse(version, frame, frame.len().max(1));
    let cut = parse(version, frame, usize::from(piece_bytes).max(1));
    assert_eq!(whole, cut);
});

/// Everything told, with the record bytes taken, up to the end or the error.
fn parse(version: i16, frame: &[u8], piece_bytes: usize) -> (Vec<FetchEvent>, Option<WireError>) {
    let mut parser = FetchResponseParser::new(version, frame.len());
    let mut told = Vec::new();
    let (mut taken, mut arrived) = (0, 0);
    loop {
        let mut bytes = &frame[taken..arrived];
        let event = parser.next(&mut bytes);
        taken = arrived - bytes.len();
        match event {
            Ok(Some(FetchEvent::Records)) => {
                let records = parser.records_remaining().min(arrived - taken);
                parser.take_records(records);
                taken += records;
                if records > 0 {
                    continue;
                }
            }
            Ok(Some(event)) => {
                let end = matches!(event, FetchEvent::End(_));
                told.push(event);
                if end {
                    assert_eq!((taken, arrived), (frame.len(), frame.len()));
                    return (told, None);
                }
                continue;
            }
            Ok(None) => {}
            Err(error) => return (told, Some(error)),
        }
        assert!(arrived < frame.len(), "waits for bytes beyond the frame");
        assert_eq!(parser.frame_remaining(), frame.len() - taken);
        arrived = frame.len().min(arrived + piece_bytes);
    }
}
