//! DescribeLogDirs, 1 to 4: what partitions take on disk.
//!
//! All log directories are shown as one: which of them holds a partition is the storage's own
//! business, and nothing can be moved between them through this API.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};

use super::call::text;
use super::node::Node;

/// What the only directory is called.
const DIRECTORY: &str = "data";

pub(super) fn answer(node: &Node, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let mut asked: BTreeMap<String, Option<Vec<i32>>> = BTreeMap::new();
    match request.topics {
        None => asked.extend(node.table.topic_names().iter().map(|name| (name.to_string(), None))),
        Some(topics) => {
            let topics = topics.into_iter();
            asked.extend(topics.map(|topic| (topic.topic.to_string(), Some(topic.partitions))));
        }
    }
    let topics = asked.into_iter().filter_map(|(name, indexes)| {
        let partitions = node.topic(&name).into_iter();
        let partitions: Vec<_> = partitions
            .filter(|found| {
                indexes.as_ref().is_none_or(|indexes| indexes.contains(&found.id.partition))
            })
            .map(|partition| {
                let size_bytes = i64::try_from(partition.log.size_bytes()).unwrap_or(i64::MAX);
                DescribeLogDirsPartition::default()
                    .with_partition_index(partition.id.partition)
                    .with_partition_size(size_bytes)
            })
            .collect();
        let topic = DescribeLogDirsTopic::default().with_name(TopicName(text(name)));
        (!partitions.is_empty()).then(|| topic.with_partitions(partitions))
    });
    let result = DescribeLogDirsResult::default()
        .with_log_dir(text(DIRECTORY))
        .with_topics(topics.collect());
    DescribeLogDirsResponse::default().with_results(vec![result])
}
