//! Coming back after a crash: a valid prefix, whatever the tail looks like.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    ANY_EPOCH, batch, batch_of, batches, config, copy_directory, create, files_of, folder,
    log_bytes, open, read_all, storage,
};
use longhaul_storage::{LogConfig, Offset};
use proptest::prelude::*;

fn small() -> LogConfig {
    LogConfig { segment_bytes_max: 900, ..config() }
}

/// A crashed directory with one segment of ten batches, none of it checkpointed.
fn crashed(bytes: &[u8]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    log.append(bytes, &ANY_EPOCH).unwrap();
    root
}

fn segment_path(root: &tempfile::TempDir) -> std::path::PathBuf {
    folder(root.path()).join(format!("{:020}.log", 0))
}

#[test]
fn every_flipped_bit_ends_the_log_before_its_batch() {
    let bytes = batches(0, 4, 2, 0);
    let one = bytes.len() / 4;
    let root = crashed(&bytes);
    for position in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            std::fs::write(segment_path(&root), &damaged).unwrap();
            let storage = storage(root.path());
            let (log, report) = open(&storage, config());
            let kept = log_bytes(root.path());
            // The base offset and the leader epoch lie outside the checksum: a batch that still
            // continues the log cannot be told from a sound one.
            let field = position % one;
            let unprotected = field < 8 || (12..16).contains(&field);
            let whole = position / one * one;
            if unprotected && kept.len() > whole {
                continue;
            }
            assert!(kept == bytes[..whole], "byte {position} bit {bit}: {report:?}");
            assert_eq!(log.reader().log_end(), Offset((position / one * 2) as i64));
            assert_eq!(report.cut_bytes, (bytes.len() - whole) as u64);
            assert!(report.cut_reason.is_some());
        }
    }
}

#[test]
fn a_file_torn_at_any_byte_is_cut_to_whole_batches() {
    let bytes = batches(0, 4, 2, 0);
    let one = bytes.len() / 4;
    let root = crashed(&bytes);
    for len in 0..=bytes.len() {
        std::fs::write(segment_path(&root), &bytes[..len]).unwrap();
        let storage = storage(root.path());
        let (mut log, _) = open(&storage, config());
        let whole = len / one * one;
        assert!(log_bytes(root.path()) == bytes[..whole], "torn at {len}");
        let next = log.reader().log_end();
        log.append(&batch(next.0, 2, 0), &ANY_EPOCH).unwrap();
        assert!(read_all(log.reader(), 1) == batches(0, next.0 / 2 + 1, 2, 0), "torn at {len}");
    }
}

#[test]
fn a_tail_of_zeros_is_no_damage() {
    let bytes = batches(0, 4, 2, 0);
    let root = crashed(&bytes);
    let mut padded = bytes.clone();
    padded.resize(bytes.len() + 100_000, 0);
    std::fs::write(segment_path(&root), &padded).unwrap();
    let storage = storage(root.path());
    let (_log, report) = open(&storage, config());
    assert_eq!((report.cut_bytes, &report.cut_reason), (0, &None));
    assert!(log_bytes(root.path()) == bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_leaves_a_prefix(
        keep in 0usize..2000,
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        flips in proptest::collection::vec((0usize..2000, 0u8..8), 0..3),
    ) {
        let bytes = batches(0, 8, 3, 0);
        let root = crashed(&bytes);
        let mut damaged = bytes[..keep.min(bytes.len())].to_vec();
        damaged.extend(noise);
        let mut first_flip = usize::MAX;
        for (position, bit) in flips {
            if let Some(byte) = damaged.get_mut(position) {
                *byte ^= 1 << bit;
                first_flip = first_flip.min(position);
            }
        }
        std::fs::write(segment_path(&root), &damaged).unwrap();
        let storage = storage(root.path());
        let (log, _) = open(&storage, config());
        let recovered = log_bytes(root.path());
        prop_assert!(damaged.starts_with(&recovered));
        let one = bytes.len() / 8;
        // Everything before the damage is there.
        let sound = keep.min(bytes.len()).min(first_flip) / one * one;
        prop_assert!(recovered.len() >= sound);
        prop_assert!(read_all(log.reader(), 1) == recovered);
    }
}

#[test]
fn sealed_segments_below_the_recovery_point_are_not_read_again() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let mut log = create(&storage, small());
    let bytes = batches(0, 40, 3, 0);
    let one = bytes.len() / 40;
    for batch in bytes[..30 * one].chunks(one) {
        log.append(batch, &ANY_EPOCH).unwrap();
    }
    storage.checkpoint().unwrap();
    for batch in bytes[30 * one..].chunks(one) {
        log.append(batch, &ANY_EPOCH).unwrap();
    }
    drop(log);
    // Damage that only a scan would find.
    let first = folder(root.path()).join(&files_of(root.path(), ".log")[0]);
    let mut damaged = std::fs::read(&first).unwrap();
    damaged[100] ^= 1;
    std::fs::write(&first, &damaged).unwrap();
    let (log, report) = open(&storage, small());
    assert_eq!(report.scanned_bytes, 10 * one as u64);
    assert_eq!((report.cut_bytes, log.reader().log_end()), (0, Offset(120)));
}

