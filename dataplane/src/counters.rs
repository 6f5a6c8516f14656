//! Counters and histograms of a core, merged on read.
//!
//! Each core owns one [`CoreCounters`] and is the only one to write it, so nothing here is contended:
//! counters are relaxed atomics on cache lines of their own, and a timing takes a lock that only a
//! reader of metrics ever holds besides. Nothing here may be called per record.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::handle::CoreId;

/// Longest time told apart; longer ones are recorded as this. A day: the lag of a mirror that
/// catches up is the age of its records.
pub const TIMING_NANOS_MAX: u64 = 86_400_000_000_000;
/// Two digits keep a histogram near 42 KB, which a thousand of them can afford.
pub const TIMING_DIGITS: u8 = 2;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long something took, as a distribution.
#[derive(Debug)]
pub struct Timing(Mutex<Histogram<u64>>);

impl Default for Timing {
    fn default() -> Self {
        Self(Mutex::new(empty_histogram()))
    }
}

impl Timing {
    /// Records one duration.
    pub fn record(&self, elapsed: Duration) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.histogram().saturating_record(nanos);
    }

    /// Records one duration that holds for `count` things.
    pub fn record_many(&self, elapsed: Duration, count: u64) {
        if count == 0 {
            // The histogram would take it for its largest all the same.
            return;
        }
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.histogram().saturating_record_n(nanos, count);
    }

    /// What was recorded so far.
    #[must_use]
    pub fn read(&self) -> Histogram<u64> {
        self.histogram().clone()
    }

    fn histogram(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is timed. Each is recorded at most once for an answer, a receive or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// See [`CoreCounters::fetch_round_trip`].
    FetchRoundTrip,
    /// See [`CoreCounters::landing`].
    Landing,
    /// See [`CoreCounters::publish`].
    Publish,
    /// See [`CoreCounters::serve`].
    Serve,
    /// See [`CoreCounters::lag`].
    Lag,
}

impl Measure {
    /// All of them, in the order in which bytes meet them.
    pub const ALL: [Self; 5] =
        [Self::FetchRoundTrip, Self::Landing, Self::Publish, Self::Serve, Self::Lag];

    /// The name in reports and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FetchRoundTrip => "fetch_round_trip",
            Self::Landing => "landing",
            Self::Publish => "publish",
            Self::Serve => "serve",
            Self::Lag => "lag",
        }
    }
}

/// One histogram for each measure, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Timings([Histogram<u64>; Measure::ALL.len()]);

impl Timings {
    fn empty() -> Self {
        Self(std::array::from_fn(|_| empty_histogram()))
    }

    /// The histogram of a measure.
    #[must_use]
    pub fn of(&self, measure: Measure) -> &Histogram<u64> {
        &self.0[measure as usize]
    }

    fn add(&mut self, other: &Self) {
        for (total, one) in self.0.iter_mut().zip(&other.0) {
            // Both have the same bounds, so nothing can be out of range.
            let _ = total.add(one);
        }
    }
}

/// What one core counts. Written by that core only, read by anyone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreCounters {
    /// Record bytes published.
    pub landed_bytes: Counter,
    /// Batches published.
    pub landed_batches: Counter,
    /// Record bytes received straight into a segment.
    pub landed_in_place_bytes: Counter,
    /// Record bytes dropped because nobody wanted them any more.
    pub skipped_bytes: Counter,
    /// Fetch requests sent to sources.
    pub fetch_requests: Counter,
    /// Fetch answers taken from sources.
    pub fetch_answers: Counter,
    /// Requests read from consumers.
    pub requests: Counter,
    /// Answers handed to consumers' sockets.
    pub answers: Counter,
    /// Bytes of those answers.
    pub answer_bytes: Counter,
    /// Connections accepted from consumers.
    pub connections_opened: Counter,
    /// Consumers' connections that ended.
    pub connections_closed: Counter,
    /// Connections closed at once because there were too many.
    pub connections_refused: Counter,
    /// Times something waited for a budget: memory, requests out, a slow reader.
    pub stalls: Counter,
    /// Turns of the core's loop.
    pub turns: Counter,
    /// From a fetch request sent to its answer taken.
    pub fetch_round_trip: Timing,
    /// From an answer's first bytes taken (the start of the core's turn) to its last batch published.
    pub landing: Timing,
    /// From a batch's last byte received (the start of the core's turn that took it) to the batch
    /// visible to readers; once for each receive and partition.
    pub publish: Timing,
    /// From a consumer's request read to its answer sent, long polls left out.
    pub serve: Timing,
    /// From a batch's largest record time, as the source's clock or the producer's had it, to the
    /// batch visible to readers here by our clock; once for each receive and partition, of the batch
    /// that took longest.
    pub lag: Timing,
    /// Recorded lags that would be negative, because our clock is behind; they count as 0 in `lag`.
    pub lags_negative: Counter,
    /// Publications without any record time, which have no lag.
    pub lags_unknown: Counter,
}

