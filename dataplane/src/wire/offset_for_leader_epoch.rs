//! OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-320): requests read and answers written by
//! the serve role.
//!
//! Owns nothing, runs on the core that calls it. Must never allocate for a count before the
//! elements were seen.

use std::sync::Arc;

use bytes::BytesMut;

use super::frame::{begin_response, end_frame};
use super::primitives::{Reader, Writer, check_version};
use super::{ApiKey, WireError};

const MESSAGE: &str = "OffsetForLeaderEpoch request";

/// An OffsetForLeaderEpoch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetForLeaderEpochRequest {
    /// -1 for a consumer (v3); -2 before, where the client does not say.
    pub replica_id: i32,
    /// The topics asked.
    pub topics: Vec<OffsetForLeaderEpochTopic>,
}

/// A topic's part of an [`OffsetForLeaderEpochRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetForLeaderEpochTopic {
    /// Its name.
    pub topic: Arc<str>,
    /// Its partitions.
    pub partitions: Vec<OffsetForLeaderEpochPartition>,
}

/// A partition's part of an [`OffsetForLeaderEpochRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetForLeaderEpochPartition {
    /// Index.
    pub partition: i32,
    /// The leader epoch the client believes in, -1 for unknown.
    pub current_leader_epoch: i32,
    /// The epoch whose end is asked.
    pub leader_epoch: i32,
}

/// An answer to OffsetForLeaderEpoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetForLeaderEpochAnswer {
    /// Throttle time in milliseconds.
    pub throttle_time_ms: i32,
    /// One for each topic asked.
    pub topics: Vec<OffsetForLeaderEpochAnswerTopic>,
}

/// A topic's part of an [`OffsetForLeaderEpochAnswer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetForLeaderEpochAnswerTopic {
    /// Its name.
    pub topic: Arc<str>,
    /// Its partitions.
    pub partitions: Vec<OffsetForLeaderEpochAnswerPartition>,
}

/// A partition's part of an [`OffsetForLeaderEpochAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetForLeaderEpochAnswerPartition {
    /// Index.
    pub partition: i32,
    /// Error code, 0 for none.
    pub error_code: i16,
    /// The largest epoch not above the one asked, -1 for none.
    pub leader_epoch: i32,
    /// Its end offset, -1 for none.
    pub end_offset: i64,
}

impl OffsetForLeaderEpochRequest {
    /// Lowest version spoken; Kafka 4 removed versions 0 and 1.
    pub const VERSION_MIN: i16 = 2;
    /// Highest version spoken.
    pub const VERSION_MAX: i16 = 4;

    /// Reads a body; `bytes` must hold all of it and nothing else.
    pub fn decode(version: i16, bytes: &[u8]) -> Result<Self, WireError> {
        check_version(MESSAGE, version, Self::VERSION_MIN..=Self::VERSION_MAX)?;
        let flexible = ApiKey::OFFSET_FOR_LEADER_EPOCH.is_flexible(version);
        let mut reader = Reader::of_request(MESSAGE, flexible, bytes);
        let replica_id = if version >= 3 { reader.i32("replica id")? } else { -2 };
        let mut topics = Vec::new();
        for _ in 0..reader.count(TOPIC_BYTES_MIN, "topics")? {
            topics.push(OffsetForLeaderEpochTopic::decode(&mut reader)?);
        }
        reader.skip_tagged()?;
        reader.finish("end")?;
        Ok(Self { replica_id, topics })
    }
}

/// Bytes of the smallest topic of any version: name and count.
const TOPIC_BYTES_MIN: usize = 1 + 1;

/// Bytes of a partition without tagged fields.
const PARTITION_BYTES_MIN: usize = 4 + 4 + 4;

impl OffsetForLeaderEpochTopic {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let topic = Arc::from(reader.string("topic")?);
        let mut partitions = Vec::new();
        for _ in 0..reader.count(PARTITION_BYTES_MIN, "partitions")? {
            partitions.push(OffsetForLeaderEpochPartition {
                partition: reader.i32("partition")?,
                current_leader_epoch: reader.i32("current leader epoch")?,
                leader_epoch: reader.i32("leader epoch")?,
            });
            reader.skip_tagged()?;
        }
        reader.skip_tagged()?;
        Ok(Self { topic, partitions })
    }
}

