//! The store on real storage: what it keeps, what it lets go, and what it does when it cannot read.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dataplane::PartitionTable;
use storage::{Offset, Storage, StorageConfig};
use tokio::sync::oneshot;

use super::store::partition_of;
use super::*;

fn open_storage(directory: &Path) -> Arc<Storage> {
    Storage::open(StorageConfig {
        directories: vec![directory.to_owned()],
        descriptors_max: 1_000,
        mappings_max: 1_000,
        recycle_bytes_max: 0,
    })
    .unwrap()
}

fn open_store(storage: &Arc<Storage>, registry: &Arc<PartitionTable>) -> OffsetStore {
    OffsetStore::open(storage.clone(), registry.clone(), Arc::new(|_| {})).unwrap()
}

fn commit(partition: i32, offset: i64, metadata: &Arc<str>) -> Update {
    let committed =
        Committed { offset, leader_epoch: 0, metadata: metadata.clone(), commit_timestamp_ms: 1 };
    Update::Commit { topic: "t".into(), partition, committed }
}

fn submit(store: &OffsetStore, group: &str, update: Update) -> oneshot::Receiver<WriteOutcome> {
    let (done, outcome) = oneshot::channel();
    let request = WriteRequest { group: group.into(), updates: vec![update], done: vec![done] };
    store.submit(request).unwrap();
    outcome
}

fn offset_of(store: &OffsetStore, group: &str, partition: i32) -> Option<i64> {
    store.table().committed(group, "t", partition).map(|committed| committed.offset)
}

#[test]
fn a_log_of_outdated_commits_is_rewritten_and_reads_back_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open_storage(directory.path());
    let registry = Arc::new(PartitionTable::default());
    let store = open_store(&storage, &registry);
    let metadata: Arc<str> = "x".repeat(4_000).into();
    let mut outcomes = Vec::new();
    drop(submit(&store, "g", Update::Group(Bytes::from_static(b"members"))));
    // Some 24 MB of commits to four partitions, of which 16 kB live.
    for offset in 0..6_000 {
        outcomes.push(submit(&store, "g", commit((offset % 4) as i32, offset, &metadata)));
    }
    for outcome in outcomes {
        assert_eq!(outcome.blocking_recv(), Ok(Ok(())));
    }
    let log = registry.by_name(OFFSETS_TOPIC, partition_of("g") as i32).unwrap().log.clone();
    assert!(log.log_start() > Offset(4_000), "log start {}", log.log_start());
    store.close();

    let store = open_store(&storage, &registry);
    assert_eq!(offset_of(&store, "g", 3), Some(5_999));
    assert_eq!(offset_of(&store, "g", 0), Some(5_996));
    let groups: Vec<_> = store.table().group_records().map(|(_, record)| record.clone()).collect();
    assert_eq!(groups, [Bytes::from_static(b"members")]);
}

#[test]
fn a_deletion_takes_along_what_was_queued_before_it_and_nothing_after() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open_storage(directory.path());
    let registry = Arc::new(PartitionTable::default());
    let store = open_store(&storage, &registry);
    let note: Arc<str> = "".into();
    drop(submit(&store, "g", commit(0, 1, &note)));
    drop(submit(&store, "g", commit(1, 2, &note)));
    drop(submit(&store, "g", Update::Delete));
    let last = submit(&store, "g", commit(1, 3, &note));
    assert_eq!(last.blocking_recv(), Ok(Ok(())));
    for _ in 0..2 {
        let store = open_store_again(&store, &storage, &registry);
        assert_eq!(offset_of(&store, "g", 0), None);
        assert_eq!(offset_of(&store, "g", 1), Some(3));
        store.close();
    }
}

fn open_store_again(
    store: &OffsetStore,
    storage: &Arc<Storage>,
    registry: &Arc<PartitionTable>,
) -> OffsetStore {
    store.close();
    open_store(storage, registry)
}

#[test]
fn groups_of_a_partition_that_cannot_be_read_are_refused_and_the_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Arc::new(PartitionTable::default());
    let note: Arc<str> = "".into();
    assert_ne!(partition_of("good"), partition_of("damaged"));
    {
        let storage = open_storage(directory.path());
        let store = open_store(&storage, &registry);
        for group in ["good", "damaged"] {
            assert_eq!(submit(&store, group, commit(0, 7, &note)).blocking_recv(), Ok(Ok(())));
        }
        store.close();
    }
    // A folder where a segment should be.
    let folder = directory.path().join(format!("{OFFSETS_TOPIC}-{}", partition_of("damaged")));
    let segment = folder.join("00000000000000000000.log");
    let aside = folder.join("aside");
    std::fs::rename(&segment, &aside).unwrap();
    std::fs::create_dir(&segment).unwrap();

    let storage = open_storage(directory.path());
    let store = open_store(&storage, &registry);
    assert!(store.is_readable("good") && !store.is_readable("damaged"));
    assert_eq!(offset_of(&store, "good", 0), Some(7));
    let refused = submit(&store, "damaged", commit(0, 1, &note)).blocking_recv().unwrap();
    assert!(refused.is_err());
    assert_eq!(submit(&store, "good", commit(0, 8, &note)).blocking_recv(), Ok(Ok(())));
    store.close();

    // Mended, it is there again.
    std::fs::remove_dir(&segment).unwrap();
    std::fs::rename(&aside, &segment).unwrap();
    let store = open_store(&storage, &registry);
    assert!(store.is_readable("damaged"));
    assert_eq!(offset_of(&store, "damaged", 0), Some(7));
}
