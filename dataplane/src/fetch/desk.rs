//! What the lanes of a core share: cursors, links, and what is to be told to others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cursor::{Cursor, CursorKey, Cursors};
use super::link::Link;
use crate::handle::{CursorFault, Event, FaultReport, LinkId};
use crate::partition::Partition;

/// The time of a step, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// For deadlines.
    pub(super) now: Instant,
    /// For people: milliseconds since 1970.
    pub(super) unix_ms: i64,
}

/// The shared state of one core's lanes, and their outbox.
#[derive(Default)]
pub(super) struct Desk {
    /// Cursors.
    pub(super) cursors: Cursors,
    /// Links.
    pub(super) links: HashMap<LinkId, Link>,
    /// For the control plane, in order.
    pub(super) events: Vec<Event>,
    /// Partitions with something new to read.
    pub(super) published: Vec<Arc<Partition>>,
    /// Cursors that need a lane.
    pub(super) homeless: Vec<CursorKey>,
    /// Cursors the kernel has let go of, with commands waiting.
    pub(super) unblocked: Vec<CursorKey>,
    /// Counted since it was last taken.
    pub(super) tally: Tally,
}

/// What lanes counted since their driver last took it.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Requests written.
    pub(super) requests: u64,
    /// Batches published.
    pub(super) batches: u64,
    /// Bytes published.
    pub(super) bytes: u64,
    /// Record bytes received straight into a segment.
    pub(super) bytes_direct: u64,
    /// Record bytes dropped: nobody wanted them any more.
    pub(super) bytes_skipped: u64,
    /// From each request sent to its answer taken; one entry an answer.
    pub(super) round_trips: Vec<Duration>,
    /// When the first bytes came of each answer with records that has ended.
    pub(super) landed_since: Vec<Instant>,
    /// The oldest record time of what was published together, if any is known; one entry for each
    /// receive and partition.
    pub(super) published_times: Vec<Option<i64>>,
}

impl Desk {
    /// Tells of new records in a partition.
    pub(super) fn publish(published: &mut Vec<Arc<Partition>>, cursor: &Cursor) {
        let last = published.last();
        if !last.is_some_and(|last| Arc::ptr_eq(last, &cursor.partition)) {
            published.push(cursor.partition.clone());
        }
    }

    /// Tells of a fault.
    pub(super) fn report(&mut self, partition: Arc<Partition>, fault: CursorFault) {
        self.events.push(Event::Fault(FaultReport { partition, fault }));
    }
}
