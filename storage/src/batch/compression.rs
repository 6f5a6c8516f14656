//! The codecs of record batches, each behind an output ceiling.
//!
//! Mirrored batches are stored as they came; this is for looking inside them (search by time,
//! verification, dump) and for batches of our own. Never on the landing path.

use std::io::{Read, Write};

use super::Compression;
use super::layout;

/// Why compressed records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// The records are larger than the caller allows.
    #[error("the records inflate to more than {bytes_max} bytes")]
    TooLarge {
        /// The ceiling.
        bytes_max: usize,
    },
    /// The compressed bytes are damaged, or use a feature the codec's reader lacks.
    #[error("cannot decompress {codec:?} records: {reason}")]
    Damaged {
        /// The codec.
        codec: Compression,
        /// The codec's own words.
        reason: String,
    },
}

/// The largest window a zstd frame may ask for, as a power of two: the 128 MiB that zstd's
/// readers, Kafka's included, allow unless told otherwise.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// How xerial's framing of snappy starts: its magic, then version and compatible version.
const XERIAL_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const XERIAL_HEADER_BYTES: usize = 16;
/// Block size of xerial's writer.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;

/// Appends the decompressed form of `input` to `out`, at most `bytes_max` bytes of it.
///
/// On an error `out` holds a part of the output, never more than the ceiling.
pub fn decompress(
    codec: Compression,
    input: &[u8],
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    match codec {
        Compression::None => read_bounded(codec, input, bytes_max, out),
        Compression::Gzip => {
            read_bounded(codec, flate2::read::MultiGzDecoder::new(input), bytes_max, out)
        }
        Compression::Snappy => snappy(input, bytes_max, out),
        Compression::Lz4 => {
            read_bounded(codec, lz4_flex::frame::FrameDecoder::new(input), bytes_max, out)
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(input)
                .map_err(|error| damaged(codec, &error))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|error| damaged(codec, &error))?;
            read_bounded(codec, decoder, bytes_max, out)
        }
    }
}

/// Appends the compressed form of `input` to `out`, framed as Kafka's clients expect it.
pub fn compress(codec: Compression, input: &[u8], out: &mut Vec<u8>) {
    // The writers below fail only when their sink does, and a Vec does not.
    let start = out.len();
    let written = match codec {
        Compression::None => out.write_all(input),
        Compression::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(&mut *out, flate2::Compression::default());
            encoder.write_all(input).and_then(|()| encoder.finish().map(|_| ()))
        }
        Compression::Snappy => xerial(input, out),
        Compression::Lz4 => {
            let mut frame = lz4_flex::frame::FrameInfo::new();
            // What Kafka's own writer uses; its reader refuses blocks that depend on each other.
            frame.block_size = lz4_flex::frame::BlockSize::Max64KB;
            frame.block_mode = lz4_flex::frame::BlockMode::Independent;
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(frame, &mut *out);
            encoder
                .write_all(input)
                .and_then(|()| encoder.finish().map(|_| ()).map_err(std::io::Error::from))
        }
        Compression::Zstd => zstd::stream::copy_encode(input, &mut *out, 0),
    };
    debug_assert!(written.is_ok(), "{codec:?} from {start}: {written:?}");
}

fn damaged(codec: Compression, reason: &dyn std::fmt::Display) -> DecompressError {
    DecompressError::Damaged { codec, reason: reason.to_string() }
}

fn read_bounded(
    codec: Compression,
    reader: impl Read,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    let start = out.len();
    // One byte more than allowed tells "exactly at the ceiling" from "beyond it".
    let read = reader.take(bytes_max as u64 + 1).read_to_end(out);
    if out.len() - start > bytes_max {
        out.truncate(start + bytes_max);
        return Err(DecompressError::TooLarge { bytes_max });
    }
    read.map(|_| ()).map_err(|error| damaged(codec, &error))
}

