//! What the tests of logs share: small batches, small segments, a log in a temporary directory.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul_storage::batch::BatchBuilder;
use longhaul_storage::{
    AppendContext, LeaderEpoch, Log, LogConfig, LogReader, Offset, RecoveryReport, Storage,
    StorageConfig, TopicId, TopicPartition,
};

pub const ANY_EPOCH: AppendContext = AppendContext { leader_epoch_max: LeaderEpoch::UNKNOWN };

pub fn storage(path: &Path) -> Arc<Storage> {
    Storage::open(storage_config(path)).unwrap()
}

pub fn storage_config(path: &Path) -> StorageConfig {
    StorageConfig {
        directories: vec![path.to_path_buf()],
        descriptors_max: 64,
        mappings_max: 64,
        recycle_bytes_max: 0,
    }
}

/// Storage with a pool of recycled segments.
pub fn recycling_storage(path: &Path) -> Arc<Storage> {
    Storage::open(StorageConfig { recycle_bytes_max: 16 << 20, ..storage_config(path) }).unwrap()
}

/// Receives `bytes` into the log's mapped tail, as the kernel would: through the same page cache.
/// `position` is where the tail is in the newest segment's file.
pub fn receive(root: &Path, position: u64, bytes: &[u8]) {
    let name = files_of(root, ".log").pop().unwrap();
    let file = std::fs::File::options().write(true).open(folder(root).join(name)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, position).unwrap();
}

pub fn config() -> LogConfig {
    LogConfig {
        segment_bytes_max: 1 << 20,
        segment_age_max: Duration::from_secs(3600),
        index_interval_bytes: 256,
        index_bytes_max: 1 << 16,
        batch_bytes_max: 1 << 20,
    }
}

pub fn partition() -> TopicPartition {
    TopicPartition { topic: Arc::from("orders"), partition: 3 }
}

pub fn topic_id() -> TopicId {
    TopicId([9; 16])
}

pub fn create(storage: &Arc<Storage>, config: LogConfig) -> Log {
    storage.create_log(&partition(), topic_id(), Offset(0), config).unwrap()
}

pub fn open(storage: &Arc<Storage>, config: LogConfig) -> (Log, RecoveryReport) {
    storage.open_log(&partition(), config).unwrap()
}

/// A batch of `records` records of about 20 bytes, one millisecond per offset.
pub fn batch(base: i64, records: i32, epoch: i32) -> Vec<u8> {
    batch_of(base, records, epoch, 8)
}

pub fn batch_of(base: i64, records: i32, epoch: i32, value_bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset(base), LeaderEpoch(epoch));
    for delta in 0..i64::from(records) {
        let mut value = format!("v{:07}", base + delta).into_bytes();
        value.resize(value_bytes.max(8), b'.');
        builder.push(1_000_000 + base + delta, Some(b"k"), Some(&value), &[]);
    }
    builder.finish()
}

/// Batches of `records` each, from `base`, and their bytes one after another.
pub fn batches(base: i64, count: i64, records: i32, epoch: i32) -> Vec<u8> {
    (0..count)
        .flat_map(|number| batch(base + number * i64::from(records), records, epoch))
        .collect()
}

/// Everything in the log, read in pieces of `step` bytes, whole batches only.
pub fn read_all(reader: &LogReader, step: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut next = reader.log_start();
    while let Some(slice) = reader.read(next, reader.log_end(), step, true).unwrap() {
        let bytes = slice.to_vec();
        let limits = longhaul_storage::batch::BatchLimits { batch_bytes_max: u32::MAX };
        let mut whole = 0;
        for batch in longhaul_storage::batch::walk(&bytes, limits) {
            let Ok(batch) = batch else { break };
            whole = batch.position + batch.info.size_bytes as usize;
            next = batch.info.next_offset();
        }
        assert!(whole > 0, "no whole batch in {} bytes at {next}", bytes.len());
        all.extend_from_slice(&bytes[..whole]);
    }
    all
}

/// A copy of a data directory, as a crash would leave it (page cache included).
pub fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub fn folder(root: &Path) -> std::path::PathBuf {
    root.join(partition().to_string())
}

/// The names in a partition's folder that end with `suffix`, in order.
pub fn files_of(root: &Path, suffix: &str) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder(root))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(suffix))
        .collect();
    names.sort();
    names
}

/// All `.log` bytes of the partition in order.
pub fn log_bytes(root: &Path) -> Vec<u8> {
    let names = files_of(root, ".log");
    names.iter().flat_map(|name| std::fs::read(folder(root).join(name)).unwrap()).collect()
}
