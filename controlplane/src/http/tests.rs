use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dataplane::CoreId;
use dataplane::counters::{CoreCounters, Measure, Snapshot};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{ReadCounters, bind};
use crate::config::HttpConfig;

fn config(listen: &str) -> HttpConfig {
    HttpConfig { listen: Some(listen.to_owned()) }
}

/// Two cores; the second one has 3 landings of 2 ms and a lag of a second.
fn counters() -> ReadCounters {
    let cores = [CoreCounters::default(), CoreCounters::default()];
    cores[1].landing.record_many(Duration::from_millis(2), 3);
    cores[1].landed_bytes.add(4096);
    cores[1].record_lag(Some(1_000), Duration::from_secs(2));
    Arc::new(move || {
        let named = cores.iter().enumerate();
        Some(Snapshot::read(named.map(|(core, counters)| (CoreId(core as u16), counters))))
    })
}

fn serve(counters: ReadCounters) -> (Runtime, SocketAddr) {
    let runtime = Runtime::new().unwrap();
    let http = bind(&config("127.0.0.1:0")).unwrap().unwrap();
    let address = http.address();
    runtime.spawn(http.serve(SystemTime::now() - Duration::from_secs(60), counters));
    (runtime, address)
}

/// Sends `request` as it is and returns the status line's code and the body.
fn exchange(address: SocketAddr, request: &str) -> (u16, String) {
    let answer = answer(address, request);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn answer(address: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

fn decode(encoded: &str) -> Histogram<u64> {
    let bytes = STANDARD.decode(encoded).unwrap();
    Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
}

#[test]
fn json_has_every_measure_of_each_core_and_of_all() {
    let (_runtime, address) = serve(counters());
    let (status, body) = get(address, "/histograms");
    let document: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert!(document["interval_ms"].as_u64().unwrap() >= 60_000);
    assert_eq!(document["counts"]["landed_bytes"], 4096);
    assert!(document["process"]["memory_bytes_max"].as_u64().unwrap() > 0);
    for measure in Measure::ALL {
        let name = measure.name();
        let landings = if measure == Measure::Landing { 3 } else { u64::from(name == "lag") };
        assert_eq!(document["merged"][name]["count"], landings, "{name}");
        assert_eq!(document["cores"][0]["measures"][name]["count"], 0, "{name}");
        let there = &document["cores"][1]["measures"][name];
        assert_eq!(there["count"], landings, "{name}");
        assert_eq!(decode(there["histogram"].as_str().unwrap()).len(), landings, "{name}");
    }
    for percentile in ["min", "p50", "p90", "p99", "p99.9", "p99.99", "max"] {
        let nanos = document["merged"]["landing"][percentile].as_u64().unwrap();
        assert!(nanos.abs_diff(2_000_000) < 20_000, "{percentile}: {nanos}");
    }
}

#[test]
fn the_log_has_a_line_for_every_measure_of_each_core_and_of_all() {
    let (_runtime, address) = serve(counters());
    let (status, body) = get(address, "/histograms?format=hlog");
    assert_eq!(status, 200);
    let mut found = Vec::new();
    for entry in IntervalLogIterator::new(body.as_bytes()) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            let tag = interval.tag().unwrap().as_str().to_owned();
            assert!(interval.duration() >= Duration::from_secs(60), "{tag}");
            found.push((tag, decode(interval.encoded_histogram()).len()));
        }
    }
    assert_eq!(found.len(), 3 * Measure::ALL.len());
    assert!(found.contains(&("landing".to_owned(), 3)), "{found:?}");
    assert!(found.contains(&("core-0.landing".to_owned(), 0)), "{found:?}");
    assert!(found.contains(&("core-1.lag".to_owned(), 1)), "{found:?}");
}

