//! The serve role end to end: a running data plane, real logs, blocking clients.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages as oracle;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use super::errors;
use super::testing::{Batch, Node, decode_frame, topic_id};
use crate::handle::{
    Advertised, ColdRequest, CoreConfig, Dataplane, DataplaneConfig, Event, EventSink, Reply,
};

/// Nothing in these tests takes as long; a client that waits longer has been forgotten.
const PATIENCE: Duration = Duration::from_secs(20);

struct Events(Mutex<Sender<Event>>);

impl EventSink for Events {
    fn deliver(&self, event: Event) {
        let _ = self.0.lock().expect("not poisoned").send(event);
    }
}

struct Served {
    dataplane: Dataplane,
    node: Node,
    events: Receiver<Event>,
}

fn config() -> DataplaneConfig {
    let core = CoreConfig { cpu: None, fetches: false, serves: true };
    DataplaneConfig {
        cores: vec![core.clone(), core],
        listen: "127.0.0.1:0".parse().expect("an address"),
        advertised: Advertised::default(),
        connections_max: 100,
        request_bytes_max: 4 << 20,
        fetch_bytes_max: 50 << 20,
        serve_memory_max: 64 << 20,
        send_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(600),
        sessions_max: 100,
    }
}

fn serve(config: DataplaneConfig) -> Served {
    let node = Node::new();
    let (sender, events) = channel();
    let sink = std::sync::Arc::new(Events(Mutex::new(sender)));
    let dataplane = Dataplane::start(config, node.table.clone(), node.storage.clone(), sink)
        .expect("a data plane");
    Served { dataplane, node, events }
}

impl Served {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.dataplane.listen_address()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    fn cold_request(&self) -> ColdRequest {
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("a request");
            if let Event::Request(request) = event {
                return request;
            }
        }
    }
}

fn request_frame(key: i16, version: i16, correlation_id: i32, body: &impl Encodable) -> Vec<u8> {
    let header = oracle::RequestHeader::default()
        .with_request_api_key(key)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_static_str("tester")));
    let key = oracle::ApiKey::try_from(key).expect("a known key");
    let mut out = BytesMut::new();
    out.put_i32(0);
    header.encode(&mut out, key.request_header_version(version)).expect("a header");
    body.encode(&mut out, version).expect("a body");
    let length = (out.len() - 4) as i32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.to_vec()
}

fn fetch_body(version: i16, topic: &str, offset: i64, wait_ms: i32) -> oracle::FetchRequest {
    let partition =
        FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
    let topic = if version >= 13 {
        FetchTopic::default().with_topic_id(uuid(topic))
    } else {
        FetchTopic::default().with_topic(StrBytes::from_string(topic.to_owned()).into())
    };
    oracle::FetchRequest::default()
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic.with_partitions(vec![partition])])
}

fn uuid(topic: &str) -> uuid::Uuid {
    uuid::Uuid::from_bytes(topic_id(topic).0)
}

fn fetch(version: i16, correlation_id: i32, topic: &str, offset: i64, wait_ms: i32) -> Vec<u8> {
    request_frame(1, version, correlation_id, &fetch_body(version, topic, offset, wait_ms))
}

/// The next answer, without its length.
fn answer(stream: &mut TcpStream) -> Bytes {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).expect("an answer");
    let mut frame = vec![0; i32::from_be_bytes(prefix) as usize];
    stream.read_exact(&mut frame).expect("the whole answer");
    Bytes::from(frame)
}

fn records(frame: Bytes, version: i16) -> Bytes {
    let response = decode_frame(frame, version);
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, errors::NONE);
    partition.records.clone().expect("never null")
}

/// Reads until the server closes; returns what came before.
fn closes(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => rest,
        Err(error) => panic!("not closed: {error}"),
    }
}

#[test]
fn every_fetch_version_brings_the_stored_bytes() {
    let served = serve(config());
    let mut local = served.node.add("orders", 0);
    let batches: Vec<Batch> = (0..20).map(|offset| Batch::at(offset, 5000)).collect();
    let stored = local.append(&batches);
    for version in 4..=18 {
        let mut stream = served.connect();
        stream.write_all(&fetch(version, 77, "orders", 0, 1000)).expect("sent");
        let frame = answer(&mut stream);
        assert_eq!(frame.clone().get_i32(), 77, "correlation id, version {version}");
        assert!(records(frame, version) == stored, "version {version}");
    }
}

