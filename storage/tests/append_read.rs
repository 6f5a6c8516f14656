//! Appending and reading: what goes in comes out, byte for byte, and only once it is whole.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    ANY_EPOCH, batch, batch_of, batches, config, create, files_of, log_bytes, open, read_all,
    storage,
};
use longhaul_storage::{
    AppendContext, AppendError, LandingTarget, LeaderEpoch, LogConfig, Offset, ReadError,
};

#[test]
fn bytes_landed_in_any_pieces_are_read_back_the_same() {
    let bytes = batches(0, 40, 3, 0);
    for piece in [1, 7, 60, 61, 62, 333, bytes.len()] {
        let root = tempfile::tempdir().unwrap();
        let storage = storage(root.path());
        let mut log = create(&storage, config());
        assert!(matches!(log.prepare_landing(bytes.len() as u32).unwrap(), LandingTarget::Copy));
        let mut landed = 0;
        for chunk in bytes.chunks(piece) {
            landed += log.land(chunk, &ANY_EPOCH).unwrap().batches;
        }
        log.finish_landing().unwrap();
        assert_eq!(landed, 40);
        assert_eq!(log.reader().log_end(), Offset(120));
        for step in [1, 100, 1000, usize::MAX] {
            assert_eq!(read_all(log.reader(), step), bytes, "pieces of {piece}, read by {step}");
        }
    }
}

#[test]
fn a_batch_is_published_when_its_last_byte_is_there_and_not_before() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    let bytes = batch(0, 5, 0);
    log.prepare_landing(1000).unwrap();
    log.land(&bytes[..bytes.len() - 1], &ANY_EPOCH).unwrap();
    assert_eq!(log.reader().log_end(), Offset(0));
    assert!(log.reader().read(Offset(0), Offset(100), 100, true).unwrap().is_none());
    log.land(&bytes[bytes.len() - 1..], &ANY_EPOCH).unwrap();
    assert_eq!(log.reader().log_end(), Offset(5));
}

#[test]
fn a_truncated_last_batch_is_dropped_and_comes_again() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    let bytes = batches(0, 2, 4, 0);
    log.prepare_landing(500).unwrap();
    let landed = log.land(&bytes[..bytes.len() - 10], &ANY_EPOCH).unwrap();
    assert_eq!(landed.batches, 1);
    log.finish_landing().unwrap();
    assert_eq!(log_bytes(root.path()).len(), bytes.len() / 2);
    log.prepare_landing(500).unwrap();
    log.land(&bytes[bytes.len() / 2..], &ANY_EPOCH).unwrap();
    log.finish_landing().unwrap();
    assert_eq!(log_bytes(root.path()), bytes);
}

#[test]
fn a_batch_that_does_not_belong_is_refused_and_the_log_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    let confirmed = AppendContext { leader_epoch_max: LeaderEpoch(5) };
    log.append(&batch(0, 10, 5), &confirmed).unwrap();
    let mut damaged = batch(10, 2, 5);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let ahead = log.append(&batch(10, 2, 6), &confirmed);
    assert!(matches!(ahead, Err(AppendError::EpochAhead { found: LeaderEpoch(6), .. })));
    let behind = log.append(&batch(10, 2, 4), &confirmed);
    assert!(matches!(behind, Err(AppendError::EpochBehind { latest: LeaderEpoch(5), .. })));
    let again = log.append(&batch(9, 2, 5), &confirmed);
    assert!(matches!(again, Err(AppendError::NotNext { expected: Offset(10), .. })));
    assert!(matches!(log.append(&damaged, &confirmed), Err(AppendError::Batch(_))));
    // What stands before the refused batch in the same response stays.
    let mixed = [batch(10, 2, 5), batch(12, 2, 6), batch(14, 2, 5)].concat();
    assert!(log.append(&mixed, &confirmed).is_err());
    assert_eq!(log.reader().log_end(), Offset(12));
    log.append(&batch(12, 2, 5), &confirmed).unwrap();
    let expected = [batch(0, 10, 5), batch(10, 2, 5), batch(12, 2, 5)].concat();
    assert_eq!(log_bytes(root.path()), expected);
}

