//! The synthetic source as a process of its own: the parent's end.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command as ProcessCommand, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::process::{Command, Hello};
use super::{Began, SourceOptions, SourceReport};

/// Why a source process is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It did not start.
    #[error("cannot start {0}: {1}")]
    Start(String, std::io::Error),
    /// It ended, or said what it should not.
    #[error("{0} ended before its time; its reason is on standard error ({1})")]
    Ended(&'static str, String),
}

/// A running source process; ended when dropped.
#[derive(Debug)]
pub struct SourceProcess {
    conversation: Conversation,
    hello: Hello,
}

impl SourceProcess {
    /// Starts `longhaul bench source`, as `make_command` would start the program, and waits until it listens.
    ///
    /// # Errors
    /// When it does not start or listen.
    pub fn start(
        make_command: &dyn Fn(&Path) -> ProcessCommand,
        program: &Path,
        options: &SourceOptions,
    ) -> Result<Self, ProcessError> {
        let mut command = make_command(program);
        command.args(["bench", "source", &Conversation::argument(options)]);
        let mut conversation = Conversation::start("the synthetic source", command)?;
        let hello = conversation.hear()?;
        Ok(Self { conversation, hello })
    }

    /// Where the broker listens.
    #[must_use]
    pub fn kafka(&self) -> SocketAddr {
        self.hello.kafka
    }

    /// Where bare streams are to be had.
    #[must_use]
    pub fn raw(&self) -> SocketAddr {
        self.hello.raw
    }

    /// The process, for its costs.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.conversation.pid()
    }

    /// Begins the live load.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn begin(&mut self) -> Result<Began, ProcessError> {
        self.conversation.ask(&Command::Begin)
    }

    /// What its connections did until now.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn report(&mut self) -> Result<SourceReport, ProcessError> {
        self.conversation.ask(&Command::Report)
    }

    /// Lets it put the live load, when that begins, into its topic at a real broker.
    ///
    /// # Errors
    /// When the process is gone, or cannot connect.
    pub fn produce(&mut self, broker: SocketAddr) -> Result<(), ProcessError> {
        self.conversation.ask::<SocketAddr>(&Command::Produce(broker)).map(drop)
    }

    /// Lets it send datagrams with the time on them until it ends.
    ///
    /// # Errors
    /// When the process is gone, or has no way there.
    pub fn probe(&mut self, address: SocketAddr) -> Result<(), ProcessError> {
        self.conversation.ask::<SocketAddr>(&Command::Probe(address)).map(drop)
    }
}

/// A child that is told lines of JSON and answers each with one.
#[derive(Debug)]
pub(crate) struct Conversation {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Conversation {
    /// Starts the child. `name` is for messages.
    pub(crate) fn start(
        name: &'static str,
        mut command: ProcessCommand,
    ) -> Result<Self, ProcessError> {
        let failed = |error| ProcessError::Start(name.to_owned(), error);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C at the terminal is the parent's alone.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(std::io::Error::other("it has no standard streams")));
        };
        Ok(Self { name, child, input, output: BufReader::new(output) })
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, ProcessError> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        read.map_err(|error| error.to_string())
            .and_then(|_| serde_json::from_str(&line).map_err(|error| error.to_string()))
            .map_err(|problem| ProcessError::Ended(self.name, problem))
    }

    /// Says a line, and waits for the one that answers it.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        command: &impl Serialize,
    ) -> Result<T, ProcessError> {
        writeln!(self.input, "{}", Self::argument(command))
            .map_err(|error| ProcessError::Ended(self.name, error.to_string()))?;
        self.hear()
    }

    /// Options in the form in which the child reads them. Ours are plain data, which always has one.
    pub(crate) fn argument(options: &impl Serialize) -> String {
        serde_json::to_string(options).unwrap_or_default()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
