//! Bounds of what consumers may make the node hold, counted over all cores.
//!
//! Shared by every serve core. Never blocks: who finds no room waits in its driver and asks again.
//!
//! Requests being received and unsent answers share one part; parked long polls have a part of
//! their own, so that readers with nothing to read cannot keep others from asking. A receive takes
//! room as bytes arrive, not as announced, and holds what it has while it waits for more. Were all
//! room held that way, nobody could finish: so one receive at a time may go beyond the budget, up to
//! the largest request. Answers are counted when they are made, whatever the room. While there is
//! none, no request is begun but those that hold memory: theirs comes back for the answer's.
//! Records are not copied and so are no memory, but an unsent answer keeps their segments mapped:
//! such slices are counted and bounded in the same way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Slices of segments that unsent answers may keep mapped together. Each may be of another segment;
/// the kernel allows a process 65,530 mappings unless it is told otherwise.
const PINNED_SLICES_MAX: usize = 32 * 1024;
/// Parked long polls may hold this part of the memory: a quarter.
const POLLS_SHARE: usize = 4;

/// The node's memory for consumers.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    max: usize,
    polls_used: AtomicUsize,
    polls_max: usize,
    pinned_slices: AtomicUsize,
    beyond_taken: AtomicBool,
}

impl Budget {
    /// A budget of `memory_max` bytes, all of it free.
    pub(crate) fn new(memory_max: usize) -> Arc<Self> {
        let polls_max = memory_max / POLLS_SHARE;
        Arc::new(Self {
            used: AtomicUsize::new(0),
            max: memory_max - polls_max,
            polls_used: AtomicUsize::new(0),
            polls_max,
            pinned_slices: AtomicUsize::new(0),
            beyond_taken: AtomicBool::new(false),
        })
    }

    /// Whether there is room to begin a request.
    pub(super) fn has_room(&self) -> bool {
        self.used.load(Ordering::Acquire) < self.max
            && self.pinned_slices.load(Ordering::Acquire) < PINNED_SLICES_MAX
    }

    /// An empty charge for a request or an answer.
    pub(super) fn charge(self: &Arc<Self>) -> Charge {
        Charge { budget: self.clone(), bytes: 0, slices: 0, part: Part::Traffic, beyond: false }
    }

    /// Room for a parked long poll, if there is any.
    pub(super) fn park(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        take(&self.polls_used, self.polls_max, bytes).then(|| Charge {
            budget: self.clone(),
            bytes,
            slices: 0,
            part: Part::Polls,
            beyond: false,
        })
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}

fn take(used: &AtomicUsize, max: usize, bytes: usize) -> bool {
    used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
        now.checked_add(bytes).filter(|sum| *sum <= max)
    })
    .is_ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Traffic,
    Polls,
}

/// Bytes of a [`Budget`], given back on drop.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
    slices: usize,
    part: Part,
    beyond: bool,
}

impl Charge {
    /// An empty charge on the same budget.
    pub(super) fn sibling(&self) -> Self {
        self.budget.charge()
    }

    /// Takes `bytes` more, if there is room or this charge may go beyond it.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        if take(&self.budget.used, self.budget.max, bytes) {
            self.bytes += bytes;
            return true;
        }
        self.beyond = self.beyond || !self.budget.beyond_taken.swap(true, Ordering::AcqRel);
        if self.beyond {
            self.grow_beyond(bytes);
        }
        self.beyond
    }

    /// Takes `bytes` more whatever the room: for an answer that was already made.
    pub(super) fn grow_beyond(&mut self, bytes: usize) {
        self.budget.used.fetch_add(bytes, Ordering::AcqRel);
        self.bytes += bytes;
    }

    /// Counts slices that an answer keeps mapped until it is sent.
    pub(super) fn pin(&mut self, slices: usize) {
        self.budget.pinned_slices.fetch_add(slices, Ordering::AcqRel);
        self.slices += slices;
    }

    /// Whether this charge is the one that went beyond the budget.
    pub(super) fn is_beyond(&self) -> bool {
        self.beyond
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let used = match self.part {
            Part::Traffic => &self.budget.used,
            Part::Polls => &self.budget.polls_used,
        };
        used.fetch_sub(self.bytes, Ordering::AcqRel);
        self.budget.pinned_slices.fetch_sub(self.slices, Ordering::AcqRel);
        if self.beyond {
            self.budget.beyond_taken.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_charge_at_a_time_goes_beyond_the_budget() {
        let budget = Budget::new(1000);
        let mut first = budget.charge();
        let mut second = budget.charge();
        assert!(first.grow(700));
        assert!(second.grow(100), "beyond 750, as the first to do so");
        assert!(second.is_beyond());
        assert!(!first.grow(100), "somebody else is beyond");
        assert!(!budget.has_room());
        drop(second);
        assert!(first.grow(100), "now it may");
        drop(first);
        assert_eq!(budget.used(), 0);
        assert!(budget.has_room());
    }

    #[test]
    fn no_request_begins_while_too_many_slices_are_mapped() {
        let budget = Budget::new(1000);
        let mut answers = [budget.charge(), budget.charge()];
        answers[0].pin(PINNED_SLICES_MAX - 1);
        assert!(budget.has_room());
        answers[1].pin(1);
        assert!(!budget.has_room());
        drop(answers);
        assert!(budget.has_room());
    }

    #[test]
    fn parked_polls_leave_room_for_requests() {
        let budget = Budget::new(1000);
        let parked = budget.park(250).expect("a quarter is theirs");
        assert!(budget.park(1).is_none());
        assert!(budget.charge().grow(750));
        drop(parked);
        assert!(budget.park(250).is_some());
    }
}