/// Sends a fetch with an old leader epoch; returns the answer.
fn fenced(served: &Served, version: i16) -> oracle::FetchResponse {
    let mut body = fetch_body(version, "a", 0, 0);
    body.topics[0].partitions[0].current_leader_epoch = 2;
    let mut stream = served.connect();
    stream.write_all(&request_frame(1, version, 1, &body)).expect("a request sent");
    decode_frame(answer(&mut stream), version)
}

#[test]
fn a_fenced_reader_is_told_epoch_and_address_of_the_leader() {
    let advertised = Advertised { node_id: 7, host: Some("node7.example".into()), port: Some(91) };
    let reached = Advertised { node_id: 7, ..Advertised::default() };
    for advertised in [advertised, reached] {
        let served = serve(DataplaneConfig { advertised: advertised.clone(), ..config() });
        let mut local = served.node.add("a", 0);
        local.append(&[Batch { epoch: 3, ..Batch::at(0, 10) }]);
        for version in [12, 15, 16, 18] {
            let response = fenced(&served, version);
            let partition = &response.responses[0].partitions[0];
            assert_eq!(partition.error_code, errors::FENCED_LEADER_EPOCH);
            let leader = &partition.current_leader;
            let told = (leader.leader_id.0, leader.leader_epoch);
            let endpoints: Vec<_> = response
                .node_endpoints
                .iter()
                .map(|node| (node.node_id.0, node.host.to_string(), node.port))
                .collect();
            if version < 16 {
                assert_eq!((told, endpoints), ((-1, -1), Vec::new()), "version {version}");
                continue;
            }
            let address = served.dataplane.listen_address();
            let host = advertised.host.clone().unwrap_or_else(|| address.ip().to_string());
            let port = advertised.port.unwrap_or(address.port());
            assert_eq!((told, endpoints), ((7, 3), vec![(7, host, port.into())]));
        }
    }
}

#[test]
fn a_reader_whose_epoch_is_newer_is_told_no_leader() {
    let served = serve(config());
    let mut local = served.node.add("a", 0);
    local.append(&[Batch { epoch: 1, ..Batch::at(0, 10) }]);
    // 2 is newer than 1: that leader is not known here.
    let response = fenced(&served, 16);
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, errors::UNKNOWN_LEADER_EPOCH);
    assert!(partition.current_leader.leader_id.0 == -1 && response.node_endpoints.is_empty());
}

#[test]
fn a_waiting_reader_is_woken_by_a_publish() {
    let served = serve(config());
    let mut local = served.node.add("orders", 0);
    let mut readers: Vec<TcpStream> = (0..20).map(|_| served.connect()).collect();
    for offset in 0..5 {
        for stream in &mut readers {
            stream.write_all(&fetch(12, 1, "orders", offset, 1 << 30)).expect("sent");
        }
        let stored = local.append(&[Batch::at(offset, 100)]);
        served.dataplane.published(&local.partition);
        for stream in &mut readers {
            assert!(records(answer(stream), 12) == stored, "offset {offset}");
        }
    }
}

#[test]
fn a_reader_that_waits_for_more_bytes_is_woken_again() {
    let served = serve(config());
    let mut local = served.node.add("orders", 0);
    let batch_bytes = Batch::at(0, 100).encode().len() as i32;
    let mut stream = served.connect();
    let body = fetch_body(12, "orders", 0, 1 << 30).with_min_bytes(batch_bytes * 3);
    stream.write_all(&request_frame(1, 12, 1, &body)).expect("sent");
    let mut stored = Vec::new();
    for offset in 0..3 {
        // Each publish finds the reader waiting: one that came before it would count at once.
        std::thread::sleep(Duration::from_millis(20));
        stored.extend(local.append(&[Batch::at(offset, 100)]));
        served.dataplane.published(&local.partition);
    }
    assert!(records(answer(&mut stream), 12) == stored);
}

