//! How many descriptors and mappings the logs of a node may hold together.
//!
//! Counts what is alive and lets go of what was used longest ago. Any thread may call it. It must
//! never wait for I/O and never hold its list while it takes a segment's own lock for long: a
//! segment only closes files and unmaps in it.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::segment::Segment;

/// The node-wide budget. Shared by all logs.
#[derive(Debug)]
pub(crate) struct Budget {
    descriptors_max: usize,
    mappings_max: usize,
    descriptors: AtomicUsize,
    mappings: AtomicUsize,
    holders: Mutex<Holders>,
}

/// Segments that hold something, and some that no longer do.
#[derive(Debug)]
struct Holders {
    /// In the order of a clock's hand: a segment used since the hand last passed goes round once
    /// more.
    clock: VecDeque<Weak<Segment>>,
    /// So many segments, and those that hold nothing are forgotten.
    sweep_at: usize,
}

/// Fewer segments are not worth a sweep.
const SWEEP_SEGMENTS_MIN: usize = 1024;

impl Budget {
    pub(crate) fn new(descriptors_max: usize, mappings_max: usize) -> Arc<Self> {
        Arc::new(Self {
            descriptors_max: descriptors_max.max(1),
            mappings_max: mappings_max.max(1),
            descriptors: AtomicUsize::new(0),
            mappings: AtomicUsize::new(0),
            holders: Mutex::new(Holders { clock: VecDeque::new(), sweep_at: SWEEP_SEGMENTS_MIN }),
        })
    }

    /// Descriptors and mappings alive now.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.descriptors.load(Ordering::Relaxed), self.mappings.load(Ordering::Relaxed))
    }

    /// Releases others until one more of each fits, as far as others can be released: what is in
    /// use this moment stays, bounded by the operations in flight.
    pub(crate) fn make_room(&self) {
        let mut steps = self.lock().clock.len().saturating_mul(2);
        while self.is_full() && steps > 0 {
            steps -= 1;
            let Some(holder) = self.lock().clock.pop_front() else { return };
            if let Some(segment) = holder.upgrade()
                && !segment.release_if_unused()
            {
                self.lock().clock.push_back(holder);
            }
        }
    }

    fn is_full(&self) -> bool {
        let (descriptors, mappings) = self.held();
        descriptors >= self.descriptors_max || mappings >= self.mappings_max
    }

    /// Puts a segment that now holds something under the clock's hand.
    pub(crate) fn add_holder(&self, segment: &Arc<Segment>) {
        let mut holders = self.lock();
        if holders.clock.len() >= holders.sweep_at {
            let stays = |holder: &Weak<Segment>| {
                holder.upgrade().is_some_and(|segment| segment.stays_listed())
            };
            holders.clock.retain(stays);
            holders.sweep_at = (holders.clock.len() * 2).max(SWEEP_SEGMENTS_MIN);
        }
        holders.clock.push_back(Arc::downgrade(segment));
    }

    pub(crate) fn mapping_made(&self) {
        self.mappings.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn mapping_dropped(&self) {
        self.mappings.fetch_sub(1, Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open file that counts against the budget.
#[derive(Debug)]
pub(crate) struct CountedFile {
    file: File,
    budget: Arc<Budget>,
}

impl CountedFile {
    pub(crate) fn new(file: File, budget: &Arc<Budget>) -> Self {
        budget.descriptors.fetch_add(1, Ordering::Relaxed);
        Self { file, budget: Arc::clone(budget) }
    }
}

impl Deref for CountedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.budget.descriptors.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Offset;

    #[test]
    fn segments_that_come_and_go_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget::new(100_000, 100_000);
        let lasting = Segment::new(Offset(0), 0);
        File::create(folder.path().join(format!("{:020}.log", 0))).unwrap();
        for number in 0..5 * SWEEP_SEGMENTS_MIN {
            // One that ends, and one that is used, let go and used again.
            let ending = Segment::new(Offset(0), 0);
            ending.log_file(folder.path(), &budget).unwrap();
            lasting.log_file(folder.path(), &budget).unwrap();
            lasting.release();
            let known = budget.lock().clock.len();
            assert!(known <= SWEEP_SEGMENTS_MIN + 1, "{known} after {number}");
        }
        assert_eq!(budget.held(), (0, 0));
    }
}
