//! What takes records away: truncation, reset, a new log start. What stays is what was there.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    ANY_EPOCH, batch, batch_of, batches, config, copy_directory, create, files_of, log_bytes, open,
    read_all, storage,
};
use longhaul_storage::{AppendError, LeaderEpoch, LogConfig, Offset, ReadError};

fn small() -> LogConfig {
    LogConfig { segment_bytes_max: 900, ..config() }
}

#[test]
fn truncation_keeps_whole_batches_below_the_offset_at_every_offset() {
    let bytes = batches(0, 30, 4, 0);
    let one = bytes.len() / 30;
    for offset in (0..=120).rev() {
        let root = tempfile::tempdir().unwrap();
        let storage = storage(root.path());
        let mut log = create(&storage, small());
        for batch in bytes.chunks(one) {
            log.append(batch, &ANY_EPOCH).unwrap();
        }
        log.truncate_to(Offset(offset)).unwrap();
        let kept = offset as usize / 4;
        assert_eq!(log.reader().log_end(), Offset(kept as i64 * 4), "to {offset}");
        assert_eq!(log.reader().size_bytes(), (kept * one) as u64);
        assert!(read_all(log.reader(), 1) == bytes[..kept * one], "to {offset}");
        let last = log.last_batch().map(|last| last.base_offset.0);
        assert_eq!(last, kept.checked_sub(1).map(|last| last as i64 * 4), "to {offset}");
        // The log goes on from there, and both histories meet at a batch boundary on disk.
        let more = batches(kept as i64 * 4, 7, 3, 1);
        for batch in more.chunks(more.len() / 7) {
            log.append(batch, &ANY_EPOCH).unwrap();
        }
        let expected = [&bytes[..kept * one], &more].concat();
        assert!(read_all(log.reader(), 300) == expected, "to {offset}");
        drop(log);
        let (log, _) = open(&storage, small());
        assert!(log_bytes(root.path()) == expected, "to {offset}");
        assert!(read_all(log.reader(), 300) == expected, "to {offset}");
    }
}

#[test]
fn truncation_in_a_gap_ends_the_log_with_its_last_batch_and_a_crash_loses_nothing_after_it() {
    let root = tempfile::tempdir().unwrap();
    let log_directory = storage(root.path());
    let mut log = create(&log_directory, small());
    log.append(&[batch(0, 5, 0), batch(100, 5, 0)].concat(), &ANY_EPOCH).unwrap();
    log.truncate_to(Offset(50)).unwrap();
    assert_eq!(log.reader().log_end(), Offset(5));
    assert!(log.reader().read(Offset(5), Offset(50), 100, true).unwrap().is_none());
    // Enough to start a new segment at once, right after the gap.
    let more = batch_of(50, 5, 0, 400);
    log.append(&more, &ANY_EPOCH).unwrap();
    let crashed = tempfile::tempdir().unwrap();
    copy_directory(root.path(), crashed.path());
    let (log, _) = open(&storage(crashed.path()), small());
    assert_eq!(read_all(log.reader(), 300), [batch(0, 5, 0), more].concat());
}

#[test]
fn epochs_follow_a_truncation_and_survive_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let mut log = create(&storage, config());
    for (base, epoch) in [(0, 1), (10, 3), (20, 3), (30, 6)] {
        log.append(&batch(base, 10, epoch), &ANY_EPOCH).unwrap();
    }
    let reader = log.reader().clone();
    let end =
        |epoch| reader.epoch_end(LeaderEpoch(epoch)).map(|end| (end.epoch.0, end.end_offset.0));
    assert_eq!(
        (end(1), end(2), end(3), end(6), end(7)),
        (Some((1, 10)), Some((1, 10)), Some((3, 30)), Some((6, 40)), None)
    );
    assert_eq!(
        (reader.epoch_at(Offset(0)), reader.epoch_at(Offset(29))),
        (LeaderEpoch(1), LeaderEpoch(3))
    );
    log.truncate_to(Offset(25)).unwrap();
    assert_eq!((end(3), end(6), reader.latest_epoch()), (Some((3, 20)), None, LeaderEpoch(3)));
    log.append(&batch(20, 5, 4), &ANY_EPOCH).unwrap();
    assert_eq!((end(3), end(4)), (Some((3, 20)), Some((4, 25))));
    log.close().unwrap();
    let (log, _) = open(&storage, config());
    assert_eq!(log.reader().epoch_end(LeaderEpoch(3)).unwrap().end_offset, Offset(20));
    let written =
        std::fs::read_to_string(common::folder(root.path()).join("leader-epoch-checkpoint"))
            .unwrap();
    assert_eq!(written, "0\n3\n1 0\n3 10\n4 20\n");
}

#[test]
fn bytes_a_reader_holds_survive_truncation_and_new_appends() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    let bytes = batches(0, 10, 5, 0);
    log.append(&bytes, &ANY_EPOCH).unwrap();
    let held = log.reader().read(Offset(0), Offset(50), usize::MAX, true).unwrap().unwrap();
    log.truncate_to(Offset(10)).unwrap();
    let fresh = log.reader().read(Offset(0), Offset(50), usize::MAX, true).unwrap().unwrap();
    assert_eq!(fresh.len_bytes(), bytes.len() / 5);
    log.append(&batch_of(10, 40, 1, 8), &ANY_EPOCH).unwrap();
    assert!(held.to_vec() == bytes);
    let expected = [&bytes[..bytes.len() / 5], &batch_of(10, 40, 1, 8)].concat();
    assert!(read_all(log.reader(), 1) == expected);
    assert!(log_bytes(root.path()) == expected);
}

