//! Stops and restarts.

use scripted_source::{Batch, ScriptedCluster};

use crate::support::TestNode;

#[test]
fn a_restart_goes_on_where_it_was_without_an_operator() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 4, 1);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    for round in 0..3 {
        for partition in 0..4 {
            cluster.append("t", partition, &Batch::filled(round * 10, 0, 10, 50));
        }
        for partition in 0..4 {
            node.wait_end("m", "t", partition, round * 10 + 10);
        }
        node.stop();
        for partition in 0..4 {
            let ours = node.segment_bytes("t", partition);
            assert!(ours == cluster.change("t", partition as usize, |log| log.bytes()));
        }
        node.restart();
    }
    let listed = node.node().runtime().block_on(node.node().mirrors().list());
    assert_eq!(listed[0].topics, ["t"]);
    assert_eq!(listed[0].source_cluster_id, "scripted-source-cluster");
}

/// S-45.
#[test]
fn names_that_look_like_other_partitions_are_kept_apart() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    let long = "x".repeat(249);
    let names = ["a-1-b", "a-1", "a", "a.b", "a_b", "1", long.as_str()];
    node.create("m", &cluster, &[]);
    for (number, name) in names.iter().enumerate() {
        cluster.create_topic(name, 2, 1);
        cluster.append(name, 1, &Batch::filled(0, 0, number as i64 + 1, 10));
        node.start_topics("m", &[name]);
    }
    for _ in 0..2 {
        for (number, name) in names.iter().enumerate() {
            node.wait_end("m", name, 0, 0);
            node.wait_end("m", name, 1, number as i64 + 1);
        }
        node.stop();
        node.restart();
    }
}

#[test]
fn a_log_made_before_a_crash_that_the_store_knows_nothing_of_is_taken_up() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    cluster.append("t", 0, &Batch::filled(0, 0, 10, 10));
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 10);
    node.stop();
    // As if the store had been lost with the disk it was on.
    std::fs::remove_file(node.data().join(".longhaul/metadata.redb")).unwrap();
    node.restart();
    node.create("m", &cluster, &[]);
    cluster.append("t", 0, &Batch::filled(10, 0, 10, 10));
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 20);
    node.stop();
    assert!(node.segment_bytes("t", 0) == cluster.change("t", 0, |log| log.bytes()));
}

#[test]
fn a_folder_of_another_topic_is_neither_served_nor_written_to() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    cluster.append("t", 0, &Batch::filled(0, 0, 10, 100));
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 10);
    node.stop();
    // As if the folder of an older topic of that name had been put back.
    let file = node.data().join("t-0/partition.metadata");
    let ours = std::fs::read_to_string(&file).unwrap();
    let other = storage::TopicId([9; 16]);
    std::fs::write(&file, format!("version: 0\ntopic_id: {other}\n")).unwrap();
    node.restart();
    let row = node.wait_failed("m", "t", 0, "has a t-0 of another topic");
    assert!(row.error_message.unwrap().contains(&other.to_string()));
    assert!(node.node().table().by_name("t", 0).is_none());
    node.stop();
    std::fs::write(&file, ours).unwrap();
    node.restart();
    node.wait_end("m", "t", 0, 10);
}

#[test]
fn a_second_node_on_the_same_directory_or_port_is_refused_with_a_sentence() {
    let node = TestNode::start();
    let config = longhaul_controlplane::config::NodeConfig {
        data_dirs: vec![node.data().to_owned()],
        listen: "127.0.0.1:0".to_owned(),
        ..longhaul_controlplane::config::NodeConfig::default()
    };
    let error = longhaul_controlplane::node::Node::start(&config).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let address = node.node().address().to_string();
    let config = longhaul_controlplane::config::NodeConfig {
        data_dirs: vec![directory.path().to_owned()],
        listen: address.clone(),
        ..longhaul_controlplane::config::NodeConfig::default()
    };
    let error = longhaul_controlplane::node::Node::start(&config).unwrap_err().to_string();
    assert!(error.contains(&address), "{error}");
}
