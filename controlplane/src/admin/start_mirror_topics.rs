//! StartMirrorTopics, 0 (KIP-1279): starts topics by name or pattern; the answer has one entry for
//! each topic found now, and the patterns stay for topics to come.

use super::errors::KafkaError;
use super::kip1279::{
    ResponseHead, StartMirrorTopicsRequest, StartMirrorTopicsResponse, StartedTopic,
};
use crate::mirror::{Mirrors, TopicResult};

pub(super) async fn answer(
    mirrors: &Mirrors,
    request: StartMirrorTopicsRequest,
) -> StartMirrorTopicsResponse {
    let (include, exclude) = (request.include_patterns, request.exclude_patterns);
    match mirrors.start(&request.mirror_name, include, exclude).await {
        Ok(topics) => StartMirrorTopicsResponse {
            head: ResponseHead::default(),
            topics: topics.into_iter().map(started).collect(),
        },
        Err(error) => {
            StartMirrorTopicsResponse { head: ResponseHead::of(&error), topics: Vec::new() }
        }
    }
}

fn started(result: TopicResult) -> StartedTopic {
    let (error_code, error_message) = match result.error {
        None => (KafkaError::NONE.code, None),
        Some(error) => (error.code, Some(error.message)),
    };
    StartedTopic { name: result.topic, error_code, error_message }
}
