//! ElectLeaders, 0 to 2: refused, partition by partition.
//!
//! Without a list it means all partitions: none of them needs an election, and the answer is empty.

use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};

use super::node::Node;
use super::refusal::{self, Change};

pub(super) fn answer(node: &Node, request: ElectLeadersRequest) -> ElectLeadersResponse {
    let topics = request.topic_partitions.unwrap_or_default().into_iter().map(|topic| {
        let (error, reason) = refusal::change(node, &topic.topic, Change::ElectLeaders);
        let partitions = topic.partitions.iter().map(|partition| {
            PartitionResult::default()
                .with_partition_id(*partition)
                .with_error_code(error.code)
                .with_error_message(Some(reason.clone()))
        });
        let partitions = partitions.collect();
        ReplicaElectionResult::default().with_topic(topic.topic).with_partition_result(partitions)
    });
    ElectLeadersResponse::default().with_replica_election_results(topics.collect())
}