#[test]
fn a_reset_log_is_empty_at_its_new_start_also_after_a_crash() {
    for start in [0, 7, 500] {
        let root = tempfile::tempdir().unwrap();
        let storage = storage(root.path());
        let mut log = create(&storage, small());
        for batch in batches(0, 30, 4, 2).chunks(batch(0, 4, 2).len()) {
            log.append(batch, &ANY_EPOCH).unwrap();
        }
        storage.checkpoint().unwrap();
        log.reset_to(Offset(start)).unwrap();
        let reader = log.reader();
        assert_eq!((reader.log_start(), reader.log_end()), (Offset(start), Offset(start)));
        assert_eq!((reader.latest_epoch(), reader.size_bytes()), (LeaderEpoch(-1), 0));
        assert!(reader.read(Offset(start), Offset(start), 10, true).unwrap().is_none());
        drop(log);
        let (mut log, _) = open(&storage, small());
        assert_eq!(log.reader().log_start(), Offset(start));
        log.append(&batch(start, 3, 0), &ANY_EPOCH).unwrap();
        assert!(log_bytes(root.path()) == batch(start, 3, 0));
    }
}

#[test]
fn a_reset_cut_short_by_a_crash_does_not_bring_old_records_back_below_the_start() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let mut log = create(&storage, small());
    for batch in batches(0, 30, 4, 2).chunks(batch(0, 4, 2).len()) {
        log.append(batch, &ANY_EPOCH).unwrap();
    }
    storage.checkpoint().unwrap();
    let before = tempfile::tempdir().unwrap();
    copy_directory(root.path(), before.path());
    log.reset_to(Offset(1000)).unwrap();
    // The start was noted, none of the files is removed yet.
    let checkpoint = ".longhaul/checkpoint";
    std::fs::copy(root.path().join(checkpoint), before.path().join(checkpoint)).unwrap();
    let storage = common::storage(before.path());
    let (log, _) = open(&storage, small());
    assert_eq!((log.reader().log_start(), log.reader().log_end()), (Offset(1000), Offset(1000)));
    assert_eq!(files_of(before.path(), ".log"), [format!("{:020}.log", 1000)]);
}

#[test]
fn the_log_start_moves_into_a_batch_and_whole_segments_below_go() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let mut log = create(&storage, small());
    let bytes = batches(0, 30, 4, 2);
    for batch in bytes.chunks(bytes.len() / 30) {
        log.append(batch, &ANY_EPOCH).unwrap();
    }
    let segments = files_of(root.path(), ".log").len();
    log.advance_log_start(Offset(62)).unwrap();
    assert_eq!(files_of(root.path(), ".log").len(), segments, "until the start is durable");
    storage.checkpoint().unwrap();
    assert!(files_of(root.path(), ".log").len() < segments);
    let reader = log.reader().clone();
    assert_eq!(reader.log_start(), Offset(62));
    assert_eq!(reader.epoch_at(Offset(62)), LeaderEpoch(2));
    let below = reader.read(Offset(61), Offset(120), 1, true);
    assert!(matches!(below, Err(ReadError::OutOfRange { log_start: Offset(62), .. })));
    assert!(read_all(&reader, 1) == bytes[bytes.len() / 2..], "from the batch of 60");
    log.advance_log_start(Offset(10)).unwrap();
    assert_eq!(reader.log_start(), Offset(62), "it never moves back");
    let beyond = log.advance_log_start(Offset(121));
    assert!(matches!(beyond, Err(AppendError::NotNext { .. })));
    log.close().unwrap();
    let (mut log, report) = open(&storage, small());
    assert!(report.clean);
    assert_eq!(log.reader().log_start(), Offset(62));
    log.advance_log_start(Offset(120)).unwrap();
    assert_eq!((log.reader().log_start(), log.reader().size_bytes()), (Offset(120), 0));
    log.append(&batch(120, 4, 2), &ANY_EPOCH).unwrap();
    storage.checkpoint().unwrap();
    assert!(log_bytes(root.path()) == batch(120, 4, 2));
}

#[test]
fn a_log_start_written_down_is_kept_through_a_crash() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let mut log = create(&storage, config());
    log.append(&batches(0, 10, 4, 2), &ANY_EPOCH).unwrap();
    log.advance_log_start(Offset(13)).unwrap();
    storage.checkpoint().unwrap();
    drop(log);
    let (log, _) = open(&storage, config());
    assert_eq!(log.reader().log_start(), Offset(13));
    // Kafka's own files follow at a clean stop at the latest.
    log.close().unwrap();
    drop(storage);
    let kafkas = std::fs::read_to_string(root.path().join("log-start-offset-checkpoint")).unwrap();
    assert_eq!(kafkas, "0\n1\norders 3 13\n");
}

#[test]
fn after_a_truncation_nothing_new_is_trusted_because_the_old_was_synced() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let mut log = create(&storage, config());
    log.append(&batches(0, 10, 4, 0), &ANY_EPOCH).unwrap();
    storage.checkpoint().unwrap();
    log.truncate_to(Offset(20)).unwrap();
    log.append(&batches(20, 5, 4, 1), &ANY_EPOCH).unwrap();
    drop(log);
    // The new bytes did not reach the device whole.
    let path = common::folder(root.path()).join(format!("{:020}.log", 0));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 + 100;
    bytes[middle] ^= 0x40;
    std::fs::write(&path, &bytes).unwrap();
    let (log, report) = open(&storage, config());
    assert_eq!(log.reader().log_end(), Offset(20), "{report:?}");
}