#[test]
fn a_hole_between_unsynced_segments_ends_the_log_there() {
    let bytes = batches(0, 40, 3, 0);
    let one = bytes.len() / 40;
    for lost in 0..3 {
        let root = tempfile::tempdir().unwrap();
        let storage = storage(root.path());
        let mut log = create(&storage, small());
        for batch in bytes.chunks(one) {
            log.append(batch, &ANY_EPOCH).unwrap();
        }
        drop(log);
        let names = files_of(root.path(), ".log");
        assert!(names.len() > 4);
        let path = folder(root.path()).join(&names[lost + 1]);
        let kept = match lost {
            // A whole segment, its last batch, its last bytes.
            0 => {
                std::fs::remove_file(&path).unwrap();
                0
            }
            1 => std::fs::metadata(&path).unwrap().len() as usize - one,
            _ => std::fs::metadata(&path).unwrap().len() as usize - 5,
        };
        if lost > 0 {
            std::fs::File::options().write(true).open(&path).unwrap().set_len(kept as u64).unwrap();
        }
        let before: usize = names[..=lost]
            .iter()
            .map(|name| std::fs::metadata(folder(root.path()).join(name)).unwrap().len() as usize)
            .sum();
        let (log, report) = open(&storage, small());
        let expected = before + kept / one * one;
        assert!(log_bytes(root.path()) == bytes[..expected], "{lost}: {report:?}");
        assert_eq!(log.reader().log_end(), Offset((expected / one * 3) as i64));
        assert!(report.cut_reason.is_some());
    }
}

#[test]
fn indexes_lost_stale_or_full_of_zeros_are_made_again() {
    let bytes = batches(0, 200, 3, 0);
    let root = tempfile::tempdir().unwrap();
    {
        let storage = storage(root.path());
        let mut log = create(&storage, config());
        log.append(&bytes[..bytes.len() / 2], &ANY_EPOCH).unwrap();
        log.flush().unwrap();
        storage.checkpoint().unwrap();
        log.append(&bytes[bytes.len() / 2..], &ANY_EPOCH).unwrap();
        log.close().unwrap();
    }
    let index = |suffix: &str| folder(root.path()).join(format!("{:020}.{suffix}", 0));
    let sound =
        (std::fs::read(index("index")).unwrap(), std::fs::read(index("timeindex")).unwrap());
    assert!(sound.0.len() > 20 * 8);
    for damage in 0..5 {
        let copy = tempfile::tempdir().unwrap();
        copy_directory(root.path(), copy.path());
        for suffix in ["index", "timeindex"] {
            let path = folder(copy.path()).join(format!("{:020}.{suffix}", 0));
            let entry = if suffix == "index" { 8 } else { 12 };
            let mut bytes = std::fs::read(&path).unwrap();
            match damage {
                0 => bytes.clear(),
                1 => bytes.truncate(bytes.len() / 3 + 1),
                2 => bytes[entry * 3..].fill(0),
                3 => bytes.extend([0; 4096]),
                _ => bytes.extend([0x7f; 24 * 10]),
            }
            std::fs::write(&path, bytes).unwrap();
        }
        let storage = common::storage(copy.path());
        let (log, _) = open(&storage, config());
        assert!(read_all(log.reader(), 100) == bytes, "damage {damage}");
        log.close().unwrap();
        let again = |suffix: &str| {
            std::fs::read(folder(copy.path()).join(format!("{:020}.{suffix}", 0))).unwrap()
        };
        assert!((again("index"), again("timeindex")) == sound, "damage {damage}");
    }
}

