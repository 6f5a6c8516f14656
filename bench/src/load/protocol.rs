//! What the synthetic broker answers: a frame in, a frame out, no sockets and no clock.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dataplane::wire::{
    AnswerHead, AnswerPartition, FetchAnswer, FetchPartition, FetchRequest, TopicKey,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeClusterResponse, ListOffsetsRequest,
    ListOffsetsResponse, MetadataRequest, MetadataResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse, RequestHeader, ResponseHeader, TopicName,
    api_versions_response::ApiVersion,
    describe_cluster_response::DescribeClusterBroker,
    list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
    metadata_response::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic},
    offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use storage::TopicId;

use super::Generator;

/// Node id of the one broker.
const NODE_ID: i32 = 1;
/// Bytes of one answer at most, whatever is asked.
const ANSWER_BYTES_MAX: usize = 32 << 20;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const OFFSET_OUT_OF_RANGE: i16 = 1;

/// The APIs and versions the broker speaks.
const VERSIONS: [(ApiKey, i16, i16); 6] = [
    (ApiKey::Fetch, FetchRequest::VERSION_MIN, FetchRequest::VERSION_MAX),
    (ApiKey::ListOffsets, 1, 10),
    (ApiKey::Metadata, 0, 13),
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::OffsetForLeaderEpoch, 2, 4),
    (ApiKey::DescribeCluster, 0, 2),
];

/// An answer, and how long a real broker would have waited for data before giving it.
#[derive(Debug)]
pub struct Answer {
    /// The frame, its length included.
    pub frame: Vec<u8>,
    /// The long poll.
    pub wait: Duration,
}

/// A request the broker cannot read; the connection is closed.
#[derive(Debug, thiserror::Error)]
#[error("the synthetic source cannot read a request: {0}")]
pub struct RequestError(String);

impl RequestError {
    fn of(problem: impl std::fmt::Display) -> Self {
        Self(problem.to_string())
    }
}

/// A cluster of one broker with one topic.
#[derive(Clone, Debug)]
pub struct SourceCluster {
    generator: Generator,
    topic_id: TopicId,
    port: u16,
}

impl SourceCluster {
    /// The cluster as clients of `port` on the loopback interface see it.
    #[must_use]
    pub fn new(generator: Generator, port: u16) -> Self {
        Self { generator, topic_id: TopicId(*b"longhaul-demo-01"), port }
    }

    /// The same cluster on another port, once it is known.
    #[must_use]
    pub fn on_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Answers one request frame (without its length).
    ///
    /// # Errors
    /// When the frame is not a request this broker advertises.
    pub fn answer(&self, frame: &[u8]) -> Result<Answer, RequestError> {
        let [key_high, key_low, version_high, version_low, ..] = *frame else {
            return Err(RequestError("shorter than a header".to_owned()));
        };
        let key = i16::from_be_bytes([key_high, key_low]);
        let version = i16::from_be_bytes([version_high, version_low]);
        let api =
            ApiKey::try_from(key).map_err(|()| RequestError(format!("unknown API key {key}")))?;
        let mut bytes = Bytes::copy_from_slice(frame);
        let header = RequestHeader::decode(&mut bytes, api.request_header_version(version))
            .map_err(RequestError::of)?;
        let at_once = |frame| Ok(Answer { frame, wait: Duration::ZERO });
        match api {
            ApiKey::Fetch => self.fetch(&header, version, &bytes),
            ApiKey::ApiVersions => at_once(api_versions(&header, version)?),
            ApiKey::Metadata => at_once(self.metadata(&header, version, bytes)?),
            ApiKey::ListOffsets => at_once(self.list_offsets(&header, version, bytes)?),
            ApiKey::OffsetForLeaderEpoch => at_once(self.leader_epochs(&header, version, bytes)?),
            ApiKey::DescribeCluster => at_once(self.describe_cluster(&header, version)?),
            other => Err(RequestError(format!("{other:?} is not served"))),
        }
    }

