//! Random draws that can be repeated: which packets of a sequence are picked, for loss and for lateness.
//!
//! Owns its generator. A draw depends on the seed and on how many packets came before, never on time, so that the same
//! seed picks the same packets. Runs on the lane's thread; must never cost a draw for each packet, only for each run.

use super::settings::Loss;

/// A small generator (SplitMix64): good enough for draws, and one addition and two multiplications.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Above 0, to 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// From 0 to `bound`, both included.
    pub(super) fn up_to(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * (u128::from(bound) + 1)) >> 64) as u64
    }

    /// How often something of chance `share` fails to happen before it happens first.
    fn failures_before(&mut self, share: f64) -> u64 {
        if share >= 1.0 {
            return 0;
        }
        // A cast from a large or infinite float stops at the largest integer.
        (self.unit().ln() / (-share).ln_1p()) as u64
    }
}

/// Picks packets of a sequence, in alternating runs of left and picked ones.
#[derive(Debug, Clone)]
pub(super) struct Picks {
    random: Random,
    pattern: Pattern,
    left: u64,
    picked: u64,
}

#[derive(Debug, Clone, Copy)]
enum Pattern {
    Nothing,
    /// Each with this chance.
    Single(f64),
    /// The chance of a run's start after each packet, and that of its end.
    Runs {
        start: f64,
        end: f64,
    },
}

impl Picks {
    pub(super) fn of_loss(loss: Loss, seed: u64) -> Self {
        let pattern = match loss {
            Loss::None => Pattern::Nothing,
            Loss::Random { share } => Pattern::Single(share),
            Loss::Burst { share, mean_length } => {
                let end = 1.0 / mean_length;
                Pattern::Runs { start: (end * share / (1.0 - share)).min(1.0), end }
            }
        };
        Self::new(pattern, seed)
    }

    pub(super) fn of_share(share: Option<f64>, seed: u64) -> Self {
        Self::new(share.map_or(Pattern::Nothing, Pattern::Single), seed)
    }

    fn new(pattern: Pattern, seed: u64) -> Self {
        let mut picks = Self { random: Random::new(seed), pattern, left: 0, picked: 0 };
        picks.draw();
        picks
    }

    /// The next packets with the same fate, at most `most` (at least 1) of them: whether they are picked, and how many.
    pub(super) fn take(&mut self, most: u64) -> (bool, u64) {
        if self.left == 0 && self.picked == 0 {
            self.draw();
        }
        let (picked, run) =
            if self.left > 0 { (false, &mut self.left) } else { (true, &mut self.picked) };
        let count = most.min(*run);
        *run -= count;
        (picked, count)
    }

    /// How many packets are left, then how many are picked.
    fn draw(&mut self) {
        (self.left, self.picked) = match self.pattern {
            Pattern::Nothing => (u64::MAX, 0),
            Pattern::Single(share) => (self.random.failures_before(share), 1),
            Pattern::Runs { start, end } => (
                self.random.failures_before(start).saturating_add(1),
                self.random.failures_before(end).saturating_add(1),
            ),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u64 = 4_000_000;

    /// Share of packets picked, and the mean length of picked runs, taken `step` at a time.
    fn measure(mut picks: Picks, step: u64) -> (f64, f64, Vec<u64>) {
        let (mut seen, mut picked, mut runs, mut in_run) = (0, 0, 0, false);
        let mut places = Vec::new();
        while seen < PACKETS {
            let (is_picked, count) = picks.take(step.min(PACKETS - seen));
            assert!(count > 0 && count <= step);
            if is_picked {
                picked += count;
                runs += u64::from(!in_run);
                places.extend(seen..seen + count);
            }
            in_run = is_picked;
            seen += count;
        }
        (picked as f64 / PACKETS as f64, picked as f64 / (runs as f64).max(1.0), places)
    }

    #[test]
    fn a_random_loss_has_its_share() {
        for share in [0.0001, 0.01, 0.3] {
            let (measured, _, _) = measure(Picks::of_loss(Loss::Random { share }, 7), 45);
            // Four standard deviations.
            let allowed = 4.0 * (share * (1.0 - share) / PACKETS as f64).sqrt();
            assert!((measured - share).abs() < allowed, "{share}: {measured}");
        }
        assert_eq!(measure(Picks::of_loss(Loss::Random { share: 1.0 }, 7), 45).0, 1.0);
        assert_eq!(measure(Picks::of_loss(Loss::None, 7), 45).0, 0.0);
    }

    #[test]
    fn bursts_have_their_share_and_their_length() {
        for (share, mean_length) in [(0.02, 10.0), (0.001, 3.0), (0.2, 1.0)] {
            let (measured, length, _) =
                measure(Picks::of_loss(Loss::Burst { share, mean_length }, 11), 45);
            assert!((measured / share - 1.0).abs() < 0.1, "{share}: {measured}");
            assert!((length / mean_length - 1.0).abs() < 0.1, "{mean_length}: {length}");
        }
    }

    #[test]
    fn the_same_seed_picks_the_same_packets_however_they_come() {
        let loss = Loss::Burst { share: 0.01, mean_length: 4.0 };
        let one_by_one = measure(Picks::of_loss(loss, 5), 1).2;
        assert_eq!(one_by_one, measure(Picks::of_loss(loss, 5), 45).2);
        assert_ne!(one_by_one, measure(Picks::of_loss(loss, 6), 45).2);
    }

    #[test]
    fn draws_stay_within_their_bound() {
        let mut random = Random::new(3);
        let draws: Vec<u64> = (0..1000).map(|_| random.up_to(3)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&0), Some(&3)));
        assert_eq!(random.up_to(0), 0);
    }
}
