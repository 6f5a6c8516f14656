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

/// Every mirror of the node. Cheap to clone; all methods may be called from any task.
#[derive(Debug, Clone)]
pub struct Mirrors {}

impl Mirrors {
    /// Checks the configuration against the source and stores the mirror.
    pub async fn create(
        &self,
        _name: &str,
        _config: Vec<(String, Option<String>)>,
    ) -> Result<(), AdminError> {
        todo!()
    }

    /// Starts topics by name or pattern; patterns stay for discovery.
    pub async fn start(
        &self,
        _name: &str,
        _include: Vec<String>,
        _exclude: Vec<String>,
    ) -> Result<Vec<TopicResult>, AdminError> {
        todo!()
    }

    /// All mirrors.
    pub async fn list(&self) -> Vec<MirrorListing> {
        todo!()
    }

    /// The named mirrors, or all when `names` is empty.
    pub async fn describe(&self, _names: &[String]) -> Vec<Result<MirrorDescription, AdminError>> {
        todo!()
    }
}
