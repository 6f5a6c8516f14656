//! Each benchmark in its short form: that it runs, checks bytes, has its structure and leaves nothing behind.
//! What it measures is for a quiet machine; a run that says the machine was busy is good enough here.

#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

use std::fs;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::benchmark::{
    LIMIT, alone, assert_empty, command, living_in, names_in, run_of, said, wait_for_words,
};
use testkit::wait_until;

/// A benchmark with a temporary folder of its own.
fn bench(temporary: &Path, arguments: &[&str]) -> Command {
    command(env!("CARGO_BIN_EXE_longhaul"), temporary, arguments)
}

/// Whether this machine lets us make a path; if not, the test says so and is over.
fn paths_are_possible() -> bool {
    let tried = bench(Path::new("/tmp"), &["wan-shell", "--", "true"]).output().expect("it runs");
    if !tried.status.success() {
        let why = said(&tried);
        assert!(why.contains("run it as root") || why.contains("/dev/net/tun"), "{why}");
        // To standard error past the harness' capture: a test that did not run is to be seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED: no path can be made here: {why}");
    }
    tried.status.success()
}

/// Sends Ctrl-C once a sample is there; the thread reads on what the benchmark says until it ends.
fn interrupt_after_a_sample(running: &mut Child) -> JoinHandle<usize> {
    let stderr = wait_for_words(running, "run 1 of");
    let pid = Pid::from_raw(running.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::INT).expect("a signal");
    // Whoever writes to a pipe that nobody reads would end early.
    std::thread::spawn(move || stderr.lines().map_while(Result::ok).count())
}

fn samples(run: &Value) -> Vec<&Value> {
    let rows = run["cases"].as_array().expect("cases").iter();
    let rows = rows.flat_map(|case| case["rows"].as_array().expect("rows"));
    rows.flat_map(|row| {
        assert_eq!(row["failures"], Value::Array(Vec::new()), "{row}");
        row["samples"].as_array().expect("samples")
    })
    .collect()
}

fn figure(sample: &Value, name: &str) -> f64 {
    let figures = sample["figures"].as_array().expect("figures");
    let figure = figures.iter().find(|figure| figure["name"] == name);
    figure.unwrap_or_else(|| panic!("no {name} in {sample}"))["value"].as_f64().expect("a number")
}

/// The node's own histograms are in the sample, and so in the run's log.
fn assert_timed(sample: &Value, measure: &str) {
    let histograms = sample["histograms"].as_array().expect("histograms");
    assert!(histograms.iter().any(|named| named["name"] == measure), "{measure}: {histograms:?}");
}

#[test]
fn lag_reads_every_record_and_checks_it() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let arguments =
        ["--loopback", "--load", "2MB", "--partitions", "3", "--seconds", "2", "--warm-up", "1"];
    let ran = bench(temporary.path(), &["lag", "--json", "--repeats", "1"])
        .args(arguments)
        .output()
        .expect("a benchmark");
    let run = run_of(&ran);
    let samples = samples(&run);
    assert_eq!(samples.len(), 1, "{run}");
    let sample = samples[0];
    // Three seconds of 2 MB/s and the batches' own bytes.
    assert!(sample["bytes"].as_u64().expect("bytes") > 5_500_000, "{sample}");
    assert!(sample["checked"].as_str().expect("checked").contains("every byte"), "{sample}");
    assert!(figure(sample, "lag p50") > 0.0);
    assert!(figure(sample, "lag max") >= figure(sample, "lag p99"));
    assert!(figure(sample, "path one way p50") > 0.0);
    let histograms = sample["histograms"].as_array().expect("histograms");
    for name in ["lag", "path one way"] {
        assert!(histograms.iter().any(|histogram| histogram["name"] == name), "no {name}");
    }
    assert_empty(temporary.path());
}

