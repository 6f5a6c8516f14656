//! `longhaul report` on a node that mirrors, and on what it wrote itself.

#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use scripted_source::{Batch, ScriptedCluster};
use serde_json::Value;
use testkit::{Finished, Node, NodeOptions};

const BATCHES: i64 = 5;

/// A node that has mirrored [`BATCHES`] batches of a topic whose records are a second old, and one whose
/// records are of tomorrow.
fn mirrored() -> (ScriptedCluster, Node) {
    let source = ScriptedCluster::start(1);
    source.create_topic("orders", 1, 1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    let now_ms = i64::try_from(now.as_millis()).expect("a time of this age");
    for index in 0..=BATCHES {
        let mut batch = Batch::filled(index * 10, 0, 10, 100);
        let time_ms = if index == BATCHES { now_ms + 86_400_000 } else { now_ms - 1_000 };
        batch.timestamps.fill(time_ms);
        source.append("orders", 0, &batch);
    }
    let node = Node::start(env!("CARGO_BIN_EXE_longhaul"), &NodeOptions::default());
    node.create_mirror("m", &source.bootstrap(), &[]);
    node.start_topics("m", "orders");
    node.wait_for_offset("orders", 0, 10 * (BATCHES + 1));
    (source, node)
}

fn report(node: &Node, arguments: &[&str]) -> Finished {
    let finished = node.command(&[&["report"], arguments].concat());
    assert_eq!(finished.code, 0, "{arguments:?}: {}{}", finished.stdout, finished.stderr);
    finished
}

#[test]
fn a_node_shows_what_it_timed() {
    let (_source, node) = mirrored();
    let http = node.http_address();
    let shown = report(&node, &["--node", &http]).stdout;
    for needle in ["lag", "fetch round trip", "landing", "publish", "p99.99", "landed, MB/s"] {
        assert!(shown.contains(needle), "{needle}: {shown}");
    }
    // One answer may have had all the batches; then it is the oldest that counts.
    let runs: Value = serde_json::from_str(&report(&node, &["--node", &http, "--json"]).stdout)
        .expect("a run as JSON");
    let sample = &runs[0]["cases"][0]["rows"][0]["samples"][0];
    assert_eq!(sample["bytes"].as_u64(), Some(landed_bytes(&node)), "{runs}");
    let names: Vec<_> = sample["histograms"]
        .as_array()
        .expect("histograms")
        .iter()
        .filter_map(|named| named["name"].as_str())
        .collect();
    for name in ["lag", "landing", "publish", "fetch_round_trip", "serve", "core-0.lag"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    node.assert_quiet_log(&[]);
}

fn landed_bytes(node: &Node) -> u64 {
    let log = node.data().join("orders-0/00000000000000000000.log");
    let bytes = fs::read(log).expect("the segment");
    // A recycled segment is longer than its batches, and ends in zeros.
    let mut end = 0;
    while let Some(head) = bytes.get(end..end + 12).filter(|head| head[8..] != [0; 4]) {
        let length: [u8; 4] = head[8..].try_into().expect("four bytes");
        end += 12 + u32::from_be_bytes(length) as usize;
    }
    end as u64
}

#[test]
fn a_watch_leaves_a_page_and_a_log_that_is_read_back() {
    let (source, node) = mirrored();
    let http = node.http_address();
    let page = node.folder().join("node.html").display().to_string();
    let log = node.folder().join("node.hlog").display().to_string();
    let watch =
        ["--node", &http, "--for", "2s", "--interval", "100ms", "--html", &page, "--hlog", &log];
    let watching = std::thread::scope(|scope| {
        let watching = scope.spawn(|| report(&node, &watch));
        let mut index = BATCHES + 1;
        while !watching.is_finished() {
            source.append("orders", 0, &Batch::filled(index * 10, 0, 10, 100));
            index += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        watching.join().expect("a report")
    });
    assert!(watching.stdout.contains("landed over time, MB/s"), "{}", watching.stdout);
    assert!(watching.stderr.contains("MB/s landed"), "{}", watching.stderr);
    let text = fs::read_to_string(&page).expect("the page");
    for needle in ["Lag by percentile", "Landed over time", "--interval 100ms", "</html>"] {
        assert!(text.contains(needle), "{needle}");
    }
    let read_back = report(&node, &[&log]).stdout;
    assert!(read_back.contains("fetch round trip"), "{read_back}");
    assert!(read_back.contains("lag over time, ms"), "{read_back}");
}
