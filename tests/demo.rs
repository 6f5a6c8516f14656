//! `longhaul demo`, the first thing that anybody runs.

#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(120);

/// A demo with a temporary folder of its own.
fn demo(temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("demo").args(arguments).env("TMPDIR", temporary);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder");
    entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The process of the demo's node, by the data directory on its command line.
fn node_of(temporary: &Path) -> Option<Pid> {
    let wanted = temporary.to_str().expect("a path of characters");
    fs::read_dir("/proc").expect("/proc").flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains(wanted) && line.contains("--data-dir")).then(|| Pid::from_raw(pid))?
    })
}

fn interrupt(demo: &Child) {
    let pid = Pid::from_raw(demo.id() as i32).expect("a process");
    kill_process(pid, Signal::INT).expect("a signal");
}

#[test]
fn every_record_is_checked_and_nothing_is_left_behind() {
    let temporary = tempfile::tempdir().expect("a folder");
    let ran =
        demo(temporary.path(), &["--size", "32MiB", "--partitions", "3"]).output().expect("a demo");
    let said = said(&ran);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    let summary =
        String::from_utf8_lossy(&ran.stdout).lines().last().unwrap_or_default().to_owned();
    // 32 MiB of 1 KiB records, in whole batches of 64 for each of 3 partitions.
    let records: u64 = summary
        .strip_prefix("every record equals the source's: ")
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{said}"));
    assert!((30_000..40_000).contains(&records) && records.is_multiple_of(3 * 64), "{summary}");
    assert!(said.contains("3/3 partitions complete"), "{said}");
    assert_eq!(names(temporary.path()), Vec::<String>::new());
    assert_eq!(node_of(temporary.path()), None);
}

#[test]
fn kept_running_it_ends_with_one_interrupt_and_takes_everything_along() {
    let temporary = tempfile::tempdir().expect("a folder");
    let running = demo(temporary.path(), &["--size", "4MiB", "--partitions", "1", "--keep"])
        .spawn()
        .expect("a demo");
    wait_until("the node", || node_of(temporary.path()).is_some());
    interrupt(&running);
    let ended = running.wait_with_output().expect("an end");
    assert_eq!(ended.status.code(), Some(0), "{}", said(&ended));
    assert_eq!(names(temporary.path()), Vec::<String>::new());
    assert_eq!(node_of(temporary.path()), None);
}

#[test]
fn a_demo_that_is_killed_takes_its_node_along() {
    let temporary = tempfile::tempdir().expect("a folder");
    let mut running = demo(temporary.path(), &["--size", "1GiB"]).spawn().expect("a demo");
    wait_until("the node", || node_of(temporary.path()).is_some());
    running.kill().expect("a kill");
    running.wait().expect("an end");
    wait_until("the node's end", || node_of(temporary.path()).is_none());
}
