//! The consumer at the mirror: how late each record is, by the time it was due at the source.
//!
//! A thread of its own. Open loop: a record's lag counts from when the schedule had it, whoever held it up on
//! the way, the consumer included; so a pause makes every record late that was due during it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use hdrhistogram::Histogram;

use crate::load::Generator;
use crate::reader::{ReadBatch, Reader};
use crate::run::SubjectError;

/// The longest lag told apart, in nanoseconds; a later record counts as this late.
const LAG_NS_MAX: u64 = 600_000_000_000;
/// Where a batch's first timestamp is.
const TIMESTAMP: std::ops::Range<usize> = 27..35;
/// The worst lag is kept for each such stretch of the schedule.
const STRETCH_NS: u64 = 100_000_000;

/// What the consumer saw of the records due after the warm-up.
#[derive(Debug)]
pub(super) struct Lags {
    /// One count a record, nanoseconds.
    pub(super) histogram: Histogram<u64>,
    /// The worst of each stretch, by when the records were due: seconds since the load began, nanoseconds.
    pub(super) worst: Vec<(f64, u64)>,
    /// When the last record came, on the clock that processes share.
    pub(super) last_ns: u64,
    /// Bytes of all batches, each compared with the source's.
    pub(super) bytes: u64,
}

/// What of a copy is compared with the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    /// Every byte.
    Exact,
    /// Offsets and times: another producer made new batches of the same records.
    Rebatched,
}

/// The consumer at work.
#[derive(Debug)]
pub(super) struct Consumer {
    stop: Arc<AtomicBool>,
    records: Arc<AtomicU64>,
    problem: Arc<Mutex<Option<String>>>,
    thread: JoinHandle<Lags>,
}

impl Consumer {
    /// Reads everything until the load's end. The load must have begun.
    pub(super) fn start(
        mut reader: Reader,
        generator: Generator,
        copy: Copy,
        warm_up_ns: u64,
    ) -> Result<Self, SubjectError> {
        let failed = |error| SubjectError::Failed(format!("cannot start the consumer: {error}"));
        let mut tally = Tally::new(&generator, copy, warm_up_ns).map_err(failed)?;
        let (stop, records) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let problem = Arc::new(Mutex::new(None));
        let (stopping, counted, found) = (stop.clone(), records.clone(), problem.clone());
        let thread = std::thread::Builder::new()
            .name("consumer".to_owned())
            .spawn(move || {
                let end = generator.end_offset();
                while reader.next().iter().any(|next| *next < end)
                    && !stopping.load(Ordering::Relaxed)
                {
                    let fetched = reader.fetch(end, |batch| {
                        counted.fetch_add(
                            (batch.end - batch.first).cast_unsigned(),
                            Ordering::Relaxed,
                        );
                        tally.note(&generator, &batch)
                    });
                    if let Err(error) = fetched {
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        *found = Some(error.to_string());
                        break;
                    }
                }
                tally.end()
            })
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { stop, records, problem, thread })
    }

    /// Records read so far.
    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// What went wrong, if anything did.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it; answers what it saw.
    pub(super) fn end(self) -> Result<Lags, SubjectError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| SubjectError::Failed("the consumer broke down".to_owned()))
    }
}

struct Tally {
    lags: Lags,
    copy: Copy,
    began_ns: u64,
    warm_up_ns: u64,
    worst: Vec<u64>,
    expected: Vec<u8>,
}

impl Tally {
    fn new(generator: &Generator, copy: Copy, warm_up_ns: u64) -> Result<Self, String> {
        let began_ns = generator.began().ok_or("the load has not begun")?.monotonic_ns;
        let histogram =
            Histogram::new_with_bounds(1, LAG_NS_MAX, 3).map_err(|error| format!("{error:?}"))?;
        let lags = Lags { histogram, worst: Vec::new(), last_ns: 0, bytes: 0 };
        Ok(Self { lags, copy, began_ns, warm_up_ns, worst: Vec::new(), expected: Vec::new() })
    }