#[test]
fn every_refusal_says_what_to_do() {
    let (_runtime, address) = serve(counters());
    let host = "Host: 127.0.0.1\r\n";
    for (request, expected, needle) in [
        (format!("GET / HTTP/1.1\r\n{host}\r\n"), 404, "GET /histograms"),
        (format!("GET /histograms?format=xml HTTP/1.1\r\n{host}\r\n"), 400, "format=hlog"),
        (format!("POST /histograms HTTP/1.1\r\n{host}\r\n"), 405, "with GET"),
        ("GET /histograms HTTP/1.1\r\n\r\n".to_owned(), 400, "one Host"),
        ("GET /histograms HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 421, "IP address"),
        ("GET /histograms HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400, "one Host"),
    ] {
        let (status, said) = exchange(address, &request);
        assert!(status == expected && said.contains(needle), "{request:.60}: {status} {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn what_is_no_request_and_what_is_too_large_is_refused_without_a_word() {
    let (_runtime, address) = serve(counters());
    let endless = format!("GET /histograms HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    let many = format!("GET /histograms HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(200));
    for (request, expected) in
        [("\u{16}\u{3}\u{1}\u{2}\r\n\r\n", 400), (endless.as_str(), 431), (many.as_str(), 431)]
    {
        assert_eq!(exchange(address, request), (expected, String::new()), "{request:.60}");
    }
}

#[test]
fn a_refused_method_is_told_the_ones_there_are_and_its_body_is_no_matter() {
    let (_runtime, address) = serve(counters());
    let body = "x".repeat(300_000);
    let request = format!("POST /histograms HTTP/1.1\r\nHost: localhost\r\n\r\n{body}");
    let answer = answer(address, &request);
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    assert!(answer.contains("\r\nallow: GET,HEAD\r\n"), "{answer}");
}

#[test]
fn a_head_alone_is_the_same_without_the_body() {
    let (_runtime, address) = serve(counters());
    let head = answer(address, "HEAD /histograms HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(!head.contains("content-length: 0"), "{head}");
}

#[test]
fn the_host_name_that_it_listens_on_is_its_own() {
    let address = "localhost.localdomain:9190";
    assert_eq!(config(address).host(), Some("localhost.localdomain"));
    assert_eq!(HttpConfig::default().host(), None);
    let runtime = Runtime::new().unwrap();
    let mut http = bind(&config("127.0.0.1:0")).unwrap().unwrap();
    http.own_name = Some("node7.example".to_owned());
    let address = http.address();
    runtime.spawn(http.serve(SystemTime::now(), counters()));
    let request = "GET /histograms HTTP/1.1\r\nHost: node7.example\r\n\r\n";
    assert_eq!(exchange(address, request).0, 200);
}

/// As many as are served at a time and fit the kernel's queue, each having sent `text`.
fn crowd(address: SocketAddr, text: &str) -> Vec<TcpStream> {
    let connect = |_| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        socket
    };
    (0..100).map(connect).collect()
}

#[test]
fn clients_that_are_waited_for_give_way() {
    let (_runtime, address) = serve(counters());
    // Silent, slow to ask, and slow to end.
    for text in ["", "GET /hist", "GET / HTTP/1.1\r\n\r\n"] {
        let mut crowd = crowd(address, text);
        assert_eq!(get(address, "/histograms").0, 200, "{text}");
        // The first one is gone by then, with or without a word, and long before its time was up.
        crowd[0].set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let ended = crowd[0].read_to_end(&mut Vec::new());
        let reset = ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!(reset || ended.is_ok(), "{ended:?}");
    }
}

#[test]
fn a_burst_of_collectors_is_served_whole() {
    let (_runtime, address) = serve(counters());
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..50).map(|_| scope.spawn(|| get(address, "/histograms").0)).collect();
        assert!(all.into_iter().all(|one| one.join().unwrap() == 200));
    });
}

#[test]
fn a_client_that_does_not_ask_is_let_go() {
    let (_runtime, address) = serve(counters());
    assert_eq!(answer(address, ""), "");
    assert_eq!(answer(address, "GET /hist"), "");
}

#[test]
fn a_node_that_stops_says_so() {
    let (_runtime, address) = serve(Arc::new(|| None));
    let (status, said) = get(address, "/histograms");
    assert!(status == 503 && said.contains("stopping"), "{status} {said}");
}

#[test]
fn a_taken_port_is_an_error_only_when_it_was_asked_for() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = bind(&config(&address)).unwrap_err().to_string();
    assert!(refused.contains(&address) && refused.contains("http.listen"), "{refused}");

    // By this or by something else on this host.
    let _default = TcpListener::bind(HttpConfig::DEFAULT_LISTEN);
    assert!(bind(&HttpConfig::default()).unwrap().is_none());
    assert!(bind(&config("off")).unwrap().is_none());
}
