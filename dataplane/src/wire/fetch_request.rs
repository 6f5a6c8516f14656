//! Fetch requests, versions 4 to 18: written by a lane, read by the serve role.
//!
//! Owns nothing, runs on the core that calls it. Must never allocate for a count before the
//! elements were seen: a decoded request is at most a small multiple of its frame.

use std::sync::Arc;

use bytes::BytesMut;
use storage::TopicId;

use super::primitives::{Reader, Writer, check_version};
use super::{ApiKey, WireError};

const MESSAGE: &str = "Fetch request";

/// A topic as a request or response names it: by name up to version 12, by id from 13.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// By name.
    Name(Arc<str>),
    /// By id (KIP-516).
    Id(TopicId),
}

impl TopicKey {
    /// Reads the form `by_id` says.
    pub(crate) fn decode(reader: &mut Reader<'_>, by_id: bool) -> Result<Self, WireError> {
        if by_id {
            return Ok(Self::Id(reader.topic_id("topic id")?));
        }
        Ok(Self::Name(Arc::from(reader.string("topic")?)))
    }

    /// Writes the form `by_id` says. A key of the other kind becomes the zero id or the empty
    /// name, which no broker knows: the answer is an error for that topic alone.
    pub(crate) fn encode(&self, writer: &mut Writer<'_>, by_id: bool) {
        match (self, by_id) {
            (Self::Id(id), true) => writer.topic_id(*id),
            (Self::Name(name), false) => writer.string(name),
            (Self::Name(_), true) => writer.topic_id(TopicId::ZERO),
            (Self::Id(_), false) => writer.string(""),
        }
    }
}

/// What a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Everything below the high watermark.
    ReadUncommitted,
    /// Everything below the last stable offset.
    ReadCommitted,
}

impl IsolationLevel {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match reader.i8("isolation level")? {
            0 => Ok(Self::ReadUncommitted),
            1 => Ok(Self::ReadCommitted),
            other => Err(reader.invalid("isolation level", i64::from(other))),
        }
    }

    pub(crate) fn code(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// A Fetch request of any supported version; fields a version lacks have Kafka's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// -1 for a consumer.
    pub replica_id: i32,
    /// Milliseconds the broker may wait for `min_bytes`.
    pub max_wait_ms: i32,
    /// Bytes worth answering for.
    pub min_bytes: i32,
    /// Bound on the whole answer, except its first batch.
    pub max_bytes: i32,
    /// What the reader may see.
    pub isolation: IsolationLevel,
    /// Session id (v7), 0 for none.
    pub session_id: i32,
    /// Session epoch (v7), -1 for none.
    pub session_epoch: i32,
    /// Partitions to fetch, or to add to the session.
    pub topics: Vec<FetchTopic>,
    /// Partitions to drop from the session (v7).
    pub forgotten: Vec<ForgottenTopic>,
    /// Rack of the reader (v11).
    pub rack_id: String,
}

/// A topic's part of a [`FetchRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTopic {
    /// The topic.
    pub topic: TopicKey,
    /// Its partitions.
    pub partitions: Vec<FetchPartition>,
}

/// A partition's part of a [`FetchRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// Index.
    pub partition: i32,
    /// The leader epoch the reader believes in (v9), -1 for unknown.
    pub current_leader_epoch: i32,
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Epoch of the last batch the reader has (v12), -1 for unknown.
    pub last_fetched_epoch: i32,
    /// The reader's log start (v5), -1 for a consumer.
    pub log_start_offset: i64,
    /// Bound on this partition's records, except the first batch.
    pub max_bytes: i32,
}

/// Partitions to drop from a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgottenTopic {
    /// The topic.
    pub topic: TopicKey,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

impl FetchRequest {
    /// Lowest version spoken.
    pub const VERSION_MIN: i16 = 4;
    /// Highest version spoken.
    pub const VERSION_MAX: i16 = 18;

    /// Writes the body. What a version has no field for is left out.
    pub fn encode(&self, version: i16, out: &mut BytesMut) {
        let mut writer = Writer::new(ApiKey::FETCH.is_flexible(version), out);
        if version <= 14 {
            writer.i32(self.replica_id);
        }
        writer.i32(self.max_wait_ms);
        writer.i32(self.min_bytes);
        writer.i32(self.max_bytes);
        writer.i8(self.isolation.code());
        if version >= 7 {
            writer.i32(self.session_id);
            writer.i32(self.session_epoch);
        }
        writer.len(self.topics.len());
        for topic in &self.topics {
            topic.encode(version, &mut writer);
        }
        if version >= 7 {
            writer.len(self.forgotten.len());
            for topic in &self.forgotten {
                topic.encode(version, &mut writer);
            }
        }
        if version >= 11 {
            writer.string(&self.rack_id);
        }
        self.encode_tagged(version, &mut writer);
    }

