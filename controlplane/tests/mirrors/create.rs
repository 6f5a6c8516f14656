//! Creating mirrors and starting topics: what is refused, and with which words.

use scripted_source::{Batch, ScriptedCluster, keys};

use crate::support::{TestNode, a_few_refreshes, wait};

/// S-44: every problem at once.
#[test]
fn a_source_that_cannot_work_is_refused_with_every_reason() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bootstrap = format!("{},{nobody},no-such-host.invalid:1", cluster.bootstrap());
    let error = node.try_create("m", &bootstrap, &[]).unwrap_err();
    assert_eq!(error.code, 40);
    for part in ["bootstrap.servers: cannot connect", "bootstrap.servers: cannot resolve"] {
        assert!(error.message.contains(part), "{part}: {}", error.message);
    }
    let error = node.try_create("m", "a:1", &[("fetch.max.byte", "1")]).unwrap_err();
    assert!(error.message.contains("did you mean fetch.max.bytes"), "{}", error.message);
    assert!(node.node().runtime().block_on(node.node().mirrors().list()).is_empty());
}

#[test]
fn names_are_checked_and_taken_once() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    for name in ["", "..", "a/b", "x y"] {
        assert_eq!(node.try_create(name, &cluster.bootstrap(), &[]).unwrap_err().code, 42);
    }
    node.create("m", &cluster, &[]);
    assert_eq!(node.try_create("m", &cluster.bootstrap(), &[]).unwrap_err().code, 136);
}

#[test]
fn a_node_does_not_mirror_itself_nor_another_cluster_than_the_one_named() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    let own = node.node().address().to_string();
    let error = node.try_create("m", &own, &[]).unwrap_err();
    assert!(error.message.contains("this node itself"), "{}", error.message);
    let pinned = [("source.cluster.id", "another")];
    let error = node.try_create("m", &cluster.bootstrap(), &pinned).unwrap_err();
    assert!(error.message.contains("source.cluster.id: is another"), "{}", error.message);
    node.try_create("m", &cluster.bootstrap(), &[("source.cluster.id", "scripted-source-cluster")])
        .unwrap();
}

#[test]
fn a_source_too_old_for_epochs_is_refused_by_the_request_it_lacks() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.set_versions(keys::OFFSET_FOR_LEADER_EPOCH, 0, 1);
    let error = node.try_create("m", &cluster.bootstrap(), &[]).unwrap_err();
    assert!(error.message.contains("OffsetForLeaderEpoch"), "{}", error.message);
}

#[test]
fn unknown_and_internal_topics_are_refused_by_name_and_the_others_start() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("known", 1, 1);
    cluster.create_topic("__consumer_offsets", 1, 1);
    node.create("m", &cluster, &[("topics.exclude", "")]);
    let results = node.try_start("m", &["known", "nope", "__consumer_offsets"], &[]).unwrap();
    let codes: Vec<_> =
        results.iter().map(|result| result.error.as_ref().map_or(0, |error| error.code)).collect();
    assert_eq!(codes, [0, 3, 17]);
    assert!(results[1].error.as_ref().unwrap().message.contains("nope"));
    node.wait_end("m", "known", 0, 0);
    assert_eq!(node.try_start("other", &["known"], &[]).unwrap_err().code, 137);
}

#[test]
fn a_topic_has_one_mirror() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    node.create("first", &cluster, &[]);
    node.create("second", &cluster, &[]);
    node.start_topics("first", &["t"]);
    node.start_topics("first", &["t"]);
    let refused = node.try_start("second", &["t"], &[]).unwrap().remove(0).error.unwrap();
    assert_eq!(refused.code, 138);
    assert!(refused.message.contains("first"), "{}", refused.message);
}

#[test]
fn patterns_take_up_topics_that_come_later_and_exclusion_wins() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("orders.old", 1, 1);
    node.create("m", &cluster, &[]);
    let started =
        node.try_start("m", &["orders[.].*"], &["orders.secret", "orders.tmp.*"]).unwrap();
    assert_eq!(started.len(), 1);
    for name in ["orders.new", "orders.secret", "orders.tmp1", "ordersX", "__orders.x"] {
        cluster.create_topic(name, 1, 1);
        cluster.append(name, 0, &Batch::new(0, 0, ["x"]));
    }
    node.wait_end("m", "orders.new", 0, 1);
    a_few_refreshes();
    let topics: Vec<_> = node.describe("m").partitions.into_iter().map(|row| row.topic).collect();
    assert_eq!(topics, ["orders.new", "orders.old"]);
}

#[test]
fn patterns_are_remembered_over_a_restart() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    node.create("m", &cluster, &[("topics.include", "configured-.*")]);
    assert!(node.try_start("m", &["a-.*"], &[]).unwrap().is_empty());
    node.stop();
    cluster.create_topic("a-1", 1, 1);
    cluster.create_topic("configured-1", 1, 1);
    node.restart();
    node.wait_end("m", "a-1", 0, 0);
    node.wait_end("m", "configured-1", 0, 0);
}

#[test]
fn contradictions_and_costly_patterns_are_refused() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    node.create("m", &cluster, &[]);
    for (include, exclude) in
        [(&["a"][..], &["a"][..]), (&["a(?=b)"], &[]), (&["x"], &["("]), (&[], &[])]
    {
        assert_eq!(node.try_start("m", include, exclude).unwrap_err().code, 42, "{include:?}");
    }
}

#[test]
fn a_topic_that_was_just_made_gets_its_leader_with_a_later_look() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    cluster.change("t", 0, |log| log.leader = -1);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_failed("m", "t", 0, "no leader");
    cluster.change("t", 0, |log| log.leader = 1);
    node.wait_end("m", "t", 0, 0);
    assert!(wait(|| node.row("m", "t", 0)?.error_message.is_none().then_some(())).is_some());
}
