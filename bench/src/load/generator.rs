//! Batches made from their position: the same partition and offset give the same bytes, so that every copy
//! of them can be checked.
//!
//! The records repeat after up to 1,024 batches of a partition; the head of a batch, with its offset, its
//! timestamp and the checksum over timestamp and records, repeats never. So a batch in the place of another
//! is seen, unless somebody also gave it the other's head and checksum.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::Workload;
use super::bodies::Bodies;

/// Bytes of a v2 batch header.
pub(super) const HEAD_BYTES: usize = 61;
/// Where the checksummed part of a batch begins.
const CHECKED_FROM: usize = 21;
/// Milliseconds of the first record of what is there from the beginning: an arbitrary, fixed day, so that
/// equal positions give equal bytes.
const FIRST_TIMESTAMP_MS: i64 = 1_750_000_000_000;

/// When a live load began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Began {
    /// On the clock that processes share.
    pub monotonic_ns: u64,
    /// The same moment, as records carry it.
    pub wall_ms: i64,
}

/// Makes the batches of one workload. Clones share the moment a live load began.
#[derive(Clone, Debug)]
pub struct Generator {
    workload: Workload,
    bodies: Arc<Bodies>,
    began: Arc<OnceLock<Began>>,
}

impl Generator {
    /// A generator; all its batches have one length.
    #[must_use]
    pub fn new(workload: Workload) -> Self {
        let bodies = Arc::new(Bodies::make(&workload));
        Self { workload, bodies, began: Arc::default() }
    }

    /// Begins a live load, once; until then it has no batch.
    pub fn begin(&self, began: Began) {
        let _ = self.began.set(began);
    }

    /// When the live load began.
    #[must_use]
    pub fn began(&self) -> Option<Began> {
        self.began.get().copied()
    }

