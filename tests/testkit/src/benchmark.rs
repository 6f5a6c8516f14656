//! `longhaul bench` as tests run it: alone, in a temporary folder, with a look at what it leaves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Something that takes seconds has not happened after this.
pub const LIMIT: Duration = Duration::from_secs(180);

/// One benchmark at a time: two would only measure each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A benchmark of the program `longhaul`, with a folder for its temporary files.
#[must_use]
pub fn command(longhaul: &str, temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(longhaul);
    command.arg("bench").args(arguments).env("TMPDIR", temporary);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What it wrote to standard error.
#[must_use]
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The run that it printed as JSON. Exit code 1 is for a run with an invalid sample too.
///
/// # Panics
/// When it printed none.
#[must_use]
pub fn run_of(output: &Output) -> Value {
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no run: {}", said(output)))
}

/// Waits until it says so on standard error; what it says then is for the caller to read.
///
/// # Panics
/// When it ends before.
pub fn wait_for_words(running: &mut Child, words: &str) -> BufReader<ChildStderr> {
    let mut stderr = BufReader::new(running.stderr.take().expect("a pipe"));
    let (mut all, deadline) = (String::new(), Instant::now() + LIMIT);
    while !all.contains(words) {
        assert!(Instant::now() < deadline, "no {words:?} in time: {all}");
        assert!(stderr.read_line(&mut all).expect("a line") > 0, "no {words:?}: {all}");
    }
    stderr
}

/// Processes with the folder's name on their command lines.
///
/// # Panics
/// When there is no `/proc`.
#[must_use]
pub fn living_in(folder: &Path) -> Vec<String> {
    let wanted = folder.to_str().expect("a path of characters");
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    processes
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(wanted))
        .collect()
}

/// Names in the folder, in order.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Nothing was left there.
///
/// # Panics
/// When something was.
pub fn assert_empty(folder: &Path) {
    assert_eq!(names_in(folder), [] as [String; 0], "left behind");
}
