//! Open and aborted transactions: the last stable offset and the aborted list, through rolls,
//! restarts, crashes and truncation.
#![allow(clippy::unwrap_used)]

mod common;

use common::{ANY_EPOCH, batch, config, create, files_of, folder, open, storage};
use longhaul_storage::batch::{BatchBuilder, ControlMarker};
use longhaul_storage::{LeaderEpoch, Log, LogConfig, LogReader, Offset, ProducerEpoch, ProducerId};

fn data(base: i64, producer: i64, records: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset(base), LeaderEpoch(0))
        .producer(ProducerId(producer), ProducerEpoch(0), 0)
        .transactional();
    for number in 0..records {
        builder.push(1000 + i64::from(number), None, Some(b"in a transaction"), &[]);
    }
    builder.finish()
}

fn marker(base: i64, producer: i64, commit: bool) -> Vec<u8> {
    let marker = if commit { ControlMarker::Commit } else { ControlMarker::Abort };
    let producer = (ProducerId(producer), ProducerEpoch(0));
    BatchBuilder::end_of_transaction(Offset(base), LeaderEpoch(0), producer, marker, (1000, 0))
}

fn aborted(reader: &LogReader, from: i64, upper: i64) -> Vec<(i64, i64)> {
    let list = reader.aborted_transactions(Offset(from), Offset(upper)).unwrap();
    list.iter().map(|entry| (entry.producer_id.0, entry.first_offset.0)).collect()
}

fn append(log: &mut Log, batches: &[Vec<u8>]) {
    for batch in batches {
        log.append(batch, &ANY_EPOCH).unwrap();
    }
}

#[test]
fn the_stable_offset_stops_at_the_first_open_transaction() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    let reader = log.reader().clone();
    append(&mut log, &[batch(0, 3, 0), data(3, 1, 2), data(5, 2, 2)]);
    assert_eq!(reader.last_stable_offset(), Offset(3));
    append(&mut log, &[marker(7, 1, true)]);
    assert_eq!(reader.last_stable_offset(), Offset(5));
    append(&mut log, &[batch(8, 1, 0), marker(9, 2, false)]);
    assert_eq!(reader.last_stable_offset(), Offset(10));
    assert_eq!(aborted(&reader, 0, 10), [(2, 5)]);
    assert_eq!(aborted(&reader, 0, 5), []);
    assert_eq!(aborted(&reader, 9, 10), [(2, 5)]);
}

/// Two producers by turns, one aborting and one committing, in segments of two or three batches.
fn interleaved(log: &mut Log) -> Vec<(i64, i64)> {
    let mut expected = Vec::new();
    for round in 0..20 {
        let base = round * 6;
        append(
            log,
            &[
                data(base, 1, 2),
                data(base + 2, 2, 2),
                marker(base + 4, 1, round % 2 == 0),
                marker(base + 5, 2, round % 2 == 1),
            ],
        );
        expected.push(if round % 2 == 0 { (2, base + 2) } else { (1, base) });
    }
    expected
}

#[test]
fn the_aborted_list_covers_every_read_across_segments_and_restarts() {
    let small = LogConfig { segment_bytes_max: 400, ..config() };
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let mut log = create(&storage, small.clone());
    let expected = interleaved(&mut log);
    assert!(files_of(root.path(), ".log").len() > 5);
    // Open at the end, begun in an earlier segment.
    append(&mut log, &[data(120, 7, 1), batch(121, 9, 0), batch(130, 9, 0)]);
    for restart in ["none", "crash", "clean", "crash after a checkpoint"] {
        match restart {
            "none" => {}
            "clean" => {
                log.close().unwrap();
                log = open(&storage, small.clone()).0;
            }
            _ => {
                if restart.ends_with("checkpoint") {
                    storage.checkpoint().unwrap();
                }
                drop(log);
                log = open(&storage, small.clone()).0;
            }
        }
        let reader = log.reader();
        assert_eq!(reader.last_stable_offset(), Offset(120), "{restart}");
        assert_eq!(aborted(reader, 0, 120), expected, "{restart}");
        for from in 0..120 {
            let upper = reader.upper_bound_offset(Offset(from), 200).unwrap();
            let listed = aborted(reader, from, upper.0);
            // Each aborted transaction has two records and ends before its round does.
            for (producer, first) in &expected {
                let end = first / 6 * 6 + 5;
                if *first < upper.0 && end >= from + 2 {
                    assert!(listed.contains(&(*producer, *first)), "{restart} {from} {upper}");
                }
            }
        }
    }
}

#[test]
fn truncation_opens_transactions_again() {
    let small = LogConfig { segment_bytes_max: 400, ..config() };
    for offset in (0..=120).rev().step_by(7) {
        let root = tempfile::tempdir().unwrap();
        let storage = storage(root.path());
        let mut log = create(&storage, small.clone());
        interleaved(&mut log);
        if offset % 2 == 0 {
            storage.checkpoint().unwrap();
        }
        log.truncate_to(Offset(offset)).unwrap();
        let end = log.reader().log_end();
        let check = |reader: &LogReader, when: &str| {
            // The same log made in one go.
            let other = tempfile::tempdir().unwrap();
            let mut whole = create(&common::storage(other.path()), small.clone());
            for number in 0..20i64 {
                let base = number * 6;
                let batches = [
                    (base, data(base, 1, 2)),
                    (base + 2, data(base + 2, 2, 2)),
                    (base + 4, marker(base + 4, 1, number % 2 == 0)),
                    (base + 5, marker(base + 5, 2, number % 2 == 1)),
                ];
                for (base, bytes) in batches {
                    if base < end.0 {
                        append(&mut whole, &[bytes]);
                    }
                }
            }
            assert_eq!(reader.log_end(), whole.reader().log_end());
            let stable = whole.reader().last_stable_offset();
            assert_eq!(reader.last_stable_offset(), stable, "{offset} {when}");
            assert_eq!(aborted(reader, 0, end.0), aborted(whole.reader(), 0, end.0));
        };
        check(log.reader(), "at once");
        drop(log);
        let (log, _) = open(&storage, small.clone());
        check(log.reader(), "after a crash");
    }
}

#[test]
fn the_aborted_index_is_in_kafkas_format() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    append(&mut log, &[data(0, 5, 2), marker(2, 5, false)]);
    log.close().unwrap();
    let bytes = std::fs::read(folder(root.path()).join(format!("{:020}.txnindex", 0))).unwrap();
    let mut expected = vec![0, 0];
    for field in [5i64, 0, 2, 3] {
        expected.extend(field.to_be_bytes());
    }
    assert_eq!(bytes, expected);
}
