//! Landing in recycled, mapped files: the same log as by plain writes, whatever lay in the file.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{
    ANY_EPOCH, batch, batch_of, batches, config, copy_directory, create, files_of, folder,
    log_bytes, open, read_all, receive, recycling_storage,
};
use longhaul_storage::{
    AppendContext, AppendError, LandingTarget, LeaderEpoch, Log, LogConfig, Offset, Storage,
};

const ANNOUNCED: u32 = 128 * 1024;

/// Fills a log and empties it again, so that the pool has files full of old batches.
fn stock_the_pool(storage: &Arc<Storage>, base: i64) {
    let mut name = common::partition();
    name.topic = Arc::from("donor");
    let id = common::topic_id();
    let mut log = storage.create_log(&name, id, Offset(base), config()).unwrap();
    for number in 0..1000 {
        log.append(&batch_of(base + number * 10, 10, 0, 300), &ANY_EPOCH).unwrap();
    }
    storage.delete_log(log).unwrap();
    storage.checkpoint().unwrap();
}

fn mapped_tail(log: &mut Log) -> bool {
    matches!(log.prepare_landing(ANNOUNCED).unwrap(), LandingTarget::Mapped(_))
}

#[test]
fn bytes_received_in_place_in_any_pieces_make_the_same_log() {
    let bytes: Vec<u8> = (0..30).flat_map(|n| batch_of(n * 10, 10, 0, 300)).collect();
    for piece in [1000, 3333, 4096, bytes.len()] {
        let root = tempfile::tempdir().unwrap();
        let storage = recycling_storage(root.path());
        stock_the_pool(&storage, 0);
        let mut log = create(&storage, config());
        assert!(mapped_tail(&mut log), "a recycled file is at hand");
        let mut position = 0;
        for chunk in bytes.chunks(piece) {
            receive(root.path(), position, chunk);
            position += chunk.len() as u64;
            log.landed_in_place(chunk.len(), &ANY_EPOCH).unwrap();
        }
        log.finish_landing().unwrap();
        assert_eq!(log.reader().log_end(), Offset(300));
        assert!(read_all(log.reader(), 700) == bytes, "pieces of {piece}");
        log.close().unwrap();
        assert!(log_bytes(root.path()) == bytes, "the file ends with the last batch");
    }
}

#[test]
fn a_crash_at_any_moment_of_a_landing_leaves_a_prefix_of_what_was_received() {
    let bytes: Vec<u8> = (0..12).flat_map(|n| batch_of(n * 10, 10, 0, 300)).collect();
    let one = bytes.len() / 12;
    let root = tempfile::tempdir().unwrap();
    let storage = recycling_storage(root.path());
    // The donor's batches have the same offsets and lie at the same places.
    stock_the_pool(&storage, 0);
    let mut log = create(&storage, config());
    assert!(mapped_tail(&mut log));
    let mut received = 0;
    for piece in [one, 2 * one, one / 2, one, 30, 10, one / 2 - 40, 4 * one] {
        receive(root.path(), received as u64, &bytes[received..received + piece]);
        received += piece;
        // Received, and not yet looked at; then looked at.
        for looked_at in [false, true] {
            if looked_at {
                log.landed_in_place(piece, &ANY_EPOCH).unwrap();
            }
            let copy = tempfile::tempdir().unwrap();
            copy_directory(root.path(), copy.path());
            let storage = common::storage(copy.path());
            let (log, report) = open(&storage, config());
            let recovered = log_bytes(copy.path());
            assert!(bytes.starts_with(&recovered), "{received}: {report:?}");
            let batches = recovered.len() / one;
            assert_eq!((recovered.len() % one, log.reader().log_end().0), (0, batches as i64 * 10));
            // The batch in flight may come back whole, since the same one lay there before; no
            // batch that was not yet begun may.
            let begun = received.div_ceil(one);
            assert!((received / one..=begun).contains(&batches), "{batches} of {received} bytes");
        }
    }
}

