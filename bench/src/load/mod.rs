//! A synthetic source cluster: one broker that speaks enough of the Kafka protocol to be mirrored,
//! with records made on demand from their position, so that a reader can check every one.
//!
//! Runs on its own threads, never on a node's cores: on tokio-uring with the feature
//! `load-tokio-uring` (the default), else on one blocking thread a connection.

mod generator;
mod protocol;
mod server;

pub use generator::{Generator, Workload};
pub use protocol::SourceCluster;
pub use server::{ServerError, SourceServer};
