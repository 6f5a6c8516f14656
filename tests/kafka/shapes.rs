//! Every shape a topic can have arrives byte for byte and reads the same.

use std::time::Duration;

use serde_json::json;
use testkit::{
    Cluster, ClusterOptions, Version, assert_logs_equal, dump_log_segments, wait_for_equal_ends,
    wait_until,
};

use crate::{driver, node, node_with, shared_cluster};

#[test]
fn every_codec_arrives_byte_for_byte_and_reads_the_same() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    driver.create_topic(
        &source,
        "codecs",
        codecs.len() as u32,
        &json!({"segment.bytes": "1048576"}),
    );
    for (partition, codec) in codecs.iter().enumerate() {
        driver.must(
            &json!({"do": "produce", "bootstrap": source, "topic": "codecs", "partition": partition,
            "count": 5000, "size": 1000, "compression": codec, "null_header": true}),
        );
    }

    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "codecs");
    let partitions: Vec<_> = (0..codecs.len() as i32).map(|index| ("codecs", index)).collect();
    wait_for_equal_ends(driver, cluster, &node, &partitions);

    let expected = driver.consume_all(&source, "codecs", 25_000, "read_uncommitted");
    let found = driver.consume_all(&node.address(), "codecs", 25_000, "read_uncommitted");
    assert_eq!(found.count, 25_000);
    assert_eq!(found.digest, expected.digest);

    node.stop();
    for partition in 0..codecs.len() {
        let folder = format!("codecs-{partition}");
        assert_logs_equal(&cluster.data(0).join(&folder), &node.data().join(&folder));
        dump_log_segments(&node.data().join(&folder));
    }
    node.assert_quiet_log(&[]);
}

/// S-11: the source's own size limit is the only one that counts.
#[test]
fn a_batch_of_15_mb_is_copied_and_served() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "big", 1, &json!({"max.message.bytes": "20000000"}));
    driver.produce(&source, "big", 0, 10, "none");
    driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "big", "size": 15_000_000, "count": 2,
        "batch_bytes": "15500000"}));
    driver.produce(&source, "big", 10, 10, "none");

    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "big");
    wait_for_equal_ends(driver, cluster, &node, &[("big", 0)]);

    let expected = driver.consume_all(&source, "big", 22, "read_uncommitted");
    // The reader's own limits are left at 1 MB: the first batch comes whole all the same.
    let found = driver.consume_all(&node.address(), "big", 22, "read_uncommitted");
    assert_eq!((found.count, found.digest), (22, expected.digest));
    node.stop();
    assert_logs_equal(&cluster.data(0).join("big-0"), &node.data().join("big-0"));
}

#[test]
fn a_compacted_topic_keeps_its_gaps() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    let config = json!({"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "100", "min.compaction.lag.ms": "0", "delete.retention.ms": "100"});
    driver.create_topic(&source, "compacted", 1, &config);
    for round in 0..4 {
        driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "compacted", "first": round * 2000,
            "count": 2000, "size": 300, "keys": 10, "linger_ms": "0", "batch_bytes": "400"}));
        std::thread::sleep(Duration::from_millis(300));
    }
    // The cleaner has run once a full read delivers fewer records than there are offsets.
    wait_until("the source's cleaner", Duration::from_secs(60), || {
        let read = driver
            .consume(&json!({"do": "consume", "bootstrap": source, "topic": "compacted",
            "max": 8000, "timeout_ms": 1500}));
        (read.count < 6000).then_some(())
    });

    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "compacted");
    wait_for_equal_ends(driver, cluster, &node, &[("compacted", 0)]);
    let found = driver
        .consume(&json!({"do": "consume", "bootstrap": node.address(), "topic": "compacted",
        "max": 8000, "timeout_ms": 3000}));
    assert!(found.count < 8000, "the gaps are there");
    assert!(found.offsets.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(found.next["0"], 8000);
    dump_log_segments(&node.data().join("compacted-0"));
}

/// S-10: times far apart in one batch, and a header without a value.
#[test]
fn times_far_apart_in_one_batch_are_found_again() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(
        &source,
        "times",
        1,
        &json!({"message.timestamp.before.max.ms": "9223372036854775807", "retention.ms": "-1"}),
    );
    driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "times", "producer": "times", "count": 1,
        "timestamp": 0, "linger_ms": "200", "null_header": true}));
    let now = 1_760_000_000_000_i64;
    driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "times", "producer": "times", "count": 3,
        "timestamp": now, "null_header": true}));

    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "times");
    wait_for_equal_ends(driver, cluster, &node, &[("times", 0)]);
    for wanted in [0, 1, now, now + 1, now + 2] {
        let ask = |bootstrap: &str| {
            driver.must(&json!({"do": "offsets_for_time", "bootstrap": bootstrap, "topic": "times", "timestamp": wanted}))
        };
        assert_eq!(ask(&node.address()), ask(&source), "timestamp {wanted}");
    }
    let digest =
        |bootstrap: &str| driver.consume_all(bootstrap, "times", 4, "read_uncommitted").digest;
    assert_eq!(digest(&node.address()), digest(&source));
}

