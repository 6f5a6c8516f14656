use std::net::TcpListener;

use super::*;

fn document(started_ms: u64, read_ms: u64, landings: u64, bytes: u64) -> String {
    let mut histogram = Histogram::new_with_bounds(1, 86_400_000_000_000, 2).unwrap();
    histogram.record_n(2_000_000, landings).unwrap();
    let histogram = encoding::encode(&histogram).unwrap();
    let lag = format!("{{\"lag\": {{\"count\": 1, \"histogram\": \"{histogram}\"}}}}");
    format!(
        "{{\"started_ms\": {started_ms}, \"read_ms\": {read_ms}, \"unit\": \"nanoseconds\",
          \"process\": {{\"user_seconds\": {landings}.5, \"system_seconds\": 1, \"memory_bytes_max\": 4096}},
          \"counts\": {{\"landed_bytes\": {bytes}}}, \"merged\": {lag},
          \"cores\": [{{\"core\": 0, \"measures\": {lag}, \"counts\": {{}}}}]}}"
    )
}

/// Answers one connection after the other.
fn serve(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 1024]);
            let _ = write!(socket, "{answer}");
        }
    });
    address
}

fn ok(body: &str) -> String {
    format!("HTTP/1.0 200 OK\r\nconnection: close\r\n\r\n{body}")
}

fn plan(looks: u32) -> Plan {
    let interval = Duration::from_millis(1);
    Plan { interval, total: interval * looks }
}

#[test]
fn a_watch_holds_what_happened_meanwhile() {
    let node = serve(vec![
        ok(&document(1_000, 5_000, 10, 1_000_000)),
        ok(&document(1_000, 6_000, 12, 3_000_000)),
        ok(&document(1_000, 7_000, 12, 3_000_000)),
    ]);
    let watched = watch(&node, "", plan(2), &|| false, &mut |_| {}).unwrap();
    let sample = &watched.run.cases[0].rows[0].samples[0];
    assert_eq!(sample.bytes, 2_000_000);
    let process = &sample.processes[0];
    assert_eq!((process.user_seconds, process.system_seconds), (2.0, 0.0));
    assert_eq!(sample.histograms.len(), 2);
    assert!(sample.histograms.iter().all(|named| named.histogram.len() == 2));
    let landed = &sample.series[0];
    assert_eq!(landed.points, [(1.0, 2.0), (2.0, 0.0)]);
    let counts: Vec<_> = watched.intervals.iter().map(|i| i.histogram.len()).collect();
    assert_eq!(counts, [2, 2, 0, 0]);
    assert_eq!(watched.run.started_ms, 5_000);
    assert_eq!(watched.run.seconds, 2.0);
}

#[test]
fn a_node_that_is_started_anew_ends_the_watch() {
    let node = serve(vec![
        ok(&document(1_000, 5_000, 10, 0)),
        ok(&document(1_000, 6_000, 11, 0)),
        ok(&document(6_500, 7_000, 1, 0)),
    ]);
    let watched = watch(&node, "", plan(9), &|| false, &mut |_| {}).unwrap();
    assert_eq!(watched.run.seconds, 1.0);
    assert!(watched.run.left_out[0].contains("started anew"), "{:?}", watched.run.left_out);
}

#[test]
fn an_interruption_keeps_what_was_seen() {
    let node = serve(vec![ok(&document(1_000, 5_000, 10, 0))]);
    let watched = watch(&node, "", plan(9), &|| true, &mut |_| {}).unwrap();
    assert!(watched.run.interrupted);
    assert_eq!(watched.run.cases[0].rows[0].samples[0].histograms[0].histogram.len(), 0);
}

#[test]
fn one_look_is_all_since_the_start() {
    let node = serve(vec![ok(&document(1_000, 5_000, 10, 8_000_000))]);
    let watched = since_start(&node, "").unwrap();
    assert_eq!((watched.run.started_ms, watched.run.seconds), (1_000, 4.0));
    assert_eq!(watched.run.cases[0].rows[0].figure("landed").unwrap().median, 2.0);
    assert_eq!(watched.intervals[0].histogram.len(), 10);
}

#[test]
fn other_servers_are_refused_with_their_own_words() {
    let not_found = "HTTP/1.0 404 Not Found\r\n\r\n".to_owned();
    for (answer, needle) in [
        (not_found, "404"),
        (ok("{}"), "started_ms"),
        ("SSH-2.0".to_owned(), "no HTTP"),
        (ok(&document(1, 2, 3, 4).replace("HISTF", "XXXXX")), "histogram"),
    ] {
        let said = look(&serve(vec![answer])).unwrap_err().to_string();
        assert!(said.contains(needle), "{needle}: {said}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = look(&closed.to_string()).unwrap_err().to_string();
    assert!(said.contains("http.listen"), "{said}");
}

#[test]
fn a_node_that_takes_its_time_is_given_up_with_the_time_it_had() {
    for trickles in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = TcpStream::connect(address).unwrap();
        let (mut slow, _) = listener.accept().unwrap();
        let writing = std::thread::spawn(move || {
            while trickles && slow.write_all(b"H").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
            slow
        });
        let said = exchange(socket, address, Duration::from_millis(200)).unwrap_err().to_string();
        assert_eq!(said, "no answer within 0.2 s", "trickles: {trickles}");
        drop(writing.join());
    }
}

#[test]
fn lags_of_a_day_are_named_and_not_drawn() {
    let aged = document(1_000, 5_000, 10, 0);
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 86_400_000_000_000, 2).unwrap();
    histogram.record_n(2_000_000, 10).unwrap();
    let young = encoding::encode(&histogram).unwrap();
    histogram.reset();
    histogram.record_n(86_400_000_000_000, 10).unwrap();
    let aged = aged.replace(&young, &encoding::encode(&histogram).unwrap());
    let run = since_start(&serve(vec![ok(&aged)]), "").unwrap().run;
    assert!(run.left_out.iter().any(|what| what.contains("a day old")), "{:?}", run.left_out);
    assert!(run.cases[0].rows[0].figure("lag p50").is_none());
}
