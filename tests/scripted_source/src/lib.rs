//! A stand-in source cluster for tests: it speaks enough of Kafka for a mirror, and a test tells it
//! what to say.
//!
//! Owns a few listening sockets on loopback and a thread for each connection; ends when dropped.
//! Requests and responses go through `kafka-protocol`, not through the codec under test. What it
//! is not told otherwise it does as a broker would: sessions, long polls, size limits with a
//! truncated last batch, epoch checks, hints at the leader. It must never be used against a
//! peer that is not a test's own: it trusts what it reads.
//!
//! One file for each API key in `api`, each opening with what it supports.

#![expect(clippy::expect_used, reason = "a test that cannot set up what it needs has failed")]

mod api;
mod batch;
mod broker;
mod call;
mod cluster;
mod log;

pub use batch::{Batch, Marker, damaged, legacy_message_set};
pub use call::{Call, Reply, Request, Response};
pub use cluster::ScriptedCluster;
pub use log::{PartitionLog, Topic};

/// Keys of the APIs it speaks.
pub mod keys {
    pub use crate::api::api_versions::KEY as API_VERSIONS;
    pub use crate::api::describe_cluster::KEY as DESCRIBE_CLUSTER;
    pub use crate::api::fetch::KEY as FETCH;
    pub use crate::api::list_offsets::KEY as LIST_OFFSETS;
    pub use crate::api::metadata::KEY as METADATA;
    pub use crate::api::offset_for_leader_epoch::KEY as OFFSET_FOR_LEADER_EPOCH;
}
