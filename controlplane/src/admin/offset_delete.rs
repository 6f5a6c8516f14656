//! OffsetDelete, 0: offsets of topics that no member of the group subscribes to.

use std::sync::Arc;

use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::errors::KafkaError;
use crate::groups::Groups;

pub(super) async fn answer(groups: &Groups, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    let asked = request.topics.iter().flat_map(|topic| {
        let name: Arc<str> = Arc::from(topic.name.as_str());
        topic.partitions.iter().map(move |partition| (name.clone(), partition.partition_index))
    });
    let (error, outcomes) = groups.delete_offsets(&request.group_id, asked.collect()).await;
    if !error.is_none() {
        return OffsetDeleteResponse::default().with_error_code(error.code);
    }
    let mut outcomes = outcomes.into_iter();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let error = outcomes.next().unwrap_or(KafkaError::NONE);
            OffsetDeleteResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error.code)
        });
        let partitions = partitions.collect();
        OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    let topics = topics.collect();
    OffsetDeleteResponse::default().with_topics(topics)
}