#[test]
fn a_batch_of_a_newer_epoch_is_refused_at_its_header() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    let confirmed = AppendContext { leader_epoch_max: LeaderEpoch(0) };
    log.prepare_landing(1000).unwrap();
    assert!(log.land(&batch(0, 5, 1)[..61], &confirmed).is_err());
    assert_eq!(log_bytes(root.path()).len(), 0, "nothing of it was stored");
    // The rest of the response is passed over.
    assert_eq!(log.land(&batch(0, 5, 1)[61..], &confirmed).unwrap().batches, 0);
    log.finish_landing().unwrap();
    log.append(&batch(0, 5, 0), &confirmed).unwrap();
}

#[test]
fn reads_obey_their_limits() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    let bytes = batches(0, 3, 10, 0);
    let one = bytes.len() / 3;
    log.append(&bytes, &ANY_EPOCH).unwrap();
    let reader = log.reader();
    let read = |from, until, bytes_max, whole| {
        let slice = reader.read(Offset(from), Offset(until), bytes_max, whole).unwrap();
        slice.map(|slice| slice.to_vec())
    };
    // From inside a batch the whole batch comes.
    assert_eq!(read(15, 30, usize::MAX, false).unwrap(), bytes[one..]);
    // A cut last batch.
    assert_eq!(read(0, 30, one + 7, false).unwrap(), bytes[..one + 7]);
    // A first batch larger than the limit, cut or whole.
    assert_eq!(read(0, 30, 5, false).unwrap(), bytes[..5]);
    assert_eq!(read(0, 30, 5, true).unwrap(), bytes[..one]);
    assert_eq!(read(0, 30, 0, false), None);
    // Nothing at or past `until`: a batch that starts before it comes whole.
    assert_eq!(read(0, 20, usize::MAX, false).unwrap(), bytes[..2 * one]);
    assert_eq!(read(0, 19, usize::MAX, false).unwrap(), bytes[..2 * one]);
    assert_eq!(read(0, 10, usize::MAX, false).unwrap(), bytes[..one]);
    assert_eq!(read(10, 10, usize::MAX, true), None);
    assert_eq!(read(30, 30, usize::MAX, true), None);
    let beyond = reader.read(Offset(31), Offset(99), 1, true);
    assert!(matches!(beyond, Err(ReadError::OutOfRange { log_end: Offset(30), .. })));
    let below = reader.read(Offset(-1), Offset(99), 1, true);
    assert!(matches!(below, Err(ReadError::OutOfRange { .. })));
}

#[test]
fn offsets_in_a_compaction_gap_lead_to_the_next_batch_also_across_segments() {
    let root = tempfile::tempdir().unwrap();
    let small = LogConfig { segment_bytes_max: 300, ..config() };
    let mut log = create(&storage(root.path()), small);
    let gapped = [batch(5, 5, 0), batch(100, 5, 0), batch(1000, 5, 0), batch(1010, 1, 0)];
    for batch in &gapped {
        log.append(batch, &ANY_EPOCH).unwrap();
    }
    assert!(files_of(root.path(), ".log").len() > 1, "the batches spread over segments");
    let reader = log.reader();
    for (from, found) in [(0, 0), (5, 0), (9, 0), (10, 1), (99, 1), (104, 1), (105, 2), (1009, 3)] {
        let slice = reader.read(Offset(from), Offset(2000), 1, true).unwrap().unwrap();
        assert_eq!(slice.to_vec(), gapped[found], "from {from}");
    }
    assert_eq!(read_all(reader, 1), gapped.concat());
}

#[test]
fn segments_roll_by_size_and_a_larger_response_has_one_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let small = LogConfig { segment_bytes_max: 1000, ..config() };
    let mut log = create(&storage(root.path()), small);
    log.append(&batch_of(0, 1, 0, 700), &ANY_EPOCH).unwrap();
    log.append(&batch_of(1, 1, 0, 700), &ANY_EPOCH).unwrap();
    let large = [batch_of(2, 1, 0, 700), batch_of(3, 1, 0, 3000)].concat();
    log.append(&large, &ANY_EPOCH).unwrap();
    log.append(&batch_of(4, 1, 0, 10), &ANY_EPOCH).unwrap();
    let expected: Vec<_> = [0, 1, 2, 4].iter().map(|base| format!("{base:020}.log")).collect();
    assert_eq!(files_of(root.path(), ".log"), expected);
}

