//! The stand-in as a client meets it: over a socket, with requests written by `kafka-protocol`.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, FetchRequest, FetchResponse, MetadataRequest, RequestHeader,
    ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use longhaul_scripted_source::{Batch, Reply, ScriptedCluster, keys};

struct Client(TcpStream);

impl Client {
    fn connect(cluster: &ScriptedCluster) -> Self {
        let bootstrap = cluster.bootstrap();
        let stream = TcpStream::connect(bootstrap.split(',').next().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    fn send<T: Request>(&mut self, version: i16, request: &T) {
        let mut frame = BytesMut::from(&[0u8; 4][..]);
        RequestHeader::default()
            .with_request_api_key(T::KEY)
            .with_request_api_version(version)
            .with_correlation_id(7)
            .with_client_id(Some(StrBytes::from_static_str("a test")))
            .encode(&mut frame, T::header_version(version))
            .unwrap();
        request.encode(&mut frame, version).unwrap();
        let length = (frame.len() as u32 - 4).to_be_bytes();
        frame[..4].copy_from_slice(&length);
        self.0.write_all(&frame).unwrap();
    }

    fn receive(&mut self) -> std::io::Result<Bytes> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame)?;
        Ok(frame.into())
    }

    fn call<T: Request>(&mut self, version: i16, request: &T) -> T::Response {
        self.send(version, request);
        let mut frame = self.receive().unwrap();
        let header = ResponseHeader::decode(&mut frame, T::Response::header_version(version));
        assert_eq!(header.unwrap().correlation_id, 7);
        let response = T::Response::decode(&mut frame, version).unwrap();
        assert!(frame.is_empty());
        response
    }
}

/// A request of version 12 for partition 0 of `t`.
fn fetch(offset: i64, session: (i32, i32)) -> FetchRequest {
    let partition =
        FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default()
        .with_topic(StrBytes::from_static_str("t").into())
        .with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_session_id(session.0)
        .with_session_epoch(session.1)
        .with_topics(vec![topic])
}

fn only(response: &FetchResponse) -> &PartitionData {
    assert_eq!((response.responses.len(), response.responses[0].partitions.len()), (1, 1));
    &response.responses[0].partitions[0]
}

fn cluster() -> ScriptedCluster {
    let cluster = ScriptedCluster::start(1);
    cluster.create_topic("t", 1, 1);
    cluster.append("t", 0, &Batch::filled(0, 3, 10, 100));
    cluster
}

#[test]
fn records_come_as_they_were_put() {
    let cluster = cluster();
    let mut client = Client::connect(&cluster);
    let metadata = client.call(12, &MetadataRequest::default().with_topics(None));
    assert_eq!(metadata.topics[0].name.as_ref().unwrap().as_str(), "t");
    assert_eq!(metadata.topics[0].partitions[0].leader_epoch, 3);
    for version in [4, 11, 12] {
        let response = client.call(version, &fetch(0, (0, -1)));
        let expected = cluster.change("t", 0, |log| log.bytes());
        assert_eq!(only(&response).records.as_deref(), Some(&expected[..]));
        assert_eq!(only(&response).high_watermark, 10);
    }
    assert_eq!(cluster.calls(keys::FETCH).len(), 3);
    assert_eq!(cluster.calls(keys::FETCH)[2].client_id, "a test");
}

#[test]
fn a_session_tells_only_what_changed_and_errors_are_a_brokers() {
    let cluster = cluster();
    cluster.number_sessions_from(7);
    let mut client = Client::connect(&cluster);
    let opened = client.call(12, &fetch(10, (0, 0)));
    assert_eq!((opened.error_code, opened.session_id), (0, 7));
    let mut go_on = fetch(10, (7, 1));
    go_on.topics.clear();
    assert!(client.call(12, &go_on).responses.is_empty());
    cluster.append("t", 0, &Batch::filled(10, 3, 1, 10));
    go_on.session_epoch = 2;
    assert_eq!(only(&client.call(12, &go_on)).high_watermark, 11);
    assert_eq!(client.call(12, &go_on).error_code, 71);
    assert_eq!(client.call(12, &fetch(10, (8, 1))).error_code, 70);
}

#[test]
fn a_long_poll_ends_when_records_come() {
    let cluster = cluster();
    let mut client = Client::connect(&cluster);
    let began = Instant::now();
    client.send(12, &fetch(10, (0, -1)).with_max_wait_ms(15_000));
    cluster
        .wait_for("the poll", Duration::from_secs(10), keys::FETCH, |calls| calls.first().cloned());
    cluster.append("t", 0, &Batch::filled(10, 3, 1, 10));
    client.receive().unwrap();
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn epochs_and_offsets_are_checked() {
    let cluster = cluster();
    let mut client = Client::connect(&cluster);
    let mut request = fetch(11, (0, -1));
    assert_eq!(only(&client.call(12, &request)).error_code, 1);
    request.topics[0].partitions[0].current_leader_epoch = 2;
    let answer = client.call(12, &request);
    assert_eq!((only(&answer).error_code, only(&answer).current_leader.leader_epoch), (74, 3));
    let mut request = fetch(5, (0, -1));
    request.topics[0].partitions[0].last_fetched_epoch = 2;
    let answer = client.call(12, &request);
    assert_eq!(only(&answer).diverging_epoch.epoch, 2);
    assert_eq!(only(&answer).diverging_epoch.end_offset, 0);
}

#[test]
fn a_hook_answers_in_the_brokers_place() {
    let cluster = cluster();
    cluster.on(keys::FETCH, |call| match call.number {
        0 => Reply::fetch_error(71),
        1 => Reply::edited_fetch(|response| response.throttle_time_ms = 900),
        2 => Reply::Later(Duration::from_millis(1), Box::new(Reply::Ordinary)),
        _ => Reply::Close,
    });
    let mut client = Client::connect(&cluster);
    assert_eq!(client.call(12, &fetch(0, (0, -1))).error_code, 71);
    assert_eq!(client.call(12, &fetch(0, (0, -1))).throttle_time_ms, 900);
    assert_eq!(only(&client.call(12, &fetch(0, (0, -1)))).error_code, 0);
    client.send(12, &fetch(0, (0, -1)));
    assert!(client.receive().is_err());
}

#[test]
fn silenced_connections_stay_open_and_new_ones_answer() {
    let cluster = cluster();
    let mut old = Client::connect(&cluster);
    old.call(3, &ApiVersionsRequest::default());
    cluster.silence(1);
    old.send(3, &ApiVersionsRequest::default());
    old.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let error = old.receive().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    Client::connect(&cluster).call(3, &ApiVersionsRequest::default());
    assert_eq!(cluster.calls(keys::API_VERSIONS).len(), 3);
}

#[test]
fn a_version_it_does_not_speak_is_answered_in_version_0() {
    let cluster = cluster();
    cluster.set_versions(keys::FETCH, 4, 11);
    cluster.set_versions(keys::API_VERSIONS, 0, 2);
    let mut client = Client::connect(&cluster);
    client.send(3, &ApiVersionsRequest::default());
    let mut frame = client.receive().unwrap();
    ResponseHeader::decode(&mut frame, 0).unwrap();
    let answer = kafka_protocol::messages::ApiVersionsResponse::decode(&mut frame, 0).unwrap();
    assert_eq!(answer.error_code, 35);
    let fetch = answer.api_keys.iter().find(|key| key.api_key == ApiKey::Fetch as i16).unwrap();
    assert_eq!((fetch.min_version, fetch.max_version), (4, 11));
}
