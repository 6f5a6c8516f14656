//! A node under test: a child process with a data directory of its own, driven by the commands a user
//! types. It ends with this process, however that ends.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::folder::Folder;
use crate::report::node::AGED_NANOS_MIN;
use crate::run::{NamedHistogram, Run, Sample, Session};

/// The node has this long to listen, and later to stop.
const START_STOP_MAX: Duration = Duration::from_secs(60);
/// Room beyond the records, for indexes and the node's own files.
const SPARE_BYTES: u64 = 256 << 20;
/// Lines of the node's log in an error.
const LOG_LINES: usize = 15;

/// Why a node cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The node, or a command to it, failed: its own words.
    #[error("{0}")]
    Node(String),
    /// The benchmark's own files or processes.
    #[error("cannot {0}: {1}")]
    Io(String, std::io::Error),
}

/// Makes the command for a program: plain, or inside a network namespace.
pub type MakeCommand = Arc<dyn Fn(&Path) -> Command + Send + Sync>;

/// How a node is started.
#[derive(Clone)]
pub struct NodeSetup {
    /// The `longhaul` program.
    pub program: PathBuf,
    /// Where it listens, on a free port.
    pub host: IpAddr,
    /// Its configuration file, in TOML; empty for the defaults.
    pub config: String,
    /// Where its folder is made, and removed at the end.
    pub directory: PathBuf,
    /// Record bytes there must be room for.
    pub bytes: u64,
    /// How the node and its commands are started.
    pub make_command: MakeCommand,
}

impl std::fmt::Debug for NodeSetup {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("NodeSetup").field("config", &self.config).finish_non_exhaustive()
    }
}

impl NodeSetup {
    /// On loopback and defaults, in the directory for temporary files.
    #[must_use]
    pub fn new(program: &Path, bytes: u64) -> Self {
        Self {
            program: program.to_owned(),
            host: Ipv4Addr::LOCALHOST.into(),
            config: String::new(),
            directory: std::env::temp_dir(),
            bytes,
            make_command: Arc::new(|program| Command::new(program)),
        }
    }
}

/// One partition's row of `longhaul mirror describe --json`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionRow {
    /// Topic name.
    pub topic: String,
    /// Partition index.
    pub partition: i32,
    /// End offset at the source, when known.
    pub source_offset: Option<i64>,
    /// End offset here.
    pub destination_offset: i64,
    /// State word.
    pub state: String,
    /// Cause of a fault.
    pub error_message: Option<String>,
}

/// A node with a temporary folder; killed and removed when dropped.
#[derive(Debug)]
pub struct NodeProcess {
    setup: NodeSetup,
    folder: Folder,
    address: SocketAddr,
    process: Child,
    runs: u32,
}

impl NodeProcess {
    /// Starts the node once there is room, and waits until it listens.
    ///
    /// # Errors
    /// When there is no room, or the node does not come up.
    pub fn start(setup: NodeSetup) -> Result<Self, NodeError> {
        check_room(&setup.directory, setup.bytes)?;
        let folder = Folder::make(&setup.directory, "node").map_err(|error| {
            let place = setup.directory.display();
            NodeError::Io(format!("make a folder for the node in {place}"), error)
        })?;
        let config = folder.path().join("node.toml");
        fs::write(&config, &setup.config)
            .map_err(|error| NodeError::Io("write the node's configuration".to_owned(), error))?;
        let address = SocketAddr::new(setup.host, free_port()?);
        let process = launch(&setup, folder.path(), address, 1)?;
        let mut node = Self { setup, folder, address, process, runs: 1 };
        node.wait_listening()?;
        Ok(node)
    }

    /// Starts it again on the same folder after [`Self::kill`] or [`Self::stop`]; waits until it listens.
    ///
    /// # Errors
    /// When the node does not come up.
    pub fn restart(&mut self) -> Result<(), NodeError> {
        self.runs += 1;
        self.process = launch(&self.setup, self.folder.path(), self.address, self.runs)?;
        self.wait_listening()
    }

