//! The driver on a real core and real sockets.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use storage::{Log, LogConfig, Offset, Storage, StorageConfig, TopicId, TopicPartition};

use super::pair::{Asked, BROKER, EPOCH, LINK, assert_stored, batch_of, encode, settings, told_by};
use crate::handle::{
    Advertised, Assignment, CoreConfig, CoreId, Dataplane, DataplaneConfig, Event, EventSink,
    LaneId, LaneKind, LaneSpec, Resume,
};
use crate::partition::{Partition, PartitionTable};
use crate::wire::{FetchRequest, RequestHeader, TopicKey};

const CORE: CoreId = CoreId(0);
const TOPIC: TopicId = TopicId([9; 16]);
/// Long enough for the slowest machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Batches of a partition with their base offsets.
type Batches = Vec<(i64, Vec<u8>)>;

/// A source that answers from memory: batches of one topic's partitions.
struct Source {
    address: SocketAddr,
    batches: Arc<Vec<Batches>>,
}

impl Source {
    /// Partitions of `count` batches of ten records, `bytes` bytes each.
    fn new(partitions: i64, count: i64, bytes: usize) -> Self {
        let of_partition = |partition: i64| {
            (0..count)
                .map(|index| {
                    let size = bytes + usize::try_from(partition * 10).unwrap();
                    (index * 10, batch_of(index * 10, 10, EPOCH, size))
                })
                .collect()
        };
        let batches: Arc<Vec<Batches>> = Arc::new((0..partitions).map(of_partition).collect());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = batches.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, served) = (stream.unwrap(), served.clone());
                std::thread::spawn(move || serve(stream, &served));
            }
        });
        Self { address, batches }
    }

    fn bytes_of(&self, partition: usize) -> Vec<u8> {
        self.batches[partition].iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }
}

/// One connection: sessions as KIP-227 has them, answers cut at the sizes asked for.
fn serve(mut stream: TcpStream, batches: &[Batches]) -> Option<()> {
    let mut session: HashMap<i32, (i64, i32)> = HashMap::new();
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut frame).ok()?;
        let mut body = &frame[..];
        let header = RequestHeader::decode(&mut body).unwrap();
        let request = FetchRequest::decode(header.api_version, body).unwrap();
        let asked = Asked {
            correlation_id: header.correlation_id,
            version: header.api_version,
            client_id: String::new(),
            request,
        };
        let full = asked.request.session_epoch <= 0;
        if full {
            session.clear();
        }
        for (_, partition) in asked.partitions() {
            session.insert(partition.partition, (partition.fetch_offset, partition.max_bytes));
        }
        for partition in asked.request.forgotten.iter().flat_map(|topic| &topic.partitions) {
            session.remove(partition);
        }
        let mut told = Vec::new();
        for (partition, (offset, bytes_max)) in &session {
            let of_partition = &batches[usize::try_from(*partition).unwrap()];
            let end = of_partition.last().unwrap().0 + 10;
            let mut records: Vec<u8> = Vec::new();
            for (_, bytes) in of_partition.iter().filter(|(base, _)| base >= offset) {
                if records.len() >= *bytes_max as usize {
                    break;
                }
                records.extend_from_slice(bytes);
            }
            records.truncate((*bytes_max as usize).max(of_partition[0].1.len()));
            if full || !records.is_empty() {
                told.push(told_by(TopicKey::Id(TOPIC), *partition, end, records));
            }
        }
        if told.iter().all(|told| told.records.is_empty()) && asked.request.max_wait_ms > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let session_id = if asked.request.session_epoch < 0 { 0 } else { 7 };
        let answer = encode(&asked, told, &[], |head| head.session_id = session_id);
        stream.write_all(&answer).ok()?;
    }
}

/// Passes on what the source sends, up to a number of bytes; then the connection is cut.
fn cut_after(source: SocketAddr, bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let near = listener.accept().unwrap().0;
        let far = TcpStream::connect(source).unwrap();
        let (mut requests, mut onward) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut requests, &mut onward));
        let _ = std::io::copy(&mut far.take(bytes as u64), &mut &near);
        near.shutdown(std::net::Shutdown::Both).unwrap();
    });
    address
}

struct Heard(mpsc::Sender<Event>);

impl EventSink for Heard {
    fn deliver(&self, event: Event) {
        let _ = self.0.send(event);
    }
}

