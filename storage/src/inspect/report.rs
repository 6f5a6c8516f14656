//! What verification finds.

use std::io;
use std::path::PathBuf;

use crate::batch::{BatchError, RecordError};
use crate::epochs::EpochParseError;
use crate::txns::{AbortedTxn, TransactionError, TransactionParseError};
use crate::{LeaderEpoch, Offset};

/// One thing that is not as it should be.
#[derive(Debug)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes, if at one place.
    pub position: Option<u64>,
    /// What.
    pub damage: Damage,
}

/// What can be wrong with a partition folder.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A batch's content is damaged.
    #[error(transparent)]
    Batch(BatchError),
    /// A batch's records cannot be read, though its checksum holds: its producer wrote them so, or
    /// they use what this reader lacks.
    #[error(transparent)]
    Records(RecordError),
    /// The file goes on after its last batch.
    #[error("{len_bytes} bytes after the last batch: {}", .fault.as_ref().map_or_else(|| "a batch cut short".to_owned(), ToString::to_string))]
    Tail {
        /// How many.
        len_bytes: u64,
        /// Why they are no batch.
        fault: Option<BatchError>,
    },
    /// Offsets do not rise from batch to batch.
    #[error("batch starts at offset {found}, expected {expected} or later")]
    OffsetOrder {
        /// The least it could be.
        expected: Offset,
        /// What it is.
        found: Offset,
    },
    /// An offset is too far from the segment's base for its indexes.
    #[error("offset {found} is more than 2^31 from the segment's base {base}")]
    OffsetRange {
        /// The segment's base.
        base: Offset,
        /// The batch's last offset.
        found: Offset,
    },
    /// Leader epochs fall.
    #[error("batch at offset {offset} has leader epoch {found}, after {previous}")]
    EpochOrder {
        /// The batch.
        offset: Offset,
        /// The epoch before it.
        previous: LeaderEpoch,
        /// Its epoch.
        found: LeaderEpoch,
    },
    /// `leader-epoch-checkpoint` cannot be read.
    #[error(transparent)]
    EpochFile(EpochParseError),
    /// `leader-epoch-checkpoint` says otherwise than the log.
    #[error("offset {offset} has leader epoch {found}, the checkpoint says {}", .stored.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string()))]
    EpochEntry {
        /// The batch.
        offset: Offset,
        /// What the checkpoint says.
        stored: Option<LeaderEpoch>,
        /// The batch's epoch.
        found: LeaderEpoch,
    },
    /// `leader-epoch-checkpoint` knows an epoch that starts after the log's end.
    #[error("the checkpoint has epoch {epoch} start at {start}, the log ends at {log_end}")]
    EpochBeyondEnd {
        /// The epoch.
        epoch: LeaderEpoch,
        /// Its start.
        start: Offset,
        /// The log's end.
        log_end: Offset,
    },
    /// An entry of the offset index does not name a batch and its last offset.
    #[error("entry says the batch that ends at offset {offset} starts at byte {position}; {found}")]
    OffsetIndex {
        /// The entry's offset.
        offset: Offset,
        /// The entry's position.
        position: u64,
        /// What is there instead.
        found: String,
    },
    /// An entry of the time index does not name the first batch that reaches its timestamp.
    #[error("entry says timestamp {timestamp_ms} is first reached at offset {offset}; {found}")]
    TimeIndex {
        /// The entry's offset.
        offset: Offset,
        /// The entry's timestamp.
        timestamp_ms: i64,
        /// What it is instead.
        found: String,
    },
    /// An index does not consist of whole entries.
    #[error("{odd_bytes} bytes after the last entry")]
    OddBytes {
        /// How many.
        odd_bytes: usize,
    },
    /// An entry of the aborted index cannot be read.
    #[error(transparent)]
    AbortedFile(TransactionParseError),
    /// The aborted index says otherwise than the log's markers.
    #[error("the log has {}, the index has {}", describe(.log.as_ref()), describe(.index.as_ref()))]
    Aborted {
        /// What the log says.
        log: Option<AbortedTxn>,
        /// What the index says.
        index: Option<AbortedTxn>,
    },
    /// More transactions are open than can be followed.
    #[error(transparent)]
    Transactions(TransactionError),
    /// A snapshot of open transactions cannot be read, or says otherwise than the log.
    #[error("open transactions: {0}")]
    OpenTransactions(String),
    /// A file cannot be read.
    #[error("cannot be read: {0}")]
    Io(io::Error),
}

/// The result for one partition folder.
#[derive(Debug)]
pub struct PartitionReport {
    /// The folder.
    pub folder: PathBuf,
    /// Segments read.
    pub segments: usize,
    /// Batches read.
    pub batches: u64,
    /// Records, as headers count them, or as read where records were looked at.
    pub records: u64,
    /// Bytes of batches.
    pub bytes: u64,
    /// First offset; `None` in an empty log.
    pub first_offset: Option<Offset>,
    /// One past the last offset.
    pub next_offset: Offset,
    /// Offsets missing between batches: compaction and transactions leave such gaps.
    pub gap_offsets: u64,
    /// Transactions still open at the end.
    pub open_transactions: usize,
    /// What is wrong; empty if nothing is.
    pub findings: Vec<Finding>,
    /// Findings beyond those kept.
    pub findings_more: u64,
}

impl PartitionReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }
}

fn describe(aborted: Option<&AbortedTxn>) -> String {
    match aborted {
        None => "no aborted transaction".to_owned(),
        Some(entry) => format!(
            "an aborted transaction of producer {} from {} to {} (stable to {})",
            entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
        ),
    }
}
