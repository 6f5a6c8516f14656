//! Whatever is done to a log, what it leaves on disk is what verification recomputes, and readers
//! of committed data get exactly that.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{ANY_EPOCH, config, folder, open, partition, storage, topic_id};
use longhaul_storage::batch::{BatchBuilder, BatchLimits, Compression, ControlMarker, walk};
use longhaul_storage::inspect::{InspectOptions, verify_partition};
use longhaul_storage::{
    LeaderEpoch, Log, LogConfig, LogReader, Offset, ProducerEpoch, ProducerId, Storage,
};
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Batch>),
    Truncate(Index),
    AdvanceStart(Index),
    Reopen,
    Crash,
}

#[derive(Clone, Debug)]
struct Batch {
    kind: Kind,
    gap: i64,
    new_epoch: bool,
    records: i32,
    value_bytes: usize,
    timestamp_ms: i64,
    compressed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Data(i64),
    Commit(i64),
    Abort(i64),
}

fn any_kind() -> impl Strategy<Value = Kind> {
    (0u8..8, 0i64..3).prop_map(|(kind, producer)| match kind {
        0..=3 => Kind::Data(producer),
        4 => Kind::Commit(producer),
        5 => Kind::Abort(producer),
        _ => Kind::Plain,
    })
}

fn any_batch() -> impl Strategy<Value = Batch> {
    let gap = prop_oneof![9 => Just(0), 1 => 1i64..50];
    let epoch = prop::bool::weighted(0.05);
    (any_kind(), gap, epoch, 1..5, 0usize..200, 0i64..1000, any::<bool>()).prop_map(
        |(kind, gap, new_epoch, records, value_bytes, timestamp_ms, compressed)| Batch {
            kind,
            gap,
            new_epoch,
            records,
            value_bytes,
            timestamp_ms,
            compressed,
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => prop::collection::vec(any_batch(), 1..12).prop_map(Step::Append),
        1 => any::<Index>().prop_map(Step::Truncate),
        1 => any::<Index>().prop_map(Step::AdvanceStart),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
    ]
}

fn settings() -> LogConfig {
    LogConfig { segment_bytes_max: 2500, index_interval_bytes: 150, ..config() }
}

/// One batch of the log as it should be.
#[derive(Clone, Copy, Debug)]
struct Kept {
    base: i64,
    last: i64,
    epoch: i32,
    kind: Kind,
}

/// The log under test and what should be in it.
struct World {
    roots: Vec<tempfile::TempDir>,
    storage: Option<Arc<Storage>>,
    log: Option<Log>,
    kept: Vec<Kept>,
    start: i64,
    end: i64,
    epoch: i32,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let storage = storage(root.path());
        let log = storage.create_log(&partition(), topic_id(), Offset(0), settings()).unwrap();
        Self {
            roots: vec![root],
            storage: Some(storage),
            log: Some(log),
            kept: Vec::new(),
            start: 0,
            end: 0,
            epoch: 0,
        }
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Append(batches) => self.append(batches),
            Step::Truncate(index) if !self.kept.is_empty() => {
                let at = index.index(self.kept.len());
                let offset = self.kept[at].base.max(self.start);
                self.log().truncate_to(Offset(offset)).unwrap();
                self.kept.retain(|batch| batch.last < offset);
                self.end = offset;
                self.epoch = self.kept.last().map_or(self.epoch, |batch| batch.epoch);
            }
            Step::AdvanceStart(index) if !self.kept.is_empty() => {
                let batch = self.kept[index.index(self.kept.len())];
                let offset = index.index((batch.last - batch.base + 1) as usize) as i64;
                self.start = self.start.max(batch.base + offset);
                let start = self.start;
                self.log().advance_log_start(Offset(start)).unwrap();
            }
            Step::Reopen => {
                self.log.take().unwrap().close().unwrap();
                self.reopen();
            }
            Step::Crash => {
                // What is in the page cache survives the end of a process.
                let root = tempfile::tempdir().unwrap();
                common::copy_directory(self.roots.last().unwrap().path(), root.path());
                self.log = None;
                self.roots.push(root);
                self.reopen();
            }
            _ => {}
        }
    }

    fn reopen(&mut self) {
        self.log = None;
        self.storage = None;
        let storage = storage(self.roots.last().unwrap().path());
        self.log = Some(open(&storage, settings()).0);
        self.storage = Some(storage);
        // A log start that was not made durable yet is forgotten; what it removed is gone all the same.
        let start = self.log().reader().log_start().0;
        assert!(start <= self.start);
        self.start = start;
        // A gap before the end leaves no trace on disk, and may or may not be remembered.
        let least = self.kept.last().map_or(0, |batch| batch.last + 1).max(self.start);
        let end = self.log().reader().log_end().0;
        assert!(least <= end && end <= self.end, "{end} is not within {least} and {}", self.end);
        self.end = end;
    }

    fn append(&mut self, batches: &[Batch]) {
        let mut bytes = Vec::new();
        let mut next = self.end;
        for batch in batches {
            next += batch.gap;
            self.epoch += i32::from(batch.new_epoch);
            let (written, last) = write(batch, next, self.epoch);
            bytes.extend(written);
            self.kept.push(Kept { base: next, last, epoch: self.epoch, kind: batch.kind });
            next = last + 1;
        }
        self.end = next;
        self.log().append(&bytes, &ANY_EPOCH).unwrap();
        assert_eq!(self.log().reader().log_end(), Offset(next));
    }

    fn finish(&mut self) {
        check_readers(self.log().reader().clone().as_ref(), &self.kept, self.start);
        self.log.take().unwrap().close().unwrap();
        let options = InspectOptions { records: true, ..InspectOptions::default() };
        let report = verify_partition(&folder(self.roots.last().unwrap().path()), &options);
        assert!(report.is_whole(), "{:#?}", report.findings);
        if let Some(last) = self.kept.last().filter(|last| last.last >= self.start) {
            assert_eq!(report.next_offset, Offset(last.last + 1));
        }
    }
}

