//! Read-committed readers over random transactions in tiny segments: what a consumer makes of the
//! records and the aborted list is exactly what was committed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use storage::{LogConfig, Offset};

use super::fetch::PendingFetch;
use super::testing::{Batch, Local, Node, decode, partition_from, request};
use crate::wire::{FetchRequest, IsolationLevel};

/// A generator of the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What was appended: each record's producer and, once its transaction ended, whether it counts.
#[derive(Default)]
struct Model {
    /// Offsets of records that are committed, or of no transaction.
    committed: BTreeSet<i64>,
    open: BTreeMap<i64, Vec<i64>>,
    end: i64,
}

impl Model {
    fn step(&mut self, random: &mut Random) -> Batch {
        let offset = self.end;
        self.end += 1;
        let producer = 1 + random.below(3) as i64;
        match random.below(10) {
            0 => {
                self.committed.insert(offset);
                Batch::at(offset, 20)
            }
            choice @ 1..=4 if self.open.contains_key(&producer) => {
                let commit = choice <= 2;
                let records = self.open.remove(&producer).expect("just seen");
                if commit {
                    self.committed.extend(records);
                }
                Batch::end_of_transaction(offset, producer, commit)
            }
            _ => {
                self.open.entry(producer).or_default().push(offset);
                Batch::of_transaction(offset, producer)
            }
        }
    }

    fn stable(&self) -> i64 {
        self.open.values().flatten().copied().min().unwrap_or(self.end)
    }
}

/// A consumer's view of an answer: the offsets delivered, and the offset to go on from.
fn deliver(records: &[u8], mut aborted: Vec<(i64, i64)>, from: i64) -> (Vec<i64>, i64) {
    aborted.sort_unstable();
    let mut aborted = aborted.into_iter().peekable();
    let mut skipped = HashSet::new();
    let (mut delivered, mut next) = (Vec::new(), from);
    let mut rest = records;
    while let Some(length) = rest.get(8..12) {
        let size = 12 + u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        let Some(batch) = rest.get(..size) else { break };
        rest = &rest[size..];
        let offset = i64::from_be_bytes(batch[..8].try_into().expect("eight bytes"));
        let producer = i64::from_be_bytes(batch[43..51].try_into().expect("eight bytes"));
        let attributes = batch[22];
        while let Some((_, producer)) = aborted.next_if(|(first, _)| *first <= offset) {
            skipped.insert(producer);
        }
        let (transactional, control) = (attributes & 0x10 != 0, attributes & 0x20 != 0);
        next = offset + 1;
        if control {
            // Only an abort marker ends what is skipped; a commit finds nothing to end.
            skipped.remove(&producer);
        } else if offset >= from && !(transactional && skipped.contains(&producer)) {
            delivered.push(offset);
        }
    }
    (delivered, next)
}

/// Reads all from `from` on, as a consumer does, and checks that it is what was committed.
fn check(node: &Node, model: &Model, from: i64, bytes_max: i32) {
    let (mut delivered, mut next) = (Vec::new(), from);
    while next < model.stable() {
        let want = FetchRequest {
            isolation: IsolationLevel::ReadCommitted,
            max_bytes: bytes_max,
            max_wait_ms: 0,
            ..request(&[("a", partition_from(0, next))])
        };
        let mut fetch = PendingFetch::new(want, 11, 0, node.environment());
        let response = decode(&fetch.look(node.environment()).expect("no wait"), 11);
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.last_stable_offset, model.stable());
        let listed = partition.aborted_transactions.as_ref().expect("a list");
        let aborted = listed.iter().map(|one| (one.first_offset, one.producer_id.0)).collect();
        let records = partition.records.as_ref().expect("never null");
        let (some, after) = deliver(records, aborted, next);
        assert!(after > next, "from {next}: progress");
        delivered.extend(some);
        next = after;
    }
    let expected: Vec<i64> = model.committed.range(from..model.stable()).copied().collect();
    assert_eq!(delivered, expected, "from {from}, {bytes_max} bytes at most");
}

#[test]
fn readers_get_exactly_what_was_committed_from_any_offset_also_after_a_restart() {
    let node = Node::new();
    let config = LogConfig {
        segment_bytes_max: 1000,
        segment_age_max: Duration::from_secs(3600),
        index_interval_bytes: 200,
        index_bytes_max: 1 << 20,
        batch_bytes_max: 1 << 20,
    };
    let Local { mut log, partition } = node.add_with(config.clone(), "a", 0);
    let mut model = Model::default();
    let mut random = Random(7);
    let batches: Vec<Batch> = (0..400).map(|_| model.step(&mut random)).collect();
    for batch in &batches {
        super::testing::append(&mut log, std::slice::from_ref(batch));
    }
    assert!(model.committed.len() > 50 && model.stable() > 300, "a log worth reading");
    let all = |node: &Node| {
        for from in 0..model.stable() {
            check(node, &model, from, [1, 300, 2000, i32::MAX][from as usize % 4]);
        }
    };
    all(&node);
    log.close().expect("a clean stop");
    let (log, _) = node.storage.open_log(&partition.id, config).expect("a restart");
    node.serve(&log, &partition);
    all(&node);
    assert_eq!(log.reader().log_end(), Offset(model.end));
}
