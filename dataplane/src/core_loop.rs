//! One core's thread: wait, dispatch completions to the drivers, run them to the end, submit.

use std::sync::Arc;
use std::time::Instant;

use crate::counters::CoreCounters;
use crate::handle::{CoreId, EventSink};
use crate::partition::{Partition, PartitionTable};
use crate::ring::Ring;

/// What a driver may use while it runs.
pub(crate) struct CoreContext<'a> {
    /// This core.
    pub(crate) core: CoreId,
    /// Its ring.
    pub(crate) ring: &'a mut Ring,
    /// The time of this turn.
    pub(crate) now: Instant,
    /// All partitions.
    pub(crate) table: &'a PartitionTable,
    /// The control plane.
    pub(crate) events: &'a dyn EventSink,
    /// This core's counters.
    pub(crate) counters: &'a CoreCounters,
    /// Partitions published in this turn: the loop wakes the waiting cores after the drivers ran.
    pub(crate) published: &'a mut Vec<Arc<Partition>>,
}