    fn note(&mut self, generator: &Generator, batch: &ReadBatch<'_>) -> Result<(), String> {
        let ReadBatch { partition, wanted, .. } = *batch;
        self.expected.clear();
        generator.batch(partition, wanted, &mut self.expected);
        let same = match self.copy {
            Copy::Exact => batch.bytes == self.expected.as_slice(),
            Copy::Rebatched => {
                batch.first == wanted && batch.bytes[TIMESTAMP] == self.expected[TIMESTAMP]
            }
        };
        if !same {
            return Err(format!("partition {partition}: the batch at offset {wanted} differs"));
        }
        self.lags.bytes += batch.bytes.len() as u64;
        self.lags.last_ns = self.lags.last_ns.max(batch.at_ns);
        let batch_records = i64::from(generator.workload().batch_records);
        // A batch of another producer may hold records of several of the source's.
        let mut offset = wanted;
        while offset < batch.end {
            let end = ((offset / batch_records + 1) * batch_records).min(batch.end);
            let due_ns = generator.due_ns(partition, offset).unwrap_or(self.began_ns);
            self.count(due_ns, batch.at_ns, (end - offset).cast_unsigned());
            offset = end;
        }
        Ok(())
    }

    fn count(&mut self, due_ns: u64, at_ns: u64, records: u64) {
        let since_begin = due_ns.saturating_sub(self.began_ns);
        if since_begin < self.warm_up_ns {
            return;
        }
        let lag = at_ns.saturating_sub(due_ns).clamp(1, LAG_NS_MAX);
        self.lags.histogram.saturating_record_n(lag, records);
        let stretch = (since_begin / STRETCH_NS) as usize;
        if self.worst.len() <= stretch {
            self.worst.resize(stretch + 1, 0);
        }
        self.worst[stretch] = self.worst[stretch].max(lag);
    }

    fn end(self) -> Lags {
        let seconds = |stretch: usize| stretch as f64 * STRETCH_NS as f64 / 1e9;
        let worst = self.worst.iter().enumerate().filter(|(_, lag)| **lag > 0);
        let worst = worst.map(|(stretch, lag)| (seconds(stretch), *lag)).collect();
        Lags { worst, ..self.lags }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Began, Workload};

    #[test]
    fn lag_counts_from_the_schedule_and_a_different_byte_is_refused() {
        let workload = Workload {
            batch_interval_ns: Some(1_000_000_000),
            ..Workload::of_size("t", 1 << 20, 1)
        };
        let generator = Generator::new(workload);
        assert!(Tally::new(&generator, Copy::Exact, 0).is_err(), "it has not begun");
        generator.begin(Began { monotonic_ns: 1_000, wall_ms: 0 });
        let mut tally = Tally::new(&generator, Copy::Exact, 500_000_000).unwrap();
        let mut give = |offset: i64, late_ns: u64, flip: u8| {
            let mut bytes = Vec::new();
            generator.batch(0, offset, &mut bytes);
            bytes[100] ^= flip;
            let at_ns = generator.due_ns(0, offset).unwrap() + late_ns;
            let (first, end) = (offset, offset + 64);
            let batch =
                ReadBatch { partition: 0, wanted: offset, first, end, at_ns, bytes: &bytes };
            tally.note(&generator, &batch)
        };
        give(0, 9_000_000, 0).unwrap();
        give(64, 5_000_000, 0).unwrap();
        give(128, 7_000_000, 0).unwrap();
        assert!(give(192, 1, 1).unwrap_err().contains("192"));
        let lags = tally.end();
        assert_eq!(lags.histogram.len(), 2 * 64, "the warm-up does not count");
        assert!(lags.histogram.max() >= 7_000_000 && lags.histogram.max() < 7_100_000);
        assert_eq!(lags.worst, [(1.0, 5_000_000), (2.0, 7_000_000)]);
    }

    #[test]
    fn a_new_batch_of_several_old_ones_has_the_lag_of_each() {
        let workload =
            Workload { batch_interval_ns: Some(1_000_000), ..Workload::of_size("t", 1 << 20, 1) };
        let generator = Generator::new(workload);
        generator.begin(Began { monotonic_ns: 0, wall_ms: 7 });
        let mut tally = Tally::new(&generator, Copy::Rebatched, 0).unwrap();
        let mut bytes = Vec::new();
        generator.batch(0, 64, &mut bytes);
        let batch = ReadBatch {
            partition: 0,
            wanted: 64,
            first: 64,
            end: 64 + 100,
            at_ns: 5_000_000,
            bytes: &bytes[..61],
        };
        tally.note(&generator, &batch).unwrap();
        let mut later = bytes.clone();
        later[34] ^= 1;
        let moved = ReadBatch { bytes: &later[..61], ..batch };
        assert!(tally.note(&generator, &moved).is_err(), "records of another time");
        let lags = tally.end();
        assert_eq!(lags.histogram.len(), 100);
        assert_eq!(lags.histogram.count_between(3_900_000, 4_100_000), 64);
        assert_eq!(lags.histogram.count_between(2_900_000, 3_100_000), 36);
    }
}
