//! The handle on the offsets: asked by any thread, written through a queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use dataplane::PartitionTable;
use storage::Storage;

use super::table::OffsetTable;
use super::writer::{WriteRequest, Writer};
use crate::admin::PublishedHook;

/// The internal topic.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Its partitions, as many as Kafka's default. Not a setting: a group's partition follows from it.
pub(crate) const OFFSETS_PARTITIONS: usize = 50;

/// Writes that may wait. A connection has one request at a time, so this is as many clients that
/// commit at the same moment; further ones are told to try again.
const WAITING_WRITES_MAX: usize = 16 * 1024;

const _: () = assert!(OFFSETS_PARTITIONS <= 64, "the set of unread partitions is one word");

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Its thread could not be started.
    #[error("cannot start the thread that writes group offsets: {0}")]
    Thread(std::io::Error),
}

/// Every group's offsets, and the way to change them.
#[derive(Debug)]
pub(crate) struct OffsetStore {
    shared: Arc<SharedOffsets>,
    /// The queue and who empties it; `None` once the store is closing.
    writer: Mutex<Option<(SyncSender<WriteRequest>, JoinHandle<()>)>>,
}

/// What the writer and everybody else look at.
#[derive(Debug, Default)]
pub(super) struct SharedOffsets {
    pub(super) table: RwLock<OffsetTable>,
    /// One bit for each partition that could not be read back: what its groups committed is not
    /// known, which must not be taken for nothing.
    pub(super) unread: AtomicU64,
}

impl OffsetStore {
    /// Opens the partitions that are there and replays them. Blocks.
    pub(crate) fn open(
        storage: Arc<Storage>,
        registry: Arc<PartitionTable>,
        published: PublishedHook,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(SharedOffsets::default());
        let mut writer = Writer::new(storage, registry, published, shared.clone());
        writer.open_existing();
        let (queue, requests) = sync_channel(WAITING_WRITES_MAX);
        let thread = std::thread::Builder::new()
            .name("group-offsets".into())
            .spawn(move || writer.run(&requests))
            .map_err(StoreError::Thread)?;
        Ok(Self { shared, writer: Mutex::new(Some((queue, thread))) })
    }

    /// What is committed and durable.
    pub(crate) fn table(&self) -> RwLockReadGuard<'_, OffsetTable> {
        self.shared.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the group's partition was read back.
    pub(crate) fn is_readable(&self, group: &str) -> bool {
        let bit = 1u64 << partition_of(group);
        self.shared.unread.load(Ordering::Acquire) & bit == 0
    }

    /// Queues a write; gives it back when too many wait.
    pub(crate) fn submit(&self, request: WriteRequest) -> Result<(), WriteRequest> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((queue, _)) = &*writer else { return Err(request) };
        queue.try_send(request).map_err(|error| match error {
            TrySendError::Full(request) | TrySendError::Disconnected(request) => request,
        })
    }

    /// Writes what waits, and closes the logs cleanly. Blocks; nothing can be written afterwards.
    pub(crate) fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((queue, thread)) = writer else { return };
        drop(queue);
        if thread.join().is_err() {
            tracing::error!("the thread that writes group offsets ended by a panic");
        }
    }
}

/// The partition of `__consumer_offsets` that a group belongs to, as in Kafka: by the hash Java
/// gives the group's name.
pub(crate) fn partition_of(group: &str) -> usize {
    let hash = group
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // Java's smallest integer has no positive counterpart; Kafka takes 0.
    hash.checked_abs().unwrap_or(0) as usize % OFFSETS_PARTITIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_where_kafka_puts_them() {
        // Values of Java's String.hashCode: "" is 0, "a" is 97, "hello" is 99162322, and
        // "polygenelubricants" is the smallest integer.
        assert_eq!(partition_of(""), 0);
        assert_eq!(partition_of("a"), 97 % 50);
        assert_eq!(partition_of("hello"), 99_162_322 % 50);
        assert_eq!(partition_of("polygenelubricants"), 0);
    }
}
