//! Who we are measured beside: a real Kafka broker, MirrorMaker 2 and kcat, fetched and run by the
//! benchmarks themselves.
//!
//! Everything is a child process with a temporary folder; both are gone when the value is dropped, and
//! the process also when this one is killed. The benchmark of the same name measures them beside a node.

mod bench;
mod broker;
mod cache;
mod error;
mod foreign;
mod jars;
mod kcat;
mod logs;
mod mirror_maker;
pub(crate) mod source;
mod subjects;

pub use bench::{Options, QUESTION, run};
pub use broker::{Broker, BrokerSetup, SendBuffer, TopicSetup};
pub use cache::{Cache, ClassPath};
pub use error::PeerError;
pub use foreign::Foreign;
pub(crate) use foreign::pause_for;
pub use jars::Jars;
pub(crate) use kcat::check_time as check_kcat_time;
pub use kcat::{Kcat, kcat_is_there};
pub use logs::{CopiedRecords, compare, compare_beginning, log_bytes, log_paths};
pub use mirror_maker::{MirrorMaker, MirrorMakerSetup};
pub(crate) use subjects::mirror_maker_name;
