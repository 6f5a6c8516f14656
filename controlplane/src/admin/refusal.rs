//! What clients are told that want to change something here.
//!
//! One final error, POLICY_VIOLATION, that every client knows and none retries; and a sentence
//! that names the mirror and says what to do.

use kafka_protocol::protocol::StrBytes;

use super::call::text;
use super::errors::KafkaError;
use super::node::{Node, is_topic_name};

/// What is wanted of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Delete,
    AddPartitions,
    DeleteRecords,
    AlterConfigs,
    Reassign,
    ElectLeaders,
}

impl Change {
    fn why_not(self) -> &'static str {
        match self {
            Self::Delete => "cannot be deleted here while it is mirrored",
            Self::AddPartitions => "gets its partitions from the source",
            Self::DeleteRecords => "loses records only when the source deletes them",
            Self::AlterConfigs => "cannot be configured here while it is mirrored",
            Self::Reassign => "is placed by this node",
            Self::ElectLeaders => "has this node for its only leader",
        }
    }
}

/// Why the change is refused.
pub(super) fn change(node: &Node, topic: &str, change: Change) -> (KafkaError, StrBytes) {
    let partitions = node.topic(topic);
    let Some(first) = partitions.first() else {
        return unknown(topic);
    };
    let why_not = change.why_not();
    let said = match &first.mirror {
        Some(mirror) => format!(
            "topic {topic} is read-only: mirror {mirror} copies it from its source, and it \
             {why_not}. This version of Longhaul cannot promote a mirror topic to a writable one",
            mirror = mirror.name
        ),
        None => format!("topic {topic} belongs to this node itself and cannot be changed"),
    };
    (KafkaError::POLICY_VIOLATION, text(said))
}

/// The answer about a topic that is not here.
pub(super) fn unknown(topic: &str) -> (KafkaError, StrBytes) {
    match is_topic_name(topic) {
        true => (
            KafkaError::UNKNOWN_TOPIC_OR_PARTITION,
            text(format!("topic {topic} is not on this node")),
        ),
        false => (KafkaError::INVALID_TOPIC_EXCEPTION, text("no topic can have this name")),
    }
}
