//! The offset and time indexes of a segment, in Kafka's formats.
//!
//! An index file is a row of entries of one size, in ascending order. Sealed ones are searched on
//! disk by `pread`, never held in memory. The active segment's last entries are held until there is
//! a page of them ([`IndexTail`]). Nothing here is authoritative: every entry can be made again
//! from the segment.

use std::fs::File;
use std::io;

use crate::segment::{read_exact_at, write_all_at};

/// Entries read at once at the end of a search.
const SEARCH_BLOCK_ENTRIES: u32 = 128;

/// Entries held before they are written: one page of the offset index.
pub(crate) const BUFFERED_ENTRIES_MAX: usize = 512;

/// An entry of an index file.
pub(crate) trait IndexEntry: Copy {
    /// Its size on disk.
    const BYTES: usize;

    fn decode(bytes: &[u8]) -> Self;
    fn encode(&self, bytes: &mut Vec<u8>);
}

/// Where the batch that ends at an offset starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    /// Last offset of the batch, relative to the segment's base.
    pub(crate) relative: u32,
    /// Where the batch starts in the log file.
    pub(crate) position: u32,
}

impl IndexEntry for OffsetEntry {
    const BYTES: usize = 8;

    fn decode(bytes: &[u8]) -> Self {
        Self { relative: u32_at(bytes, 0), position: u32_at(bytes, 4) }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.relative.to_be_bytes());
        bytes.extend_from_slice(&self.position.to_be_bytes());
    }
}

/// The largest timestamp up to an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    /// In milliseconds.
    pub(crate) timestamp_ms: i64,
    /// Last offset of the batch that has it, relative to the segment's base.
    pub(crate) relative: u32,
}

impl IndexEntry for TimeEntry {
    const BYTES: usize = 12;

    fn decode(bytes: &[u8]) -> Self {
        let mut timestamp = [0; 8];
        timestamp.copy_from_slice(&bytes[..8]);
        Self { timestamp_ms: i64::from_be_bytes(timestamp), relative: u32_at(bytes, 8) }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.timestamp_ms.to_be_bytes());
        bytes.extend_from_slice(&self.relative.to_be_bytes());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(value)
}

/// Whole entries in a file of this length.
pub(crate) fn entries_in<E: IndexEntry>(file_bytes: u64) -> u32 {
    u32::try_from(file_bytes / E::BYTES as u64).unwrap_or(u32::MAX)
}

/// Reads entry `number`.
pub(crate) fn entry_at<E: IndexEntry>(file: &File, number: u32) -> io::Result<E> {
    let mut bytes = [0; 16];
    read_exact_at(file, &mut bytes[..E::BYTES], u64::from(number) * E::BYTES as u64)?;
    Ok(E::decode(&bytes[..E::BYTES]))
}

