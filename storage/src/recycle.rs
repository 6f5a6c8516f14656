//! Deleted segments, made ready to be received into again.
//!
//! Receiving straight into a mapped file is the cheapest way to land bytes, if its pages are there and
//! mapped already. A deleted segment's file has them. So it is not unlinked: it is renamed into
//! `.longhaul/recycled/` of its log directory (by the log's owner, one system call) and made ready later, by
//! a thread that may block. One pool per log directory, at most `recycle_bytes_max` bytes.
//!
//! What must hold, and why:
//!
//! - **No reader holds bytes of the file.** A slice keeps its mapping alive; a file is not touched
//!   until the pool holds the only references to its mapping and its descriptor. The segment has
//!   ended before, so no new one appears.
//! - **No old batch can be taken for a new one after a crash.** A recycled file is longer than what
//!   was received into it, and recovery finds the end by what is there. Three things together make
//!   it stop exactly: (1) every batch header in the file is overwritten with zeros and synced before
//!   the file is used, so that nowhere in it a whole old batch starts, on the device neither; (2)
//!   after each piece received the next header's worth of bytes is zeroed, so that the scan ends at
//!   the received end; (3) what was received and then refused is zeroed whole. Between a receive and
//!   (2) a crash leaves new bytes followed by old ones: old ones without headers, unless an old
//!   record's value contains a batch. Its checksum would have to hold, its offset and epoch to
//!   continue the log, and it would have to start exactly where the kernel stopped. A batch of which
//!   only the front arrived ends in old bytes and fails its checksum; if these bytes are the very ones that
//!   were to come (the same batch had lain at the same place), it is the source's batch all the same.
//!   After power loss single pages may be old: the same holds for each of them.
//! - **No store of our own through the mapping.** The kernel writes, by `pwrite` or into the mapping at
//!   our request: a failing disk is an error, not a signal.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::batch::HEADER_BYTES_MAX;
use crate::budget::{Budget, CountedFile};
use crate::checkpoint::PRIVATE_FOLDER;
use crate::mapping::{Mapping, ZEROED_AT_ONCE_MAX};
use crate::scan::scan_headers;
use crate::segment::{Ended, SEGMENT_BYTES_LIMIT};

/// The pool's folder, inside our own.
const FOLDER: &str = "recycled";

/// Smaller segments are not worth the work.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// Headers closer together than this are zeroed with what is between them: one range for many.
const SCRUB_GAP_BYTES: usize = 2048;

/// A file that is ready to be received into.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    path: PathBuf,
    pub(crate) file: Arc<CountedFile>,
    pub(crate) mapping: Arc<Mapping>,
}

impl ReadyFile {
    fn capacity_bytes(&self) -> u64 {
        self.mapping.len_bytes() as u64
    }

    /// Gives the file its place in a partition's folder.
    pub(crate) fn place(&self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)
    }
}

/// A file that may still have readers.
#[derive(Debug)]
struct Retired {
    path: PathBuf,
    ended: Ended,
    len_bytes: u64,
    /// What it should hold once it is ready.
    capacity_bytes: u64,
}

/// The pool of one log directory.
#[derive(Debug)]
pub(crate) struct RecyclePool {
    folder: PathBuf,
    budget: Arc<Budget>,
    bytes_max: u64,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    ready: Vec<ReadyFile>,
    retired: VecDeque<Retired>,
    /// Of both, and of the one that is being made ready.
    bytes: u64,
    next_number: u64,
}

