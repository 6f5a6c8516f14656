//! One deadline for each connection of a core. No input or output; time is an argument.
//!
//! An entry may be earlier than what its connection waits for: moving it at every request would
//! cost more than looking once too often. It is never later.

use std::collections::BTreeSet;
use std::time::Instant;

/// Deadlines by time.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, u32)>);

impl Timers {
    /// Makes sure that `slot` comes up at `deadline` or before. `armed` is its entry, kept by the
    /// connection.
    pub(super) fn arm(&mut self, slot: u32, armed: &mut Option<Instant>, deadline: Instant) {
        if armed.is_some_and(|at| at <= deadline) {
            return;
        }
        self.disarm(slot, armed);
        self.0.insert((deadline, slot));
        *armed = Some(deadline);
    }

    /// Removes the entry of `slot`.
    pub(super) fn disarm(&mut self, slot: u32, armed: &mut Option<Instant>) {
        if let Some(at) = armed.take() {
            self.0.remove(&(at, slot));
        }
    }

    /// Takes out a slot whose entry is due; its `armed` must be set to `None`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let (at, slot) = *self.0.first()?;
        if at > now {
            return None;
        }
        self.0.remove(&(at, slot));
        Some(slot)
    }

    /// When the next entry is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_slot_comes_up_at_its_earliest_deadline_and_once() {
        let now = Instant::now();
        let later = |ms| now + Duration::from_millis(ms);
        let mut timers = Timers::default();
        let (mut first, mut second) = (None, None);
        timers.arm(1, &mut first, later(50));
        timers.arm(2, &mut second, later(20));
        timers.arm(1, &mut first, later(10));
        timers.arm(1, &mut first, later(90));
        assert_eq!(timers.next(), Some(later(10)));
        assert_eq!(timers.pop_due(later(9)), None);
        assert_eq!(timers.pop_due(later(20)), Some(1));
        assert_eq!(timers.pop_due(later(20)), Some(2));
        assert_eq!(timers.pop_due(later(99)), None);
        timers.arm(2, &mut None, later(30));
        timers.disarm(2, &mut Some(later(30)));
        assert_eq!(timers.next(), None);
    }
}
