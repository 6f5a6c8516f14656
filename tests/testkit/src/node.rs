//! A Longhaul node as a user runs it: the real binary, its own data directory, its own log.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde::Deserialize;

use crate::process::{Finished, free_port, run, spawn, wait_until};

/// How a node is made.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// Lines of the TOML configuration.
    pub config: String,
    /// Data directories; one in the node's own folder when there is none.
    pub data: Vec<PathBuf>,
    /// Program and arguments that start the node, e.g. under a limit.
    pub under: Vec<String>,
}

/// One row of `longhaul mirror describe --json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Mirror name.
    pub mirror: String,
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// End offset at the source, when known.
    pub source_offset: Option<i64>,
    /// End offset here.
    pub destination_offset: i64,
    /// Difference, when known.
    pub lag: Option<i64>,
    /// State word.
    pub state: String,
    /// Attempts since the last success.
    pub retry_attempt: i16,
    /// Cause of a fault.
    pub error_message: Option<String>,
}

/// A node; killed when dropped.
pub struct Node {
    binary: PathBuf,
    folder: tempfile::TempDir,
    options: NodeOptions,
    port: u16,
    process: Option<Child>,
    runs: u32,
}

impl Node {
    /// Starts `binary` (a test passes `env!("CARGO_BIN_EXE_longhaul")`) on an empty data directory.
    #[must_use]
    pub fn start(binary: &str, options: &NodeOptions) -> Self {
        let folder =
            tempfile::Builder::new().prefix("longhaul-").tempdir().expect("a temporary folder");
        fs::write(folder.path().join("node.toml"), &options.config)
            .expect("the node's configuration");
        let mut node = Self {
            binary: PathBuf::from(binary),
            folder,
            options: options.clone(),
            port: free_port(),
            process: None,
            runs: 0,
        };
        node.restart();
        node
    }