#[test]
fn wan_measures_every_case_beside_raw_tcp() {
    let _alone = alone();
    if !paths_are_possible() {
        return;
    }
    let temporary = tempfile::tempdir().expect("a folder");
    let arguments = ["--rtt", "20ms", "--rate", "50M", "--loss", "0", "--partitions", "3"];
    let ran = bench(temporary.path(), &["wan", "--json", "--repeats", "1", "--seconds", "2"])
        .args(arguments)
        .output()
        .expect("a benchmark");
    let run = run_of(&ran);
    let cases = run["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 2, "two kinds of source: {run}");
    for case in cases {
        let rows = case["rows"].as_array().expect("rows");
        assert!(rows.len() >= 2, "{case}");
        assert_eq!((&rows[0]["subject"], &rows[0]["ours"]), (&"Longhaul".into(), &true.into()));
        assert_eq!(rows[1]["subject"], "raw TCP, 1 flow");
        assert!(rows[0]["samples"][0]["checked"].is_string(), "{case}");
    }
    for sample in samples(&run) {
        assert!(figure(sample, "goodput") > 0.0);
        assert!(figure(sample, "of the link") < 120.0);
        assert!(figure(sample, "flows") >= 1.0);
        assert!(sample["limit"]["evidence"].is_string(), "{sample}");
        assert_eq!(sample["processes"].as_array().expect("processes").len(), 3);
        assert!(!sample["series"][0]["points"].as_array().expect("points").is_empty());
    }
    assert_empty(temporary.path());
}

#[test]
fn an_interrupted_run_keeps_what_was_measured_and_cleans_up() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let out = tempfile::tempdir().expect("a folder");
    let arguments = ["--loopback", "--load", "1MB", "--partitions", "1", "--seconds", "1"];
    let mut running = bench(temporary.path(), &["lag", "--json", "--repeats", "1000", "--out"])
        .arg(out.path())
        .args(arguments)
        .args(["--warm-up", "0"])
        .spawn()
        .expect("a benchmark");
    let rest = interrupt_after_a_sample(&mut running);
    let ended = running.wait_with_output().expect("an end");
    rest.join().expect("the rest of the words");
    let run = run_of(&ended);
    assert_eq!((&run["interrupted"], ended.status.code()), (&true.into(), Some(1)));
    assert!(!samples(&run).is_empty(), "{run}");
    assert!(out.path().join("lag.json").is_file());
    assert_empty(temporary.path());
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_sentence() {
    for (arguments, needle) in [
        (&["lag", "--loopback", "--load", "10B"][..], "raise --load"),
        (&["lag", "--rate", "1", "--load", "1MB"], "a rate of 1 bits"),
        (&["wan", "--rtt", "1min"], "delay"),
        (&["wan", "--rtt", "1ms", "--rate", "40G", "--seconds", "3600"], "--seconds"),
        (&["wan", "--directory", "/nowhere"], "/nowhere"),
        (&["wan", "--congestion", "wishful"], "wishful"),
        (&["wan", "--loss", "0,100%"], "lower --loss"),
        (&["lag", "--loss", "100%"], "lower --loss"),
        (&["lag", "--load", "100GB"], "lower --load"),
        (&["lag", "--burst", "3"], "give --loss"),
        (&["wan-shell", "--burst", "3", "--", "true"], "give --loss"),
        (&["recover", "--load", "1000GB"], "lower --load"),
        (&["recover", "--size", "1000TiB"], "--directory"),
        (&["peers", "--size", "1000TiB"], "--directory"),
        (&["lag", "--loopback", "--load", "100GB", "--seconds", "80000"], "--directory"),
        (&["scale", "--out", "/proc/nowhere"], "/proc/nowhere"),
    ] {
        let ran = bench(Path::new("/tmp"), arguments).output().expect("it runs");
        let said = said(&ran);
        assert_eq!(ran.status.code(), Some(1), "{arguments:?}: {said}");
        let impossible = said.contains("run it as root") || said.contains("/dev/net/tun");
        assert!(said.contains(needle) || impossible, "{arguments:?}: {said}");
        assert!(ran.stdout.is_empty(), "{arguments:?}");
    }
}

/// What a shell says that runs the line with mounts of its own; nothing where there can be none. `$longhaul`
/// is the program, `$folder` a folder of its own.
fn with_own_mounts(line: &str) -> Option<(Option<i32>, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("{line} || exit $?")]);
    command.env("longhaul", env!("CARGO_BIN_EXE_longhaul")).env("folder", folder.path());
    let ran = command.output().ok()?;
    let said = said(&ran);
    if said.contains("unshare") || said.contains("mount") {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no mounts can be made here: {said}");
        return None;
    }
    Some((ran.status.code(), said))
}

