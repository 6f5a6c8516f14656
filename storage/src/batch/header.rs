//! What a batch's header says, in one shape for every message format.

use super::layout::{self, v2};
use super::legacy;
use super::walk::{BatchError, BatchLimits, checked_size};
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// The longest header of any format: that of v2. So many bytes are enough for
/// [`BatchInfo::from_header`].
pub const HEADER_BYTES_MAX: usize = v2::HEADER_BYTES;

/// Compression codec named by a batch's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Records are stored as they are.
    None,
    /// gzip members.
    Gzip,
    /// Snappy, usually in xerial framing.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames (KIP-110).
    Zstd,
}

impl Compression {
    /// The number that attributes carry.
    #[must_use]
    pub fn number(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }
}

/// The attributes field of a batch (v2) or message (v0, v1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    /// The codec, or `None` for a number no Kafka release defines.
    #[must_use]
    pub fn compression(self) -> Option<Compression> {
        match self.0 & 0x07 {
            0 => Some(Compression::None),
            1 => Some(Compression::Gzip),
            2 => Some(Compression::Snappy),
            3 => Some(Compression::Lz4),
            4 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Whether timestamps are the broker's append time.
    #[must_use]
    pub fn is_log_append_time(self) -> bool {
        self.0 & 0x08 != 0
    }

    /// Whether the batch belongs to a transaction (v2 only).
    #[must_use]
    pub fn is_transactional(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// Whether the batch is a control batch, invisible to applications (v2 only).
    #[must_use]
    pub fn is_control(self) -> bool {
        self.0 & 0x20 != 0
    }

    /// Whether the base timestamp is the compaction delete horizon (KIP-534).
    #[must_use]
    pub fn has_delete_horizon(self) -> bool {
        self.0 & 0x40 != 0
    }
}

/// The first record of a control batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlMarker {
    /// The producer's transaction was aborted.
    Abort,
    /// The producer's transaction was committed.
    Commit,
    /// Another kind of control record, by its type number.
    Other(i16),
}

/// One complete, checksum-verified batch (v2) or message-set entry (v0, v1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchInfo {
    /// First offset. For v0 and v1 entries equal to `last_offset`: a wrapper does not name its first.
    pub base_offset: Offset,
    /// Last offset, also where compaction removed the records themselves.
    pub last_offset: Offset,
    /// Leader epoch of the batch; [`LeaderEpoch::UNKNOWN`] for v0 and v1.
    pub leader_epoch: LeaderEpoch,
    /// Message format: 0, 1 or 2.
    pub magic: i8,
    /// Codec, timestamp type, transactional and control bits.
    pub attributes: Attributes,
    /// The stored checksum: CRC-32C for v2, CRC-32 for v0 and v1.
    pub crc: u32,
    /// Base timestamp in milliseconds, -1 for v0.
    pub base_timestamp: i64,
    /// Largest timestamp in milliseconds, -1 for v0.
    pub max_timestamp: i64,
    /// Producer id, -1 for none.
    pub producer_id: ProducerId,
    /// Producer epoch, -1 for none.
    pub producer_epoch: ProducerEpoch,
    /// Sequence number of the first record, -1 for none.
    pub base_sequence: i32,
    /// Records in the batch as its header counts them; 0 in a batch emptied by compaction. For v0
    /// and v1 always 1: a compressed entry does not say how many messages it holds.
    pub record_count: i32,
    /// Whole length in bytes, header included.
    pub size_bytes: u32,
    /// For a control batch: its first record.
    pub control: Option<ControlMarker>,
}

impl BatchInfo {
    /// Reads the header at the front of `bytes` without looking further: for index scans and
    /// searches over bytes that were verified when they were stored. `None` while the header is
    /// not all there. [`BatchInfo::control`] stays empty.
    pub fn from_header(bytes: &[u8], limits: &BatchLimits) -> Result<Option<Self>, BatchError> {
        if bytes.len() <= layout::MAGIC_AT {
            return Ok(None);
        }
        match bytes.get(..header_bytes(bytes)?) {
            Some(head) => parse(head, limits).map(Some),
            None => Ok(None),
        }
    }

