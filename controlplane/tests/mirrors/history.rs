//! One history: starts, gaps, divergence, recreated and deleted topics.

use scripted_source::{Batch, ScriptedCluster, keys};

use crate::support::{TestNode, a_few_refreshes};

fn filled(
    cluster: &ScriptedCluster,
    topic: &str,
    partition: usize,
    from: i64,
    to: i64,
    epoch: i32,
) {
    for base in (from..to).step_by(10) {
        cluster.append(topic, partition, &Batch::filled(base, epoch, 10.min(to - base), 20));
    }
}

fn source_bytes(cluster: &ScriptedCluster, topic: &str, partition: usize) -> Vec<u8> {
    cluster.change(topic, partition, |log| log.bytes())
}

#[test]
fn every_byte_of_a_topic_is_the_sources() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(2));
    cluster.create_topic("t", 3, 1);
    for partition in 0..3 {
        filled(&cluster, "t", partition, 0, 200, 0);
    }
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    for partition in 0..3 {
        node.wait_end("m", "t", partition, 200);
        filled(&cluster, "t", partition as usize, 200, 300, 0);
        node.wait_end("m", "t", partition, 300);
    }
    node.stop();
    for partition in 0..3 {
        let ours = node.segment_bytes("t", partition);
        assert!(ours == source_bytes(&cluster, "t", partition as usize), "partition {partition}");
    }
}

/// S-04.
#[test]
fn a_log_that_begins_late_is_begun_there_without_a_fetch_out_of_range() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 5, 1);
    for partition in 0..5 {
        filled(&cluster, "t", partition, 5000, 5020, 0);
        cluster.change("t", partition, |log| log.log_start = 5000);
    }
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    for partition in 0..5 {
        node.wait_end("m", "t", partition, 5020);
        let ours = node.node().table().by_name("t", partition).unwrap();
        assert_eq!(ours.log.log_start().0, 5000);
    }
    for call in cluster.calls(keys::FETCH) {
        for partition in call.fetch().topics.iter().flat_map(|topic| &topic.partitions) {
            assert!(partition.fetch_offset >= 5000, "fetched at {}", partition.fetch_offset);
        }
    }
}

/// S-02, both policies.
#[test]
fn a_gap_is_passed_and_counted_or_halts_its_partition_only() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    for topic in ["goes-on", "halts"] {
        cluster.create_topic(topic, 2, 1);
        for partition in 0..2 {
            filled(&cluster, topic, partition, 0, 100, 0);
        }
    }
    node.create("m", &cluster, &[]);
    node.create("strict", &cluster, &[("mirror.gap.policy", "halt")]);
    node.start_topics("m", &["goes-on"]);
    node.start_topics("strict", &["halts"]);
    for partition in 0..2 {
        node.wait_end("m", "goes-on", partition, 100);
        node.wait_end("strict", "halts", partition, 100);
    }
    node.stop();
    for topic in ["goes-on", "halts"] {
        filled(&cluster, topic, 0, 100, 300, 0);
        cluster.change(topic, 0, |log| log.log_start = 250);
        filled(&cluster, topic, 1, 100, 110, 0);
    }
    node.restart();
    node.wait_end("m", "goes-on", 0, 300);
    let row = node.row("m", "goes-on", 0).unwrap();
    let note = row.error_message.unwrap_or_default();
    assert!(note.contains("150") && note.contains("100 to 249"), "{note:?}");
    let ours = node.node().table().by_name("goes-on", 0).unwrap();
    assert_eq!((ours.log.log_start().0, ours.log.log_end().0), (250, 300));

    let halted = node.wait_failed("strict", "halts", 0, "100 to 249");
    assert_eq!((halted.destination_offset, halted.retry_attempt), (100, -1));
    node.wait_end("strict", "halts", 1, 110);
    // It stays so over a restart, until an operator starts it again.
    node.stop();
    node.restart();
    node.wait_failed("strict", "halts", 0, "100 to 249");
    node.start_topics("strict", &["halts"]);
    node.wait_end("strict", "halts", 0, 300);
}

#[test]
fn an_unclean_election_fails_the_partition_with_both_numbers_and_drops_nothing() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 2, 1);
    filled(&cluster, "t", 0, 0, 100, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 100);
    cluster.change("t", 0, |log| {
        log.truncate(60);
        log.leader_epoch = 1;
    });
    filled(&cluster, "t", 0, 60, 120, 1);
    let failed = node.wait_failed("m", "t", 0, "diverged at offset 60");
    let message = failed.error_message.unwrap();
    assert!(message.contains("40 records beyond would have to be dropped"), "{message}");
    assert!(message.contains("mirror.support.unclean.leader.election=true"), "{message}");
    a_few_refreshes();
    assert_eq!(node.row("m", "t", 0).unwrap().destination_offset, 100);
    filled(&cluster, "t", 1, 0, 10, 0);
    node.wait_end("m", "t", 1, 10);
}

