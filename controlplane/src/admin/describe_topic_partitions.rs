//! DescribeTopicPartitions, 0: topics in order of name, page by page.
//!
//! No topics means all. A page ends at the limit asked for, or at ours; the cursor names the first
//! partition of the next one.

use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
};
use uuid::Uuid;

use super::call::text;
use super::errors::KafkaError;
use super::node::{Node, OFFSETS_TOPIC, TOPIC_OPERATIONS, is_topic_name};

/// Partitions on one page (Kafka `max.request.partition.size.limit`).
const PAGE_PARTITIONS_MAX: usize = 2000;

pub(super) fn answer(
    node: &Node,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut room = limit.clamp(1, PAGE_PARTITIONS_MAX);
    let (first_topic, first_partition) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.as_str(), cursor.partition_index),
        None => ("", 0),
    };
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in asked_names(node, &request) {
        if *name < *first_topic {
            continue;
        }
        let from = if name == first_topic { first_partition } else { 0 };
        if room == 0 {
            response.next_cursor = Some(cursor(&name, from));
            break;
        }
        let Some((topic, rest)) = described(node, &name, from, room) else {
            response.topics.push(unknown(&name));
            continue;
        };
        room -= topic.partitions.len();
        response.topics.push(topic);
        if let Some(rest) = rest {
            response.next_cursor = Some(cursor(&name, rest));
            break;
        }
    }
    response
}

fn asked_names(node: &Node, request: &DescribeTopicPartitionsRequest) -> Vec<String> {
    let mut names: Vec<String> = match request.topics.is_empty() {
        true => node.table.topic_names().iter().map(|name| name.to_string()).collect(),
        false => request.topics.iter().map(|topic| topic.name.to_string()).collect(),
    };
    names.sort();
    names.dedup();
    names
}

/// The topic's partitions from `from` on, as far as there is room, and where the rest begins.
fn described(
    node: &Node,
    name: &str,
    from: i32,
    room: usize,
) -> Option<(DescribeTopicPartitionsResponseTopic, Option<i32>)> {
    let places = node.places(name);
    let topic_id = places.iter().flatten().next()?.topic_id;
    let mut remaining = (0..).zip(&places).filter(|(index, _)| *index >= from);
    let page = remaining.by_ref().take(room).map(|(index, place)| {
        let leadership = node.leadership(place.as_deref());
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(index)
            .with_replica_nodes(vec![node.id()])
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
            .with_error_code(leadership.error.code)
            .with_leader_id(leadership.leader)
            .with_leader_epoch(leadership.epoch)
            .with_isr_nodes(leadership.in_sync)
            .with_offline_replicas(leadership.offline)
    });
    let topic = DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(TopicName(text(name))))
        .with_topic_id(Uuid::from_bytes(topic_id.0))
        .with_is_internal(name == OFFSETS_TOPIC)
        .with_partitions(page.collect())
        .with_topic_authorized_operations(TOPIC_OPERATIONS);
    Some((topic, remaining.next().map(|(index, _)| index)))
}

fn unknown(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let error = if is_topic_name(name) {
        KafkaError::UNKNOWN_TOPIC_OR_PARTITION
    } else {
        KafkaError::INVALID_TOPIC_EXCEPTION
    };
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(TopicName(text(name))))
        .with_error_code(error.code)
}

fn cursor(topic: &str, partition: i32) -> Cursor {
    Cursor::default().with_topic_name(TopicName(text(topic))).with_partition_index(partition)
}
