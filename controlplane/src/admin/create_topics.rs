//! CreateTopics, 2 to 7: refused; topics come from mirrors.

use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

use super::call::{Call, text};
use super::errors::KafkaError;
use super::node::{Node, is_topic_name};

const FIRST_VERSION_OF_CONFIGS: i16 = 5;

pub(super) fn answer(
    node: &Node,
    call: &Call,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let refused = request.topics.into_iter().map(|topic| {
        let (error, reason) = refusal(node, &topic.name);
        let result = CreatableTopicResult::default()
            .with_error_code(error.code)
            .with_error_message(Some(text(reason)))
            .with_name(topic.name);
        if call.version >= FIRST_VERSION_OF_CONFIGS { result.with_configs(None) } else { result }
    });
    CreateTopicsResponse::default().with_topics(refused.collect())
}

fn refusal(node: &Node, name: &str) -> (KafkaError, String) {
    if !is_topic_name(name) {
        return (KafkaError::INVALID_TOPIC_EXCEPTION, "no topic can have this name".into());
    }
    if !node.topic(name).is_empty() {
        return (KafkaError::TOPIC_ALREADY_EXISTS, format!("topic {name} exists"));
    }
    let reason = format!(
        "topic {name} is not created: this node holds mirrored topics only. To mirror a topic of \
         a source: longhaul mirror start --mirror NAME --topics {name}"
    );
    (KafkaError::POLICY_VIOLATION, reason)
}
