//! What the synthetic broker answers: a frame in, a frame out, no sockets and no clock.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dataplane::wire::{
    AnswerHead, AnswerPartition, FetchAnswer, FetchPartition, FetchRequest, FetchTopic, TopicKey,
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
use super::generator::HEAD_BYTES;
use super::session::{Answering, FetchSession};

/// Node id of the one broker.
const NODE_ID: i32 = 1;
/// Bytes of one answer at most, whatever is asked.
const ANSWER_BYTES_MAX: usize = 32 << 20;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const OFFSET_OUT_OF_RANGE: i16 = 1;
/// The first version of ListOffsets whose answers tell leader epochs.
const LEADER_EPOCHS_FROM: i16 = 4;
/// A ListOffsets timestamp.
const EARLIEST: i64 = -2;
/// The shortest and longest time until a waiting request looks again: a load that has not begun has no
/// time for its first batch.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(10));

/// The APIs and versions the broker speaks, and Produce, which it does not: librdkafka fetches only from
/// brokers that know both in versions with the batches of today. Whoever produces is disconnected.
const VERSIONS: [(ApiKey, i16, i16); 7] = [
    (ApiKey::Produce, 3, 9),
    (ApiKey::Fetch, FetchRequest::VERSION_MIN, FetchRequest::VERSION_MAX),
    (ApiKey::ListOffsets, 1, 10),
    (ApiKey::Metadata, 0, 13),
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::OffsetForLeaderEpoch, 2, 4),
    (ApiKey::DescribeCluster, 0, 2),
];

/// An answer, or how long a real broker would wait for data before giving one.
#[derive(Debug)]
pub enum Reply {
    /// Send this.
    Now(Answer),
    /// Ask again after this long.
    Later(Duration),
}

/// The pieces of an answer's frame: encoded fields, and batches whose records are the generator's.
#[derive(Debug)]
pub struct Answer {
    pieces: Vec<Piece>,
    record_bytes: usize,
}

#[derive(Debug)]
enum Piece {
    Fields(Bytes),
    Batch { head: [u8; HEAD_BYTES], partition: u32, offset: i64 },
}

impl Answer {
    fn of_fields(fields: impl Into<Bytes>) -> Self {
        Self { pieces: vec![Piece::Fields(fields.into())], record_bytes: 0 }
    }

    /// The frame in order, its length in front. The records are borrowed: whoever sends many need not copy
    /// them.
    pub fn slices<'a>(&'a self, generator: &'a Generator) -> Vec<IoSlice<'a>> {
        let mut slices = Vec::with_capacity(2 * self.pieces.len());
        for piece in &self.pieces {
            match piece {
                Piece::Fields(bytes) => slices.push(IoSlice::new(bytes)),
                Piece::Batch { head, partition, offset } => {
                    slices.push(IoSlice::new(head));
                    slices.push(IoSlice::new(generator.body(*partition, *offset)));
                }
            }
        }
        slices
    }

    /// Bytes of batches in it.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }
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
    address: SocketAddr,
}

impl SourceCluster {
    /// The cluster as clients of `port` on the loopback interface see it.
    #[must_use]
    pub fn new(generator: Generator, port: u16) -> Self {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        Self { generator, topic_id: TopicId(*b"longhaul-demo-01"), address }
    }

