//! When a lane may send again: the source's throttle time and our own pauses after refusals.

use std::time::{Duration, Instant};

/// The longest throttle time honoured in one piece. Brokers ask for seconds (a quota window); a
/// field gone wrong must not silence a lane for weeks. After it the source may throttle again.
pub(super) const THROTTLE_MAX: Duration = Duration::from_secs(600);

/// First pause after a refusal; doubles with each one in a row.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// Longest pause after refusals.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// A gate that opens at a time.
#[derive(Debug, Default)]
pub(super) struct Gate {
    opens_at: Option<Instant>,
}

impl Gate {
    /// Keeps the gate closed for at least `pause` from now.
    pub(super) fn close_for(&mut self, pause: Duration, now: Instant) {
        let until = now + pause;
        self.opens_at = Some(self.opens_at.map_or(until, |at| at.max(until)));
    }

    /// Whether one may pass.
    pub(super) fn is_open(&mut self, now: Instant) -> bool {
        if self.opens_at.is_some_and(|at| at <= now) {
            self.opens_at = None;
        }
        self.opens_at.is_none()
    }

    /// When it opens, if it is closed.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.opens_at
    }
}

/// The throttle time of an answer, bounded; `None` when there is none.
pub(super) fn throttle_time(throttle_time_ms: i32) -> Option<Duration> {
    let millis = u64::try_from(throttle_time_ms).ok().filter(|millis| *millis > 0)?;
    Some(Duration::from_millis(millis).min(THROTTLE_MAX))
}

/// The pause after `failures` refusals in a row; the first is retried at once.
pub(super) fn backoff(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => BACKOFF_FIRST.saturating_mul(1 << (more - 2).min(10)).min(BACKOFF_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_keeps_the_later_of_two_pauses() {
        let now = Instant::now();
        let mut gate = Gate::default();
        gate.close_for(Duration::from_secs(2), now);
        gate.close_for(Duration::from_secs(1), now);
        assert!(!gate.is_open(now + Duration::from_millis(1999)));
        assert!(gate.is_open(now + Duration::from_secs(2)));
        assert_eq!(gate.opens_at(), None);
    }

    #[test]
    fn throttle_time_is_bounded_and_never_negative() {
        assert_eq!(throttle_time(-5), None);
        assert_eq!(throttle_time(0), None);
        assert_eq!(throttle_time(250), Some(Duration::from_millis(250)));
        assert_eq!(throttle_time(i32::MAX), Some(THROTTLE_MAX));
    }

    #[test]
    fn backoff_starts_at_once_and_is_bounded() {
        assert_eq!(backoff(1), Duration::ZERO);
        assert_eq!(backoff(2), BACKOFF_FIRST);
        assert_eq!(backoff(3), BACKOFF_FIRST * 2);
        assert_eq!(backoff(u32::MAX), BACKOFF_MAX);
    }
}
