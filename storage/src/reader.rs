//! The readers' side of one partition's log: any thread, published bytes only.

use crate::mapping::ReadSlice;
use crate::{LeaderEpoch, Offset, ProducerId, TopicPartition};

/// Why a read was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is below the log start or above the log end.
    #[error("offset {offset} is outside {log_start} to {log_end}")]
    OutOfRange {
        /// What was asked.
        offset: Offset,
        /// First offset that can be read.
        log_start: Offset,
        /// One past the last.
        log_end: Offset,
    },
    /// The disk failed, or a file is damaged.
    #[error("cannot read {partition}: {source}")]
    Io {
        /// The partition.
        partition: TopicPartition,
        /// The system's error.
        source: std::io::Error,
    },
}

/// An aborted transaction that a read-committed reader has to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose transaction.
    pub producer_id: ProducerId,
    /// Its first offset.
    pub first_offset: Offset,
}

/// The last offset of an epoch (KIP-101, KIP-279).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest epoch not above the one asked.
    pub epoch: LeaderEpoch,
    /// Its end offset.
    pub end_offset: Offset,
}

/// The answer to a search by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The record's timestamp in milliseconds.
    pub timestamp_ms: i64,
    /// The record's offset.
    pub offset: Offset,
    /// The epoch of the record's batch.
    pub leader_epoch: LeaderEpoch,
}

/// Published state of one log.
#[derive(Debug)]
pub struct LogReader {}

impl LogReader {
    /// First offset that can be read.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        todo!()
    }

    /// One past the last published offset; on a single node also the high watermark.
    #[must_use]
    pub fn log_end(&self) -> Offset {
        todo!()
    }

    /// First offset of the earliest open transaction, else the log end.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        todo!()
    }

    /// Epoch of the last published batch.
    #[must_use]
    pub fn latest_epoch(&self) -> LeaderEpoch {
        todo!()
    }

    /// Bytes in the log's segments.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }

    /// Reads as Kafka does: from the batch that holds `from`, at most `bytes_max` bytes of one
    /// segment and nothing at or past `until`; the last batch may be cut. With `whole_first_batch` the first batch
    /// comes whole even when it is larger. Empty at the end of the log.
    pub fn read(
        &self,
        _from: Offset,
        _until: Offset,
        _bytes_max: usize,
        _whole_first_batch: bool,
    ) -> Result<Option<ReadSlice>, ReadError> {
        todo!()
    }

    /// Aborted transactions that overlap what a reader gets from `from`, up to `upper` (exclusive).
    pub fn aborted_transactions(
        &self,
        _from: Offset,
        _upper: Offset,
    ) -> Result<Vec<AbortedTransaction>, ReadError> {
        todo!()
    }

    /// The offset that follows the bytes [`LogReader::read`] would return, as far as whole batches
    /// and index entries tell: the upper bound for the aborted list, as Kafka computes it.
    pub fn upper_bound_offset(&self, _from: Offset, _bytes: usize) -> Result<Offset, ReadError> {
        todo!()
    }

    /// The first record with a timestamp at or after `timestamp_ms`, looking inside its batch.
    pub fn offset_for_timestamp(
        &self,
        _timestamp_ms: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        todo!()
    }

    /// The record with the largest timestamp (ListOffsets -3, KIP-734).
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimestampOffset>, ReadError> {
        todo!()
    }

    /// Where `epoch` ended here. `None` when no epoch at or below it is known.
    #[must_use]
    pub fn epoch_end(&self, _epoch: LeaderEpoch) -> Option<EpochEnd> {
        todo!()
    }

    /// The epoch that was current at the log start (ListOffsets -2 and -4 answer with it).
    #[must_use]
    pub fn epoch_at(&self, _offset: Offset) -> LeaderEpoch {
        todo!()
    }
}
