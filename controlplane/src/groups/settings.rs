//! Bounds and waits of groups.

use super::classic::Limits;

/// What groups may take, and how long they wait.
#[derive(Debug, Clone)]
pub(crate) struct GroupSettings {
    /// Of each group.
    pub(crate) limits: Limits,
    /// Groups with members; those without give way when there is no room.
    pub(crate) groups_max: usize,
    /// Memory of all groups and their members, in bytes.
    pub(crate) memory_bytes_max: usize,
    /// Committed offsets of all groups, in bytes of memory.
    pub(crate) offsets_bytes_max: usize,
    /// A committed offset's metadata string, in bytes (Kafka `offset.metadata.max.bytes`).
    pub(crate) offset_metadata_bytes_max: usize,
}

impl Default for GroupSettings {
    /// Kafka's defaults where it has any, except for the first wait: half a second instead of
    /// three, because the groups that come here after a failover have a partition assignment to
    /// find again and no caches to warm, and every second of it is one without consumption.
    fn default() -> Self {
        Self {
            limits: Limits {
                session_timeout_min_ms: 6_000,
                session_timeout_max_ms: 30 * 60 * 1000,
                initial_rebalance_delay_ms: 500,
                members_max: 5_000,
                group_bytes_max: 16 * 1024 * 1024,
            },
            groups_max: 100_000,
            memory_bytes_max: 256 * 1024 * 1024,
            offsets_bytes_max: 512 * 1024 * 1024,
            offset_metadata_bytes_max: 4096,
        }
    }
}
