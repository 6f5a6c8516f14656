//! Temporary folders that a killed benchmark does not leave for ever.
//!
//! Owns a folder and a lock on a file in it, which the kernel takes away when the process ends, however it ends. Whoever
//! makes the next folder in the same place removes those whose lock nobody holds. Runs on the thread that calls. Must
//! never remove what was not made here: a folder without the file, with another text in it, or of another user.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// How names begin.
const PREFIX: &str = "longhaul-";
/// The locked file in each folder.
const MARKER: &str = ".longhaul-bench";
/// Its name until it is locked: nobody is to find it without a lock in between.
const UNLOCKED: &str = ".longhaul-bench.new";
const TEXT: &str = "A benchmark of longhaul made this folder. The next one removes it when nobody has a lock on \
                    this file.\n";

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    // Before the lock: it is still ours while it is removed.
    folder: tempfile::TempDir,
    _lock: File,
}

impl Folder {
    /// Makes one in `directory`, named after its `kind`.
    pub(crate) fn make(directory: &Path, kind: &str) -> io::Result<Self> {
        sweep(directory);
        let prefix = format!("{PREFIX}{kind}-");
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(directory)?;
        let unlocked = folder.path().join(UNLOCKED);
        let mut lock = File::create_new(&unlocked)?;
        lock.write_all(TEXT.as_bytes())?;
        // On a file system without locks the file does not get its name, and the folder is nobody's to sweep.
        if lock.try_lock().is_ok() {
            fs::rename(&unlocked, folder.path().join(MARKER))?;
        }
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes what killed benchmarks left. What cannot be removed is in nobody's way.
fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let _ = sweep_one(&entry.path());
        }
    }
}

fn sweep_one(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let marker = folder.join(MARKER);
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let lock = options.open(&marker)?;
    let mut text = String::new();
    (&lock).take(2 * TEXT.len() as u64).read_to_string(&mut text)?;
    if text != TEXT || lock.try_lock().is_err() {
        return Ok(());
    }
    // The file last: a program that is just ending may still write to the folder, and it is swept again.
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == MARKER {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(&marker)?;
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a benchmark leaves that is killed.
    fn abandoned(directory: &Path) -> std::path::PathBuf {
        let Folder { folder, _lock } = Folder::make(directory, "node").unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        fs::write(folder.path().join("data/log"), "bytes").unwrap();
        folder.keep()
    }

    #[test]
    fn what_nobody_holds_is_swept_and_what_somebody_holds_stays() {
        let place = tempfile::tempdir().unwrap();
        let held = Folder::make(place.path(), "node").unwrap();
        let left = abandoned(place.path());
        assert!(left.is_dir());
        let next = Folder::make(place.path(), "broker").unwrap();
        assert!(!left.exists() && held.path().is_dir());
        drop((held, next));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_not_made_here_stays() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = place.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        folder("longhaul-node-without");
        let other = folder("longhaul-node-other-text");
        fs::write(other.join(MARKER), "something else\n").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let linked = folder("longhaul-node-link");
        fs::write(elsewhere.path().join("text"), TEXT).unwrap();
        std::os::unix::fs::symlink(elsewhere.path().join("text"), linked.join(MARKER)).unwrap();
        let real = abandoned(elsewhere.path());
        std::os::unix::fs::symlink(&real, place.path().join("longhaul-node-linked")).unwrap();
        fs::write(folder("mine").join(MARKER), TEXT).unwrap();
        drop(Folder::make(place.path(), "node").unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 5);
        assert!(real.join("data/log").is_file());
    }
}