#[test]
fn a_full_place_for_results_is_found_before_anything_is_measured() {
    let line =
        "mount -t tmpfs -o size=256k none $folder && $longhaul bench landing --out $folder/out";
    let Some((code, said)) = with_own_mounts(line) else { return };
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("make room there, or give another directory"), "{said}");
    assert!(!said.contains("run 1 of"), "{said}");
}

#[test]
fn something_else_in_the_place_of_the_tun_device_says_what_to_do() {
    for command in ["wan-shell -- true", "wan --seconds 1", "lag --seconds 1"] {
        let line = format!("mount --bind /dev/null /dev/net/tun && $longhaul bench {command}");
        let Some((code, said)) = with_own_mounts(&line) else { return };
        assert_eq!(code, Some(1), "{command}: {said}");
        assert!(said.contains("give a container the device itself"), "{command}: {said}");
    }
}

#[test]
fn what_a_killed_benchmark_leaves_is_swept_by_the_next() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let foreign = temporary.path().join("longhaul-node-of-somebody-else");
    fs::create_dir(&foreign).expect("a folder");
    let lag = ["lag", "--loopback", "--load", "1MB", "--seconds", "1", "--warm-up", "0"];
    let mut killed = bench(temporary.path(), &lag);
    let mut killed = killed.args(["--repeats", "1000"]).spawn().expect("a benchmark");
    drop(wait_for_words(&mut killed, "run 1 of"));
    let runs = || (!living_in(temporary.path()).is_empty()).then_some(());
    wait_until("a node of the second run", LIMIT, runs);
    killed.kill().expect("a kill");
    killed.wait().expect("an end");
    let ended = || living_in(temporary.path()).is_empty().then_some(());
    wait_until("the node to end", LIMIT, ended);
    let left = names_in(temporary.path());
    assert_eq!(left.len(), 2, "the node's folder is left: {left:?}");
    let next = bench(temporary.path(), &lag).args(["--repeats", "1", "--json"]).output();
    let _ = run_of(&next.expect("a benchmark"));
    assert_eq!(names_in(temporary.path()), ["longhaul-node-of-somebody-else"]);
}

#[test]
fn two_runs_do_not_write_to_the_same_place() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let out = tempfile::tempdir().expect("a folder");
    let lag = |repeats: &str| {
        let mut command = bench(temporary.path(), &["lag", "--loopback", "--load", "1MB"]);
        command.args(["--seconds", "1", "--warm-up", "0", "--repeats", repeats, "--out"]);
        command.arg(out.path()).stdout(Stdio::null());
        command
    };
    let mut first = lag("1000").spawn().expect("a benchmark");
    let lock = out.path().join(".lag.lock");
    wait_until("the first to begin", LIMIT, || lock.exists().then_some(()));
    let second = lag("1").output().expect("it runs");
    let said = said(&second);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another `longhaul bench lag`"), "{said}");
    first.kill().expect("a kill");
    first.wait().expect("an end");
    let third = lag("1").output().expect("a benchmark");
    assert!(out.path().join("lag.json").is_file(), "{third:?}");
    assert!(!lock.exists(), "a lock is left");
}

/// A benchmark with these arguments, run to its end; its run.
fn ran(temporary: &Path, arguments: &[&str]) -> Value {
    let ran = bench(temporary, arguments).args(["--json", "--repeats", "1"]).output();
    let run = run_of(&ran.expect("a benchmark"));
    assert_empty(temporary);
    run
}

#[test]
fn scale_counts_what_partitions_cost_and_checks_their_records() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let run = ran(temporary.path(), &["scale", "--partitions", "50,100", "--seconds", "1"]);
    let samples = samples(&run);
    assert_eq!(samples.len(), 2, "{run}");
    for sample in samples {
        assert!(sample["checked"].as_str().expect("checked").contains("every byte"), "{sample}");
        assert!(figure(sample, "memory") > 0.0);
        assert_timed(sample, "node's landing");
        let (descriptors, mappings) = (figure(sample, "descriptors"), figure(sample, "mappings"));
        assert!(descriptors > 10.0 && descriptors < 20_000.0, "{sample}");
        assert!(mappings > 10.0 && mappings < 65_530.0, "{sample}");
        assert!(figure(sample, "start mirrors") >= figure(sample, "start listens"), "{sample}");
    }
}

