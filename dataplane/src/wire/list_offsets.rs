//! ListOffsets, versions 1 to 11: requests read and answers written by the serve role.
//!
//! Owns nothing, runs on the core that calls it. Must never allocate for a count before the
//! elements were seen. Version 11 (Kafka 4.2) has the fields of version 10 and one more special
//! timestamp.

use std::sync::Arc;

use bytes::BytesMut;

use super::frame::{begin_response, end_frame};
use super::primitives::{Reader, Writer, check_version};
use super::{ApiKey, IsolationLevel, WireError};

const MESSAGE: &str = "ListOffsets request";

/// A ListOffsets request; fields a version lacks have Kafka's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsRequest {
    /// -1 for a consumer.
    pub replica_id: i32,
    /// What the reader may see (v2), which decides what "latest" means.
    pub isolation: IsolationLevel,
    /// The topics asked.
    pub topics: Vec<ListOffsetsTopic>,
    /// How long to wait for remote storage, in milliseconds (v10); 0 before.
    pub timeout_ms: i32,
}

/// A topic's part of a [`ListOffsetsRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsTopic {
    /// Its name.
    pub topic: Arc<str>,
    /// Its partitions.
    pub partitions: Vec<ListOffsetsPartition>,
}

/// A partition's part of a [`ListOffsetsRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOffsetsPartition {
    /// Index.
    pub partition: i32,
    /// The leader epoch the client believes in (v4), -1 for unknown.
    pub current_leader_epoch: i32,
    /// Milliseconds since 1970, or a negative special value.
    pub timestamp: i64,
}

/// An answer to ListOffsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsAnswer {
    /// Throttle time in milliseconds (v2).
    pub throttle_time_ms: i32,
    /// One for each topic asked.
    pub topics: Vec<ListOffsetsAnswerTopic>,
}

/// A topic's part of a [`ListOffsetsAnswer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOffsetsAnswerTopic {
    /// Its name.
    pub topic: Arc<str>,
    /// Its partitions.
    pub partitions: Vec<ListOffsetsAnswerPartition>,
}

/// A partition's part of a [`ListOffsetsAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOffsetsAnswerPartition {
    /// Index.
    pub partition: i32,
    /// Error code, 0 for none.
    pub error_code: i16,
    /// Timestamp of the record found, -1 for none.
    pub timestamp: i64,
    /// Offset found, -1 for none.
    pub offset: i64,
    /// Epoch of the record found (v4), -1 for unknown.
    pub leader_epoch: i32,
}

impl ListOffsetsRequest {
    /// Lowest version spoken; Kafka 4 removed version 0.
    pub const VERSION_MIN: i16 = 1;
    /// Highest version spoken.
    pub const VERSION_MAX: i16 = 11;

    /// Reads a body; `bytes` must hold all of it and nothing else.
    pub fn decode(version: i16, bytes: &[u8]) -> Result<Self, WireError> {
        check_version(MESSAGE, version, Self::VERSION_MIN..=Self::VERSION_MAX)?;
        let flexible = ApiKey::LIST_OFFSETS.is_flexible(version);
        let mut reader = Reader::of_request(MESSAGE, flexible, bytes);
        let replica_id = reader.i32("replica id")?;
        let isolation = match version {
            2.. => IsolationLevel::decode(&mut reader)?,
            _ => IsolationLevel::ReadUncommitted,
        };
        let mut topics = Vec::new();
        for _ in 0..reader.count(TOPIC_BYTES_MIN, "topics")? {
            topics.push(ListOffsetsTopic::decode(version, &mut reader)?);
        }
        let timeout_ms = if version >= 10 { reader.i32("timeout")? } else { 0 };
        reader.skip_tagged()?;
        reader.finish("end")?;
        Ok(Self { replica_id, isolation, topics, timeout_ms })
    }
}

/// Bytes of the smallest topic of any version: name and count.
const TOPIC_BYTES_MIN: usize = 1 + 1;

/// Bytes of the smallest partition of any version: index and timestamp.
const PARTITION_BYTES_MIN: usize = 4 + 8;

impl ListOffsetsTopic {
    fn decode(version: i16, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let topic = Arc::from(reader.string("topic")?);
        let mut partitions = Vec::new();
        for _ in 0..reader.count(PARTITION_BYTES_MIN, "partitions")? {
            partitions.push(ListOffsetsPartition {
                partition: reader.i32("partition")?,
                current_leader_epoch: match version {
                    4.. => reader.i32("current leader epoch")?,
                    _ => -1,
                },
                timestamp: reader.i64("timestamp")?,
            });
            reader.skip_tagged()?;
        }
        reader.skip_tagged()?;
        Ok(Self { topic, partitions })
    }
}

impl ListOffsetsAnswer {
    /// Appends the whole frame, its length first.
    pub fn encode(&self, version: i16, correlation_id: i32, out: &mut BytesMut) {
        let start = begin_response(ApiKey::LIST_OFFSETS, version, correlation_id, out);
        let mut writer = Writer::new(ApiKey::LIST_OFFSETS.is_flexible(version), out);
        if version >= 2 {
            writer.i32(self.throttle_time_ms);
        }
        writer.len(self.topics.len());
        for topic in &self.topics {
            writer.string(&topic.topic);
            writer.len(topic.partitions.len());
            for partition in &topic.partitions {
                partition.encode(version, &mut writer);
            }
            writer.no_tagged();
        }
        writer.no_tagged();
        end_frame(start, 0, out);
    }
}

