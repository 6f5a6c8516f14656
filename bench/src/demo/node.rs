//! The demo's node: a child process, driven by the commands a user types.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::DemoError;

/// The node has this long to listen, and later to stop.
const START_STOP_MAX: Duration = Duration::from_secs(20);
/// Room beyond the records, for indexes and the node's own files.
const SPARE_BYTES: u64 = 256 << 20;

/// A running node with a temporary data directory.
#[derive(Debug)]
pub(super) struct DemoNode {
    program: PathBuf,
    folder: tempfile::TempDir,
    address: SocketAddr,
    process: Child,
}

impl DemoNode {
    /// Starts the node once there is room for `bytes`.
    pub(super) fn start(program: &Path, bytes: u64) -> Result<Self, DemoError> {
        let folder = tempfile::Builder::new()
            .prefix("longhaul-demo-")
            .tempdir()
            .map_err(|error| DemoError::Io("cannot make a temporary folder".to_owned(), error))?;
        check_room(folder.path(), bytes)?;
        let address = free_address()?;
        let log = fs::File::create(folder.path().join("node.log"))
            .map_err(|error| DemoError::Io("cannot make the node's log file".to_owned(), error))?;
        let process = Command::new(program)
            .args(["node", "--end-with-parent", &std::process::id().to_string()])
            .args(["--listen", &address.to_string(), "--data-dir"])
            .arg(folder.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // A Ctrl-C at the terminal is ours alone: the node would take our SIGTERM for the second
            // signal, and end without a clean stop.
            .process_group(0)
            .spawn()
            .map_err(|error| DemoError::Io(format!("cannot start {}", program.display()), error))?;
        let mut node = Self { program: program.to_owned(), folder, address, process };
        node.wait_listening()?;
        Ok(node)
    }

    fn wait_listening(&mut self) -> Result<(), DemoError> {
        let deadline = Instant::now() + START_STOP_MAX;
        while TcpStream::connect(self.address).is_err() {
            self.check_running()?;
            if Instant::now() > deadline {
                return Err(DemoError::Node(format!(
                    "the node does not listen: {}",
                    self.log_tail()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Where consumers connect.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The data directory.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Creates the mirror and starts the topic.
    pub(super) fn mirror(&self, mirror: &str, source: &str, topic: &str) -> Result<(), DemoError> {
        let file = self.folder.path().join("mirror.properties");
        fs::write(&file, format!("bootstrap.servers={source}\n")).map_err(|error| {
            DemoError::Io("cannot write the mirror's properties".to_owned(), error)
        })?;
        let file = file.display().to_string();
        self.command(&["create", "--mirror", mirror, "--mirror-config", &file])?;
        self.command(&["start", "--mirror", mirror, "--topics", topic])
    }

    fn command(&self, arguments: &[&str]) -> Result<(), DemoError> {
        let finished = Command::new(&self.program)
            .arg("mirror")
            .args(arguments)
            .args(["--bootstrap-server", &self.address.to_string()])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                DemoError::Io(format!("cannot start {}", self.program.display()), error)
            })?;
        if finished.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&finished.stderr).into_owned();
        Err(DemoError::Node(format!(
            "longhaul mirror {}: {}",
            arguments.join(" "),
            words.trim_end()
        )))
    }

    /// An error with the node's last words when it has ended.
    pub(super) fn check_running(&mut self) -> Result<(), DemoError> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                Err(DemoError::Node(format!("the node ended ({status}): {}", self.log_tail())))
            }
            Err(error) => Err(DemoError::Io("cannot watch the node".to_owned(), error)),
        }
    }

    /// The last lines of the node's log.
    pub(super) fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.folder.path().join("node.log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Stops the node in order; answers the processor time it used.
    pub(super) fn stop(mut self) -> Result<Duration, DemoError> {
        let used = processor_time(self.process.id());
        terminate(&self.process);
        let deadline = Instant::now() + START_STOP_MAX;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(used),
                Ok(Some(status)) => {
                    return Err(DemoError::Node(format!(
                        "the node stopped with {status}: {}",
                        self.log_tail()
                    )));
                }
                _ if Instant::now() > deadline => {
                    return Err(DemoError::Node(format!(
                        "the node does not stop: {}",
                        self.log_tail()
                    )));
                }
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for DemoNode {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn terminate(process: &Child) {
    let id = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(id) = id {
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
    }
}

/// User and system time from `/proc/PID/stat`, fields 14 and 15, in the kernel's 100 ticks a second.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

fn check_room(folder: &Path, bytes: u64) -> Result<(), DemoError> {
    let room = rustix::fs::statvfs(folder).map_err(|error| {
        DemoError::Io("cannot ask for free disk space".to_owned(), error.into())
    })?;
    let free = room.f_bavail * room.f_frsize;
    if free < bytes + SPARE_BYTES {
        return Err(DemoError::Node(format!(
            "{} has {} MB free, the demo needs {} MB: choose a smaller --size, or set TMPDIR to a roomier disk",
            folder.display(),
            free >> 20,
            (bytes + SPARE_BYTES) >> 20
        )));
    }
    Ok(())
}

fn free_address() -> Result<SocketAddr, DemoError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| DemoError::Io("no free loopback port".to_owned(), error))
}
