use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;
use crate::client::TopicSelection;

/// A peer that answers each request with the bytes `answer` makes of it (frame without length, by
/// number), and closes when it makes none.
fn peer(mut answer: impl FnMut(usize, &[u8]) -> Option<Vec<u8>> + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for number in 0.. {
            let mut prefix = [0; 4];
            if stream.read_exact(&mut prefix).is_err() {
                return;
            }
            let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
            stream.read_exact(&mut frame).unwrap();
            match answer(number, &frame) {
                Some(bytes) => stream.write_all(&bytes).unwrap(),
                None => return,
            }
        }
    });
    address
}

fn settings() -> ClientSettings {
    ClientSettings {
        client_id: "test".into(),
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(5),
        dead_path_timeout: Duration::from_secs(30),
        security: Security::Plaintext,
    }
}

/// A frame that answers `request` with `body`.
fn framed(request: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = ((body.len() + 4) as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&request[4..8]);
    frame.extend_from_slice(body);
    frame
}

/// ApiVersions 3: Metadata 0 to 9 and nothing else.
const VERSIONS_3: &[u8] = b"\0\0\x02\0\x03\0\0\0\x09\0\0\0\0\0\0";
/// The same in version 0.
const VERSIONS_0: &[u8] = b"\0\0\0\0\0\x01\0\x03\0\0\0\x09";

async fn opening(answer: impl FnMut(usize, &[u8]) -> Option<Vec<u8>> + Send + 'static) -> String {
    Connection::open(&peer(answer), &settings()).await.unwrap_err().to_string()
}

#[tokio::test]
async fn versions_are_negotiated_and_an_old_broker_is_asked_again_in_version_0() {
    let modern = peer(|_, request| Some(framed(request, VERSIONS_3)));
    let connection = Connection::open(&modern, &settings()).await.unwrap();
    assert_eq!(connection.versions().span(3), Some(VersionSpan { min: 0, max: 9 }));
    let old = peer(|number, request| {
        let version = i16::from_be_bytes([request[2], request[3]]);
        assert_eq!(version, [3, 0][number]);
        // Error 35 in the layout of version 0, with an empty list.
        let refusal: &[u8] = b"\0\x23\0\0\0\0";
        Some(framed(request, [refusal, VERSIONS_0][number]))
    });
    let connection = Connection::open(&old, &settings()).await.unwrap();
    assert_eq!(connection.versions().span(3), Some(VersionSpan { min: 0, max: 9 }));
    assert_eq!(connection.versions().span(1), None);
}

#[tokio::test]
async fn a_peer_that_is_no_broker_is_recognised() {
    let http = opening(|_, _| Some(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())).await;
    assert!(http.contains("HTTP server"), "{http}");
    let tls = opening(|_, _| Some(b"\x15\x03\x03\0\x02\x02\x46".to_vec())).await;
    assert!(tls.contains("TLS"), "{tls}");
    let large = opening(|_, _| Some(vec![0x7f; 8])).await;
    assert!(large.contains("announces 2139062143 bytes"), "{large}");
    let closed = opening(|_, _| None).await;
    assert!(closed.contains("lost"), "{closed}");
}

#[tokio::test]
async fn an_answer_to_another_request_or_with_impossible_counts_ends_the_connection() {
    let stray = opening(|_, request| {
        let mut frame = framed(request, VERSIONS_3);
        frame[7] ^= 1;
        Some(frame)
    });
    assert!(stray.await.contains("answers another request"));
    let huge = opening(|_, request| Some(framed(request, b"\0\0\xff\xff\xff\xff\x0f"))).await;
    assert!(huge.contains("not Kafka's"), "{huge}");
    let cut = opening(|_, _| Some(b"\0\0\0\x02ab".to_vec())).await;
    assert!(cut.contains("answers another request"), "{cut}");
}

#[tokio::test]
async fn a_request_that_no_common_version_has_is_named() {
    let old = peer(|_, request| Some(framed(request, VERSIONS_3)));
    let connection = Connection::open(&old, &settings()).await.unwrap();
    let error = connection.speaks_what_mirrors_need().unwrap_err().to_string();
    assert!(error.contains("ListOffsets not at all"), "{error}");
}

#[tokio::test]
async fn a_connection_that_missed_an_answer_is_not_used_again() {
    let mute = peer(|number, request| match number {
        0 => Some(framed(request, VERSIONS_3)),
        _ => Some(Vec::new()),
    });
    let settings = ClientSettings { request_timeout: Duration::from_millis(50), ..settings() };
    let mut connection = Connection::open(&mute, &settings).await.unwrap();
    let error = connection.metadata(TopicSelection::Nothing).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    assert!(!connection.is_usable());
    let error = connection.metadata(TopicSelection::Nothing).await.unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
}

#[tokio::test]
async fn an_address_that_nobody_has_is_an_error_in_words() {
    let nowhere = Address { host: "no-such-host.invalid".into(), port: 1 };
    let error = Connection::open(&nowhere, &settings()).await.unwrap_err();
    assert!(matches!(error, ClientError::Resolve { .. }), "{error}");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = Address::parse(&closed.to_string()).unwrap();
    let error = Connection::open(&closed, &settings()).await.unwrap_err().to_string();
    assert!(error.contains("cannot connect") && error.contains(&closed.to_string()), "{error}");
}

/// A port whose queue is full: what it is sent is dropped, like by a path that leads nowhere.
fn blackhole() -> (Vec<std::net::TcpStream>, socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300));
    let waiting: Vec<_> = (0..16).map_while(|_| connect().ok()).collect();
    assert!(waiting.len() < 16, "its queue has no end");
    (waiting, socket, address)
}

#[tokio::test]
async fn an_address_that_swallows_packets_does_not_hide_the_next_one() {
    let (_waiting, _socket, nowhere) = blackhole();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = listener.local_addr().unwrap();
    let address = Address::parse("source.example:9092").unwrap();
    let settings = ClientSettings { connect_timeout: Duration::from_millis(600), ..settings() };
    // As `open` does it: both have to fit.
    let within = |candidates: Vec<SocketAddr>| {
        let (address, settings) = (address.clone(), settings.clone());
        async move {
            let connecting = connect_any(&candidates, &address, &settings);
            timeout(Duration::from_secs(30), connecting).await.unwrap()
        }
    };
    let connected = within(vec![nowhere, there]).await.unwrap();
    assert_eq!(connected.peer_addr().unwrap(), there);
    let error = within(vec![nowhere, nowhere]).await.unwrap_err().to_string();
    assert!(error.contains("no connection within 300 ms"), "{error}");
}
