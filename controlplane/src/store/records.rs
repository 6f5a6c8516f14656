//! The records, as they are kept: JSON, so that an old node's file can be read by a newer one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use storage::TopicPartition;

/// A mirror as the operator created it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorRecord {
    /// Name.
    pub name: String,
    /// The configuration as it was given.
    pub config: BTreeMap<String, String>,
    /// The source's cluster id, pinned at creation.
    pub source_cluster_id: String,
    /// Patterns given to `start`, for discovery.
    #[serde(default)]
    pub include: Vec<String>,
    /// Names and patterns excluded at `start`.
    #[serde(default)]
    pub exclude: Vec<String>,
}

/// A topic that is mirrored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    /// Name, here and at the source.
    pub name: String,
    /// The mirror it belongs to.
    pub mirror: String,
    /// The topic id in Kafka's form: the source's, or our own where the source has none.
    pub id: String,
    /// Whether `id` is the source's.
    pub source_has_id: bool,
    /// Whether the operator named it; a discovered topic is `false`.
    pub named: bool,
    /// Partitions known.
    pub partitions: i32,
    /// Why the topic as a whole stopped for good (deleted, recreated).
    #[serde(default)]
    pub fault: Option<StoredFault>,
}

/// What must survive of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    /// The highest leader epoch the source confirmed, written before it is advertised.
    pub epoch: i32,
    /// Why it stopped for good, if it did.
    #[serde(default)]
    pub fault: Option<StoredFault>,
    /// Gaps: times the source deleted records before they were copied.
    #[serde(default)]
    pub gaps: u32,
    /// Offsets inside those gaps.
    #[serde(default)]
    pub gap_offsets: i64,
    /// Offsets dropped by accepted divergences.
    #[serde(default)]
    pub dropped_offsets: i64,
    /// The last of these in words: shown as long as nothing worse is.
    #[serde(default)]
    pub note: Option<String>,
}

/// A fault that only an operator can end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFault {
    /// In words.
    pub message: String,
    /// Unix milliseconds.
    pub since_ms: i64,
}

/// Kinds of history entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The source deleted records before they were copied.
    Gap,
    /// Records were dropped because an operator accepts divergence.
    Truncated,
    /// A partition stopped for good.
    Failed,
    /// A partition that had stopped for good was started again.
    Restarted,
}

/// One entry of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Unix milliseconds.
    pub at_ms: i64,
    /// What.
    pub kind: EventKind,
    /// Whose.
    pub mirror: String,
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// In words.
    pub text: String,
}

/// One write.
#[derive(Clone, Debug)]
pub enum Change {
    /// This node's own cluster id.
    ClusterId(String),
    /// A mirror.
    Mirror(MirrorRecord),
    /// A topic.
    Topic(TopicRecord),
    /// A partition.
    Partition(TopicPartition, PartitionRecord),
    /// History.
    Event(EventRecord),
}

/// Everything at start.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// This node's own cluster id.
    pub cluster_id: Option<String>,
    /// Mirrors by name.
    pub mirrors: Vec<MirrorRecord>,
    /// Topics by name.
    pub topics: Vec<TopicRecord>,
    /// Partitions by topic and index.
    pub partitions: Vec<(Arc<str>, i32, PartitionRecord)>,
    /// History, oldest first.
    pub events: Vec<EventRecord>,
}