    /// The node's own word for it: the listening socket of a killed run lives a moment longer.
    fn wait_listening(&mut self) -> Result<(), NodeError> {
        let deadline = Instant::now() + START_STOP_MAX;
        while !self.log().contains("listening") {
            self.check_running()?;
            if Instant::now() > deadline {
                let words = format!("the node does not listen: {}", self.log_tail());
                return Err(NodeError::Node(words));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Creates the mirror and starts the topics, given as the command line takes them. `properties` are
    /// further lines of the mirror's configuration.
    ///
    /// # Errors
    /// When the node refuses.
    pub fn mirror(
        &self,
        mirror: &str,
        source: &str,
        topics: &str,
        properties: &str,
    ) -> Result<(), NodeError> {
        let file = self.folder.path().join(format!("{mirror}.properties"));
        fs::write(&file, format!("bootstrap.servers={source}\n{properties}\n"))
            .map_err(|error| NodeError::Io("write the mirror's properties".to_owned(), error))?;
        let file = file.display().to_string();
        self.command(&["create", "--mirror", mirror, "--mirror-config", &file])?;
        self.command(&["start", "--mirror", mirror, "--topics", topics])?;
        Ok(())
    }

    /// What `longhaul mirror describe` says of every partition.
    ///
    /// # Errors
    /// When the node does not answer, or not in the form it documents.
    pub fn describe(&self) -> Result<Vec<PartitionRow>, NodeError> {
        let text = self.command(&["describe", "--json"])?;
        serde_json::from_str(&text)
            .map_err(|error| NodeError::Node(format!("longhaul mirror describe --json: {error}")))
    }

    /// What its cores timed since it was started: all of them under the measure's name (`lag`, `landing`,
    /// ...), each under `core-N.MEASURE`.
    ///
    /// # Errors
    /// When the node does not answer.
    pub fn histograms(&self) -> Result<Vec<NamedHistogram>, NodeError> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("histograms over HTTP"));
        let Some((_, http)) = line.and_then(|line| line.split_once("address=")) else {
            return Err(NodeError::Node(format!("no histograms over HTTP: {}", self.log_tail())));
        };
        // From where the node is: inside a namespace its loopback is not ours.
        let text = self.run(&["report", "--json", "--node", http.trim()])?;
        let runs: Vec<Run> = serde_json::from_str(&text)
            .map_err(|error| NodeError::Node(format!("longhaul report --json: {error}")))?;
        let samples = runs.into_iter().flat_map(|run| run.cases).flat_map(|case| case.rows);
        let samples = samples.flat_map(|row| row.samples);
        Ok(samples.flat_map(|sample| sample.histograms).collect())
    }

    /// Adds what its cores timed to a sample. Without it the sample stands, and the run says so.
    pub fn add_histograms(&self, session: &Session, sample: &mut Sample) {
        let timed = match self.histograms() {
            Ok(timed) => timed,
            Err(error) => return session.leave_out(format!("the node's own histograms: {error}")),
        };
        for NamedHistogram { name, histogram } in timed {
            // Synthetic records are as old as their maker says: their age is no lag.
            let is_history = histogram.value_at_quantile(0.5) >= AGED_NANOS_MIN;
            if histogram.is_empty() || is_history {
                continue;
            }
            let name = if name.starts_with("core-") { name } else { format!("node's {name}") };
            sample.histograms.push(NamedHistogram { name, histogram });
        }
    }

    fn command(&self, arguments: &[&str]) -> Result<String, NodeError> {
        let address = self.address.to_string();
        self.run(&[&["mirror"], arguments, &["--bootstrap-server", &address]].concat())
    }

    /// Runs a command of the program's, from where the node is.
    fn run(&self, arguments: &[&str]) -> Result<String, NodeError> {
        let program = &self.setup.program;
        let finished = (self.setup.make_command)(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| NodeError::Io(format!("start {}", program.display()), error))?;
        if finished.status.success() {
            return Ok(String::from_utf8_lossy(&finished.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&finished.stderr).into_owned();
        let arguments = arguments.join(" ");
        Err(NodeError::Node(format!("longhaul {arguments}: {}", words.trim_end())))
    }

    /// An error with the node's last words when it has ended.
    ///
    /// # Errors
    /// That one.
    pub fn check_running(&mut self) -> Result<(), NodeError> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                Err(NodeError::Node(format!("the node ended ({status}): {}", self.log_tail())))
            }
            Err(error) => Err(NodeError::Io("watch the node".to_owned(), error)),
        }
    }

