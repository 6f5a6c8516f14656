//! The cold API: every request that the cores pass on, one file for each API key.
//!
//! Owns the answers about the node, its topics, its groups and its mirrors, and the refusal of
//! every write. Runs on the control plane's tokio threads. Must never block one: what waits for a
//! disk or for other members of a group is awaited. Must never trust a count from a client, and
//! never change a mirrored topic.

mod api;
mod api_versions;
mod call;
mod create_cluster_mirror;
mod describe_cluster_mirrors;
mod dispatch;
mod errors;
mod find_coordinator;
pub mod kip1279;
mod list_cluster_mirrors;
mod metadata;
mod node;
mod start_mirror_topics;

pub use api::{ColdApi, ColdApiError, PublishedHook};
pub use errors::{KafkaError, Remedy};
pub use node::NodeIdentity;
