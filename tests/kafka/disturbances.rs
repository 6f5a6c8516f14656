//! The source misbehaves as real clusters do: brokers die, leaders move, addresses change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{
    Cluster, ClusterOptions, Door, Node, assert_logs_equal, kafka_tool_within, wait_for_equal_ends,
    wait_until,
};

use crate::{driver, node};

fn three_brokers() -> Cluster {
    Cluster::start(ClusterOptions { brokers: 3, ..ClusterOptions::default() })
}

#[test]
fn moved_leaders_and_a_dead_broker_do_not_stop_the_mirror() {
    let mut cluster = three_brokers();
    let driver = driver();
    let source = cluster.bootstrap();
    driver.must(&json!({"do": "create_topic", "bootstrap": source, "topic": "moved", "partitions": 6, "replication": 3,
        "config": {"min.insync.replicas": "1"}}));
    let produce = |first: u64| {
        for partition in 0..6 {
            driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "moved", "partition": partition,
                "first": first, "count": 100}));
        }
    };
    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "moved");
    let partitions: Vec<_> = (0..6).map(|index| ("moved", index)).collect();
    produce(0);
    wait_for_equal_ends(driver, &cluster, &node, &partitions);

    for (partition, leader) in [(0, 1), (0, 2), (1, 3), (2, 1), (0, 3)] {
        driver.must(&json!({"do": "move_leader", "bootstrap": source, "topic": "moved", "partition": partition,
            "leader": leader}));
        produce(100 * (u64::from(partition as u32) + 1));
    }
    wait_for_equal_ends(driver, &cluster, &node, &partitions);

    // Broker 3 (never the controller) dies without a word; its partitions get new leaders.
    cluster.kill(2);
    wait_until("new leaders for the dead broker's partitions", Duration::from_secs(60), || {
        let leaders =
            driver.must(&json!({"do": "describe_topic", "bootstrap": source, "topic": "moved"}));
        let leaders = leaders["leaders"].as_array()?.clone();
        leaders.iter().all(|leader| leader != 3 && leader != -1).then_some(())
    });
    produce(1000);
    wait_for_equal_ends(driver, &cluster, &node, &partitions);
    cluster.restart(2);
    for partition in 0..3 {
        driver.must(&json!({"do": "move_leader", "bootstrap": source, "topic": "moved", "partition": partition, "leader": 3}));
    }
    produce(2000);
    wait_for_equal_ends(driver, &cluster, &node, &partitions);
    let count = |bootstrap: &str| {
        let read = driver.consume(
            &json!({"do": "consume", "bootstrap": bootstrap, "topic": "moved", "timeout_ms": 6000}),
        );
        (read.count, read.digest)
    };
    assert_eq!(count(&node.address()), count(&source));
}

#[test]
fn a_source_that_is_gone_is_shown_and_found_again_at_a_new_address() {
    let mut cluster = Cluster::start(ClusterOptions { brokers: 2, ..ClusterOptions::default() });
    let driver = driver();
    let source = cluster.bootstrap();
    driver.must(&json!({"do": "create_topic", "bootstrap": cluster.address(0), "topic": "gone", "partitions": 4, "replication": 1}));
    let produce = |cluster: &Cluster| {
        for partition in 0..4 {
            driver.must(&json!({"do": "produce", "bootstrap": cluster.address(0), "topic": "gone", "partition": partition,
                "count": 100}));
        }
    };
    produce(&cluster);
    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "gone");
    let partitions: Vec<_> = (0..4).map(|index| ("gone", index)).collect();
    wait_for_equal_ends(driver, &cluster, &node, &partitions);

    cluster.kill(1);
    wait_until("the cause to be shown for some partition", Duration::from_secs(30), || {
        node.describe().into_iter().find(|row| row.error_message.is_some())
    });
    // What is mirrored stays readable meanwhile, also after a restart of the node.
    node.stop();
    node.restart();
    let read = driver.consume_all(&node.address(), "gone", 400, "read_uncommitted");
    assert_eq!(read.count, 400);

    cluster.restart_elsewhere(1);
    wait_until("every partition to have a leader", Duration::from_secs(60), || {
        let topic = driver.must(
            &json!({"do": "describe_topic", "bootstrap": cluster.address(0), "topic": "gone"}),
        );
        topic["leaders"].as_array()?.iter().all(|leader| leader != -1).then_some(())
    });
    produce(&cluster);
    wait_for_equal_ends(driver, &cluster, &node, &partitions);
    wait_until("the causes to be cleared", Duration::from_secs(30), || {
        node.describe()
            .iter()
            .all(|row| row.state == "MIRRORING" && row.error_message.is_none())
            .then_some(())
    });
}

