//! The refusal of Produce: every topic here is read-only to clients. No input or output.
//!
//! The error must be final to every client: an old client retries what it does not know, or what
//! it takes for a passing fault, for minutes. `POLICY_VIOLATION` is known since Kafka 0.11, is not
//! retried by any client family, and clients show its message as it is.

use std::collections::HashMap;
use std::sync::Arc;

use super::errors;
use crate::partition::PartitionTable;
use crate::wire::{
    ProduceRefusal, ProduceRefusalPartition, ProduceRefusalTopic, ProduceRequest, TopicKey,
};

/// Partitions of one answer that carry the reason in words. Beyond them a small request would make
/// a large answer.
const MESSAGES_MAX: usize = 1000;

/// Topics that Kafka keeps for itself; producers are told what Kafka tells them.
const INTERNAL_TOPICS: [&str; 4] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state", "__mirror_state"];

/// Refuses a request, partition by partition.
pub(super) fn refuse(request: &ProduceRequest, table: &PartitionTable) -> ProduceRefusal {
    let mut reasons: HashMap<&TopicKey, (i16, Option<Arc<str>>)> = HashMap::new();
    let mut messages = 0;
    let topics = request
        .topics
        .iter()
        .map(|topic| {
            let reason = reasons.entry(&topic.topic).or_insert_with(|| reason(&topic.topic, table));
            let partitions = topic.partitions.iter().map(|partition| {
                messages += 1;
                let error_message = reason.1.clone().filter(|_| messages <= MESSAGES_MAX);
                ProduceRefusalPartition {
                    partition: *partition,
                    error_code: reason.0,
                    error_message,
                }
            });
            let partitions = partitions.collect();
            ProduceRefusalTopic { topic: topic.topic.clone(), partitions }
        })
        .collect();
    ProduceRefusal { throttle_time_ms: 0, topics }
}

fn reason(topic: &TopicKey, table: &PartitionTable) -> (i16, Option<Arc<str>>) {
    let name = match topic {
        TopicKey::Name(name) => name.clone(),
        TopicKey::Id(id) => match table.topic_name(*id) {
            Some(name) => name,
            None => return (errors::UNKNOWN_TOPIC_ID, None),
        },
    };
    if INTERNAL_TOPICS.contains(&&*name) {
        return (errors::INVALID_TOPIC, Some(format!("topic {name} is internal").into()));
    }
    let partitions = table.topic(&name);
    let Some(partition) = partitions.first() else {
        return (errors::UNKNOWN_TOPIC_OR_PARTITION, None);
    };
    let message = match &partition.mirror {
        Some(mirror) => format!(
            "topic {name} is read-only: mirror {mirror} copies it from its source. Write to the \
             source: this version of Longhaul cannot promote a mirror topic to a writable one",
            mirror = mirror.name
        ),
        None => format!("topic {name} is read-only: this node serves mirrored topics"),
    };
    (errors::POLICY_VIOLATION, Some(message.into()))
}
