//! One history: trims, gaps, recreated topics, other clusters behind the same address.

use std::time::Duration;

use serde_json::json;
use testkit::{Cluster, ClusterOptions, wait_for_equal_ends, wait_until};

use crate::{driver, node, shared_cluster};

/// S-04: the start offset is known before the first fetch.
#[test]
fn a_topic_that_begins_late_is_mirrored_from_its_first_offset() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "late-start", 20, &json!({}));
    for partition in 0..20 {
        driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "late-start", "partition": partition, "count": 600}));
        driver.must(&json!({"do": "delete_records", "bootstrap": source, "topic": "late-start", "partition": partition, "before": 500}));
    }
    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "late-start");
    for partition in 0..20 {
        node.wait_for_offset("late-start", partition, 600);
        assert_eq!(driver.offsets(&node.address(), "late-start", partition), (500, 600));
    }
    node.assert_quiet_log(&[]);
}

/// S-05: trims follow, on a busy and on an idle topic, before and after a restart.
#[test]
fn trims_at_the_source_are_followed_exactly() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "trimmed", 1, &json!({}));
    driver.produce(&source, "trimmed", 0, 5000, "none");
    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "trimmed");
    wait_for_equal_ends(driver, cluster, &node, &[("trimmed", 0)]);
    node.stop();
    node.restart();
    for before in [1000, 3000] {
        driver.must(&json!({"do": "delete_records", "bootstrap": source, "topic": "trimmed", "before": before}));
        wait_until("the trim to arrive without new data", Duration::from_secs(30), || {
            (driver.offsets(&node.address(), "trimmed", 0).0 == before).then_some(())
        });
        let read = driver
            .consume(&json!({"do": "consume", "bootstrap": node.address(), "topic": "trimmed",
            "max": 5000 - before, "timeout_ms": 15_000}));
        assert_eq!((read.count, read.first["0"]), (5000 - before.unsigned_abs(), before));
    }
}

/// S-02: what the source deleted before it was copied is a gap, named and counted.
#[test]
fn a_hole_in_the_history_is_shown_and_nothing_is_written_into_it() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    for topic in ["hole", "hole-halted"] {
        driver.create_topic(&source, topic, 1, &json!({}));
        driver.produce(&source, topic, 0, 1000, "none");
    }
    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.create_mirror("strict", &source, &[("mirror.gap.policy", "halt")]);
    node.start_topics("m", "hole");
    node.start_topics("strict", "hole-halted");
    wait_for_equal_ends(driver, cluster, &node, &[("hole", 0), ("hole-halted", 0)]);
    node.stop();
    for topic in ["hole", "hole-halted"] {
        driver.produce(&source, topic, 1000, 4000, "none");
        driver.must(
            &json!({"do": "delete_records", "bootstrap": source, "topic": topic, "before": 2500}),
        );
    }
    node.restart();
    node.wait_for_offset("hole", 0, 5000);
    let read = driver.consume(
        &json!({"do": "consume", "bootstrap": node.address(), "topic": "hole", "max": 2500,
        "timeout_ms": 15_000}),
    );
    assert_eq!((read.count, read.first["0"]), (2500, 2500));
    assert!(
        node.log().contains("1500"),
        "the number of lost offsets is in the log: {}",
        node.log()
    );

    let halted = wait_until("the strict mirror to halt", Duration::from_secs(20), || {
        node.row("hole-halted", 0).filter(|row| row.state == "FAILED")
    });
    let cause = halted.error_message.unwrap_or_default();
    assert!(cause.contains("1000 to 2499"), "{cause}");
    assert_eq!(halted.destination_offset, 1000);
    let kept = driver.consume_all(&node.address(), "hole-halted", 1000, "read_uncommitted");
    assert_eq!(kept.count, 1000);
}

/// S-03: another topic of the same name never shares a log with the old one.
#[test]
fn a_recreated_topic_is_named_and_its_records_are_not_mixed_in() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "recreated", 2, &json!({}));
    driver.produce(&source, "recreated", 0, 100, "none");
    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "recreated");
    wait_for_equal_ends(driver, cluster, &node, &[("recreated", 0)]);
    let old = driver.consume_all(&node.address(), "recreated", 100, "read_uncommitted");

    driver.must(&json!({"do": "delete_topic", "bootstrap": source, "topic": "recreated"}));
    wait_until("the old topic to be gone", Duration::from_secs(20), || {
        driver
            .call(&json!({"do": "describe_topic", "bootstrap": source, "topic": "recreated"}))
            .err()
    });
    driver.create_topic(&source, "recreated", 1, &json!({}));
    driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "recreated", "count": 500, "seed": 9}));
    let failed = wait_until("the recreation to be noticed", Duration::from_secs(30), || {
        // Between the deletion and the new topic it is shown as deleted.
        node.row("recreated", 0).filter(|row| {
            let cause = row.error_message.as_deref().unwrap_or_default();
            row.state == "FAILED" && cause.contains("recreated")
        })
    });
    assert_eq!(failed.destination_offset, 100);
    let kept = driver.consume_all(&node.address(), "recreated", 100, "read_uncommitted");
    assert_eq!((kept.count, kept.digest), (100, old.digest));
    assert_eq!(driver.offsets(&node.address(), "recreated", 0), (0, 100));
}

/// P2: another cluster behind the pinned address is refused before a byte of it is stored.
#[test]
fn another_cluster_at_the_same_address_is_refused() {
    let first = Cluster::start(ClusterOptions::default());
    let driver = driver();
    driver.create_topic(&first.bootstrap(), "pinned", 1, &json!({}));
    driver.produce(&first.bootstrap(), "pinned", 0, 50, "none");
    let other = Cluster::start_other(ClusterOptions::default());
    driver.create_topic(&other.bootstrap(), "pinned", 1, &json!({}));
    driver.must(&json!({"do": "produce", "bootstrap": other.bootstrap(), "topic": "pinned", "count": 500, "seed": 5}));

    let door = testkit::Door::open(&first.address(0));
    let node = node();
    node.create_mirror("m", &door.address(), &[]);
    node.start_topics("m", "pinned");
    node.wait_for_offset("pinned", 0, 50);
    drop(first);
    door.lead_to(&other.address(0));
    let failed = wait_until("the other cluster to be noticed", Duration::from_secs(40), || {
        node.row("pinned", 0).filter(|row| {
            row.error_message.as_deref().is_some_and(|cause| cause.contains("cluster"))
        })
    });
    assert_eq!(failed.destination_offset, 50);
    assert_eq!(driver.offsets(&node.address(), "pinned", 0), (0, 50));
}
