//! A real Kafka as the source, real clients at the other end.
//!
//! Needs `tests/setup`. Run with `cargo test --test kafka`.

#![expect(clippy::expect_used, reason = "a test that cannot set up what it needs has failed")]

mod bad_input;
mod clients;
mod crash;
mod disturbances;
mod groups;
mod history;
mod host;
mod mount;
mod protocol;
mod raw;
mod read_only;
mod reports;
mod scale;
mod shapes;
mod transactions;

use std::sync::OnceLock;

use testkit::{Cluster, Driver, Node, NodeOptions};

/// One broker of the newest release for every test that does not disturb it. Topics are named
/// after their test.
fn shared_cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::single)
}

/// One JVM for every test's calls.
fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(Driver::start)
}

/// What every test's node is configured with: discovery that does not keep a test waiting.
const QUICK: &str = "[mirror]\nmetadata_refresh_interval_ms = 500\nretry_max_backoff_ms = 1000\n";

fn node() -> Node {
    node_with("")
}

/// What a test's node is made with: more lines of configuration.
fn options(config: &str) -> NodeOptions {
    NodeOptions { config: format!("{QUICK}{config}"), ..NodeOptions::default() }
}

/// A node with more lines of configuration.
fn node_with(config: &str) -> Node {
    Node::start(env!("CARGO_BIN_EXE_longhaul"), &options(config))
}
