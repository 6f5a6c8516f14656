//! Produce, versions 3 to 13: read as far as a refusal needs, and refused.
//!
//! Owns nothing, runs on the core that calls it. Must never look into records, which are skipped
//! by their length, nor allocate for a count before the elements were seen.

use std::sync::Arc;

use bytes::BytesMut;

use super::frame::{begin_response, end_frame};
use super::primitives::{Reader, Writer, check_version};
use super::{ApiKey, TopicKey, WireError};

const MESSAGE: &str = "Produce request";

/// A Produce request without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceRequest {
    /// Replicas that must have the records: 1, -1 for all; with 0 the client expects no answer.
    pub acks: i16,
    /// How long to wait for them, in milliseconds.
    pub timeout_ms: i32,
    /// The topics written to.
    pub topics: Vec<ProduceTopic>,
}

/// A topic's part of a [`ProduceRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceTopic {
    /// The topic: by name up to version 12, by id from 13.
    pub topic: TopicKey,
    /// The partitions written to.
    pub partitions: Vec<i32>,
}

/// An answer that refuses what was produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceRefusal {
    /// Throttle time in milliseconds.
    pub throttle_time_ms: i32,
    /// One for each topic written to.
    pub topics: Vec<ProduceRefusalTopic>,
}

/// A topic's part of a [`ProduceRefusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceRefusalTopic {
    /// The topic, as the request named it.
    pub topic: TopicKey,
    /// Its partitions.
    pub partitions: Vec<ProduceRefusalPartition>,
}

/// A partition's part of a [`ProduceRefusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceRefusalPartition {
    /// Index.
    pub partition: i32,
    /// Why not.
    pub error_code: i16,
    /// The same in words (v8); at most 32,767 bytes are sent.
    pub error_message: Option<Arc<str>>,
}

impl ProduceRequest {
    /// Lowest version spoken; Kafka 4 removed what is older.
    pub const VERSION_MIN: i16 = 3;
    /// Highest version spoken.
    pub const VERSION_MAX: i16 = 13;

    /// Reads a body; `bytes` must hold all of it and nothing else.
    pub fn decode(version: i16, bytes: &[u8]) -> Result<Self, WireError> {
        check_version(MESSAGE, version, Self::VERSION_MIN..=Self::VERSION_MAX)?;
        let mut reader = Reader::of_request(MESSAGE, ApiKey::PRODUCE.is_flexible(version), bytes);
        reader.nullable_string("transactional id")?;
        let acks = reader.i16("acks")?;
        let timeout_ms = reader.i32("timeout")?;
        let mut topics = Vec::new();
        let mut elements = 0;
        for _ in 0..reader.count(TOPIC_BYTES_MIN, "topics")? {
            let topic = ProduceTopic::decode(version, &mut reader)?;
            elements += 1 + topic.partitions.len();
            if elements > ELEMENTS_MAX {
                return Err(reader.invalid("topics", elements as i64));
            }
            topics.push(topic);
        }
        reader.skip_tagged()?;
        reader.finish("end")?;
        Ok(Self { acks, timeout_ms, topics })
    }

    /// Whether the client waits for an answer.
    #[must_use]
    pub fn expects_answer(&self) -> bool {
        self.acks != 0
    }
}

/// Topics and partitions of one request. A frame with room for 100 MB of records could name millions
/// instead, and the answer would be many times as large.
const ELEMENTS_MAX: usize = 250_000;

/// Bytes of the smallest topic of any version: name and count.
const TOPIC_BYTES_MIN: usize = 1 + 1;

/// Bytes of the smallest partition of any version: index and the length of no records.
const PARTITION_BYTES_MIN: usize = 4 + 1;

impl ProduceTopic {
    fn decode(version: i16, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let topic = TopicKey::decode(reader, version >= 13)?;
        let mut partitions = Vec::new();
        for _ in 0..reader.count(PARTITION_BYTES_MIN, "partitions")? {
            partitions.push(reader.i32("partition")?);
            let records_bytes = reader.bytes_len("records length")?.unwrap_or(0);
            reader.take(records_bytes, "records")?;
            reader.skip_tagged()?;
        }
        reader.skip_tagged()?;
        Ok(Self { topic, partitions })
    }
}

impl ProduceRefusal {
    /// Appends the whole frame, its length first. For a request with acks 0 none may be sent.
    pub fn encode(&self, version: i16, correlation_id: i32, out: &mut BytesMut) {
        let start = begin_response(ApiKey::PRODUCE, version, correlation_id, out);
        let mut writer = Writer::new(ApiKey::PRODUCE.is_flexible(version), out);
        writer.len(self.topics.len());
        for topic in &self.topics {
            topic.topic.encode(&mut writer, version >= 13);
            writer.len(topic.partitions.len());
            for partition in &topic.partitions {
                partition.encode(version, &mut writer);
            }
            writer.no_tagged();
        }
        writer.i32(self.throttle_time_ms);
        writer.no_tagged();
        end_frame(start, 0, out);
    }
}

