//! DescribeClusterMirrors, 0 (KIP-1279): the named mirrors, or all, partition by partition.
//!
//! A mirror that is not known gets an entry with its name and the error. What is not known is -1,
//! never a made-up number.

use super::kip1279::{
    DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse, DescribedMirror,
    DescribedPartition, DescribedTopic, ResponseHead,
};
use super::node::{OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS};
use crate::mirror::{AdminError, MirrorDescription, Mirrors, PartitionDescription};

/// An offset that is not known.
const OFFSET_UNKNOWN: i64 = -1;

pub(super) async fn answer(
    mirrors: &Mirrors,
    request: DescribeClusterMirrorsRequest,
) -> DescribeClusterMirrorsResponse {
    let operations =
        if request.include_authorized_operations { TOPIC_OPERATIONS } else { OPERATIONS_NOT_ASKED };
    let names = request.mirror_names;
    let descriptions = mirrors.describe(&names).await;
    let described = descriptions
        .into_iter()
        .enumerate()
        .map(|(position, description)| match description {
            Ok(description) => mirror(description, operations),
            Err(error) => refused(names.get(position), error),
        })
        .filter(|mirror| {
            request.cluster_id.as_ref().is_none_or(|id| *id == mirror.source_cluster_id)
        });
    DescribeClusterMirrorsResponse { head: ResponseHead::default(), mirrors: described.collect() }
}

fn refused(name: Option<&String>, error: AdminError) -> DescribedMirror {
    DescribedMirror {
        error_code: error.code,
        error_message: Some(error.message),
        mirror_name: name.cloned().unwrap_or_default(),
        source_bootstrap: String::new(),
        source_cluster_id: String::new(),
        authorized_operations: OPERATIONS_NOT_ASKED,
        topics: Vec::new(),
    }
}

fn mirror(description: MirrorDescription, operations: i32) -> DescribedMirror {
    let mut topics: Vec<DescribedTopic> = Vec::new();
    for described in description.partitions {
        match topics.last_mut() {
            Some(topic) if topic.topic_name == described.topic => {
                topic.partitions.push(partition(described));
            }
            _ => topics.push(DescribedTopic {
                topic_name: described.topic.clone(),
                partitions: vec![partition(described)],
            }),
        }
    }
    DescribedMirror {
        error_code: 0,
        error_message: description.error_message,
        mirror_name: description.name,
        source_bootstrap: description.source_bootstrap,
        source_cluster_id: description.source_cluster_id,
        authorized_operations: operations,
        topics,
    }
}

fn partition(described: PartitionDescription) -> DescribedPartition {
    DescribedPartition {
        partition_index: described.partition,
        state_value: described.state.to_owned(),
        error_message: described.error_message,
        retry_attempt: described.retry_attempt,
        source_offset: described.source_offset.unwrap_or(OFFSET_UNKNOWN),
        destination_offset: described.destination_offset,
        last_mirror_epoch: described.last_mirror_epoch,
        last_mirror_offset: described.last_mirror_offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(topic: &str, partition: i32, source_offset: Option<i64>) -> PartitionDescription {
        PartitionDescription {
            topic: topic.into(),
            partition,
            state: "MIRRORING",
            error_message: None,
            retry_attempt: 0,
            source_offset,
            destination_offset: 5,
            last_mirror_epoch: 1,
            last_mirror_offset: -1,
        }
    }

    #[test]
    fn partitions_are_grouped_by_topic_and_unknown_offsets_stay_unknown() {
        let described = mirror(
            MirrorDescription {
                name: "eu".into(),
                source_bootstrap: "k:9092".into(),
                source_cluster_id: "id".into(),
                error_message: Some("source unreachable".into()),
                partitions: vec![
                    described("a", 0, Some(7)),
                    described("a", 1, None),
                    described("b", 0, None),
                ],
            },
            OPERATIONS_NOT_ASKED,
        );
        let names: Vec<_> = described
            .topics
            .iter()
            .map(|topic| (topic.topic_name.as_str(), topic.partitions.len()))
            .collect();
        assert_eq!(names, [("a", 2), ("b", 1)]);
        assert_eq!(described.topics[0].partitions[0].source_offset, 7);
        assert_eq!(described.topics[0].partitions[1].source_offset, -1);
        assert_eq!(described.error_code, 0);
        assert_eq!(described.error_message.as_deref(), Some("source unreachable"));
    }
}
