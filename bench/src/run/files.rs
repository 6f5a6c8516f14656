//! A run's files in a directory: `BENCH.json`, read back by the report.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{FORMAT, Run};

/// Results of a run, and their page, are of about this size.
const RESULTS_BYTES: usize = 1 << 20;

/// Why results cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Choose another place, or make this one usable.
    #[error("cannot write to {directory} ({source}); make room there, or give another directory")]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Wait, or choose another place.
    #[error(
        "another `longhaul bench {bench}` is to write its results to {directory}; wait for its end, or give another --out"
    )]
    Taken {
        /// The subcommand.
        bench: String,
        /// The directory.
        directory: PathBuf,
    },
    /// Not a run's file.
    #[error("{path} is not a run that `longhaul bench` wrote: {why}")]
    NotARun {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Io { doing, path, source }
}

/// A directory for a benchmark's results, which is its own until this is dropped or the process ends.
#[derive(Debug)]
pub struct Place {
    lock: PathBuf,
    /// What holds the lock.
    _file: File,
}

impl Place {
    /// Makes the directory, and sees that there is room for results and that no other run of the same
    /// benchmark will write them there too.
    ///
    /// # Errors
    /// When not.
    pub fn take(directory: &Path, bench: &str) -> Result<Self, FileError> {
        fs::create_dir_all(directory).map_err(failed("make the directory", directory))?;
        check_writable(directory)?;
        let lock = directory.join(format!(".{bench}.lock"));
        let file = File::create(&lock).map_err(failed("make", &lock))?;
        match file.try_lock() {
            // A file system without locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self { lock, _file: file }),
            Err(TryLockError::WouldBlock) => {
                Err(FileError::Taken { bench: bench.to_owned(), directory: directory.to_owned() })
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whoever opened it in this moment has a lock of its own that nobody else meets: no worse than none.
        let _ = fs::remove_file(&self.lock);
    }
}

/// Sees that files can be made in a directory that is there, and that they can be as large as results are.
///
/// # Errors
/// When not.
pub fn check_writable(directory: &Path) -> Result<(), FileError> {
    let unusable = |source| FileError::Unusable { directory: directory.to_owned(), source };
    let mut file = tempfile::tempfile_in(directory).map_err(unusable)?;
    file.write_all(&[0; RESULTS_BYTES]).and_then(|()| file.sync_data()).map_err(unusable)
}

/// Writes the run; answers the files written. A file of an earlier run is replaced when all of the new
/// one is written.
///
/// # Errors
/// When a file cannot be written.
pub fn write(directory: &Path, run: &Run) -> Result<Vec<PathBuf>, FileError> {
    fs::create_dir_all(directory).map_err(failed("make the directory", directory))?;
    let path = directory.join(format!("{}.json", run.bench));
    let text = serde_json::to_vec_pretty(run)
        .map_err(|error| failed("write", &path)(io::Error::other(error)))?;
    replace(&path, &text)?;
    Ok(vec![path])
}

/// Bytes that may still be written to the folder's file system.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let room = rustix::fs::statvfs(folder)?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

/// Puts `bytes` in the place of what the file held, or leaves that as it was. What is no file, a pipe or a
/// device, is written to: a rename would take `/dev/null` away from everybody.
///
/// # Errors
/// When they cannot all be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let path = match fs::metadata(path) {
        Ok(there) if there.is_file() => &fs::canonicalize(path).map_err(failed("find", path))?,
        Ok(_) => {
            let opened = fs::OpenOptions::new().write(true).open(path);
            let written = opened.and_then(|mut file| io::Write::write_all(&mut file, bytes));
            return written.map_err(failed("write", path));
        }
        Err(_) => path,
    };
    let directory = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    // A temporary file is its owner's alone; results are for everybody.
    let mut file = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(directory)
        .map_err(failed("write", path))?;
    file.write_all(bytes).map_err(failed("write", path))?;
    file.persist(path).map_err(|error| failed("write", path)(error.error))?;
    Ok(())
}

/// Reads a run back.
///
/// # Errors
/// When the file cannot be read, or is no run of this format.
pub fn read(path: &Path) -> Result<Run, FileError> {
    let not_a_run = |why: String| FileError::NotARun { path: path.to_owned(), why };
    let text = fs::read(path).map_err(failed("read", path))?;
    let run: Run = serde_json::from_slice(&text).map_err(|error| not_a_run(error.to_string()))?;
    if run.format != FORMAT {
        return Err(not_a_run(format!(
            "its format is {}, this program reads {FORMAT}",
            run.format
        )));
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::run::Session;

    #[test]
    fn a_place_is_one_runs_at_a_time_and_is_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::take(directory.path(), "wan").unwrap();
        let error = Place::take(directory.path(), "wan").unwrap_err().to_string();
        assert!(
            error.contains("another `longhaul bench wan`") && error.contains("--out"),
            "{error}"
        );
        drop(Place::take(directory.path(), "lag").unwrap());
        drop(place);
        drop(Place::take(directory.path(), "wan").unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_and_a_pipe_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("page"), "old").unwrap();
        std::os::unix::fs::symlink("page", at("link")).unwrap();
        replace(&at("link"), b"new").unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read(at("page")).unwrap(), b"new");

        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).unwrap();
        // Open at both ends, so that nobody waits.
        let mut pipe = fs::File::options().read(true).write(true).open(at("pipe")).unwrap();
        replace(&at("pipe"), b"page").unwrap();
        assert!(!fs::metadata(at("pipe")).unwrap().is_file());
        let mut read = [0; 4];
        io::Read::read_exact(&mut pipe, &mut read).unwrap();
        assert_eq!(&read, b"page");
        assert!(replace(directory.path(), b"page").is_err());
    }

    #[test]
    fn a_run_is_read_back_and_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut run = Session::begin("wan", "?", Arc::default(), |_| {}).end();
        let files = write(directory.path(), &run).unwrap();
        assert_eq!(read(&files[0]).unwrap().bench, "wan");
        run.format += 1;
        let files = write(directory.path(), &run).unwrap();
        assert!(read(&files[0]).unwrap_err().to_string().contains("format"));
        fs::write(&files[0], "{}").unwrap();
        assert!(matches!(read(&files[0]), Err(FileError::NotARun { .. })));
    }
}
