//! What a node must remember: mirrors, topics, partitions' faults and epochs, history, its own id.
//!
//! Owned by the control plane. Records are small and change rarely; positions that move with the data
//! are in the logs themselves and never here. Reads happen once, at start; writes go through
//! [`StoreWriter`], whose thread may block on the disk.

mod records;
mod redb_store;
mod writer;

pub use records::{
    Change, EventKind, EventRecord, MirrorRecord, PartitionRecord, Snapshot, StoredFault,
    TopicRecord,
};
pub use redb_store::RedbStore;
pub use writer::StoreWriter;

/// Events kept. The newest push out the oldest; counters in the partition records never shrink.
pub const EVENTS_MAX: u64 = 10_000;

/// A place for records.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Everything, once at start.
    fn load(&self) -> Result<Snapshot, StoreError>;

    /// All changes durably, or none of them.
    fn apply(&self, changes: &[Change]) -> Result<(), StoreError>;
}

/// Why the store cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened, read or written.
    #[error("metadata store {path}: {reason}")]
    Unusable {
        /// The file.
        path: String,
        /// Its fault.
        reason: String,
    },
    /// A record is not readable: written by a newer version, or damaged.
    #[error("metadata store {path}: record {key} cannot be read: {reason}")]
    Record {
        /// The file.
        path: String,
        /// Which record.
        key: String,
        /// Its fault.
        reason: String,
    },
    /// The writer's thread ended.
    #[error("the metadata store is closed")]
    Closed,
}
