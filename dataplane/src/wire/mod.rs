//! The hot messages of the Kafka protocol: our own codec, no input or output, no clock.
//!
//! Every count and length from a peer is checked against the bytes that are there before anything
//! is allocated for it.

mod fetch_request;
mod fetch_response;
mod frame;
mod list_offsets;
mod offset_for_leader_epoch;
mod primitives;
mod produce;

pub use fetch_request::{
    FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, IsolationLevel, TopicKey,
};
pub use fetch_response::{
    AnswerHead, AnswerPartition, FetchAnswer, FetchEvent, FetchResponseParser, LeaderAndEpoch,
    NodeEndpoint, PartitionHead, PartitionTail, ResponseHead,
};
pub use frame::{ApiKey, RequestHeader, response_header_len};
pub use list_offsets::{
    ListOffsetsAnswer, ListOffsetsAnswerPartition, ListOffsetsAnswerTopic, ListOffsetsPartition,
    ListOffsetsRequest, ListOffsetsTopic,
};
pub use offset_for_leader_epoch::{
    OffsetForLeaderEpochAnswer, OffsetForLeaderEpochAnswerPartition,
    OffsetForLeaderEpochAnswerTopic, OffsetForLeaderEpochPartition, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochTopic,
};
pub use primitives::{REQUEST_ELEMENTS_MAX, Reader, WireError};
pub use produce::{
    ProduceRefusal, ProduceRefusalPartition, ProduceRefusalTopic, ProduceRequest, ProduceTopic,
};
