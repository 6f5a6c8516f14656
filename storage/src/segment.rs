//! One segment: its files, its published length, and what of it is open at the moment.
//!
//! Shared by the log's writer and all readers. The writer alone changes the length; whoever needs a
//! descriptor or a mapping opens it here, and the [`Budget`] may close it again as soon as no one
//! uses it. It must never hand out anything past the published end to a reader, nor anything at all
//! once the segment is gone.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::Offset;
use crate::budget::{Budget, CountedFile};
use crate::index::TimeEntry;
use crate::mapping::{Mapping, ReadSlice};

/// Largest segment: positions in the index are signed 32-bit numbers.
pub(crate) const SEGMENT_BYTES_LIMIT: u64 = i32::MAX as u64;

/// The files of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentFile {
    Log,
    OffsetIndex,
    TimeIndex,
    AbortedIndex,
    OpenTransactions,
}

impl SegmentFile {
    pub(crate) const ALL: [Self; 5] =
        [Self::Log, Self::OffsetIndex, Self::TimeIndex, Self::AbortedIndex, Self::OpenTransactions];

    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::OffsetIndex => "index",
            Self::TimeIndex => "timeindex",
            Self::AbortedIndex => "txnindex",
            // Ours alone: which transactions were open where the segment starts. Kafka keeps the
            // same in its producer snapshots and passes over files it does not know.
            Self::OpenTransactions => "opentxns",
        }
    }

    pub(crate) fn path(self, folder: &Path, base: Offset) -> PathBuf {
        folder.join(format!("{:020}.{}", base.0, self.suffix()))
    }

    /// Reads a file name back.
    pub(crate) fn parse(name: &str) -> Option<(Offset, Self)> {
        let (digits, suffix) = name.split_once('.')?;
        if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let file = Self::ALL.into_iter().find(|file| file.suffix() == suffix)?;
        Some((Offset(digits.parse().ok()?), file))
    }
}

/// Why a segment could not be used.
#[derive(Debug)]
pub(crate) enum SegmentError {
    /// It was deleted, truncated away or recycled: look the offset up again.
    Gone,
    Io(std::io::Error),
}

impl From<std::io::Error> for SegmentError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

#[derive(Debug)]
pub(crate) struct Segment {
    base: Offset,
    len_bytes: AtomicU64,
    /// Of a sealed segment, once someone has looked.
    largest: OnceLock<Option<TimeEntry>>,
    has_aborted: AtomicBool,
    referenced: AtomicBool,
    slot: Mutex<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    log: Option<Arc<CountedFile>>,
    index: Option<Arc<CountedFile>>,
    mapping: Option<Arc<Mapping>>,
    /// Under the clock's hand.
    listed: bool,
    gone: bool,
}

/// What a segment held when it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) log: Option<Arc<CountedFile>>,
    pub(crate) mapping: Option<Arc<Mapping>>,
}