impl OffsetForLeaderEpochAnswer {
    /// Appends the whole frame, its length first.
    pub fn encode(&self, version: i16, correlation_id: i32, out: &mut BytesMut) {
        let key = ApiKey::OFFSET_FOR_LEADER_EPOCH;
        let start = begin_response(key, version, correlation_id, out);
        let mut writer = Writer::new(key.is_flexible(version), out);
        writer.i32(self.throttle_time_ms);
        writer.len(self.topics.len());
        for topic in &self.topics {
            writer.string(&topic.topic);
            writer.len(topic.partitions.len());
            for partition in &topic.partitions {
                writer.i16(partition.error_code);
                writer.i32(partition.partition);
                writer.i32(partition.leader_epoch);
                writer.i64(partition.end_offset);
                writer.no_tagged();
            }
            writer.no_tagged();
        }
        writer.no_tagged();
        end_frame(start, 0, out);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages as oracle;
    use kafka_protocol::messages::{
        offset_for_leader_epoch_request as theirs, offset_for_leader_epoch_response as their_answer,
    };
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
    use proptest::prelude::*;

    use super::*;

    fn name() -> oracle::TopicName {
        StrBytes::from_static_str("orders").into()
    }

    fn encoded(version: i16) -> Bytes {
        let partition = |partition| {
            theirs::OffsetForLeaderPartition::default()
                .with_partition(partition)
                .with_current_leader_epoch(7)
                .with_leader_epoch(5)
        };
        let topic = theirs::OffsetForLeaderTopic::default()
            .with_topic(name())
            .with_partitions(vec![partition(0), partition(4)]);
        let mut out = BytesMut::new();
        oracle::OffsetForLeaderEpochRequest::default()
            .with_replica_id(if version >= 3 { 1 } else { -2 }.into())
            .with_topics(vec![topic])
            .encode(&mut out, version)
            .unwrap();
        out.freeze()
    }

    #[test]
    fn kafkas_requests_are_read_in_every_version() {
        for version in 2..=4 {
            let partition = |partition| OffsetForLeaderEpochPartition {
                partition,
                current_leader_epoch: 7,
                leader_epoch: 5,
            };
            let expected = OffsetForLeaderEpochRequest {
                replica_id: if version >= 3 { 1 } else { -2 },
                topics: vec![OffsetForLeaderEpochTopic {
                    topic: "orders".into(),
                    partitions: vec![partition(0), partition(4)],
                }],
            };
            let read = OffsetForLeaderEpochRequest::decode(version, &encoded(version));
            assert_eq!(read, Ok(expected));
        }
    }

    #[test]
    fn a_request_cut_anywhere_or_too_long_is_refused() {
        for version in 2..=4 {
            let whole = encoded(version);
            for length in 0..whole.len() {
                assert!(OffsetForLeaderEpochRequest::decode(version, &whole[..length]).is_err());
            }
            let longer = [&whole[..], &[0]].concat();
            assert!(OffsetForLeaderEpochRequest::decode(version, &longer).is_err());
        }
    }

    #[test]
    fn impossible_counts_and_versions_are_refused() {
        let body = [0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0, 0];
        assert_eq!(
            OffsetForLeaderEpochRequest::decode(3, &body),
            Err(WireError::Invalid { message: MESSAGE, field: "topics", value: 0x7fff_ffff })
        );
        for version in [-1, 1, 5] {
            assert!(OffsetForLeaderEpochRequest::decode(version, &encoded(2)).is_err());
        }
    }

    #[test]
    fn answers_equal_kafkas_bytes() {
        for version in 2..=4 {
            let partition = OffsetForLeaderEpochAnswerPartition {
                partition: 4,
                error_code: 74,
                leader_epoch: 5,
                end_offset: 1 << 34,
            };
            let answer = OffsetForLeaderEpochAnswer {
                throttle_time_ms: 3,
                topics: vec![OffsetForLeaderEpochAnswerTopic {
                    topic: "orders".into(),
                    partitions: vec![partition],
                }],
            };
            let mut ours = BytesMut::new();
            answer.encode(version, 9, &mut ours);
            let mut frame = ours.freeze();
            let length = frame.split_to(4);
            assert_eq!(length[..], (frame.len() as u32).to_be_bytes());
            let header = oracle::ApiKey::OffsetForLeaderEpoch.response_header_version(version);
            oracle::ResponseHeader::decode(&mut frame, header).unwrap();
            let theirs = their_answer::EpochEndOffset::default()
                .with_partition(4)
                .with_error_code(74)
                .with_leader_epoch(5)
                .with_end_offset(1 << 34);
            let topic = their_answer::OffsetForLeaderTopicResult::default()
                .with_topic(name())
                .with_partitions(vec![theirs]);
            let mut expected = BytesMut::new();
            oracle::OffsetForLeaderEpochResponse::default()
                .with_throttle_time_ms(3)
                .with_topics(vec![topic])
                .encode(&mut expected, version)
                .unwrap();
            assert_eq!(frame, expected, "version {version}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            version in 2i16..=4,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = OffsetForLeaderEpochRequest::decode(version, &bytes);
        }
    }
}
