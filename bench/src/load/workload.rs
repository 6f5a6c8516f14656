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
    /// Of a live load: batches of each partition that are there before it begins.
    pub batches_at_once: u64,
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
            batches_at_once: 0,
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
        let Some(batch) = batch.checked_sub(self.batches_at_once) else { return 0 };
        let interval = self.batch_interval_ns.unwrap_or(0);
        self.phase_ns(partition).saturating_add(interval.saturating_mul(batch))
    }

    /// Batches of the partition that are due at that time since the load began; `None` before.
    #[must_use]
    pub fn batches_due(&self, partition: u32, since_begin_ns: Option<u64>) -> u64 {
        let Some(interval) = self.batch_interval_ns else { return self.batches() };
        let passed = since_begin_ns.and_then(|since| since.checked_sub(self.phase_ns(partition)));
        let live = passed.map_or(0, |passed| passed / interval.max(1) + 1);
        self.batches_at_once.saturating_add(live).min(self.batches())
    }

    /// Partitions that a batch of a live load becomes due for between two times since it began, the first
    /// excluded, `None` for before. All of them when a whole interval lies between.
    pub fn partitions_due(
        &self,
        after_ns: Option<u64>,
        until_ns: u64,
    ) -> impl Iterator<Item = u32> {
        let partitions = u64::from(self.partitions.max(1));
        let (first, end) = (after_ns.map_or(0, |after| self.turns(after)), self.turns(until_ns));
        let end = end.min(first.saturating_add(partitions));
        (first..end).map(move |turn| u32::try_from(turn % partitions).unwrap_or(u32::MAX))
    }

    /// When the first batch of a live load becomes due after that time since it began.
    #[must_use]
    pub fn next_due_ns(&self, since_begin_ns: u64) -> u64 {
        let partitions = u64::from(self.partitions.max(1));
        let turn = self.turns(since_begin_ns);
        let partition = u32::try_from(turn % partitions).unwrap_or(u32::MAX);
        let interval = self.batch_interval_ns.unwrap_or(0);
        self.phase_ns(partition).saturating_add(interval.saturating_mul(turn / partitions))
    }

    /// Turns that partitions have had until then, that moment included.
    fn turns(&self, since_begin_ns: u64) -> u64 {
        let interval = u128::from(self.batch_interval_ns.unwrap_or(0).max(1));
        let (partitions, since) = (u128::from(self.partitions.max(1)), u128::from(since_begin_ns));
        // A phase is rounded down: it is reached as long as the exact one is below the next nanosecond.
        let within = ((since % interval + 1) * partitions).div_ceil(interval).min(partitions);
        u64::try_from(since / interval * partitions + within).unwrap_or(u64::MAX)
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
            assert_eq!(live.batches_due(partition, Some(since)), due, "{partition} at {since}");
        }
    }

    #[test]
    fn what_is_not_live_is_there_at_once() {
        let whole = Workload::of_size("t", 1 << 20, 1);
        assert_eq!(whole.batches_due(0, None), whole.batches());
        assert_eq!(whole.due_ns(0, 5), 0);
    }

    #[test]
    fn what_is_there_before_a_live_load_begins_is_due_at_once() {
        let live = Workload {
            batch_interval_ns: Some(1_000),
            batches_at_once: 2,
            records: 640,
            ..Workload::of_size("t", 1, 4)
        };
        for (since, due) in [(None, 2), (Some(249), 2), (Some(250), 3), (Some(1_250), 4)] {
            assert_eq!(live.batches_due(1, since), due, "{since:?}");
        }
        assert_eq!((live.due_ns(1, 1), live.due_ns(1, 2), live.due_ns(1, 3)), (0, 250, 1_250));
    }

    #[test]
    fn turns_agree_with_what_each_partition_has_due() {
        for (partitions, interval) in [(3, 1_000), (7, 10), (10, 7), (1, 5)] {
            let live = Workload {
                batch_interval_ns: Some(interval),
                records: 1 << 40,
                ..Workload::of_size("t", 1, partitions)
            };
            let due = |time| (0..partitions).map(|p| live.batches_due(p, time)).collect::<Vec<_>>();
            for time in 0..3 * interval {
                let (before, now) = (time.checked_sub(1), Some(time));
                let (was, is) = (due(before), due(now));
                let changed: Vec<u32> =
                    (0..partitions).filter(|p| was[*p as usize] != is[*p as usize]).collect();
                let mut told: Vec<u32> = live.partitions_due(before, time).collect();
                told.sort_unstable();
                assert_eq!(told, changed, "{partitions} in {interval} at {time}");
                let next = live.next_due_ns(time);
                assert!(next > time && due(Some(next)) != is, "{next} after {time}");
                assert_eq!(due(Some(next - 1)), is, "{next} after {time}");
            }
        }
    }
}
