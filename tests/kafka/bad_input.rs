//! Mistakes of the operator and faults of the host: a sentence, an exit code, nothing lost.

use std::time::Duration;

use serde_json::json;
use testkit::{run, wait_for_equal_ends, wait_until};

use crate::{driver, node, shared_cluster};

const LIMIT: Duration = Duration::from_secs(60);

fn longhaul(arguments: &[&str]) -> testkit::Finished {
    run(env!("CARGO_BIN_EXE_longhaul"), arguments, LIMIT)
}

#[test]
fn a_wrong_bootstrap_is_refused_when_the_mirror_is_created() {
    let node = node();
    let closed = format!("127.0.0.1:{}", testkit::free_port());
    for bootstrap in [closed.as_str(), "no-such-host.invalid:9092", "127.0.0.1", "127.0.0.1:port"] {
        let refused = node.try_create_mirror("m", bootstrap, &[]);
        assert_eq!(refused.code, 1, "{bootstrap}: {}", refused.stdout);
        assert!(refused.stderr.contains("bootstrap.servers"), "{bootstrap}: {}", refused.stderr);
    }
    assert_eq!(node.mirror("list", &["--json"]).stdout.trim(), "[]");
}

#[test]
fn a_misspelt_setting_is_answered_with_the_nearest_right_one() {
    let cluster = shared_cluster();
    let node = node();
    let refused =
        node.try_create_mirror("m", &cluster.bootstrap(), &[("fetch.response.max.byte", "1")]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("fetch.response.max.bytes"), "{}", refused.stderr);

    let file = node.folder().join("misspelt.toml");
    std::fs::write(&file, "[storage]\nsegment_bytes_maxx = 5\n").expect("a configuration");
    let refused = longhaul(&["node", "--config", &file.display().to_string()]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("segment_bytes_max") && refused.stderr.contains(":2"),
        "{}",
        refused.stderr
    );
}

#[test]
fn an_unknown_topic_is_refused_by_name_and_the_others_start() {
    let (cluster, driver) = (shared_cluster(), driver());
    driver.create_topic(&cluster.bootstrap(), "known-topic", 1, &json!({}));
    let node = node();
    node.create_mirror("m", &cluster.bootstrap(), &[]);
    let started = node.mirror("start", &["--mirror", "m", "--topics", "known-topic,missing-topic"]);
    assert_eq!(started.code, 1, "{}{}", started.stdout, started.stderr);
    let text = format!("{}{}", started.stdout, started.stderr);
    assert!(text.contains("missing-topic"), "{text}");
    wait_until("the known topic to be mirrored", LIMIT, || node.row("known-topic", 0));
    let unknown = node.mirror("start", &["--mirror", "other", "--topics", "known-topic"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.stderr.contains("other"), "{}", unknown.stderr);
}

#[test]
fn a_port_in_use_and_a_forbidden_directory_end_the_node_with_a_sentence() {
    let node = node();
    let folder = node.folder().join("second");
    let taken = longhaul(&[
        "node",
        "--listen",
        &node.address(),
        "--data-dir",
        &folder.display().to_string(),
    ]);
    assert_ne!(taken.code, 0);
    assert!(taken.stderr.contains(&node.address()), "{}", taken.stderr);

    let same = longhaul(&[
        "node",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        &node.data().display().to_string(),
    ]);
    assert_ne!(same.code, 0);
    assert!(same.stderr.contains("in use"), "{}", same.stderr);

    let forbidden = longhaul(&["node", "--listen", "127.0.0.1:0", "--data-dir", "/proc/longhaul"]);
    assert_ne!(forbidden.code, 0);
    assert!(forbidden.stderr.contains("/proc/longhaul"), "{}", forbidden.stderr);
}

#[test]
fn a_command_to_a_node_that_is_not_there_says_so() {
    let closed = format!("127.0.0.1:{}", testkit::free_port());
    let refused = longhaul(&["mirror", "list", "--bootstrap-server", &closed]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains(&closed), "{}", refused.stderr);
}

/// A damaged segment costs its own tail, is found by `log verify`, and is fetched again.
#[test]
fn a_damaged_segment_is_found_and_mended_from_the_source() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "damaged", 2, &json!({}));
    for partition in 0..2 {
        driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "damaged", "partition": partition, "count": 500}));
    }
    let mut node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "damaged");
    wait_for_equal_ends(driver, cluster, &node, &[("damaged", 0), ("damaged", 1)]);
    // Killed, so that the restart looks at the tail.
    node.kill();
    let folder = node.data().join("damaged-0");
    let segment = folder.join("00000000000000000000.log");
    let mut bytes = std::fs::read(&segment).expect("a segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).expect("a damaged segment");
    let verified = longhaul(&["log", "verify", &folder.display().to_string()]);
    assert_eq!(verified.code, 1, "{}{}", verified.stdout, verified.stderr);
    node.restart();
    wait_for_equal_ends(driver, cluster, &node, &[("damaged", 0), ("damaged", 1)]);
    node.stop();
    for folder in ["damaged-0", "damaged-1"] {
        testkit::assert_logs_equal(&cluster.data(0).join(folder), &node.data().join(folder));
    }
    let verified = longhaul(&["log", "verify", &folder.display().to_string()]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
}