/// Counts of one core, or of all together, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// See [`CoreCounters::landed_bytes`].
    pub landed_bytes: u64,
    /// See [`CoreCounters::landed_batches`].
    pub landed_batches: u64,
    /// See [`CoreCounters::landed_in_place_bytes`].
    pub landed_in_place_bytes: u64,
    /// See [`CoreCounters::skipped_bytes`].
    pub skipped_bytes: u64,
    /// See [`CoreCounters::fetch_requests`].
    pub fetch_requests: u64,
    /// See [`CoreCounters::fetch_answers`].
    pub fetch_answers: u64,
    /// See [`CoreCounters::requests`].
    pub requests: u64,
    /// See [`CoreCounters::answers`].
    pub answers: u64,
    /// See [`CoreCounters::answer_bytes`].
    pub answer_bytes: u64,
    /// See [`CoreCounters::connections_opened`].
    pub connections_opened: u64,
    /// See [`CoreCounters::connections_closed`].
    pub connections_closed: u64,
    /// See [`CoreCounters::connections_refused`].
    pub connections_refused: u64,
    /// See [`CoreCounters::stalls`].
    pub stalls: u64,
    /// See [`CoreCounters::turns`].
    pub turns: u64,
    /// See [`CoreCounters::lags_negative`].
    pub lags_negative: u64,
    /// See [`CoreCounters::lags_unknown`].
    pub lags_unknown: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.landed_bytes += other.landed_bytes;
        self.landed_batches += other.landed_batches;
        self.landed_in_place_bytes += other.landed_in_place_bytes;
        self.skipped_bytes += other.skipped_bytes;
        self.fetch_requests += other.fetch_requests;
        self.fetch_answers += other.fetch_answers;
        self.requests += other.requests;
        self.answers += other.answers;
        self.answer_bytes += other.answer_bytes;
        self.connections_opened += other.connections_opened;
        self.connections_closed += other.connections_closed;
        self.connections_refused += other.connections_refused;
        self.stalls += other.stalls;
        self.turns += other.turns;
        self.lags_negative += other.lags_negative;
        self.lags_unknown += other.lags_unknown;
    }
}

impl CoreCounters {
    /// The counts now. Each is exact; two of them may be from moments a little apart.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            landed_bytes: self.landed_bytes.get(),
            landed_batches: self.landed_batches.get(),
            landed_in_place_bytes: self.landed_in_place_bytes.get(),
            skipped_bytes: self.skipped_bytes.get(),
            fetch_requests: self.fetch_requests.get(),
            fetch_answers: self.fetch_answers.get(),
            requests: self.requests.get(),
            answers: self.answers.get(),
            answer_bytes: self.answer_bytes.get(),
            connections_opened: self.connections_opened.get(),
            connections_closed: self.connections_closed.get(),
            connections_refused: self.connections_refused.get(),
            stalls: self.stalls.get(),
            turns: self.turns.get(),
            lags_negative: self.lags_negative.get(),
            lags_unknown: self.lags_unknown.get(),
        }
    }

    /// The distributions now, each copied under its own lock.
    #[must_use]
    pub fn timings(&self) -> Timings {
        Timings(Measure::ALL.map(|measure| self.timing(measure).read()))
    }

    /// The distribution of a measure.
    #[must_use]
    pub fn timing(&self, measure: Measure) -> &Timing {
        match measure {
            Measure::FetchRoundTrip => &self.fetch_round_trip,
            Measure::Landing => &self.landing,
            Measure::Publish => &self.publish,
            Measure::Serve => &self.serve,
            Measure::Lag => &self.lag,
        }
    }

    /// Records how late something was published at `unix` whose record time is `record_ms`.
    pub fn record_lag(&self, record_ms: Option<i64>, unix: Duration) {
        let Some(record_ms) = record_ms.and_then(|time_ms| u64::try_from(time_ms).ok()) else {
            return self.lags_unknown.add(1);
        };
        let lag = unix.checked_sub(Duration::from_millis(record_ms));
        if lag.is_none() {
            self.lags_negative.add(1);
        }
        self.lag.record(lag.unwrap_or_default());
    }
}

