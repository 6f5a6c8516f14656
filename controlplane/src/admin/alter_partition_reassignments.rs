//! AlterPartitionReassignments, 0 to 1: refused.

use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};

use super::node::Node;
use super::refusal::{self, Change};

pub(super) fn answer(
    node: &Node,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let (error, reason) = refusal::change(node, &topic.name, Change::Reassign);
        let partitions = topic.partitions.iter().map(|partition| {
            ReassignablePartitionResponse::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error.code)
                .with_error_message(Some(reason.clone()))
        });
        let partitions = partitions.collect();
        ReassignableTopicResponse::default().with_name(topic.name).with_partitions(partitions)
    });
    AlterPartitionReassignmentsResponse::default().with_responses(topics.collect())
}
