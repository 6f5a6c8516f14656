//! CreatePartitions, 0 to 3: refused.

use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::node::Node;
use super::refusal::{self, Change};

pub(super) fn answer(node: &Node, request: CreatePartitionsRequest) -> CreatePartitionsResponse {
    let refused = request.topics.into_iter().map(|topic| {
        let (error, reason) = refusal::change(node, &topic.name, Change::AddPartitions);
        CreatePartitionsTopicResult::default()
            .with_name(topic.name)
            .with_error_code(error.code)
            .with_error_message(Some(reason))
    });
    CreatePartitionsResponse::default().with_results(refused.collect())
}