#[test]
fn serve_reads_everything_warm_and_cold() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let arguments = ["serve", "--size", "8MiB", "--partitions", "3", "--consumers", "1,3,4"];
    let run = ran(temporary.path(), &arguments);
    let samples = samples(&run);
    let checked = samples.iter().filter(|sample| sample["checked"].is_string()).count();
    assert_eq!(checked, 4, "one and three consumers, warm and cold: {run}");
    for sample in samples {
        assert!(sample["bytes"].as_u64().expect("bytes") > 8_000_000, "{sample}");
        assert!(figure(sample, "throughput") > 0.0);
        assert_timed(sample, "node's serve");
    }
    let left_out = run["leftOut"].to_string();
    assert!(left_out.contains("--with-kafka") && left_out.contains("4 consumers"), "{left_out}");
}

#[test]
fn recover_brings_a_killed_node_back() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let arguments = ["recover", "--size", "8MiB", "--partitions", "1,3", "--load", "1MB"];
    let run = ran(temporary.path(), &arguments);
    let samples = samples(&run);
    assert_eq!(samples.len(), 2, "{run}");
    for sample in samples {
        assert!(sample["checked"].as_str().expect("checked").contains("bytes"), "{sample}");
        let moments = ["serves", "serves all", "grows", "at the source's end"];
        let moments = moments.map(|name| figure(sample, name));
        assert!(moments[0] > 0.0 && moments.is_sorted(), "{sample}");
        assert_timed(sample, "node's landing");
    }
}

#[test]
fn peers_runs_without_kafka_and_says_what_it_left_out() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let run = ran(temporary.path(), &["peers", "--size", "8MiB", "--partitions", "2"]);
    let ours = &run["cases"][0]["rows"][0];
    assert_eq!(ours["subject"], "Longhaul");
    let sample = samples(&run)[0];
    assert!(sample["checked"].as_str().expect("checked").contains("bytes equal"), "{sample}");
    assert_timed(sample, "node's landing");
    let left_out = run["leftOut"].to_string();
    assert!(left_out.contains("--with-kafka") && left_out.contains("--with-mm2"), "{left_out}");
}

#[test]
fn an_interrupted_set_has_an_index_of_what_was_measured() {
    let _alone = alone();
    let temporary = tempfile::tempdir().expect("a folder");
    let out = tempfile::tempdir().expect("a folder");
    let mut running = bench(temporary.path(), &["all", "--short", "--repeats", "1000", "--out"])
        .arg(out.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("a benchmark");
    let rest = interrupt_after_a_sample(&mut running);
    assert_eq!(running.wait().expect("an end").code(), Some(1));
    rest.join().expect("the rest of the words");
    let index = fs::read_to_string(out.path().join("index.md")).expect("an index");
    assert!(index.contains("## landing") && index.contains("Interrupted"), "{index}");
    assert!(index.contains("Not run: peers"), "{index}");
    assert!(out.path().join("index.html").is_file() && out.path().join("landing.json").is_file());
    assert_empty(temporary.path());
}

#[test]
fn a_program_that_is_missing_is_named_with_what_to_install() {
    let temporary = tempfile::tempdir().expect("a folder");
    let cache = temporary.path().join("cache").display().to_string();
    for (arguments, path, needle) in [
        (&["peers", "--with-kafka"][..], "/nowhere", "java is not installed"),
        (&["serve", "--with-kafka"], "/nowhere", "java is not installed"),
        (&["recover", "--with-kafka"], "/nowhere", "java is not installed"),
        (&["peers", "--with-mm2"], "/nowhere", "leave --with-mm2 out"),
        (&["lag", "--loopback", "--load", "1MB", "--with-mm2"], "/nowhere", "leave --with-mm2 out"),
    ] {
        let ran = bench(temporary.path(), arguments)
            .args(["--cache", &cache])
            .env("PATH", path)
            .output()
            .expect("it runs");
        let said = said(&ran);
        assert_eq!(ran.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(needle), "{arguments:?}: {said}");
    }
    assert_empty(temporary.path());
}

#[test]
fn a_folder_that_is_not_there_is_a_sentence() {
    for bench_name in ["peers", "serve", "recover", "scale"] {
        let ran = bench(Path::new("/tmp"), &[bench_name, "--directory", "/nowhere"]).output();
        let ran = ran.expect("it runs");
        let said = said(&ran);
        let table = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert_eq!(ran.status.code(), Some(1), "{bench_name}: {said}");
        assert!(said.contains("/nowhere") || table.contains("/nowhere"), "{bench_name}: {said}");
    }
}