    fn metadata(
        &self,
        header: &RequestHeader,
        version: i16,
        mut body: Bytes,
    ) -> Result<Vec<u8>, RequestError> {
        let request = MetadataRequest::decode(&mut body, version).map_err(RequestError::of)?;
        let wanted = match request.topics {
            None => vec![self.topic_metadata()],
            Some(topics) if topics.is_empty() && version == 0 => vec![self.topic_metadata()],
            Some(topics) => topics
                .into_iter()
                .map(|topic| {
                    let by_id = topic.topic_id.into_bytes() == self.topic_id.0;
                    let by_name = topic
                        .name
                        .as_ref()
                        .is_some_and(|name| name.as_str() == self.generator.workload().topic);
                    if by_id || by_name {
                        self.topic_metadata()
                    } else {
                        MetadataResponseTopic::default()
                            .with_error_code(UNKNOWN_TOPIC_OR_PARTITION)
                            .with_name(topic.name)
                            .with_topic_id(topic.topic_id)
                    }
                })
                .collect(),
        };
        let broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(NODE_ID))
            .with_host(StrBytes::from_static_str("127.0.0.1"))
            .with_port(i32::from(self.port));
        let response = MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_cluster_id(Some(cluster_id()))
            .with_controller_id(BrokerId(NODE_ID))
            .with_topics(wanted);
        respond(ApiKey::Metadata, header, version, &response)
    }

    fn topic_metadata(&self) -> MetadataResponseTopic {
        let partitions = (0..self.generator.workload().partitions)
            .map(|index| {
                MetadataResponsePartition::default()
                    .with_partition_index(index.cast_signed())
                    .with_leader_id(BrokerId(NODE_ID))
                    .with_leader_epoch(0)
                    .with_replica_nodes(vec![BrokerId(NODE_ID)])
                    .with_isr_nodes(vec![BrokerId(NODE_ID)])
            })
            .collect();
        MetadataResponseTopic::default()
            .with_name(Some(self.topic_name()))
            .with_topic_id(uuid(self.topic_id))
            .with_partitions(partitions)
    }

    fn topic_name(&self) -> TopicName {
        TopicName(StrBytes::from_string(self.generator.workload().topic.clone()))
    }

    fn knows(&self, topic: &str, partition: i32) -> bool {
        let workload = self.generator.workload();
        topic == workload.topic && (0..workload.partitions.cast_signed()).contains(&partition)
    }

    fn list_offsets(
        &self,
        header: &RequestHeader,
        version: i16,
        mut body: Bytes,
    ) -> Result<Vec<u8>, RequestError> {
        let request = ListOffsetsRequest::decode(&mut body, version).map_err(RequestError::of)?;
        let topics = request
            .topics
            .into_iter()
            .map(|topic| {
                let partitions = topic.partitions.iter().map(|asked| {
                    let answer = ListOffsetsPartitionResponse::default()
                        .with_partition_index(asked.partition_index)
                        .with_leader_epoch(0);
                    if !self.knows(&topic.name, asked.partition_index) {
                        return answer.with_error_code(UNKNOWN_TOPIC_OR_PARTITION);
                    }
                    answer.with_offset(if asked.timestamp == -2 {
                        0
                    } else {
                        self.generator.end_offset()
                    })
                });
                let partitions = partitions.collect();
                ListOffsetsTopicResponse::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions)
            })
            .collect();
        respond(
            ApiKey::ListOffsets,
            header,
            version,
            &ListOffsetsResponse::default().with_topics(topics),
        )
    }

    fn leader_epochs(
        &self,
        header: &RequestHeader,
        version: i16,
        mut body: Bytes,
    ) -> Result<Vec<u8>, RequestError> {
        let request =
            OffsetForLeaderEpochRequest::decode(&mut body, version).map_err(RequestError::of)?;
        let topics = request
            .topics
            .into_iter()
            .map(|topic| {
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|asked| {
                        let known = self.knows(&topic.topic, asked.partition);
                        EpochEndOffset::default()
                            .with_partition(asked.partition)
                            .with_error_code(if known { 0 } else { UNKNOWN_TOPIC_OR_PARTITION })
                            .with_leader_epoch(0)
                            .with_end_offset(self.generator.end_offset())
                    })
                    .collect();
                OffsetForLeaderTopicResult::default()
                    .with_topic(topic.topic.clone())
                    .with_partitions(partitions)
            })
            .collect();
        let response = OffsetForLeaderEpochResponse::default().with_topics(topics);
        respond(ApiKey::OffsetForLeaderEpoch, header, version, &response)
    }

    fn describe_cluster(
        &self,
        header: &RequestHeader,
        version: i16,
    ) -> Result<Vec<u8>, RequestError> {
        let broker = DescribeClusterBroker::default()
            .with_broker_id(BrokerId(NODE_ID))
            .with_host(StrBytes::from_static_str("127.0.0.1"))
            .with_port(i32::from(self.port));
        let response = DescribeClusterResponse::default()
            .with_cluster_id(cluster_id())
            .with_controller_id(BrokerId(NODE_ID))
            .with_brokers(vec![broker]);
        respond(ApiKey::DescribeCluster, header, version, &response)
    }

    fn fetch(
        &self,
        header: &RequestHeader,
        version: i16,
        body: &[u8],
    ) -> Result<Answer, RequestError> {
        let request = FetchRequest::decode(version, body).map_err(RequestError::of)?;
        let mut budget = usize::try_from(request.max_bytes).unwrap_or(0).min(ANSWER_BYTES_MAX);
        let mut records = Vec::new();
        let mut topics = Vec::new();
        let mut errors = false;
        for topic in &request.topics {
            let known = match &topic.topic {
                TopicKey::Name(name) => **name == *self.generator.workload().topic,
                TopicKey::Id(id) => *id == self.topic_id,
            };
            let mut partitions = Vec::new();
            for asked in &topic.partitions {
                let answer = self.read(known, asked, &mut budget, &mut records);
                errors |= answer.error_code != 0;
                partitions.push(answer);
            }
            topics.push((topic.topic.clone(), partitions));
        }
        // No session is opened (id 0): each request names what it wants, as brokers before 1.1 had it.
        let head = AnswerHead {
            correlation_id: header.correlation_id,
            throttle_time_ms: 0,
            error_code: 0,
            session_id: 0,
        };
        let answer = FetchAnswer::encode(version, &head, &topics, &[]);
        let empty = records.is_empty() && !errors && request.min_bytes > 0;
        let wait = if empty { u64::try_from(request.max_wait_ms).unwrap_or(0) } else { 0 };
        let sizes = topics
            .iter()
            .flat_map(|(_, partitions)| partitions.iter().map(|one| one.records_bytes));
        Ok(Answer { frame: weave(&answer, &records, sizes), wait: Duration::from_millis(wait) })
    }

    fn read(
        &self,
        known: bool,
        asked: &FetchPartition,
        budget: &mut usize,
        out: &mut Vec<u8>,
    ) -> AnswerPartition {
        let end = self.generator.end_offset();
        let mut answer = AnswerPartition {
            partition: asked.partition,
            error_code: 0,
            high_watermark: end,
            last_stable_offset: end,
            log_start_offset: 0,
            aborted: None,
            records_bytes: 0,
            diverging: None,
            current_leader: None,
        };
        let partition = u32::try_from(asked.partition).unwrap_or(u32::MAX);
        if !known || partition >= self.generator.workload().partitions {
            answer.error_code = UNKNOWN_TOPIC_OR_PARTITION;
            return answer;
        }
        if !(0..=end).contains(&asked.fetch_offset) {
            answer.error_code = OFFSET_OUT_OF_RANGE;
            return answer;
        }
        let room = usize::try_from(asked.max_bytes).unwrap_or(0).min(*budget);
        let mut next = asked.fetch_offset;
        while next < end {
            let fits = answer.records_bytes + self.generator.batch_bytes() <= room;
            if !fits && (answer.records_bytes > 0 || !out.is_empty()) {
                break;
            }
            let base = self.generator.batch(partition, next, out);
            next = base + i64::from(self.generator.workload().batch_records);
            answer.records_bytes += self.generator.batch_bytes();
        }
        *budget = budget.saturating_sub(answer.records_bytes);
        answer
    }
}

