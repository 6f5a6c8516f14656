//! The benchmarks that run a real Kafka and MirrorMaker 2, in a short form. Needs `tests/setup`.

#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::benchmark::{LIMIT, alone, assert_empty, command, living_in, run_of, wait_for_words};
use testkit::wait_until;

/// A benchmark with a temporary folder of its own, and the jars of the tests.
fn bench(temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_longhaul"), temporary, arguments);
    command.arg("--cache").arg(testkit::cache());
    command
}

/// Names of the rows, in order, of every case; each has samples and no failure.
fn subjects(run: &Value) -> Vec<Vec<&str>> {
    let cases = run["cases"].as_array().expect("cases");
    cases
        .iter()
        .map(|case| {
            let rows = case["rows"].as_array().expect("rows").iter();
            rows.map(|row| {
                assert_eq!(row["failures"], Value::Array(Vec::new()), "{row}");
                assert!(!row["samples"].as_array().expect("samples").is_empty(), "{row}");
                row["subject"].as_str().expect("a name")
            })
            .collect()
        })
        .collect()
}

#[test]
fn peers_copy_one_topic_and_nothing_is_missing() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let arguments = ["peers", "--json", "--with-mm2", "--repeats", "1"];
    let ran = bench(temporary.path(), &arguments)
        .args(["--size", "4MiB", "--partitions", "3"])
        .output()
        .expect("a benchmark");
    let run = run_of(&ran);
    let everybody =
        ["Longhaul", "kcat, to /dev/null", "MirrorMaker 2, as shipped", "MirrorMaker 2, tuned"];
    assert_eq!(subjects(&run), [everybody, everybody], "uncompressed and zstd");
    for case in run["cases"].as_array().expect("cases") {
        let sample = |row: usize| &case["rows"][row]["samples"][0];
        assert!(sample(0)["checked"].as_str().expect("checked").contains(".log files"), "{case}");
        assert!(sample(2)["checked"].as_str().expect("checked").contains("4096 records"), "{case}");
        assert_eq!(sample(2)["processes"].as_array().expect("processes").len(), 3);
    }
    assert_empty(temporary.path());
}

#[test]
fn consumers_read_the_same_from_both() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let arguments = ["serve", "--json", "--with-kafka", "--repeats", "1", "--size", "4MiB"];
    let ran = bench(temporary.path(), &arguments)
        .args(["--partitions", "3", "--consumers", "2"])
        .output()
        .expect("a benchmark");
    let run = run_of(&ran);
    let both = ["Longhaul", "real Kafka"];
    assert_eq!(subjects(&run), [both; 4], "kcat and two consumers, warm and cold");
    assert_empty(temporary.path());
}

#[test]
fn a_killed_broker_comes_back_too() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let arguments = ["recover", "--json", "--with-kafka", "--repeats", "1", "--size", "4MiB"];
    let ran = bench(temporary.path(), &arguments)
        .args(["--partitions", "2", "--load", "1MB"])
        .output()
        .expect("a benchmark");
    let run = run_of(&ran);
    assert_eq!(subjects(&run), [["Longhaul", "real Kafka, written to by its producer"]]);
    assert_empty(temporary.path());
}

#[test]
fn nothing_outlives_a_benchmark_that_is_killed_at_once() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let mut running = bench(temporary.path(), &["peers", "--with-kafka", "--size", "512MiB"])
        .stdout(Stdio::null())
        .spawn()
        .expect("a benchmark");
    let _stderr = wait_for_words(&mut running, "filling");
    assert!(!living_in(temporary.path()).is_empty(), "the broker runs");
    running.kill().expect("a kill");
    running.wait().expect("an end");
    let ended = || living_in(temporary.path()).is_empty().then_some(());
    wait_until("everything to end", LIMIT, ended);
}
