//! Fetch responses, versions 4 to 18: parsed as they stream in, and written around records that
//! stay where they are.
//!
//! Owns a parser's place in one response; runs on the core that owns the connection. Must never
//! touch record bytes, hold them, or allocate for a count.

use bytes::{Bytes, BytesMut};
use storage::{AbortedTransaction, TopicId};

use super::fetch_request::topic_bytes_min;
use super::frame::{begin_response, end_frame};
use super::primitives::{Reader, Writer};
use super::{ApiKey, FetchRequest, TopicKey, WireError};

/// The front of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Correlation id of the request.
    pub correlation_id: i32,
    /// How long the source throttles us, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request (v7), 0 for none.
    pub error_code: i16,
    /// Session id (v7), 0 for none.
    pub session_id: i32,
}

/// A partition's fields up to its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionHead {
    /// Index.
    pub partition: i32,
    /// Error code, 0 for none.
    pub error_code: i16,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset.
    pub last_stable_offset: i64,
    /// Log start (v5), -1 before.
    pub log_start_offset: i64,
    /// KIP-392 replica to read from (v11), -1 for none.
    pub preferred_read_replica: i32,
    /// Bytes of records that follow.
    pub records_bytes: usize,
}

impl PartitionHead {
    const NONE: Self = Self {
        partition: -1,
        error_code: 0,
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        preferred_read_replica: -1,
        records_bytes: 0,
    };
}

/// A leader and its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderAndEpoch {
    /// Node id.
    pub leader_id: i32,
    /// Epoch.
    pub leader_epoch: i32,
}

/// A partition's fields after its records (v12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PartitionTail {
    /// Where the reader's history leaves the broker's: epoch and its end offset.
    pub diverging: Option<(i32, i64)>,
    /// The leader, where the broker asked is not it.
    pub current_leader: Option<LeaderAndEpoch>,
}

/// A broker's address in a response (v16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// Node id.
    pub node_id: i32,
    /// Host.
    pub host: String,
    /// Port.
    pub port: i32,
}

/// What the parser found next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEvent {
    /// The response's front.
    Head(ResponseHead),
    /// A partition of [`FetchResponseParser::topic`] begins; its records follow.
    Partition(PartitionHead),
    /// Record bytes are next: take them with [`FetchResponseParser::take_records`].
    Records,
    /// The partition ended.
    PartitionEnd(PartitionTail),
    /// The response ended.
    End(Vec<NodeEndpoint>),
}

/// A response taken apart while it arrives.
///
/// Never holds record bytes: it says how many are next, and the caller accounts for them, wherever
/// they were received. Holds one topic name, and of what a
/// count says only the addresses of leaders, which are few.
#[derive(Debug)]
pub struct FetchResponseParser {
    version: i16,
    flexible: bool,
    frame_remaining: usize,
    step: Step,
    correlation_id: i32,
    topics_left: usize,
    partitions_left: usize,
    aborted_left: usize,
    topic_name: String,
    topic_id: TopicId,
    partition: PartitionHead,
    tail: PartitionTail,
    records_remaining: usize,
    endpoints: Vec<NodeEndpoint>,
}

/// What the parser reads next. Each step but skipping is one field group that is read whole or not
/// at all, so that a caller may cut the stream anywhere.
#[derive(Clone, Copy, Debug)]
enum Step {
    Correlation,
    Head,
    Topic,
    Partition,
    Aborted,
    RecordsLength,
    Records,
    TagCount(Place),
    Tag(Place, u32),
    SkipTag(Place, u32, usize),
    End,
}

/// Whose tagged fields are read.
#[derive(Clone, Copy, Debug)]
enum Place {
    Header,
    Aborted,
    Partition,
    Topic,
    Response,
}

/// Longest value of a tagged field that is read and not skipped: the caller must hold it whole, and
/// promises only 64 KiB. The one field that could be longer lists addresses, which are mere hints.
const TAG_BYTES_MAX: usize = 60 * 1024;

/// Bytes of the smallest partition before v12: fixed fields of v4 and two lengths.
const PARTITION_BYTES_MIN: usize = 4 + 2 + 8 + 8 + 1 + 1;

/// Bytes of an aborted transaction's fields.
const ABORTED_BYTES: usize = 8 + 8;

