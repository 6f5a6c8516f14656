//! DeleteTopics, 1 to 6: refused, by name or (from 6) by id.

use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use storage::TopicId;

use super::call::{Call, text};
use super::errors::KafkaError;
use super::node::Node;
use super::refusal::{self, Change};

const FIRST_VERSION_OF_REASONS: i16 = 5;
const FIRST_VERSION_BY_ID: i16 = 6;

pub(super) fn answer(
    node: &Node,
    call: &Call,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let with_reasons = call.version >= FIRST_VERSION_OF_REASONS;
    let by_name = |name: TopicName| {
        let (error, reason) = refusal::change(node, &name, Change::Delete);
        DeletableTopicResult::default()
            .with_name(Some(name))
            .with_error_code(error.code)
            .with_error_message(with_reasons.then_some(reason))
    };
    if call.version < FIRST_VERSION_BY_ID {
        let refused = request.topic_names.into_iter().map(by_name);
        return DeleteTopicsResponse::default().with_responses(refused.collect());
    }
    let refused = request.topics.into_iter().map(|topic| {
        if let Some(name) = topic.name {
            return by_name(name);
        }
        match node.table.topic_name(TopicId(*topic.topic_id.as_bytes())) {
            Some(name) => by_name(TopicName(text(&*name))).with_topic_id(topic.topic_id),
            None => DeletableTopicResult::default()
                .with_name(None)
                .with_topic_id(topic.topic_id)
                .with_error_code(KafkaError::UNKNOWN_TOPIC_ID.code),
        }
    });
    DeleteTopicsResponse::default().with_responses(refused.collect())
}