fn write(batch: &Batch, base: i64, epoch: i32) -> (Vec<u8>, i64) {
    let (base, epoch) = (Offset(base), LeaderEpoch(epoch));
    let marker = |producer, marker| {
        let who = (ProducerId(producer), ProducerEpoch(0));
        let when = (batch.timestamp_ms, 0);
        (BatchBuilder::end_of_transaction(base, epoch, who, marker, when), base.0)
    };
    let mut data = BatchBuilder::new(base, epoch);
    match batch.kind {
        Kind::Commit(producer) => return marker(producer, ControlMarker::Commit),
        Kind::Abort(producer) => return marker(producer, ControlMarker::Abort),
        Kind::Plain => {}
        Kind::Data(producer) => {
            data = data.producer(ProducerId(producer), ProducerEpoch(0), 0).transactional();
        }
    }
    if batch.compressed {
        data = data.compression(Compression::Lz4);
    }
    for record in 0..batch.records {
        let value = vec![b'v'; batch.value_bytes];
        data.push(batch.timestamp_ms + i64::from(record % 3), None, Some(&value), &[]);
    }
    (data.finish(), base.0 + i64::from(batch.records) - 1)
}

/// Reads committed data from the start of every batch, in pieces, as a consumer does.
fn check_readers(reader: &LogReader, kept: &[Kept], start: i64) {
    let stable = reader.last_stable_offset();
    let fate = |from: usize, producer: i64| {
        kept[from..].iter().find_map(|batch| match batch.kind {
            Kind::Commit(by) if by == producer => Some(true),
            Kind::Abort(by) if by == producer => Some(false),
            _ => None,
        })
    };
    let open = |at: usize| matches!(kept[at].kind, Kind::Data(by) if fate(at, by).is_none());
    // Only what lies at or above the log start can be told apart: earlier batches may be gone.
    let first_open = (0..kept.len()).find(|at| open(*at) && kept[*at].last >= start);
    if let Some(at) = first_open {
        assert!(stable.0 <= kept[at].base.max(start), "an open transaction is not stable");
    }
    let committed = |from: i64| -> Vec<i64> {
        let stable_batches = kept.iter().enumerate().filter(|(_, batch)| batch.base < stable.0);
        stable_batches
            .filter(|(at, batch)| match batch.kind {
                Kind::Plain => true,
                Kind::Data(producer) => fate(*at, producer) == Some(true),
                _ => false,
            })
            .filter(|(_, batch)| batch.last >= from)
            .map(|(_, batch)| batch.base)
            .collect()
    };
    for batch in kept.iter().filter(|batch| batch.base >= start && batch.base <= stable.0) {
        assert_eq!(consume(reader, batch.base, stable), committed(batch.base), "{}", batch.base);
    }
}

/// Base offsets of the batches that a read-committed consumer delivers from `from` to `until`.
fn consume(reader: &LogReader, from: i64, until: Offset) -> Vec<i64> {
    let mut delivered = Vec::new();
    let mut next = Offset(from);
    while let Some(slice) = reader.read(next, until, 700, true).unwrap() {
        let bytes = slice.to_vec();
        let upper = reader.upper_bound_offset(next, bytes.len()).unwrap();
        let mut aborted = reader.aborted_transactions(next, upper).unwrap();
        aborted.sort_by_key(|entry| entry.first_offset);
        let mut aborted = aborted.into_iter().peekable();
        let mut skipped = BTreeSet::new();
        let limits = BatchLimits { batch_bytes_max: u32::MAX };
        for batch in walk(&bytes, limits).map_while(Result::ok) {
            let info = batch.info;
            while let Some(entry) = aborted.next_if(|entry| entry.first_offset <= info.last_offset)
            {
                skipped.insert(entry.producer_id);
            }
            next = info.next_offset();
            if info.attributes.is_control() {
                if info.control == Some(ControlMarker::Abort) {
                    skipped.remove(&info.producer_id);
                }
            } else if !info.attributes.is_transactional() || !skipped.contains(&info.producer_id) {
                delivered.push(info.base_offset.0);
            }
        }
    }
    delivered
}

/// Every case writes and syncs files; more of them on demand.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn what_a_log_leaves_on_disk_is_what_verification_recomputes(
        steps in prop::collection::vec(any_step(), 1..25),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
        world.finish();
    }
}
