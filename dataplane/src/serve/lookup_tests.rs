//! ListOffsets, OffsetForLeaderEpoch and the refusal of Produce, against real logs.

use std::sync::Arc;

use storage::{LeaderEpoch, Offset};

use super::testing::{Batch, Local, Node, topic_id};
use super::{epochs, errors, list_offsets, produce};
use crate::partition::Partition;
use crate::wire::{
    IsolationLevel, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
    OffsetForLeaderEpochPartition, OffsetForLeaderEpochRequest, OffsetForLeaderEpochTopic,
    ProduceRequest, ProduceTopic, TopicKey,
};

/// Error code, timestamp, offset and epoch.
type Found = (i16, i64, i64, i32);

struct Asked {
    timestamp: i64,
    version: i16,
    isolation: IsolationLevel,
    current_leader_epoch: i32,
}

impl Asked {
    fn of(timestamp: i64) -> Self {
        let isolation = IsolationLevel::ReadUncommitted;
        Self { timestamp, version: 11, isolation, current_leader_epoch: -1 }
    }
}

fn list(node: &Node, topic: &str, asked: &Asked) -> Found {
    let partition = ListOffsetsPartition {
        partition: 0,
        current_leader_epoch: asked.current_leader_epoch,
        timestamp: asked.timestamp,
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation: asked.isolation,
        topics: vec![ListOffsetsTopic { topic: topic.into(), partitions: vec![partition] }],
        timeout_ms: 0,
    };
    let answer = list_offsets::answer(&request, asked.version, &node.table);
    let found = answer.topics[0].partitions[0];
    (found.error_code, found.timestamp, found.offset, found.leader_epoch)
}

/// Epoch 1 at 0 to 9, epoch 3 at 10 to 11, then an open transaction at 12; the log starts at 5.
fn with_history(node: &Node) -> Local {
    let mut local = node.add("a", 0);
    local.append(&[Batch { epoch: 1, records: 10, timestamp: 100, ..Batch::at(0, 10) }]);
    local.append(&[
        Batch { epoch: 3, timestamp: 300, ..Batch::at(10, 10) },
        Batch { epoch: 3, timestamp: 200, ..Batch::at(11, 10) },
        Batch { epoch: 3, timestamp: 400, ..Batch::of_transaction(12, 7) },
    ]);
    local.log.advance_log_start(Offset(5)).expect("within the log");
    local
}

#[test]
fn special_timestamps_are_answered_as_kafka_does() {
    let node = Node::new();
    let _local = with_history(&node);
    let at = |timestamp| list(&node, "a", &Asked::of(timestamp));
    assert_eq!(at(-1), (0, -1, 13, 3));
    assert_eq!(at(-2), (0, -1, 5, 1));
    assert_eq!(at(-3), (0, 400, 12, 3));
    assert_eq!(at(-4), (0, -1, 5, 1));
    assert_eq!(at(-5), (0, -1, -1, -1), "nothing is tiered");
    assert_eq!(at(-6), (0, -1, -1, -1), "nothing is to be uploaded");
    let committed = |timestamp| {
        let isolation = IsolationLevel::ReadCommitted;
        list(&node, "a", &Asked { isolation, ..Asked::of(timestamp) })
    };
    assert_eq!(committed(-1), (0, -1, 12, 3), "the last stable offset");
    assert_eq!(committed(-3), (0, -1, -1, -1), "not to be seen yet");
}

#[test]
fn an_empty_log_starts_in_the_advertised_epoch() {
    let node = Node::new();
    let local = node.add("a", 0);
    let found = local.partition.clone();
    let epoch = LeaderEpoch(6);
    let advertised = Partition::new(
        found.id.clone(),
        found.topic_id,
        found.log.clone(),
        found.mirror.clone(),
        epoch,
    );
    node.table.insert(Arc::new(advertised));
    assert_eq!(list(&node, "a", &Asked::of(-2)), (0, -1, 0, 6));
    assert_eq!(list(&node, "a", &Asked::of(-1)), (0, -1, 0, 6));
}

#[test]
fn special_timestamps_are_unsupported_before_their_versions() {
    let node = Node::new();
    let _local = with_history(&node);
    let first_version = |timestamp| {
        (1..=11).find(|version| {
            let asked = Asked { version: *version, ..Asked::of(timestamp) };
            list(&node, "a", &asked).0 != errors::UNSUPPORTED_VERSION
        })
    };
    let first: Vec<_> = (-7..=-1).map(first_version).collect();
    assert_eq!(first, [None, Some(11), Some(9), Some(8), Some(7), Some(1), Some(1)]);
}

#[test]
fn offsets_are_found_by_time() {
    let node = Node::new();
    let _local = with_history(&node);
    let at = |timestamp| list(&node, "a", &Asked::of(timestamp));
    assert_eq!(at(0), (0, 100, 5, 1), "the first record that is left");
    assert_eq!(at(150), (0, 300, 10, 3));
    assert_eq!(at(400), (0, 400, 12, 3));
    assert_eq!(at(401), (0, -1, -1, -1));
    let isolation = IsolationLevel::ReadCommitted;
    let open = list(&node, "a", &Asked { isolation, ..Asked::of(400) });
    assert_eq!(open, (0, -1, -1, -1), "not to be seen yet");
}

