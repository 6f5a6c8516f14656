//! The state file: what a host held before `apply`, and how far `apply` came.
//!
//! JSON lines, each made durable before what it announces is done. The first line holds every change
//! that is planned with the values before; then for each change one line before it is made and one
//! after. The file appears with its first line in it; a crash leaves at most the last line torn: what that
//! would have announced did not happen. One
//! process holds the file's lock. A place or value that this program would not have written is refused,
//! since rollback writes as root.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::value::Form;

/// A plan of a thousand queues and processors is below this by far.
const FILE_BYTES_MAX: u64 = 16 << 20;
const VERSION: u32 = 1;
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Why a state file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file system refuses.
    #[error("cannot use the state file {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An earlier apply is in effect.
    #[error(
        "profile {profile} is applied already, says {}: `longhaul tune rollback` brings back what was \
         before, then apply again", path.display()
    )]
    InUse {
        /// Which file.
        path: PathBuf,
        /// What was applied.
        profile: String,
    },
    /// Another process works with it.
    #[error("another `longhaul tune` is at work with {}: wait for its end", .0.display())]
    Busy(PathBuf),
    /// It was written for other settings than those that this process sees.
    #[error(
        "{} has settings of another network namespace ({there}; this is {here}): run this command there. If that \
         one is gone, its settings are too, and --force brings back the host's", path.display()
    )]
    OtherNamespace {
        /// Which file.
        path: PathBuf,
        /// Where it was written.
        there: String,
        /// Where this process is.
        here: String,
    },
    /// Not a file that this program wrote.
    #[error(
        "{} is not a state file of this program, or a damaged one ({what}): it is left alone. Move it away to go on; \
         of a damaged one, its first line has the values that were there before", path.display()
    )]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// A place to write to, and what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// A file relative to the root, or a destination's address for a route.
    pub place: String,
    /// How its value is written.
    pub form: Form,
    /// The value.
    pub value: String,
}

/// A planned change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The knob that it belongs to.
    pub knob: String,
    /// Where, and the value before.
    pub before: Entry,
    /// The value that is written.
    pub after: String,
    /// What to write to bring back what was before, in this order: the place itself unless it does not
    /// take its own value back, and what changes beside it.
    pub restore: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    longhaul_tune: u32,
    boot: String,
    namespace: String,
    profile: String,
    changes: Vec<Change>,
}

/// A line after the head.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// The change of this number is about to be made.
    Doing(usize),
    /// The change of this number was made, and the place then held this.
    Did(usize, String),
    /// The change of this number is undone.
    Undone(usize),
}

/// What a state file says.
#[derive(Debug)]
pub struct Saved {
    /// The profile that was applied.
    pub profile: String,
    /// Changes that were begun and not undone, each with what the place held after it, if known.
    pub begun: Vec<(usize, Change, Option<String>)>,
    /// Whether the machine has been started anew since, so that the values are gone by themselves.
    pub restarted: bool,
    /// The network namespace it was written in and this process's, when they differ.
    pub elsewhere: Option<(String, String)>,
}

/// An open state file, locked for this process.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    file: File,
}

