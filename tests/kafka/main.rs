//! A real Kafka as the source, real clients at the other end.
//!
//! Needs `tests/setup`. Run with `cargo test --test kafka`.

mod plain;

use std::sync::OnceLock;

use testkit::{Cluster, Driver, Node, NodeOptions};

/// One broker of the newest release for every test that does not disturb it.
fn shared_cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::single)
}

/// One JVM for every test's calls.
fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(Driver::start)
}

/// A node whose discovery does not keep a test waiting.
fn node() -> Node {
    Node::start(env!("CARGO_BIN_EXE_longhaul"), &NodeOptions { config: String::new() })
}
