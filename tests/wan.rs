//! `longhaul bench wan-shell` as a user meets it, and what is left when it is killed.
//!
//! Skipped, and it says so, where this user may not make network namespaces or there is no TUN device.

#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const ENOUGH: Duration = Duration::from_secs(60);

fn wan_shell(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(["bench", "wan-shell", "--rtt", "2ms"]).args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the command did, or `None` where there can be no path.
fn run(arguments: &[&str]) -> Option<Output> {
    let output = wan_shell(arguments).output().expect("longhaul runs");
    let said = text(&output.stderr);
    let impossible = said.contains("network namespaces of its own")
        || said.contains("/dev/net/tun cannot be used");
    if impossible {
        let _ = writeln!(std::io::stderr(), "SKIPPED, not tested: {said}");
        return None;
    }
    Some(output)
}

#[test]
fn a_command_runs_on_its_side_and_its_exit_code_is_ours() {
    let script = "echo $LONGHAUL_WAN_SOURCE $LONGHAUL_WAN_DESTINATION; exit 7";
    let Some(output) = run(&["--", "sh", "-c", script]) else { return };
    assert_eq!(text(&output.stdout), "198.18.0.1 198.18.0.2\n");
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("lateness"), "{}", text(&output.stderr));
    let signal = run(&["--", "sh", "-c", "kill -9 $$"]).expect("it ran before");
    assert_eq!(signal.status.code(), Some(128 + 9));
    let missing = run(&["--", "/no/such/program"]).expect("it ran before");
    assert_eq!(missing.status.code(), Some(127));
    let said = text(&missing.stderr);
    assert!(said.contains("cannot run /no/such/program: No such file") && said.contains("PATH"));
    let barred = run(&["--", "/etc"]).expect("it ran before");
    assert_eq!(barred.status.code(), Some(126));
    assert!(text(&barred.stderr).contains("cannot run /etc: Permission denied"));
}

#[test]
fn no_folder_is_left_where_no_program_is_found() {
    let temporary = tempfile::tempdir().expect("a folder");
    if run(&["--", "true"]).is_none() {
        return;
    }
    let mut command = wan_shell(&["--", "/bin/true"]);
    command.env("PATH", "/nowhere").env("TMPDIR", temporary.path());
    assert!(command.output().expect("longhaul runs").status.success());
    assert_eq!(fs::read_dir(temporary.path()).expect("the folder").count(), 0);
}

#[test]
fn a_report_in_json_has_both_directions_and_a_verdict() {
    let Some(output) =
        run(&["--json", "--loss", "0.5%", "--burst", "3", "--rate", "1G", "--", "true"])
    else {
        return;
    };
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["settings"]["rate_bits"], 1_000_000_000_u64);
    assert_eq!(report["settings"]["loss"]["burst"]["mean_length"], 3.0);
    for direction in ["source_to_destination", "destination_to_source"] {
        for count in ["packets", "bytes", "lost", "queue_dropped", "down_dropped", "reordered"] {
            assert!(report[direction][count].is_u64(), "{direction} {count}: {report}");
        }
    }
    assert!(report["validity"] == "valid" || report["validity"]["invalid"].is_string(), "{report}");
}

#[test]
fn a_path_is_changed_from_inside_and_refuses_what_it_cannot_be() {
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let script = format!(
        "{longhaul} bench wan-set --loss 2% --rtt 30ms; {longhaul} bench wan-set; \
         {longhaul} bench wan-set --mtu 5; {longhaul} bench wan-set --rate 3apples; true"
    );
    let Some(output) = run(&["--", "sh", "-c", &script]) else { return };
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert!(out.starts_with("path      round trip 30ms, no rate limit, loss 2 %"), "{out}");
    assert!(out.contains("lateness"), "{out}");
    assert!(said.contains("an MTU of 5 is outside") && said.contains("3apples"), "{said}");
}

