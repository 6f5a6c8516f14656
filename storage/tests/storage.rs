//! The node's storage: directories, budgets, faults, and many logs at once.
#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    ANY_EPOCH, batch, batch_of, batches, config, create, open, partition, read_all, storage,
    storage_config, topic_id,
};
use longhaul_storage::{
    Log, LogConfig, Offset, OpenError, Storage, StorageConfig, TopicId, TopicPartition,
};

fn numbered(partition: i32) -> TopicPartition {
    TopicPartition { topic: Arc::from("many"), partition }
}

#[test]
fn a_directory_is_used_by_one_storage_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let first = storage(root.path());
    let second = Storage::open(storage_config(root.path()));
    let Err(error @ OpenError::Locked(_)) = second else { panic!("{second:?}") };
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(first);
    Storage::open(storage_config(root.path())).unwrap();
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("a-file");
    std::fs::write(&file, "x").unwrap();
    let Err(error) = Storage::open(storage_config(&file)) else { panic!("opened a file") };
    assert!(error.to_string().contains("a-file"), "{error}");
    let closed = root.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o500)).unwrap();
    match Storage::open(storage_config(&closed)) {
        Err(error) => assert!(error.to_string().contains("closed"), "{error}"),
        // The superuser may write anywhere.
        Ok(_) => assert!(rustix_is_root()),
    }
}

fn rustix_is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[test]
fn a_log_is_open_once_and_found_again() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let log = create(&storage, config());
    let twice = storage.create_log(&partition(), topic_id(), Offset(0), config());
    assert!(matches!(twice, Err(OpenError::Exists(_))));
    assert!(matches!(storage.open_log(&partition(), config()), Err(OpenError::Exists(_))));
    let missing = storage.open_log(&numbered(7), config());
    assert!(matches!(missing, Err(OpenError::Missing(_))));
    drop(log);
    open(&storage, config());
}

#[test]
fn names_with_separators_and_topics_without_id_come_back() {
    let root = tempfile::tempdir().unwrap();
    let names = ["a-1-b", "a-1", "a.b", "a_b", "1", &"x".repeat(249)];
    {
        let storage = storage(root.path());
        for (number, name) in names.iter().enumerate() {
            let partition = TopicPartition { topic: Arc::from(*name), partition: 10 };
            let id = if number == 0 { TopicId::ZERO } else { TopicId([number as u8; 16]) };
            let mut log = storage.create_log(&partition, id, Offset(0), config()).unwrap();
            log.append(&batch(number as i64, 1, 0), &ANY_EPOCH).unwrap();
            log.close().unwrap();
        }
    }
    let storage = storage(root.path());
    let found = storage.partitions();
    assert_eq!(found.len(), names.len());
    for (number, name) in names.iter().enumerate() {
        let partition = TopicPartition { topic: Arc::from(*name), partition: 10 };
        let on_disk = found.iter().find(|found| found.partition == partition).unwrap();
        assert_eq!(on_disk.topic_id, TopicId([number as u8; 16]));
        let (log, report) = storage.open_log(&partition, config()).unwrap();
        assert!(report.clean, "{name}");
        assert_eq!(log.reader().log_end(), Offset(number as i64 + 1));
    }
}

#[test]
fn a_deleted_log_is_gone_and_leftovers_of_a_crash_are_removed() {
    let root = tempfile::tempdir().unwrap();
    {
        let storage = storage(root.path());
        let mut log = create(&storage, config());
        log.append(&batches(0, 10, 3, 0), &ANY_EPOCH).unwrap();
        storage.checkpoint().unwrap();
        storage.delete_log(log).unwrap();
        assert!(!common::folder(root.path()).exists());
        assert!(storage.partitions().is_empty());
        // The same name again, and a crash: nothing of the first is believed of the second.
        let mut log = create(&storage, config());
        log.append(&batch_of(0, 1, 0, 2000), &ANY_EPOCH).unwrap();
        drop(log);
        let path = common::folder(root.path()).join(format!("{:020}.log", 0));
        let mut damaged = std::fs::read(&path).unwrap();
        damaged[200] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let (log, _) = open(&storage, config());
        assert_eq!(log.reader().log_end(), Offset(0));
    }
    std::fs::create_dir(root.path().join("gone-0.0123456789abcdef0123456789abcdef-delete"))
        .unwrap();
    std::fs::create_dir(root.path().join(".longhaul/half-0.new")).unwrap();
    let storage = storage(root.path());
    assert_eq!(storage.partitions().len(), 1);
    let names = std::fs::read_dir(root.path()).unwrap();
    assert!(!names.flatten().any(|name| name.file_name().to_string_lossy().contains("-delete")));
    assert!(!root.path().join(".longhaul/half-0.new").exists());
}

