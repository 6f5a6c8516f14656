//! A source that misbehaves as real ones do.

use scripted_source::{Batch, Reply, ScriptedCluster, damaged, keys};

use crate::support::{TestNode, wait};

fn append(cluster: &ScriptedCluster, from: i64, to: i64, epoch: i32) {
    cluster.append("t", 0, &Batch::filled(from, epoch, to - from, 20));
}

/// A node that has mirrored ten records of `t`, led by broker 1 of two.
fn mirrored() -> (TestNode, ScriptedCluster) {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(2));
    cluster.create_topic("t", 1, 1);
    append(&cluster, 0, 10, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 10);
    (node, cluster)
}

#[test]
fn a_moved_leader_is_followed() {
    let (node, cluster) = mirrored();
    for (epoch, leader) in [(1, 2), (2, 1), (3, 2)] {
        cluster.change("t", 0, |log| {
            log.leader = leader;
            log.leader_epoch = epoch;
        });
        let from = 10 * i64::from(epoch);
        append(&cluster, from, from + 10, epoch);
        node.wait_end("m", "t", 0, from + 10);
        let ours = node.node().table().by_name("t", 0).unwrap();
        assert_eq!(ours.advertised_epoch().0, epoch);
    }
}

/// S-14: stored before it is advertised.
#[test]
fn the_advertised_epoch_does_not_fall_over_a_restart_without_records_of_it() {
    let (mut node, cluster) = mirrored();
    cluster.change("t", 0, |log| log.leader_epoch = 9);
    let epoch = |node: &TestNode| node.node().table().by_name("t", 0).unwrap().advertised_epoch().0;
    assert!(wait(|| (epoch(&node) == 9).then_some(())).is_some());
    node.stop();
    drop(cluster);
    node.restart();
    assert_eq!(epoch(&node), 9);
}

#[test]
fn a_dead_broker_is_shown_and_its_return_at_another_address_found() {
    let (node, mut cluster) = mirrored();
    cluster.stop_broker(1);
    let failed = node.wait_failed("m", "t", 0, "broker 1");
    assert!(failed.retry_attempt > 0, "{failed:?}");
    assert_eq!(failed.source_offset, None, "no lag is made up");
    cluster.start_broker(1);
    append(&cluster, 10, 20, 0);
    node.wait_end("m", "t", 0, 20);
    assert!(wait(|| node.row("m", "t", 0)?.error_message.is_none().then_some(())).is_some());
}

#[test]
fn cut_connections_are_made_again() {
    let (node, cluster) = mirrored();
    for round in 1..5 {
        cluster.disconnect(1);
        append(&cluster, 10 * round, 10 * round + 10, 0);
        node.wait_end("m", "t", 0, 10 * round + 10);
    }
}

#[test]
fn a_node_that_starts_without_its_source_serves_what_it_has_and_goes_on_later() {
    let (mut node, mut cluster) = mirrored();
    node.stop();
    cluster.stop_broker(1);
    cluster.stop_broker(2);
    node.restart();
    let ours = node.node().table().by_name("t", 0).expect("served at once");
    assert_eq!(ours.log.log_end().0, 10);
    let failed = node.wait_failed("m", "t", 0, "cannot connect");
    assert_eq!(failed.source_offset, None);
    assert!(node.describe("m").error_message.unwrap().contains("cannot connect"));
    drop(cluster);
}

/// One bad batch stops its own partition, is named, and is got over when the source mends it.
#[test]
fn a_damaged_batch_fails_its_partition_by_name_until_it_is_mended() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 2, 1);
    append(&cluster, 0, 10, 0);
    let bad = damaged(Batch::filled(10, 0, 10, 20).encode());
    cluster.change("t", 0, |log| log.append_bytes(10..20, 0, bad));
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    let failed = node.wait_failed("m", "t", 0, "checksum");
    assert_eq!(failed.destination_offset, 10);
    node.wait_row("m", "t", 0, "to be retried", |row| row.retry_attempt > 2);
    cluster.append("t", 1, &Batch::filled(0, 0, 5, 20));
    node.wait_end("m", "t", 1, 5);
    cluster.change("t", 0, |log| log.truncate(10));
    append(&cluster, 10, 20, 0);
    node.wait_end("m", "t", 0, 20);
}

/// S-07: what an epoch brings is stored when the source has confirmed the epoch, not before.
#[test]
fn a_batch_of_an_unconfirmed_epoch_is_not_stored() {
    let (mut node, cluster) = mirrored();
    // A late answer: the batch of epoch 1 arrives while metadata still says 0.
    cluster.change("t", 0, |log| {
        let batch = Batch::filled(10, 1, 10, 30);
        log.append_bytes(10..20, 1, batch.encode());
    });
    let stopped = node.wait_row("m", "t", 0, "to stop at the new epoch", |row| {
        row.error_message.as_ref().is_some_and(|m| m.contains("epoch 1"))
    });
    assert_eq!(stopped.destination_offset, 10);
    // The leader of epoch 1 has other bytes there.
    cluster.change("t", 0, |log| {
        log.truncate(10);
        log.leader_epoch = 1;
    });
    append(&cluster, 10, 20, 1);
    node.wait_end("m", "t", 0, 20);
    node.stop();
    assert!(node.segment_bytes("t", 0) == cluster.change("t", 0, |log| log.bytes()));
}

