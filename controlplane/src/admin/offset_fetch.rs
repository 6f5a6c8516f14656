//! OffsetFetch, 1 to 9: committed offsets, of one group or (from 8) several.
//!
//! A partition without a commit is -1 with no error, also in a group that does not exist. No list
//! of topics means all (from 2). An error of a group as a whole is on each partition in version 1,
//! at the top from 2, and with the group from 8. No transaction ever holds an offset back here, so
//! "require stable" changes nothing.

use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse, TopicName};

use super::call::{Call, text};
use super::errors::KafkaError;
use crate::groups::{Committed, Groups, TopicOffsets};

const FIRST_VERSION_OF_TOP_ERROR: i16 = 2;
const FIRST_VERSION_OF_EPOCHS: i16 = 5;
const FIRST_VERSION_OF_GROUPS: i16 = 8;

/// No offset is committed.
const NO_OFFSET: i64 = -1;

pub(super) fn answer(
    groups: &Groups,
    call: &Call,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    if call.version >= FIRST_VERSION_OF_GROUPS {
        let answers = request.groups.into_iter().map(|group| one_of_several(groups, group));
        return OffsetFetchResponse::default().with_groups(answers.collect());
    }
    let asked = request.topics.map(|topics| topics.into_iter().map(Asked::from).collect());
    let (error, topics) = fetch(groups, &request.group_id, asked);
    let on_partitions =
        if call.version < FIRST_VERSION_OF_TOP_ERROR { error } else { KafkaError::NONE };
    let topics = topics.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, committed)| {
            let mut partition = OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(committed.as_ref().map_or(NO_OFFSET, |found| found.offset))
                .with_metadata(Some(text(note(committed.as_ref()))))
                .with_error_code(on_partitions.code);
            if call.version >= FIRST_VERSION_OF_EPOCHS {
                partition.committed_leader_epoch = epoch(committed.as_ref());
            }
            partition
        });
        let partitions = partitions.collect();
        OffsetFetchResponseTopic::default().with_name(name).with_partitions(partitions)
    });
    let response = OffsetFetchResponse::default().with_topics(topics.collect());
    if call.version < FIRST_VERSION_OF_TOP_ERROR {
        response
    } else {
        response.with_error_code(error.code)
    }
}

fn one_of_several(groups: &Groups, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup {
    let asked = group.topics.map(|topics| topics.into_iter().map(Asked::from).collect());
    let (error, topics) = fetch(groups, &group.group_id, asked);
    // With an error, the group's topics are left out.
    let topics = topics.into_iter().filter(|_| error.is_none()).map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, committed)| {
            OffsetFetchResponsePartitions::default()
                .with_partition_index(index)
                .with_committed_offset(committed.as_ref().map_or(NO_OFFSET, |found| found.offset))
                .with_committed_leader_epoch(epoch(committed.as_ref()))
                .with_metadata(Some(text(note(committed.as_ref()))))
        });
        let partitions = partitions.collect();
        OffsetFetchResponseTopics::default().with_name(name).with_partitions(partitions)
    });
    OffsetFetchResponseGroup::default()
        .with_group_id(group.group_id)
        .with_topics(topics.collect())
        .with_error_code(error.code)
}

/// A topic and partitions that are asked for.
struct Asked {
    name: TopicName,
    partitions: Vec<i32>,
}

impl From<OffsetFetchRequestTopic> for Asked {
    fn from(topic: OffsetFetchRequestTopic) -> Self {
        Self { name: topic.name, partitions: topic.partition_indexes }
    }
}

impl From<OffsetFetchRequestTopics> for Asked {
    fn from(topic: OffsetFetchRequestTopics) -> Self {
        Self { name: topic.name, partitions: topic.partition_indexes }
    }
}

type Found = Vec<(TopicName, Vec<(i32, Option<Committed>)>)>;

/// What is committed; with an error, what was asked with nothing committed.
fn fetch(groups: &Groups, group_id: &str, asked: Option<Vec<Asked>>) -> (KafkaError, Found) {
    let Some(asked) = asked else {
        return match groups.all_committed(group_id) {
            Ok(topics) => (KafkaError::NONE, topics.into_iter().map(found).collect()),
            Err(error) => (error, Vec::new()),
        };
    };
    let partitions = asked
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|index| (&*topic.name.0, *index)));
    let (error, committed) = match groups.committed(group_id, partitions) {
        Ok(committed) => (KafkaError::NONE, committed),
        Err(error) => (error, Vec::new()),
    };
    let mut committed = committed.into_iter();
    let topics = asked.into_iter().map(|topic| {
        let indexes = topic.partitions.into_iter();
        let partitions = indexes.map(|index| (index, committed.next().flatten())).collect();
        (topic.name, partitions)
    });
    (error, topics.collect())
}

fn found((name, partitions): TopicOffsets) -> (TopicName, Vec<(i32, Option<Committed>)>) {
    let partitions = partitions.into_iter().map(|(index, committed)| (index, Some(committed)));
    (TopicName(text(&*name)), partitions.collect())
}

fn epoch(committed: Option<&Committed>) -> i32 {
    committed.map_or(-1, |committed| committed.leader_epoch)
}

fn note(committed: Option<&Committed>) -> &str {
    committed.map_or("", |committed| &committed.metadata)
}
