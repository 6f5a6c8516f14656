//! Child processes that never outlive the test process, and waiting with a bound.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts `program` so that the kernel kills it when this process dies. `configure` sets arguments and streams.
pub(crate) fn spawn(program: &str, configure: impl FnOnce(&mut Command)) -> Child {
    let mut command = bench::children::command(&|setpriv| Command::new(setpriv), program);
    configure(&mut command);
    bench::children::spawn(command)
        .unwrap_or_else(|error| panic!("cannot start {program} through setpriv: {error}"))
}

/// A finished command's output.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Exit code; -1 when a signal or the time limit ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs a program to its end, or kills it after `limit`.
///
/// # Panics
/// When the program cannot be started.
#[must_use]
pub fn run(program: &str, arguments: &[&str], limit: Duration) -> Finished {
    let mut child = spawn(program, |command| {
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    });
    let stdout = read_all(child.stdout.take());
    let stderr = read_all(child.stderr.take());
    let deadline = Instant::now() + limit;
    let code = loop {
        match child.try_wait().expect("the child can be waited for") {
            Some(status) => break status.code().unwrap_or(-1),
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                break -1;
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    Finished {
        code,
        stdout: stdout.join().unwrap_or_default(),
        stderr: stderr.join().unwrap_or_default(),
    }
}

fn read_all<R: std::io::Read + Send + 'static>(
    stream: Option<R>,
) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A loopback port that was free a moment ago.
///
/// # Panics
/// When the machine has no free port.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free loopback port");
    listener.local_addr().expect("a bound address").port()
}

/// Asks `look` until it returns something; panics with `what` after `limit`.
///
/// # Panics
/// When `limit` passes first.
pub fn wait_until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
