//! The mirror operations that the admin API offers (KIP-1279's RPCs 94, 95, 98 and 99).

/// A refusal: a Kafka error code (KIP-1279's numbers included) and a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AdminError {
    /// Kafka error code.
    pub code: i16,
    /// For the operator.
    pub message: String,
}

impl AdminError {
    /// A refusal.
    pub fn new(code: i16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The codes of refusals. From 134 on they are KIP-1279's, which upstream may still renumber.
pub mod codes {
    /// Something of ours failed.
    pub const UNKNOWN_SERVER_ERROR: i16 = -1;
    /// The source cannot be reached.
    pub const NETWORK_EXCEPTION: i16 = 13;
    /// Not a topic that can be mirrored.
    pub const INVALID_TOPIC: i16 = 17;
    /// The node has a topic of that name.
    pub const TOPIC_ALREADY_EXISTS: i16 = 36;
    /// The mirror's configuration.
    pub const INVALID_CONFIG: i16 = 40;
    /// The request itself.
    pub const INVALID_REQUEST: i16 = 42;
    /// The metadata store failed.
    pub const KAFKA_STORAGE_ERROR: i16 = 56;
    /// The topic was recreated at the source.
    pub const INCONSISTENT_TOPIC_ID: i16 = 103;
    /// A mirror of that name exists.
    pub const CLUSTER_MIRROR_ALREADY_EXISTS: i16 = 136;
    /// No mirror of that name.
    pub const UNKNOWN_CLUSTER_MIRROR: i16 = 137;
    /// Another mirror has the topic.
    pub const TOPIC_ALREADY_IN_CLUSTER_MIRROR: i16 = 138;
}

/// One mirror as `list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorListing {
    /// Mirror name.
    pub name: String,
    /// Its `bootstrap.servers`.
    pub source_bootstrap: String,
    /// The source's cluster id, as pinned at creation.
    pub source_cluster_id: String,
    /// Mirrored topics.
    pub topics: Vec<String>,
}

/// One mirror as `describe` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorDescription {
    /// Mirror name.
    pub name: String,
    /// Its `bootstrap.servers`.
    pub source_bootstrap: String,
    /// The source's cluster id, as pinned at creation.
    pub source_cluster_id: String,
    /// What is wrong with the mirror as a whole (source unreachable, other cluster), if anything.
    pub error_message: Option<String>,
    /// Its partitions, by topic then index.
    pub partitions: Vec<PartitionDescription>,
}

/// One mirrored partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDescription {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// KIP-1279's state word, e.g. `MIRRORING`.
    pub state: &'static str,
    /// Why it is FAILED, or what it waits for.
    pub error_message: Option<String>,
    /// Attempts since the last success.
    pub retry_attempt: i16,
    /// The source's end offset; `None` while unknown (P6: never a made-up number).
    pub source_offset: Option<i64>,
    /// Our end offset.
    pub destination_offset: i64,
    /// Epoch of our last batch, -1 for none.
    pub last_mirror_epoch: i32,
    /// Our end offset when mirroring last stopped, -1 while it runs.
    pub last_mirror_offset: i64,
}

/// A topic's outcome in a start request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicResult {
    /// Topic name.
    pub topic: String,
    /// The refusal, if any.
    pub error: Option<AdminError>,
}