/// Puts the records between the encoded pieces.
fn weave(answer: &FetchAnswer, records: &[u8], sizes: impl Iterator<Item = usize>) -> Vec<u8> {
    let fields: usize = answer.pieces.iter().map(Bytes::len).sum();
    let mut frame = Vec::with_capacity(fields + records.len());
    let mut pieces = answer.pieces.iter();
    let mut rest = records;
    if let Some(first) = pieces.next() {
        frame.extend_from_slice(first);
    }
    for size in sizes.filter(|size| *size > 0) {
        let (now, later) = rest.split_at(size);
        frame.extend_from_slice(now);
        rest = later;
        if let Some(piece) = pieces.next() {
            frame.extend_from_slice(piece);
        }
    }
    frame
}

fn api_versions(header: &RequestHeader, version: i16) -> Result<Vec<u8>, RequestError> {
    let keys = VERSIONS
        .iter()
        .map(|(api, min, max)| {
            ApiVersion::default()
                .with_api_key(*api as i16)
                .with_min_version(*min)
                .with_max_version(*max)
        })
        .collect();
    let supported = (0..=4).contains(&version);
    let response = ApiVersionsResponse::default()
        .with_error_code(if supported { 0 } else { 35 })
        .with_api_keys(keys);
    respond(ApiKey::ApiVersions, header, if supported { version } else { 0 }, &response)
}

fn respond(
    api: ApiKey,
    request: &RequestHeader,
    version: i16,
    body: &impl Encodable,
) -> Result<Vec<u8>, RequestError> {
    let mut bytes = BytesMut::new();
    ResponseHeader::default()
        .with_correlation_id(request.correlation_id)
        .encode(&mut bytes, api.response_header_version(version))
        .map_err(RequestError::of)?;
    body.encode(&mut bytes, version).map_err(RequestError::of)?;
    let length = u32::try_from(bytes.len()).map_err(RequestError::of)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&bytes);
    Ok(frame)
}

fn cluster_id() -> StrBytes {
    StrBytes::from_static_str("c3ludGhldGljLXNvdXJjZQ")
}

fn uuid(id: TopicId) -> uuid::Uuid {
    uuid::Uuid::from_bytes(id.0)
}
