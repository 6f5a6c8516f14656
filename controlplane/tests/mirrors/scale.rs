//! Many partitions: batched questions, bounded memory, none left standing.

use scripted_source::{ScriptedCluster, keys};

use crate::support::{TestNode, wait};

const PARTITIONS: usize = 2_000;

#[test]
fn thousands_of_partitions_are_aligned_with_a_handful_of_requests() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(2));
    cluster.create_topic("wide", PARTITIONS, 1);
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["wide"]);
    let all_mirror = |node: &TestNode| {
        let rows = node.describe("m").partitions;
        let mirroring = rows.iter().filter(|row| row.state == "MIRRORING").count();
        (rows.len() == PARTITIONS && mirroring == PARTITIONS).then_some(())
    };
    assert!(wait(|| all_mirror(&node)).is_some());
    let asked = cluster.calls(keys::LIST_OFFSETS).len();
    assert!(asked <= 12, "{asked} ListOffsets requests for two brokers");
    node.stop();
    node.restart();
    assert!(wait(|| all_mirror(&node)).is_some());
}
