use std::io::{Read, Write};
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
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n"))
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
fn what_is_not_there_is_refused_with_what_is() {
    let (_runtime, address) = serve(counters());
    let (status, said) = get(address, "/histograms?format=xml");
    assert!(status == 400 && said.contains("format=hlog"), "{status} {said}");
    let (status, said) = get(address, "/");
    assert!(status == 404 && said.contains("GET /histograms"), "{status} {said}");
    let (status, _) = exchange(address, "POST /histograms HTTP/1.1\r\nHost: node\r\n\r\n");
    assert_eq!(status, 405);
    let endless = format!("GET /histograms HTTP/1.1\r\nX: {}", "x".repeat(20_000));
    assert_eq!(exchange(address, &endless).0, 431);
}

#[test]
fn silent_clients_are_dropped_and_keep_nobody_out() {
    let (_runtime, address) = serve(counters());
    // More than are served at a time; each says less than a request.
    let mut silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    for socket in &mut silent {
        socket.write_all(b"GET /hist").unwrap();
    }
    assert_eq!(get(address, "/histograms").0, 200);
    for mut socket in silent {
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut said = Vec::new();
        // Closed, with or without a word; a time limit here would be an error of another kind.
        let ended = socket.read_to_end(&mut said);
        let closed = ended.as_ref().map_or_else(
            |error| error.kind() == std::io::ErrorKind::ConnectionReset,
            |_| !said.starts_with(b"HTTP/1.1 200"),
        );
        assert!(closed, "{ended:?}");
    }
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