    /// Reads a body; `bytes` must hold all of it and nothing else.
    pub fn decode(version: i16, bytes: &[u8]) -> Result<Self, WireError> {
        check_version(MESSAGE, version, Self::VERSION_MIN..=Self::VERSION_MAX)?;
        let mut reader = Reader::of_request(MESSAGE, ApiKey::FETCH.is_flexible(version), bytes);
        let replica_id = if version <= 14 { reader.i32("replica id")? } else { -1 };
        let mut request = Self {
            replica_id,
            max_wait_ms: reader.i32("max wait")?,
            min_bytes: reader.i32("min bytes")?,
            max_bytes: reader.i32("max bytes")?,
            isolation: IsolationLevel::decode(&mut reader)?,
            session_id: 0,
            session_epoch: -1,
            topics: Vec::new(),
            forgotten: Vec::new(),
            rack_id: String::new(),
        };
        if version >= 7 {
            request.session_id = reader.i32("session id")?;
            request.session_epoch = reader.i32("session epoch")?;
        }
        for _ in 0..reader.count(topic_bytes_min(version), "topics")? {
            request.topics.push(FetchTopic::decode(version, &mut reader)?);
        }
        if version >= 7 {
            for _ in 0..reader.count(topic_bytes_min(version), "forgotten topics")? {
                request.forgotten.push(ForgottenTopic::decode(version, &mut reader)?);
            }
        }
        if version >= 11 {
            request.rack_id = reader.string("rack id")?.to_owned();
        }
        request.decode_tagged(version, &mut reader)?;
        reader.finish("end")?;
        Ok(request)
    }

    /// From v15 a replica names itself in a tagged field, which a consumer leaves out (KIP-903).
    fn encode_tagged(&self, version: i16, writer: &mut Writer<'_>) {
        if version < 15 || self.replica_id == -1 {
            return writer.no_tagged();
        }
        writer.tagged_count(1);
        writer.tag(TAG_REPLICA_STATE, 4 + 8 + 1);
        writer.i32(self.replica_id);
        writer.i64(-1);
        writer.no_tagged();
    }

    fn decode_tagged(&mut self, version: i16, reader: &mut Reader<'_>) -> Result<(), WireError> {
        reader.tagged(|tag, value| {
            if tag != TAG_REPLICA_STATE || version < 15 {
                return Ok(false);
            }
            self.replica_id = value.i32("replica id")?;
            value.i64("replica epoch")?;
            value.skip_tagged()?;
            Ok(true)
        })
    }
}

/// The request's tagged field of KIP-903; tag 0 is the cluster id, of Raft followers only.
const TAG_REPLICA_STATE: u32 = 1;

/// Bytes of the smallest topic: its name or id, no partition, no tagged field.
pub(super) fn topic_bytes_min(version: i16) -> usize {
    match version {
        ..=11 => 2 + 4,
        12 => 1 + 1 + 1,
        _ => 16 + 1 + 1,
    }
}

impl FetchTopic {
    fn encode(&self, version: i16, writer: &mut Writer<'_>) {
        self.topic.encode(writer, version >= 13);
        writer.len(self.partitions.len());
        for partition in &self.partitions {
            partition.encode(version, writer);
        }
        writer.no_tagged();
    }

    fn decode(version: i16, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let topic = TopicKey::decode(reader, version >= 13)?;
        let mut partitions = Vec::new();
        for _ in 0..reader.count(FetchPartition::BYTES_MIN, "partitions")? {
            partitions.push(FetchPartition::decode(version, reader)?);
        }
        reader.skip_tagged()?;
        Ok(Self { topic, partitions })
    }
}

impl FetchPartition {
    /// Index, offset and bound, which every version has.
    const BYTES_MIN: usize = 4 + 8 + 4;

    fn encode(&self, version: i16, writer: &mut Writer<'_>) {
        writer.i32(self.partition);
        if version >= 9 {
            writer.i32(self.current_leader_epoch);
        }
        writer.i64(self.fetch_offset);
        if version >= 12 {
            writer.i32(self.last_fetched_epoch);
        }
        if version >= 5 {
            writer.i64(self.log_start_offset);
        }
        writer.i32(self.max_bytes);
        writer.no_tagged();
    }

    /// The tagged fields (directory id of v17, high watermark of v18) are a follower's alone.
    fn decode(version: i16, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let partition = reader.i32("partition")?;
        let current_leader_epoch =
            if version >= 9 { reader.i32("current leader epoch")? } else { -1 };
        let fetch_offset = reader.i64("fetch offset")?;
        let last_fetched_epoch = if version >= 12 { reader.i32("last fetched epoch")? } else { -1 };
        let log_start_offset = if version >= 5 { reader.i64("log start offset")? } else { -1 };
        let max_bytes = reader.i32("partition max bytes")?;
        reader.skip_tagged()?;
        Ok(Self {
            partition,
            current_leader_epoch,
            fetch_offset,
            last_fetched_epoch,
            log_start_offset,
            max_bytes,
        })
    }
}

impl ForgottenTopic {
    fn encode(&self, version: i16, writer: &mut Writer<'_>) {
        self.topic.encode(writer, version >= 13);
        writer.len(self.partitions.len());
        for partition in &self.partitions {
            writer.i32(*partition);
        }
        writer.no_tagged();
    }

    fn decode(version: i16, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let topic = TopicKey::decode(reader, version >= 13)?;
        let mut partitions = Vec::new();
        for _ in 0..reader.count(4, "forgotten partitions")? {
            partitions.push(reader.i32("forgotten partition")?);
        }
        reader.skip_tagged()?;
        Ok(Self { topic, partitions })
    }
}

#[cfg(test)]
#[path = "fetch_request_tests.rs"]
mod tests;