impl ListOffsetsAnswerPartition {
    fn encode(&self, version: i16, writer: &mut Writer<'_>) {
        writer.i32(self.partition);
        writer.i16(self.error_code);
        writer.i64(self.timestamp);
        writer.i64(self.offset);
        if version >= 4 {
            writer.i32(self.leader_epoch);
        }
        writer.no_tagged();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages as oracle;
    use kafka_protocol::messages::{list_offsets_request, list_offsets_response};
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
    use proptest::prelude::*;

    use super::*;

    fn request(version: i16) -> ListOffsetsRequest {
        let partition = |partition, timestamp| ListOffsetsPartition {
            partition,
            current_leader_epoch: if version >= 4 { 8 } else { -1 },
            timestamp,
        };
        ListOffsetsRequest {
            replica_id: -1,
            isolation: match version {
                2.. => IsolationLevel::ReadCommitted,
                _ => IsolationLevel::ReadUncommitted,
            },
            topics: vec![
                ListOffsetsTopic {
                    topic: "a".into(),
                    partitions: vec![partition(0, -1), partition(3, 1_700_000_000_000)],
                },
                ListOffsetsTopic { topic: "empty".into(), partitions: vec![] },
            ],
            timeout_ms: if version >= 10 { 30_000 } else { 0 },
        }
    }

    /// The request's bytes by the oracle, which knows versions up to 10; 11 has the same fields.
    fn encoded(version: i16) -> Bytes {
        let request = request(version);
        let topic = |topic: &ListOffsetsTopic| {
            list_offsets_request::ListOffsetsTopic::default()
                .with_name(StrBytes::from_string(topic.topic.to_string()).into())
                .with_partitions(topic.partitions.iter().map(partition).collect())
        };
        fn partition(
            partition: &ListOffsetsPartition,
        ) -> list_offsets_request::ListOffsetsPartition {
            list_offsets_request::ListOffsetsPartition::default()
                .with_partition_index(partition.partition)
                .with_current_leader_epoch(partition.current_leader_epoch)
                .with_timestamp(partition.timestamp)
        }
        let mut out = BytesMut::new();
        oracle::ListOffsetsRequest::default()
            .with_replica_id(request.replica_id.into())
            .with_isolation_level(request.isolation.code())
            .with_topics(request.topics.iter().map(topic).collect())
            .with_timeout_ms(request.timeout_ms)
            .encode(&mut out, version.min(10))
            .unwrap();
        out.freeze()
    }

    #[test]
    fn kafkas_requests_are_read_in_every_version() {
        for version in 1..=11 {
            let bytes = encoded(version);
            assert_eq!(ListOffsetsRequest::decode(version, &bytes), Ok(request(version)));
        }
    }

    #[test]
    fn a_request_cut_anywhere_or_too_long_is_refused() {
        for version in 1..=11 {
            let whole = encoded(version);
            for length in 0..whole.len() {
                assert!(ListOffsetsRequest::decode(version, &whole[..length]).is_err());
            }
            assert!(ListOffsetsRequest::decode(version, &[&whole[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn impossible_counts_and_versions_are_refused() {
        let body = [0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0];
        let field = "topics";
        assert_eq!(
            ListOffsetsRequest::decode(6, &body),
            Err(WireError::Invalid { message: MESSAGE, field, value: 4_294_967_294 })
        );
        for version in [-1, 0, 12] {
            assert!(ListOffsetsRequest::decode(version, &encoded(1)).is_err());
        }
    }

    #[test]
    fn answers_equal_kafkas_bytes() {
        for version in 1..=11 {
            let partition = ListOffsetsAnswerPartition {
                partition: 3,
                error_code: 6,
                timestamp: 1_700_000_000_000,
                offset: 1 << 33,
                leader_epoch: if version >= 4 { 5 } else { -1 },
            };
            let answer = ListOffsetsAnswer {
                throttle_time_ms: if version >= 2 { 100 } else { 0 },
                topics: vec![ListOffsetsAnswerTopic {
                    topic: "a".into(),
                    partitions: vec![partition; 2],
                }],
            };
            let mut ours = BytesMut::from(&b"an earlier answer"[..]);
            answer.encode(version, 9, &mut ours);
            let mut frame = ours.split_off(17).freeze();
            let length = frame.split_to(4);
            assert_eq!(length[..], (frame.len() as u32).to_be_bytes());
            let header = oracle::ApiKey::ListOffsets.response_header_version(version.min(10));
            let read = oracle::ResponseHeader::decode(&mut frame, header).unwrap();
            assert_eq!(read.correlation_id, 9);
            let theirs = list_offsets_response::ListOffsetsPartitionResponse::default()
                .with_partition_index(3)
                .with_error_code(6)
                .with_timestamp(partition.timestamp)
                .with_offset(partition.offset)
                .with_leader_epoch(partition.leader_epoch);
            let topic = list_offsets_response::ListOffsetsTopicResponse::default()
                .with_name(StrBytes::from_static_str("a").into())
                .with_partitions(vec![theirs; 2]);
            let mut expected = BytesMut::new();
            oracle::ListOffsetsResponse::default()
                .with_throttle_time_ms(answer.throttle_time_ms)
                .with_topics(vec![topic])
                .encode(&mut expected, version.min(10))
                .unwrap();
            assert_eq!(frame, expected, "version {version}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            version in 1i16..=11,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = ListOffsetsRequest::decode(version, &bytes);
        }
    }
}
