//! Requests of any version as bytes on a socket, and the answer's bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse, RequestHeader, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable, Request, StrBytes};
use uuid::Uuid;

/// An answer that is not there by then never comes. Tests that must not be kept waiting ask with a
/// wait far beyond it.
const WITHIN: Duration = Duration::from_secs(60);

/// A wait that no test lives to see the end of.
pub(crate) const FOREVER_MS: i32 = 600_000;

const CORRELATION_ID: i32 = 7;

pub(crate) struct Raw {
    stream: TcpStream,
}

impl Raw {
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(WITHIN)).expect("a time limit");
        stream.set_nodelay(true).expect("no delay");
        Self { stream }
    }

    /// Sends what follows the length.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let mut bytes = BytesMut::with_capacity(frame.len() + 4);
        bytes.put_u32(frame.len() as u32);
        bytes.put_slice(frame);
        self.stream.write_all(&bytes).expect("a request");
    }

    /// What follows the length of the next answer.
    pub(crate) fn receive(&mut self) -> Bytes {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).expect("an answer within the limit");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame).expect("a whole answer");
        frame.into()
    }

    pub(crate) fn ask<R: Request>(&mut self, version: i16, request: &R) -> Bytes {
        self.answer_to(&frame(version, request))
    }

    pub(crate) fn answer_to(&mut self, frame: &[u8]) -> Bytes {
        self.send(frame);
        self.receive()
    }

    /// The answer to a Fetch, decoded.
    pub(crate) fn fetch(&mut self, version: i16, request: &FetchRequest) -> FetchResponse {
        decode_fetch(version, self.ask(version, request))
    }
}

/// Header and body of a request.
pub(crate) fn frame<R: Request>(version: i16, request: &R) -> BytesMut {
    let key = ApiKey::try_from(R::KEY).expect("a known API");
    let mut frame = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(CORRELATION_ID)
        .with_client_id(Some(StrBytes::from_static_str("raw")))
        .encode(&mut frame, key.request_header_version(version))
        .expect("a header");
    request.encode(&mut frame, version).expect("a request of this version");
    frame
}

pub(crate) fn decode_fetch(version: i16, mut frame: Bytes) -> FetchResponse {
    let header = if version >= 12 { 5 } else { 4 };
    drop(frame.split_to(header));
    let response = FetchResponse::decode(&mut frame, version).expect("a Fetch answer");
    assert!(frame.is_empty(), "{} bytes too many", frame.len());
    response
}

/// Partitions of one topic as a consumer asks for them: by name and by id, whichever the version takes.
pub(crate) fn fetch_request(topic: &str, id: Uuid, asked: &[(i32, i64)]) -> FetchRequest {
    let partitions = asked.iter().map(|(partition, offset)| {
        FetchPartition::default()
            .with_partition(*partition)
            .with_fetch_offset(*offset)
            .with_partition_max_bytes(1 << 20)
    });
    let topic = FetchTopic::default()
        .with_topic(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_topic_id(id)
        .with_partitions(partitions.collect());
    FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

/// The same for one version: a version leaves out what it does not know.
pub(crate) fn for_version(mut request: FetchRequest, version: i16) -> FetchRequest {
    for topic in &mut request.topics {
        if version >= 13 {
            topic.topic = TopicName::default();
        } else {
            topic.topic_id = Uuid::nil();
        }
        for partition in &mut topic.partitions {
            if version < 9 {
                partition.current_leader_epoch = -1;
            }
            if version < 12 {
                partition.last_fetched_epoch = -1;
            }
        }
    }
    request
}

/// Every partition of an answer.
pub(crate) fn partitions(response: &FetchResponse) -> Vec<&PartitionData> {
    response.responses.iter().flat_map(|topic| &topic.partitions).collect()
}
