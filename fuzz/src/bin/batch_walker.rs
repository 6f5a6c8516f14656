//! The batch validator: however the bytes are cut, it says the same; and the header walk agrees.
#![no_main]

use libfuzzer_sys::fuzz_target;
use storage::batch::{BatchError, BatchInfo, BatchLimits, BatchValidator, walk, walk_headers};

const LIMITS: BatchLimits = BatchLimits { batch_bytes_max: 1 << 16 };

// The first byte chooses how the rest is cut.
fuzz_target!(|input: &[u8]| {
    let Some((piece_bytes, stream)) = input.split_first() else { return };
    let whole = feed(stream, stream.len().max(1));
    let cut = feed(stream, usize::from(*piece_bytes).max(1));
    assert_eq!(whole, cut);

    let (batches, _) = whole;
    let walked: Vec<_> =
        walk(stream, LIMITS).map_while(Result::ok).map(|batch| batch.info).collect();
    assert_eq!(walked, batches);
    let headers = walk_headers(stream, LIMITS).map_while(Result::ok);
    for (batch, header) in batches.iter().zip(headers) {
        assert_eq!(batch.last_offset, header.info.last_offset);
        assert_eq!(batch.size_bytes as usize, header.bytes.len());
        assert!(batch.last_offset >= batch.base_offset && batch.base_offset.0 >= 0);
    }
});

fn feed(stream: &[u8], piece_bytes: usize) -> (Vec<BatchInfo>, Option<BatchError>) {
    let mut validator = BatchValidator::new(LIMITS);
    let mut batches = Vec::new();
    for mut piece in stream.chunks(piece_bytes) {
        while !piece.is_empty() {
            match validator.feed(&mut piece) {
                Ok(Some(batch)) => batches.push(batch),
                Ok(None) => assert!(piece.is_empty()),
                Err(error) => return (batches, Some(error)),
            }
        }
    }
    (batches, None)
}
