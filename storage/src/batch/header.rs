//! What a batch's header says, in one shape for every message format.

use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

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
    /// Records in the batch as its header counts them; 0 in a batch emptied by compaction.
    pub record_count: i32,
    /// Whole length in bytes, header included.
    pub size_bytes: u32,
    /// For a control batch: its first record.
    pub control: Option<ControlMarker>,
}
