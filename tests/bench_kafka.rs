//! The benchmarks that run a real Kafka and MirrorMaker 2, in a short form. Needs `tests/setup`.

#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Something that takes seconds has not happened after this.
const LIMIT: Duration = Duration::from_secs(120);

/// One benchmark at a time: each runs several Java programs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bench(temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("bench").args(arguments).arg("--cache").arg(testkit::cache());
    command.env("TMPDIR", temporary).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run_of(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no run: {said}"))
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

fn assert_empty(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder).expect("the folder").flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
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

/// Processes with the folder's name on their command lines.
fn living_in(folder: &Path) -> Vec<String> {
    let wanted = folder.to_str().expect("a path of characters");
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(wanted))
        .collect()
}

#[test]
fn nothing_outlives_a_benchmark_that_is_killed_at_once() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let mut running = bench(temporary.path(), &["peers", "--with-kafka", "--size", "512MiB"])
        .stdout(Stdio::null())
        .spawn()
        .expect("a benchmark");
    let mut stderr = BufReader::new(running.stderr.take().expect("a pipe"));
    let mut line = String::new();
    let deadline = Instant::now() + LIMIT;
    while !line.contains("filling") {
        assert!(Instant::now() < deadline, "it does not fill the broker in time");
        line.clear();
        stderr.read_line(&mut line).expect("a line");
    }
    assert!(!living_in(temporary.path()).is_empty(), "the broker runs");
    running.kill().expect("a kill");
    running.wait().expect("an end");
    while !living_in(temporary.path()).is_empty() {
        assert!(Instant::now() < deadline, "still there: {:?}", living_in(temporary.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
}
