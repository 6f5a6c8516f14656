//! A small consumer: reads a topic's batches whole, as they are stored, over one connection with long polls.
//!
//! Runs on the thread that calls. Trusts no length: an answer is bounded, a batch lies within it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::BytesMut;
use dataplane::wire::{
    ApiKey, FetchEvent, FetchPartition, FetchRequest, FetchResponseParser, FetchTopic,
    IsolationLevel, PartitionHead, RequestHeader, TopicKey,
};

use crate::clock::monotonic_ns;

/// The last Fetch version that names topics by name.
const FETCH_VERSION: i16 = 12;
/// Bytes of one answer.
const ANSWER_BYTES_MAX: i32 = 16 << 20;
/// Bytes of one partition in an answer.
const PARTITION_BYTES_MAX: i32 = 4 << 20;
/// Bytes of a frame that is accepted: an answer, a first batch beyond its bounds, and the fields.
const FRAME_BYTES_MAX: usize = 64 << 20;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// How long a broker may wait for records.
const WAIT_MAX_MS: i32 = 500;
/// Without an answer for this long the connection is given up.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Where a batch's length field ends.
const LENGTH_END: usize = 12;
/// Where the field of the last record's offset delta is.
const LAST_DELTA: usize = 23;

/// Why reading ended.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection is of no more use.
    #[error("the connection to {0} was lost: {1}")]
    Connection(String, io::Error),
    /// The answer is not what was asked for.
    #[error("the answer cannot be used: {0}")]
    Answer(String),
}

/// A consumer of all partitions of a topic, from their beginning.
#[derive(Debug)]
pub struct Reader {
    stream: TcpStream,
    peer: String,
    topic: String,
    /// Next offset of each partition.
    next: Vec<i64>,
    high_watermarks: Vec<i64>,
    correlation_id: i32,
    frame: Vec<u8>,
}

/// A batch that was read.
#[derive(Clone, Copy, Debug)]
pub struct ReadBatch<'a> {
    /// Its partition.
    pub partition: u32,
    /// The offset that was wanted next; behind it, offsets are missing.
    pub wanted: i64,
    /// Its first offset.
    pub first: i64,
    /// The offset behind its last record.
    pub end: i64,
    /// When its answer was there, on the clock that processes share.
    pub at_ns: u64,
    /// All of its bytes.
    pub bytes: &'a [u8],
}

