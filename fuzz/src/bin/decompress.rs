//! Decompressors behind their ceiling. The first byte chooses the codec.
#![no_main]

use libfuzzer_sys::fuzz_target;
use storage::batch::{Attributes, compress, decompress};

const BYTES_MAX: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let Some((codec, input)) = input.split_first() else { return };
    let Some(codec) = Attributes(i16::from(codec % 5)).compression() else { return };
    let mut out = Vec::new();
    let read = decompress(codec, input, BYTES_MAX, &mut out);
    assert!(out.len() <= BYTES_MAX);
    if read.is_ok() {
        let (mut packed, mut again) = (Vec::new(), Vec::new());
        compress(codec, &out, &mut packed);
        let read = decompress(codec, &packed, BYTES_MAX, &mut again);
        assert!(read.is_ok() && again == out);
    }
});
