//! The cores as the control plane and the network see them: start, serve, wake, stop.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test helpers fail by panicking")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use longhaul_dataplane::counters::Measure;
use longhaul_dataplane::wire::{
    AnswerHead, AnswerPartition, ApiKey, FetchAnswer, FetchEvent, FetchPartition, FetchRequest,
    FetchResponseParser, FetchTopic, IsolationLevel, RequestHeader, TopicKey,
};
use longhaul_dataplane::{
    Advertised, Assignment, BrokerId, CoreConfig, CoreId, Dataplane, DataplaneConfig, Event,
    EventSink, LaneId, LaneKind, LaneSpec, LinkId, LinkSettings, Partition, PartitionTable, Reply,
    Resume, StartError,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use storage::{
    AppendContext, LeaderEpoch, Log, LogConfig, Offset, Storage, StorageConfig, TopicId,
    TopicPartition,
};

/// Long enough for a loaded machine: only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fetch version of all requests here: names topics by name, has sessions.
const FETCH_VERSION: i16 = 11;

struct Events(Mutex<mpsc::Sender<Event>>);

impl EventSink for Events {
    fn deliver(&self, event: Event) {
        let _ = self.0.lock().unwrap().send(event);
    }
}

struct Node {
    dataplane: Dataplane,
    table: Arc<PartitionTable>,
    storage: Arc<Storage>,
    events: mpsc::Receiver<Event>,
    directory: tempfile::TempDir,
}

fn config(cores: Vec<CoreConfig>, listen: SocketAddr) -> DataplaneConfig {
    DataplaneConfig {
        cores,
        listen,
        advertised: Advertised::default(),
        connections_max: 100,
        request_bytes_max: 1 << 20,
        fetch_bytes_max: 1 << 20,
        serve_memory_max: 64 << 20,
        send_timeout: PATIENCE,
        idle_timeout: 10 * PATIENCE,
        sessions_max: 100,
    }
}

fn core(fetches: bool, serves: bool) -> CoreConfig {
    CoreConfig { cpu: None, fetches, serves }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn open_storage(directory: &tempfile::TempDir) -> Arc<Storage> {
    Storage::open(StorageConfig {
        directories: vec![directory.path().to_owned()],
        descriptors_max: 64,
        mappings_max: 64,
        recycle_bytes_max: 0,
    })
    .unwrap()
}

fn try_start(config: DataplaneConfig) -> Result<Node, StartError> {
    let (sender, events) = mpsc::channel();
    start_with(config, events, Arc::new(Events(Mutex::new(sender))))
}

fn start_with(
    config: DataplaneConfig,
    events: mpsc::Receiver<Event>,
    sink: Arc<dyn EventSink>,
) -> Result<Node, StartError> {
    let directory = tempfile::tempdir().unwrap();
    let storage = open_storage(&directory);
    let table = Arc::new(PartitionTable::default());
    let dataplane = Dataplane::start(config, table.clone(), storage.clone(), sink)?;
    Ok(Node { dataplane, table, storage, events, directory })
}

fn start(cores: Vec<CoreConfig>) -> Node {
    try_start(config(cores, any_port())).unwrap()
}

fn log_config() -> LogConfig {
    LogConfig {
        segment_bytes_max: 1 << 20,
        segment_age_max: Duration::from_secs(3600),
        index_interval_bytes: 4096,
        index_bytes_max: 1 << 20,
        batch_bytes_max: 1 << 20,
    }
}

impl Node {
    fn partition(&self, topic: &str) -> (Arc<Partition>, Log) {
        let id = TopicPartition { topic: topic.into(), partition: 0 };
        let log = self.storage.create_log(&id, TopicId::ZERO, Offset(0), log_config()).unwrap();
        let reader = log.reader().clone();
        let partition = Partition::new(id, TopicId::ZERO, reader, None, LeaderEpoch(0));
        let partition = Arc::new(partition);
        self.table.insert(partition.clone());
        (partition, log)
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.dataplane.listen_address()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// Waits until a consumer's long poll is registered with the partition's log end looked at.
    fn requests_seen(&self, count: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.dataplane.counters().total.requests < count {
            assert!(Instant::now() < deadline, "the request was not taken");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One batch of format 2 with one record without key and value.
fn batch(base_offset: i64) -> Vec<u8> {
    let record = [12u8, 0, 0, 0, 1, 1, 0];
    let mut batch = vec![0; 61];
    batch[..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[8..12].copy_from_slice(&(49 + record.len() as i32).to_be_bytes());
    batch[16] = 2;
    batch[27..35].copy_from_slice(&1000i64.to_be_bytes());
    batch[35..43].copy_from_slice(&1000i64.to_be_bytes());
    batch[43..57].fill(0xff);
    batch[57..61].copy_from_slice(&1i32.to_be_bytes());
    batch.extend_from_slice(&record);
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn frame(header: &RequestHeader<'_>, body: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    header.encode(&mut out);
    body(&mut out);
    let mut frame = (out.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&out);
    frame
}

fn long_poll(topic: &str, offset: i64) -> Vec<u8> {
    let partition = FetchPartition {
        partition: 0,
        current_leader_epoch: -1,
        fetch_offset: offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: 1 << 20,
    };
    let request = FetchRequest {
        replica_id: -1,
        // Far beyond the patience of the tests: an answer in time is one that was woken.
        max_wait_ms: 600_000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        isolation: IsolationLevel::ReadUncommitted,
        session_id: 0,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: TopicKey::Name(topic.into()),
            partitions: vec![partition],
        }],
        forgotten: Vec::new(),
        rack_id: String::new(),
    };
    let header = RequestHeader {
        api_key: ApiKey::FETCH,
        api_version: FETCH_VERSION,
        correlation_id: 7,
        client_id: Some("test"),
    };
    frame(&header, |out| request.encode(FETCH_VERSION, out))
}

/// A request that is left to the control plane.
fn metadata_header() -> RequestHeader<'static> {
    RequestHeader {
        api_key: ApiKey(3),
        api_version: 1,
        correlation_id: 99,
        client_id: Some("test"),
    }
}

fn metadata_request(header: &RequestHeader<'_>) -> Vec<u8> {
    frame(header, |out| out.extend_from_slice(&[0, 0, 0, 0]))
}

fn read_frame(stream: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

/// Error code and records of a fetch answer for one partition.
fn records(frame: &[u8]) -> (i16, Vec<u8>) {
    let mut parser = FetchResponseParser::new(FETCH_VERSION, frame.len());
    let (mut rest, mut records, mut code) = (frame, Vec::new(), None);
    loop {
        match parser.next(&mut rest).unwrap().expect("the whole frame is there") {
            FetchEvent::Partition(head) => code = Some(head.error_code),
            FetchEvent::Records => {
                let count = parser.records_remaining();
                records.extend_from_slice(&rest[..count]);
                rest = &rest[count..];
                parser.take_records(count);
            }
            FetchEvent::End(_) => return (code.expect("no partition answered"), records),
            FetchEvent::Head(_) | FetchEvent::PartitionEnd(_) => {}
        }
    }
}

fn context() -> AppendContext {
    AppendContext { leader_epoch_max: LeaderEpoch::UNKNOWN }
}

#[test]
fn a_port_in_use_stops_the_start_and_is_named() {
    let other = TcpListener::bind(any_port()).unwrap();
    let address = other.local_addr().unwrap();
    let Err(error) = try_start(config(vec![core(true, true)], address)) else {
        panic!("started on a port in use")
    };
    assert!(matches!(error, StartError::Listen { .. }), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn one_core_that_cannot_start_lets_none_start() {
    let free = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let missing = CoreConfig { cpu: Some(1_000), fetches: true, serves: true };
    let Err(error) = try_start(config(vec![core(true, true), missing], free)) else {
        panic!("started on a processor that does not exist")
    };
    assert!(matches!(error, StartError::Thread { core: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("CPU 1000"), "{error}");
    // The port is free again, and with it the first core's listener.
    try_start(config(vec![core(true, true)], free)).unwrap();
}

#[test]
fn no_cores_and_too_many_cores_are_refused() {
    for count in [0, 65] {
        let outcome = try_start(config(vec![core(true, true); count], any_port()));
        assert!(matches!(outcome, Err(StartError::Config(_))), "{count}");
    }
}

#[test]
fn idle_cores_sleep() {
    let node = start(vec![core(true, true), core(false, true)]);
    assert_eq!(node.dataplane.fetch_cores(), [CoreId(0)]);
    let turns = |node: &Node| node.dataplane.counters().total.turns;
    std::thread::sleep(Duration::from_millis(100));
    let before = turns(&node);
    std::thread::sleep(Duration::from_millis(500));
    // A core that polls makes thousands.
    assert!(turns(&node) - before < 50, "{} turns", turns(&node) - before);
    node.dataplane.shutdown();
}

#[test]
fn cold_request_reaches_the_control_plane_and_its_reply_the_client() {
    let node = start(vec![core(false, true)]);
    let mut client = node.connect();
    let header = metadata_header();
    client.write_all(&metadata_request(&header)).unwrap();
    let Ok(Event::Request(request)) = node.events.recv_timeout(PATIENCE) else {
        panic!("no request arrived")
    };
    assert_eq!(request.peer, client.local_addr().unwrap());
    let decoded = RequestHeader::decode(&mut &request.frame[..]).unwrap();
    assert_eq!(decoded, header);
    let reply = Reply::Frame(Bytes::from_static(b"\0\0\0\x63answer"));
    node.dataplane.reply(request.connection, reply);
    assert_eq!(read_frame(&mut client).unwrap(), b"\0\0\0\x63answer");
    drop(client);
    let closed = node.events.recv_timeout(PATIENCE);
    assert!(matches!(closed, Ok(Event::ConnectionClosed(id)) if id == request.connection));
}

/// Set in the process that is to be ended.
const CHILD: &str = "LONGHAUL_TEST_BROKEN_CORE";

struct Broken;

impl EventSink for Broken {
    fn deliver(&self, _event: Event) {
        panic!("broken on purpose");
    }
}

/// Run as the test of another process: a core that panics there must end it, whatever the other
/// threads do.
#[test]
fn a_core_that_breaks_down_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let no_core_file = Rlimit { current: Some(0), maximum: Some(0) };
        setrlimit(Resource::Core, no_core_file).unwrap();
        let config = config(vec![core(false, true)], any_port());
        let node = start_with(config, mpsc::channel().1, Arc::new(Broken)).unwrap();
        let mut client = node.connect();
        client.write_all(&metadata_request(&metadata_header())).unwrap();
        std::thread::sleep(PATIENCE);
        return;
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_core_that_breaks_down_ends_the_process"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{status:?}");
}

#[test]
fn publishing_wakes_consumers_on_every_core() {
    let node = start(vec![core(false, true); 3]);
    let (partition, mut log) = node.partition("local");
    // Enough connections that the kernel gives each core some.
    let mut clients: Vec<_> = (0..48).map(|_| node.connect()).collect();
    // Each round needs the wake-up of the one before to be used up.
    for round in 0..3 {
        let request = long_poll("local", round);
        for client in &mut clients {
            client.write_all(&request).unwrap();
        }
        node.requests_seen(48 * (round as u64 + 1));
        let spread = node.dataplane.counters().cores;
        assert!(spread.iter().all(|(_, counts)| counts.connections_opened > 0), "{spread:?}");
        log.append(&batch(round), &context()).unwrap();
        node.dataplane.published(&partition);
        for client in &mut clients {
            assert_eq!(records(&read_frame(client).unwrap()), (0, batch(round)));
        }
    }
    node.dataplane.shutdown();
}

#[test]
fn fetched_records_wake_a_consumer_of_another_core_and_survive_a_shutdown() {
    let node = start(vec![core(true, false), core(false, true)]);
    let (partition, log) = node.partition("mirrored");
    let mut client = node.connect();
    client.write_all(&long_poll("mirrored", 0)).unwrap();
    node.requests_seen(1);

    let fetch_core = node.dataplane.fetch_cores()[0];
    let source = TcpListener::bind(any_port()).unwrap();
    let lane = TcpStream::connect(source.local_addr().unwrap()).unwrap();
    let source = std::thread::spawn(move || one_answer(source.accept().unwrap().0));
    node.dataplane.set_link(fetch_core, LinkId(1), link_settings());
    node.dataplane.add_lane(
        fetch_core,
        LaneSpec {
            lane: LaneId(1),
            link: LinkId(1),
            broker: BrokerId(1),
            kind: LaneKind::Tail,
            socket: OwnedFd::from(lane),
            fetch_version: FETCH_VERSION,
        },
    );
    let resume = Resume { broker: BrokerId(1), leader_epoch: LeaderEpoch(0), repair: None };
    node.dataplane.assign(
        fetch_core,
        Assignment { partition: partition.clone(), log, link: LinkId(1), resume },
    );

    assert_eq!(records(&read_frame(&mut client).unwrap()), (0, batch(0)));
    let counts = node.dataplane.counters();
    assert_eq!(counts.total.landed_bytes, batch(0).len() as u64);
    let timed = |measure| counts.timings.of(measure).len();
    assert_eq!((timed(Measure::FetchRoundTrip), timed(Measure::Landing)), (1, 1));
    let landing = counts.timings.of(Measure::Landing).max();
    assert!(landing > 0, "an answer in one piece takes time too");
    assert_eq!((timed(Measure::Publish), timed(Measure::Lag)), (1, 1));
    let Node { dataplane, table, storage, directory, .. } = node;
    dataplane.shutdown();
    source.join().unwrap();
    drop((partition, table, storage));
    let storage = open_storage(&directory);
    let id = TopicPartition { topic: "mirrored".into(), partition: 0 };
    let (log, report) = storage.open_log(&id, log_config()).unwrap();
    assert!(report.clean, "the core did not close its log: {report:?}");
    assert_eq!(log.reader().log_end(), Offset(1));
}

#[test]
fn a_log_taken_from_its_core_comes_back() {
    let node = start(vec![core(true, true)]);
    let fetch_core = node.dataplane.fetch_cores()[0];
    let (partition, log) = node.partition("moved");
    node.dataplane.set_link(fetch_core, LinkId(1), link_settings());
    let resume = Resume { broker: BrokerId(1), leader_epoch: LeaderEpoch(0), repair: None };
    node.dataplane.assign(
        fetch_core,
        Assignment { partition: partition.clone(), log, link: LinkId(1), resume },
    );
    let (sender, taken) = mpsc::channel();
    let take = |sender: mpsc::Sender<Option<Log>>| {
        Box::new(move |log| {
            let _ = sender.send(log);
        })
    };
    node.dataplane.take(fetch_core, partition.clone(), take(sender.clone()));
    assert!(taken.recv_timeout(PATIENCE).unwrap().is_some());
    node.dataplane.take(fetch_core, partition, take(sender));
    assert!(taken.recv_timeout(PATIENCE).unwrap().is_none(), "it is not there any more");
}

fn link_settings() -> LinkSettings {
    LinkSettings {
        mirror: "test".into(),
        fetch_wait_max: Duration::from_millis(500),
        fetch_min_bytes: 1,
        response_bytes_max: 1 << 20,
        partition_bytes_max: 1 << 20,
        requests_out_max: 1,
        catch_up_lag_min: 1000,
        answer_timeout: PATIENCE,
        rack: "".into(),
    }
}

/// A source that answers the first request with one batch, and waits with the next as a long poll
/// does, until the lane is closed.
fn one_answer(mut lane: TcpStream) {
    let request = read_frame(&mut lane).unwrap();
    let header = RequestHeader::decode(&mut &request[..]).unwrap();
    let head = AnswerHead {
        correlation_id: header.correlation_id,
        throttle_time_ms: 0,
        error_code: 0,
        session_id: 5,
    };
    let records = batch(0);
    let partition = AnswerPartition {
        partition: 0,
        error_code: 0,
        high_watermark: 1,
        last_stable_offset: 1,
        log_start_offset: 0,
        aborted: None,
        records_bytes: records.len(),
        diverging: None,
        current_leader: None,
    };
    let topics = [(TopicKey::Name("mirrored".into()), vec![partition])];
    let answer = FetchAnswer::encode(FETCH_VERSION, &head, &topics, &[]);
    let mut pieces = answer.pieces.into_iter();
    lane.write_all(&pieces.next().unwrap()).unwrap();
    lane.write_all(&records).unwrap();
    for piece in pieces {
        lane.write_all(&piece).unwrap();
    }
    while read_frame(&mut lane).is_ok() {}
}