#[test]
fn segments_roll_by_age_index_size_and_relative_offset() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    log.append(&batch(0, 1, 0), &ANY_EPOCH).unwrap();
    log.maintain(1_000).unwrap();
    log.append(&batch(1, 1, 0), &ANY_EPOCH).unwrap();
    log.maintain(1_000 + 3_600_000).unwrap();
    log.append(&batch(2, 1, 0), &ANY_EPOCH).unwrap();
    assert_eq!(files_of(root.path(), ".log").len(), 2, "by age");
    // Further than a relative offset reaches.
    let far = 2 + (1i64 << 31);
    log.append(&[batch(3, 1, 0), batch(far, 2, 0)].concat(), &ANY_EPOCH).unwrap();
    assert_eq!(log.reader().log_end(), Offset(far + 2));
    assert_eq!(files_of(root.path(), ".log").len(), 3, "by relative offset");

    let root = tempfile::tempdir().unwrap();
    let tight = LogConfig { index_interval_bytes: 1, index_bytes_max: 60, ..config() };
    let mut log = create(&storage(root.path()), tight);
    for base in 0..20 {
        log.append(&batch(base, 1, 0), &ANY_EPOCH).unwrap();
    }
    assert!(files_of(root.path(), ".log").len() > 1, "by index size");
    for name in files_of(root.path(), "index") {
        let bytes = std::fs::metadata(common::folder(root.path()).join(&name)).unwrap().len();
        assert!(bytes <= 60, "{name} has {bytes} bytes");
    }
}

#[test]
fn a_log_that_starts_inside_a_batch_begins_with_that_batch() {
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let partition = common::partition();
    let mut log = storage.create_log(&partition, common::topic_id(), Offset(15), config()).unwrap();
    let refused = log.append(&batch(5, 10, 0), &ANY_EPOCH);
    assert!(matches!(refused, Err(AppendError::NotNext { .. })), "it ends below the log start");
    log.append(&batch(10, 10, 0), &ANY_EPOCH).unwrap();
    let again = log.append(&batch(10, 10, 0), &ANY_EPOCH);
    assert!(matches!(again, Err(AppendError::NotNext { .. })), "only the first may");
    assert_eq!(log.reader().log_start(), Offset(15));
    assert_eq!(log.reader().log_end(), Offset(20));
    assert_eq!(files_of(root.path(), ".log"), [format!("{:020}.log", 10)]);
    assert_eq!(read_all(log.reader(), 1), batch(10, 10, 0));
    // Also after a crash, before and after a checkpoint.
    for synced in [false, true] {
        if synced {
            storage.checkpoint().unwrap();
        }
        let copy = tempfile::tempdir().unwrap();
        common::copy_directory(root.path(), copy.path());
        let copied = common::storage(copy.path());
        let (log, _) = open(&copied, config());
        let bounds = (log.reader().log_start(), log.reader().log_end());
        assert_eq!(bounds, (Offset(15), Offset(20)));
        assert_eq!(read_all(log.reader(), 1), batch(10, 10, 0));
    }
    log.close().unwrap();
    let (log, report) = open(&storage, config());
    assert!(report.clean, "{report:?}");
    assert_eq!((log.reader().log_start(), log.reader().log_end()), (Offset(15), Offset(20)));
}

#[test]
fn a_closed_log_opens_without_a_scan_and_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let bytes = batches(0, 100, 3, 7);
    {
        let storage = storage(root.path());
        let mut log = create(&storage, LogConfig { segment_bytes_max: 4000, ..config() });
        for batch in bytes.chunks(bytes.len() / 100) {
            log.append(batch, &ANY_EPOCH).unwrap();
        }
        log.close().unwrap();
    }
    let storage = storage(root.path());
    assert_eq!(storage.partitions().len(), 1);
    assert_eq!(storage.partitions()[0].topic_id, common::topic_id());
    let (mut log, report) = open(&storage, LogConfig { segment_bytes_max: 4000, ..config() });
    assert!(report.clean && report.scanned_bytes == 0, "{report:?}");
    assert_eq!(log.reader().latest_epoch(), LeaderEpoch(7));
    assert_eq!(log.last_batch().unwrap().base_offset, Offset(297));
    assert_eq!(read_all(log.reader(), 500), bytes);
    log.append(&batch(300, 3, 8), &ANY_EPOCH).unwrap();
    assert_eq!(log.reader().epoch_end(LeaderEpoch(7)).unwrap().end_offset, Offset(300));
    assert_eq!(read_all(log.reader(), 500), [bytes, batch(300, 3, 8)].concat());
}
