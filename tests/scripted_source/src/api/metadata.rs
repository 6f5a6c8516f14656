//! Metadata: versions 0 to 13. All topics (null, or empty in version 0), some by name, some by id;
//! never creates one. Every partition has one replica, its leader.

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};

use super::{errors, node, text, uuid};
use crate::cluster::State;
use crate::log::Topic;

/// API key.
pub const KEY: i16 = 3;
/// Versions spoken unless the test says otherwise.
pub(crate) const VERSIONS: (i16, i16) = (0, 13);

pub(crate) fn answer(state: &State, request: &MetadataRequest, version: i16) -> MetadataResponse {
    let brokers = state
        .brokers
        .iter()
        .map(|(id, address)| {
            MetadataResponseBroker::default()
                .with_node_id(node(*id))
                .with_host(text(&address.ip().to_string()))
                .with_port(i32::from(address.port()))
        })
        .collect();
    let topics = match &request.topics {
        Some(asked) if version > 0 || !asked.is_empty() => {
            asked.iter().map(|asked| one(state, asked, version)).collect()
        }
        _ => state.topics.iter().map(|found| topic(found, version)).collect(),
    };
    let mut response = MetadataResponse::default().with_brokers(brokers).with_topics(topics);
    if version >= 1 {
        response.controller_id = node(state.brokers.keys().next().copied().unwrap_or(-1));
    }
    if version >= 2 {
        response.cluster_id = Some(text(&state.cluster_id));
    }
    response
}

fn one(state: &State, asked: &MetadataRequestTopic, version: i16) -> MetadataResponseTopic {
    let found = state.topics.iter().find(|topic| match &asked.name {
        Some(name) => topic.name == name.as_str(),
        None => topic.id == *asked.topic_id.as_bytes(),
    });
    if let Some(found) = found {
        return topic(found, version);
    }
    let error = match asked.name {
        Some(_) => errors::UNKNOWN_TOPIC_OR_PARTITION,
        None => errors::UNKNOWN_TOPIC_ID,
    };
    let mut answer =
        MetadataResponseTopic::default().with_error_code(error).with_name(asked.name.clone());
    if version >= 10 {
        answer.topic_id = asked.topic_id;
    }
    answer
}

fn topic(topic: &Topic, version: i16) -> MetadataResponseTopic {
    let partitions = topic.partitions.iter().enumerate().map(|(index, log)| {
        let mut partition = MetadataResponsePartition::default()
            .with_partition_index(index as i32)
            .with_error_code(if log.leader == -1 { 5 } else { 0 })
            .with_leader_id(node(log.leader))
            .with_replica_nodes(vec![node(log.leader.max(0))])
            .with_isr_nodes(vec![node(log.leader.max(0))]);
        if version >= 7 {
            partition.leader_epoch = log.leader_epoch;
        }
        partition
    });
    let mut answer = MetadataResponseTopic::default()
        .with_name(Some(text(&topic.name).into()))
        .with_partitions(partitions.collect());
    if version >= 10 {
        answer.topic_id = uuid(topic);
    }
    answer
}
