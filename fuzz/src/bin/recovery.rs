//! Opening a partition folder of arbitrary files: it always comes up, and what it keeps is right.
//!
//! An input is a row of pieces, each a file's number, a 16-bit length and so many bytes. Batches in
//! the logs get their checksums made right, so that what lies behind them is reached.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use storage::batch::{BatchLimits, walk_headers};
use storage::inspect::{InspectOptions, verify_partition};
use storage::{
    AppendContext, LeaderEpoch, LogConfig, Offset, OpenError, Storage, StorageConfig, TopicPartition,
};

const CHECKPOINT: u8 = 11;
const FILES: [&str; 12] = [
    "orders-0/00000000000000000000.log",
    "orders-0/00000000000000000000.index",
    "orders-0/00000000000000000000.timeindex",
    "orders-0/00000000000000000000.txnindex",
    "orders-0/00000000000000000002.log",
    "orders-0/00000000000000000002.index",
    "orders-0/00000000000000000002.timeindex",
    "orders-0/00000000000000000002.txnindex",
    "orders-0/00000000000000000002.opentxns",
    "orders-0/leader-epoch-checkpoint",
    "orders-0/partition.metadata",
    ".longhaul/checkpoint",
];

fuzz_target!(|input: &[u8]| {
    // In memory: a case writes and syncs a dozen files.
    let root = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    fs::create_dir_all(root.path().join("orders-0")).expect("a folder");
    fs::create_dir_all(root.path().join(".longhaul")).expect("a folder");
    let checkpointed = write_files(root.path(), input);

    let partition = TopicPartition { topic: Arc::from("orders"), partition: 0 };
    let storage = Storage::open(StorageConfig {
        directories: vec![root.path().to_path_buf()],
        descriptors_max: 8,
        mappings_max: 8,
        recycle_bytes_max: 0,
    })
    .expect("a directory that can be used");
    let config = LogConfig {
        segment_bytes_max: 600,
        segment_age_max: Duration::from_secs(3600),
        index_interval_bytes: 100,
        index_bytes_max: 4096,
        batch_bytes_max: 4096,
    };
    let (mut log, _) = match storage.open_log(&partition, config) {
        // Metadata of zeros and no checkpoint: what power loss leaves of a folder just made.
        Err(OpenError::Missing(_)) => return,
        result => result.expect("damage is cut, not refused"),
    };

    let end = log.reader().log_end();
    assert!(log.reader().log_start() <= end);
    assert!(log.reader().last_stable_offset() <= end);
    let epoch = LeaderEpoch(log.reader().latest_epoch().0.max(0));
    let mut batch = storage::batch::BatchBuilder::new(end, epoch);
    batch.push(1, None, Some(b"the next record"), &[]);
    let any_epoch = AppendContext { leader_epoch_max: LeaderEpoch::UNKNOWN };
    // The last offsets there are cannot be appended to.
    if end < Offset(i64::MAX - 1) {
        let landed = log.append(&batch.finish(), &any_epoch).expect("the log goes on");
        assert_eq!(landed.batches, 1);
    }
    log.close().expect("a clean stop");
    // A sound checkpoint vouches for bytes that are then not looked at again.
    if !checkpointed {
        let options = InspectOptions { batch_bytes_max: 4096, ..InspectOptions::default() };
        let report = verify_partition(&root.path().join("orders-0"), &options);
        // Recovery cannot make up a topic id: damaged metadata stays as it was found, and named.
        let mut findings = report.findings;
        findings.retain(|finding| !finding.file.ends_with("partition.metadata"));
        assert!(findings.is_empty(), "{findings:#?}");
    }
});

/// Whether a checkpoint was among them.
fn write_files(root: &Path, mut input: &[u8]) -> bool {
    let mut checkpointed = false;
    while let Some(([file, high, low], rest)) = input.split_first_chunk::<3>() {
        let file = file % FILES.len() as u8;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (bytes, rest) = rest.split_at(length.min(rest.len()));
        let mut bytes = bytes.to_vec();
        let name = FILES[usize::from(file)];
        if name.ends_with(".log") {
            mend(&mut bytes);
        }
        checkpointed |= file == CHECKPOINT;
        fs::write(root.join(name), bytes).expect("a file");
        input = rest;
    }
    checkpointed
}

fn mend(log: &mut [u8]) {
    let limits = BatchLimits { batch_bytes_max: 4096 };
    let found: Vec<_> = walk_headers(log, limits)
        .map_while(Result::ok)
        .map(|batch| (batch.position, batch.info.magic, batch.bytes.len()))
        .collect();
    for (position, magic, len_bytes) in found {
        let batch = &mut log[position..position + len_bytes];
        let (at, crc) = match magic {
            2 => (17, crc32c::crc32c(&batch[21..])),
            _ => (12, crc32fast::hash(&batch[16..])),
        };
        batch[at..at + 4].copy_from_slice(&crc.to_be_bytes());
    }
}
