//! DescribeCluster: versions 0 to 2. Cluster id, controller and all running brokers; operations are
//! never told.

use kafka_protocol::messages::DescribeClusterResponse;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;

use super::{node, text};
use crate::cluster::State;

/// API key.
pub const KEY: i16 = 60;
/// Versions spoken unless the test says otherwise.
pub(crate) const VERSIONS: (i16, i16) = (0, 2);

pub(crate) fn answer(state: &State) -> DescribeClusterResponse {
    let brokers = state
        .brokers
        .iter()
        .map(|(id, address)| {
            DescribeClusterBroker::default()
                .with_broker_id(node(*id))
                .with_host(text(&address.ip().to_string()))
                .with_port(i32::from(address.port()))
        })
        .collect();
    DescribeClusterResponse::default()
        .with_cluster_id(text(&state.cluster_id))
        .with_controller_id(node(state.brokers.keys().next().copied().unwrap_or(-1)))
        .with_brokers(brokers)
        .with_cluster_authorized_operations(i32::MIN)
}
