//! Transactions: what read-committed consumers see of committed, aborted and open ones.

use serde_json::json;
use testkit::{assert_logs_equal, dump_log_segments, wait_for_equal_ends};

use crate::{driver, node, node_with, shared_cluster};

/// S-09: an open transaction hides what follows, before and after a restart; an aborted one itself.
#[test]
fn the_last_stable_offset_holds_across_a_restart() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "open-transaction", 1, &json!({}));
    driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "open-transaction", "producer": "opener",
        "transactional_id": "opener", "transaction": "open", "count": 10}));
    driver.produce(&source, "open-transaction", 100, 5, "none");

    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "open-transaction");
    node.wait_for_offset("open-transaction", 0, 15);
    let read = |node: &testkit::Node, isolation: &str, wait_ms: u32| {
        driver.consume(
            &json!({"do": "consume", "bootstrap": node.address(), "topic": "open-transaction",
            "isolation": isolation, "max": 15, "timeout_ms": wait_ms}),
        )
    };
    assert_eq!(read(&node, "read_committed", 2000).count, 0);
    assert_eq!(read(&node, "read_uncommitted", 20_000).count, 15);
    node.kill();
    node.restart();
    assert_eq!(read(&node, "read_committed", 2000).count, 0);
    node.stop();
    node.restart();
    assert_eq!(read(&node, "read_committed", 2000).count, 0);

    driver.must(&json!({"do": "end_transaction", "bootstrap": source, "producer": "opener", "commit": false}));
    node.wait_for_offset("open-transaction", 0, 16);
    let committed = driver.consume(
        &json!({"do": "consume", "bootstrap": node.address(), "topic": "open-transaction",
        "isolation": "read_committed", "max": 5, "timeout_ms": 20_000}),
    );
    assert_eq!(committed.offsets, [10, 11, 12, 13, 14]);
    assert_eq!(read(&node, "read_committed", 2000).count, 5);
}

/// S-28: many short transactions of two producers, interleaved over tiny segments. From whichever
/// offset a reader begins, it sees what it would see at the source.
#[test]
fn aborted_records_stay_hidden_from_every_start_offset_over_segment_edges() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "interleaved", 1, &json!({}));
    for round in 0..40 {
        for (producer, end) in [("one", round % 3 == 0), ("two", round % 2 == 0)] {
            driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "interleaved", "producer": producer,
                "transactional_id": producer, "transaction": "open", "first": round * 5, "count": 5}));
            if producer == "two" {
                continue;
            }
            driver.must(&json!({"do": "end_transaction", "bootstrap": source, "producer": producer, "commit": end}));
        }
        driver.must(&json!({"do": "end_transaction", "bootstrap": source, "producer": "two", "commit": round % 2 == 0}));
    }
    let mut node = node_with("[storage]\nsegment_bytes_max = 4096\n");
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "interleaved");
    wait_for_equal_ends(driver, cluster, &node, &[("interleaved", 0)]);

    let (_, end) = driver.offsets(&source, "interleaved", 0);
    let compare = |node: &testkit::Node| {
        for from in (0..end).step_by(37) {
            let read = |bootstrap: &str| {
                driver.consume(&json!({"do": "consume", "bootstrap": bootstrap, "topic": "interleaved", "partition": 0,
                    "from": from, "isolation": "read_committed", "timeout_ms": 700}))
            };
            let (expected, found) = (read(&source), read(&node.address()));
            assert_eq!(found.offsets, expected.offsets, "from {from}");
            assert_eq!(found.digest, expected.digest, "from {from}");
        }
    };
    compare(&node);
    node.kill();
    node.restart();
    compare(&node);
    node.stop();
    assert_logs_equal(&cluster.data(0).join("interleaved-0"), &node.data().join("interleaved-0"));
    dump_log_segments(&node.data().join("interleaved-0"));
}
