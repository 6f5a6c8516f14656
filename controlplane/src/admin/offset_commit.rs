//! OffsetCommit, 2 to 9: answered once the offsets are on disk.
//!
//! Members of the current generation may commit, and anybody for a group without members. What is
//! committed is what the consumer said, whether or not the offset is in the log. The retention
//! time of old versions is ignored: offsets are kept until they or their group are deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};

use super::errors::KafkaError;
use super::node::Node;
use crate::groups::{CommitOffset, CommitRequest, Committed, Groups, MemberIdentity};

pub(super) async fn answer(
    groups: &Groups,
    node: &Node,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let commit_timestamp_ms = now_ms();
    let mut unknown = HashMap::new();
    let mut offsets = Vec::new();
    for (topic_at, topic) in request.topics.iter().enumerate() {
        let name: Arc<str> = Arc::from(topic.name.as_str());
        for (partition_at, partition) in topic.partitions.iter().enumerate() {
            if !node.has(&name, partition.partition_index) {
                unknown.insert((topic_at, partition_at), KafkaError::UNKNOWN_TOPIC_OR_PARTITION);
                continue;
            }
            offsets.push(CommitOffset {
                topic: name.clone(),
                partition: partition.partition_index,
                committed: Committed {
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: Arc::from(
                        partition.committed_metadata.as_deref().unwrap_or_default(),
                    ),
                    commit_timestamp_ms,
                },
            });
        }
    }
    let commit = CommitRequest {
        group_id: &request.group_id,
        identity: MemberIdentity {
            member_id: &request.member_id,
            instance_id: request.group_instance_id.as_deref(),
        },
        generation: request.generation_id_or_member_epoch,
        offsets,
    };
    let mut outcomes = groups.commit(commit).await.into_iter();
    let topics = request.topics.into_iter().enumerate().map(|(topic_at, topic)| {
        let partitions = topic.partitions.iter().enumerate().map(|(partition_at, partition)| {
            let known = || outcomes.next().unwrap_or(KafkaError::COORDINATOR_NOT_AVAILABLE);
            let error = unknown.remove(&(topic_at, partition_at)).unwrap_or_else(known);
            OffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error.code)
        });
        let partitions = partitions.collect();
        OffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    let topics = topics.collect();
    OffsetCommitResponse::default().with_topics(topics)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
