//! The serve driver of one core: glues connections to ring operations.

use std::sync::Arc;
use std::time::Instant;

use crate::core_loop::CoreContext;
use crate::handle::{ConnectionId, CoreId, DataplaneConfig, Reply};
use crate::partition::Partition;
use crate::ring::{Outcome, Socket};

/// What all serve cores share: the settings and the budgets counted over all of them.
#[derive(Debug)]
pub(crate) struct ServeShared {
    config: DataplaneConfig,
}

impl ServeShared {
    /// Budgets as configured, nothing used.
    pub(crate) fn new(config: DataplaneConfig) -> Self {
        Self { config }
    }
}

/// All consumers of one core.
pub(crate) struct ServeDriver {
    _core: CoreId,
    _shared: Arc<ServeShared>,
}

impl ServeDriver {
    /// A driver without a listener.
    pub(crate) fn new(core: CoreId, shared: Arc<ServeShared>) -> Self {
        let _ = &shared.config;
        Self { _core: core, _shared: shared }
    }

    /// Starts to accept on this core's own listening socket. An accept operation that ends
    /// (`more` unset) is to be armed again, after a pause when it ended with an error.
    pub(crate) fn listen(&mut self, _core: &mut CoreContext<'_>, _listener: Socket) {
        todo!()
    }

    /// Takes a finished operation of token role `Serve`.
    pub(crate) fn completed(
        &mut self,
        _core: &mut CoreContext<'_>,
        _slot: u32,
        _kind: u8,
        _outcome: Outcome,
    ) {
        todo!()
    }

    /// Runs once a turn, after the completions and commands of the turn: deadlines and what became
    /// due. Returns when it wants to run again at the latest.
    pub(crate) fn turn(&mut self, _core: &mut CoreContext<'_>) -> Option<Instant> {
        todo!()
    }

    /// Stops accepting, then closes connections. Called every turn until it returns true, which
    /// says that nothing is in flight.
    pub(crate) fn shutdown(&mut self, _core: &mut CoreContext<'_>) -> bool {
        todo!()
    }

    /// Takes the control plane's answer to a cold request.
    pub(crate) fn reply(
        &mut self,
        _core: &mut CoreContext<'_>,
        _connection: ConnectionId,
        _reply: Reply,
    ) {
        todo!()
    }

    /// A partition this core waits for (`Partition::wait_on`) was published or deleted.
    pub(crate) fn published(&mut self, _core: &mut CoreContext<'_>, _partition: &Arc<Partition>) {
        todo!()
    }
}
