//! Stock clients of every family at the node's port.

use serde_json::json;
use testkit::{kafka_tool, kcat, python, wait_for_equal_ends};

use crate::{driver, node, shared_cluster};

#[test]
fn java_librdkafka_and_python_read_the_same_records() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "families", 1, &json!({}));
    for codec in ["none", "lz4", "zstd", "snappy", "gzip"] {
        driver.produce(&source, "families", 0, 200, codec);
    }
    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "families");
    wait_for_equal_ends(driver, cluster, &node, &[("families", 0)]);
    let address = node.address();

    let console = kafka_tool(
        "consumer.ConsoleConsumer",
        &[
            "--bootstrap-server",
            &address,
            "--topic",
            "families",
            "--from-beginning",
            "--max-messages",
            "1000",
            "--timeout-ms",
            "20000",
        ],
    );
    assert!(console.stderr.contains("Processed a total of 1000 messages"), "{}", console.stderr);

    let read = kcat(&[
        "-b",
        &address,
        "-C",
        "-t",
        "families",
        "-o",
        "beginning",
        "-e",
        "-q",
        "-f",
        "%o\n",
    ]);
    let offsets: Vec<i64> = read.stdout.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(offsets, (0..1000).collect::<Vec<_>>(), "{}", read.stderr);

    let program = "
import sys
from kafka import KafkaConsumer, TopicPartition
consumer = KafkaConsumer(bootstrap_servers=sys.argv[1], consumer_timeout_ms=8000)
partition = TopicPartition('families', 0)
consumer.assign([partition])
consumer.seek_to_beginning(partition)
print([record.offset for record in consumer] == list(range(1000)))
print(consumer.end_offsets([partition])[partition])
";
    let read = python(program, &[&address]);
    assert_eq!(read.stdout, "True\n1000\n", "{}", read.stderr);
    node.assert_quiet_log(&[]);
}

#[test]
fn kafkas_own_tools_show_the_topic_and_its_offsets() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "tools", 2, &json!({}));
    driver.produce(&source, "tools", 0, 42, "none");
    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "tools");
    wait_for_equal_ends(driver, cluster, &node, &[("tools", 0)]);
    let address = node.address();
    let id = |bootstrap: &str| {
        driver.must(&json!({"do": "describe_topic", "bootstrap": bootstrap, "topic": "tools"}))["id"].clone()
    };
    assert_eq!(id(&address), id(&source), "the topic id is the source's");

    let described = kafka_tool(
        "TopicCommand",
        &["--bootstrap-server", &address, "--describe", "--topic", "tools"],
    );
    assert!(
        described.stdout.contains("PartitionCount: 2"),
        "{}{}",
        described.stdout,
        described.stderr
    );
    let offsets =
        kafka_tool("GetOffsetShell", &["--bootstrap-server", &address, "--topic", "tools"]);
    assert!(offsets.stdout.contains("tools:0:42"), "{}{}", offsets.stdout, offsets.stderr);
    let versions = kafka_tool("BrokerApiVersionsCommand", &["--bootstrap-server", &address]);
    assert!(versions.stdout.contains("Fetch(1): 4 to"), "{}{}", versions.stdout, versions.stderr);
    let listed = kcat(&["-b", &address, "-L"]);
    assert!(listed.stdout.contains("topic \"tools\" with 2 partitions"), "{}", listed.stdout);
    // An epoch is reported with every special timestamp.
    let max = driver.must(&json!({"do": "offsets", "bootstrap": address, "topic": "tools"}));
    assert_eq!((&max["earliest"], &max["latest"]), (&json!(0), &json!(42)));
    let source_max = driver.must(&json!({"do": "offsets", "bootstrap": source, "topic": "tools"}));
    assert_eq!(max["max_timestamp"], source_max["max_timestamp"]);
}
