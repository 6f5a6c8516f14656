//! A producer that keeps to a schedule: puts the batches of a live load into a real broker's topic when they are due.
//!
//! Two threads: one sends, one reads the answers. What is due is sent whether or not what was sent before has been
//! answered; so a slow broker makes records late, and never the schedule.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hdrhistogram::Histogram;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use super::Generator;
use crate::clock::monotonic_ns;

/// A version every broker of these years speaks, with topics by name.
const VERSION: i16 = 9;
/// The leader alone confirms.
const ACKS: i16 = 1;
const TIMEOUT_MS: i32 = 30_000;
/// Bytes of batches in a request at most, and one batch more.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// A frame of more bytes is no answer to us.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// The longest delay told apart.
const DELAY_NS_MAX: u64 = 600_000_000_000;
/// How often is looked whether the load has begun.
const LOOK: Duration = Duration::from_millis(1);

/// Requests without an answer at most: a broker that is this far behind will not catch up.
const UNANSWERED_MAX: usize = 100_000;

/// A producer at work, until its load is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Producer {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    problem: Option<String>,
    /// When the first batch of each unanswered request was due.
    unanswered: VecDeque<u64>,
    /// From then until the broker had confirmed it, nanoseconds.
    delays: Option<Histogram<u64>>,
}

impl Producer {
    /// Connects, and begins when the generator's load does.
    pub(super) fn start(generator: Generator, to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        let answers = stream.try_clone()?;
        let producer = Self::default();
        producer.shared().delays =
            Some(Histogram::new_with_max(DELAY_NS_MAX, 2).map_err(io::Error::other)?);
        let (sender, confirmer) = (producer.clone(), producer.clone());
        for (name, work) in [
            ("produce", Box::new(move || send(&generator, &sender, &stream)) as Box<Work>),
            ("confirm", Box::new(move || confirm(&confirmer, answers))),
        ] {
            let producer = producer.clone();
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                if let Err(error) = work() {
                    let words = format!("the producer at {to}: {error}");
                    producer.shared().problem.get_or_insert(words);
                }
            })?;
        }
        Ok(producer)
    }

    /// What went wrong, if anything did.
    pub(super) fn problem(&self) -> Option<String> {
        self.shared().problem.clone()
    }

    /// From when a batch was due until the broker had confirmed it, nanoseconds: half of the requests took no longer.
    pub(super) fn confirmed_p50_ns(&self) -> u64 {
        self.shared().delays.as_ref().map_or(0, |delays| delays.value_at_quantile(0.5))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Work = dyn FnOnce() -> io::Result<()> + Send;

fn send(generator: &Generator, producer: &Producer, mut stream: &TcpStream) -> io::Result<()> {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    while generator.began().is_none() {
        std::thread::sleep(LOOK);
    }
    let workload = generator.workload();
    let batch_records = i64::from(workload.batch_records);
    let mut request = Request::default();
    // In the order in which they are due.
    for batch in 0..i64::try_from(workload.batches()).unwrap_or(i64::MAX) {
        for partition in 0..workload.partitions {
            let offset = batch * batch_records;
            let due_ns = generator.due_ns(partition, offset).unwrap_or(0);
            let early = due_ns.saturating_sub(monotonic_ns());
            if early > 0 || !request.has_room_for(partition) {
                request.send(generator, producer, &mut stream)?;
            }
            if early > 0 {
                // Sending took time as well.
                let rest = due_ns.saturating_sub(monotonic_ns());
                std::thread::sleep(Duration::from_nanos(rest));
            }
            request.add(generator, partition, offset, due_ns);
        }
    }
    request.send(generator, producer, &mut stream)
}

/// Batches that go together, at most one of each partition, as the protocol wants it.
#[derive(Default)]
struct Request {
    batches: Vec<(u32, Bytes)>,
    bytes: usize,
    /// When the first of them was due.
    due_ns: u64,
    correlation_id: i32,
}

impl Request {
    fn has_room_for(&self, partition: u32) -> bool {
        self.bytes < REQUEST_BYTES_MAX && !self.batches.iter().any(|(there, _)| *there == partition)
    }

    fn add(&mut self, generator: &Generator, partition: u32, offset: i64, due_ns: u64) {
        if self.batches.is_empty() {
            self.due_ns = due_ns;
        }
        let mut batch = Vec::with_capacity(generator.batch_bytes());
        generator.batch(partition, offset, &mut batch);
        // A broker wants to give the offsets itself: no producer may bring any. No checksum covers the first one.
        batch[..8].fill(0);
        self.bytes += batch.len();
        self.batches.push((partition, batch.into()));
    }

    fn send(
        &mut self,
        generator: &Generator,
        producer: &Producer,
        stream: &mut impl Write,
    ) -> io::Result<()> {
        if self.batches.is_empty() {
            return Ok(());
        }
        let frame = self.frame(generator)?;
        let mut shared = producer.shared();
        if shared.unanswered.len() == UNANSWERED_MAX {
            return Err(io::Error::other(
                "the broker does not keep up with the load; lower --load",
            ));
        }
        shared.unanswered.push_back(self.due_ns);
        drop(shared);
        stream.write_all(&frame)
    }

    /// The request, and nothing left.
    fn frame(&mut self, generator: &Generator) -> io::Result<Vec<u8>> {
        self.bytes = 0;
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let partitions = self.batches.drain(..).map(|(partition, batch)| {
            PartitionProduceData::default()
                .with_index(partition.cast_signed())
                .with_records(Some(batch))
        });
        let topic = TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_string(generator.workload().topic.clone())))
            .with_partition_data(partitions.collect());
        let request = ProduceRequest::default()
            .with_acks(ACKS)
            .with_timeout_ms(TIMEOUT_MS)
            .with_topic_data(vec![topic]);
        let header = RequestHeader::default()
            .with_request_api_key(ApiKey::Produce as i16)
            .with_request_api_version(VERSION)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("longhaul-bench")));
        let mut frame = BytesMut::new();
        header
            .encode(&mut frame, ApiKey::Produce.request_header_version(VERSION))
            .map_err(io::Error::other)?;
        request.encode(&mut frame, VERSION).map_err(io::Error::other)?;
        let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
        Ok([&length.to_be_bytes(), &frame[..]].concat())
    }
}

