//! Searches by time: the first record at or after a time, and the newest.
#![allow(clippy::unwrap_used)]

mod common;

use common::{ANY_EPOCH, config, create, open, storage};
use longhaul_storage::batch::{BatchBuilder, Compression};
use longhaul_storage::{LeaderEpoch, LogConfig, LogReader, Offset};

fn timed(base: i64, codec: Compression, times: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset(base), LeaderEpoch(4)).compression(codec);
    for time in times {
        builder.push(*time, None, Some(b"some value that is a little longer"), &[]);
    }
    builder.finish()
}

fn first_at(reader: &LogReader, time: i64) -> Option<(i64, i64)> {
    let found = reader.offset_for_timestamp(time).unwrap();
    found.map(|found| {
        assert_eq!(found.leader_epoch, LeaderEpoch(4));
        (found.offset.0, found.timestamp_ms)
    })
}

#[test]
fn the_first_record_at_or_after_a_time_is_found_wherever_it_is() {
    let codecs = [Compression::None, Compression::Zstd, Compression::Lz4, Compression::Gzip];
    // Times rise, fall back, and rise again; three records to a batch.
    let time_of = |offset: i64| 1000 + offset * 10 - if offset % 7 == 3 { 200 } else { 0 };
    let root = tempfile::tempdir().unwrap();
    let storage = storage(root.path());
    let small = LogConfig { segment_bytes_max: 1500, index_interval_bytes: 100, ..config() };
    let mut log = create(&storage, small.clone());
    for base in (0..300).step_by(3) {
        let times = [time_of(base), time_of(base + 1), time_of(base + 2)];
        let codec = codecs[base as usize / 3 % 4];
        log.append(&timed(base, codec, &times), &ANY_EPOCH).unwrap();
    }
    for restarted in [false, true] {
        for time in (700..4200).step_by(5) {
            let expected =
                (0..300).find(|offset| time_of(*offset) >= time).map(|at| (at, time_of(at)));
            assert_eq!(first_at(log.reader(), time), expected, "{time} {restarted}");
        }
        let newest = log.reader().offset_of_max_timestamp().unwrap().unwrap();
        assert_eq!((newest.offset.0, newest.timestamp_ms), (299, time_of(299)));
        log.close().unwrap();
        log = open(&storage, small.clone()).0;
    }
    // What lies below the log start is not found, also inside a batch.
    log.advance_log_start(Offset(100)).unwrap();
    assert_eq!(first_at(log.reader(), 0), Some((100, time_of(100))));
    log.truncate_to(Offset(150)).unwrap();
    assert_eq!(first_at(log.reader(), time_of(149)), Some((149, time_of(149))));
    assert_eq!(first_at(log.reader(), time_of(149) + 1), None);
}

#[test]
fn a_record_older_than_the_newest_is_not_the_newest() {
    let root = tempfile::tempdir().unwrap();
    let mut log = create(&storage(root.path()), config());
    assert_eq!(log.reader().offset_of_max_timestamp().unwrap(), None);
    assert_eq!(first_at(log.reader(), 0), None);
    log.append(&timed(0, Compression::Zstd, &[5, 9000, 7]), &ANY_EPOCH).unwrap();
    log.append(&timed(3, Compression::None, &[100, 50]), &ANY_EPOCH).unwrap();
    let newest = log.reader().offset_of_max_timestamp().unwrap().unwrap();
    assert_eq!((newest.offset, newest.timestamp_ms), (Offset(1), 9000));
    assert_eq!(first_at(log.reader(), 10), Some((1, 9000)));
}
