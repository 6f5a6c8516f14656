//! DeleteRecords, 0 to 2: refused. The answer has no room for a reason.

use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::errors::KafkaError;
use super::node::Node;
use super::refusal::{self, Change};

/// "No watermark", as Kafka says it with an error.
const NO_WATERMARK: i64 = -1;

pub(super) fn answer(node: &Node, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let (error, _) = refusal::change(node, &topic.name, Change::DeleteRecords);
        let partitions = topic.partitions.iter().map(|partition| {
            let is_here = node.has(&topic.name, partition.partition_index);
            let error = if is_here { error } else { KafkaError::UNKNOWN_TOPIC_OR_PARTITION };
            DeleteRecordsPartitionResult::default()
                .with_partition_index(partition.partition_index)
                .with_low_watermark(NO_WATERMARK)
                .with_error_code(error.code)
        });
        let partitions = partitions.collect();
        DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions)
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}
