//! Consumer groups: the classic protocol, and offsets in our own `__consumer_offsets`.
//!
//! Owns group membership, committed offsets and the log they are kept in. The protocol itself is a
//! state machine without sockets and clock (`classic`); `coordinator` gives it both, from the
//! control plane's tokio threads and one timer thread; `offsets` is written and flushed by one
//! thread of its own. Must never acknowledge an offset that is not durable, never treat a lost
//! connection as a member that left, and never keep more than the named maxima.

mod classic;
mod commits;
mod coordinator;
mod listing;
mod offsets;
mod persisted;
mod settings;
mod subscription;

pub(crate) use classic::{JoinAnswer, JoinRequest, MemberIdentity, SyncRequest};
pub(crate) use commits::{CommitOffset, CommitRequest};
pub(crate) use coordinator::Groups;
pub(crate) use offsets::{Committed, OFFSETS_PARTITIONS, OFFSETS_TOPIC, OffsetStore, TopicOffsets};
pub(crate) use settings::GroupSettings;