impl RecyclePool {
    /// An empty pool. What an earlier run left is removed: whether it was scrubbed is not known.
    pub(crate) fn open(root: &Path, budget: &Arc<Budget>, bytes_max: u64) -> io::Result<Self> {
        let folder = root.join(PRIVATE_FOLDER).join(FOLDER);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&folder)?,
        }
        let files = Mutex::new(Files::default());
        Ok(Self { folder, budget: Arc::clone(budget), bytes_max, files })
    }

    /// Takes a deleted segment's log file, or unlinks it when there is no room or no use for it.
    pub(crate) fn retire(
        &self,
        path: &Path,
        ended: Ended,
        len_bytes: u64,
        capacity_bytes: u64,
    ) -> io::Result<()> {
        let capacity_bytes = capacity_bytes.clamp(len_bytes, SEGMENT_BYTES_LIMIT.max(len_bytes));
        let number = {
            let mut files = self.lock();
            let fits = files.bytes.saturating_add(capacity_bytes) <= self.bytes_max;
            // A file that is mostly a hole has few pages to offer.
            let worth = capacity_bytes >= SEGMENT_BYTES_MIN && len_bytes >= capacity_bytes / 2;
            if !worth || !fits {
                None
            } else {
                files.bytes += capacity_bytes;
                files.next_number += 1;
                Some(files.next_number)
            }
        };
        let Some(number) = number else { return fs::remove_file(path) };
        let recycled = self.folder.join(format!("{number:020}"));
        if let Err(error) = fs::rename(path, &recycled) {
            self.lock().bytes -= capacity_bytes;
            return Err(error);
        }
        let retired = Retired { path: recycled, ended, len_bytes, capacity_bytes };
        self.lock().retired.push_back(retired);
        Ok(())
    }

    /// A ready file with room for `len_bytes` at least, and of a size that suits segments of
    /// `segment_bytes`: one much larger would give most of its room back when it is sealed.
    pub(crate) fn take(&self, len_bytes: u64, segment_bytes: u64) -> Option<ReadyFile> {
        let mut files = self.lock();
        let suits = |ready: &ReadyFile| {
            let capacity = ready.capacity_bytes();
            capacity >= len_bytes.max(segment_bytes / 4) && capacity <= segment_bytes * 2
        };
        let found = files.ready.iter().position(suits)?;
        let ready = files.ready.swap_remove(found);
        files.bytes -= ready.capacity_bytes();
        Some(ready)
    }

    /// Makes retired files ready, those that no reader holds any more. Blocks on the disk.
    pub(crate) fn make_ready(&self) {
        let mut waiting = self.lock().retired.len();
        while waiting > 0 {
            waiting -= 1;
            let Some(mut retired) = self.lock().retired.pop_front() else { return };
            if !is_free(&mut retired.ended) {
                self.lock().retired.push_back(retired);
                continue;
            }
            let capacity_bytes = retired.capacity_bytes;
            match self.scrub_and_map(&retired) {
                Ok(ready) => self.lock().ready.push(ready),
                Err(error) => {
                    tracing::warn!(%error, "a segment file cannot be recycled");
                    self.discard(&retired.path, capacity_bytes);
                }
            }
        }
    }

    /// Adds `count` new files of zeros: for a node that is to start with warm segments.
    pub(crate) fn fill(&self, capacity_bytes: u64, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let number = {
                let mut files = self.lock();
                if files.bytes.saturating_add(capacity_bytes) > self.bytes_max {
                    return Ok(());
                }
                files.bytes += capacity_bytes;
                files.next_number += 1;
                files.next_number
            };
            let path = self.folder.join(format!("{number:020}"));
            let made = File::options().read(true).write(true).create_new(true).open(&path);
            let made = made.and_then(|file| self.map(&path, file, capacity_bytes, &[]));
            match made {
                Ok(ready) => self.lock().ready.push(ready),
                Err(error) => {
                    self.discard(&path, capacity_bytes);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn scrub_and_map(&self, retired: &Retired) -> io::Result<ReadyFile> {
        let file = OpenOptions::new().read(true).write(true).open(&retired.path)?;
        let headers = headers_of(&file, retired.len_bytes)?;
        self.map(&retired.path, file, retired.capacity_bytes, &headers)
    }

    /// Allocates, scrubs, syncs and maps a file, with all its pages present.
    fn map(
        &self,
        path: &Path,
        file: File,
        capacity_bytes: u64,
        headers: &[Range<usize>],
    ) -> io::Result<ReadyFile> {
        // Blocks for the whole length: a receive into a hole would fail when the disk is full.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, capacity_bytes)?;
        let len = usize::try_from(capacity_bytes).unwrap_or(usize::MAX);
        let mapping = Mapping::writable(&file, len, &self.budget)?;
        // A small `pwrite` for each header would cost more than all the rest.
        if !mapping.zero(headers) {
            return Err(io::Error::other("old batch headers could not be overwritten"));
        }
        file.sync_data()?;
        // Dirties every page: if the file waits for long the kernel writes it once for nothing.
        // Without it each page costs a fault when it is received into.
        mapping.populate()?;
        let file = Arc::new(CountedFile::new(file, &self.budget));
        Ok(ReadyFile { path: path.to_path_buf(), file, mapping: Arc::new(mapping) })
    }

    fn discard(&self, path: &Path, capacity_bytes: u64) {
        self.lock().bytes -= capacity_bytes;
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove a recycled file");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the pool holds the only references; if so they are let go.
fn is_free(ended: &mut Ended) -> bool {
    if ended.log.as_ref().is_some_and(|file| Arc::strong_count(file) > 1)
        || ended.mapping.as_ref().is_some_and(|mapping| Arc::strong_count(mapping) > 1)
    {
        return false;
    }
    ended.log = None;
    ended.mapping = None;
    true
}

/// Where the batch headers are, those close together in one range.
fn headers_of(file: &File, len_bytes: u64) -> io::Result<Vec<Range<usize>>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    scan_headers(file, 0, len_bytes, |position, info| {
        let position = position as usize;
        let header_end = position + (info.size_bytes as usize).min(HEADER_BYTES_MAX);
        match ranges.last_mut() {
            Some(last)
                if position <= last.end + SCRUB_GAP_BYTES
                    && header_end - last.start <= ZEROED_AT_ONCE_MAX =>
            {
                last.end = header_end;
            }
            _ => ranges.push(position..header_end),
        }
        ControlFlow::<()>::Continue(())
    })?;
    Ok(ranges)
}