#[test]
fn no_publish_is_missed_while_a_reader_begins_to_wait() {
    let served = serve(config());
    // Looking at the others leaves time between the look at the first and the wait for it.
    let names: Vec<String> = (0..100).map(|topic| format!("t{topic}")).collect();
    let mut locals: Vec<_> = names.iter().map(|name| served.node.add(name, 0)).collect();
    let ask = |offset| {
        let first = fetch_body(12, "t0", offset, 0).topics;
        let others = names[1..].iter().flat_map(|name| fetch_body(12, name, 0, 0).topics);
        let topics = first.into_iter().chain(others).collect();
        request_frame(1, 12, 1, &fetch_body(12, "", 0, 1 << 30).with_topics(topics))
    };
    let mut stream = served.connect();
    let (go, writer_says) = channel();
    let (done, reader_done) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for offset in writer_says {
                stream.write_all(&ask(offset)).expect("sent");
                assert!(!records(answer(&mut stream), 12).is_empty(), "offset {offset}");
                done.send(()).expect("the writer waits");
            }
        });
        for offset in 0..500 {
            // Takes back the interest that the wait before has left.
            served.dataplane.published(&locals[0].partition);
            go.send(offset).expect("the reader waits");
            // From before the request is read to after the reader waits.
            std::thread::sleep(Duration::from_micros(offset as u64 % 50 * 20));
            locals[0].append(&[Batch::at(offset, 10)]);
            served.dataplane.published(&locals[0].partition);
            reader_done.recv().expect("the reader was woken");
        }
        drop(go);
    });
}

#[test]
fn a_wait_ends_at_its_deadline_with_an_empty_answer() {
    let served = serve(config());
    served.node.add("orders", 0);
    let mut stream = served.connect();
    stream.write_all(&fetch(12, 1, "orders", 0, 50)).expect("sent");
    assert!(records(answer(&mut stream), 12).is_empty());
}

#[test]
fn idle_readers_keep_no_core_busy() {
    let served = serve(config());
    served.node.add("orders", 0);
    let mut readers: Vec<TcpStream> = (0..20).map(|_| served.connect()).collect();
    for _ in 0..5 {
        for stream in &mut readers {
            stream.write_all(&fetch(12, 1, "orders", 0, 100)).expect("sent");
        }
        for stream in &mut readers {
            answer(stream);
        }
    }
    let total = served.dataplane.counters().total;
    assert_eq!(total.requests, 100);
    assert!(total.turns < 1000, "{} turns for 100 requests", total.turns);
}

#[test]
fn frames_arrive_in_single_bytes_and_several_at_once() {
    let served = serve(config());
    let mut local = served.node.add("orders", 0);
    let stored = local.append(&[Batch::at(0, 100)]);
    let mut stream = served.connect();
    stream.set_nodelay(true).expect("no delay");
    for byte in fetch(12, 1, "orders", 0, 1000) {
        stream.write_all(&[byte]).expect("sent");
    }
    assert!(records(answer(&mut stream), 12) == stored);
    let many: Vec<u8> = (10..60).flat_map(|id| fetch(12, id, "orders", 0, 1000)).collect();
    stream.write_all(&many).expect("sent");
    for id in 10..60 {
        let frame = answer(&mut stream);
        assert_eq!(frame.clone().get_i32(), id);
        assert!(records(frame, 12) == stored);
    }
}

#[test]
fn answers_leave_in_request_order_whoever_makes_them() {
    let served = serve(config());
    served.node.add("orders", 0).append(&[Batch::at(0, 100)]);
    let mut stream = served.connect();
    let metadata = oracle::MetadataRequest::default();
    let mut requests = request_frame(3, 9, 1, &metadata);
    requests.extend(fetch(12, 2, "orders", 0, 1000));
    stream.write_all(&requests).expect("sent");
    let cold = served.cold_request();
    assert_eq!(cold.peer, stream.local_addr().expect("an address"));
    assert_eq!(cold.local, stream.peer_addr().expect("an address"));
    assert_eq!(cold.frame[..8], requests[4..12], "the frame without its length");
    stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    assert!(stream.read(&mut [0]).is_err(), "the fetch waits for its turn");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let reply = Bytes::from_static(b"\0\0\0\x01anything");
    let wrong = crate::handle::ConnectionId { generation: 99, ..cold.connection };
    served.dataplane.reply(wrong, Reply::Close);
    served.dataplane.reply(cold.connection, Reply::Frame(reply.clone()));
    served.dataplane.reply(cold.connection, Reply::Close);
    assert_eq!(answer(&mut stream), reply);
    assert_eq!(answer(&mut stream).get_i32(), 2);
}

