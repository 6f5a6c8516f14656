//! A program that is not ours while a benchmark needs it: started, watched, quoted and ended.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::PeerError;
use crate::children;
use crate::node::MakeCommand;
use crate::run::Session;

/// Lines of a program's output in an error.
const OUTPUT_LINES: usize = 8;
/// How often a waiting benchmark looks up.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// A clean stop may take this long.
const STOP_MAX: Duration = Duration::from_secs(60);

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Foreign {
    name: String,
    child: Child,
    output: Option<PathBuf>,
}

impl Foreign {
    /// The command for `program`, to which arguments and streams are added before [`Self::start`].
    #[must_use]
    pub fn command(make: &MakeCommand, program: &str) -> Command {
        children::command(&**make, program)
    }

    /// Starts it with both output streams in the file, or with those the command has.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        name: &str,
        mut command: Command,
        output: Option<PathBuf>,
    ) -> Result<Self, PeerError> {
        if let Some(path) = &output {
            let file = fs::File::create(path)
                .and_then(|file| file.try_clone().map(|second| (file, second)))
                .map_err(PeerError::io(format!("make {name}'s output file")))?;
            command.stdout(file.0).stderr(file.1);
        }
        // A Ctrl-C at the terminal is ours alone: we end the children ourselves, in order.
        command.stdin(Stdio::null()).process_group(0);
        let child = children::spawn(command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => PeerError::Missing {
                program: "setpriv".to_owned(),
                package: "util-linux",
                without: "the peers",
            },
            _ => PeerError::Io(format!("start {name}"), error),
        })?;
        Ok(Self { name: name.to_owned(), child, output })
    }

    /// Its process id: of the program itself, which took the place of what started it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.output.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
    }

    /// The last lines of its output.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = self.output();
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n")
    }

    /// Whether it ended, and how.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, PeerError> {
        self.child.try_wait().map_err(PeerError::io(format!("watch {}", self.name)))
    }

    /// Whether it has ended, without taking note of it: its costs can still be read.
    #[must_use]
    pub fn exited(&self) -> bool {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let Some(id) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that it was waited for already.
        !matches!(waitid(WaitId::Pid(id), options), Ok(None))
    }

    /// An error with its last words when it has ended.
    ///
    /// # Errors
    /// That one.
    pub fn check_running(&mut self) -> Result<(), PeerError> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => {
                let words = self.last_words();
                Err(PeerError::Failed(format!("{} ended ({status}): {words}", self.name)))
            }
        }
    }

    /// Waits until it has ended well, and answers its output.
    ///
    /// # Errors
    /// When it fails, takes longer than `limit`, or the operator ends the benchmark.
    pub fn finish(mut self, session: &Session, limit: Duration) -> Result<String, PeerError> {
        let began = Instant::now();
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(self.output()),
                Some(status) => {
                    let words = self.last_words();
                    return Err(PeerError::Failed(format!(
                        "{} failed ({status}): {words}",
                        self.name
                    )));
                }
                None => pause(session)?,
            }
            if began.elapsed() > limit {
                let (name, seconds, words) = (&self.name, limit.as_secs(), self.last_words());
                return Err(PeerError::Failed(format!(
                    "{name} did not end within {seconds} s: {words}"
                )));
            }
        }
    }

    /// Asks it to end, and does not wait.
    pub fn terminate(&self) {
        let id = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
    }

    /// Its error stream, once, when the command was given a pipe for it.
    pub fn take_errors(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// When it does not end in time; it is killed then.
    pub fn stop(&mut self) -> Result<(), PeerError> {
        if self.ended()?.is_none() {
            self.terminate();
        }
        let began = Instant::now();
        while self.ended()?.is_none() {
            if began.elapsed() > STOP_MAX {
                self.kill();
                let words = self.last_words();
                return Err(PeerError::Failed(format!("{} does not stop: {words}", self.name)));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sleeps for a moment.
///
/// # Errors
/// When the operator ended the benchmark.
pub(crate) fn pause_for(session: &Session, time: Duration) -> Result<(), PeerError> {
    if session.stopped() {
        return Err(PeerError::Interrupted);
    }
    std::thread::sleep(time);
    Ok(())
}

/// The same for a moment that does not matter.
pub(super) fn pause(session: &Session) -> Result<(), PeerError> {
    pause_for(session, LOOK_INTERVAL)
}

/// Whether a program is in `PATH`.
///
/// # Errors
/// When not, with what to install.
pub(super) fn require(
    program: &str,
    package: &'static str,
    without: &'static str,
) -> Result<(), PeerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(PeerError::Missing { program: program.to_owned(), package, without })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;

    fn session() -> Session {
        Session::begin("test", "?", Arc::default(), |_| {})
    }

    fn shell(script: &str, output: &Path) -> Foreign {
        let make: MakeCommand = Arc::new(|program| Command::new(program));
        let mut command = Foreign::command(&make, "sh");
        command.args(["-c", script]);
        Foreign::start("sh", command, Some(output.to_owned())).unwrap()
    }

    #[test]
    fn a_failing_program_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let failing = shell("echo no space >&2; exit 3", &folder.path().join("out"));
        let error = failing.finish(&session(), Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.contains("no space") && error.contains('3'), "{error}");
    }

    #[test]
    fn an_interrupted_benchmark_leaves_no_program() {
        let folder = tempfile::tempdir().unwrap();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let session = Session::begin("test", "?", stop, |_| {});
        let sleeping = shell("sleep 600", &folder.path().join("out"));
        let pid = sleeping.pid();
        let error = sleeping.finish(&session, Duration::from_secs(60)).unwrap_err();
        assert!(matches!(error, PeerError::Interrupted));
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_missing_program_says_what_to_install() {
        let error = require("no-such-program", "no-such-package", "--with-it").unwrap_err();
        let words = error.to_string();
        assert!(
            words.contains("install no-such-package") && words.contains("--with-it"),
            "{words}"
        );
        require("sh", "dash", "all").unwrap();
    }
}