/// S-37: what the disk did not take is fetched again when it does, and the rest goes on meanwhile.
#[test]
fn a_partition_whose_disk_fails_is_opened_anew_when_it_is_back() {
    let (mut node, cluster) = (
        TestNode::with(|config| config.storage.segment_bytes_max = 4096),
        ScriptedCluster::start(1),
    );
    cluster.create_topic("t", 2, 1);
    append(&cluster, 0, 10, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 10);
    let (folder, away) = (node.data().join("t-0"), node.data().join("away"));
    std::fs::rename(&folder, &away).unwrap();
    for from in (10..200).step_by(10) {
        append(&cluster, from, from + 10, 0);
    }
    let failed = node.wait_failed("m", "t", 0, "t-0");
    assert!(failed.error_message.unwrap().contains("disk error"));
    cluster.append("t", 1, &Batch::filled(0, 0, 5, 20));
    node.wait_end("m", "t", 1, 5);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::rename(&away, &folder).unwrap();
    node.wait_end("m", "t", 0, 200);
    node.stop();
    assert!(node.segment_bytes("t", 0) == cluster.change("t", 0, |log| log.bytes()));
}

#[test]
fn a_partition_whose_permission_is_lost_says_so_and_shows_no_lag() {
    let (node, cluster) = mirrored();
    cluster.change("t", 0, |log| log.error = 29);
    let failed = node.wait_failed("m", "t", 0, "TOPIC_AUTHORIZATION_FAILED");
    assert_eq!(failed.source_offset, None);
    cluster.change("t", 0, |log| log.error = 0);
    append(&cluster, 10, 20, 0);
    node.wait_end("m", "t", 0, 20);
}

/// A source before 2.8: no ids, fetched by name, with an id of our own towards consumers.
#[test]
fn a_source_without_topic_ids_is_mirrored_by_name() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.set_versions(keys::METADATA, 0, 9);
    cluster.create_topic("t", 1, 1);
    append(&cluster, 0, 10, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 10);
    assert!(cluster.calls(keys::FETCH).iter().all(|call| call.version <= 12));
    assert!(!node.node().table().by_name("t", 0).unwrap().topic_id.is_zero());
}

/// S-03 without ids: the new log is longer than ours, in the same epoch.
#[test]
fn a_recreated_topic_without_an_id_is_told_by_its_last_batch() {
    for fetch_version in [4, 11, 12] {
        recreated_without_an_id(fetch_version);
    }
}

fn recreated_without_an_id(fetch_version: i16) {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.set_versions(keys::METADATA, 0, 9);
    cluster.set_versions(keys::FETCH, 0, fetch_version);
    cluster.create_topic("t", 1, 1);
    append(&cluster, 0, 10, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 10);
    // The same topic is the same after a restart.
    node.stop();
    node.restart();
    append(&cluster, 10, 20, 0);
    node.wait_end("m", "t", 0, 20);
    let old = cluster.change("t", 0, |log| log.bytes());
    node.stop();
    cluster.delete_topic("t");
    cluster.create_topic("t", 1, 2);
    for base in (0..100).step_by(10) {
        cluster.append("t", 0, &Batch::filled(base, 0, 10, 33));
    }
    node.restart();
    let failed = node.wait_failed("m", "t", 0, "recreated at the source");
    assert_eq!((failed.retry_attempt, failed.destination_offset), (-1, 20));
    node.stop();
    assert!(node.segment_bytes("t", 0) == old);
}

/// A broker of before 2.4 does not know the version of ApiVersions that we ask first.
#[test]
fn an_old_broker_is_asked_for_its_versions_in_the_oldest_way() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.set_versions(keys::API_VERSIONS, 0, 2);
    cluster.create_topic("t", 1, 1);
    append(&cluster, 0, 10, 0);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 10);
}

/// S-42: before the deadline ends its connection, a broker that does not answer any more is named.
#[test]
fn a_broker_that_has_gone_silent_is_named_while_the_others_are_not() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(2));
    cluster.create_topic("t", 2, 1);
    cluster.change("t", 1, |log| log.leader = 2);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 0);
    node.wait_end("m", "t", 1, 0);
    cluster.silence(1);
    // Both are idle: no record tells them apart.
    let row = node.wait_row("m", "t", 0, "to name its broker", |row| row.error_message.is_some());
    let cause = row.error_message.unwrap_or_default();
    assert!(cause.starts_with("broker 1 has begun no answer for "), "{cause}");
    assert_eq!((row.state, row.retry_attempt), ("MIRRORING", 0));
    assert_eq!(node.row("m", "t", 1).unwrap().error_message, None);
}

/// S-42, for questions: a broker that has gone silent does not keep the others from being asked.
#[test]
fn metadata_is_had_from_another_broker_when_one_is_silent() {
    let (node, cluster) = mirrored();
    cluster.on(keys::METADATA, |call| match call.broker {
        1 => Reply::Silence,
        _ => Reply::Ordinary,
    });
    cluster.change("t", 0, |log| {
        log.leader = 2;
        log.leader_epoch = 1;
    });
    append(&cluster, 10, 20, 1);
    node.wait_end("m", "t", 0, 20);
    assert_eq!(node.describe("m").error_message, None);
}

#[test]
fn a_source_that_closes_every_metadata_connection_is_asked_with_patience() {
    let (node, cluster) = mirrored();
    cluster.on(keys::METADATA, |_| Reply::Close);
    assert!(wait(|| node.describe("m").error_message).is_some());
    append(&cluster, 10, 20, 0);
    node.wait_row("m", "t", 0, "to go on meanwhile", |row| row.destination_offset == 20);
    cluster.on(keys::METADATA, |_| Reply::Ordinary);
    assert!(wait(|| node.describe("m").error_message.is_none().then_some(())).is_some());
}
