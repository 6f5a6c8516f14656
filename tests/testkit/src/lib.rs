//! Real Kafka clusters, real clients and real nodes for the tests.
//!
//! Everything started here ends with the test process, also when that is killed: children are made
//! by one thread that lives as long as the process and are bound to it by the kernel's parent-death signal.

#![expect(clippy::expect_used, reason = "a test that cannot set up what it needs has failed")]

pub mod benchmark;
mod cluster;
mod compare;
mod door;
mod driver;
mod node;
mod process;
mod tools;

pub use cluster::{Cluster, ClusterOptions, Version};
pub use compare::{assert_logs_equal, log_bytes, log_bytes_from, wait_for_equal_ends};
pub use door::Door;
pub use driver::{Consumed, Driver, DriverError};
pub use node::{Node, NodeOptions, Row};
pub use process::{Finished, free_port, run, wait_until};
pub use tools::{
    dump_log_segments, histogram_log_processor, kafka_tool, kafka_tool_within, kcat, python,
};

use std::path::PathBuf;

/// Where `tests/setup` put what the tests need; says how to get it when it is not there.
#[must_use]
pub fn cache() -> PathBuf {
    let cache = std::env::var_os("LONGHAUL_CACHE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.cache"),
        PathBuf::from,
    );
    assert!(
        cache.join("java/Driver.class").exists(),
        "run tests/setup first: {} lacks the Java client",
        cache.display()
    );
    cache
}
