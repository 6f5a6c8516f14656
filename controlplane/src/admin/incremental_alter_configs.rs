//! IncrementalAlterConfigs, 0 to 1: refused, as AlterConfigs is.

use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::alter_configs::refuse;
use super::node::Node;

pub(super) fn answer(
    node: &Node,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let refused = request.resources.into_iter().map(|resource| {
        let (error, reason) = refuse(node, resource.resource_type, &resource.resource_name);
        AlterConfigsResourceResponse::default()
            .with_error_code(error.code)
            .with_error_message(Some(reason))
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
    });
    IncrementalAlterConfigsResponse::default().with_responses(refused.collect())
}
