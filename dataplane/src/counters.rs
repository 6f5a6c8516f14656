//! Counters and histograms of a core, merged on read.
//!
//! Each core owns one [`CoreCounters`] and is the only one to write it, so nothing here is contended:
//! counters are relaxed atomics on cache lines of their own, and a timing takes a lock that only a
//! reader of metrics ever holds besides. Nothing here may be called per record.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::handle::CoreId;

/// Longest time told apart; longer ones are recorded as this.
const TIMING_NANOS_MAX: u64 = 600_000_000_000;
/// Two digits keep a histogram near 35 KB, which a thousand of them can afford.
const TIMING_DIGITS: u8 = 2;

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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(nanos);
    }

    fn add_to(&self, total: &mut Histogram<u64>) {
        // Both have the same bounds, so nothing can be out of range.
        let _ = total.add(&*self.0.lock().unwrap_or_else(PoisonError::into_inner));
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
    /// From an answer's first byte to its last batch published.
    pub landing: Timing,
    /// From a consumer's request read to its answer sent, long polls left out.
    pub serve: Timing,
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
        }
    }
}

/// All cores' counters, read once.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// All cores together.
    pub total: Counts,
    /// Each core.
    pub cores: Vec<(CoreId, Counts)>,
    /// Fetch round trips of all cores, in nanoseconds.
    pub fetch_round_trip: Histogram<u64>,
    /// Landing times of all cores, in nanoseconds.
    pub landing: Histogram<u64>,
    /// Serve times of all cores, in nanoseconds.
    pub serve: Histogram<u64>,
}

impl Snapshot {
    /// Reads and merges.
    pub fn read<'a>(cores: impl IntoIterator<Item = (CoreId, &'a CoreCounters)>) -> Self {
        let mut snapshot = Self {
            total: Counts::default(),
            cores: Vec::new(),
            fetch_round_trip: empty_histogram(),
            landing: empty_histogram(),
            serve: empty_histogram(),
        };
        for (core, counters) in cores {
            let counts = counters.counts();
            snapshot.total.add(&counts);
            snapshot.cores.push((core, counts));
            counters.fetch_round_trip.add_to(&mut snapshot.fetch_round_trip);
            counters.landing.add_to(&mut snapshot.landing);
            counters.serve.add_to(&mut snapshot.serve);
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
        cores[1].landing.record(Duration::from_secs(3600));
        let snapshot =
            Snapshot::read(cores.iter().enumerate().map(|(core, c)| (CoreId(core as u16), c)));
        assert_eq!(snapshot.total.landed_bytes, 42);
        assert_eq!(snapshot.cores[1].1.landed_bytes, 32);
        assert_eq!(snapshot.landing.len(), 2);
        assert!(snapshot.landing.max() >= TIMING_NANOS_MAX, "a long time is kept as the longest");
        assert_eq!(snapshot.serve.len(), 0);
    }
}