#[test]
fn the_control_plane_can_answer_nothing_or_close() {
    let served = serve(config());
    let mut stream = served.connect();
    let request = request_frame(3, 9, 1, &oracle::MetadataRequest::default());
    stream.write_all(&request).expect("sent");
    served.dataplane.reply(served.cold_request().connection, Reply::Nothing);
    stream.write_all(&request).expect("sent");
    let cold = served.cold_request();
    served.dataplane.reply(cold.connection, Reply::Close);
    assert_eq!(closes(&mut stream), b"");
    let closed = served.events.recv_timeout(PATIENCE).expect("an event");
    assert!(matches!(closed, Event::ConnectionClosed(id) if id == cold.connection));
}

#[test]
fn impossible_requests_close_the_connection() {
    let served = serve(config());
    let cut = {
        let mut cut = fetch(12, 1, "orders", 0, 0);
        cut.truncate(cut.len() - 3);
        let length = (cut.len() - 4) as i32;
        cut[..4].copy_from_slice(&length.to_be_bytes());
        cut
    };
    let frames: [(&str, Vec<u8>); 6] = [
        ("negative length", (-1i32).to_be_bytes().to_vec()),
        ("oversize", ((4 << 20) + 1i32).to_be_bytes().to_vec()),
        ("old fetch", b"\0\0\0\x0a\0\x01\0\x03\0\0\0\x01\0\0".to_vec()),
        ("new fetch", b"\0\0\0\x0a\0\x01\0\x63\0\0\0\x01\0\0".to_vec()),
        ("empty frame of a hot key", b"\0\0\0\x02\0\x01".to_vec()),
        ("cut fetch", cut),
    ];
    for (name, frame) in frames {
        let mut stream = served.connect();
        stream.write_all(&frame).expect("sent");
        assert_eq!(closes(&mut stream), b"", "{name}");
    }
}

#[test]
fn writes_are_refused_with_one_final_error() {
    let served = serve(config());
    let local = served.node.add("orders", 0);
    for version in 3..=13 {
        for acks in [1, 0] {
            let mut stream = served.connect();
            stream.write_all(&produce(version, acks)).expect("sent");
            if acks == 0 {
                assert_eq!(closes(&mut stream), b"");
                continue;
            }
            let mut frame = answer(&mut stream);
            let key = oracle::ApiKey::Produce;
            oracle::ResponseHeader::decode(&mut frame, key.response_header_version(version))
                .expect("a header");
            let response = oracle::ProduceResponse::decode(&mut frame, version).expect("a body");
            let partition = &response.responses[0].partition_responses[0];
            assert_eq!(partition.error_code, errors::POLICY_VIOLATION, "version {version}");
            assert_eq!(partition.base_offset, -1);
            if version >= 8 {
                let message = partition.error_message.as_ref().expect("a reason").to_string();
                assert!(message.contains("mirror west"), "{message}");
                assert!(message.contains("mirror west copies it"), "{message}");
            }
        }
    }
    assert_eq!(local.partition.log.log_end().0, 0);
}

fn produce(version: i16, acks: i16) -> Vec<u8> {
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    let records = Bytes::from(Batch::at(0, 10).encode());
    let data = PartitionProduceData::default().with_records(Some(records));
    let topic = if version >= 13 {
        TopicProduceData::default().with_topic_id(uuid("orders"))
    } else {
        TopicProduceData::default().with_name(StrBytes::from_static_str("orders").into())
    };
    let body = oracle::ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(1000)
        .with_topic_data(vec![topic.with_partition_data(vec![data])]);
    request_frame(0, version, 1, &body)
}

#[test]
fn a_reader_that_takes_nothing_is_disconnected_and_others_are_served() {
    let served = serve(DataplaneConfig { send_timeout: Duration::from_millis(200), ..config() });
    let names: Vec<String> = (0..40).map(|topic| format!("t{topic}")).collect();
    let mut locals: Vec<_> = names.iter().map(|name| served.node.add(name, 0)).collect();
    for local in &mut locals {
        local.append(&[Batch::at(0, 900_000)]);
    }
    let mut slow = served.connect();
    let topics = names.iter().flat_map(|name| fetch_body(12, name, 0, 0).topics).collect();
    let all = fetch_body(12, "", 0, 0).with_topics(topics);
    slow.write_all(&request_frame(1, 12, 1, &all)).expect("sent");
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut other = served.connect();
    while served.dataplane.counters().total.connections_closed == 0 {
        assert!(std::time::Instant::now() < deadline, "the slow reader stays");
        other.write_all(&fetch(12, 1, "t0", 0, 0)).expect("sent");
        assert!(records(answer(&mut other), 12).len() > 900_000);
        std::thread::sleep(Duration::from_millis(20));
    }
    let got = closes(&mut slow).len();
    assert!(got < 36_000_000, "the answer was cut: {got} bytes");
}

