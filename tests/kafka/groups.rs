//! Consumer groups on a mirrored topic.

use serde_json::json;
use testkit::{kafka_tool, kcat, python, wait_for_equal_ends};

use crate::{driver, node, shared_cluster};

#[test]
fn a_group_goes_on_at_the_exact_offset_after_a_restart_in_another_client_family() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "grouped", 1, &json!({}));
    driver.produce(&source, "grouped", 0, 1000, "lz4");
    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "grouped");
    wait_for_equal_ends(driver, cluster, &node, &[("grouped", 0)]);

    let half = driver
        .consume(&json!({"do": "consume", "bootstrap": node.address(), "topic": "grouped",
        "group": "workers", "max": 500, "commit": true, "timeout_ms": 30_000}));
    assert_eq!((half.count, half.next["0"]), (500, 500));
    node.kill();
    node.restart();
    let rest = kcat(&[
        "-b",
        &node.address(),
        "-G",
        "workers",
        "-e",
        "-q",
        "-f",
        "%o\n",
        "-X",
        "auto.offset.reset=earliest",
        "-X",
        "session.timeout.ms=6000",
        "grouped",
    ]);
    let offsets: Vec<i64> = rest.stdout.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(offsets, (500..1000).collect::<Vec<_>>(), "{}", rest.stderr);

    node.stop();
    node.restart();
    let program = "
import sys
from kafka import KafkaConsumer, TopicPartition
consumer = KafkaConsumer('grouped', bootstrap_servers=sys.argv[1], group_id='workers', auto_offset_reset='earliest',
                         consumer_timeout_ms=8000, enable_auto_commit=False)
print(len(list(consumer)), consumer.committed(TopicPartition('grouped', 0)))
consumer.close()
";
    let nothing = python(program, &[&node.address()]);
    assert_eq!(nothing.stdout, "0 1000\n", "{}", nothing.stderr);

    let described = kafka_tool(
        "consumer.group.ConsumerGroupCommand",
        &["--bootstrap-server", &node.address(), "--describe", "--group", "workers"],
    );
    assert!(described.stdout.contains("grouped"), "{}{}", described.stdout, described.stderr);
    assert!(described.stdout.contains("1000"), "{}", described.stdout);
}

#[test]
fn two_members_share_the_partitions_and_one_takes_over() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "shared-out", 4, &json!({}));
    for partition in 0..4 {
        driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "shared-out", "partition": partition, "count": 100}));
    }
    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "shared-out");
    let partitions: Vec<_> = (0..4).map(|index| ("shared-out", index)).collect();
    wait_for_equal_ends(driver, cluster, &node, &partitions);
    // Two members of the same family in one program: both get partitions, then one leaves.
    let program = "
import sys, time
from confluent_kafka import Consumer
def make(name):
    consumer = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'pair', 'client.id': name,
                         'auto.offset.reset': 'earliest', 'session.timeout.ms': 6000, 'heartbeat.interval.ms': 500})
    consumer.subscribe(['shared-out'])
    return consumer
one, two = make('one'), make('two')
seen = {}
def poll(consumer):
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        seen[(message.partition(), message.offset())] = seen.get((message.partition(), message.offset()), 0) + 1
deadline = time.time() + 40
while time.time() < deadline:
    poll(one); poll(two)
    if len(one.assignment()) == 2 and len(two.assignment()) == 2 and len(seen) == 400:
        break
print(len(one.assignment()), len(two.assignment()), len(seen))
one.close()
deadline = time.time() + 40
while time.time() < deadline and len(two.assignment()) < 4:
    poll(two)
print(len(two.assignment()))
two.close()
";
    let shared = python(program, &[&node.address()]);
    assert_eq!(shared.stdout, "2 2 400\n4\n", "{}", shared.stderr);
}

/// S-45: names of groups that contain the separators of everything, beside topics that do.
#[test]
fn groups_of_any_name_keep_their_own_offsets_over_restarts() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    let topics = ["own-1-b", "own-1"];
    for topic in topics {
        driver.create_topic(&source, topic, 2, &json!({}));
        driver.produce(&source, topic, 0, 100, "none");
    }
    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", &topics.join(","));
    wait_for_equal_ends(driver, cluster, &node, &[("own-1-b", 0), ("own-1", 0)]);
    let long = "g".repeat(249);
    let groups = [
        "own",
        "own-1",
        "own-1-b",
        "a b",
        "a  b",
        "a/b",
        "../../etc",
        "a,b:c;d",
        "gr\u{fc}n-\u{30b0}\u{30eb}\u{30fc}\u{30d7}-\u{1f980}",
        "quo\"te's\\",
        "tab\there",
        long.as_str(),
    ];
    // Each group a number of its own.
    let own = |group: usize| (topics[group % 2], 1 + group as i64);
    for (group, name) in groups.iter().enumerate() {
        let (topic, offset) = own(group);
        driver.must(&json!({"do": "commit", "bootstrap": node.address(), "group": name,
            "topic": topic, "offset": offset, "metadata": name}));
    }
    let check = |node: &testkit::Node| {
        for (group, name) in groups.iter().enumerate() {
            let found = driver
                .must(&json!({"do": "group_offsets", "bootstrap": node.address(), "group": name}));
            let (topic, offset) = own(group);
            assert_eq!(found, json!({(format!("{topic}-0")): offset}), "group {name:?}");
        }
    };
    check(&node);
    node.kill();
    node.restart();
    check(&node);
    node.stop();
    node.restart();
    check(&node);
    let listed = kafka_tool(
        "consumer.group.ConsumerGroupCommand",
        &["--bootstrap-server", &node.address(), "--list"],
    );
    let text = format!("{}{}", listed.stdout, listed.stderr);
    for name in &groups {
        assert!(listed.stdout.lines().any(|line| line == *name), "{name:?} is not in {text}");
    }
    node.assert_quiet_log(&[]);
}