    /// `HOST:PORT` for clients.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `HOST:PORT` of the histograms over HTTP, as the node's log tells it.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn http_address(&self) -> String {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("histograms over HTTP"));
        let address = line.and_then(|line| line.split_once("address=")).map(|(_, rest)| rest);
        address.unwrap_or_else(|| panic!("no HTTP: {log}")).trim().to_owned()
    }

    /// The first data directory: partition folders lie directly in it.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.all_data().swap_remove(0)
    }

    fn all_data(&self) -> Vec<PathBuf> {
        match self.options.data.as_slice() {
            [] => vec![self.folder.path().join("data")],
            several => several.to_vec(),
        }
    }

    /// The node's folder, for files of the test's own.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The running process's id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, Child::id)
    }

    /// Starts a node that is not running and waits until it listens.
    pub fn restart(&mut self) {
        self.launch();
        let log = self.log_file();
        // Its own word for it: the listening socket of a killed run lives a moment longer.
        wait_until(
            &format!("the node to listen ({})", log.display()),
            Duration::from_secs(60),
            || {
                let process = self.process.as_mut()?;
                let text = fs::read_to_string(&log).unwrap_or_default();
                if let Ok(Some(status)) = process.try_wait() {
                    panic!("the node ended with {status}: {text}");
                }
                text.contains("listening").then_some(())
            },
        );
    }

    /// Starts a node that is not running, without waiting.
    pub fn launch(&mut self) {
        self.runs += 1;
        let log = fs::File::create(self.log_file()).expect("the node's log file");
        let errors = log.try_clone().expect("a second handle");
        let (config, data) = (self.folder.path().join("node.toml"), self.all_data());
        let listen = self.address();
        let binary = self.binary.display().to_string();
        let mut start = self.options.under.clone();
        start.push(binary);
        self.process = Some(spawn(&start[0], |command| {
            command
                .args(&start[1..])
                .args(["node", "--listen", &listen, "--http-listen", "127.0.0.1:0", "--config"])
                .arg(&config)
                .args(data.iter().flat_map(|one| [Path::new("--data-dir"), one]))
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(errors);
        }));
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// SIGTERM; the node must end by itself with exit code 0.
    ///
    /// # Panics
    /// When it does not.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let id = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(id.expect("a process id"), rustix::process::Signal::TERM)
            .expect("SIGTERM");
        let status = wait_until("the node's clean stop", Duration::from_secs(120), || {
            process.try_wait().ok().flatten()
        });
        assert_eq!(status.code(), Some(0), "clean stop: {}", self.log());
    }

    /// The log of the current (or last) run.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join(format!("node-{}.log", self.runs))
    }

    /// Panics on WARN and ERROR lines of any run that contain none of `expected`.
    pub fn assert_quiet_log(&self, expected: &[&str]) {
        for run in 1..=self.runs {
            let text = fs::read_to_string(self.folder.path().join(format!("node-{run}.log")))
                .unwrap_or_default();
            for line in
                text.lines().filter(|line| line.contains(" WARN ") || line.contains("ERROR "))
            {
                assert!(
                    expected.iter().any(|part| line.contains(part)),
                    "unexpected in the node's log: {line}"
                );
            }
        }
    }

    /// Runs a `longhaul` command; no bootstrap is added.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Finished {
        run(&self.binary.display().to_string(), arguments, Duration::from_secs(90))
    }

    fn mirror_command(&self, verb: &str, arguments: &[&str]) -> Finished {
        let address = self.address();
        let mut all = vec!["mirror", verb, "--bootstrap-server", &address];
        all.extend_from_slice(arguments);
        self.command(&all)
    }

    /// `longhaul mirror create`, with more properties than the bootstrap.
    ///
    /// # Panics
    /// When the command fails.
    pub fn create_mirror(&self, mirror: &str, bootstrap: &str, properties: &[(&str, &str)]) {
        let finished = self.try_create_mirror(mirror, bootstrap, properties);
        assert_eq!(
            finished.code,
            0,
            "mirror create: {}{}\n{}",
            finished.stdout,
            finished.stderr,
            self.log()
        );
    }

    /// The same, whatever comes of it.
    #[must_use]
    pub fn try_create_mirror(
        &self,
        mirror: &str,
        bootstrap: &str,
        properties: &[(&str, &str)],
    ) -> Finished {
        let mut text = format!("bootstrap.servers={bootstrap}\n");
        for (name, value) in properties {
            let _ = writeln!(text, "{name}={value}");
        }
        let file = self.folder.path().join(format!("{mirror}.properties"));
        fs::write(&file, text).expect("the mirror's properties");
        self.mirror_command(
            "create",
            &["--mirror", mirror, "--mirror-config", &file.display().to_string()],
        )
    }

    /// `longhaul mirror start`.
    ///
    /// # Panics
    /// When the command fails.
    pub fn start_topics(&self, mirror: &str, topics: &str) {
        let finished = self.mirror_command("start", &["--mirror", mirror, "--topics", topics]);
        assert_eq!(
            finished.code,
            0,
            "mirror start: {}{}\n{}",
            finished.stdout,
            finished.stderr,
            self.log()
        );
    }

    /// `longhaul mirror VERB` with any arguments.
    #[must_use]
    pub fn mirror(&self, verb: &str, arguments: &[&str]) -> Finished {
        self.mirror_command(verb, arguments)
    }

    /// `longhaul mirror describe --json`.
    ///
    /// # Panics
    /// When the command fails or prints something else.
    #[must_use]
    pub fn describe(&self) -> Vec<Row> {
        let finished = self.mirror_command("describe", &["--json"]);
        let Finished { code, stdout, stderr } = &finished;
        assert_eq!(*code, 0, "mirror describe: {stdout}{stderr}\n{}", self.log());
        serde_json::from_str(&finished.stdout).unwrap_or_else(|error| {
            panic!("describe --json printed {:?}: {error}", finished.stdout)
        })
    }

    /// The row of one partition, if it is there.
    #[must_use]
    pub fn row(&self, topic: &str, partition: i32) -> Option<Row> {
        self.describe().into_iter().find(|row| row.topic == topic && row.partition == partition)
    }

    /// Waits until a partition has reached `offset`.
    pub fn wait_for_offset(&self, topic: &str, partition: i32, offset: i64) {
        wait_until(
            &format!("{topic}-{partition} to reach {offset}: {:?}", self.row(topic, partition)),
            Duration::from_secs(60),
            || self.row(topic, partition).filter(|row| row.destination_offset >= offset),
        );
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let tail: Vec<_> = self.log().lines().rev().take(40).map(str::to_owned).collect();
            for line in tail.iter().rev() {
                #[expect(
                    clippy::print_stderr,
                    reason = "a failing test shows the node's last words"
                )]
                {
                    eprintln!("node: {line}");
                }
            }
        }
    }
}
