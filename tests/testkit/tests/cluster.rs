//! The kit itself: a real cluster starts, takes records, and gives them back.

use longhaul_testkit::{Cluster, ClusterOptions, Driver, Version, kcat};
use serde_json::json;

#[test]
fn three_brokers_take_records_and_give_them_back() {
    let cluster = Cluster::start(ClusterOptions { brokers: 3, ..ClusterOptions::default() });
    let driver = Driver::start();
    let bootstrap = cluster.bootstrap();
    driver.must(&json!({"do": "create_topic", "bootstrap": bootstrap, "topic": "t", "partitions": 2, "replication": 3}));
    assert_eq!(driver.produce(&bootstrap, "t", 0, 1000, "zstd"), 999);
    assert_eq!(driver.offsets(&bootstrap, "t", 0), (0, 1000));
    driver.must(&json!({"do": "move_leader", "bootstrap": bootstrap, "topic": "t", "partition": 0, "leader": 2}));
    let described =
        driver.must(&json!({"do": "describe_topic", "bootstrap": bootstrap, "topic": "t"}));
    assert_eq!(described["leaders"][0], 2);
    let read = driver.consume_all(&bootstrap, "t", 1000, "read_committed");
    assert_eq!((read.count, read.next["0"]), (1000, 1000));
    let error = driver
        .call(&json!({"do": "create_topic", "bootstrap": bootstrap, "topic": "t"}))
        .unwrap_err();
    assert_eq!(error.class, "TopicExistsException");
}

#[test]
fn an_older_release_starts_and_talks_to_kcat() {
    let cluster =
        Cluster::start(ClusterOptions { version: Version::V3_9, ..ClusterOptions::default() });
    let listed = kcat(&["-b", &cluster.bootstrap(), "-L", "-m", "20"]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(listed.stdout.contains("1 brokers"), "{}", listed.stdout);
}