/// All cores' counters, read once.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// All cores together.
    pub total: Counts,
    /// Each core.
    pub cores: Vec<(CoreId, Counts)>,
    /// Distributions of all cores together.
    pub timings: Timings,
    /// Distributions of each core, in the order of `cores`.
    pub core_timings: Vec<Timings>,
}

impl Snapshot {
    /// Reads and merges.
    pub fn read<'a>(cores: impl IntoIterator<Item = (CoreId, &'a CoreCounters)>) -> Self {
        let mut snapshot = Self {
            total: Counts::default(),
            cores: Vec::new(),
            timings: Timings::empty(),
            core_timings: Vec::new(),
        };
        for (core, counters) in cores {
            let counts = counters.counts();
            snapshot.total.add(&counts);
            snapshot.cores.push((core, counts));
            let timings = counters.timings();
            snapshot.timings.add(&timings);
            snapshot.core_timings.push(timings);
        }
        snapshot
    }
}

#[expect(clippy::expect_used, reason = "the bounds are constants that the tests exercise")]
fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIMING_NANOS_MAX, TIMING_DIGITS).expect("constant bounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_merges_counts_and_timings_of_all_cores() {
        let cores = [CoreCounters::default(), CoreCounters::default()];
        cores[0].landed_bytes.add(10);
        cores[1].landed_bytes.add(32);
        cores[0].landing.record(Duration::from_millis(1));
        cores[1].landing.record(Duration::from_secs(30 * 86_400));
        cores[1].publish.record_many(Duration::from_micros(5), 3);
        cores[1].publish.record_many(Duration::from_secs(5), 0);
        let snapshot =
            Snapshot::read(cores.iter().enumerate().map(|(core, c)| (CoreId(core as u16), c)));
        assert_eq!(snapshot.total.landed_bytes, 42);
        assert_eq!(snapshot.cores[1].1.landed_bytes, 32);
        let landing = snapshot.timings.of(Measure::Landing);
        assert_eq!(landing.len(), 2);
        assert!(landing.max() >= TIMING_NANOS_MAX, "a long time is kept as the longest");
        let publish = snapshot.timings.of(Measure::Publish);
        assert!(publish.len() == 3 && publish.max() < 6_000, "{}", publish.max());
        assert_eq!(snapshot.timings.of(Measure::Serve).len(), 0);
        assert_eq!(snapshot.core_timings[0].of(Measure::Landing).len(), 1);
        assert_eq!(snapshot.core_timings[1].of(Measure::Publish).len(), 3);
    }

    #[test]
    fn a_clock_behind_the_records_counts_as_no_lag_and_is_told_apart() {
        let core = CoreCounters::default();
        let now = Duration::from_millis(10_000);
        core.record_lag(Some(9_990), now);
        core.record_lag(Some(10_400), now);
        core.record_lag(None, now);
        core.record_lag(Some(-1), now);
        let (lag, counts) = (core.lag.read(), core.counts());
        assert_eq!((lag.len(), lag.min()), (2, 0));
        assert!(lag.max().abs_diff(10_000_000) < 200_000, "10 ms: {}", lag.max());
        assert_eq!((counts.lags_negative, counts.lags_unknown), (1, 2));
    }

    #[test]
    fn each_measure_reads_its_own_histogram() {
        for measure in Measure::ALL {
            let core = CoreCounters::default();
            core.timing(measure).record(Duration::from_micros(1));
            let timings = core.timings();
            for other in Measure::ALL {
                let expected = u64::from(other == measure);
                assert_eq!(timings.of(other).len(), expected, "{measure:?} in {other:?}");
            }
        }
    }
}