#[test]
fn plain_and_mapped_landings_mix_in_one_segment() {
    let bytes = batches(0, 9, 5, 0);
    let one = bytes.len() / 9;
    let root = tempfile::tempdir().unwrap();
    let storage = recycling_storage(root.path());
    stock_the_pool(&storage, 0);
    let mut log = create(&storage, config());
    assert!(mapped_tail(&mut log));
    log.land(&bytes[..one + 5], &ANY_EPOCH).unwrap();
    assert!(mapped_tail(&mut log), "in mid landing the tail goes on");
    receive(root.path(), (one + 5) as u64, &bytes[one + 5..3 * one + 7]);
    log.landed_in_place(2 * one + 2, &ANY_EPOCH).unwrap();
    log.land(&bytes[3 * one + 7..], &ANY_EPOCH).unwrap();
    log.finish_landing().unwrap();
    assert_eq!(read_all(log.reader(), 1), bytes);
    drop(log);
    let (log, _) = open(&storage, config());
    assert_eq!(read_all(log.reader(), 1), bytes);
    assert_eq!(log_bytes(root.path()), bytes);
}

#[test]
fn what_was_refused_in_place_never_comes_back() {
    let root = tempfile::tempdir().unwrap();
    let storage = recycling_storage(root.path());
    stock_the_pool(&storage, 0);
    let mut log = create(&storage, config());
    assert!(mapped_tail(&mut log));
    let confirmed = AppendContext { leader_epoch_max: LeaderEpoch(5) };
    // B is of an unconfirmed epoch, C would follow it.
    let (a, b, c) = (batch(0, 5, 5), batch(5, 5, 6), batch(10, 5, 6));
    let response = [a.clone(), b.clone(), c].concat();
    receive(root.path(), 0, &response);
    let refused = log.landed_in_place(response.len(), &confirmed);
    assert!(matches!(refused, Err(AppendError::EpochAhead { .. })));
    log.finish_landing().unwrap();
    // Another B of the same length arrives, and the node dies before it looks at it.
    assert!(mapped_tail(&mut log));
    let other_b = batch(5, 5, 5);
    assert_eq!(other_b.len(), b.len());
    receive(root.path(), a.len() as u64, &other_b);
    drop(log);
    let (log, _) = open(&storage, config());
    assert_eq!(log.reader().log_end(), Offset(10), "C must not follow the other B");
    assert_eq!(read_all(log.reader(), 1), [a, other_b].concat());
}

#[test]
fn bytes_passed_over_after_a_refusal_do_not_move_the_tail() {
    let root = tempfile::tempdir().unwrap();
    let storage = recycling_storage(root.path());
    stock_the_pool(&storage, 0);
    let mut log = create(&storage, config());
    assert!(mapped_tail(&mut log));
    let confirmed = AppendContext { leader_epoch_max: LeaderEpoch(5) };
    let (a, b, rest) = (batch(0, 5, 5), batch(5, 5, 6), batch(10, 5, 6));
    let response = [a.clone(), b].concat();
    receive(root.path(), 0, &response);
    assert!(log.landed_in_place(response.len(), &confirmed).is_err());
    assert_eq!(log.land(&rest, &confirmed).unwrap().bytes, 0);
    log.finish_landing().unwrap();
    assert!(mapped_tail(&mut log));
    let other_b = batch(5, 5, 5);
    receive(root.path(), a.len() as u64, &other_b);
    assert_eq!(log.landed_in_place(other_b.len(), &confirmed).unwrap().batches, 1);
    log.finish_landing().unwrap();
    assert_eq!(read_all(log.reader(), 1), [a, other_b].concat());
}

#[test]
fn a_response_larger_than_the_recycled_file_is_written() {
    let root = tempfile::tempdir().unwrap();
    let storage = recycling_storage(root.path());
    stock_the_pool(&storage, 0);
    let mut log = create(&storage, config());
    let first = batch(0, 5, 0);
    // A small announcement takes the recycled file, empty or not, and a larger one gives it up.
    for large in [false, true] {
        let target = log.prepare_landing(if large { 2 << 20 } else { ANNOUNCED }).unwrap();
        assert_eq!(matches!(target, LandingTarget::Mapped(_)), !large);
    }
    log.land(&first, &ANY_EPOCH).unwrap();
    log.finish_landing().unwrap();
    log.close().unwrap();
    assert_eq!(log_bytes(root.path()), first);
}

