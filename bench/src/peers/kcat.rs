//! kcat: librdkafka reading a topic from its beginning to its end, its ordinary output thrown away.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::PeerError;
use super::foreign::{Foreign, require};
use crate::node::MakeCommand;

/// For each GB, and once more.
const GIGABYTE_MAX: Duration = Duration::from_secs(120);

/// Whether it is installed.
///
/// # Errors
/// When not, with what to install.
pub fn kcat_is_there() -> Result<(), PeerError> {
    require("kcat", "kcat", "kcat")
}

/// An error when it reads for so long that it stands still: it tries again for ever.
pub(crate) fn check_time(began: Instant, bytes: u64) -> Result<(), PeerError> {
    let gigabytes = u32::try_from(bytes >> 30).unwrap_or(u32::MAX).saturating_add(1);
    let limit = GIGABYTE_MAX.saturating_mul(gigabytes);
    if began.elapsed() < limit {
        return Ok(());
    }
    let seconds = limit.as_secs();
    Err(PeerError::Failed(format!("kcat has not read everything after {seconds} s")))
}

/// A running kcat.
#[derive(Debug)]
pub struct Kcat {
    process: Foreign,
}

impl Kcat {
    /// Starts to read.
    ///
    /// # Errors
    /// When kcat is not installed or cannot be started.
    pub fn read(make: &MakeCommand, bootstrap: &str, topic: &str) -> Result<Self, PeerError> {
        kcat_is_there()?;
        let mut command: Command = Foreign::command(make, "kcat");
        command
            .args(["-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
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
            Some(status) => {
                let mut words = String::new();
                if let Some(mut errors) = self.process.take_errors() {
                    let _ = errors.read_to_string(&mut words);
                }
                Err(PeerError::Failed(format!("kcat failed ({status}): {}", words.trim())))
            }
            None => Err(PeerError::Failed("kcat is still reading".to_owned())),
        }
    }
}