/// Bytes of the smallest node endpoint: id, host, port, rack, tagged fields.
const ENDPOINT_BYTES_MIN: usize = 4 + 1 + 4 + 1 + 1;

const MESSAGE: &str = "Fetch response";

/// An unfinished field is not an error while more bytes of the frame are to come.
type Progress = Result<Option<FetchEvent>, WireError>;

impl FetchResponseParser {
    /// A parser of one response: `frame_bytes` is the frame's length field.
    ///
    /// # Panics
    /// For a version that [`FetchRequest`](super::FetchRequest) does not have.
    #[must_use]
    pub fn new(version: i16, frame_bytes: usize) -> Self {
        assert!((FetchRequest::VERSION_MIN..=FetchRequest::VERSION_MAX).contains(&version));
        Self {
            version,
            flexible: ApiKey::FETCH.is_flexible(version),
            frame_remaining: frame_bytes,
            step: Step::Correlation,
            correlation_id: 0,
            topics_left: 0,
            partitions_left: 0,
            aborted_left: 0,
            topic_name: String::new(),
            topic_id: TopicId::ZERO,
            partition: PartitionHead::NONE,
            tail: PartitionTail::default(),
            records_remaining: 0,
            endpoints: Vec::new(),
        }
    }

    /// Takes fields from the front of `bytes` until something is to be told. `None`: `bytes` holds
    /// no whole field more; what it did not take must be offered again with more behind it. A
    /// caller that can hold 64 KiB always makes progress. After [`FetchEvent::End`] nothing is
    /// taken: bytes beyond belong to the next frame.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<FetchEvent>, WireError> {
        loop {
            if let Step::Records = self.step
                && self.records_remaining > 0
            {
                return Ok(Some(FetchEvent::Records));
            }
            if let Step::End = self.step {
                return Ok(None);
            }
            let window = &bytes[..bytes.len().min(self.frame_remaining)];
            let beyond = self.frame_remaining - window.len();
            let mut reader = Reader::part(MESSAGE, self.flexible, window, beyond);
            let event = match self.advance(&mut reader) {
                // More of the frame is to come: the step is tried again with it.
                Err(WireError::Truncated { .. }) if beyond > 0 => return Ok(None),
                outcome => outcome?,
            };
            let taken = window.len() - reader.remaining();
            *bytes = &bytes[taken..];
            self.frame_remaining -= taken;
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// The topic of the current partition: its name up to v12, its id from v13.
    #[must_use]
    pub fn topic(&self) -> (&str, TopicId) {
        (&self.topic_name, self.topic_id)
    }

    /// Record bytes of the current partition not yet taken.
    #[must_use]
    pub fn records_remaining(&self) -> usize {
        self.records_remaining
    }

    /// Accounts for record bytes the caller took from the stream.
    ///
    /// # Panics
    /// When `bytes` is more than [`FetchResponseParser::records_remaining`].
    pub fn take_records(&mut self, bytes: usize) {
        assert!(bytes <= self.records_remaining, "took {bytes} of {}", self.records_remaining);
        self.records_remaining -= bytes;
        self.frame_remaining -= bytes;
    }

    /// Bytes of the frame not yet taken.
    #[must_use]
    pub fn frame_remaining(&self) -> usize {
        self.frame_remaining
    }

    /// Reads one step from `reader` and says what follows it.
    fn advance(&mut self, reader: &mut Reader<'_>) -> Progress {
        match self.step {
            Step::Correlation => {
                self.correlation_id = reader.i32("correlation id")?;
                self.step = Step::TagCount(Place::Header);
                Ok(None)
            }
            Step::Head => self.head(reader),
            Step::Topic => self.begin_topic(reader),
            Step::Partition => self.begin_partition(reader),
            Step::Aborted => self.aborted(reader),
            Step::RecordsLength => self.records_length(reader),
            Step::Records => {
                self.step = Step::TagCount(Place::Partition);
                Ok(None)
            }
            Step::TagCount(place) => self.tag_count(place, reader),
            Step::Tag(place, left) => self.tag(place, left, reader),
            Step::SkipTag(place, left, bytes) => self.skip_tag(place, left, bytes, reader),
            Step::End => Ok(None),
        }
    }

    fn head(&mut self, reader: &mut Reader<'_>) -> Progress {
        let throttle_time_ms = reader.i32("throttle time")?;
        let (error_code, session_id) = match self.version {
            7.. => (reader.i16("error code")?, reader.i32("session id")?),
            _ => (0, 0),
        };
        self.topics_left = reader.count(topic_bytes_min(self.version), "topics")?;
        self.step = Step::Topic;
        Ok(Some(FetchEvent::Head(ResponseHead {
            correlation_id: self.correlation_id,
            throttle_time_ms,
            error_code,
            session_id,
        })))
    }

    fn begin_topic(&mut self, reader: &mut Reader<'_>) -> Progress {
        if self.topics_left == 0 {
            self.step = Step::TagCount(Place::Response);
            return Ok(None);
        }
        let (name, id) = match self.version {
            13.. => ("", reader.topic_id("topic id")?),
            _ => (reader.string("topic")?, TopicId::ZERO),
        };
        self.partitions_left = reader.count(PARTITION_BYTES_MIN, "partitions")?;
        self.topic_name.clear();
        self.topic_name.push_str(name);
        self.topic_id = id;
        self.topics_left -= 1;
        self.step = Step::Partition;
        Ok(None)
    }

    fn begin_partition(&mut self, reader: &mut Reader<'_>) -> Progress {
        if self.partitions_left == 0 {
            self.step = Step::TagCount(Place::Topic);
            return Ok(None);
        }
        let partition = PartitionHead {
            partition: reader.i32("partition")?,
            error_code: reader.i16("partition error code")?,
            high_watermark: reader.i64("high watermark")?,
            last_stable_offset: reader.i64("last stable offset")?,
            log_start_offset: if self.version >= 5 { reader.i64("log start offset")? } else { -1 },
            ..PartitionHead::NONE
        };
        // Null, which a reader of uncommitted records gets, is no entry either.
        let aborted = reader.nullable_count(ABORTED_BYTES, "aborted transactions")?;
        self.aborted_left = aborted.unwrap_or(0);
        self.partition = partition;
        self.tail = PartitionTail::default();
        self.partitions_left -= 1;
        self.step = Step::Aborted;
        Ok(None)
    }

    fn aborted(&mut self, reader: &mut Reader<'_>) -> Progress {
        if self.aborted_left == 0 {
            self.step = Step::RecordsLength;
            return Ok(None);
        }
        reader.take(ABORTED_BYTES, "aborted transaction")?;
        self.aborted_left -= 1;
        self.step = Step::TagCount(Place::Aborted);
        Ok(None)
    }

    fn records_length(&mut self, reader: &mut Reader<'_>) -> Progress {
        if self.version >= 11 {
            self.partition.preferred_read_replica = reader.i32("preferred read replica")?;
        }
        let length = reader.bytes_len("records length")?.unwrap_or(0);
        if length > reader.room() {
            return Err(reader.invalid("records length", length as i64));
        }
        self.partition.records_bytes = length;
        self.records_remaining = length;
        self.step = Step::Records;
        Ok(Some(FetchEvent::Partition(self.partition)))
    }

    fn tag_count(&mut self, place: Place, reader: &mut Reader<'_>) -> Progress {
        if !self.flexible {
            return self.after_tags(place, reader);
        }
        let count = reader.uvarint("tagged fields")?;
        if count as usize > reader.room() / 2 {
            return Err(reader.invalid("tagged fields", i64::from(count)));
        }
        self.step = Step::Tag(place, count);
        Ok(None)
    }

    fn tag(&mut self, place: Place, left: u32, reader: &mut Reader<'_>) -> Progress {
        let Some(left) = left.checked_sub(1) else {
            return self.after_tags(place, reader);
        };
        let tag = reader.uvarint("tag")?;
        let size = reader.uvarint("tag size")? as usize;
        if size > reader.room() {
            return Err(reader.invalid("tag size", size as i64));
        }
        let known = matches!((place, tag), (Place::Partition, 0 | 1))
            || matches!((place, tag), (Place::Response, 0) if self.version >= 16);
        if !known || size > TAG_BYTES_MAX {
            self.step = Step::SkipTag(place, left, size);
            return Ok(None);
        }
        let mut value = Reader::new(MESSAGE, true, reader.take(size, "tagged field")?);
        self.known_tag(place, tag, &mut value).map_err(|error| match error {
            // The value is there as a whole: what it lacks will not come.
            WireError::Truncated { field, .. } => value.invalid(field, size as i64),
            other => other,
        })?;
        self.step = Step::Tag(place, left);
        Ok(None)
    }

    fn known_tag(
        &mut self,
        place: Place,
        tag: u32,
        value: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        match (place, tag) {
            (Place::Partition, 0) => {
                let diverging = (value.i32("diverging epoch")?, value.i64("diverging end")?);
                self.tail.diverging = (diverging != (-1, -1)).then_some(diverging);
            }
            (Place::Partition, _) => {
                let leader = LeaderAndEpoch {
                    leader_id: value.i32("leader id")?,
                    leader_epoch: value.i32("leader epoch")?,
                };
                self.tail.current_leader = (leader.leader_id != -1).then_some(leader);
            }
            _ => {
                // The last one counts, should a peer send the field twice.
                self.endpoints.clear();
                for _ in 0..value.count(ENDPOINT_BYTES_MIN, "node endpoints")? {
                    self.endpoints.push(NodeEndpoint::decode(value)?);
                }
                return value.finish("node endpoints");
            }
        }
        value.skip_tagged()?;
        value.finish("tagged field")
    }

    fn skip_tag(
        &mut self,
        place: Place,
        left: u32,
        bytes: usize,
        reader: &mut Reader<'_>,
    ) -> Progress {
        // At least one byte, so that a caller without any is asked for more.
        let now = bytes.min(reader.remaining().max(1));
        reader.take(now, "tagged field")?;
        self.step = match bytes - now {
            0 => Step::Tag(place, left),
            rest => Step::SkipTag(place, left, rest),
        };
        Ok(None)
    }

    fn after_tags(&mut self, place: Place, reader: &Reader<'_>) -> Progress {
        let (step, event) = match place {
            Place::Header => (Step::Head, None),
            Place::Aborted => (Step::Aborted, None),
            Place::Partition => (Step::Partition, Some(FetchEvent::PartitionEnd(self.tail))),
            Place::Topic => (Step::Topic, None),
            Place::Response => {
                let left = reader.room();
                if left > 0 {
                    return Err(reader.invalid("bytes after the end", left as i64));
                }
                (Step::End, Some(FetchEvent::End(std::mem::take(&mut self.endpoints))))
            }
        };
        self.step = step;
        Ok(event)
    }
}

impl NodeEndpoint {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let endpoint = Self {
            node_id: reader.i32("node id")?,
            host: reader.string("host")?.to_owned(),
            port: reader.i32("port")?,
        };
        reader.nullable_string("rack")?;
        reader.skip_tagged()?;
        Ok(endpoint)
    }
}