    /// What it makes.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Length of every batch in bytes.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        HEAD_BYTES + self.bodies.body_bytes()
    }

    /// End offset of every partition, at the end of a live load.
    #[must_use]
    pub fn end_offset(&self) -> i64 {
        i64::try_from(self.workload.records).unwrap_or(i64::MAX)
    }

    /// End offset of a partition at that time of the clock that processes share.
    #[must_use]
    pub fn end_offset_at(&self, partition: u32, monotonic_ns: u64) -> i64 {
        if self.workload.batch_interval_ns.is_none() {
            return self.end_offset();
        }
        let batches = self.workload.batches_due(partition, self.since_begin_ns(monotonic_ns));
        i64::try_from(batches * u64::from(self.workload.batch_records)).unwrap_or(i64::MAX)
    }

    /// When the batch that holds the offset is due, on the clock that processes share; nothing before a live
    /// load has begun, and for what is no live load.
    #[must_use]
    pub fn due_ns(&self, partition: u32, offset: i64) -> Option<u64> {
        self.workload.batch_interval_ns?;
        let due = self.workload.due_ns(partition, self.batch_of(offset));
        Some(self.began.get()?.monotonic_ns.saturating_add(due))
    }

    /// Partitions that got a batch of a live load between two times of the clock that processes share.
    pub(super) fn partitions_due(&self, after_ns: u64, until_ns: u64) -> impl Iterator<Item = u32> {
        let live = self.workload.batch_interval_ns.is_some();
        let until = self.since_begin_ns(until_ns).filter(|_| live);
        let after = self.since_begin_ns(after_ns);
        until.map(|until| self.workload.partitions_due(after, until)).into_iter().flatten()
    }

    /// When any partition gets a batch next, on the clock that processes share.
    pub(super) fn next_due_ns(&self, monotonic_ns: u64) -> Option<u64> {
        self.workload.batch_interval_ns?;
        let began = self.began.get()?.monotonic_ns;
        let since = monotonic_ns.checked_sub(began);
        Some(began.saturating_add(since.map_or(0, |since| self.workload.next_due_ns(since))))
    }

    fn since_begin_ns(&self, monotonic_ns: u64) -> Option<u64> {
        monotonic_ns.checked_sub(self.began.get()?.monotonic_ns)
    }

    /// Bytes of all partitions' batches.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.workload.batches() * self.batch_bytes() as u64 * u64::from(self.workload.partitions)
    }

    /// Appends the batch that holds `offset` of `partition` to `out`; returns its first offset.
    pub fn batch(&self, partition: u32, offset: i64, out: &mut Vec<u8>) -> i64 {
        let (first, head) = self.head(partition, offset);
        out.extend_from_slice(&head);
        out.extend_from_slice(self.body(partition, offset));
        first
    }

    /// The first offset and the header of the batch that holds `offset`.
    pub(super) fn head(&self, partition: u32, offset: i64) -> (i64, [u8; HEAD_BYTES]) {
        let mut head = [0; HEAD_BYTES];
        let batch = self.batch_of(offset);
        let first =
            i64::try_from(batch * u64::from(self.workload.batch_records)).unwrap_or(i64::MAX);
        let count = i32::try_from(self.workload.batch_records).unwrap_or(i32::MAX);
        let timestamp = self.timestamp_ms(partition, batch, first);
        head[0..8].copy_from_slice(&first.to_be_bytes());
        let length = i32::try_from(self.batch_bytes() - 12).unwrap_or(i32::MAX);
        head[8..12].copy_from_slice(&length.to_be_bytes());
        head[16] = 2;
        head[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        head[27..35].copy_from_slice(&timestamp.to_be_bytes());
        head[35..43].copy_from_slice(&timestamp.to_be_bytes());
        head[43..51].copy_from_slice(&(-1_i64).to_be_bytes());
        head[51..53].copy_from_slice(&(-1_i16).to_be_bytes());
        head[53..57].copy_from_slice(&(-1_i32).to_be_bytes());
        head[57..61].copy_from_slice(&count.to_be_bytes());
        let checksum = self.bodies.checksum(&head[CHECKED_FROM..], partition, batch);
        head[17..21].copy_from_slice(&checksum.to_be_bytes());
        (first, head)
    }

    /// The records of the batch that holds `offset`.
    pub(super) fn body(&self, partition: u32, offset: i64) -> &[u8] {
        self.bodies.body(partition, self.batch_of(offset))
    }

    fn batch_of(&self, offset: i64) -> u64 {
        offset.max(0).cast_unsigned() / u64::from(self.workload.batch_records.max(1))
    }

    /// The intended time of a live batch, not the time it was sent at.
    fn timestamp_ms(&self, partition: u32, batch: u64, first: i64) -> i64 {
        match self.began.get() {
            Some(began)
                if self.workload.batch_interval_ns.is_some()
                    && batch >= self.workload.batches_at_once =>
            {
                let due_ms = self.workload.due_ns(partition, batch) / 1_000_000;
                began.wall_ms.saturating_add(i64::try_from(due_ms).unwrap_or(i64::MAX))
            }
            _ => FIRST_TIMESTAMP_MS + first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_positions_give_equal_bytes_and_others_differ() {
        let generator = Generator::new(Workload::of_size("t", 1 << 20, 2));
        let (mut first, mut again, mut other, mut next) = (vec![], vec![], vec![], vec![]);
        assert_eq!(generator.batch(0, 70, &mut first), 64);
        assert_eq!(generator.batch(0, 64, &mut again), 64);
        generator.batch(1, 64, &mut other);
        generator.batch(0, 128, &mut next);
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert_ne!(first[61..], next[61..]);
        assert_eq!(first.len(), generator.batch_bytes());
    }

    #[test]
    fn batches_with_equal_records_have_different_checksums() {
        let generator = Generator::new(Workload::of_size("t", 1 << 40, 1));
        let cycle = (1..2_000).find(|batch| generator.body(0, batch * 64) == generator.body(0, 0));
        let (_, first) = generator.head(0, 0);
        let (_, later) = generator.head(0, cycle.unwrap() * 64);
        assert_ne!(first[17..21], later[17..21]);
    }

    #[test]
    fn a_batch_decodes_with_an_independent_codec() {
        let generator = Generator::new(Workload::of_size("t", 1 << 20, 1));
        let mut batch = Vec::new();
        generator.batch(0, 64, &mut batch);
        let mut bytes = bytes::Bytes::from(batch);
        let decoded = kafka_protocol::records::RecordBatchDecoder::decode(&mut bytes).unwrap();
        assert_eq!(decoded.records.len(), 64);
        assert_eq!(decoded.records[3].offset, 67);
        assert_eq!(decoded.records[3].value.as_ref().map(bytes::Bytes::len), Some(1024));
    }

    #[test]
    fn a_workloads_size_is_about_what_was_asked() {
        let generator = Generator::new(Workload::of_size("t", 64 << 20, 4));
        let ratio = generator.total_bytes() as f64 / f64::from(64 << 20);
        assert!((0.98..1.05).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_live_batch_carries_the_time_it_was_due() {
        let workload =
            Workload { batch_interval_ns: Some(10_000_000), ..Workload::of_size("t", 1 << 20, 2) };
        let generator = Generator::new(workload);
        assert_eq!(generator.end_offset_at(0, u64::MAX), 0, "it has not begun");
        assert_eq!(generator.due_ns(0, 0), None);
        generator.begin(Began { monotonic_ns: 1_000, wall_ms: 5_000 });
        assert_eq!(generator.end_offset_at(0, 999), 0);
        assert_eq!(generator.end_offset_at(0, 1_000 + 20_000_000), 3 * 64);
        assert_eq!(generator.due_ns(1, 130), Some(1_000 + 25_000_000));
        let mut batch = Vec::new();
        generator.batch(1, 130, &mut batch);
        let mut bytes = bytes::Bytes::from(batch);
        let decoded = kafka_protocol::records::RecordBatchDecoder::decode(&mut bytes).unwrap();
        assert_eq!(decoded.records[0].timestamp, 5_025);
    }
}
