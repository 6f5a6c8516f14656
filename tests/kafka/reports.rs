//! A node's histograms over HTTP, and HdrHistogram's own tools on what is written from them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Node, histogram_log_processor, wait_for_equal_ends};

use crate::{driver, node, shared_cluster};

/// The body of `GET path`.
fn get(node: &Node, path: &str) -> String {
    let mut socket = TcpStream::connect(node.http_address()).expect("a connection");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time limit");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    socket.write_all(request.as_bytes()).expect("a request sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

/// The number behind a word of the processor's last lines, such as `#[Max     =        138.41, ...`.
fn number(text: &str, word: &str) -> f64 {
    let rest = text.split(word).nth(1).unwrap_or_else(|| panic!("{word} is not in {text}"));
    let number = rest.trim_start_matches([' ', '=']);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    number[..end].parse().unwrap_or_else(|_| panic!("{word} in {text}"))
}

#[test]
fn hdr_histograms_own_tool_reads_what_a_node_writes() {
    let (cluster, driver) = (shared_cluster(), driver());
    driver.create_topic(&cluster.bootstrap(), "timed", 1, &json!({}));
    driver.must(&json!({"do": "produce", "bootstrap": cluster.bootstrap(), "topic": "timed",
        "partition": 0, "first": 0, "count": 2000, "size": 1000}));
    let node = node();
    node.create_mirror("m", &cluster.bootstrap(), &[]);
    node.start_topics("m", "timed");
    wait_for_equal_ends(driver, cluster, &node, &[("timed", 0)]);

    let document: Value = serde_json::from_str(&get(&node, "/histograms")).expect("JSON");
    let lag = &document["merged"]["lag"];
    let count = lag["count"].as_u64().expect("a count");
    assert!(count > 0, "{document}");
    let of_cores: u64 = document["cores"]
        .as_array()
        .expect("cores")
        .iter()
        .map(|core| core["measures"]["lag"]["count"].as_u64().expect("a count"))
        .sum();
    assert_eq!(of_cores, count);

    // Nothing is produced any more, so both have the same lags.
    let from_node = node.folder().join("from-node.hlog");
    std::fs::write(&from_node, get(&node, "/histograms?format=hlog")).expect("a log");
    let from_report = node.folder().join("from-report.hlog");
    let written = node.command(&[
        "report",
        "--node",
        &node.http_address(),
        "--hlog",
        &from_report.display().to_string(),
    ]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    for log in [from_node, from_report] {
        let log = log.display().to_string();
        let tags = histogram_log_processor(&["-i", &log, "-listtags"]).stdout;
        for tag in ["lag", "publish", "landing", "serve", "fetch_round_trip", "core-0.lag"] {
            assert!(tags.lines().any(|line| line == tag), "{tag}: {tags}");
        }
        let ms = ["-i", &log, "-tag", "lag", "-outputValueUnitRatio", "1000000"];
        let shown = histogram_log_processor(&ms);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        let text = shown.stdout;
        assert_eq!(number(&text, "Total count    ="), count as f64);
        let (theirs, ours) = (number(&text, "#[Max "), lag["max"].as_f64().expect("a max") / 1e6);
        assert!((theirs - ours).abs() <= ours * 0.01 + 0.01, "{theirs} ms, ours {ours} ms");
    }
}
