//! The fetch driver of one core: glues lanes and cursors to ring operations.

use std::sync::Arc;
use std::time::Instant;

use storage::Log;

use crate::core_loop::CoreContext;
use crate::handle::{Assignment, CoreId, LaneSpec, LinkId, LinkSettings, Resume};
use crate::partition::Partition;
use crate::ring::Outcome;

/// Takes a log that leaves its core.
pub(crate) type Taken = Box<dyn FnOnce(Option<Log>) + Send>;

/// All links, lanes and cursors of one core.
pub(crate) struct FetchDriver {}

impl FetchDriver {
    /// A driver without links.
    pub(crate) fn new(_core: CoreId) -> Self {
        todo!()
    }

    /// Takes a finished operation of token role `Fetch`.
    pub(crate) fn completed(
        &mut self,
        _core: &mut CoreContext<'_>,
        _slot: u32,
        _kind: u8,
        _outcome: Outcome,
    ) {
        todo!()
    }

    /// Runs once a turn, after the completions and commands of the turn: sends what is due and
    /// checks deadlines. Returns when it wants to run again at the latest.
    pub(crate) fn turn(&mut self, _core: &mut CoreContext<'_>) -> Option<Instant> {
        todo!()
    }

    /// Stops: cancels, closes sockets and logs. Called every turn until it returns true, which says
    /// that nothing is in flight and every log is closed.
    pub(crate) fn shutdown(&mut self, _core: &mut CoreContext<'_>) -> bool {
        todo!()
    }

    /// Makes a link known or changes its settings.
    pub(crate) fn set_link(
        &mut self,
        _core: &mut CoreContext<'_>,
        _link: LinkId,
        _settings: LinkSettings,
    ) {
        todo!()
    }

    /// Takes over a connected lane.
    pub(crate) fn add_lane(&mut self, _core: &mut CoreContext<'_>, _lane: LaneSpec) {
        todo!()
    }

    /// Takes over a partition and its log.
    pub(crate) fn assign(&mut self, _core: &mut CoreContext<'_>, _assignment: Assignment) {
        todo!()
    }

    /// Sends a parked cursor on.
    pub(crate) fn resume(
        &mut self,
        _core: &mut CoreContext<'_>,
        _partition: &Arc<Partition>,
        _resume: Resume,
    ) {
        todo!()
    }

    /// Parks a cursor: no new request, and none of a late answer is stored.
    pub(crate) fn park(&mut self, _core: &mut CoreContext<'_>, _partition: &Arc<Partition>) {
        todo!()
    }

    /// Gives a partition's log back once no operation writes into it; `None` when it is not here.
    pub(crate) fn take(
        &mut self,
        _core: &mut CoreContext<'_>,
        _partition: &Arc<Partition>,
        _taken: Taken,
    ) {
        todo!()
    }
}