/// How many of the first `entries` satisfy `holds`, which must be true up to a point and false
/// after it; and the entries around that point.
pub(crate) fn search<E: IndexEntry>(
    file: &File,
    entries: u32,
    holds: impl Fn(&E) -> bool,
) -> io::Result<Found<E>> {
    let (mut low, mut high) = (0, entries);
    let mut before = None;
    while high - low > SEARCH_BLOCK_ENTRIES {
        let middle = low + (high - low) / 2;
        let entry = entry_at::<E>(file, middle)?;
        if holds(&entry) {
            before = Some(entry);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // One more than undecided, so that the entry after the point is read with them.
    let count = (high - low).saturating_add(1).min(entries - low) as usize;
    let mut bytes = [0; (SEARCH_BLOCK_ENTRIES as usize + 1) * 12];
    let block = &mut bytes[..count * E::BYTES];
    read_exact_at(file, block, u64::from(low) * E::BYTES as u64)?;
    for chunk in block.chunks_exact(E::BYTES) {
        let entry = E::decode(chunk);
        if !holds(&entry) {
            return Ok(Found { before, after: Some(entry) });
        }
        before = Some(entry);
    }
    Ok(Found { before, after: None })
}

/// The neighbours of a searched point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<E> {
    /// The last entry that satisfies the condition.
    pub(crate) before: Option<E>,
    /// The first one that does not.
    pub(crate) after: Option<E>,
}

/// The end of the active segment's index: what is on disk, and what is not yet.
#[derive(Clone, Debug)]
pub(crate) struct IndexTail<E> {
    written: u32,
    last: Option<E>,
    buffered: Vec<E>,
}

/// Where a search has to look.
pub(crate) enum TailSearch<E> {
    /// Found among the buffered entries.
    Found(Found<E>),
    /// In the first so many entries of the file; `after` comes next if all of them satisfy.
    OnDisk { entries: u32, after: Option<E> },
}

impl<E: IndexEntry> Default for IndexTail<E> {
    fn default() -> Self {
        Self { written: 0, last: None, buffered: Vec::new() }
    }
}

impl<E: IndexEntry> IndexTail<E> {
    /// The tail of an index with `written` entries in its file.
    pub(crate) fn resume(written: u32, last: Option<E>) -> Self {
        Self { written, last, buffered: Vec::new() }
    }

    pub(crate) fn push(&mut self, entry: E) {
        self.buffered.push(entry);
        self.last = Some(entry);
    }

    pub(crate) fn last(&self) -> Option<E> {
        self.last
    }

    /// Entries, written or not.
    pub(crate) fn entries(&self) -> u32 {
        self.written + u32::try_from(self.buffered.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn buffered(&self) -> &[E] {
        &self.buffered
    }

    pub(crate) fn search(&self, holds: impl Fn(&E) -> bool) -> TailSearch<E> {
        let point = self.buffered.partition_point(&holds);
        let after = self.buffered.get(point).copied();
        if point == 0 && self.written > 0 {
            return TailSearch::OnDisk { entries: self.written, after };
        }
        let before = point.checked_sub(1).map(|at| self.buffered[at]);
        TailSearch::Found(Found { before, after })
    }

    /// The buffered entries as the file wants them, and where they go.
    pub(crate) fn unwritten(&self) -> Unwritten {
        let mut bytes = Vec::with_capacity(self.buffered.len() * E::BYTES);
        for entry in &self.buffered {
            entry.encode(&mut bytes);
        }
        Unwritten { position: u64::from(self.written) * E::BYTES as u64, bytes }
    }

    /// Forgets the buffered entries, which are in the file now, and gives their memory back.
    pub(crate) fn mark_written(&mut self) {
        self.written = self.entries();
        self.buffered = Vec::new();
    }
}

/// Encoded entries on their way to an index file.
pub(crate) struct Unwritten {
    position: u64,
    bytes: Vec<u8>,
}

impl Unwritten {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn write_to(&self, file: &File) -> io::Result<()> {
        write_all_at(file, &self.bytes, self.position)
    }

    /// The length of the file with these entries at its end.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(entries: &[OffsetEntry]) -> File {
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        let file = tempfile::tempfile().unwrap();
        write_all_at(&file, &bytes, 0).unwrap();
        file
    }

    #[test]
    fn a_search_on_disk_finds_the_same_neighbours_as_one_in_memory() {
        for count in [0u32, 1, 2, 127, 128, 129, 130, 1000] {
            let entries: Vec<_> = (0..count)
                .map(|number| OffsetEntry { relative: number * 3 + 2, position: number * 100 })
                .collect();
            let file = file_of(&entries);
            for target in 0..=count * 3 + 3 {
                let point = entries.partition_point(|entry| entry.relative <= target);
                let found =
                    search::<OffsetEntry>(&file, count, |entry| entry.relative <= target).unwrap();
                let before = point.checked_sub(1).map(|at| entries[at]);
                assert_eq!(
                    found,
                    Found { before, after: entries.get(point).copied() },
                    "{target} among {count}"
                );
            }
        }
    }

    #[test]
    fn a_tail_search_looks_on_disk_only_below_the_buffered_entries() {
        let written = [OffsetEntry { relative: 5, position: 0 }];
        let mut tail = IndexTail::resume(1, Some(written[0]));
        let buffered = OffsetEntry { relative: 9, position: 4100 };
        tail.push(buffered);
        let below = tail.search(|entry: &OffsetEntry| entry.relative <= 8);
        assert!(matches!(below, TailSearch::OnDisk { entries: 1, after: Some(entry) }
            if entry == buffered));
        let at = tail.search(|entry: &OffsetEntry| entry.relative <= 9);
        assert!(matches!(at, TailSearch::Found(Found { before: Some(entry), after: None })
            if entry == buffered));
    }

    #[test]
    fn time_entries_are_twelve_bytes_big_endian() {
        let entry = TimeEntry { timestamp_ms: 0x0102_0304_0506_0708, relative: 0x0a0b_0c0d };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13]);
        assert_eq!(TimeEntry::decode(&bytes), entry);
    }
}
