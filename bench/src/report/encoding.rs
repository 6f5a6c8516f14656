//! Histograms as text: HdrHistogram's compressed V2 encoding in base64, as every `.hlog` line and a
//! node's `GET /histograms` hold it.
//!
//! What is read may come from anywhere, so it is inflated to a bound before its own counts are believed.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// First bytes of the compressed form: its magic number and the length of what follows.
const HEAD_BYTES: usize = 8;
/// How it begins: V2, deflated, counts as numbers of variable length.
const COMPRESSED: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];
/// First bytes of the inflated form: magic, payload length, offset, digits, bounds, ratio.
const INNER_HEAD_BYTES: usize = 40;
/// Largest inflated histogram that is read: one of 3 digits over all of 64 bits has less.
const INFLATED_BYTES_MAX: u64 = 1 << 20;
/// Most digits: 4 take a few megabytes of memory, 5 some seventy.
const DIGITS_MAX: u32 = 4;

/// Why a text is not a histogram.
#[derive(Debug, thiserror::Error)]
#[error("not a histogram in HdrHistogram's compressed V2 form: {0}")]
pub struct DecodeError(String);

/// Encodes one.
///
/// # Errors
/// When it has a form that cannot be encoded, which ours have not.
pub fn encode(histogram: &Histogram<u64>) -> Result<String, DecodeError> {
    let mut bytes = Vec::new();
    let written = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
    written.map_err(|error| DecodeError(error.to_string()))?;
    Ok(STANDARD.encode(bytes))
}

/// Decodes one.
///
/// # Errors
/// When the text is anything else, or larger than any histogram that is written here.
pub fn decode(text: &str) -> Result<Histogram<u64>, DecodeError> {
    let bytes = STANDARD.decode(text.trim()).map_err(|error| DecodeError(error.to_string()))?;
    let deflated = bytes
        .get(HEAD_BYTES..)
        .filter(|_| bytes.starts_with(&COMPRESSED))
        .ok_or_else(|| DecodeError("it does not begin as one".to_owned()))?;
    let mut inflated = Vec::new();
    ZlibDecoder::new(deflated)
        .take(INFLATED_BYTES_MAX + 1)
        .read_to_end(&mut inflated)
        .map_err(|error| DecodeError(error.to_string()))?;
    if inflated.len() as u64 > INFLATED_BYTES_MAX {
        return Err(DecodeError(format!("it inflates to more than {INFLATED_BYTES_MAX} bytes")));
    }
    check_counts(&inflated).ok_or_else(|| DecodeError("its sizes contradict".to_owned()))?;
    Deserializer::new()
        .deserialize(&mut inflated.as_slice())
        .map_err(|error| DecodeError(error.to_string()))
}

/// The sizes that the inflated form announces, held against what is there.
fn check_counts(inflated: &[u8]) -> Option<()> {
    let number = |at: usize| {
        let bytes = inflated.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let payload_bytes = usize::try_from(number(4)?).ok()?;
    let room_bytes = inflated.len().checked_sub(INNER_HEAD_BYTES)?;
    (payload_bytes <= room_bytes && number(12)? <= DIGITS_MAX).then_some(())
}

/// An empty histogram that grows with what is added to it: for sums over histograms of any bounds.
#[must_use]
#[expect(clippy::expect_used, reason = "3 digits are allowed, and nothing else can fail")]
pub fn sum() -> Histogram<u64> {
    Histogram::new(3).expect("a constant number of digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_its_encoding() {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
        for value in [0, 1_000, 59_000_000_000] {
            histogram.record(value).unwrap();
        }
        let back = decode(&encode(&histogram).unwrap()).unwrap();
        assert_eq!(back, histogram);
    }

    #[test]
    fn other_texts_and_impossible_sizes_are_refused() {
        let good = encode(&Histogram::new_with_bounds(1, 1_000, 2).unwrap()).unwrap();
        let compressed = |inner: &[u8]| {
            let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
            std::io::Write::write_all(&mut deflated, inner).unwrap();
            STANDARD.encode([&COMPRESSED[..], &[0; 4], &deflated.finish().unwrap()].concat())
        };
        let mut inner = vec![0; 44];
        inner[..4].copy_from_slice(&0x1c84_9303_u32.to_be_bytes());
        inner[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        for wrong in ["", "HISTFAAA", "no base64!", &good[..20]] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
        // Refused before memory is taken for what it announces.
        let said = decode(&compressed(&inner)).unwrap_err().to_string();
        assert!(said.contains("contradict"), "{said}");
        inner[4..8].fill(0);
        inner[12..16].copy_from_slice(&5_u32.to_be_bytes());
        let said = decode(&compressed(&inner)).unwrap_err().to_string();
        assert!(said.contains("contradict"), "{said}");
        let bomb = compressed(&vec![0; 2 << 20]);
        assert!(decode(&bomb).unwrap_err().to_string().contains("inflates"));
    }

    #[test]
    fn sums_take_histograms_of_any_bounds() {
        let mut total = sum();
        for (high, value) in [(1_000, 900), (60_000_000_000, 50_000_000_000_u64)] {
            let mut one = Histogram::<u64>::new_with_bounds(1, high, 2).unwrap();
            one.record(value).unwrap();
            total.add(&one).unwrap();
        }
        assert_eq!(total.len(), 2);
    }
}