#[test]
fn list_offsets_refuses_unknown_topics_other_epochs_and_duplicates() {
    let node = Node::new();
    let _local = with_history(&node);
    assert_eq!(list(&node, "b", &Asked::of(-1)).0, errors::UNKNOWN_TOPIC_OR_PARTITION);
    let at =
        |current_leader_epoch| list(&node, "a", &Asked { current_leader_epoch, ..Asked::of(-1) }).0;
    let codes = [errors::FENCED_LEADER_EPOCH, errors::NONE, errors::UNKNOWN_LEADER_EPOCH];
    assert_eq!([at(2), at(3), at(4)], codes);
    let partition = ListOffsetsPartition { partition: 0, current_leader_epoch: -1, timestamp: -1 };
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation: IsolationLevel::ReadUncommitted,
        topics: vec![ListOffsetsTopic { topic: "a".into(), partitions: vec![partition; 2] }],
        timeout_ms: 0,
    };
    let answer = list_offsets::answer(&request, 11, &node.table);
    let codes: Vec<i16> = answer.topics[0].partitions.iter().map(|one| one.error_code).collect();
    assert_eq!(codes, [errors::INVALID_REQUEST; 2]);
}

fn epoch_end(node: &Node, current_leader_epoch: i32, leader_epoch: i32) -> (i16, i32, i64) {
    let partition =
        OffsetForLeaderEpochPartition { partition: 0, current_leader_epoch, leader_epoch };
    let topics = vec![OffsetForLeaderEpochTopic { topic: "a".into(), partitions: vec![partition] }];
    let request = OffsetForLeaderEpochRequest { replica_id: -1, topics };
    let found = epochs::answer(&request, &node.table).topics[0].partitions[0];
    (found.error_code, found.leader_epoch, found.end_offset)
}

#[test]
fn epochs_end_where_the_next_known_one_begins() {
    let node = Node::new();
    let _local = with_history(&node);
    assert_eq!(epoch_end(&node, -1, -1), (0, -1, -1));
    assert_eq!(epoch_end(&node, -1, 0), (0, 0, 5), "before all that is left");
    assert_eq!(epoch_end(&node, -1, 1), (0, 1, 10));
    assert_eq!(epoch_end(&node, -1, 2), (0, 1, 10), "never here: the one below");
    assert_eq!(epoch_end(&node, -1, 3), (0, 3, 13));
    assert_eq!(epoch_end(&node, -1, 4), (0, -1, -1), "not known yet");
    assert_eq!(epoch_end(&node, 2, 1), (errors::FENCED_LEADER_EPOCH, -1, -1));
    assert_eq!(epoch_end(&node, 4, 1), (errors::UNKNOWN_LEADER_EPOCH, -1, -1));
    node.table.remove_topic("a");
    assert_eq!(epoch_end(&node, -1, 1), (errors::UNKNOWN_TOPIC_OR_PARTITION, -1, -1));
}

#[test]
fn an_advertised_epoch_without_batches_begins_and_ends_at_the_log_end() {
    let node = Node::new();
    let local = with_history(&node);
    let found = local.partition.clone();
    let restarted = Partition::new(
        found.id.clone(),
        found.topic_id,
        found.log.clone(),
        found.mirror.clone(),
        LeaderEpoch(6),
    );
    node.table.insert(Arc::new(restarted));
    assert_eq!(epoch_end(&node, 6, 6), (0, 6, 13));
    assert_eq!(epoch_end(&node, 6, 5), (0, 3, 13));
    assert_eq!(epoch_end(&node, 6, 3), (0, 3, 13));
    assert_eq!(epoch_end(&node, 6, 2), (0, 1, 10));
    assert_eq!(epoch_end(&node, 6, 7), (0, -1, -1));
    assert_eq!(epoch_end(&node, 5, 5).0, errors::FENCED_LEADER_EPOCH);
}

#[test]
fn every_write_is_refused_with_the_error_that_ends_it() {
    let node = Node::new();
    let _orders = node.add("orders", 0);
    let _internal = node.add("__consumer_offsets", 0);
    let keys = [
        TopicKey::Name("orders".into()),
        TopicKey::Id(topic_id("orders")),
        TopicKey::Name("__consumer_offsets".into()),
        TopicKey::Name("unknown".into()),
        TopicKey::Id(topic_id("unknown")),
    ];
    let topics = keys.iter().map(|key| ProduceTopic { topic: key.clone(), partitions: vec![0, 9] });
    let request = ProduceRequest { acks: 1, timeout_ms: 0, topics: topics.collect() };
    let answer = produce::refuse(&request, &node.table);
    let codes: Vec<i16> =
        answer.topics.iter().map(|topic| topic.partitions[1].error_code).collect();
    assert_eq!(
        codes,
        [
            errors::POLICY_VIOLATION,
            errors::POLICY_VIOLATION,
            errors::INVALID_TOPIC,
            errors::UNKNOWN_TOPIC_OR_PARTITION,
            errors::UNKNOWN_TOPIC_ID,
        ]
    );
    let names: Vec<_> = answer.topics.into_iter().map(|topic| topic.topic).collect();
    assert_eq!(names, keys, "each as the request named it");
}

#[test]
fn reasons_do_not_make_a_large_answer_of_a_small_request() {
    let node = Node::new();
    let _orders = node.add("orders", 0);
    let topics =
        vec![ProduceTopic { topic: TopicKey::Name("orders".into()), partitions: vec![0; 5000] }];
    let request = ProduceRequest { acks: 1, timeout_ms: 0, topics };
    let answer = produce::refuse(&request, &node.table);
    let partitions = &answer.topics[0].partitions;
    let reasons = partitions.iter().filter(|one| one.error_message.is_some()).count();
    assert_eq!((partitions.len(), reasons), (5000, 1000));
}
