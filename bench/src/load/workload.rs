//! What a synthetic topic holds, and when each of its batches is there.

use serde::{Deserialize, Serialize};

/// Shape of what a synthetic topic holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Topic name.
    pub topic: String,
    /// Partitions.
    pub partitions: u32,
    /// Records in each partition, at the end of a live load: whole batches.
    pub records: u64,
    /// Bytes of a record's value.
    pub value_bytes: usize,
    /// Records in a batch.
    pub batch_records: u32,
    /// Of a live load: nanoseconds from one batch of a partition to its next. `None` when all is there from
    /// the beginning.
    pub batch_interval_ns: Option<u64>,
}

impl Workload {
    /// A workload of about `size_bytes` over all partitions, in 1 KiB records and 64-record batches.
    #[must_use]
    pub fn of_size(topic: &str, size_bytes: u64, partitions: u32) -> Self {
        let (value_bytes, batch_records) = (1024_u64, 64_u64);
        let batches =
            (size_bytes / u64::from(partitions.max(1)) / (value_bytes * batch_records)).max(1);
        Self {
            topic: topic.to_owned(),
            partitions: partitions.max(1),
            records: batches * batch_records,
            value_bytes: 1024,
            batch_records: 64,
            batch_interval_ns: None,
        }
    }

    /// Batches of one partition.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.records / u64::from(self.batch_records.max(1))
    }

    /// When a batch of a live load is due, in nanoseconds since the load began; 0 for any other. Partitions
    /// take turns within the interval, so that the load is even.
    #[must_use]
    pub fn due_ns(&self, partition: u32, batch: u64) -> u64 {
        let interval = self.batch_interval_ns.unwrap_or(0);
        self.phase_ns(partition).saturating_add(interval.saturating_mul(batch))
    }

    /// Batches of the partition that are due at that time since the load began.
    #[must_use]
    pub fn batches_due(&self, partition: u32, since_begin_ns: u64) -> u64 {
        let Some(interval) = self.batch_interval_ns else { return self.batches() };
        let first = self.phase_ns(partition);
        match since_begin_ns.checked_sub(first) {
            None => 0,
            Some(passed) => (passed / interval.max(1) + 1).min(self.batches()),
        }
    }

    fn phase_ns(&self, partition: u32) -> u64 {
        let interval = u128::from(self.batch_interval_ns.unwrap_or(0));
        let phase = interval * u128::from(partition) / u128::from(self.partitions.max(1));
        u64::try_from(phase).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_a_live_load_come_one_by_one_and_partitions_take_turns() {
        let live = Workload {
            batch_interval_ns: Some(1_000),
            records: 640,
            ..Workload::of_size("t", 1, 4)
        };
        assert_eq!(live.batches(), 10);
        assert_eq!(live.due_ns(0, 0), 0);
        assert_eq!(live.due_ns(1, 3), 3_250);
        for (partition, since, due) in
            [(0, 0, 1), (0, 999, 1), (0, 1_000, 2), (1, 249, 0), (1, 250, 1), (3, u64::MAX, 10)]
        {
            assert_eq!(live.batches_due(partition, since), due, "{partition} at {since}");
        }
    }

    #[test]
    fn what_is_not_live_is_there_at_once() {
        let whole = Workload::of_size("t", 1 << 20, 1);
        assert_eq!(whole.batches_due(0, 0), whole.batches());
        assert_eq!(whole.due_ns(0, 5), 0);
    }
}
