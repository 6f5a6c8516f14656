//! How long to wait before trying again.

use std::time::Duration;

/// Doubling from a first delay up to a cap, each spread by a fifth either way so that thousands of
/// partitions that failed together do not come back together.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    initial: Duration,
    max: Duration,
    noise: u64,
}

impl Backoff {
    /// `seed` sets the jitter's sequence.
    pub(super) fn new(initial: Duration, max: Duration, seed: u64) -> Self {
        Self { initial: initial.min(max), max, noise: seed }
    }

    /// The delay before attempt number `attempt`, counted from 1, and never above `cap`.
    pub(super) fn delay(&mut self, attempt: i16, cap: Duration) -> Duration {
        // 2^20 times any sensible first delay is beyond every cap.
        let doublings = u32::from(attempt.max(1).unsigned_abs() - 1).min(20);
        let plain = self.initial.saturating_mul(1 << doublings).min(self.max).min(cap);
        plain.mul_f64(0.8 + 0.4 * self.unit())
    }

    /// A number from 0 to 1 (splitmix64).
    fn unit(&mut self) -> f64 {
        self.noise = self.noise.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.noise;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_within_a_fifth() {
        let max = Duration::from_secs(300);
        let mut backoff = Backoff::new(Duration::from_millis(100), max, 7);
        for (attempt, expected_ms) in [
            (0, 100.0),
            (1, 100.0),
            (2, 200.0),
            (5, 1600.0),
            (13, 300_000.0),
            (i16::MAX, 300_000.0),
        ] {
            for _ in 0..50 {
                let ms = backoff.delay(attempt, max).as_secs_f64() * 1000.0;
                assert!((0.8 * expected_ms..=1.2 * expected_ms).contains(&ms), "{attempt}: {ms}");
            }
        }
        let capped = backoff.delay(20, Duration::from_secs(30));
        assert!(capped <= Duration::from_secs(36), "{capped:?}");
    }

    #[test]
    fn two_partitions_do_not_wait_alike() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(9), 1);
        let max = Duration::from_secs(9);
        assert_ne!(backoff.delay(1, max), backoff.delay(1, max));
    }
}
