//! AlterConfigs, 0 to 2: refused, as IncrementalAlterConfigs is.

use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::call::text;
use super::describe_configs::RESOURCE_TOPIC;
use super::errors::KafkaError;
use super::node::Node;
use super::refusal::{self, Change};

pub(super) fn answer(node: &Node, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let refused = request.resources.into_iter().map(|resource| {
        let (error, reason) = refuse(node, resource.resource_type, &resource.resource_name);
        AlterConfigsResourceResponse::default()
            .with_error_code(error.code)
            .with_error_message(Some(reason))
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
    });
    AlterConfigsResponse::default().with_responses(refused.collect())
}

/// Why a resource's configuration cannot be altered.
pub(super) fn refuse(node: &Node, resource_type: i8, name: &str) -> (KafkaError, StrBytes) {
    if resource_type == RESOURCE_TOPIC {
        return refusal::change(node, name, Change::AlterConfigs);
    }
    let reason = "this node is configured by its own file, not through this request; restart it \
                  to make a change take effect";
    (KafkaError::POLICY_VIOLATION, text(reason))
}
