//! The cold API: every request that the cores pass on, one file for each API key.
//!
//! Owns the answers about the node, its topics, its groups and its mirrors, and the refusal of
//! every write. Runs on the control plane's tokio threads. Must never block one: what waits for a
//! disk or for other members of a group is awaited. Must never trust a count from a client, and
//! never change a mirrored topic.

mod alter_configs;
mod alter_partition_reassignments;
mod api;
mod api_versions;
mod call;
mod create_cluster_mirror;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_acls;
mod describe_cluster;
mod describe_cluster_mirrors;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_topic_partitions;
mod dispatch;
mod elect_leaders;
mod errors;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
pub mod kip1279;
mod leave_group;
mod list_cluster_mirrors;
mod list_groups;
mod list_partition_reassignments;
mod metadata;
mod node;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod refusal;
mod start_mirror_topics;
mod sync_group;

pub use api::{ColdApi, ColdApiError, PublishedHook};
pub use errors::{KafkaError, Remedy};
pub use node::NodeIdentity;

#[cfg(test)]
mod tests;