/// The front of an answer we give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerHead {
    /// Correlation id of the request.
    pub correlation_id: i32,
    /// Throttle time in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request.
    pub error_code: i16,
    /// Session id.
    pub session_id: i32,
}

/// A partition's fields in an answer we give; its records are [`AnswerPartition::records_bytes`] long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPartition {
    /// Index.
    pub partition: i32,
    /// Error code.
    pub error_code: i16,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset.
    pub last_stable_offset: i64,
    /// Log start.
    pub log_start_offset: i64,
    /// Aborted transactions: `None`, which is sent as null, for a read-uncommitted reader; a list,
    /// be it empty, for a read-committed one. With an error code Kafka sends an empty list.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// Bytes of records; 0 is written as zero length, never as null.
    pub records_bytes: usize,
    /// Diverging epoch and its end (v12).
    pub diverging: Option<(i32, i64)>,
    /// Leader hint (v12).
    pub current_leader: Option<LeaderAndEpoch>,
}

/// An answer as pieces of encoded fields, between which the records go.
///
/// `pieces[0]`, records of the first partition with any, `pieces[1]`, and so on; the frame's length
/// is at the front and counts the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchAnswer {
    /// Encoded fields.
    pub pieces: Vec<Bytes>,
}

impl FetchAnswer {
    /// Writes an answer. What a version has no field for is left out.
    ///
    /// # Panics
    /// When the frame would be beyond 2 GiB: the caller bounds its records far below.
    #[must_use]
    pub fn encode(
        version: i16,
        head: &AnswerHead,
        topics: &[(TopicKey, Vec<AnswerPartition>)],
        node_endpoints: &[NodeEndpoint],
    ) -> Self {
        let mut out = BytesMut::new();
        let start = begin_response(ApiKey::FETCH, version, head.correlation_id, &mut out);
        let mut writer = Writer::new(ApiKey::FETCH.is_flexible(version), &mut out);
        let mut cuts = Cuts::default();
        writer.i32(head.throttle_time_ms);
        if version >= 7 {
            writer.i16(head.error_code);
            writer.i32(head.session_id);
        }
        writer.len(topics.len());
        for (topic, partitions) in topics {
            topic.encode(&mut writer, version >= 13);
            writer.len(partitions.len());
            for partition in partitions {
                partition.encode(version, &mut cuts, &mut writer);
            }
            writer.no_tagged();
        }
        encode_endpoints(version, node_endpoints, &mut writer);
        end_frame(start, cuts.records_bytes, &mut out);
        Self { pieces: cuts.apply(out.freeze()) }
    }
}

