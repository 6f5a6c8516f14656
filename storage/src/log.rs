//! The writer's side of one partition's log.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{BatchError, BatchInfo};
use crate::mapping::MappedTail;
use crate::reader::LogReader;
use crate::{LeaderEpoch, Offset, TopicId, TopicPartition};

/// Per-log settings.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// A segment is sealed before it would grow past this many bytes (Kafka `segment.bytes`).
    pub segment_bytes_max: u32,
    /// A segment is sealed this long after its first append (Kafka `segment.ms`).
    pub segment_age_max: Duration,
    /// One index entry per this many bytes (Kafka `index.interval.bytes`).
    pub index_interval_bytes: u32,
    /// An index of this size seals its segment (Kafka `segment.index.bytes`).
    pub index_bytes_max: u32,
    /// Largest batch accepted, in bytes.
    pub batch_bytes_max: u32,
}

/// What the caller knows of the batches it appends.
#[derive(Clone, Copy, Debug)]
pub struct AppendContext {
    /// The leader epoch the source confirmed. A batch of a newer epoch is not stored (P2).
    pub leader_epoch_max: LeaderEpoch,
}

/// What an append published.
#[derive(Clone, Debug, Default)]
pub struct Landed {
    /// Batches published by this call.
    pub batches: u32,
    /// Bytes published by this call.
    pub bytes: u64,
}

/// Where the next bytes of a partition are to be received.
#[derive(Debug)]
pub enum LandingTarget {
    /// Receive here, then call [`Log::landed_in_place`].
    Mapped(MappedTail),
    /// Receive into memory of your own, then call [`Log::land`].
    Copy,
}

/// Why a batch was not stored. The log stays readable and at its last published batch.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The bytes are not a valid batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The batch does not continue the log: it starts below the next expected offset.
    #[error("batch starts at offset {found}, below the log end {expected}")]
    NotNext {
        /// The log end offset.
        expected: Offset,
        /// The batch's base offset.
        found: Offset,
    },
    /// The batch's epoch is newer than the source confirmed.
    #[error(
        "batch at offset {offset} carries leader epoch {found}, the source confirmed {confirmed}"
    )]
    EpochAhead {
        /// The batch's base offset.
        offset: Offset,
        /// The batch's epoch.
        found: LeaderEpoch,
        /// The confirmed epoch.
        confirmed: LeaderEpoch,
    },
    /// The batch's epoch is older than the log's last one.
    #[error("batch at offset {offset} carries leader epoch {found}, below the log's {latest}")]
    EpochBehind {
        /// The batch's base offset.
        offset: Offset,
        /// The batch's epoch.
        found: LeaderEpoch,
        /// The log's last epoch.
        latest: LeaderEpoch,
    },
    /// The disk is full; retry when there is room.
    #[error("no space left for {partition}: {source}")]
    DiskFull {
        /// The partition.
        partition: TopicPartition,
        /// The system's error.
        source: std::io::Error,
    },
    /// The disk failed; the partition is quarantined until it is reopened.
    #[error("cannot write {partition}: {source}")]
    Io {
        /// The partition.
        partition: TopicPartition,
        /// The system's error.
        source: std::io::Error,
    },
}

/// One partition's log. Owned by one thread; see [`LogReader`] for the others.
#[derive(Debug)]
pub struct Log {}

impl Log {
    /// The shared, read-only side.
    #[must_use]
    pub fn reader(&self) -> &Arc<LogReader> {
        todo!()
    }

    /// Makes room for `len_bytes` more record bytes, sealing the segment if they do not fit, and
    /// says where they should be received. `len_bytes` is what one response announced.
    pub fn prepare_landing(&mut self, _len_bytes: u32) -> Result<LandingTarget, AppendError> {
        todo!()
    }

    /// Takes bytes in any pieces, stores them at the tail and publishes each batch that is
    /// complete and valid. On an error what came before it is published.
    pub fn land(&mut self, _bytes: &[u8], _context: &AppendContext) -> Result<Landed, AppendError> {
        todo!()
    }

    /// The same for bytes that were received into the last [`LandingTarget::Mapped`].
    pub fn landed_in_place(
        &mut self,
        _len_bytes: usize,
        _context: &AppendContext,
    ) -> Result<Landed, AppendError> {
        todo!()
    }

    /// Ends a response: drops the truncated last batch a broker may legally send (and what an
    /// error left behind), so that the next landing starts at a batch boundary.
    pub fn finish_landing(&mut self) -> Result<(), AppendError> {
        todo!()
    }

    /// Appends whole batches from memory: for local topics and tests.
    pub fn append(
        &mut self,
        _batches: &[u8],
        _context: &AppendContext,
    ) -> Result<Landed, AppendError> {
        todo!()
    }

    /// Removes everything from `offset` on. `offset` must be at or below the end.
    pub fn truncate_to(&mut self, _offset: Offset) -> Result<(), AppendError> {
        todo!()
    }

    /// Removes everything and starts again, empty, at `offset`: the source's log start lies beyond our end.
    pub fn reset_to(&mut self, _offset: Offset) -> Result<(), AppendError> {
        todo!()
    }

    /// Moves the log start, deleting (recycling) segments that fall wholly below it.
    pub fn advance_log_start(&mut self, _offset: Offset) -> Result<(), AppendError> {
        todo!()
    }

    /// Periodic work: seals by age, releases descriptors and mappings of an idle log.
    pub fn maintain(&mut self, _now_ms: i64) -> Result<(), AppendError> {
        todo!()
    }

    /// Makes everything published durable, to the device.
    pub fn flush(&mut self) -> Result<(), AppendError> {
        todo!()
    }

    /// A clean stop: cuts the preallocated tail, writes indexes and the recovery point.
    pub fn close(self) -> Result<(), AppendError> {
        todo!()
    }

    /// The last published batch, for the caller's epoch bookkeeping.
    #[must_use]
    pub fn last_batch(&self) -> Option<&BatchInfo> {
        todo!()
    }

    /// The topic's id as `partition.metadata` has it.
    #[must_use]
    pub fn topic_id(&self) -> TopicId {
        todo!()
    }
}