#[test]
fn new_logs_go_to_the_directory_with_the_fewest() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let directories = vec![one.path().to_path_buf(), two.path().to_path_buf()];
    let settings = StorageConfig { directories, ..storage_config(one.path()) };
    {
        let storage = Storage::open(settings.clone()).unwrap();
        for number in 0..6 {
            storage.create_log(&numbered(number), topic_id(), Offset(0), config()).unwrap();
        }
        storage.checkpoint().unwrap();
    }
    let count = |path| {
        let entries = std::fs::read_dir(path).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("many-")).count()
    };
    assert_eq!((count(one.path()), count(two.path())), (3, 3));
    assert_eq!(Storage::open(settings.clone()).unwrap().partitions().len(), 6);
    // The same partition twice is not ours to choose from.
    common::copy_directory(&one.path().join("many-0"), &two.path().join("many-0"));
    let both = Storage::open(settings);
    assert!(matches!(both, Err(OpenError::Twice { .. })), "{both:?}");
}

#[test]
fn damage_in_one_partition_leaves_the_others_alone() {
    let root = tempfile::tempdir().unwrap();
    {
        let storage = storage(root.path());
        for number in 0..3 {
            let mut log =
                storage.create_log(&numbered(number), topic_id(), Offset(0), config()).unwrap();
            log.append(&batches(0, 5, 2, 0), &ANY_EPOCH).unwrap();
            log.close().unwrap();
        }
    }
    // A folder where the segment should be: nothing can be made of it.
    let segment = root.path().join(format!("many-1/{:020}.log", 0));
    std::fs::remove_file(&segment).unwrap();
    std::fs::create_dir(&segment).unwrap();
    std::fs::write(root.path().join("many-2/partition.metadata"), "version: 9").unwrap();
    let storage = storage(root.path());
    assert_eq!(storage.partitions().len(), 3);
    let broken = storage.open_log(&numbered(1), config());
    let Err(error) = broken else { panic!("opened") };
    assert!(error.to_string().contains("many-1"), "{error}");
    for number in [0, 2] {
        let (log, _) = storage.open_log(&numbered(number), config()).unwrap();
        assert!(read_all(log.reader(), 1) == batches(0, 5, 2, 0));
    }
    // Mended from outside, it opens without a restart.
    std::fs::remove_dir(&segment).unwrap();
    storage.open_log(&numbered(1), config()).unwrap();
}

#[test]
fn a_partition_whose_creation_was_lost_with_the_power_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    {
        let storage = storage(root.path());
        for number in 0..2 {
            storage.create_log(&numbered(number), topic_id(), Offset(0), config()).unwrap();
            // The second is not in a checkpoint.
            if number == 0 {
                let (mut log, _) = storage.open_log(&numbered(0), config()).unwrap();
                log.append(&batch(0, 1, 0), &ANY_EPOCH).unwrap();
                log.close().unwrap();
            }
        }
    }
    for number in 0..2 {
        std::fs::write(root.path().join(format!("many-{number}/partition.metadata")), "").unwrap();
    }
    let storage = storage(root.path());
    let found = storage.partitions();
    assert_eq!(found.iter().map(|found| found.partition.partition).collect::<Vec<_>>(), [0]);
    storage.create_log(&numbered(1), topic_id(), Offset(0), config()).unwrap();
}