/// Xerial's framing, or one raw block where its magic is absent (as librdkafka and Java read it).
fn snappy(input: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<(), DecompressError> {
    if !input.starts_with(XERIAL_MAGIC) {
        return snappy_block(input, bytes_max, out);
    }
    let start = out.len();
    let mut rest = input;
    while !rest.is_empty() {
        // Streams may be joined: a header can stand where a block would.
        if rest.starts_with(XERIAL_MAGIC) {
            rest = rest
                .get(XERIAL_HEADER_BYTES..)
                .ok_or_else(|| damaged(Compression::Snappy, &"header cut short"))?;
            continue;
        }
        let block = rest.get(..4).and_then(|_| {
            let block_bytes = usize::try_from(layout::i32_at(rest, 0)).ok()?;
            rest.get(4..4 + block_bytes)
        });
        let block = block.ok_or_else(|| damaged(Compression::Snappy, &"block cut short"))?;
        snappy_block(block, bytes_max - (out.len() - start), out)?;
        rest = &rest[4 + block.len()..];
    }
    Ok(())
}

fn snappy_block(input: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<(), DecompressError> {
    let codec = Compression::Snappy;
    let claimed = snap::raw::decompress_len(input).map_err(|error| damaged(codec, &error))?;
    if claimed > bytes_max {
        return Err(DecompressError::TooLarge { bytes_max });
    }
    // The claim alone must not cost memory: three bytes of input give at most 64 of output.
    if claimed / 64 > input.len() {
        return Err(damaged(codec, &"block claims more than its bytes can hold"));
    }
    let start = out.len();
    out.resize(start + claimed, 0);
    let read = snap::raw::Decoder::new().decompress(input, &mut out[start..]);
    match read {
        Ok(len_bytes) => {
            out.truncate(start + len_bytes);
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(damaged(codec, &error))
        }
    }
}

fn xerial(input: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(XERIAL_MAGIC);
    out.extend_from_slice(&1u32.to_be_bytes());
    out.extend_from_slice(&1u32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(XERIAL_BLOCK_BYTES) {
        let packed = encoder.compress_vec(block).map_err(std::io::Error::from)?;
        out.extend_from_slice(&(packed.len() as u32).to_be_bytes());
        out.extend_from_slice(&packed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CODECS: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    fn packed(codec: Compression, input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        compress(codec, input, &mut out);
        out
    }

    proptest! {
        #[test]
        fn every_codec_gives_back_what_went_in(
            seed in proptest::collection::vec(any::<u8>(), 0..300),
            repeat in 1usize..900,
        ) {
            let input = seed.repeat(repeat);
            for codec in CODECS {
                let mut out = b"before".to_vec();
                decompress(codec, &packed(codec, &input), input.len(), &mut out).unwrap();
                prop_assert_eq!(&out[6..], &input[..]);
            }
        }

        #[test]
        fn arbitrary_bytes_never_pass_the_ceiling(
            input in proptest::collection::vec(any::<u8>(), 0..400),
            framed in any::<bool>(),
        ) {
            let mut bytes = if framed { XERIAL_MAGIC.to_vec() } else { Vec::new() };
            bytes.extend_from_slice(&input);
            for codec in CODECS {
                let mut out = Vec::new();
                let _ = decompress(codec, &bytes, 100, &mut out);
                prop_assert!(out.len() <= 100);
            }
        }
    }

    #[test]
    fn output_beyond_the_ceiling_is_refused() {
        let input = vec![7; 100_000];
        for codec in CODECS {
            let mut out = Vec::new();
            let result = decompress(codec, &packed(codec, &input), 99_999, &mut out);
            assert!(
                matches!(result, Err(DecompressError::TooLarge { bytes_max: _ })),
                "{codec:?}: {result:?}"
            );
            assert!(out.len() <= 99_999, "{codec:?}");
        }
    }

    #[test]
    fn cut_or_flipped_input_is_an_error() {
        let input: Vec<u8> = (0..50_000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let mut bytes = packed(codec, &input);
            bytes.truncate(bytes.len() - bytes.len() / 3);
            let result = decompress(codec, &bytes, 1 << 20, &mut Vec::new());
            assert!(matches!(result, Err(DecompressError::Damaged { .. })), "{codec:?}");
        }
    }

    #[test]
    fn raw_snappy_and_joined_xerial_streams_are_read() {
        let raw = snap::raw::Encoder::new().compress_vec(b"one block").unwrap();
        let mut out = Vec::new();
        decompress(Compression::Snappy, &raw, 100, &mut out).unwrap();
        assert_eq!(out, b"one block");

        let mut joined = packed(Compression::Snappy, b"first,");
        joined.extend(packed(Compression::Snappy, b"second"));
        let mut out = Vec::new();
        decompress(Compression::Snappy, &joined, 100, &mut out).unwrap();
        assert_eq!(out, b"first,second");
    }

    #[test]
    fn joined_gzip_members_are_read_to_the_end() {
        let mut joined = packed(Compression::Gzip, b"first,");
        joined.extend(packed(Compression::Gzip, b"second"));
        let mut out = Vec::new();
        decompress(Compression::Gzip, &joined, 100, &mut out).unwrap();
        assert_eq!(out, b"first,second");
    }

    #[test]
    fn a_snappy_block_cannot_claim_what_it_does_not_hold() {
        // A varint claiming 256 MiB, then nothing.
        let bytes = [0x80, 0x80, 0x80, 0x80, 0x01];
        let mut out = Vec::new();
        let result = decompress(Compression::Snappy, &bytes, 1 << 30, &mut out);
        assert!(matches!(result, Err(DecompressError::Damaged { .. })), "{result:?}");
        assert_eq!(out.capacity(), 0);
    }
}
