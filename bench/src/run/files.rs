//! A run's files in a directory: `BENCH.json`, read back by the report.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{FORMAT, Run};

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

/// Makes the directory and sees that files can be made in it.
///
/// # Errors
/// When not.
pub fn prepare(directory: &Path) -> Result<(), FileError> {
    fs::create_dir_all(directory).map_err(failed("make the directory", directory))?;
    check_writable(directory)
}

/// Sees that files can be made in a directory that is there.
///
/// # Errors
/// When not.
pub fn check_writable(directory: &Path) -> Result<(), FileError> {
    tempfile::tempfile_in(directory).map_err(failed("write to", directory))?;
    Ok(())
}

/// Writes the run; answers the files written. A file of an earlier run is replaced when all of the new
/// one is written.
///
/// # Errors
/// When a file cannot be written.
pub fn write(directory: &Path, run: &Run) -> Result<Vec<PathBuf>, FileError> {
    prepare(directory)?;
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

/// Puts `bytes` in the place of what the file held, or leaves that as it was.
///
/// # Errors
/// When they cannot all be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let directory = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    // A temporary file is its owner's alone; results are for everybody.
    let mut file = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(directory)
        .map_err(failed("write", path))?;
    io::Write::write_all(&mut file, bytes).map_err(failed("write", path))?;
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
