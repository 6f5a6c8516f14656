//! What the control plane asks a source broker, in plain types.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{MetadataResponseBroker, MetadataResponseTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    ListOffsetsRequest, MetadataRequest, MetadataResponse, OffsetForLeaderEpochRequest, TopicName,
};
use kafka_protocol::protocol::{Message, Request, StrBytes, VersionRange};
use storage::{LeaderEpoch, Offset, TopicId};

use super::lane::{FETCH_KEY, FETCH_VERSIONS};
use super::{Address, ClientError, Connection, KafkaCode};

/// Partitions named in one request: keeps a request below 100 KB and a broker's request thread busy
/// for milliseconds, not seconds.
const PARTITIONS_PER_REQUEST: usize = 2_000;

/// From 4 on (Kafka 0.11) a question can be kept from making a topic.
const METADATA_VERSIONS: VersionRange = VersionRange { min: 4, max: MetadataRequest::VERSIONS.max };

/// A consumer, not a replica, as the protocol spells it.
const CONSUMER_REPLICA_ID: i32 = -1;

/// Which topics a metadata request is about.
#[derive(Clone, Copy, Debug)]
pub enum TopicSelection<'a> {
    /// None: brokers and cluster id only.
    Nothing,
    /// These names. Unknown ones come back with error 3; none is ever created by asking.
    Names(&'a [Arc<str>]),
    /// Every topic we may see.
    All,
}

/// A broker as metadata names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// Node id.
    pub id: i32,
    /// Where it listens.
    pub address: Address,
}

/// One partition as metadata names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// Index.
    pub partition: i32,
    /// Error, e.g. LEADER_NOT_AVAILABLE.
    pub code: KafkaCode,
    /// The leader's node id; `None` while there is none.
    pub leader: Option<i32>,
    /// The leader's epoch; unknown before Metadata 7 (Kafka 2.1).
    pub leader_epoch: LeaderEpoch,
}

/// One topic as metadata names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Name.
    pub name: Arc<str>,
    /// Id, zero where the source has none.
    pub id: TopicId,
    /// Error, e.g. UNKNOWN_TOPIC_OR_PARTITION.
    pub code: KafkaCode,
    /// Whether the source calls it internal.
    pub is_internal: bool,
    /// Partitions by index.
    pub partitions: Vec<PartitionMetadata>,
}

/// A source cluster as one of its brokers sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMetadata {
    /// Cluster id; `None` from a broker that has none yet.
    pub cluster_id: Option<String>,
    /// Brokers that are up.
    pub brokers: Vec<BrokerAddress>,
    /// The topics that were asked.
    pub topics: Vec<TopicMetadata>,
}

/// Which offset of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The log start.
    Earliest,
    /// The high watermark.
    Latest,
}

/// Asks for an offset of one partition.
#[derive(Clone, Debug)]
pub struct OffsetQuestion {
    /// Topic.
    pub topic: Arc<str>,
    /// Index.
    pub partition: i32,
    /// The epoch we believe its leader has: a deposed leader must not answer.
    pub leader_epoch: LeaderEpoch,
}

/// Its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAnswer {
    /// Error.
    pub code: KafkaCode,
    /// The offset.
    pub offset: Offset,
}

/// Asks where an epoch ends in one partition.
#[derive(Clone, Debug)]
pub struct EpochQuestion {
    /// Topic.
    pub topic: Arc<str>,
    /// Index.
    pub partition: i32,
    /// The epoch we believe its leader has.
    pub leader_epoch: LeaderEpoch,
    /// The epoch asked about.
    pub epoch: LeaderEpoch,
}

/// Its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochAnswer {
    /// Error.
    pub code: KafkaCode,
    /// The largest epoch the source knows at or below the one asked; -1 for none.
    pub epoch: LeaderEpoch,
    /// Where it ends there; -1 when there is none.
    pub end_offset: Offset,
}