/// A node with one core, and what its control plane would hold.
struct Node {
    dataplane: Dataplane,
    events: mpsc::Receiver<Event>,
    storage: Arc<Storage>,
    lanes: AtomicUsize,
    _directory: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::open(StorageConfig {
            directories: vec![directory.path().to_path_buf()],
            descriptors_max: 1000,
            mappings_max: 1000,
            recycle_bytes_max: 64 << 20,
        })
        .unwrap();
        let config = DataplaneConfig {
            cores: vec![CoreConfig { cpu: None, fetches: true, serves: true }],
            listen: "127.0.0.1:0".parse().unwrap(),
            advertised: Advertised::default(),
            connections_max: 10,
            request_bytes_max: 1 << 20,
            fetch_bytes_max: 1 << 20,
            serve_memory_max: 1 << 20,
            send_timeout: PATIENCE,
            idle_timeout: PATIENCE,
            sessions_max: 10,
        };
        let (sender, events) = mpsc::channel();
        let dataplane = Dataplane::start(
            config,
            Arc::new(PartitionTable::default()),
            storage.clone(),
            Arc::new(Heard(sender)),
        )
        .unwrap();
        dataplane.set_link(CORE, LINK, settings());
        Self { dataplane, events, storage, lanes: AtomicUsize::new(0), _directory: directory }
    }

    fn lane(&self, address: SocketAddr, kind: LaneKind) {
        let number = self.lanes.fetch_add(1, Ordering::Relaxed) as u64;
        self.dataplane.add_lane(
            CORE,
            LaneSpec {
                lane: LaneId(number),
                link: LINK,
                broker: BROKER,
                kind,
                socket: TcpStream::connect(address).unwrap().into(),
                fetch_version: FetchRequest::VERSION_MAX,
            },
        );
    }

    fn assign(&self, partition: i32) -> Arc<Partition> {
        let name = TopicPartition { topic: Arc::from("driven"), partition };
        let config = LogConfig {
            segment_bytes_max: 8 << 20,
            segment_age_max: Duration::from_secs(3600),
            index_interval_bytes: 4096,
            index_bytes_max: 10 << 20,
            batch_bytes_max: 10 << 20,
        };
        let log = self.storage.create_log(&name, TOPIC, Offset(0), config).unwrap();
        let reader = log.reader().clone();
        let partition = Arc::new(Partition::new(name, TOPIC, reader, None, EPOCH));
        self.dataplane.assign(
            CORE,
            Assignment {
                partition: partition.clone(),
                log,
                link: LINK,
                resume: Resume { broker: BROKER, leader_epoch: EPOCH, repair: None },
            },
        );
        partition
    }

    fn take(&self, partition: &Arc<Partition>) -> Log {
        let (sender, taken) = mpsc::channel();
        let give = Box::new(move |log| sender.send(log).unwrap());
        self.dataplane.take(CORE, partition.clone(), give);
        taken.recv_timeout(PATIENCE).unwrap().unwrap()
    }
}

/// Waits until a partition's log ends there.
fn wait_for_end(partition: &Partition, end: i64) {
    let started = std::time::Instant::now();
    while partition.log.log_end() < Offset(end) {
        assert!(started.elapsed() < PATIENCE, "{} at {}", partition.id, partition.log.log_end());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn partition_is_carried_byte_for_byte_and_given_back() {
    let source = Source::new(1, 200, 50_000);
    let node = Node::start();
    let partition = node.assign(0);
    node.lane(source.address, LaneKind::Tail);
    wait_for_end(&partition, 2000);
    let log = node.take(&partition);
    assert_stored(log.reader(), &source.bytes_of(0), "");
    assert!(node.events.try_recv().is_err());
    log.close().unwrap();
    node.dataplane.shutdown();
}

#[test]
fn partitions_behind_are_carried_over_catch_up_lanes() {
    let source = Source::new(8, 100, 20_000);
    let node = Node::start();
    node.lane(source.address, LaneKind::Tail);
    node.lane(source.address, LaneKind::CatchUp);
    node.lane(source.address, LaneKind::CatchUp);
    let partitions: Vec<_> = (0..8).map(|partition| node.assign(partition)).collect();
    for (index, partition) in partitions.iter().enumerate() {
        wait_for_end(partition, 1000);
        assert_stored(&partition.log, &source.bytes_of(index), "");
    }
    node.dataplane.shutdown();
    assert!(node.events.try_recv().is_err());
}

#[test]
fn connections_cut_anywhere_leave_neither_gap_nor_duplicate() {
    let source = Source::new(2, 60, 30_000);
    let node = Node::start();
    let partitions = [node.assign(0), node.assign(1)];
    let all_there = || partitions.iter().all(|partition| partition.log.log_end() == Offset(600));
    let started = std::time::Instant::now();
    let (mut bytes, mut cuts) = (7, 0);
    while !all_there() {
        node.lane(cut_after(source.address, bytes), LaneKind::Tail);
        bytes = bytes * 7 / 4;
        // The last lane is not cut: the source has nothing more to say.
        while !all_there() {
            match node.events.recv_timeout(Duration::from_millis(5)) {
                Ok(Event::LaneClosed(_)) => break,
                Ok(other) => panic!("{other:?}"),
                Err(_) => assert!(started.elapsed() < PATIENCE),
            }
        }
        cuts += 1;
    }
    assert!(cuts > 10, "{cuts}");
    for (index, partition) in partitions.iter().enumerate() {
        assert_stored(&partition.log, &source.bytes_of(index), "");
    }
    node.dataplane.shutdown();
}

#[test]
fn shutdown_under_load_closes_every_log_at_a_batch() {
    let source = Source::new(4, 300, 50_000);
    let node = Node::start();
    let partitions: Vec<_> = (0..4).map(|partition| node.assign(partition)).collect();
    node.lane(source.address, LaneKind::Tail);
    wait_for_end(&partitions[0], 100);
    node.dataplane.shutdown();
    for (index, partition) in partitions.iter().enumerate() {
        let end = partition.log.log_end().0;
        let expected: Vec<u8> = source.batches[index]
            .iter()
            .filter(|(base, _)| *base < end)
            .flat_map(|(_, bytes)| bytes.clone())
            .collect();
        assert_stored(&partition.log, &expected, "");
    }
}