    /// Ends it at once, as a crash would; [`Self::restart`] begins again.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> Result<(), NodeError> {
        let killed = self.process.kill().and_then(|()| self.process.wait());
        killed.map(drop).map_err(|error| NodeError::Io("kill the node".to_owned(), error))
    }

    /// Stops it in order, keeping its folder.
    ///
    /// # Errors
    /// When it does not stop in time, or not cleanly.
    pub fn stop(&mut self) -> Result<(), NodeError> {
        terminate(&self.process);
        let deadline = Instant::now() + START_STOP_MAX;
        loop {
            let status = self
                .process
                .try_wait()
                .map_err(|error| NodeError::Io("wait for the node".to_owned(), error))?;
            match status {
                Some(status) => return self.stopped_well(status),
                None if Instant::now() > deadline => {
                    let words = format!("the node does not stop: {}", self.log_tail());
                    return Err(NodeError::Node(words));
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn stopped_well(&self, status: ExitStatus) -> Result<(), NodeError> {
        if status.success() {
            return Ok(());
        }
        Err(NodeError::Node(format!("the node stopped with {status}: {}", self.log_tail())))
    }

    /// Where consumers connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process, for its costs.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The log of the run under way, or of the last.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(log_file(self.folder.path(), self.runs)).unwrap_or_default()
    }

    /// The last lines of the node's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(
    setup: &NodeSetup,
    folder: &Path,
    address: SocketAddr,
    run: u32,
) -> Result<Child, NodeError> {
    let log = fs::File::create(log_file(folder, run))
        .map_err(|error| NodeError::Io("make the node's log file".to_owned(), error))?;
    (setup.make_command)(&setup.program)
        .args(["node", "--end-with-parent", &std::process::id().to_string()])
        .args(["--listen", &address.to_string(), "--http-listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.join("data"))
        .arg("--config")
        .arg(folder.join("node.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // A Ctrl-C at the terminal is ours alone: the node would take our SIGTERM for the second
        // signal, and end without a clean stop.
        .process_group(0)
        .spawn()
        .map_err(|error| NodeError::Io(format!("start {}", setup.program.display()), error))
}

fn log_file(folder: &Path, run: u32) -> PathBuf {
    folder.join(format!("node-{run}.log"))
}

fn terminate(process: &Child) {
    let id = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(id) = id {
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
    }
}

/// Says what to do when `directory` has no room for `bytes` of records.
pub(crate) fn check_room(directory: &Path, bytes: u64) -> Result<(), NodeError> {
    let free = crate::run::free_bytes(directory).map_err(|error| {
        NodeError::Io(format!("ask for free disk space in {}", directory.display()), error)
    })?;
    let needed = bytes.saturating_add(SPARE_BYTES);
    if free < needed {
        return Err(NodeError::Node(format!(
            "{} has {} MB free, {} MB are needed: measure with less, or elsewhere (--directory, or TMPDIR for the demo)",
            directory.display(),
            free >> 20,
            needed >> 20
        )));
    }
    Ok(())
}

/// A port that is free on loopback, and so most likely on an address of a namespace of our own.
pub(crate) fn free_port() -> Result<u16, NodeError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| NodeError::Io("find a free port".to_owned(), error))
}
