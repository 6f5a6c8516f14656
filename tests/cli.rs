//! The command line as a user meets it: helps, exit codes, sentences. No Kafka, no node that runs.

#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

use std::path::Path;
use std::process::{Command, Output};

fn longhaul(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul")).args(arguments).output().expect("longhaul runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must fail with code 1 and one sentence on standard error that has `needles`.
fn refused(arguments: &[&str], needles: &[&str]) {
    let output = longhaul(arguments);
    let said = stderr(&output);
    assert_eq!(code(&output), 1, "{arguments:?}: {said}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("longhaul: "), "{arguments:?}: {said}");
    for needle in needles {
        assert!(said.contains(needle), "{arguments:?}: {needle:?} not in {said}");
    }
}

#[test]
fn every_command_has_a_help_that_names_its_options() {
    for (command, needles) in [
        (
            "",
            &["demo", "node", "mirror", "log", "bench", "report", "Exit codes", "LONGHAUL_LOG"][..],
        ),
        ("demo", &["--size", "--partitions", "--keep", "Exit code"]),
        ("node", &["--config", "--data-dir", "--listen", "--http-listen", "SIGTERM"]),
        ("report", &["--node", "--for", "--interval", "--html", "--hlog", "--json", "Example"]),
        ("mirror", &["create", "start", "list", "describe"]),
        ("mirror create", &["--mirror", "--mirror-config", "--bootstrap-server", "Example"]),
        ("mirror start", &["--topics", "--exclude", "pattern"]),
        ("mirror list", &["--json", "127.0.0.1:9092"]),
        ("mirror describe", &["--json", "--failed", "--command-config", "LAG"]),
        ("log", &["dump", "verify"]),
        ("log dump", &["--records", "--json"]),
        ("log verify", &["--records", "--json"]),
        ("bench wan", &["--rtt", "--rate", "--loss", "--source", "--congestion", "Exit code"]),
        ("bench lag", &["--load", "--loopback", "--warm-up", "Exit code"]),
        ("tune check", &["--rate", "--rtt", "--lanes", "--only", "--json", "Exit code"]),
        ("tune rollback", &["--state", "--force", "--forget"]),
        ("bench landing", &["--size", "--repeats", "--directory", "--json"]),
        (
            "bench wan-shell",
            &[
                "--rtt",
                "--rate",
                "--loss",
                "--with",
                "--json",
                "LONGHAUL_WAN_DESTINATION",
                "Exit code",
            ],
        ),
        ("bench wan-set", &["--down", "--control", "Examples"]),
    ] {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let help = longhaul(&arguments);
        assert_eq!(code(&help), 0, "{command}");
        for needle in needles {
            assert!(stdout(&help).contains(needle), "{needle:?} not in the help of {command:?}");
        }
    }
}

#[test]
fn a_command_line_that_is_not_understood_ends_with_code_2_and_the_usage() {
    for arguments in [
        &[][..],
        &["mirror"],
        &["nod"],
        &["node", "--port", "1"],
        &["mirror", "create", "--mirror", "m"],
        &["mirror", "start", "--mirror", "m"],
        &["demo", "--size", "3 apples"],
        &["demo", "--partitions", "0"],
        &["log", "verify"],
        &["report"],
        &["report", "results", "--node", "127.0.0.1:9190"],
        &["report", "--node", "127.0.0.1:9190", "--for", "3 fortnights"],
        &["tune", "check", "wan-1g", "--only", "rps,,"],
        &["bench", "lag", "--loopback", "--load", "1MB", "--jitter", "1ms"],
        &["report", "--node", "127.0.0.1"],
        &["report", "results", "--for", "2s"],
        &["report", "results", "--interval", "2s"],
    ] {
        let output = longhaul(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("Usage:") || said.contains("--help"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_report_of_nothing_says_so_and_ends_with_code_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("empty.hlog");
    std::fs::write(&file, "").expect("an empty log");
    let page = folder.path().join("page.html");
    let output = longhaul(&["report", path(&file), "--html", path(&page)]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("nothing was measured"), "{}", stderr(&output));
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("Nothing was measured."));
}

#[test]
fn a_configuration_with_a_fault_names_file_line_and_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("node.toml");
    for (text, needles) in [
        ("[serve]\nmemory_mx = 1\n", &["node.toml:2", "memory_max"][..]),
        ("[strage]\n", &["node.toml:1", "\"storage\""]),
        ("[storage]\nsegment_bytes_max = \"1GiB\"\n", &["node.toml:2", "a whole number"]),
        ("[storage]\nsegment_bytes_max = 10\n", &["storage.segment_bytes_max = 10", "1024"]),
        ("listen = \"nowhere\"\n", &["listen = nowhere"]),
        ("http.listen = \"nowhere\"\n", &["http.listen = nowhere"]),
    ] {
        std::fs::write(&file, text).expect("a configuration");
        refused(&["node", "--config", path(&file)], needles);
    }
    refused(&["node", "--config", "/does/not/exist.toml"], &["/does/not/exist.toml"]);
}

#[test]
fn a_node_that_is_not_there_is_named_with_what_to_look_at() {
    // A port that was free a moment ago.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("its address").to_string();
    drop(socket);
    let server = ["--bootstrap-server", address.as_str()];
    refused(&["mirror", "list", server[0], server[1]], &[&address, "is a node running there"]);
    refused(&["mirror", "describe", "--bootstrap-server", "localhost"], &["HOST:PORT"]);
    refused(&["report", "--node", &address], &[&address, "is a node running there"]);
    refused(
        &["mirror", "create", "--mirror", "m", "--mirror-config", "/does/not/exist"],
        &["cannot read /does/not/exist"],
    );
}

#[test]
fn a_port_for_http_that_was_asked_for_and_is_taken_stops_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let data = folder.path().join("data");
    refused(
        &["node", "--listen", "127.0.0.1:0", "--http-listen", &address, "--data-dir", path(&data)],
        &["cannot listen for HTTP on", &address, "http.listen"],
    );
    assert!(!data.exists(), "refused before anything is made");
}

#[test]
fn what_is_no_run_is_refused_by_report() {
    let folder = tempfile::tempdir().expect("a folder");
    refused(&["report", path(folder.path())], &["has no run in it", "--out"]);
    let file = folder.path().join("wan.json");
    std::fs::write(&file, "{}").expect("a file");
    refused(&["report", path(folder.path())], &["wan.json"]);
    refused(&["report", "/does/not/exist.hlog"], &["cannot read /does/not/exist.hlog"]);
}

#[test]
fn folders_without_logs_are_refused_by_log_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in ["dump", "verify"] {
        refused(&["log", command, path(folder.path())], &["partition folder"]);
        refused(&["log", command, "/does/not/exist"], &["cannot read /does/not/exist"]);
    }
}

#[test]
fn a_size_that_does_not_fit_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = path(folder.path());
    refused(
        &["bench", "landing", "--size", "1000TiB", "--directory", directory],
        &[directory, "--size"],
    );
    assert_eq!(std::fs::read_dir(directory).expect("the folder").count(), 0);
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of characters")
}