impl StateFile {
    /// Starts a state file: everything that is planned, durable when this returns. One of an earlier
    /// start of the machine is replaced.
    pub fn create(
        path: &Path,
        host: &Host,
        profile: &str,
        changes: &[Change],
    ) -> Result<Self, StateError> {
        let wrong = |source| StateError::File { path: path.to_owned(), source };
        if let Some((state, saved)) = Self::open(path, host)? {
            if !saved.restarted && !saved.begun.is_empty() {
                return Err(StateError::InUse { path: path.to_owned(), profile: saved.profile });
            }
            state.remove()?;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(wrong)?;
        let head = Head {
            longhaul_tune: VERSION,
            boot: boot(host),
            namespace: namespace(host),
            profile: profile.to_owned(),
            changes: changes.to_vec(),
        };
        Self::publish(path, folder, &head)
    }

    /// Puts the file in its place with its head in it: one without a head is never ours.
    fn publish(path: &Path, folder: &Path, head: &Head) -> Result<Self, StateError> {
        let wrong = |source| StateError::File { path: path.to_owned(), source };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = folder.join(format!(".{name}.{}", std::process::id()));
        let file = OpenOptions::new()
            .append(true)
            .read(true)
            .create_new(true)
            .open(&unfinished)
            .map_err(wrong)?;
        let mut state = Self { path: path.to_owned(), file };
        let placed = state.lock().and_then(|()| state.append(head)).and_then(|()| {
            // Unlike a rename it never replaces what somebody else has put there meanwhile.
            fs::hard_link(&unfinished, path).map_err(wrong)
        });
        fs::remove_file(&unfinished).map_err(wrong)?;
        placed?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(wrong)?;
        Ok(state)
    }

    /// Opens a state file and says what it holds; nothing when there is none.
    pub fn open(path: &Path, host: &Host) -> Result<Option<(Self, Saved)>, StateError> {
        let wrong = |source| StateError::File { path: path.to_owned(), source };
        let not_ours =
            |what: &str| StateError::Format { path: path.to_owned(), what: what.to_owned() };
        // The open of a pipe would wait for somebody at its other end.
        let mut options = OpenOptions::new();
        options.append(true).read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Neither a file that is there, nor a place for a new one.
                return if path.is_symlink() {
                    Err(not_ours("it is a link to nothing"))
                } else {
                    Ok(None)
                };
            }
            other => other.map_err(wrong)?,
        };
        if !file.metadata().map_err(wrong)?.is_file() {
            return Err(not_ours("it is no ordinary file"));
        }
        let mut state = Self { path: path.to_owned(), file };
        state.lock()?;
        let mut text = String::new();
        (&mut state.file).take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| {
            match error.kind() {
                io::ErrorKind::InvalidData => not_ours("it is no text"),
                _ => wrong(error),
            }
        })?;
        let saved = state.understand(&text, host)?;
        Ok(Some((state, saved)))
    }

    /// Announces a change; durable when this returns.
    pub fn doing(&mut self, number: usize) -> Result<(), StateError> {
        self.append(&Step::Doing(number))
    }

    /// Says that a change was made, and what the place holds.
    pub fn did(&mut self, number: usize, holds: &str) -> Result<(), StateError> {
        self.append(&Step::Did(number, holds.to_owned()))
    }

    /// Says that a change is undone.
    pub fn undone(&mut self, number: usize) -> Result<(), StateError> {
        self.append(&Step::Undone(number))
    }

    /// Removes the file: nothing of it is in effect any more.
    pub fn remove(self) -> Result<(), StateError> {
        fs::remove_file(&self.path)
            .map_err(|source| StateError::File { path: self.path.clone(), source })
    }

    fn lock(&self) -> Result<(), StateError> {
        // A process that is just being started shares its parent's lock until it runs its own program.
        for _ in 0..LOCK_TRIES {
            if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(());
            }
            thread::sleep(LOCK_PAUSE);
        }
        Err(StateError::Busy(self.path.clone()))
    }

    fn append(&mut self, line: &impl Serialize) -> Result<(), StateError> {
        let mut text = serde_json::to_vec(line).map_err(io::Error::other);
        if let Ok(text) = &mut text {
            text.push(b'\n');
        }
        text.and_then(|text| self.file.write_all(&text))
            .and_then(|()| self.file.sync_all())
            .map_err(|source| StateError::File { path: self.path.clone(), source })
    }

    fn understand(&self, text: &str, host: &Host) -> Result<Saved, StateError> {
        let wrong = |what: String| StateError::Format { path: self.path.clone(), what };
        let mut lines: Vec<&str> = text.split('\n').collect();
        // What follows the last line's end is torn, or nothing.
        lines.pop();
        let (head, steps) =
            lines.split_first().ok_or_else(|| wrong("it has no first line".to_owned()))?;
        let head: Head =
            serde_json::from_str(head).map_err(|error| wrong(format!("line 1: {error}")))?;
        if head.longhaul_tune != VERSION {
            return Err(wrong(format!("version {}", head.longhaul_tune)));
        }
        head.changes.iter().try_for_each(Change::vet).map_err(wrong)?;
        let restarted = head.boot != boot(host);
        let here = namespace(host);
        let elsewhere = (head.namespace != here).then_some((head.namespace, here));
        let mut progress: Vec<Option<Option<String>>> = vec![None; head.changes.len()];
        for (line, step) in steps.iter().enumerate() {
            let step: Step = serde_json::from_str(step)
                .map_err(|error| wrong(format!("line {}: {error}", line + 2)))?;
            let (number, now) = match step {
                Step::Doing(number) => (number, Some(None)),
                Step::Did(number, holds) => (number, Some(Some(holds))),
                Step::Undone(number) => (number, None),
            };
            let place = progress.get_mut(number);
            *place.ok_or_else(|| wrong(format!("line {}: change {number}", line + 2)))? = now;
        }
        let begun = head
            .changes
            .into_iter()
            .zip(progress)
            .enumerate()
            .filter_map(|(number, (change, begun))| Some((number, change, begun?)))
            .collect();
        Ok(Saved { profile: head.profile, begun, restarted, elsewhere })
    }
}

impl Change {
    /// Whether all of it is something that this program writes.
    fn vet(&self) -> Result<(), String> {
        std::iter::once(&self.before).chain(&self.restore).try_for_each(Entry::vet)
    }
}

impl Entry {
    /// Whether each network namespace has its own.
    pub(crate) fn is_of_a_namespace(&self) -> bool {
        matches!(self.form, Form::Route)
            || ["proc/sys/net/", "sys/class/net/"].iter().any(|at| self.place.starts_with(at))
    }

    fn vet(&self) -> Result<(), String> {
        let is_known = match self.form {
            Form::Route => self.place.parse::<std::net::IpAddr>().is_ok(),
            _ => {
                let below = ["proc/sys/net/", "proc/sys/vm/", "proc/irq/", "sys/"];
                below.iter().any(|folder| self.place.starts_with(folder))
                    && !self.place.split('/').any(|part| part == "..")
            }
        };
        let is_plain = !self.value.starts_with('-') && !self.value.contains(char::is_control);
        if is_known && is_plain { Ok(()) } else { Err(format!("it names {}", self.place)) }
    }
}

fn boot(host: &Host) -> String {
    host.read("proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn namespace(host: &Host) -> String {
    host.link("proc/self/ns/net").unwrap_or_default()
}
