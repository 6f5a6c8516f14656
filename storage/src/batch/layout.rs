//! Big-endian fields at fixed positions: the byte layout of every message format.
//!
//! The first 17 bytes place `magic` at the same position in all formats; nothing else may be
//! trusted before it is known.

/// Position of the offset: a v2 batch's first, a v0 or v1 entry's last.
pub(super) const OFFSET_AT: usize = 0;
/// Position of the length that counts everything after itself.
pub(super) const LENGTH_AT: usize = 8;
/// Bytes that the length does not count: the offset and the length.
pub(super) const OVERHEAD_BYTES: usize = 12;
/// Position of the format number in every format.
pub(super) const MAGIC_AT: usize = 16;

/// Fields of a v2 batch (KIP-98).
pub(super) mod v2 {
    pub(in crate::batch) const LEADER_EPOCH_AT: usize = 12;
    pub(in crate::batch) const CRC_AT: usize = 17;
    pub(in crate::batch) const ATTRIBUTES_AT: usize = 21;
    pub(in crate::batch) const LAST_OFFSET_DELTA_AT: usize = 23;
    pub(in crate::batch) const BASE_TIMESTAMP_AT: usize = 27;
    pub(in crate::batch) const MAX_TIMESTAMP_AT: usize = 35;
    pub(in crate::batch) const PRODUCER_ID_AT: usize = 43;
    pub(in crate::batch) const PRODUCER_EPOCH_AT: usize = 51;
    pub(in crate::batch) const BASE_SEQUENCE_AT: usize = 53;
    pub(in crate::batch) const RECORD_COUNT_AT: usize = 57;
    /// Where the records start.
    pub(in crate::batch) const HEADER_BYTES: usize = 61;
}

/// The `N` bytes at `at`; the caller has checked that they are there.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

pub(super) fn i16_at(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(array(bytes, at))
}

pub(super) fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(array(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

pub(super) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(array(bytes, at))
}

/// A zig-zag varint (at most 5 bytes for 32 bits, 10 for 64) and the bytes it took.
///
/// `None` where the bytes end first or the number does not fit.
pub(super) fn varint(bytes: &[u8]) -> Option<(i32, usize)> {
    let (raw, taken) = unsigned(bytes, 5)?;
    let raw = u32::try_from(raw).ok()?;
    Some(((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed(), taken))
}

/// The 64-bit form of [`varint`].
pub(super) fn varlong(bytes: &[u8]) -> Option<(i64, usize)> {
    let (raw, taken) = unsigned(bytes, 10)?;
    Some(((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed(), taken))
}

fn unsigned(bytes: &[u8], bytes_max: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(bytes_max).enumerate() {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * index as u32;
        // The tenth byte has room for one bit only.
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Appends `value` as [`varlong`] reads it; for 32-bit values also as [`varint`] does.
pub(super) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut raw = (value << 1).cast_unsigned() ^ (value >> 63).cast_unsigned();
    while raw >= 0x80 {
        out.push((raw & 0x7f) as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_survive_a_round_trip_at_their_limits() {
        for value in [0, -1, 1, 63, -64, 64, i64::from(i32::MAX), i64::MIN, i64::MAX] {
            let mut bytes = Vec::new();
            put_varlong(&mut bytes, value);
            assert_eq!(varlong(&bytes), Some((value, bytes.len())));
            assert_eq!(varlong(&bytes[..bytes.len() - 1]), None);
        }
        for value in [i32::MIN, -1, 0, 300, i32::MAX] {
            let mut bytes = Vec::new();
            put_varlong(&mut bytes, i64::from(value));
            assert_eq!(varint(&bytes), Some((value, bytes.len())));
        }
    }

    #[test]
    fn overlong_varints_are_refused() {
        assert_eq!(varint(&[0xff; 5]), None);
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None);
        assert_eq!(varlong(&[0xff; 11]), None);
        assert_eq!(varlong(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
    }
}