impl Reader {
    /// A consumer over a connection.
    ///
    /// # Errors
    /// When the connection cannot be set up.
    pub fn new(stream: TcpStream, topic: &str, partitions: u32) -> Result<Self, ReadError> {
        let peer =
            stream.peer_addr().map_or_else(|_| "nobody".to_owned(), |address| address.to_string());
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(ANSWER_MAX)));
        set.map_err(|error| ReadError::Connection(peer.clone(), error))?;
        Ok(Self {
            stream,
            peer,
            topic: topic.to_owned(),
            next: vec![0; partitions as usize],
            high_watermarks: vec![0; partitions as usize],
            correlation_id: 0,
            frame: Vec::new(),
        })
    }

    /// The next offset of each partition.
    #[must_use]
    pub fn next(&self) -> &[i64] {
        &self.next
    }

    /// The end of each partition, as the last answer had it.
    #[must_use]
    pub fn high_watermarks(&self) -> &[i64] {
        &self.high_watermarks
    }

    /// Asks once for what is missing before `end`, the partition furthest behind first, and hands over
    /// each whole batch of the answer. `false` when the topic is not known there yet.
    ///
    /// # Errors
    /// When the connection is lost, the answer is of no use, or `each` finds a batch wrong.
    pub fn fetch(
        &mut self,
        end: i64,
        mut each: impl FnMut(ReadBatch<'_>) -> Result<(), String>,
    ) -> Result<bool, ReadError> {
        let mut frame = std::mem::take(&mut self.frame);
        let exchanged = self.exchange(end, &mut frame);
        exchanged.map_err(|error| ReadError::Connection(self.peer.clone(), error))?;
        let at_ns = monotonic_ns();
        let known = self.hand_over(&frame, at_ns, &mut each).map_err(ReadError::Answer);
        self.frame = frame;
        known
    }

    fn exchange(&mut self, end: i64, frame: &mut Vec<u8>) -> io::Result<()> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let mut body = BytesMut::new();
        let header = RequestHeader {
            api_key: ApiKey::FETCH,
            api_version: FETCH_VERSION,
            correlation_id: self.correlation_id,
            client_id: Some("longhaul-bench"),
        };
        header.encode(&mut body);
        self.request(end).encode(FETCH_VERSION, &mut body);
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        self.stream.write_all(&[&length.to_be_bytes(), &body[..]].concat())?;
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix)?;
        let length = u32::from_be_bytes(prefix) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("an answer of {length} bytes")));
        }
        frame.resize(length, 0);
        self.stream.read_exact(frame)
    }

    fn request(&self, end: i64) -> FetchRequest {
        let mut behind: Vec<_> =
            (0..self.next.len()).filter(|index| self.next[*index] < end).collect();
        behind.sort_by_key(|index| self.next[*index]);
        let partitions = behind
            .into_iter()
            .map(|index| FetchPartition {
                partition: i32::try_from(index).unwrap_or(i32::MAX),
                current_leader_epoch: -1,
                fetch_offset: self.next[index],
                last_fetched_epoch: -1,
                log_start_offset: -1,
                max_bytes: PARTITION_BYTES_MAX,
            })
            .collect();
        let topic = TopicKey::Name(self.topic.as_str().into());
        FetchRequest {
            replica_id: -1,
            max_wait_ms: WAIT_MAX_MS,
            min_bytes: 1,
            max_bytes: ANSWER_BYTES_MAX,
            isolation: IsolationLevel::ReadCommitted,
            session_id: 0,
            session_epoch: -1,
            topics: vec![FetchTopic { topic, partitions }],
            forgotten: Vec::new(),
            rack_id: String::new(),
        }
    }

    fn hand_over(
        &mut self,
        frame: &[u8],
        at_ns: u64,
        each: &mut impl FnMut(ReadBatch<'_>) -> Result<(), String>,
    ) -> Result<bool, String> {
        let mut parser = FetchResponseParser::new(FETCH_VERSION, frame.len());
        let mut bytes = frame;
        let mut current: Option<usize> = None;
        let mut known = true;
        while let Some(event) = parser.next(&mut bytes).map_err(|error| error.to_string())? {
            match event {
                FetchEvent::Head(_) | FetchEvent::PartitionEnd(_) => {}
                FetchEvent::Partition(head) => {
                    known &= head.error_code != UNKNOWN_TOPIC_OR_PARTITION;
                    current = Some(self.begin(&head)?);
                }
                FetchEvent::Records => {
                    let (records, rest) =
                        bytes.split_at(parser.records_remaining().min(bytes.len()));
                    bytes = rest;
                    parser.take_records(records.len());
                    let index = current.ok_or("records without a partition")?;
                    self.batches(index, records, at_ns, each)?;
                }
                FetchEvent::End(_) => break,
            }
        }
        Ok(known)
    }

    fn begin(&mut self, head: &PartitionHead) -> Result<usize, String> {
        if head.error_code != 0 && head.error_code != UNKNOWN_TOPIC_OR_PARTITION {
            return Err(format!("partition {}: error code {}", head.partition, head.error_code));
        }
        let index = usize::try_from(head.partition).unwrap_or(usize::MAX);
        let slot = self.high_watermarks.get_mut(index);
        *slot.ok_or(format!("partition {} was not asked for", head.partition))? =
            head.high_watermark.max(0);
        Ok(index)
    }

    /// Whole batches; a cut last one is left for the next answer.
    fn batches(
        &mut self,
        index: usize,
        mut records: &[u8],
        at_ns: u64,
        each: &mut impl FnMut(ReadBatch<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let partition = u32::try_from(index).unwrap_or(u32::MAX);
        while records.len() > LAST_DELTA + 4 {
            let number =
                |at: usize| i32::from_be_bytes([0, 1, 2, 3].map(|place| records[at + place]));
            let length = usize::try_from(number(LENGTH_END - 4))
                .map_err(|_| "negative batch length".to_owned())?;
            let whole = LENGTH_END.saturating_add(length);
            if whole > records.len() {
                break;
            }
            let first = i64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|place| records[place]));
            let end = first.saturating_add(i64::from(number(LAST_DELTA))).saturating_add(1);
            if end <= self.next[index] {
                return Err(format!("partition {partition}: the batch at {first} goes back"));
            }
            let (bytes, rest) = records.split_at(whole);
            let wanted = self.next[index];
            each(ReadBatch { partition, wanted, first, end, at_ns, bytes })?;
            self.next[index] = end;
            records = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::SocketAddr;

    use super::*;
    use crate::load::{
        Began, Generator, SourceCluster, SourceOptions, SourceServer, Workload, serve_process,
    };

    /// Reads everything; answers the batches, each compared with the generator's and not before it was due.
    fn read_all(address: SocketAddr, generator: &Generator) -> u64 {
        let workload = generator.workload();
        let stream = TcpStream::connect(address).unwrap();
        let mut reader = Reader::new(stream, &workload.topic, workload.partitions).unwrap();
        let (end, mut batches) = (generator.end_offset(), 0);
        while reader.next().iter().any(|next| *next < end) {
            let known = reader.fetch(end, |batch| {
                let mut expected = Vec::new();
                generator.batch(batch.partition, batch.wanted, &mut expected);
                assert!(batch.bytes == expected, "{} at {}", batch.partition, batch.wanted);
                assert!(
                    batch.at_ns >= generator.due_ns(batch.partition, batch.wanted).unwrap_or(0)
                );
                batches += 1;
                Ok(())
            });
            assert!(known.unwrap());
        }
        assert_eq!(reader.high_watermarks(), vec![end; workload.partitions as usize]);
        batches
    }

    #[test]
    fn the_demos_source_is_read_whole() {
        let generator = Generator::new(Workload::of_size("t", 24 << 20, 3));
        let server = SourceServer::start(SourceCluster::new(generator.clone(), 0)).unwrap();
        assert_eq!(read_all(server.address(), &generator), 3 * generator.workload().batches());
    }

    #[test]
    fn a_live_load_of_a_source_process_is_read_as_it_comes() {
        let (options, mut commands) = std::io::pipe().unwrap();
        let (answers, out) = std::io::pipe().unwrap();
        let workload =
            Workload { batch_interval_ns: Some(5_000_000), ..Workload::of_size("t", 4 << 20, 2) };
        let source = SourceOptions {
            listen: [127, 0, 0, 1].into(),
            workload: workload.clone(),
            send_buffer_bytes: Some(102_400),
            congestion: None,
        };
        let serving =
            std::thread::spawn(move || serve_process(source, BufReader::new(options), out));
        let mut answers = BufReader::new(answers).lines().map(Result::unwrap);
        let hello: serde_json::Value = serde_json::from_str(&answers.next().unwrap()).unwrap();
        commands.write_all(b"\"begin\"\n").unwrap();
        let began: Began = serde_json::from_str(&answers.next().unwrap()).unwrap();
        let generator = Generator::new(workload);
        generator.begin(began);
        let address = hello["kafka"].as_str().unwrap().parse().unwrap();
        assert_eq!(read_all(address, &generator), 2 * generator.workload().batches());
        commands.write_all(b"\"report\"\n").unwrap();
        let report: crate::load::SourceReport =
            serde_json::from_str(&answers.next().unwrap()).unwrap();
        let carried = report.connections.iter().map(|connection| connection.record_bytes);
        assert_eq!(carried.sum::<u64>(), generator.total_bytes());
        drop(commands);
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn a_topic_that_is_not_there_is_unknown() {
        let generator = Generator::new(Workload::of_size("t", 1, 1));
        let server = SourceServer::start(SourceCluster::new(generator, 0)).unwrap();
        let stream = TcpStream::connect(server.address()).unwrap();
        let mut reader = Reader::new(stream, "other", 1).unwrap();
        assert!(!reader.fetch(1, |_| Ok(())).unwrap());
    }
}
