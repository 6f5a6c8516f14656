//! How far a transfer was at what time, and what follows from it: rate, plateau, time until at speed.

use std::time::Duration;

use crate::run::Series;

/// A rate is taken over this long, so that answers of a few megabytes do not show as steps.
const WINDOW_NS: u64 = 500_000_000;
/// At speed is at this share of the plateau.
const AT_SPEED: f64 = 0.9;
/// One value of the series for each such stretch.
const STRETCH_NS: u64 = 100_000_000;

/// Bytes that had arrived, over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// When the source gave its first byte, on the clock that processes share.
    first_ns: u64,
    /// Nanoseconds since then, and bytes; rising.
    points: Vec<(u64, u64)>,
}

impl Progress {
    /// From the source's first byte on.
    pub(super) fn begin(first_ns: u64) -> Self {
        Self { first_ns, points: vec![(0, 0)] }
    }

    /// Notes how much had arrived at a time.
    pub(super) fn note(&mut self, at_ns: u64, bytes: u64) {
        let (last_at, last_bytes) = self.points.last().copied().unwrap_or_default();
        let since = at_ns.saturating_sub(self.first_ns);
        if since > last_at {
            self.points.push((since, bytes.max(last_bytes)));
        }
    }

    /// From the source's first byte to the last note.
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.points.last().map_or(0, |point| point.0))
    }

    /// Bytes at the last note.
    pub(super) fn bytes(&self) -> u64 {
        self.points.last().map_or(0, |point| point.1)
    }

    /// Bytes a second over all of it.
    pub(super) fn mean(&self) -> f64 {
        self.bytes() as f64 / self.time().as_secs_f64().max(1e-9)
    }

    /// Bytes a second over the second half: what it settled at. The mean, when it took less than two windows.
    pub(super) fn plateau(&self) -> f64 {
        let end = self.points.last().map_or(0, |point| point.0);
        if end < 2 * WINDOW_NS {
            return self.mean();
        }
        (self.bytes() as f64 - self.at(end / 2)) / ((end - end / 2) as f64 / 1e9)
    }

    /// From the first byte until a window first has nine tenths of the plateau; the whole time if none has.
    pub(super) fn time_to_speed(&self) -> Duration {
        let wanted = self.plateau() * AT_SPEED;
        let reached = self.windows().into_iter().find(|(_, rate)| *rate >= wanted);
        reached.map_or_else(|| self.time(), |(end, _)| Duration::from_nanos(end))
    }

    /// Throughput over time.
    pub(super) fn series(&self) -> Series {
        let end = self.points.last().map_or(0, |point| point.0);
        let stretches = 0..end / STRETCH_NS;
        let points = stretches.map(|stretch| {
            let (from, to) = (stretch * STRETCH_NS, (stretch + 1) * STRETCH_NS);
            let rate = (self.at(to) - self.at(from)) / (STRETCH_NS as f64 / 1e9);
            (to as f64 / 1e9, rate / 1e6)
        });
        Series { name: "throughput".to_owned(), unit: "MB/s".to_owned(), points: points.collect() }
    }

    /// The end and the rate of each window, a stretch apart.
    fn windows(&self) -> Vec<(u64, f64)> {
        let end = self.points.last().map_or(0, |point| point.0);
        let mut windows = Vec::new();
        let mut to = WINDOW_NS;
        while to <= end {
            let bytes = self.at(to) - self.at(to - WINDOW_NS);
            windows.push((to, bytes / (WINDOW_NS as f64 / 1e9)));
            to += STRETCH_NS;
        }
        windows
    }

    /// Bytes at a time, on the straight line between the notes around it.
    fn at(&self, since_ns: u64) -> f64 {
        let behind = self.points.partition_point(|point| point.0 < since_ns);
        match (behind.checked_sub(1).and_then(|i| self.points.get(i)), self.points.get(behind)) {
            (Some(&(t0, b0)), Some(&(t1, b1))) => {
                let share = (since_ns - t0) as f64 / (t1 - t0) as f64;
                b0 as f64 + (b1 - b0) as f64 * share
            }
            (None, Some(&(_, bytes))) | (Some(&(_, bytes)), None) => bytes as f64,
            (None, None) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes every 20 ms of a rate in MB/s as a function of the second.
    fn transfer(seconds: f64, rate: impl Fn(f64) -> f64) -> Progress {
        let mut progress = Progress::begin(1_000);
        let mut bytes = 0.0;
        for step in 1..=(seconds / 0.02) as u64 {
            bytes += rate(step as f64 * 0.02) * 1e6 * 0.02;
            progress.note(1_000 + step * 20_000_000, bytes as u64);
        }
        progress
    }

    #[test]
    fn a_steady_transfer_is_at_speed_with_its_first_window() {
        let steady = transfer(5.0, |_| 100.0);
        assert!((steady.mean() / 1e8 - 1.0).abs() < 0.01);
        assert!((steady.plateau() / 1e8 - 1.0).abs() < 0.01);
        assert_eq!(steady.time_to_speed(), Duration::from_millis(500));
        let series = steady.series();
        assert_eq!(series.points.len(), 50);
        assert!(series.points.iter().all(|point| (point.1 - 100.0).abs() < 1.0), "{series:?}");
    }

    #[test]
    fn a_ramp_is_at_speed_when_it_nears_its_later_plateau() {
        let ramp = transfer(10.0, |second| (second * 50.0).min(100.0));
        assert!((ramp.plateau() / 1e8 - 1.0).abs() < 0.01);
        let seconds = ramp.time_to_speed().as_secs_f64();
        assert!((2.0..2.3).contains(&seconds), "{seconds}");
        assert!(ramp.mean() < 0.95e8);
    }

    #[test]
    fn a_transfer_that_stands_still_at_times_settles_at_its_mean() {
        let bursts = transfer(10.0, |second| if second % 1.0 < 0.5 { 80.0 } else { 0.0 });
        assert!((bursts.plateau() / 4e7 - 1.0).abs() < 0.05, "{}", bursts.plateau());
    }

    #[test]
    fn what_is_shorter_than_a_window_has_its_mean() {
        let short = transfer(0.3, |_| 10.0);
        assert_eq!(short.plateau(), short.mean());
        assert_eq!(short.time_to_speed(), short.time());
        let nothing = Progress::begin(5);
        assert_eq!((nothing.bytes(), nothing.mean(), nothing.plateau()), (0, 0.0, 0.0));
    }
}
