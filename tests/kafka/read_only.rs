//! S-34, S-33: a mirror is read-only, and says so in words every client understands.

use std::time::Duration;

use serde_json::json;
use testkit::{kafka_tool, kcat, python, wait_for_equal_ends};

use crate::{driver, node, shared_cluster};

#[test]
fn every_way_to_write_is_refused_at_once_and_nothing_changes() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "sealed", 1, &json!({}));
    driver.produce(&source, "sealed", 0, 10, "none");
    let node = node();
    node.create_mirror("keeper", &source, &[]);
    node.start_topics("keeper", "sealed");
    wait_for_equal_ends(driver, cluster, &node, &[("sealed", 0)]);
    let address = node.address();

    for idempotent in ["true", "false"] {
        let refused = driver
            .call(&json!({"do": "produce", "bootstrap": address, "topic": "sealed", "count": 1,
                "config": {"enable.idempotence": idempotent}}))
            .expect_err("a write to a mirror");
        assert!(refused.message.contains("keeper"), "{refused:?} names the mirror");
        assert!(
            !refused.class.contains("Timeout"),
            "{refused:?} is final, not a retry that ran out"
        );
    }
    driver
        .call(&json!({"do": "produce", "bootstrap": address, "topic": "sealed", "count": 1,
            "transactional_id": "t", "transaction": "commit"}))
        .expect_err("a transaction on a mirror");
    let pipe = format!("echo x | kcat -b {address} -P -t sealed -X message.timeout.ms=20000");
    let refused = testkit::run("bash", &["-o", "pipefail", "-c", &pipe], Duration::from_secs(40));
    assert!(refused.stderr.contains("Delivery failed"), "{}", refused.stderr);
    let program = "
import sys
from kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1], retries=3, request_timeout_ms=10000, max_block_ms=10000)
try:
    producer.send('sealed', b'x').get(timeout=20)
    print('written')
except Exception as problem:
    print('refused', type(problem).__name__)
";
    let refused = python(program, &[&address]);
    assert!(refused.stdout.starts_with("refused"), "{}{}", refused.stdout, refused.stderr);

    let doors = [
        json!({"do": "delete_records", "bootstrap": address, "topic": "sealed", "before": 5}),
        json!({"do": "add_partitions", "bootstrap": address, "topic": "sealed", "partitions": 3}),
        json!({"do": "alter_config", "bootstrap": address, "topic": "sealed", "config": {"retention.ms": "1"}}),
        json!({"do": "delete_topic", "bootstrap": address, "topic": "sealed"}),
        json!({"do": "create_topic", "bootstrap": address, "topic": "sealed-too"}),
    ];
    for door in doors {
        let refused = driver.call(&door).expect_err("a change to a mirror");
        assert!(!refused.class.contains("Timeout"), "{door}: {refused:?}");
    }
    assert_eq!(driver.offsets(&address, "sealed", 0), (0, 10));
    assert_eq!(driver.offsets(&source, "sealed", 0), (0, 10), "the source is never written to");
}

#[test]
fn asking_for_an_unknown_topic_creates_nothing() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "later.*");
    let asked =
        kcat(&["-b", &node.address(), "-L", "-t", "later", "-X", "allow.auto.create.topics=true"]);
    assert!(asked.stdout.contains("Unknown topic"), "{}", asked.stdout);
    driver.create_topic(&source, "later", 12, &json!({}));
    testkit::wait_until("the topic to appear", Duration::from_secs(20), || {
        (node.describe().len() == 12).then_some(())
    });
    let listed = kafka_tool(
        "TopicCommand",
        &["--bootstrap-server", &node.address(), "--describe", "--topic", "later"],
    );
    assert!(listed.stdout.contains("PartitionCount: 12"), "{}", listed.stdout);
}
