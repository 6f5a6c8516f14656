//! `longhaul tune` on this kernel: as root in a network namespace of its own, as an ordinary user, killed
//! half way. Changes nothing of the host: only knobs that a namespace has are applied.
//!
//! What needs root is skipped without it, and says so.

#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

const LIMIT: Duration = Duration::from_secs(60);
/// Knobs that a network namespace has for itself.
const KNOBS: &str = "tcp_rmem,tcp_wmem,tcp_slow_start_after_idle,tcp_mtu_probing,tcp_no_metrics_save,\
                     congctl_route";
/// In a documentation network: nothing is sent there.
const DESTINATION: &str = "198.51.100.7";
const NOBODY: u32 = 65_534;

/// A network namespace that is gone with this value.
struct Namespace(String);

impl Namespace {
    /// A new one with a route; nothing, after saying so, where that is not possible.
    fn new(name: &str) -> Option<Self> {
        let name = format!("longhaul-tune-{name}-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        if !made.as_ref().is_ok_and(|output| output.status.success()) {
            // Past the test harness, which keeps what a passing test prints.
            let _ =
                writeln!(io::stderr(), "SKIPPED: no network namespace can be made here: {made:?}");
            return None;
        }
        let namespace = Self(name);
        for command in ["ip link set lo up", "ip route add 198.51.100.0/24 dev lo"] {
            assert!(namespace.run(&["sh", "-c", command]).status.success(), "{command}");
        }
        Some(namespace)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).args(words).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("ip netns exec")
    }

    fn tune(&self, words: &[&str]) -> Output {
        self.run(&[&[env!("CARGO_BIN_EXE_longhaul"), "tune"], words].concat())
    }

    /// Every setting of the namespace, and its routes.
    fn settings(&self) -> String {
        let script =
            "grep -s '' /proc/sys/net/ipv4/* /proc/sys/net/core/*; ip -d route show table all";
        text(&self.run(&["sh", "-c", script]).stdout)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn all(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

fn here(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("tune").args(words).stdin(Stdio::null()).output().expect("longhaul runs")
}

fn target(verb: &'static str) -> Vec<&'static str> {
    vec![verb, "wan-10g", "--rtt", "80ms", "--only", KNOBS, "--route", DESTINATION]
}

/// The same with a state file.
fn applying(state: &Path) -> Vec<&str> {
    let mut words = target("apply");
    words.extend(["--state", path(state)]);
    words
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of characters")
}

#[test]
fn in_a_namespace_a_profile_is_checked_applied_found_well_and_taken_back() {
    let Some(namespace) = Namespace::new("whole") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("tune.state");
    let before = namespace.settings();

    let check = namespace.tune(&target("check"));
    assert_eq!(code(&check), 1, "{}", all(&check));
    let apply = namespace.tune(&applying(&state));
    assert_eq!(code(&apply), 0, "{}", all(&apply));
    assert!(state.exists());
    let check = namespace.tune(&target("check"));
    assert_eq!(code(&check), 0, "{}", all(&check));
    assert_ne!(namespace.settings(), before);
    let diff = namespace.tune(&target("diff"));
    assert!(text(&diff.stdout).contains("would change nothing"), "{}", all(&diff));

    let again = namespace.tune(&[
        "apply",
        "wan-100g",
        "--lanes",
        "1",
        "--only",
        "tcp_rmem",
        "--state",
        path(&state),
    ]);
    assert_eq!(code(&again), 1, "{}", all(&again));
    assert!(all(&again).contains("applied already"), "{}", all(&again));
    let elsewhere = here(&["rollback", "--state", path(&state)]);
    assert_eq!(code(&elsewhere), 1);
    assert!(all(&elsewhere).contains("another network namespace"), "{}", all(&elsewhere));

    let rollback = namespace.tune(&["rollback", "--state", path(&state)]);
    assert_eq!(code(&rollback), 0, "{}", all(&rollback));
    assert_eq!(namespace.settings(), before);
    assert!(!state.exists());
}

#[test]
fn what_somebody_else_set_in_between_is_told_and_left() {
    let Some(namespace) = Namespace::new("other") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("tune.state");
    let before = namespace.settings();
    assert_eq!(code(&namespace.tune(&applying(&state))), 0);
    namespace.run(&["sh", "-c", "echo 2 > /proc/sys/net/ipv4/tcp_mtu_probing"]);
    let rollback = namespace.tune(&["rollback", "--state", path(&state)]);
    assert_eq!(code(&rollback), 1, "{}", all(&rollback));
    let told = "tcp_mtu_probing: left alone, somebody changed it from 1 to 2 (before: 0)";
    assert!(all(&rollback).contains(told), "{}", all(&rollback));
    assert!(namespace.settings().contains("tcp_mtu_probing:2"));
    let rollback = namespace.tune(&["rollback", "--force", "--state", path(&state)]);
    assert_eq!(code(&rollback), 0, "{}", all(&rollback));
    assert_eq!(namespace.settings(), before);
}

/// `apply` tells of a change once it is made. Its output goes into a pipe that is full, so it stands still
/// after the first change, where it is killed.
#[test]
fn killed_half_way_everything_comes_back() {
    let Some(namespace) = Namespace::new("killed") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("tune.state");
    let before = namespace.settings();

    let (reader, mut writer) = io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("the pipe's flags");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("a pipe that does not wait");
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    fcntl_setfl(&writer, flags).expect("a pipe that waits");
    let words = [&[env!("CARGO_BIN_EXE_longhaul"), "tune"], &applying(&state)[..]].concat();
    let mut apply = namespace.command(&words).stdout(writer).spawn().expect("apply runs");

    let deadline = Instant::now() + LIMIT;
    while !fs::read_to_string(&state).is_ok_and(|text| text.contains("\"did\"")) {
        assert!(Instant::now() < deadline, "the first change was not made in time");
        std::thread::sleep(Duration::from_millis(10));
    }
    apply.kill().expect("a signal");
    apply.wait().expect("its end");
    drop(reader);
    let half = namespace.settings();
    let changed = |setting: &str| {
        let line = |text: &str| text.lines().find(|line| line.contains(setting)).map(str::to_owned);
        line(&half).expect("the setting") != line(&before).expect("the setting")
    };
    assert!(changed("ipv4/tcp_rmem:"), "the first change was made");
    assert!(!changed("ipv4/tcp_no_metrics_save:"), "the last change was not made");

    let refused = namespace.tune(&applying(&state));
    assert_eq!(code(&refused), 1, "{}", all(&refused));
    assert!(all(&refused).contains("rollback"), "{}", all(&refused));
    let rollback = namespace.tune(&["rollback", "--state", path(&state)]);
    assert_eq!(code(&rollback), 0, "{}", all(&rollback));
    assert_eq!(namespace.settings(), before);
}

#[test]
fn what_render_writes_makes_a_namespace_well() {
    for (format, shell) in [("shell", "sh"), ("sysctl", "sysctl -q -p")] {
        let Some(namespace) = Namespace::new(format) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        let mut words = target("render");
        words.extend(["--format", format]);
        let render = namespace.tune(&words);
        assert_eq!(code(&render), 0, "{}", all(&render));
        fs::write(&file, &render.stdout).expect("the file");
        let run = namespace.run(&["sh", "-c", &format!("{shell} {}", path(&file))]);
        assert!(run.status.success(), "{}{}", all(&run), text(&render.stdout));
        let mut check = target("check");
        // A route is no sysctl.
        let sysctls = KNOBS.replace(",congctl_route", "");
        if format == "sysctl" {
            check[5] = &sysctls;
        }
        let check = namespace.tune(&check);
        assert_eq!(code(&check), 0, "{format}: {}", all(&check));
    }
}

/// The program where anybody may run it, and a folder of theirs.
fn for_anybody() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("an open folder");
    let program = folder.path().join("longhaul");
    fs::copy(env!("CARGO_BIN_EXE_longhaul"), &program).expect("a copy");
    (folder, program)
}

#[test]
fn an_ordinary_user_may_look_and_is_told_what_to_do_to_change() {
    let (folder, program) = for_anybody();
    let state = folder.path().join("tune.state");
    let run = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("tune").args(words).current_dir(folder.path()).stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().expect("longhaul runs")
    };
    for words in [
        &["list"][..],
        &["list", "latency"],
        &["diff", "wan-10g"],
        &["render", "wan-10g", "--format", "sysctl"],
        &["render", "wan-10g", "--format", "source"],
    ] {
        let output = run(words);
        assert_eq!(code(&output), 0, "{words:?}: {}", all(&output));
    }
    let check = run(&["check", "wan-10g", "--json"]);
    assert!([0, 1].contains(&code(&check)), "{}", all(&check));
    let report: serde_json::Value = serde_json::from_slice(&check.stdout).expect("JSON");
    assert_eq!(report["well"], code(&check) == 0);
    assert!(report["findings"].as_array().is_some_and(|findings| findings.len() > 20));

    // A value that no host has, so that there is something to change.
    let apply =
        run(&["apply", "wan-100g", "--rtt", "10s", "--lanes", "1", "--state", path(&state)]);
    assert_eq!(code(&apply), 1, "{}", all(&apply));
    for needle in ["needs root", "sudo", "render --format shell"] {
        assert!(text(&apply.stderr).contains(needle), "{}", all(&apply));
    }
    assert!(!state.exists());
    fs::write(&state, "").expect("a state file");
    let rollback = run(&["rollback", "--state", path(&state)]);
    assert_eq!(code(&rollback), 1, "{}", all(&rollback));
    assert!(text(&rollback.stderr).contains("needs root"), "{}", all(&rollback));
}

#[test]
fn bad_input_is_answered_with_a_sentence_that_says_what_to_do() {
    for (words, expected, needles) in [
        (&["check", "wan10g"][..], 2, &["did you mean wan-10g", "latency"][..]),
        (&["check", "wan-10g", "--rate", "0"], 2, &["rate"]),
        (&["check", "wan-10g", "--rate", "2T"], 2, &["between 1M and 1T"]),
        (&["check", "wan-10g", "--rate", "100k"], 2, &["between 1M and 1T"]),
        (&["check", "wan-10g", "--rate", "10GB/s"], 2, &["bits"]),
        (&["check", "wan-10g", "--rtt", "0"], 2, &["what `ping` shows"]),
        (&["check", "wan-10g", "--rtt", "100"], 2, &["unit"]),
        (&["check", "wan-10g", "--cores", "0-"], 2, &["0-3,8"]),
        (&["check", "wan-10g", "--lanes", "0"], 2, &["from 1 to 4096"]),
        (&["check", "wan-10g", "--interface", "nosuch9"], 2, &["nosuch9", "there are", "lo"]),
        (&["check", "wan-10g", "--data-dir", "/no/such"], 2, &["/no/such", "data directory"]),
        (&["check", "wan-10g", "--route", "west"], 2, &["192.0.2.7"]),
        (&["check", "wan-10g", "--only", "tcp_rmen"], 2, &["did you mean tcp_rmem"]),
        (&["render", "wan-10g", "--format", "yaml"], 1, &["sysctl, systemd, udev, shell"]),
    ] {
        let output = here(words);
        assert_eq!(code(&output), expected, "{words:?}: {}", all(&output));
        for needle in needles {
            assert!(text(&output.stderr).contains(needle), "{words:?}: {}", all(&output));
        }
    }
}

#[test]
fn what_is_shown_fits_into_a_hundred_columns() {
    for words in [
        &["list"][..],
        &["list", "bench"],
        &["check", "bench", "--verbose"],
        &["check", "latency", "--route", DESTINATION],
    ] {
        let output = here(words);
        for line in text(&output.stdout).lines() {
            assert!(line.chars().count() <= 100, "{words:?}: {line}");
        }
    }
}

#[test]
fn without_anything_applied_rollback_has_nothing_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = here(&["rollback", "--state", path(&folder.path().join("none"))]);
    assert_eq!(code(&output), 0, "{}", all(&output));
    assert!(text(&output.stdout).contains("nothing is applied"), "{}", all(&output));
}