#[test]
fn a_small_budget_delays_requests_and_loses_none() {
    let served = serve(DataplaneConfig { serve_memory_max: 64 * 1024, ..config() });
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = served.connect();
            std::thread::spawn(move || {
                // One large name makes a request of many times the budget's room.
                let name = "x".repeat(30_000);
                let topics = vec![fetch_body(11, &name, 0, 0).topics[0].clone(); 10];
                let body = fetch_body(11, "", 0, 0).with_topics(topics);
                stream.write_all(&request_frame(1, 11, 5, &body)).expect("sent");
                answer(&mut stream).get_i32()
            })
        })
        .collect();
    for client in clients {
        assert_eq!(client.join().expect("answered"), 5);
    }
}

#[test]
fn without_memory_for_its_wait_a_fetch_is_answered_after_a_pause() {
    let served = serve(DataplaneConfig { serve_memory_max: 400, ..config() });
    let mut local = served.node.add("orders", 0);
    let mut stream = served.connect();
    stream.write_all(&fetch(12, 1, "orders", 0, 1 << 30)).expect("sent");
    assert!(records(answer(&mut stream), 12).is_empty());
    stream.write_all(&fetch(12, 1, "orders", 0, 1 << 30)).expect("sent");
    assert!(records(answer(&mut stream), 12).is_empty());
    assert!(served.dataplane.counters().total.stalls >= 2);
    let stored = local.append(&[Batch::at(0, 100)]);
    stream.write_all(&fetch(12, 1, "orders", 0, 1 << 30)).expect("sent");
    assert!(records(answer(&mut stream), 12) == stored);
}

#[test]
fn a_connection_too_many_is_closed_at_once() {
    let served = serve(DataplaneConfig { connections_max: 2, ..config() });
    served.node.add("orders", 0);
    let mut kept: Vec<TcpStream> = (0..2).map(|_| served.connect()).collect();
    for stream in &mut kept {
        stream.write_all(&fetch(12, 1, "orders", 0, 0)).expect("sent");
        answer(stream);
    }
    assert_eq!(closes(&mut served.connect()), b"");
    drop(kept);
    let deadline = std::time::Instant::now() + PATIENCE;
    while served.dataplane.counters().total.connections_closed < 2 {
        assert!(std::time::Instant::now() < deadline, "closed connections are noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut again = served.connect();
    again.write_all(&fetch(12, 1, "orders", 0, 0)).expect("sent");
    answer(&mut again);
}

#[test]
fn idle_connections_and_stalled_requests_are_closed() {
    let served = serve(DataplaneConfig {
        idle_timeout: Duration::from_millis(200),
        send_timeout: Duration::from_millis(100),
        ..config()
    });
    let mut idle = served.connect();
    let mut stalled = served.connect();
    stalled.write_all(b"\0\0\0").expect("sent");
    assert_eq!(closes(&mut idle), b"");
    assert_eq!(closes(&mut stalled), b"");
}

#[test]
fn a_client_that_leaves_while_it_waits_is_noticed() {
    let served = serve(config());
    served.node.add("orders", 0);
    let mut half = served.connect();
    half.write_all(&fetch(12, 1, "orders", 0, 1 << 30)).expect("sent");
    half.shutdown(std::net::Shutdown::Write).expect("half closed");
    assert!(records(answer(&mut half), 12).is_empty(), "it gets what there is");
    assert_eq!(closes(&mut half), b"");
    let mut gone = served.connect();
    gone.write_all(&fetch(12, 1, "orders", 0, 1 << 30)).expect("sent");
    drop(gone);
    let deadline = std::time::Instant::now() + PATIENCE;
    while served.dataplane.counters().total.connections_closed < 2 {
        assert!(std::time::Instant::now() < deadline, "it is still taken for waiting");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_shutdown_ends_waiting_readers() {
    let served = serve(config());
    served.node.add("orders", 0);
    let mut stream = served.connect();
    stream.write_all(&fetch(12, 1, "orders", 0, 1 << 30)).expect("sent");
    while served.dataplane.counters().total.requests == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    served.dataplane.shutdown();
    assert_eq!(closes(&mut stream), b"");
}
