//! A node's log directories: what is there, what may be used, how it comes back after a crash.

use std::path::PathBuf;
use std::sync::Arc;

use crate::log::{AppendError, Log, LogConfig};
use crate::{Offset, TopicId, TopicPartition};

/// Node-wide storage settings and budgets.
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// Log directories; a new partition goes to the one with the fewest.
    pub directories: Vec<PathBuf>,
    /// Open file descriptors that logs may hold together.
    pub descriptors_max: usize,
    /// Mappings that logs may hold together.
    pub mappings_max: usize,
    /// Bytes of recycled, mapped segments kept ready.
    pub recycle_bytes_max: u64,
}

/// Why a log directory or a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the directory.
    #[error(
        "{0} is in use by another process (its .lock file is held); stop that process or choose another --data-dir"
    )]
    Locked(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use {path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The partition is already there.
    #[error("{0} already exists")]
    Exists(TopicPartition),
    /// The partition is not there.
    #[error("{0} is not on disk")]
    Missing(TopicPartition),
}

/// A partition folder found at start.
#[derive(Clone, Debug)]
pub struct PartitionOnDisk {
    /// Its name.
    pub partition: TopicPartition,
    /// Its topic's id, from `partition.metadata`.
    pub topic_id: TopicId,
}

/// What recovery did to one log.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Whether the log was closed cleanly, so that nothing had to be scanned.
    pub clean: bool,
    /// Bytes scanned.
    pub scanned_bytes: u64,
    /// Bytes cut from the tail.
    pub cut_bytes: u64,
    /// Why the tail was cut.
    pub cut_reason: Option<String>,
}

/// The storage of a node.
#[derive(Debug)]
pub struct Storage {}

impl Storage {
    /// Locks and reads the directories; creates them if missing.
    pub fn open(_config: StorageConfig) -> Result<Arc<Self>, OpenError> {
        todo!()
    }

    /// The partition folders found.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionOnDisk> {
        todo!()
    }

    /// A new, empty log whose first record will be at or after `log_start`.
    pub fn create_log(
        self: &Arc<Self>,
        _partition: &TopicPartition,
        _topic_id: TopicId,
        _log_start: Offset,
        _config: LogConfig,
    ) -> Result<Log, OpenError> {
        todo!()
    }

    /// Opens and recovers a log.
    pub fn open_log(
        self: &Arc<Self>,
        _partition: &TopicPartition,
        _config: LogConfig,
    ) -> Result<(Log, RecoveryReport), OpenError> {
        todo!()
    }

    /// Deletes a log's folder; its segments may be recycled.
    pub fn delete_log(&self, _log: Log) -> Result<(), AppendError> {
        todo!()
    }

    /// Makes recovery points and log starts durable, so that a restart scans only what came later.
    /// Call it every few seconds from a thread that may block.
    pub fn checkpoint(&self) -> Result<(), OpenError> {
        todo!()
    }

    /// Descriptors and mappings held now.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        todo!()
    }
}
