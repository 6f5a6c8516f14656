//! A [`Pair`]: one core's engine and a scripted source, joined by nothing but bytes and times.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use storage::batch::BatchBuilder;
use storage::{
    LeaderEpoch, LogConfig, LogReader, Offset, Storage, StorageConfig, TopicId, TopicPartition,
};

use super::super::desk::Moment;
use super::super::engine::Engine;
use super::super::lane::LaneParts;
use crate::handle::{
    Assignment, BrokerId, CoreId, CursorFault, Event, LaneId, LaneKind, LinkId, LinkSettings,
    Resume,
};
use crate::partition::Partition;
use crate::ring::{Outcome, ReceiveInto, Ring, RingConfig, Socket, Token, TokenRole};
use crate::wire::{
    AnswerHead, AnswerPartition, FetchAnswer, FetchPartition, FetchRequest, NodeEndpoint,
    RequestHeader, TopicKey,
};

/// The link of every test.
pub(super) const LINK: LinkId = LinkId(1);
/// The broker of every test.
pub(super) const BROKER: BrokerId = BrokerId(1);
const SEGMENT_BYTES: u32 = 8 << 20;
/// The epoch the control plane confirms.
pub(super) const EPOCH: LeaderEpoch = LeaderEpoch(5);

pub(super) fn settings() -> LinkSettings {
    LinkSettings {
        mirror: Arc::from("test"),
        fetch_wait_max: Duration::from_millis(500),
        fetch_min_bytes: 1,
        response_bytes_max: 16 << 20,
        partition_bytes_max: 1 << 20,
        requests_out_max: 4,
        catch_up_lag_min: 100,
        answer_timeout: Duration::from_secs(30),
        rack: Arc::from(""),
    }
}

/// A request as the source read it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) correlation_id: i32,
    pub(super) version: i16,
    pub(super) client_id: String,
    pub(super) request: FetchRequest,
}

impl Asked {
    /// All partitions asked for, with their topics.
    pub(super) fn partitions(&self) -> Vec<(TopicKey, FetchPartition)> {
        let topics = self.request.topics.iter();
        topics
            .flat_map(|topic| topic.partitions.iter().map(|part| (topic.topic.clone(), *part)))
            .collect()
    }

    /// The one partition asked for.
    pub(super) fn single(&self) -> FetchPartition {
        let partitions = self.partitions();
        assert_eq!(partitions.len(), 1, "{:?}", self.request);
        partitions[0].1
    }

    /// Partitions that leave the session.
    pub(super) fn forgotten(&self) -> usize {
        self.request.forgotten.iter().map(|topic| topic.partitions.len()).sum()
    }
}

/// A partition's part of a scripted answer.
pub(super) struct Told {
    pub(super) key: TopicKey,
    pub(super) fields: AnswerPartition,
    pub(super) records: Vec<u8>,
}

impl Told {
    pub(super) fn error(mut self, code: i16) -> Self {
        self.fields.error_code = code;
        self
    }

    pub(super) fn log_start(mut self, offset: i64) -> Self {
        self.fields.log_start_offset = offset;
        self
    }
}

/// An answer about `partition` with these records; the source's end is `high_watermark`.
pub(super) fn told(partition: &Partition, high_watermark: i64, records: Vec<u8>) -> Told {
    told_by(TopicKey::Id(partition.topic_id), partition.id.partition, high_watermark, records)
}

pub(super) fn told_by(
    key: TopicKey,
    partition: i32,
    high_watermark: i64,
    records: Vec<u8>,
) -> Told {
    let fields = AnswerPartition {
        partition,
        error_code: 0,
        high_watermark,
        last_stable_offset: high_watermark,
        log_start_offset: 0,
        aborted: None,
        records_bytes: records.len(),
        diverging: None,
        current_leader: None,
    };
    Told { key, fields, records }
}

/// A batch of `records` records from `base` on, of about `bytes` bytes.
pub(super) fn batch_of(base: i64, records: i32, epoch: LeaderEpoch, bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset(base), epoch);
    let value = vec![b'v'; bytes / usize::try_from(records).unwrap()];
    for record in 0..records {
        builder.push(1_700_000_000_000 + base + i64::from(record), None, Some(&value), &[]);
    }
    builder.finish()
}

/// A small batch at the confirmed epoch.
pub(super) fn batch(base: i64, records: i32) -> Vec<u8> {
    batch_of(base, records, EPOCH, 100)
}