impl Connection {
    /// Refuses a broker that lacks a version of anything that mirroring needs.
    pub fn speaks_what_mirrors_need(&self) -> Result<(), ClientError> {
        self.version_for("Metadata", MetadataRequest::KEY, METADATA_VERSIONS)?;
        self.version_for("ListOffsets", ListOffsetsRequest::KEY, ListOffsetsRequest::VERSIONS)?;
        let (key, ours) = (OffsetForLeaderEpochRequest::KEY, OffsetForLeaderEpochRequest::VERSIONS);
        self.version_for("OffsetForLeaderEpoch", key, ours)?;
        self.version_for("Fetch", FETCH_KEY, FETCH_VERSIONS).map(drop)
    }

    /// Brokers, cluster id and topics.
    pub async fn metadata(
        &mut self,
        topics: TopicSelection<'_>,
    ) -> Result<ClusterMetadata, ClientError> {
        const WHAT: &str = "Metadata";
        let topics = match topics {
            TopicSelection::Nothing => Some(Vec::new()),
            TopicSelection::All => None,
            TopicSelection::Names(names) => Some(
                names
                    .iter()
                    .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))))
                    .collect(),
            ),
        };
        let request = MetadataRequest::default()
            .with_topics(topics)
            // A question never makes a topic.
            .with_allow_auto_topic_creation(false);
        let (answer, _) = self.call(WHAT, &request).await?;
        let code = KafkaCode(answer.error_code);
        if code.is_error() {
            let address = self.address().clone();
            return Err(ClientError::Refused { address, what: WHAT, code });
        }
        self.cluster_metadata(answer)
    }

    /// Refuses a broker that belongs to another cluster than `expected`.
    pub async fn belongs_to(&mut self, expected: &str) -> Result<(), ClientError> {
        let metadata = self.metadata(TopicSelection::Nothing).await?;
        match metadata.cluster_id {
            Some(found) if found != expected => Err(ClientError::OtherCluster {
                address: self.address().clone(),
                expected: expected.to_owned(),
                found,
            }),
            _ => Ok(()),
        }
    }

    /// An offset of each partition, in the order of the questions. `None` where the broker left a
    /// partition out.
    pub async fn list_offsets(
        &mut self,
        spec: OffsetSpec,
        questions: &[OffsetQuestion],
    ) -> Result<Vec<Option<OffsetAnswer>>, ClientError> {
        let timestamp = match spec {
            OffsetSpec::Earliest => -2,
            OffsetSpec::Latest => -1,
        };
        let mut answers = Vec::with_capacity(questions.len());
        for chunk in questions.chunks(PARTITIONS_PER_REQUEST) {
            let topics = by_topic(chunk, |question| &question.topic)
                .into_iter()
                .map(|(topic, questions)| {
                    let partitions = questions.into_iter().map(|question| {
                        ListOffsetsPartition::default()
                            .with_partition_index(question.partition)
                            .with_current_leader_epoch(question.leader_epoch.0)
                            .with_timestamp(timestamp)
                    });
                    ListOffsetsTopic::default()
                        .with_name(topic_name(topic))
                        .with_partitions(partitions.collect())
                })
                .collect();
            let request = ListOffsetsRequest::default()
                .with_replica_id(CONSUMER_REPLICA_ID.into())
                .with_topics(topics);
            let (answer, _) = self.call("ListOffsets", &request).await?;
            let found = answer.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    let answer = OffsetAnswer {
                        code: KafkaCode(partition.error_code),
                        offset: Offset(partition.offset),
                    };
                    (&*topic.name.0, partition.partition_index, answer)
                })
            });
            collect_in_order(chunk, |q| (&*q.topic, q.partition), found, &mut answers);
        }
        Ok(answers)
    }

    /// Where an epoch of each partition ends, in the order of the questions.
    pub async fn offsets_for_leader_epoch(
        &mut self,
        questions: &[EpochQuestion],
    ) -> Result<Vec<Option<EpochAnswer>>, ClientError> {
        let mut answers = Vec::with_capacity(questions.len());
        for chunk in questions.chunks(PARTITIONS_PER_REQUEST) {
            let topics = by_topic(chunk, |question| &question.topic)
                .into_iter()
                .map(|(topic, questions)| {
                    let partitions = questions.into_iter().map(|question| {
                        OffsetForLeaderPartition::default()
                            .with_partition(question.partition)
                            .with_current_leader_epoch(question.leader_epoch.0)
                            .with_leader_epoch(question.epoch.0)
                    });
                    OffsetForLeaderTopic::default()
                        .with_topic(topic_name(topic))
                        .with_partitions(partitions.collect())
                })
                .collect();
            let request = OffsetForLeaderEpochRequest::default()
                .with_replica_id(CONSUMER_REPLICA_ID.into())
                .with_topics(topics);
            let (answer, _) = self.call("OffsetForLeaderEpoch", &request).await?;
            let found = answer.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    let answer = EpochAnswer {
                        code: KafkaCode(partition.error_code),
                        epoch: LeaderEpoch(partition.leader_epoch),
                        end_offset: Offset(partition.end_offset),
                    };
                    (&*topic.topic.0, partition.partition, answer)
                })
            });
            collect_in_order(chunk, |q| (&*q.topic, q.partition), found, &mut answers);
        }
        Ok(answers)
    }

    fn cluster_metadata(&self, answer: MetadataResponse) -> Result<ClusterMetadata, ClientError> {
        let brokers = answer
            .brokers
            .iter()
            .map(|broker| self.broker_address(broker))
            .collect::<Result<_, _>>()?;
        let topics = answer.topics.into_iter().filter_map(topic_metadata).collect();
        let cluster_id = answer.cluster_id.map(|id| id.to_string());
        Ok(ClusterMetadata { cluster_id, brokers, topics })
    }

    fn broker_address(
        &self,
        broker: &MetadataResponseBroker,
    ) -> Result<BrokerAddress, ClientError> {
        let port = u16::try_from(broker.port)
            .map_err(|_| self.malformed("Metadata", "a broker's port is no port"))?;
        let address = Address { host: broker.host.as_str().into(), port };
        Ok(BrokerAddress { id: broker.node_id.0, address })
    }
}