#[test]
fn a_server_on_the_other_side_is_waited_for() {
    let server = "import socket; s = socket.create_server((\"0.0.0.0\", 7000)); s.accept()[0].sendall(b\"from afar\")";
    let client = "import socket, os; print(socket.create_connection((os.environ[\"LONGHAUL_WAN_DESTINATION\"], 7000)).recv(99))";
    if Command::new("python3").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED, not tested: there is no python3");
        return;
    }
    let with = format!("exec python3 -c '{server}'");
    let Some(output) =
        run(&["--with", &with, "--with-port", "7000", "--", "python3", "-c", client])
    else {
        return;
    };
    assert_eq!(text(&output.stdout), "b'from afar'\n", "{}", text(&output.stderr));
    let ended =
        run(&["--with", "exit 3", "--with-port", "7000", "--", "true"]).expect("it ran before");
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        text(&ended.stderr).contains("before it listened on port 7000"),
        "{}",
        text(&ended.stderr)
    );
}

#[test]
fn a_signal_to_us_ends_the_command_and_the_report_is_kept() {
    if run(&["--", "true"]).is_none() {
        return;
    }
    for (signal, number) in [("INT", 2), ("TERM", 15)] {
        let mut command = wan_shell(&["--", "sh", "-c", "echo $PPID; exec sleep 1000"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("longhaul runs");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        assert_eq!(next_line(&mut out), child.id().to_string());
        let sent = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success());
        wait_until("the command to end", || child.try_wait().expect("a child").is_some());
        let output = child.wait_with_output().expect("it ran");
        assert_eq!(output.status.code(), Some(128 + number), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("lateness"), "{}", text(&output.stderr));
    }
}

/// Processes that are in the namespace, or hold it open.
fn users_of(namespace: &str) -> Vec<PathBuf> {
    let links = |process: &PathBuf| {
        let open = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        open.chain([process.join("ns/net")]).collect::<Vec<_>>()
    };
    let is_it = |link: &PathBuf| {
        fs::read_link(link).is_ok_and(|target| target.to_string_lossy() == namespace)
    };
    let processes = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    processes.filter(|process| links(process).iter().any(is_it)).collect()
}

fn next_line(child: &mut BufReader<std::process::ChildStdout>) -> String {
    let mut line = String::new();
    child.read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let give_up = Instant::now() + ENOUGH;
    while !done() {
        assert!(Instant::now() < give_up, "waited {ENOUGH:?} for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn kill_9_leaves_no_process_no_namespace_and_no_file() {
    if run(&["--", "true"]).is_none() {
        return;
    }
    // On both sides: a shell that becomes a sleep, and a sleep that has left it. Both print to the same pipe.
    let orphan = "(sleep 1000 &); readlink /proc/self/ns/net";
    let with = format!("exec 1>&3; {orphan}; exec sleep 1000");
    let command = format!("{orphan}; echo $LONGHAUL_WAN_CONTROL; exec sleep 1000");
    let redirected = "exec 3>&1; exec \"$@\"";
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        redirected,
        "sh",
        env!("CARGO_BIN_EXE_longhaul"),
        "bench",
        "wan-shell",
        "--with",
        &with,
    ]);
    let mut child: Child =
        shell.args(["--", "sh", "-c", &command]).stdout(Stdio::piped()).spawn().expect("sh runs");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let lines = [next_line(&mut out), next_line(&mut out), next_line(&mut out)];
    let namespaces: Vec<&String> = lines.iter().filter(|line| line.starts_with("net:[")).collect();
    let control = lines.iter().find(|line| line.starts_with('/')).expect("a path");
    assert!(namespaces.len() == 2 && namespaces[0] != namespaces[1], "{lines:?}");
    let folder = PathBuf::from(control).parent().expect("a folder").to_owned();
    assert!(folder.is_dir());
    for namespace in &namespaces {
        assert!(users_of(namespace).len() >= 3, "two sleeps and longhaul itself");
    }
    child.kill().expect("it runs");
    child.wait().expect("it ran");
    for namespace in namespaces {
        wait_until("the processes and the namespace to go", || users_of(namespace).is_empty());
    }
    wait_until("the folder to go", || !folder.exists());
}