/// The engine, its storage, and the time.
pub(super) struct Pair {
    pub(super) engine: Engine,
    pub(super) moment: Moment,
    storage: Arc<Storage>,
    ring: Option<Ring>,
    lanes: u64,
    /// Bytes of each receive at most: answers arrive in pieces of this size.
    pub(super) piece_bytes: usize,
    _directory: tempfile::TempDir,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(settings())
    }

    pub(super) fn with(settings: LinkSettings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::open(StorageConfig {
            directories: vec![directory.path().to_path_buf()],
            descriptors_max: 1000,
            mappings_max: 1000,
            recycle_bytes_max: 64 << 20,
        })
        .unwrap();
        let mut engine = Engine::new(CoreId(0));
        engine.set_link(LINK, settings);
        Self {
            engine,
            moment: Moment { now: Instant::now(), unix_ms: 1_700_000_000_000 },
            storage,
            ring: None,
            lanes: 0,
            piece_bytes: usize::MAX,
            _directory: directory,
        }
    }

    /// The same with mapped segments at hand, to be received into.
    pub(super) fn warm() -> Self {
        let pair = Self::new();
        pair.storage.warm(SEGMENT_BYTES, 2).unwrap();
        pair
    }

    /// A tail lane to the broker, at the newest version.
    pub(super) fn tail(&mut self) -> u32 {
        self.lane(LaneKind::Tail, FetchRequest::VERSION_MAX)
    }

    /// A catch-up lane to the broker, at the newest version.
    pub(super) fn catch_up(&mut self) -> u32 {
        self.lane(LaneKind::CatchUp, FetchRequest::VERSION_MAX)
    }

    pub(super) fn lane(&mut self, kind: LaneKind, version: i16) -> u32 {
        self.lanes += 1;
        let parts = LaneParts { id: LaneId(self.lanes), link: LINK, broker: BROKER, kind, version };
        self.engine.add_lane(parts, self.moment)
    }

    /// Makes a partition and its log, and gives them to the core.
    pub(super) fn assign(&mut self, topic: &str, partition: i32) -> Arc<Partition> {
        self.assign_from(topic, partition, 0)
    }

    /// The same for a log that starts at `log_start`.
    pub(super) fn assign_from(
        &mut self,
        topic: &str,
        partition: i32,
        log_start: i64,
    ) -> Arc<Partition> {
        let mut id = [7; 16];
        id[..topic.len()].copy_from_slice(topic.as_bytes());
        self.assign_as(topic, TopicId(id), partition, log_start)
    }

    pub(super) fn assign_as(
        &mut self,
        topic: &str,
        id: TopicId,
        partition: i32,
        log_start: i64,
    ) -> Arc<Partition> {
        let name = TopicPartition { topic: Arc::from(topic), partition };
        let config = LogConfig {
            segment_bytes_max: SEGMENT_BYTES,
            segment_age_max: Duration::from_secs(3600),
            index_interval_bytes: 4096,
            index_bytes_max: 10 << 20,
            batch_bytes_max: 100 << 20,
        };
        let log = self.storage.create_log(&name, id, Offset(log_start), config).unwrap();
        let reader = log.reader().clone();
        let partition = Arc::new(Partition::new(name, id, reader, None, LeaderEpoch(0)));
        let resume = Resume { broker: BROKER, leader_epoch: EPOCH, repair: None };
        let assignment = Assignment { partition: partition.clone(), log, link: LINK, resume };
        self.engine.assign(assignment);
        partition
    }

    pub(super) fn resume(&mut self, partition: &Arc<Partition>) {
        let resume = Resume { broker: BROKER, leader_epoch: EPOCH, repair: None };
        self.engine.resume(partition, resume);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.moment.now += time;
        self.moment.unix_ms += i64::try_from(time.as_millis()).unwrap();
        self.engine.tick(self.moment);
    }

    /// The requests a lane sends now.
    pub(super) fn requests(&mut self, slot: u32) -> Vec<Asked> {
        let mut frames = BytesMut::new();
        self.engine.requests(slot, self.moment, &mut frames);
        let mut frames = &frames[..];
        let mut asked = Vec::new();
        while let Some((length, rest)) = frames.split_first_chunk::<4>() {
            let (mut frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
            frames = rest;
            let header = RequestHeader::decode(&mut frame).unwrap();
            let request = FetchRequest::decode(header.api_version, frame).unwrap();
            asked.push(Asked {
                correlation_id: header.correlation_id,
                version: header.api_version,
                client_id: header.client_id.unwrap().to_owned(),
                request,
            });
        }
        asked
    }

    /// The one request a lane sends now.
    pub(super) fn request(&mut self, slot: u32) -> Asked {
        let mut asked = self.requests(slot);
        assert_eq!(asked.len(), 1, "requests of lane {slot}");
        asked.remove(0)
    }

    /// Answers a request of session 7 (or none, if it was sessionless).
    pub(super) fn answer(&mut self, slot: u32, asked: &Asked, told: Vec<Told>) {
        let session_id = if asked.request.session_epoch < 0 { 0 } else { 7 };
        self.answer_as(slot, asked, told, |head| head.session_id = session_id);
    }

    pub(super) fn answer_as(
        &mut self,
        slot: u32,
        asked: &Asked,
        told: Vec<Told>,
        change: impl FnOnce(&mut AnswerHead),
    ) {
        let frame = encode(asked, told, &[], change);
        self.deliver(slot, &frame);
    }

    /// Lets bytes arrive on a lane, as many as it takes.
    pub(super) fn deliver(&mut self, slot: u32, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.engine.is_closed(slot) {
            let into = self.engine.receive(slot).expect("no receive in flight");
            let (into, count) = self.fill(into, bytes);
            bytes = &bytes[count..];
            self.engine.received(slot, Ok(count), into, self.moment);
        }
    }

    /// Fills a receive's memory, a segment's by a real receive, and says how much it took.
    pub(super) fn fill(&mut self, into: ReceiveInto, bytes: &[u8]) -> (ReceiveInto, usize) {
        let bytes = &bytes[..bytes.len().min(self.piece_bytes)];
        match into {
            ReceiveInto::Buffer { mut buffer, from } => {
                let count = bytes.len().min(buffer.len() - from);
                buffer[from..from + count].copy_from_slice(&bytes[..count]);
                (ReceiveInto::Buffer { buffer, from }, count)
            }
            tail @ ReceiveInto::Tail { .. } => self.fill_segment(tail, bytes),
        }
    }

    fn fill_segment(&mut self, into: ReceiveInto, bytes: &[u8]) -> (ReceiveInto, usize) {
        let ReceiveInto::Tail { tail_bytes, buffer, .. } = &into else { unreachable!() };
        let count = bytes.len().min(tail_bytes + buffer.len());
        let ring = self.ring.get_or_insert_with(|| Ring::new(RingConfig { entries: 8 }).unwrap());
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let sent = bytes[..count].to_vec();
        let sender = std::thread::spawn(move || ours.write_all(&sent).unwrap());
        let socket = Socket(Arc::new(theirs.into()));
        let token = Token { role: TokenRole::Fetch, slot: 0, kind: 0 };
        // With `fill`, a stream that ends early completes with what was there.
        ring.receive(&socket, into, true, token);
        let mut completions = Vec::new();
        while completions.is_empty() {
            ring.wait(None, &mut completions).unwrap();
        }
        sender.join().unwrap();
        match completions.remove(0).outcome {
            Outcome::Received { result, into } => {
                assert_eq!(result.unwrap(), count);
                (into, count)
            }
            other => panic!("{other:?}"),
        }
    }

    /// What the control plane heard since it last listened.
    pub(super) fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.engine.desk.events)
    }

    /// The faults it heard, by partition.
    pub(super) fn faults(&mut self) -> Vec<(String, CursorFault)> {
        let events = self.events().into_iter();
        events
            .filter_map(|event| match event {
                Event::Fault(report) => Some((report.partition.id.to_string(), report.fault)),
                _ => None,
            })
            .collect()
    }

    /// The causes of the lanes that closed.
    pub(super) fn causes(&mut self) -> Vec<String> {
        let events = self.events().into_iter();
        events
            .filter_map(|event| match event {
                Event::LaneClosed(closed) => Some(closed.cause),
                _ => None,
            })
            .collect()
    }
}

