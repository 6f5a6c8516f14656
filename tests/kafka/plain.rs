//! The main job: a real topic reaches a real consumer, byte for byte.

use serde_json::json;
use testkit::{assert_logs_equal, dump_log_segments, wait_for_equal_ends};

use crate::{driver, node, shared_cluster};

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
