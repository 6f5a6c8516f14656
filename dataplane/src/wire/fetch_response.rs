//! Fetch responses, versions 4 to 18: parsed as they stream in, and written around records that
//! stay where they are.

use bytes::Bytes;
use storage::{AbortedTransaction, TopicId};

use super::{TopicKey, WireError};

/// The front of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Correlation id of the request.
    pub correlation_id: i32,
    /// How long the source throttles us, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request (v7), 0 for none.
    pub error_code: i16,
    /// Session id (v7), 0 for none.
    pub session_id: i32,
}

/// A partition's fields up to its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionHead {
    /// Index.
    pub partition: i32,
    /// Error code, 0 for none.
    pub error_code: i16,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset.
    pub last_stable_offset: i64,
    /// Log start (v5), -1 before.
    pub log_start_offset: i64,
    /// KIP-392 replica to read from (v11), -1 for none.
    pub preferred_read_replica: i32,
    /// Bytes of records that follow.
    pub records_bytes: usize,
}

/// A leader and its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderAndEpoch {
    /// Node id.
    pub leader_id: i32,
    /// Epoch.
    pub leader_epoch: i32,
}

/// A partition's fields after its records (v12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PartitionTail {
    /// Where the reader's history leaves the broker's: epoch and its end offset.
    pub diverging: Option<(i32, i64)>,
    /// The leader, where the broker asked is not it.
    pub current_leader: Option<LeaderAndEpoch>,
}

/// A broker's address in a response (v16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// Node id.
    pub node_id: i32,
    /// Host.
    pub host: String,
    /// Port.
    pub port: i32,
}

/// What the parser found next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEvent {
    /// The response's front.
    Head(ResponseHead),
    /// A partition of [`FetchResponseParser::topic`] begins; its records follow.
    Partition(PartitionHead),
    /// Record bytes are next: take them with [`FetchResponseParser::take_records`].
    Records,
    /// The partition ended.
    PartitionEnd(PartitionTail),
    /// The response ended.
    End(Vec<NodeEndpoint>),
}

/// A response taken apart while it arrives.
///
/// Never holds record bytes: it says how many are next, and the caller accounts for them, wherever
/// they were received.
#[derive(Debug)]
pub struct FetchResponseParser {}

impl FetchResponseParser {
    /// A parser of one response: `frame_bytes` is the frame's length field.
    #[must_use]
    pub fn new(_version: i16, _frame_bytes: usize) -> Self {
        todo!()
    }

    /// Takes fields from the front of `bytes` until something is to be told. `None`: `bytes` holds
    /// no whole field more; what it did not take must be offered again with more behind it. A
    /// caller that can hold 64 KiB always makes progress.
    pub fn next(&mut self, _bytes: &mut &[u8]) -> Result<Option<FetchEvent>, WireError> {
        todo!()
    }

    /// The topic of the current partition: its name up to v12, its id from v13.
    #[must_use]
    pub fn topic(&self) -> (&str, TopicId) {
        todo!()
    }

    /// Record bytes of the current partition not yet taken.
    #[must_use]
    pub fn records_remaining(&self) -> usize {
        todo!()
    }

    /// Accounts for record bytes the caller took from the stream.
    pub fn take_records(&mut self, _bytes: usize) {
        todo!()
    }

    /// Bytes of the frame not yet taken.
    #[must_use]
    pub fn frame_remaining(&self) -> usize {
        todo!()
    }
}

/// The front of an answer we give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerHead {
    /// Correlation id of the request.
    pub correlation_id: i32,
    /// Throttle time in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request.
    pub error_code: i16,
    /// Session id.
    pub session_id: i32,
}

/// A partition's fields in an answer we give; its records are [`AnswerPartition::records_bytes`] long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPartition {
    /// Index.
    pub partition: i32,
    /// Error code.
    pub error_code: i16,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset.
    pub last_stable_offset: i64,
    /// Log start.
    pub log_start_offset: i64,
    /// Aborted transactions, `None` for a read-uncommitted reader.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// Bytes of records; 0 is written as zero length, never as null.
    pub records_bytes: usize,
    /// Diverging epoch and its end (v12).
    pub diverging: Option<(i32, i64)>,
    /// Leader hint (v12).
    pub current_leader: Option<LeaderAndEpoch>,
}

/// An answer as pieces of encoded fields, between which the records go.
///
/// `pieces[0]`, records of the first partition with any, `pieces[1]`, and so on; the frame's length
/// is at the front and counts the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchAnswer {
    /// Encoded fields.
    pub pieces: Vec<Bytes>,
}

impl FetchAnswer {
    /// Writes an answer.
    #[must_use]
    pub fn encode(
        _version: i16,
        _head: &AnswerHead,
        _topics: &[(TopicKey, Vec<AnswerPartition>)],
        _node_endpoints: &[NodeEndpoint],
    ) -> Self {
        todo!()
    }
}
