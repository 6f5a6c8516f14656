//! Fetch requests, versions 4 to 18: written by a lane, read by the serve role.

use bytes::BytesMut;
use storage::TopicId;

use super::WireError;

/// A topic as a request or response names it: by name up to version 12, by id from 13.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// By name.
    Name(std::sync::Arc<str>),
    /// By id (KIP-516).
    Id(TopicId),
}

/// What a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Everything below the high watermark.
    ReadUncommitted,
    /// Everything below the last stable offset.
    ReadCommitted,
}

/// A Fetch request of any supported version; fields a version lacks have Kafka's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// -1 for a consumer.
    pub replica_id: i32,
    /// Milliseconds the broker may wait for `min_bytes`.
    pub max_wait_ms: i32,
    /// Bytes worth answering for.
    pub min_bytes: i32,
    /// Bound on the whole answer, except its first batch.
    pub max_bytes: i32,
    /// What the reader may see.
    pub isolation: IsolationLevel,
    /// Session id (v7), 0 for none.
    pub session_id: i32,
    /// Session epoch (v7), -1 for none.
    pub session_epoch: i32,
    /// Partitions to fetch, or to add to the session.
    pub topics: Vec<FetchTopic>,
    /// Partitions to drop from the session (v7).
    pub forgotten: Vec<ForgottenTopic>,
    /// Rack of the reader (v11).
    pub rack_id: String,
}

/// A topic's part of a [`FetchRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTopic {
    /// The topic.
    pub topic: TopicKey,
    /// Its partitions.
    pub partitions: Vec<FetchPartition>,
}

/// A partition's part of a [`FetchRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// Index.
    pub partition: i32,
    /// The leader epoch the reader believes in (v9), -1 for unknown.
    pub current_leader_epoch: i32,
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Epoch of the last batch the reader has (v12), -1 for unknown.
    pub last_fetched_epoch: i32,
    /// The reader's log start (v5), -1 for a consumer.
    pub log_start_offset: i64,
    /// Bound on this partition's records, except the first batch.
    pub max_bytes: i32,
}

/// Partitions to drop from a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenTopic {
    /// The topic.
    pub topic: TopicKey,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

impl FetchRequest {
    /// Lowest version spoken.
    pub const VERSION_MIN: i16 = 4;
    /// Highest version spoken.
    pub const VERSION_MAX: i16 = 18;

    /// Writes the body.
    pub fn encode(&self, _version: i16, _out: &mut BytesMut) {
        todo!()
    }

    /// Reads a body; `bytes` must hold all of it and nothing else.
    pub fn decode(_version: i16, _bytes: &[u8]) -> Result<Self, WireError> {
        todo!()
    }
}