/// Reads every answer; the first refusal is a problem, for its records will never come.
fn confirm(producer: &Producer, stream: TcpStream) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut prefix = [0; 4];
        if stream.read_exact(&mut prefix).is_err() {
            // The broker has ended, or we have.
            return Ok(());
        }
        let length = u32::from_be_bytes(prefix) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("an answer of {length} bytes")));
        }
        let mut frame = vec![0; length];
        stream.read_exact(&mut frame)?;
        let mut bytes = Bytes::from(frame);
        let header = ApiKey::Produce.response_header_version(VERSION);
        ResponseHeader::decode(&mut bytes, header).map_err(io::Error::other)?;
        let answer = ProduceResponse::decode(&mut bytes, VERSION).map_err(io::Error::other)?;
        let mut shared = producer.shared();
        if let Some(due_ns) = shared.unanswered.pop_front() {
            let delay = monotonic_ns().saturating_sub(due_ns);
            if let Some(delays) = &mut shared.delays {
                delays.saturating_record(delay);
            }
        }
        drop(shared);
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        if let Some(refused) = partitions.into_iter().find(|partition| partition.error_code != 0) {
            let (index, code) = (refused.index, refused.error_code);
            return Err(io::Error::other(format!("partition {index} refused: error code {code}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Began, Workload};

    #[test]
    fn a_request_has_a_partition_once() {
        let generator = Generator::new(Workload {
            batch_interval_ns: Some(1),
            ..Workload::of_size("t", 1 << 20, 2)
        });
        generator.begin(Began { monotonic_ns: 0, wall_ms: 0 });
        let (mut request, producer) = (Request::default(), Producer::default());
        request.add(&generator, 0, 0, 5);
        assert!(request.has_room_for(1) && !request.has_room_for(0));
        let mut out = Vec::new();
        request.send(&generator, &producer, &mut out).unwrap();
        assert!(out.len() > generator.batch_bytes() && request.has_room_for(0));
        assert_eq!(u32::from_be_bytes([out[0], out[1], out[2], out[3]]) as usize, out.len() - 4);
        let sent = out.len();
        request.send(&generator, &producer, &mut out).unwrap();
        assert_eq!(out.len(), sent, "nothing is sent twice");
        assert_eq!(producer.shared().unanswered, [5]);
    }
}
