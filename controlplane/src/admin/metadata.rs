//! Metadata, 0 to 13: topics by name, by id (from 10), or all.
//!
//! No list means all topics; an empty one means all in version 0 and none later. An unknown name
//! is UNKNOWN_TOPIC_OR_PARTITION whatever the client allows: a question never creates a topic.
//! This node leads every partition. Version 13's top-level error is for controllers that have to
//! look up a cluster anew, and is never set.

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{MetadataRequest, MetadataResponse, TopicName};
use storage::TopicId;
use uuid::Uuid;

use super::call::{Call, text};
use super::errors::KafkaError;
use super::node::{
    CLUSTER_OPERATIONS, Node, OFFSETS_TOPIC, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS, is_topic_name,
};

/// From here on a topic may be asked by id.
const FIRST_VERSION_BY_ID: i16 = 12;

pub(super) fn answer(node: &Node, call: &Call, request: MetadataRequest) -> MetadataResponse {
    let operations = if request.include_topic_authorized_operations {
        TOPIC_OPERATIONS
    } else {
        OPERATIONS_NOT_ASKED
    };
    let topics = match request.topics {
        None => all_topics(node, operations),
        Some(topics) if topics.is_empty() && call.version == 0 => all_topics(node, operations),
        Some(topics) => {
            topics.into_iter().map(|topic| asked_topic(node, call, topic, operations)).collect()
        }
    };
    let broker = MetadataResponseBroker::default()
        .with_node_id(node.id())
        .with_host(node.host(call))
        .with_port(node.port(call));
    let mut response = MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(text(node.identity.cluster_id.as_str())))
        .with_controller_id(node.id())
        .with_topics(topics);
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}

fn all_topics(node: &Node, operations: i32) -> Vec<MetadataResponseTopic> {
    let names = node.table.topic_names();
    names.iter().filter_map(|name| known_topic(node, name, operations)).collect()
}

fn asked_topic(
    node: &Node,
    call: &Call,
    asked: MetadataRequestTopic,
    operations: i32,
) -> MetadataResponseTopic {
    if let Some(name) = asked.name {
        return known_topic(node, &name, operations).unwrap_or_else(|| {
            let error = if is_topic_name(&name) {
                KafkaError::UNKNOWN_TOPIC_OR_PARTITION
            } else {
                KafkaError::INVALID_TOPIC_EXCEPTION
            };
            MetadataResponseTopic::default().with_error_code(error.code).with_name(Some(name))
        });
    }
    let unknown = MetadataResponseTopic::default().with_topic_id(asked.topic_id);
    if call.version < FIRST_VERSION_BY_ID {
        // The answer must name a topic in these versions.
        return unknown
            .with_error_code(KafkaError::INVALID_REQUEST.code)
            .with_name(Some(TopicName::default()));
    }
    node.table
        .topic_name(TopicId(*asked.topic_id.as_bytes()))
        .and_then(|name| known_topic(node, &name, operations))
        .unwrap_or_else(|| {
            unknown.with_error_code(KafkaError::UNKNOWN_TOPIC_ID.code).with_name(None)
        })
}

fn known_topic(node: &Node, name: &str, operations: i32) -> Option<MetadataResponseTopic> {
    let places = node.places(name);
    let topic_id = places.iter().flatten().next()?.topic_id;
    let described = places.iter().zip(0..).map(|(place, index)| {
        let leadership = node.leadership(place.as_deref());
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_replica_nodes(vec![node.id()])
            .with_error_code(leadership.error.code)
            .with_leader_id(leadership.leader)
            .with_leader_epoch(leadership.epoch)
            .with_isr_nodes(leadership.in_sync)
            .with_offline_replicas(leadership.offline)
    });
    let topic = MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(name))))
        .with_topic_id(Uuid::from_bytes(topic_id.0))
        .with_is_internal(name == OFFSETS_TOPIC)
        .with_partitions(described.collect())
        .with_topic_authorized_operations(operations);
    Some(topic)
}
