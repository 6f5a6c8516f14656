//! The data plane: pinned threads, one io_uring each.
//!
//! A core pulls partitions from source brokers ([`fetch`]), lands them in their logs, and serves
//! published logs to consumers ([`serve`]). Everything that needs a name resolved, a password, a
//! decision or a store belongs to the control plane, which talks to the cores through
//! [`Dataplane`] and hears from them through [`EventSink`].
//!
//! What must hold:
//! - a partition's log is written by exactly one core; every core reads what it published;
//! - protocol state machines take bytes and time as arguments and do no input or output;
//! - no queue, buffer, retry or count from the wire is unbounded;
//! - all `unsafe` of the crate is in [`ring`].

mod core_loop;
mod cores;
pub mod counters;
pub mod fetch;
mod handle;
mod listener;
mod mailbox;
mod partition;
pub mod ring;
pub mod serve;
pub mod wire;

pub use handle::{
    Advertised, Assignment, BrokerId, ColdRequest, ConnectionId, CoreConfig, CoreId, CursorFault,
    Dataplane, DataplaneConfig, Event, EventSink, FaultReport, LaneClosed, LaneId, LaneKind,
    LaneSpec, LeaderHint, LinkId, LinkSettings, LogRepair, Reply, Resume, StartError,
};
pub use partition::{MirrorInfo, Partition, PartitionState, PartitionTable, Progress};