/// Where records go between the encoded fields.
#[derive(Default)]
struct Cuts {
    positions: Vec<usize>,
    records_bytes: usize,
}

impl Cuts {
    fn apply(self, mut fields: Bytes) -> Vec<Bytes> {
        let mut pieces = Vec::with_capacity(self.positions.len() + 1);
        let mut taken = 0;
        for position in self.positions {
            pieces.push(fields.split_to(position - taken));
            taken = position;
        }
        pieces.push(fields);
        pieces
    }
}

impl AnswerPartition {
    fn encode(&self, version: i16, cuts: &mut Cuts, writer: &mut Writer<'_>) {
        writer.i32(self.partition);
        writer.i16(self.error_code);
        writer.i64(self.high_watermark);
        writer.i64(self.last_stable_offset);
        if version >= 5 {
            writer.i64(self.log_start_offset);
        }
        writer.nullable_len(self.aborted.as_ref().map(Vec::len));
        for aborted in self.aborted.iter().flatten() {
            writer.i64(aborted.producer_id.0);
            writer.i64(aborted.first_offset.0);
            writer.no_tagged();
        }
        if version >= 11 {
            // No other replica is nearer than this node.
            writer.i32(-1);
        }
        writer.len(self.records_bytes);
        if self.records_bytes > 0 {
            cuts.positions.push(writer.position());
            cuts.records_bytes += self.records_bytes;
        }
        self.encode_tagged(writer);
    }