    /// The same cluster, its one broker at another address.
    #[must_use]
    pub fn at(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// What the topic holds.
    #[must_use]
    pub fn generator(&self) -> &Generator {
        &self.generator
    }

    /// Answers one request frame (without its length) at a time of the clock that processes share. `waited`
    /// is how long the request waits already; `session` is the connection's.
    ///
    /// # Errors
    /// When the frame is not a request this broker advertises.
    pub fn answer(
        &self,
        session: &mut FetchSession,
        frame: &[u8],
        now_ns: u64,
        waited: Duration,
    ) -> Result<Reply, RequestError> {
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
        let at_once = |frame: Vec<u8>| Ok(Reply::Now(Answer::of_fields(frame)));
        match api {
            ApiKey::Fetch => self.fetch(session, &header, version, &bytes, (now_ns, waited)),
            ApiKey::ApiVersions => at_once(api_versions(&header, version)?),
            ApiKey::Metadata => at_once(self.metadata(&header, version, bytes)?),
            ApiKey::ListOffsets => at_once(self.list_offsets(&header, version, bytes, now_ns)?),
            ApiKey::OffsetForLeaderEpoch => {
                at_once(self.leader_epochs(&header, version, bytes, now_ns)?)
            }
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
            .with_host(StrBytes::from_string(self.address.ip().to_string()))
            .with_port(i32::from(self.address.port()));
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

    fn known(&self, topic: &str, partition: i32) -> Option<u32> {
        let workload = self.generator.workload();
        let partition = u32::try_from(partition).ok()?;
        (topic == workload.topic && partition < workload.partitions).then_some(partition)
    }

    fn list_offsets(
        &self,
        header: &RequestHeader,
        version: i16,
        mut body: Bytes,
        now_ns: u64,
    ) -> Result<Vec<u8>, RequestError> {
        let request = ListOffsetsRequest::decode(&mut body, version).map_err(RequestError::of)?;
        let topics = request
            .topics
            .into_iter()
            .map(|topic| {
                let partitions = topic.partitions.iter().map(|asked| {
                    let answer = ListOffsetsPartitionResponse::default()
                        .with_partition_index(asked.partition_index)
                        // -1 stands for a version without the field.
                        .with_leader_epoch(if version >= LEADER_EPOCHS_FROM { 0 } else { -1 });
                    let Some(partition) = self.known(&topic.name, asked.partition_index) else {
                        return answer.with_error_code(UNKNOWN_TOPIC_OR_PARTITION);
                    };
                    let end = self.generator.end_offset_at(partition, now_ns);
                    answer.with_offset(if asked.timestamp == EARLIEST { 0 } else { end })
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
        now_ns: u64,
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
                        let end = self
                            .known(&topic.topic, asked.partition)
                            .map(|partition| self.generator.end_offset_at(partition, now_ns));
                        EpochEndOffset::default()
                            .with_partition(asked.partition)
                            .with_error_code(end.map_or(UNKNOWN_TOPIC_OR_PARTITION, |_| 0))
                            .with_leader_epoch(0)
                            .with_end_offset(end.unwrap_or(-1))
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
            .with_host(StrBytes::from_string(self.address.ip().to_string()))
            .with_port(i32::from(self.address.port()));
        let response = DescribeClusterResponse::default()
            .with_cluster_id(cluster_id())
            .with_controller_id(BrokerId(NODE_ID))
            .with_brokers(vec![broker]);
        respond(ApiKey::DescribeCluster, header, version, &response)
    }

    fn fetch(
        &self,
        session: &mut FetchSession,
        header: &RequestHeader,
        version: i16,
        body: &[u8],
        (now_ns, waited): (u64, Duration),
    ) -> Result<Reply, RequestError> {
        let request = FetchRequest::decode(version, body).map_err(RequestError::of)?;
        let ours = |topic: &TopicKey| match topic {
            TopicKey::Name(name) => **name == *self.generator.workload().topic,
            TopicKey::Id(id) => *id == self.topic_id,
        };
        if waited.is_zero() {
            session.take_up(version, &request, self.generator.workload().partitions, ours);
        }
        let mut reading = Reading {
            now_ns,
            budget: usize::try_from(request.max_bytes).unwrap_or(0).min(ANSWER_BYTES_MAX),
            batches: Vec::new(),
            counts: Vec::new(),
            errors: false,
            due_ns: u64::MAX,
        };
        let topics = match session.answering {
            Answering::Refused(error) => return Ok(refuse(header, version, error)),
            Answering::Incremental => self.read_session(session, &mut reading),
            Answering::Named | Answering::Opened => {
                let read = |topic: &FetchTopic| {
                    let known = ours(&topic.topic);
                    let partitions = topic.partitions.iter();
                    let read = partitions.map(|asked| self.read(known, asked, &mut reading));
                    (topic.topic.clone(), read.collect::<Vec<_>>())
                };
                request.topics.iter().map(read).collect()
            }
        };
        let wait_max = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        // One batch is worth an answer, whatever the least number of bytes is: nobody here asks for more.
        let waits = reading.batches.is_empty() && !reading.errors && request.min_bytes > 0;
        if waits && waited < wait_max {
            return Ok(Reply::Later(self.pause(reading.due_ns, now_ns).min(wait_max - waited)));
        }
        topics.iter().for_each(|(_, answers)| session.told(answers));
        let head = AnswerHead {
            correlation_id: header.correlation_id,
            throttle_time_ms: 0,
            error_code: 0,
            session_id: session.id(),
        };
        let answer = FetchAnswer::encode(version, &head, &topics, &[]);
        let Reading { batches, counts, .. } = reading;
        Ok(Reply::Now(weave(answer, batches, &counts, self.generator.batch_bytes())))
    }

    /// What of a session has something to tell.
    fn read_session(
        &self,
        session: &mut FetchSession,
        reading: &mut Reading,
    ) -> Vec<(TopicKey, Vec<AnswerPartition>)> {
        let now_ns = reading.now_ns;
        session.make_ready(self.generator.partitions_due(session.looked_ns, now_ns));
        session.looked_ns = now_ns;
        let answers = session.read(|asked| self.read(true, asked, reading));
        reading.due_ns = self.generator.next_due_ns(now_ns).unwrap_or(u64::MAX);
        let topic = session.topic().filter(|_| !answers.is_empty());
        topic.map(|topic| (topic, answers)).into_iter().collect()
    }

    /// Until a batch is due, as far as that is known.
    fn pause(&self, due_ns: u64, now_ns: u64) -> Duration {
        if self.generator.workload().batch_interval_ns.is_none() {
            return Duration::MAX;
        }
        let (shortest, longest) = LOOK_AGAIN;
        Duration::from_nanos(due_ns.saturating_sub(now_ns)).clamp(shortest, longest)
    }

    fn read(&self, known: bool, asked: &FetchPartition, reading: &mut Reading) -> AnswerPartition {
        let mut answer = AnswerPartition {
            partition: asked.partition,
            error_code: 0,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: 0,
            aborted: None,
            records_bytes: 0,
            diverging: None,
            current_leader: None,
        };
        let partition = u32::try_from(asked.partition).unwrap_or(u32::MAX);
        if !known || partition >= self.generator.workload().partitions {
            answer.error_code = UNKNOWN_TOPIC_OR_PARTITION;
            reading.errors = true;
            return answer;
        }
        let end = self.generator.end_offset_at(partition, reading.now_ns);
        (answer.high_watermark, answer.last_stable_offset) = (end, end);
        if !(0..=end).contains(&asked.fetch_offset) {
            answer.error_code = OFFSET_OUT_OF_RANGE;
            reading.errors = true;
            return answer;
        }
        let room = usize::try_from(asked.max_bytes).unwrap_or(0).min(reading.budget);
        let (mut next, before) = (asked.fetch_offset, reading.batches.len());
        while next < end {
            let fits = answer.records_bytes + self.generator.batch_bytes() <= room;
            if !fits && (answer.records_bytes > 0 || !reading.batches.is_empty()) {
                break;
            }
            let (first, head) = self.generator.head(partition, next);
            reading.batches.push(Piece::Batch { head, partition, offset: first });
            next = first + i64::from(self.generator.workload().batch_records);
            answer.records_bytes += self.generator.batch_bytes();
        }
        if next < self.generator.end_offset()
            && let Some(due_ns) = self.generator.due_ns(partition, next)
        {
            reading.due_ns = reading.due_ns.min(due_ns);
        }
        reading.budget = reading.budget.saturating_sub(answer.records_bytes);
        reading.counts.extend(Some(reading.batches.len() - before).filter(|count| *count > 0));
        answer
    }
}

/// What a Fetch request has read so far.
struct Reading {
    now_ns: u64,
    /// Bytes the answer may still take.
    budget: usize,
    batches: Vec<Piece>,
    /// Batches of each partition with any.
    counts: Vec<usize>,
    /// Whether a partition could not be read, which is answered at once.
    errors: bool,
    /// When the first batch that is not there yet will be.
    due_ns: u64,
}

/// An answer that is an error and nothing else.
fn refuse(header: &RequestHeader, version: i16, error_code: i16) -> Reply {
    let head = AnswerHead {
        correlation_id: header.correlation_id,
        throttle_time_ms: 0,
        error_code,
        session_id: 0,
    };
    Reply::Now(weave(FetchAnswer::encode(version, &head, &[], &[]), Vec::new(), &[], 0))
}

/// Puts the batches between the encoded pieces; `counts` are the batches of each partition with any.
fn weave(answer: FetchAnswer, batches: Vec<Piece>, counts: &[usize], batch_bytes: usize) -> Answer {
    let record_bytes = batches.len() * batch_bytes;
    let mut pieces = Vec::with_capacity(answer.pieces.len() + batches.len());
    let mut fields = answer.pieces.into_iter().map(Piece::Fields);
    let mut batches = batches.into_iter();
    pieces.extend(fields.next());
    for count in counts {
        pieces.extend(batches.by_ref().take(*count));
        pieces.extend(fields.next());
    }
    Answer { pieces, record_bytes }
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
