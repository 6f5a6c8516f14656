//! Reading a segment's index files in step with the segment itself.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::Offset;
use crate::index::{IndexEntry, OffsetEntry, TimeEntry};
use crate::segment::SegmentFile;
use crate::txns::{ABORTED_ENTRY_BYTES, AbortedTxn, TransactionParseError, aborted_entries};

/// A failed read and the file it was of.
pub(super) type ReadFailure = (PathBuf, io::Error);

/// The index files of the segment being read, and what was seen of it.
pub(super) struct SegmentIndexes {
    base: Offset,
    pub(super) offsets: IndexFile<{ OffsetEntry::BYTES }>,
    pub(super) times: IndexFile<{ TimeEntry::BYTES }>,
    pub(super) aborted: IndexFile<ABORTED_ENTRY_BYTES>,
    /// The largest timestamp of the batches so far, -1 before the first.
    pub(super) largest_timestamp: i64,
    /// A broker preallocates the indexes of its active segment with zeros.
    zeros_allowed: bool,
}

impl SegmentIndexes {
    pub(super) fn open(folder: &Path, base: Offset, last: bool) -> Result<Self, ReadFailure> {
        Ok(Self {
            base,
            offsets: IndexFile::open(SegmentFile::OffsetIndex.path(folder, base))?,
            times: IndexFile::open(SegmentFile::TimeIndex.path(folder, base))?,
            aborted: IndexFile::open(SegmentFile::AbortedIndex.path(folder, base))?,
            largest_timestamp: -1,
            zeros_allowed: last,
        })
    }

    /// The next offset entry whose position is at or before `position`, as offset and position.
    pub(super) fn offset_entry_through(
        &mut self,
        position: u64,
    ) -> Result<Option<(Offset, u64)>, ReadFailure> {
        let zeros_allowed = self.zeros_allowed;
        let entry = self.offsets.next_if(|entry| {
            let preallocated = zeros_allowed && is_zero(entry);
            !preallocated && u64::from(OffsetEntry::decode(entry).position) <= position
        })?;
        Ok(entry.map(|entry| {
            let entry = OffsetEntry::decode(&entry);
            (self.base.plus(i64::from(entry.relative)), u64::from(entry.position))
        }))
    }

    /// The next time entry whose offset is at or before `offset`, as offset and timestamp.
    pub(super) fn time_entry_through(
        &mut self,
        offset: Offset,
    ) -> Result<Option<(Offset, i64)>, ReadFailure> {
        let (base, zeros_allowed) = (self.base, self.zeros_allowed);
        let decode = |entry: &[u8]| {
            let entry = TimeEntry::decode(entry);
            (base.plus(i64::from(entry.relative)), entry.timestamp_ms)
        };
        let entry = self.times.next_if(|entry| {
            let preallocated = zeros_allowed && is_zero(entry);
            !preallocated && decode(entry).0 <= offset
        })?;
        Ok(entry.map(|entry| decode(&entry)))
    }

    /// The next aborted entry whose marker is at or before `offset`, or one that is unreadable.
    pub(super) fn aborted_entry_through(
        &mut self,
        offset: Offset,
    ) -> Result<Option<Result<AbortedTxn, TransactionParseError>>, ReadFailure> {
        let parse = |entry: &[u8]| aborted_entries(entry).next();
        let entry = self.aborted.next_if(|entry| match parse(entry) {
            Some(Ok(entry)) => entry.last_offset <= offset,
            _ => true,
        })?;
        Ok(entry.and_then(|entry| parse(&entry)))
    }

    /// Each file and its bytes after the last whole entry; known once all entries are taken.
    pub(super) fn odd_bytes(&self) -> [(&Path, usize); 3] {
        [
            (&self.offsets.path, self.offsets.odd_bytes),
            (&self.times.path, self.times.odd_bytes),
            (&self.aborted.path, self.aborted.odd_bytes),
        ]
    }
}

/// An index file of entries of `N` bytes, one ahead.
#[derive(Debug)]
pub(super) struct IndexFile<const N: usize> {
    pub(super) path: PathBuf,
    file: Option<BufReader<File>>,
    next: Option<[u8; N]>,
    odd_bytes: usize,
}

impl<const N: usize> IndexFile<N> {
    /// One that is missing has no entries.
    fn open(path: PathBuf) -> Result<Self, ReadFailure> {
        let file = match File::open(&path) {
            Ok(file) => Some(BufReader::new(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err((path, error)),
        };
        let mut index = Self { path, file, next: None, odd_bytes: 0 };
        index.advance()?;
        Ok(index)
    }

    /// Takes the next entry if `wanted` says so.
    fn next_if(
        &mut self,
        wanted: impl FnOnce(&[u8; N]) -> bool,
    ) -> Result<Option<[u8; N]>, ReadFailure> {
        if !self.next.as_ref().is_some_and(wanted) {
            return Ok(None);
        }
        let entry = self.next;
        self.advance()?;
        Ok(entry)
    }

    fn advance(&mut self) -> Result<(), ReadFailure> {
        self.next = None;
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut entry = [0; N];
        let mut filled = 0;
        while filled < N {
            match file.read(&mut entry[filled..]) {
                Ok(0) => break,
                Ok(len_bytes) => filled += len_bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err((self.path.clone(), error)),
            }
        }
        if filled == N {
            self.next = Some(entry);
        } else {
            self.odd_bytes = filled;
            self.file = None;
        }
        Ok(())
    }
}

fn is_zero(entry: &[u8]) -> bool {
    entry.iter().all(|byte| *byte == 0)
}