    fn encode_tagged(&self, writer: &mut Writer<'_>) {
        if !writer.is_flexible() {
            return;
        }
        let count =
            usize::from(self.diverging.is_some()) + usize::from(self.current_leader.is_some());
        writer.tagged_count(count);
        if let Some((epoch, end_offset)) = self.diverging {
            writer.tag(0, 4 + 8 + 1);
            writer.i32(epoch);
            writer.i64(end_offset);
            writer.no_tagged();
        }
        if let Some(leader) = self.current_leader {
            writer.tag(1, 4 + 4 + 1);
            writer.i32(leader.leader_id);
            writer.i32(leader.leader_epoch);
            writer.no_tagged();
        }
    }
}

/// The response's tagged fields: from v16 the addresses of the leaders it names (KIP-951).
fn encode_endpoints(version: i16, endpoints: &[NodeEndpoint], writer: &mut Writer<'_>) {
    if version < 16 || endpoints.is_empty() {
        return writer.no_tagged();
    }
    let mut value = BytesMut::new();
    let mut fields = Writer::new(true, &mut value);
    fields.len(endpoints.len());
    for endpoint in endpoints {
        fields.i32(endpoint.node_id);
        fields.string(&endpoint.host);
        fields.i32(endpoint.port);
        fields.nullable_string(None);
        fields.no_tagged();
    }
    writer.tagged_count(1);
    writer.tag(0, value.len());
    writer.bytes(&value);
}

#[cfg(test)]
#[path = "fetch_response_tests.rs"]
mod tests;