#[test]
fn descriptors_and_mappings_stay_within_their_budgets() {
    let root = tempfile::tempdir().unwrap();
    let settings =
        StorageConfig { descriptors_max: 10, mappings_max: 5, ..storage_config(root.path()) };
    let storage = Storage::open(settings).unwrap();
    let small = LogConfig { segment_bytes_max: 500, ..config() };
    let mut logs: Vec<Log> = Vec::new();
    for number in 0..20 {
        let mut log =
            storage.create_log(&numbered(number), topic_id(), Offset(0), small.clone()).unwrap();
        for base in 0..10 {
            log.append(&batch_of(base, 1, 0, 200), &ANY_EPOCH).unwrap();
            let (descriptors, mappings) = storage.held();
            assert!(descriptors <= 10 && mappings <= 5, "{descriptors} {mappings}");
        }
        logs.push(log);
    }
    for round in 0..3 {
        for log in &logs {
            assert_eq!(read_all(log.reader(), 1).len() % 10, 0, "round {round}");
            let (descriptors, mappings) = storage.held();
            assert!(descriptors <= 10 && mappings <= 5, "{descriptors} {mappings}");
        }
    }
    // What a reader holds stays mapped beyond the budget, and is given back with it.
    let slices: Vec<_> = logs
        .iter()
        .map(|log| log.reader().read(Offset(0), Offset(9), 1, true).unwrap().unwrap())
        .collect();
    assert!(storage.held().1 >= 20);
    drop(slices);
    logs.iter_mut().for_each(|log| log.maintain(1).unwrap());
    logs.iter_mut().for_each(|log| log.maintain(2).unwrap());
    assert_eq!(storage.held(), (0, 0));
}

#[test]
fn two_thousand_idle_logs_hold_nothing_and_cost_little() {
    const LOGS: i32 = 2_000;
    let root = tempfile::tempdir().unwrap();
    {
        let storage = storage(root.path());
        for number in 0..LOGS {
            let mut log =
                storage.create_log(&numbered(number), topic_id(), Offset(0), config()).unwrap();
            log.append(&batch(0, 3, 0), &ANY_EPOCH).unwrap();
        }
        storage.checkpoint().unwrap();
    }
    let own_descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let storage = storage(root.path());
    let (descriptors, resident) = (own_descriptors(), resident_bytes());
    let mut logs = Vec::new();
    for number in 0..LOGS {
        logs.push(storage.open_log(&numbered(number), config()).unwrap().0);
    }
    let each = (resident_bytes() - resident) / LOGS as u64;
    assert_eq!(storage.held(), (0, 0));
    assert!(own_descriptors() <= descriptors + 8, "other tests open a few of their own");
    assert!(each < 4096, "{each} bytes for each idle log");
    // Used once and idle again: the same.
    for log in &mut logs {
        log.append(&batch(3, 3, 0), &ANY_EPOCH).unwrap();
        log.reader().read(Offset(0), Offset(9), 100, true).unwrap().unwrap();
    }
    for now in [1, 2] {
        logs.iter_mut().for_each(|log| log.maintain(now).unwrap());
    }
    assert_eq!(storage.held(), (0, 0));
    let each = (resident_bytes() - resident) / LOGS as u64;
    assert!(each < 4096, "{each} bytes for each log that was used");
}

/// Memory of this process that is there, from the kernel's own count.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn readers_on_other_threads_see_whole_published_batches_and_never_less_than_before() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let small = LogConfig { segment_bytes_max: 5000, ..config() };
    let mut log = create(&storage, small);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for step in [1, 700, 100_000] {
            let (reader, done) = (log.reader().clone(), &done);
            scope.spawn(move || {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) {
                    let end = reader.log_end();
                    assert!(end.0 >= seen && end.0 % 3 == 0);
                    assert!(reader.last_stable_offset() <= reader.log_end());
                    seen = end.0;
                    let bytes = read_until(&reader, end, step);
                    assert_eq!(bytes, end.0, "what was published is there, whole");
                }
            });
        }
        for number in 0..3000 {
            let bytes = batch(number * 3, 3, 0);
            log.prepare_landing(bytes.len() as u32).unwrap();
            for piece in bytes.chunks(40) {
                log.land(piece, &ANY_EPOCH).unwrap();
            }
            log.finish_landing().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Reads and verifies the last ten thousand offsets before `end`; returns where it got.
fn read_until(reader: &longhaul_storage::LogReader, end: Offset, step: usize) -> i64 {
    let mut next = Offset((end.0 - 300).max(0));
    while let Some(slice) = reader.read(next, end, step, true).unwrap() {
        let bytes = slice.to_vec();
        let limits = longhaul_storage::batch::BatchLimits { batch_bytes_max: u32::MAX };
        for batch in longhaul_storage::batch::walk(&bytes, limits) {
            let Ok(batch) = batch else { break };
            assert!(batch.info.base_offset <= next);
            next = batch.info.next_offset();
        }
    }
    next.0
}
