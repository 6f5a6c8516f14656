//! A synthetic source cluster: one broker that speaks enough of the Kafka protocol to be mirrored,
//! with records made on demand from their position, so that a reader can check every one.
//!
//! Two ways to run it. [`SourceServer`] is a thread of this process, for the demo: on tokio-uring with the
//! feature `load-tokio-uring` (the default), else on blocking threads. [`SourceProcess`] is a process of its
//! own, for the benchmarks: its processor time can be told apart, it can live in a network namespace, it
//! sends without copying, and it reports what its connections waited for. Never runs on a node's cores.

mod bodies;
mod connection;
mod copy;
mod generator;
mod probe;
mod process;
mod producer;
mod protocol;
mod remote;
mod server;
mod session;
mod workload;

pub use connection::{ConnectionReport, Purpose};
pub use copy::{Copied, compare_copy};
pub use generator::{Began, Generator};
pub use probe::Probe;
pub use process::{SourceOptions, SourceReport, serve_process};
pub use protocol::{Answer, Reply, RequestError, SourceCluster};
pub(crate) use remote::Conversation;
pub use remote::{ProcessError, SourceProcess};
pub use server::{ServerError, SourceServer};
pub use session::FetchSession;
pub use workload::Workload;
