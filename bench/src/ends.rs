//! End offsets of a topic, asked again and again over one connection: how far a mirror is, at little cost.
//!
//! Runs on the thread that calls.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    ApiKey, BrokerId, ListOffsetsRequest, ListOffsetsResponse, RequestHeader, ResponseHeader,
    TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

/// A version every broker of these years speaks.
const VERSION: i16 = 6;
/// Means the end of the log.
const LATEST: i64 = -1;
/// A frame of more bytes is no answer to us.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// Without an answer for this long the connection is given up.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A connection to a broker or node.
#[derive(Debug)]
pub struct EndOffsets {
    stream: TcpStream,
    topic: String,
    partitions: u32,
    correlation_id: i32,
}

impl EndOffsets {
    /// Over a connection.
    ///
    /// # Errors
    /// When the connection cannot be set up.
    pub fn new(stream: TcpStream, topic: &str, partitions: u32) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Self { stream, topic: topic.to_owned(), partitions, correlation_id: 0 })
    }

    /// The readable end of each partition; 0 where there is none yet.
    ///
    /// # Errors
    /// When the connection is lost, or the answer is none.
    pub fn read(&mut self) -> io::Result<Vec<i64>> {
        Ok(self.known()?.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// The same; `None` for a partition that has no leader there yet.
    ///
    /// # Errors
    /// When the connection is lost, or the answer is none.
    pub fn known(&mut self) -> io::Result<Vec<Option<i64>>> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = self.request()?;
        self.stream.write_all(&frame)?;
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix)?;
        let length = u32::from_be_bytes(prefix) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("an answer of {length} bytes")));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        let mut bytes = Bytes::from(frame);
        let header = ApiKey::ListOffsets.response_header_version(VERSION);
        ResponseHeader::decode(&mut bytes, header).map_err(io::Error::other)?;
        let answer = ListOffsetsResponse::decode(&mut bytes, VERSION).map_err(io::Error::other)?;
        let mut ends = vec![None; self.partitions as usize];
        for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            let index = usize::try_from(partition.partition_index).unwrap_or(usize::MAX);
            if let Some(end) = ends.get_mut(index) {
                *end = (partition.error_code == 0).then(|| partition.offset.max(0));
            }
        }
        Ok(ends)
    }

    fn request(&self) -> io::Result<Vec<u8>> {
        let partitions = (0..self.partitions).map(|index| {
            ListOffsetsPartition::default()
                .with_partition_index(index.cast_signed())
                .with_timestamp(LATEST)
        });
        let topic = ListOffsetsTopic::default()
            .with_name(TopicName(StrBytes::from_string(self.topic.clone())))
            .with_partitions(partitions.collect());
        let request =
            ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
        let header = RequestHeader::default()
            .with_request_api_key(ApiKey::ListOffsets as i16)
            .with_request_api_version(VERSION)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("longhaul-bench")));
        let mut body = BytesMut::new();
        header
            .encode(&mut body, ApiKey::ListOffsets.request_header_version(VERSION))
            .map_err(io::Error::other)?;
        request.encode(&mut body, VERSION).map_err(io::Error::other)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        Ok([&length.to_be_bytes(), &body[..]].concat())
    }
}
