//! Looking at partition folders without a node: what is in them, and whether it is right.
//!
//! Owns no state; runs on any thread that may block, and reads files that nobody writes (a running
//! node's active segment has a tail that is not log yet). It must never write, and never hold more
//! of a file than one batch, and that only when records are looked at.

mod dump;
mod indexes;
mod report;
mod scan;
mod verify;

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::Offset;
use crate::files::{LOCK_FILE, parse_folder_name};
use crate::segment::SegmentFile;

pub use dump::{DumpedBatch, dump};
pub use report::{Damage, Finding, PartitionReport};
pub use verify::{verify, verify_partition};

/// Whether a node or a broker is running on the data directory that `path` is, or lies in. What it
/// has not finished writing looks like damage.
#[must_use]
pub fn is_in_use(path: &Path) -> bool {
    let parent = path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    [Some(path.to_owned()), parent].into_iter().flatten().any(|directory| {
        let Ok(lock) = fs::File::open(directory.join(LOCK_FILE)) else { return false };
        let shared = rustix::fs::FlockOperation::NonBlockingLockShared;
        let free =
            rustix::fs::flock(&lock, shared).and_then(|()| rustix::fs::fcntl_lock(&lock, shared));
        free.is_err()
    })
}

/// How to look.
#[derive(Clone, Copy, Debug)]
pub struct InspectOptions {
    /// A batch larger than this is damage.
    pub batch_bytes_max: u32,
    /// Look inside batches, too: decompress, read every record.
    pub records: bool,
    /// Most bytes that one batch's records may inflate to; more is reported, not read.
    pub inflated_bytes_max: usize,
}

impl Default for InspectOptions {
    /// Any batch Kafka could write, by its header alone.
    fn default() -> Self {
        Self {
            batch_bytes_max: i32::MAX as u32,
            records: false,
            inflated_bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// Why a path could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is nothing of Kafka's there.
    #[error(
        "{0} is neither a .log file, nor a partition folder (<topic>-<number> with .log files), nor a directory of such folders"
    )]
    NotALog(PathBuf),
    /// A file where a folder is wanted.
    #[error("{0} is a file: give the partition folder it lies in")]
    File(PathBuf),
    /// The system refused.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The partition folders at `path`: itself if it is one, else those in it, by name.
pub fn partition_folders(path: &Path) -> Result<Vec<PathBuf>, InspectError> {
    let failed = |source| InspectError::Io { path: path.to_path_buf(), source };
    if path.is_file() {
        return Err(InspectError::File(path.to_path_buf()));
    }
    if !segment_bases(path).map_err(failed)?.is_empty() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut folders = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let folder = entry.map_err(failed)?.path();
        if is_partition_name(&folder) && folder.is_dir() {
            folders.push(folder);
        }
    }
    folders.sort();
    if folders.is_empty() {
        return Err(InspectError::NotALog(path.to_path_buf()));
    }
    Ok(folders)
}

/// Base offsets of the segments in a partition folder, in order.
fn segment_bases(folder: &Path) -> io::Result<Vec<Offset>> {
    let mut bases = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if let Some((base, SegmentFile::Log)) = name.to_str().and_then(SegmentFile::parse) {
            bases.push(base);
        }
    }
    bases.sort();
    Ok(bases)
}

/// Folders on their way out have another ending (`-delete`, `-stray`).
fn is_partition_name(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.and_then(parse_folder_name).is_some()
}

#[cfg(test)]
mod tests;
