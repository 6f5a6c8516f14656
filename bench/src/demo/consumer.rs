//! The demo's consumer: fetches from the node and compares every batch with the one the source made.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::BytesMut;
use dataplane::wire::{
    ApiKey, FetchEvent, FetchPartition, FetchRequest, FetchResponseParser, FetchTopic,
    IsolationLevel, PartitionHead, RequestHeader, TopicKey,
};

use crate::load::Generator;

/// The last Fetch version that names topics by name.
const FETCH_VERSION: i16 = 12;
/// Bytes of one answer.
const ANSWER_BYTES_MAX: i32 = 16 << 20;
/// Bytes of one partition in an answer.
const PARTITION_BYTES_MAX: i32 = 4 << 20;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// Where a batch's length field ends.
const LENGTH_END: usize = 12;

#[derive(Debug, Default)]
struct Shared {
    records: AtomicU64,
    bytes: AtomicU64,
    mirrored: AtomicU64,
    complete: AtomicU64,
    stop: AtomicBool,
    problem: Mutex<Option<String>>,
}

/// A consumer on a thread of its own.
#[derive(Debug)]
pub(super) struct Checker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Checker {
    /// Starts checking everything the node at `address` serves.
    pub(super) fn start(address: SocketAddr, generator: Generator) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let end = generator.end_offset();
            let partitions = generator.workload().partitions as usize;
            let mut reader = Reader {
                generator,
                shared: theirs,
                next: vec![0; partitions],
                expected: Vec::new(),
            };
            if let Err(problem) = reader.run(address, end) {
                *reader.shared.problem.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(problem);
            }
        });
        Self { shared, thread }
    }

    /// Records and bytes found equal so far.
    pub(super) fn checked(&self) -> (u64, u64) {
        (self.shared.records.load(Ordering::Acquire), self.shared.bytes.load(Ordering::Relaxed))
    }

    /// Records the node had mirrored at its last answers.
    pub(super) fn mirrored(&self) -> u64 {
        self.shared.mirrored.load(Ordering::Relaxed)
    }

    /// Partitions checked to their end.
    pub(super) fn complete(&self) -> u64 {
        self.shared.complete.load(Ordering::Relaxed)
    }

    /// What went wrong, if anything did.
    pub(super) fn problem(&self) -> Option<String> {
        self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the thread.
    pub(super) fn stop(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

struct Reader {
    generator: Generator,
    shared: Arc<Shared>,
    /// Next offset of each partition.
    next: Vec<i64>,
    /// The batch that should be there.
    expected: Vec<u8>,
}

impl Reader {
    fn run(&mut self, address: SocketAddr, end: i64) -> Result<(), String> {
        let mut stream =
            TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
        let timeouts = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(Duration::from_secs(30))));
        timeouts.map_err(|error| error.to_string())?;
        let mut high_watermarks = vec![0; self.next.len()];
        let mut correlation_id = 0;
        while self.next.iter().any(|next| *next < end) && !self.shared.stop.load(Ordering::Relaxed)
        {
            correlation_id += 1;
            let frame = self.ask(&mut stream, correlation_id, end)?;
            if !self.check(&frame, &mut high_watermarks)? {
                // The topic is not there yet: the mirror has only just been started.
                std::thread::sleep(Duration::from_millis(100));
            }
            let mirrored: i64 = high_watermarks.iter().sum();
            self.shared.mirrored.store(mirrored.cast_unsigned(), Ordering::Relaxed);
            let complete = self.next.iter().filter(|next| **next >= end).count();
            self.shared.complete.store(complete as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks for what is missing, the partition furthest behind first, and reads the answer's frame.
    fn ask(
        &self,
        stream: &mut TcpStream,
        correlation_id: i32,
        end: i64,
    ) -> Result<Vec<u8>, String> {
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
        let topic = TopicKey::Name(self.generator.workload().topic.as_str().into());
        let request = FetchRequest {
            replica_id: -1,
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: ANSWER_BYTES_MAX,
            isolation: IsolationLevel::ReadCommitted,
            session_id: 0,
            session_epoch: -1,
            topics: vec![FetchTopic { topic, partitions }],
            forgotten: Vec::new(),
            rack_id: String::new(),
        };
        let mut body = BytesMut::new();
        let header = RequestHeader {
            api_key: ApiKey::FETCH,
            api_version: FETCH_VERSION,
            correlation_id,
            client_id: Some("longhaul-demo"),
        };
        header.encode(&mut body);
        request.encode(FETCH_VERSION, &mut body);
        let length = u32::try_from(body.len()).map_err(|error| error.to_string())?;
        let lost = |error: std::io::Error| format!("connection to the node lost: {error}");
        stream
            .write_all(&length.to_be_bytes())
            .and_then(|()| stream.write_all(&body))
            .map_err(lost)?;
        let mut prefix = [0; 4];
        stream.read_exact(&mut prefix).map_err(lost)?;
        let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
        stream.read_exact(&mut frame).map_err(lost)?;
        Ok(frame)
    }

    /// Compares an answer's batches; `false` when the node does not know the topic yet.
    fn check(&mut self, frame: &[u8], high_watermarks: &mut [i64]) -> Result<bool, String> {
        let mut parser = FetchResponseParser::new(FETCH_VERSION, frame.len());
        let mut bytes = frame;
        let mut current: Option<PartitionHead> = None;
        let mut known = true;
        while let Some(event) = parser.next(&mut bytes).map_err(|error| error.to_string())? {
            match event {
                FetchEvent::Head(_) | FetchEvent::PartitionEnd(_) => {}
                FetchEvent::Partition(head) => {
                    known &= head.error_code != UNKNOWN_TOPIC_OR_PARTITION;
                    if head.error_code != 0 && head.error_code != UNKNOWN_TOPIC_OR_PARTITION {
                        return Err(format!(
                            "partition {}: error code {}",
                            head.partition, head.error_code
                        ));
                    }
                    let index = usize::try_from(head.partition).unwrap_or(usize::MAX);
                    if let Some(slot) = high_watermarks.get_mut(index) {
                        *slot = head.high_watermark.max(0);
                    }
                    current = Some(head);
                }
                FetchEvent::Records => {
                    let (records, rest) =
                        bytes.split_at(parser.records_remaining().min(bytes.len()));
                    bytes = rest;
                    parser.take_records(records.len());
                    let partition = current.map_or(-1, |head| head.partition);
                    self.compare(partition, records)?;
                }
                FetchEvent::End(_) => break,
            }
        }
        Ok(known)
    }

    /// Compares whole batches byte for byte; a cut last one is left for the next answer.
    fn compare(&mut self, partition: i32, mut records: &[u8]) -> Result<(), String> {
        let index = usize::try_from(partition)
            .map_err(|_| format!("partition {partition} was not asked for"))?;
        while records.len() > LENGTH_END {
            let length = i32::from_be_bytes([records[8], records[9], records[10], records[11]]);
            let whole = LENGTH_END
                + usize::try_from(length).map_err(|_| "negative batch length".to_owned())?;
            if whole > records.len() {
                break;
            }
            self.expected.clear();
            let next = self.next[index];
            self.generator.batch(index as u32, next, &mut self.expected);
            if records[..whole] != self.expected[..] {
                return Err(format!(
                    "partition {partition}: the batch at offset {next} differs from the source's"
                ));
            }
            let count = self.generator.workload().batch_records;
            self.next[index] += i64::from(count);
            self.shared.bytes.fetch_add(whole as u64, Ordering::Relaxed);
            self.shared.records.fetch_add(u64::from(count), Ordering::Release);
            records = &records[whole..];
        }
        Ok(())
    }
}
