//! Message-set entries of formats v0 and v1, as producers before Kafka 0.11 wrote them.
//!
//! An entry is one message or a compressed wrapper around several. It is kept as it is: only the
//! header is read here, and its CRC-32 (IEEE) covers everything from `magic` to the end.

use super::header::{Attributes, BatchInfo};
use super::layout;
use super::walk::{BatchError, BatchLimits, checked_size};
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

pub(super) const CRC_AT: usize = 12;
pub(super) const ATTRIBUTES_AT: usize = 17;
pub(super) const TIMESTAMP_AT: usize = 18;
/// Position of the key's length in v0; v1 has the timestamp before it.
pub(super) const V0_HEADER_BYTES: usize = 18;
pub(super) const V1_HEADER_BYTES: usize = 26;
/// The lengths of key and value, which every message has.
const KEY_AND_VALUE_LENGTHS_BYTES: usize = 8;

/// A key or value, which may be null.
type Nullable<'a> = Option<&'a [u8]>;

/// Bytes before the key's length.
pub(super) fn header_bytes(magic: i8) -> usize {
    if magic == 0 { V0_HEADER_BYTES } else { V1_HEADER_BYTES }
}

/// Reads the header of a v0 or v1 entry from its first [`header_bytes`].
pub(super) fn parse(head: &[u8], limits: &BatchLimits) -> Result<BatchInfo, BatchError> {
    let offset = layout::i64_at(head, layout::OFFSET_AT);
    let magic = head[layout::MAGIC_AT].cast_signed();
    let bytes_min = header_bytes(magic) + KEY_AND_VALUE_LENGTHS_BYTES;
    let size_bytes = checked_size(head, bytes_min, limits)?;
    let timestamp = if magic == 0 { -1 } else { layout::i64_at(head, TIMESTAMP_AT) };
    Ok(BatchInfo {
        base_offset: Offset(offset),
        last_offset: Offset(offset),
        leader_epoch: LeaderEpoch::UNKNOWN,
        magic,
        // One byte in these formats, and only its low bits mean anything: the bits that mark
        // transactions and control batches in v2 must not be read out of it.
        attributes: Attributes(i16::from(head[ATTRIBUTES_AT] & attribute_bits(magic))),
        crc: layout::u32_at(head, CRC_AT),
        base_timestamp: timestamp,
        max_timestamp: timestamp,
        producer_id: ProducerId(-1),
        producer_epoch: ProducerEpoch(-1),
        base_sequence: -1,
        // A wrapper does not say how many messages it holds.
        record_count: 1,
        size_bytes,
        control: None,
    })
}

/// Codec bits, and in v1 the timestamp type.
fn attribute_bits(magic: i8) -> u8 {
    if magic == 0 { 0x07 } else { 0x0f }
}

/// Key and value of a whole entry; `None` where their lengths do not add up to the entry.
pub(super) fn key_and_value(entry: &[u8]) -> Option<(Nullable<'_>, Nullable<'_>)> {
    let magic = entry.get(layout::MAGIC_AT)?.cast_signed();
    let (key, rest) = nullable(entry.get(header_bytes(magic)..)?)?;
    let (value, rest) = nullable(rest)?;
    rest.is_empty().then_some((key, value))
}

/// A 32-bit length and so many bytes; -1 is null. Gives what follows, too.
fn nullable(bytes: &[u8]) -> Option<(Nullable<'_>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    match i32::from_be_bytes(*length) {
        -1 => Some((None, rest)),
        length => {
            let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((Some(value), rest))
        }
    }
}