/// S-42: a middlebox forgets the live connections without a word to either side; new ones pass. The
/// broker is reached through it alone, so nothing but our own deadline ends the wait.
#[test]
fn connections_forgotten_on_the_way_are_replaced_and_nothing_is_lost_or_doubled() {
    let door = Door::open("127.0.0.1:1");
    let advertised = format!("PLAINTEXT://{}", door.address());
    let cluster = Cluster::start(ClusterOptions {
        properties: vec![("advertised.listeners".to_owned(), advertised)],
        ..ClusterOptions::default()
    });
    door.lead_to(&cluster.address(0));
    let driver = driver();
    let source = door.address();
    let partitions = [("forgotten", 0), ("forgotten", 1), ("forgotten", 2)];
    driver.create_topic(&source, "forgotten", 3, &json!({}));
    let produce = |first: u64| {
        for (_, partition) in partitions {
            driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "forgotten",
                "partition": partition, "first": first, "count": 200}));
        }
    };
    let mut node = node();
    node.create_mirror("m", &source, &[("socket.timeout.ms", "2000")]);
    node.start_topics("m", "forgotten");
    produce(0);
    wait_for_equal_ends(driver, &cluster, &node, &partitions);
    for round in 1..=2 {
        door.silence();
        // The test's own client lost its connections too and takes long to notice: a new one.
        let writer = testkit::Driver::start();
        for (_, partition) in partitions {
            writer.must(&json!({"do": "produce", "bootstrap": source, "topic": "forgotten",
                "partition": partition, "first": 200 * round, "count": 200}));
            node.wait_for_offset("forgotten", partition, 200 * (round + 1));
        }
    }
    node.stop();
    for (topic, partition) in partitions {
        let folder = format!("{topic}-{partition}");
        assert_logs_equal(&cluster.data(0).join(&folder), &node.data().join(&folder));
    }
}

/// After each disturbance every partition has moved again within this time.
const LIMIT: Duration = Duration::from_secs(120);

/// Enough that lanes, sessions and metadata come in more than one piece.
const PARTITIONS: usize = 1000;

/// S-40: brokers restart one after the other, leaders move, the node restarts; no partition stays
/// behind. `LONGHAUL_PARTITIONS` for more of them.
#[test]
fn after_every_disturbance_every_partition_moves_again() {
    let count = std::env::var("LONGHAUL_PARTITIONS").ok().and_then(|text| text.parse().ok());
    let count: usize = count.unwrap_or(PARTITIONS);
    let mut cluster = three_brokers();
    let driver = driver();
    let source = cluster.bootstrap();
    driver.must(&json!({"do": "create_topic", "bootstrap": source, "topic": "trickle",
        "partitions": count, "replication": 2, "config": {"min.insync.replicas": "1"}}));
    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "trickle");
    let mut rounds = 0;
    let mut trickle = |node: &Node, what: &str| {
        // One record for each partition; a retry of the producer's may double some at the source.
        driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "trickle",
            "partitions": count, "first": count as i64 * rounds, "count": count}));
        rounds += 1;
        let mut behind = BTreeMap::new();
        let mut look = || {
            behind = node
                .describe()
                .into_iter()
                .filter(|row| {
                    row.state != "MIRRORING"
                        || row.destination_offset < rounds
                        || row.lag != Some(0)
                })
                .map(|row| (row.partition, row))
                .collect();
            behind.is_empty()
        };
        let until = Instant::now() + LIMIT;
        while !look() {
            assert!(Instant::now() < until, "{what}: {} left behind, {behind:?}", behind.len());
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(node.describe().len(), count);
    };
    trickle(&node, "at the start");
    for broker in [1, 2, 0] {
        cluster.stop(broker);
        cluster.restart(broker);
    }
    trickle(&node, "brokers restarted");
    let elected = kafka_tool_within(
        "LeaderElectionCommand",
        &["--bootstrap-server", &source, "--election-type", "preferred", "--all-topic-partitions"],
        LIMIT,
    );
    assert!(elected.code == 0, "{}{}", elected.stdout, elected.stderr);
    trickle(&node, "leaders moved");
    node.kill();
    node.restart();
    trickle(&node, "node restarted");
}
