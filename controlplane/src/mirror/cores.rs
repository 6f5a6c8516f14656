//! The cores as a mirror sees them.

use std::sync::Arc;

use dataplane::{Assignment, CoreId, Dataplane, LaneSpec, LinkId, LinkSettings, Partition, Resume};
use storage::Log;

/// Gets a log back from its core, on the core's thread: it must not block.
pub type Taken = Box<dyn FnOnce(Option<Log>) + Send>;

/// What a mirror asks of the cores; commands to one core are carried out in order.
pub trait Cores: Send + Sync + std::fmt::Debug {
    /// Cores that run cursors.
    fn fetch_cores(&self) -> Vec<CoreId>;
    /// See [`Dataplane::set_link`].
    fn set_link(&self, core: CoreId, link: LinkId, settings: LinkSettings);
    /// See [`Dataplane::add_lane`].
    fn add_lane(&self, core: CoreId, lane: LaneSpec);
    /// See [`Dataplane::assign`].
    fn assign(&self, core: CoreId, assignment: Assignment);
    /// See [`Dataplane::resume`].
    fn resume(&self, core: CoreId, partition: Arc<Partition>, resume: Resume);
    /// See [`Dataplane::park`].
    fn park(&self, core: CoreId, partition: Arc<Partition>);
    /// See [`Dataplane::take`].
    fn take(&self, core: CoreId, partition: Arc<Partition>, taken: Taken);
}

impl Cores for Dataplane {
    fn fetch_cores(&self) -> Vec<CoreId> {
        self.fetch_cores()
    }

    fn set_link(&self, core: CoreId, link: LinkId, settings: LinkSettings) {
        self.set_link(core, link, settings);
    }

    fn add_lane(&self, core: CoreId, lane: LaneSpec) {
        self.add_lane(core, lane);
    }

    fn assign(&self, core: CoreId, assignment: Assignment) {
        self.assign(core, assignment);
    }

    fn resume(&self, core: CoreId, partition: Arc<Partition>, resume: Resume) {
        self.resume(core, partition, resume);
    }

    fn park(&self, core: CoreId, partition: Arc<Partition>) {
        self.park(core, partition);
    }

    fn take(&self, core: CoreId, partition: Arc<Partition>, taken: Taken) {
        self.take(core, partition, taken);
    }
}
