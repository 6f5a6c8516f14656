//! KIP-1279's own RPCs, version 0: the layouts this node and its command line speak.
//!
//! Owns the structs and their two-way codec; no I/O, any thread. Must never allocate for a count
//! that the bytes at hand cannot back, nor accept bytes after the message.
//!
//! All four are flexible (request header 2, response header 1). `string` is COMPACT_STRING,
//! `string?` COMPACT_NULLABLE_STRING, `[]` COMPACT_ARRAY; every struct ends with tagged fields, and
//! unknown ones are skipped. Each response begins with the head
//! `ThrottleTimeMs int32, ErrorCode int16, ErrorMessage string?`.
//!
//! ```text
//! 94 CreateClusterMirror     MirrorName string, Configs [] {Name string, Value string?}
//!                         -> head
//! 95 StartMirrorTopics       MirrorName string, IncludePatterns [] string, TimeoutMs int32,
//!                            tag 0: ExcludePatterns [] string
//!                         -> head, Topics [] {Name string, ErrorCode int16, ErrorMessage string?}
//! 98 ListClusterMirrors      IncludeTopicNames bool
//!                         -> head, Mirrors [] {MirrorName string, SourceBootstrap string,
//!                            SourceClusterId string, TopicCount int32, TopicNames [] string}
//! 99 DescribeClusterMirrors  MirrorNames [] string (null or empty: all),
//!                            IncludeAuthorizedOperations bool, tag 0: ClusterId string?
//!                         -> head, Mirrors [] {ErrorCode int16, ErrorMessage string?,
//!                            MirrorName string, SourceBootstrap string, SourceClusterId string,
//!                            AuthorizedOperations int32, Topics [] {TopicName string,
//!                            Partitions [] {PartitionIndex int32, StateValue string,
//!                            ErrorMessage string?, RetryAttempt int16, SourceOffset int64,
//!                            DestinationOffset int64, LastMirrorEpoch int32,
//!                            LastMirrorOffset int64}}}
//! ```
//!
//! `SourceOffset` is -1 while it is unknown. A mirror with `ErrorCode` 0 and an `ErrorMessage` is
//! one that exists and has a fault as a whole (its source cannot be reached, say).

mod codec;
mod create;
mod describe;
mod list;
mod start;

pub use create::{CreateClusterMirrorRequest, CreateClusterMirrorResponse, MirrorConfig};
pub use describe::{
    DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse, DescribedMirror,
    DescribedPartition, DescribedTopic,
};
pub use list::{ListClusterMirrorsRequest, ListClusterMirrorsResponse, ListedMirror};
pub use start::{StartMirrorTopicsRequest, StartMirrorTopicsResponse, StartedTopic};

use bytes::BytesMut;
use dataplane::wire::{ApiKey, WireError};

use crate::mirror::AdminError;

/// The only version of each of these RPCs.
pub const VERSION: i16 = 0;

/// A message of this family.
pub trait Message: Sized {
    /// Which RPC it belongs to.
    const API_KEY: ApiKey;

    /// Appends the message (without any header) to `out`.
    fn encode(&self, out: &mut BytesMut);

    /// Reads the message (after the header); the bytes must end with it.
    fn decode(bytes: &[u8]) -> Result<Self, WireError>;
}

/// What every response begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseHead {
    /// Always 0 from this node.
    pub throttle_time_ms: i32,
    /// Kafka error code of the request as a whole; 0 for none.
    pub error_code: i16,
    /// For the operator.
    pub error_message: Option<String>,
}

impl ResponseHead {
    /// The head of a refusal.
    #[must_use]
    pub fn of(error: &AdminError) -> Self {
        Self {
            throttle_time_ms: 0,
            error_code: error.code,
            error_message: Some(error.message.clone()),
        }
    }
}

/// CreateClusterMirror.
pub const CREATE_CLUSTER_MIRROR: ApiKey = ApiKey(94);
/// StartMirrorTopics.
pub const START_MIRROR_TOPICS: ApiKey = ApiKey(95);
/// ListClusterMirrors.
pub const LIST_CLUSTER_MIRRORS: ApiKey = ApiKey(98);
/// DescribeClusterMirrors.
pub const DESCRIBE_CLUSTER_MIRRORS: ApiKey = ApiKey(99);

#[cfg(test)]
mod tests;