#[test]
fn a_damaged_or_missing_checkpoint_costs_a_scan_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let bytes = batches(0, 40, 3, 5);
    {
        let storage = storage(root.path());
        let mut log = create(&storage, small());
        for batch in bytes.chunks(bytes.len() / 40) {
            log.append(batch, &ANY_EPOCH).unwrap();
        }
        log.advance_log_start(Offset(4)).unwrap();
        log.close().unwrap();
    }
    for damage in 0..4 {
        let copy = tempfile::tempdir().unwrap();
        copy_directory(root.path(), copy.path());
        let path = copy.path().join(".longhaul/checkpoint");
        let text = std::fs::read_to_string(&path).unwrap();
        match damage {
            0 => std::fs::remove_file(&path).unwrap(),
            1 => std::fs::write(&path, text.replacen(" 4 ", " 5 ", 1)).unwrap(),
            2 => std::fs::write(&path, &text[..text.len() / 2]).unwrap(),
            _ => std::fs::write(&path, [0xff; 300]).unwrap(),
        }
        let storage = common::storage(copy.path());
        let (log, report) = open(&storage, small());
        assert_eq!(report.scanned_bytes, bytes.len() as u64, "damage {damage}");
        assert!(log_bytes(copy.path()) == bytes);
        assert_eq!(log.reader().log_end(), Offset(120));
    }
}

#[test]
fn a_lost_or_stale_epoch_file_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    {
        let storage = storage(root.path());
        let mut log = create(&storage, small());
        for number in 0..40i64 {
            log.append(&batch(number * 3, 3, number as i32 / 10), &ANY_EPOCH).unwrap();
        }
        log.close().unwrap();
    }
    let path = folder(root.path()).join("leader-epoch-checkpoint");
    let sound = std::fs::read(&path).unwrap();
    assert_eq!(sound, b"0\n4\n0 0\n1 30\n2 60\n3 90\n");
    for damage in 0..3 {
        match damage {
            0 => std::fs::remove_file(&path).unwrap(),
            1 => std::fs::write(&path, "").unwrap(),
            _ => std::fs::write(&path, "0\n9\nnonsense").unwrap(),
        }
        let storage = storage(root.path());
        let (log, _) = open(&storage, small());
        log.close().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), sound);
    }
}

#[test]
fn a_crash_between_any_two_steps_of_a_busy_log_leaves_a_prefix() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let mut log = create(&storage, small());
    let bytes: Vec<u8> = (0..60).flat_map(|n| batch_of(n, 1, 0, (n as usize * 37) % 300)).collect();
    let mut given = 0;
    for step in 0..60i64 {
        given += log
            .append(&batch_of(step, 1, 0, (step as usize * 37) % 300), &ANY_EPOCH)
            .unwrap()
            .bytes;
        match step % 7 {
            2 => storage.checkpoint().unwrap(),
            4 => log.flush().unwrap(),
            5 => log.maintain(step).unwrap(),
            _ => {}
        }
        let copy = tempfile::tempdir().unwrap();
        copy_directory(root.path(), copy.path());
        let copied = common::storage(copy.path());
        let (again, _) = open(&copied, small());
        assert!(log_bytes(copy.path()) == bytes[..given as usize], "step {step}");
        assert!(read_all(again.reader(), 1) == bytes[..given as usize], "step {step}");
        assert_eq!(again.reader().log_end(), Offset(step + 1));
    }
}