#[test]
fn a_full_mapped_segment_is_cut_when_it_is_sealed() {
    let root = tempfile::tempdir().unwrap();
    let storage = recycling_storage(root.path());
    stock_the_pool(&storage, 0);
    let mut log = create(&storage, config());
    let mut expected = Vec::new();
    let mut position = 0;
    let mut in_place = 0;
    for number in 0..40 {
        let bytes = batch_of(number * 10, 10, 0, 6000);
        let logs = files_of(root.path(), ".log").len();
        let target = log.prepare_landing(ANNOUNCED).unwrap();
        if files_of(root.path(), ".log").len() > logs {
            position = 0;
        }
        if matches!(target, LandingTarget::Mapped(_)) {
            receive(root.path(), position, &bytes);
            log.landed_in_place(bytes.len(), &ANY_EPOCH).unwrap();
            in_place += 1;
        } else {
            log.land(&bytes, &ANY_EPOCH).unwrap();
        }
        position += bytes.len() as u64;
        log.finish_landing().unwrap();
        expected.extend(bytes);
    }
    assert!(in_place > 20, "{in_place} landed in place");
    assert!(files_of(root.path(), ".log").len() > 1);
    assert_eq!(read_all(log.reader(), 100_000), expected);
    log.close().unwrap();
    assert_eq!(log_bytes(root.path()), expected);
}

#[test]
fn a_file_is_not_recycled_while_a_reader_holds_bytes_of_it() {
    let root = tempfile::tempdir().unwrap();
    let storage = recycling_storage(root.path());
    let mut log = create(&storage, config());
    let mut expected = Vec::new();
    for number in 0..200 {
        let bytes = batch_of(number * 10, 10, 0, 1000);
        log.append(&bytes, &ANY_EPOCH).unwrap();
        expected.extend(bytes);
    }
    assert!(files_of(root.path(), ".log").len() > 1);
    let held = log.reader().read(Offset(0), Offset(9999), 50_000, true).unwrap().unwrap();
    log.advance_log_start(Offset(1900)).unwrap();
    storage.checkpoint().unwrap();
    let mut other = common::partition();
    other.partition = 4;
    let id = common::topic_id();
    let mut second = storage.create_log(&other, id, Offset(0), config()).unwrap();
    assert!(!mapped_tail(&mut second), "nothing is ready");
    assert_eq!(held.to_vec(), expected[..50_000]);
    drop(held);
    storage.checkpoint().unwrap();
    assert!(mapped_tail(&mut second));
}

#[test]
fn an_idle_log_gives_its_recycled_file_and_descriptors_back() {
    let root = tempfile::tempdir().unwrap();
    let storage = recycling_storage(root.path());
    stock_the_pool(&storage, 0);
    let (pooled_files, pooled_maps) = storage.held();
    let mut log = create(&storage, config());
    assert!(mapped_tail(&mut log));
    log.land(&batch(0, 5, 0), &ANY_EPOCH).unwrap();
    log.finish_landing().unwrap();
    let name = files_of(root.path(), ".log").pop().unwrap();
    let len = || std::fs::metadata(folder(root.path()).join(&name)).unwrap().len();
    assert_eq!(len(), 1 << 20);
    log.maintain(1).unwrap();
    assert_eq!(len(), 1 << 20, "not idle: something was appended since");
    log.maintain(2).unwrap();
    assert_eq!(len(), batch(0, 5, 0).len() as u64);
    assert_eq!(storage.held(), (pooled_files - 1, pooled_maps - 1), "the pool's others remain");
    log.append(&batch(5, 5, 0), &ANY_EPOCH).unwrap();
    assert_eq!(read_all(log.reader(), 1), batches(0, 2, 5, 0));
}

#[test]
fn a_pool_keeps_its_bound() {
    let root = tempfile::tempdir().unwrap();
    let storage = recycling_storage(root.path());
    for donor in 0..10 {
        stock_the_pool(&storage, donor * 100_000);
    }
    let recycled = root.path().join(".longhaul/recycled");
    let bytes: u64 =
        std::fs::read_dir(recycled).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 16 << 20, "{bytes}");
    assert!(bytes > 10 << 20, "{bytes}");
    assert_eq!(LogConfig { ..config() }.segment_bytes_max, 1 << 20);
}