/// S-23 and discovery: topics created and grown while mirroring lose none of their first records.
#[test]
fn topics_created_and_grown_meanwhile_are_mirrored_from_their_first_record() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "grow.one", 3, &json!({}));
    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "grow\\..*");

    driver.create_topic(&source, "grow.two", 2, &json!({}));
    driver.produce(&source, "grow.two", 0, 100, "lz4");
    driver.must(
        &json!({"do": "add_partitions", "bootstrap": source, "topic": "grow.one", "partitions": 6}),
    );
    for partition in 0..6 {
        driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "grow.one", "partition": partition, "count": 200}));
    }
    let partitions: Vec<_> =
        (0..6).map(|index| ("grow.one", index)).chain([("grow.two", 0), ("grow.two", 1)]).collect();
    wait_until("both topics to be discovered", Duration::from_secs(30), || {
        (node.describe().len() == 8).then_some(())
    });
    wait_for_equal_ends(driver, cluster, &node, &partitions);
    let found = driver.consume_all(&node.address(), "grow.one", 1200, "read_uncommitted");
    assert_eq!(found.count, 1200);
    assert!(found.first.values().all(|first| *first == 0));
}

/// S-45: names that contain the separators of names.
#[test]
fn names_that_look_like_partition_folders_are_not_mixed_up() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    let long = "n".repeat(249);
    let names = ["sep-1-b", "sep-1", "sep.1", "1", long.as_str()];
    for (index, name) in names.iter().enumerate() {
        driver.create_topic(&source, name, 2, &json!({}));
        driver.produce(&source, name, 0, 10 * (index as u64 + 1), "none");
    }
    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", &names.map(|name| name.replace('.', "\\.")).join(","));
    let check = |node: &testkit::Node| {
        for (index, name) in names.iter().enumerate() {
            node.wait_for_offset(name, 0, 10 * (index as i64 + 1));
            assert_eq!(node.row(name, 1).map(|row| row.destination_offset), Some(0));
            let read = driver.consume_all(
                &node.address(),
                name,
                10 * (index as u64 + 1),
                "read_uncommitted",
            );
            assert_eq!(read.next["0"], 10 * (index as i64 + 1));
        }
    };
    check(&node);
    node.kill();
    node.restart();
    check(&node);
}

/// Sources of three releases, and a stock broker on a copy of what was mirrored.
#[test]
fn an_old_source_is_mirrored_and_a_stock_broker_opens_our_folders() {
    for version in [Version::V3_9, Version::V4_0] {
        let cluster = Cluster::start(ClusterOptions { version, ..ClusterOptions::default() });
        let driver = driver();
        let source = cluster.bootstrap();
        driver.create_topic(&source, "old", 2, &json!({"segment.bytes": "1048576"}));
        for partition in 0..2 {
            driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "old", "partition": partition,
                "count": 3000, "size": 1000, "compression": "lz4"}));
        }
        let mut node = node_with("[storage]\nsegment_bytes_max = 500000\n");
        node.create_mirror("m", &source, &[]);
        node.start_topics("m", "old");
        wait_for_equal_ends(driver, &cluster, &node, &[("old", 0), ("old", 1)]);
        node.stop();
        let expected = driver.consume_all(&source, "old", 6000, "read_committed");
        let mut cluster = cluster;
        cluster.stop(0);
        for folder in ["old-0", "old-1"] {
            let (theirs, ours) = (cluster.data(0).join(folder), node.data().join(folder));
            assert_logs_equal(&theirs, &ours);
            dump_log_segments(&ours);
            // The broker starts on our files in place of its own.
            std::fs::remove_dir_all(&theirs).expect("the broker's folder");
            copy_folder(&ours, &theirs);
        }
        cluster.restart(0);
        let found = driver.consume_all(&source, "old", 6000, "read_committed");
        assert_eq!((found.count, found.digest), (6000, expected.digest));
    }
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).expect("a new folder");
    for entry in std::fs::read_dir(from).expect("our folder") {
        let entry = entry.expect("a directory entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copied file");
    }
}
