//! The Kafka client of the control plane: connections to source brokers, and to our own node for
//! the command line.
//!
//! Runs on tokio. Resolves names anew for every connection, secures and version-negotiates the
//! socket, and then either asks things over it ([`Connection`]) or hands the descriptor to a core
//! ([`LaneConnection`]). It fetches single batches at most, to compare them, and never writes to a source: the only requests it
//! knows how to build towards a source are reads.

mod address;
mod admin;
mod batches;
mod calls;
mod codes;
mod connection;
mod error;
mod lane;
mod security;
mod source;
mod versions;

pub use address::{Address, AddressError};
pub use admin::{
    AdminClient, AdminClientError, Described, MirrorRow, MirrorSummary, RefusedTopic, StartedTopics,
};
pub use batches::{BatchAnswer, BatchQuestion};
pub use calls::{
    BrokerAddress, ClusterMetadata, EpochAnswer, EpochQuestion, OffsetAnswer, OffsetQuestion,
    OffsetSpec, PartitionMetadata, TopicMetadata, TopicSelection,
};
pub use codes::{CodeClass, KafkaCode};
pub use connection::{ClientSettings, Connection, FRAME_BYTES_MAX};
pub use error::ClientError;
pub use lane::LaneConnection;
pub use security::{Security, SecurityError};
pub use source::{Lease, SourceClient};
pub use versions::{NegotiatedVersions, VersionSpan};