impl Segment {
    pub(crate) fn new(base: Offset, len_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            base,
            len_bytes: AtomicU64::new(len_bytes),
            largest: OnceLock::new(),
            has_aborted: AtomicBool::new(false),
            referenced: AtomicBool::new(false),
            slot: Mutex::new(Slot::default()),
        })
    }

    pub(crate) fn base(&self) -> Offset {
        self.base
    }

    /// Published bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    /// Publishes up to `len_bytes`; the writer's, after the bytes are stored.
    pub(crate) fn publish(&self, len_bytes: u64) {
        self.len_bytes.store(len_bytes, Ordering::Release);
    }

    /// The largest timestamp of a sealed segment, if it is known.
    pub(crate) fn largest(&self) -> Option<Option<TimeEntry>> {
        self.largest.get().copied()
    }

    /// Remembers the largest timestamp of a sealed segment, which no longer changes.
    pub(crate) fn set_largest(&self, largest: Option<TimeEntry>) {
        let _ = self.largest.set(largest);
    }

    /// Whether an aborted-transaction index exists.
    pub(crate) fn has_aborted(&self) -> bool {
        self.has_aborted.load(Ordering::Acquire)
    }

    pub(crate) fn set_has_aborted(&self, has: bool) {
        self.has_aborted.store(has, Ordering::Release);
    }

    /// The segment's log file, open for reading and writing.
    pub(crate) fn log_file(
        self: &Arc<Self>,
        folder: &Path,
        budget: &Arc<Budget>,
    ) -> Result<Arc<CountedFile>, SegmentError> {
        self.file(folder, budget, SegmentFile::Log)
    }

    /// The segment's offset index, open for reading and writing.
    pub(crate) fn index_file(
        self: &Arc<Self>,
        folder: &Path,
        budget: &Arc<Budget>,
    ) -> Result<Arc<CountedFile>, SegmentError> {
        self.file(folder, budget, SegmentFile::OffsetIndex)
    }

    /// The segment's log file for someone who only reads it.
    pub(crate) fn readable_log_file(
        self: &Arc<Self>,
        folder: &Path,
        budget: &Arc<Budget>,
    ) -> Result<Arc<CountedFile>, SegmentError> {
        self.readable_file(folder, budget, SegmentFile::Log)
    }

    /// The segment's offset index for someone who only reads it.
    pub(crate) fn readable_index_file(
        self: &Arc<Self>,
        folder: &Path,
        budget: &Arc<Budget>,
    ) -> Result<Arc<CountedFile>, SegmentError> {
        self.readable_file(folder, budget, SegmentFile::OffsetIndex)
    }

    /// A volume that turned read-only still gives what it has. Such a descriptor is not kept: the
    /// log's owner must get the error that names the cause, and a usable one once it is gone.
    fn readable_file(
        self: &Arc<Self>,
        folder: &Path,
        budget: &Arc<Budget>,
        which: SegmentFile,
    ) -> Result<Arc<CountedFile>, SegmentError> {
        match self.file(folder, budget, which) {
            Err(SegmentError::Io(error))
                if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem =>
            {
                let file = std::fs::File::open(which.path(folder, self.base))?;
                Ok(Arc::new(CountedFile::new(file, budget)))
            }
            outcome => outcome,
        }
    }

    fn file(
        self: &Arc<Self>,
        folder: &Path,
        budget: &Arc<Budget>,
        which: SegmentFile,
    ) -> Result<Arc<CountedFile>, SegmentError> {
        if let Some(file) = self.open_slot()?.file(which) {
            self.referenced.store(true, Ordering::Relaxed);
            return Ok(Arc::clone(file));
        }
        budget.make_room();
        let file = self.fill(budget, |slot| {
            if slot.file(which).is_none() {
                let path = which.path(folder, self.base);
                let mut options = OpenOptions::new();
                // A missing index is an empty one; a missing log is damage.
                options.read(true).write(true).create(which == SegmentFile::OffsetIndex);
                let opened = Arc::new(CountedFile::new(options.open(path)?, budget));
                *slot.file(which) = Some(opened);
            }
            Ok(slot.file(which).clone())
        })?;
        file.ok_or(SegmentError::Gone)
    }

    /// Hands over a descriptor and a mapping that were made elsewhere (a recycled file).
    pub(crate) fn adopt(
        self: &Arc<Self>,
        budget: &Arc<Budget>,
        file: Arc<CountedFile>,
        mapping: Arc<Mapping>,
    ) {
        let adopted = self.fill(budget, |slot| {
            slot.log = Some(file);
            slot.mapping = Some(mapping);
            Ok(())
        });
        debug_assert!(adopted.is_ok(), "a new segment cannot be gone");
    }

    /// Published bytes as a slice; fails when the segment has meanwhile been cut below them.
    pub(crate) fn slice(
        self: &Arc<Self>,
        folder: &Path,
        budget: &Arc<Budget>,
        capacity_bytes: u64,
        range: std::ops::Range<u64>,
    ) -> Result<ReadSlice, SegmentError> {
        let cut = |mapping: Arc<Mapping>| {
            let position = usize::try_from(range.start).unwrap_or(usize::MAX);
            let len_bytes = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            ReadSlice::new(mapping, position, len_bytes)
        };
        {
            let slot = self.open_slot()?;
            if self.len_bytes() < range.end {
                return Err(SegmentError::Gone);
            }
            if let Some(mapping) = &slot.mapping
                && mapping.len_bytes() as u64 >= range.end
            {
                self.referenced.store(true, Ordering::Relaxed);
                return Ok(cut(Arc::clone(mapping)));
            }
        }
        let file = self.readable_log_file(folder, budget)?;
        budget.make_room();
        let capacity = usize::try_from(capacity_bytes.max(range.end)).unwrap_or(usize::MAX);
        let mapping = self.fill(budget, |slot| {
            // Checked again under the lock that a truncation takes: what was published when the
            // caller looked may be cut off by now.
            if self.len_bytes() < range.end {
                return Err(SegmentError::Gone);
            }
            let fits = |mapping: &&Arc<Mapping>| mapping.len_bytes() as u64 >= range.end;
            if let Some(mapping) = slot.mapping.as_ref().filter(fits) {
                return Ok(Arc::clone(mapping));
            }
            let made = Arc::new(Mapping::readable(&file, capacity, budget)?);
            slot.mapping = Some(Arc::clone(&made));
            Ok(made)
        });
        match mapping {
            Ok(mapping) => Ok(cut(mapping)),
            Err(SegmentError::Gone) => Err(SegmentError::Gone),
            // What cannot be mapped can mostly be read: ext4 refuses a mapping once it has turned
            // read-only, and the kernel when the process has too many.
            Err(SegmentError::Io(_)) => self.copy(&file, range),
        }
    }

    /// Published bytes in memory of their own.
    fn copy(
        &self,
        file: &CountedFile,
        range: std::ops::Range<u64>,
    ) -> Result<ReadSlice, SegmentError> {
        let len_bytes = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len_bytes];
        let read = read_at(file, &mut bytes, range.start)?;
        // Cut meanwhile: some of it may be of what came after.
        if read < len_bytes || self.open_slot().is_err() || self.len_bytes() < range.end {
            return Err(SegmentError::Gone);
        }
        Ok(ReadSlice::from_bytes(&bytes))
    }

    /// Forgets the open files, which were replaced by others of the same name.
    pub(crate) fn reopen(&self) {
        let mut slot = self.lock();
        slot.log = None;
        slot.mapping = None;
    }

    /// Ends the segment: no one gets anything of it from here on.
    pub(crate) fn end(&self) -> Ended {
        let mut slot = self.lock();
        slot.gone = true;
        slot.index = None;
        Ended { log: slot.log.take(), mapping: slot.mapping.take() }
    }

    /// Closes and unmaps what no one uses. Returns whether nothing is held any more.
    pub(crate) fn release(&self) -> bool {
        let mut slot = self.lock();
        slot.release();
        slot.is_empty()
    }

    /// Whether the clock's hand still has to know the segment.
    pub(crate) fn stays_listed(&self) -> bool {
        let mut slot = self.lock();
        slot.listed = !slot.is_empty();
        slot.listed
    }

    /// The same for the clock's hand: a segment used since the hand last passed is spared once.
    /// Returns whether the hand may forget it.
    pub(crate) fn release_if_unused(&self) -> bool {
        if self.referenced.swap(false, Ordering::Relaxed) {
            return false;
        }
        let mut slot = self.lock();
        slot.release();
        slot.listed = !slot.is_empty();
        slot.is_empty()
    }

    /// Whether anything is open.
    pub(crate) fn holds_anything(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Runs `change` on the slot and puts the segment under the clock's hand.
    fn fill<T>(
        self: &Arc<Self>,
        budget: &Arc<Budget>,
        change: impl FnOnce(&mut Slot) -> Result<T, SegmentError>,
    ) -> Result<T, SegmentError> {
        let mut slot = self.open_slot()?;
        let result = change(&mut slot)?;
        self.referenced.store(true, Ordering::Relaxed);
        let newly_listed = !slot.listed;
        slot.listed = true;
        // The budget takes its list first and a slot second; so not while the slot is locked.
        drop(slot);
        if newly_listed {
            budget.add_holder(self);
        }
        Ok(result)
    }

    fn open_slot(&self) -> Result<MutexGuard<'_, Slot>, SegmentError> {
        let slot = self.lock();
        if slot.gone { Err(SegmentError::Gone) } else { Ok(slot) }
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn file(&mut self, which: SegmentFile) -> &mut Option<Arc<CountedFile>> {
        match which {
            SegmentFile::OffsetIndex => &mut self.index,
            _ => &mut self.log,
        }
    }

    fn release(&mut self) {
        let unused_mapping =
            self.mapping.as_ref().is_some_and(|mapping| Arc::strong_count(mapping) == 1);
        if unused_mapping {
            self.mapping = None;
        }
        for file in [&mut self.log, &mut self.index] {
            if file.as_ref().is_some_and(|file| Arc::strong_count(file) == 1) {
                *file = None;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.log.is_none() && self.index.is_none() && self.mapping.is_none()
    }
}

/// Reads exactly `buffer` at `position`.
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], position: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, position)
}

/// Reads up to `buffer` at `position`; less at the end of the file.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], position: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = position + filled as u64;
        match std::os::unix::fs::FileExt::read_at(file, &mut buffer[filled..], at) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` at `position`.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], position: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_mapped_is_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(SegmentFile::Log.path(folder.path(), Offset(0)), b"published").unwrap();
        let segment = Segment::new(Offset(0), 9);
        let budget = Budget::new(16, 16);
        // More than any address space: the kernel refuses the mapping.
        let slice = segment.slice(folder.path(), &budget, 1 << 60, 3..9).unwrap();
        assert_eq!(slice.to_vec(), b"lished");
        let beyond = segment.slice(folder.path(), &budget, 1 << 60, 3..10);
        assert!(matches!(beyond, Err(SegmentError::Gone)));
    }
}