impl ProduceRefusalPartition {
    /// Nothing was written: base offset, append time and log start are unknown.
    fn encode(&self, version: i16, writer: &mut Writer<'_>) {
        writer.i32(self.partition);
        writer.i16(self.error_code);
        writer.i64(-1);
        writer.i64(-1);
        if version >= 5 {
            writer.i64(-1);
        }
        if version >= 8 {
            writer.len(0);
            writer.nullable_string(self.error_message.as_deref());
        }
        writer.no_tagged();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages as oracle;
    use kafka_protocol::messages::{produce_request as theirs, produce_response as their_answer};
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
    use proptest::prelude::*;
    use storage::TopicId;

    use super::*;

    fn name(version: i16) -> oracle::TopicName {
        StrBytes::from_static_str(if version <= 12 { "orders" } else { "" }).into()
    }

    /// The oracle's id type, without naming its crate.
    fn id<T: std::str::FromStr>(version: i16) -> T {
        let hex = if version >= 13 { "7".repeat(32) } else { "0".repeat(32) };
        hex.parse().unwrap_or_else(|_| panic!("{hex} is an id"))
    }

    fn key(version: i16) -> TopicKey {
        if version >= 13 {
            TopicKey::Id(TopicId([0x77; 16]))
        } else {
            TopicKey::Name("orders".into())
        }
    }

    fn encoded(version: i16) -> Bytes {
        let partition = |index, records| {
            theirs::PartitionProduceData::default().with_index(index).with_records(records)
        };
        let records = Bytes::from_static(&[5; 300]);
        let topic = theirs::TopicProduceData::default()
            .with_name(name(version))
            .with_topic_id(id(version))
            .with_partition_data(vec![
                partition(1, Some(records)),
                partition(2, None),
                partition(3, Some(Bytes::new())),
            ]);
        let mut out = BytesMut::new();
        oracle::ProduceRequest::default()
            .with_transactional_id(Some(StrBytes::from_static_str("t").into()))
            .with_acks(-1)
            .with_timeout_ms(1500)
            .with_topic_data(vec![topic])
            .encode(&mut out, version)
            .unwrap();
        out.freeze()
    }

    #[test]
    fn kafkas_requests_are_read_past_their_records() {
        for version in 3..=13 {
            let expected = ProduceRequest {
                acks: -1,
                timeout_ms: 1500,
                topics: vec![ProduceTopic { topic: key(version), partitions: vec![1, 2, 3] }],
            };
            assert_eq!(ProduceRequest::decode(version, &encoded(version)), Ok(expected));
        }
    }

    #[test]
    fn a_request_cut_anywhere_or_too_long_is_refused() {
        for version in 3..=13 {
            let whole = encoded(version);
            for length in 0..whole.len() {
                assert!(ProduceRequest::decode(version, &whole[..length]).is_err());
            }
            assert!(ProduceRequest::decode(version, &[&whole[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn impossible_counts_and_versions_are_refused() {
        let body = [0xff, 0xff, 0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0];
        assert_eq!(
            ProduceRequest::decode(8, &body),
            Err(WireError::Invalid { message: MESSAGE, field: "topics", value: 0x7fff_ffff })
        );
        for version in [-1, 2, 14] {
            assert!(ProduceRequest::decode(version, &encoded(3)).is_err());
        }
    }

    #[test]
    fn refusals_equal_kafkas_bytes() {
        for version in 3..=13 {
            let message = (version >= 8).then_some("read-only: a mirror of orders");
            let refusal = ProduceRefusal {
                throttle_time_ms: 0,
                topics: vec![ProduceRefusalTopic {
                    topic: key(version),
                    partitions: vec![ProduceRefusalPartition {
                        partition: 2,
                        error_code: 44,
                        error_message: Some("read-only: a mirror of orders".into()),
                    }],
                }],
            };
            let mut ours = BytesMut::new();
            refusal.encode(version, 9, &mut ours);
            let mut frame = ours.freeze();
            let length = frame.split_to(4);
            assert_eq!(length[..], (frame.len() as u32).to_be_bytes());
            let header = oracle::ApiKey::Produce.response_header_version(version);
            oracle::ResponseHeader::decode(&mut frame, header).unwrap();
            let theirs = their_answer::PartitionProduceResponse::default()
                .with_index(2)
                .with_error_code(44)
                .with_base_offset(-1)
                .with_log_append_time_ms(-1)
                .with_log_start_offset(-1)
                .with_error_message(message.map(StrBytes::from_static_str));
            let topic = their_answer::TopicProduceResponse::default()
                .with_name(name(version))
                .with_topic_id(id(version))
                .with_partition_responses(vec![theirs]);
            let mut expected = BytesMut::new();
            oracle::ProduceResponse::default()
                .with_responses(vec![topic])
                .encode(&mut expected, version)
                .unwrap();
            assert_eq!(frame, expected, "version {version}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            version in 3i16..=13,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = ProduceRequest::decode(version, &bytes);
        }
    }
}
