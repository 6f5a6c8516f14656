//! DescribeCluster, 0 to 2: this node, alone. From 1 on a client may ask for controllers, which
//! this node has none of to show.

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::call::{Call, text};
use super::errors::KafkaError;
use super::node::{CLUSTER_OPERATIONS, Node};

const ENDPOINTS_BROKERS: i8 = 1;

pub(super) fn answer(
    node: &Node,
    call: &Call,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    if call.version >= 1 && request.endpoint_type != ENDPOINTS_BROKERS {
        return DescribeClusterResponse::default()
            .with_error_code(KafkaError::UNSUPPORTED_ENDPOINT_TYPE.code)
            .with_error_message(Some(text("this node can describe its brokers only")));
    }
    let broker = DescribeClusterBroker::default()
        .with_broker_id(node.id())
        .with_host(node.host(call))
        .with_port(node.port(call));
    let mut response = DescribeClusterResponse::default()
        .with_cluster_id(text(node.identity.cluster_id.as_str()))
        .with_controller_id(node.id())
        .with_brokers(vec![broker]);
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}