/// An answer's frame.
pub(super) fn encode(
    asked: &Asked,
    told: Vec<Told>,
    endpoints: &[NodeEndpoint],
    change: impl FnOnce(&mut AnswerHead),
) -> Vec<u8> {
    let mut head = AnswerHead {
        correlation_id: asked.correlation_id,
        throttle_time_ms: 0,
        error_code: 0,
        session_id: 0,
    };
    change(&mut head);
    let records: Vec<_> = told.iter().map(|told| told.records.clone()).collect();
    let topics: Vec<_> = told.into_iter().map(|told| (told.key, vec![told.fields])).collect();
    let answer = FetchAnswer::encode(asked.version, &head, &topics, endpoints);
    let mut frame = answer.pieces[0].to_vec();
    let mut records = records.into_iter().filter(|records| !records.is_empty());
    for piece in &answer.pieces[1..] {
        frame.extend(records.next().unwrap());
        frame.extend_from_slice(piece);
    }
    frame
}

/// Compares all stored bytes; `note` says of which case.
pub(super) fn assert_stored(log: &LogReader, expected: &[u8], note: &str) {
    let found = stored(log);
    let same = found.iter().zip(expected).take_while(|(found, wanted)| found == wanted).count();
    assert!(
        found == expected,
        "{} bytes where {} were due, the same up to {same} {note}",
        found.len(),
        expected.len()
    );
}

fn stored(log: &LogReader) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut from = log.log_start();
    while from < log.log_end() {
        let slice = log.read(from, log.log_end(), usize::MAX >> 1, true).unwrap().unwrap();
        let piece = slice.to_vec();
        // The end of what was read, from the last batch's header: base offset and last delta.
        let mut rest = &piece[..];
        while rest.len() > 27 {
            let base = i64::from_be_bytes(rest[..8].try_into().unwrap());
            let length = 12 + i32::from_be_bytes(rest[8..12].try_into().unwrap()) as usize;
            let delta = i32::from_be_bytes(rest[23..27].try_into().unwrap());
            from = Offset(base + i64::from(delta) + 1);
            rest = &rest[length.min(rest.len())..];
        }
        bytes.extend(piece);
    }
    bytes
}