fn topic_metadata(topic: MetadataResponseTopic) -> Option<TopicMetadata> {
    let mut partitions: Vec<_> = topic
        .partitions
        .iter()
        .map(|partition| PartitionMetadata {
            partition: partition.partition_index,
            code: KafkaCode(partition.error_code),
            leader: (partition.leader_id.0 >= 0).then_some(partition.leader_id.0),
            leader_epoch: LeaderEpoch(partition.leader_epoch),
        })
        .collect();
    partitions.sort_by_key(|partition| partition.partition);
    Some(TopicMetadata {
        name: topic.name?.0.as_str().into(),
        id: TopicId(topic.topic_id.into_bytes()),
        code: KafkaCode(topic.error_code),
        is_internal: topic.is_internal,
        partitions,
    })
}

fn topic_name(name: &Arc<str>) -> TopicName {
    TopicName(StrBytes::from_string(name.to_string()))
}

pub(super) fn by_topic<Q>(
    questions: &[Q],
    topic: impl Fn(&Q) -> &Arc<str>,
) -> Vec<(&Arc<str>, Vec<&Q>)> {
    let mut groups: Vec<(&Arc<str>, Vec<&Q>)> = Vec::new();
    let mut index: HashMap<&str, usize> = HashMap::new();
    for question in questions {
        let name = topic(question);
        let group = *index.entry(name).or_insert_with(|| {
            groups.push((name, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(question);
    }
    groups
}

pub(super) fn collect_in_order<'a, Q, A: Clone>(
    questions: &'a [Q],
    key: impl Fn(&'a Q) -> (&'a str, i32),
    found: impl Iterator<Item = (&'a str, i32, A)>,
    answers: &mut Vec<Option<A>>,
) {
    let found: HashMap<(&str, i32), A> =
        found.map(|(topic, partition, answer)| ((topic, partition), answer)).collect();
    answers.extend(questions.iter().map(|question| found.get(&key(question)).cloned()));
}