#[test]
fn an_accepted_divergence_ends_with_the_sources_bytes() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    filled(&cluster, "t", 0, 0, 100, 0);
    node.create("m", &cluster, &[("mirror.support.unclean.leader.election", "true")]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 100);
    cluster.change("t", 0, |log| {
        log.truncate(60);
        log.leader_epoch = 1;
    });
    filled(&cluster, "t", 0, 60, 120, 1);
    node.wait_end("m", "t", 0, 120);
    node.stop();
    assert!(node.segment_bytes("t", 0) == source_bytes(&cluster, "t", 0));
}

#[test]
fn a_source_that_lost_its_tail_in_the_same_epoch_is_not_followed_back() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    filled(&cluster, "t", 0, 0, 100, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 100);
    node.stop();
    cluster.change("t", 0, |log| log.truncate(50));
    node.restart();
    let failed = node.wait_failed("m", "t", 0, "diverged at offset 50");
    assert_eq!(failed.destination_offset, 100);
}

/// S-03.
#[test]
fn a_recreated_topic_is_named_kept_and_never_mixed() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 2, 1);
    filled(&cluster, "t", 0, 0, 100, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 100);
    let old = source_bytes(&cluster, "t", 0);
    cluster.delete_topic("t");
    cluster.create_topic("t", 1, 2);
    filled(&cluster, "t", 0, 0, 500, 0);
    for partition in 0..2 {
        let failed = node.wait_failed("m", "t", partition, "recreated at the source");
        assert_eq!(failed.retry_attempt, -1);
    }
    let refused = node.try_start("m", &["t"], &[]).unwrap().remove(0).error.unwrap();
    assert_eq!(refused.code, 103);
    node.stop();
    assert!(node.segment_bytes("t", 0) == old);
    node.restart();
    node.wait_failed("m", "t", 0, "recreated at the source");
    assert_eq!(node.row("m", "t", 0).unwrap().destination_offset, 100);
}

#[test]
fn a_deleted_topic_is_named_and_one_that_was_only_hidden_goes_on() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    cluster.create_topic("other", 1, 1);
    filled(&cluster, "t", 0, 0, 10, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t", "other"]);
    node.wait_end("m", "t", 0, 10);
    cluster.delete_topic("t");
    node.wait_failed("m", "t", 0, "deleted at the source");
    filled(&cluster, "other", 0, 0, 10, 0);
    node.wait_end("m", "other", 0, 10);
    // The same id again: the broker had not known it for a while.
    cluster.create_topic("t", 1, 1);
    filled(&cluster, "t", 0, 0, 30, 0);
    node.wait_end("m", "t", 0, 30);
}

/// S-23.
#[test]
fn new_partitions_are_copied_from_their_first_record() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(2));
    cluster.create_topic("t", 3, 1);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 2, 0);
    cluster.grow_topic("t", 6);
    for partition in 3..6 {
        filled(&cluster, "t", partition, 0, 40, 0);
    }
    for partition in 3..6 {
        node.wait_end("m", "t", partition, 40);
    }
}

/// P2: refused before a byte of it is stored.
#[test]
fn another_cluster_behind_the_address_stops_the_mirror_by_name() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    filled(&cluster, "t", 0, 0, 50, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 50);
    cluster.set_cluster_id("another-cluster");
    cluster.disconnect(1);
    let failed = node.wait_row("m", "t", 0, "to stop for good", |row| {
        row.retry_attempt == -1
            && row.error_message.as_ref().is_some_and(|m| m.contains("another-cluster"))
    });
    filled(&cluster, "t", 0, 50, 100, 0);
    a_few_refreshes();
    assert_eq!((failed.state, failed.destination_offset), ("FAILED", 50));
    assert_eq!(node.row("m", "t", 0).unwrap().destination_offset, 50);
    assert!(node.describe("m").error_message.unwrap().contains("scripted-source-cluster"));
    let refused = node.try_start("m", &["t"], &[]).unwrap_err();
    assert!(refused.message.contains("another-cluster"), "{}", refused.message);
    // The operator corrects the address and says so.
    cluster.set_cluster_id("scripted-source-cluster");
    cluster.disconnect(1);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 100);
}