    /// The offset that follows the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.last_offset.plus(1)
    }
}

/// Length of the header that starts with `head`, which holds at least `magic`.
pub(super) fn header_bytes(head: &[u8]) -> Result<usize, BatchError> {
    match head[layout::MAGIC_AT].cast_signed() {
        magic @ (0 | 1) => Ok(legacy::header_bytes(magic)),
        2 => Ok(v2::HEADER_BYTES),
        magic => {
            Err(BatchError::Magic { base_offset: layout::i64_at(head, layout::OFFSET_AT), magic })
        }
    }
}

/// Where the checksummed part starts.
pub(super) fn checksum_at(magic: i8) -> usize {
    if magic >= 2 { v2::ATTRIBUTES_AT } else { layout::MAGIC_AT }
}

/// Reads a header of exactly [`header_bytes`] and refuses impossible values.
pub(super) fn parse(head: &[u8], limits: &BatchLimits) -> Result<BatchInfo, BatchError> {
    let magic = head[layout::MAGIC_AT].cast_signed();
    if magic < 2 {
        return legacy::parse(head, limits);
    }
    let size_bytes = checked_size(head, v2::HEADER_BYTES, limits)?;
    let base_offset = layout::i64_at(head, layout::OFFSET_AT);
    let delta = layout::i32_at(head, v2::LAST_OFFSET_DELTA_AT);
    // One below the largest number, so that the offset after the batch exists too.
    let last_offset = base_offset
        .checked_add(i64::from(delta))
        .filter(|last| delta >= 0 && *last < i64::MAX)
        .ok_or(BatchError::LastOffsetDelta { base_offset, delta })?;
    let record_count = layout::i32_at(head, v2::RECORD_COUNT_AT);
    let offsets = i64::from(delta) + 1;
    if record_count < 0 || i64::from(record_count) > offsets {
        return Err(BatchError::RecordCount { base_offset, record_count, offsets });
    }
    Ok(BatchInfo {
        base_offset: Offset(base_offset),
        last_offset: Offset(last_offset),
        leader_epoch: LeaderEpoch(layout::i32_at(head, v2::LEADER_EPOCH_AT)),
        magic,
        attributes: Attributes(layout::i16_at(head, v2::ATTRIBUTES_AT)),
        crc: layout::u32_at(head, v2::CRC_AT),
        base_timestamp: layout::i64_at(head, v2::BASE_TIMESTAMP_AT),
        max_timestamp: layout::i64_at(head, v2::MAX_TIMESTAMP_AT),
        producer_id: ProducerId(layout::i64_at(head, v2::PRODUCER_ID_AT)),
        producer_epoch: ProducerEpoch(layout::i16_at(head, v2::PRODUCER_EPOCH_AT)),
        base_sequence: layout::i32_at(head, v2::BASE_SEQUENCE_AT),
        record_count,
        size_bytes,
        control: None,
    })
}

/// Reads the type of a control record from its first bytes: the key is a version and a type.
pub(super) fn control_marker(record: &[u8]) -> Option<ControlMarker> {
    let (_length, taken) = layout::varint(record)?;
    let record = record.get(taken + 1..)?;
    let (_timestamp_delta, taken) = layout::varlong(record)?;
    let record = record.get(taken..)?;
    let (_offset_delta, taken) = layout::varint(record)?;
    let record = record.get(taken..)?;
    let (key_bytes, taken) = layout::varint(record)?;
    let key = record.get(taken..taken + 4)?;
    if key_bytes < 4 || layout::i16_at(key, 0) < 0 {
        return None;
    }
    Some(match layout::i16_at(key, 2) {
        0 => ControlMarker::Abort,
        1 => ControlMarker::Commit,
        other => ControlMarker::Other(other),
    })
}
