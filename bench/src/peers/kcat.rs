//! kcat: librdkafka reading a topic from its beginning to its end, its ordinary output thrown away.

use std::process::{Command, Stdio};

use super::PeerError;
use super::foreign::{Foreign, require};
use crate::node::MakeCommand;

/// Whether it is installed.
///
/// # Errors
/// When not, with what to install.
pub fn kcat_is_there() -> Result<(), PeerError> {
    require("kcat", "kcat", "kcat")
}

/// A running kcat.
#[derive(Debug)]
pub struct Kcat {
    process: Foreign,
}

impl Kcat {
    /// Starts to read. Its errors go to ours: there are none in a good run.
    ///
    /// # Errors
    /// When kcat is not installed or cannot be started.
    pub fn read(make: &MakeCommand, bootstrap: &str, topic: &str) -> Result<Self, PeerError> {
        kcat_is_there()?;
        let mut command: Command = Foreign::command(make, "kcat");
        command
            .args(["-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q"])
            .stdout(Stdio::null());
        Ok(Self { process: Foreign::start("kcat", command, None)? })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether it has ended. Its costs can still be read.
    #[must_use]
    pub fn exited(&self) -> bool {
        self.process.exited()
    }

    /// An error unless it read to the end.
    ///
    /// # Errors
    /// That one.
    pub fn finished_well(&mut self) -> Result<(), PeerError> {
        match self.process.ended()? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(PeerError::Failed(format!("kcat failed ({status})"))),
            None => Err(PeerError::Failed("kcat is still reading".to_owned())),
        }
    }
}
