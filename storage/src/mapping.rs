//! Mapped files. All `unsafe` of this crate lives here.
//!
//! Owns address ranges, never file contents: a [`Mapping`] ends when its last holder ends, whatever
//! became of the file. Any thread may hold one. This process must never store through one: the only
//! writer is the kernel, past the published end, by a socket receive into a [`MappedTail`] or by
//! [`MappedTail::write`], so that a failing disk is an error and not a signal.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::budget::Budget;

/// Longest range that [`Mapping::zero`] takes.
pub(crate) const ZEROED_AT_ONCE_MAX: usize = 64 * 1024;

/// Ranges written by one call: half of what the kernel takes.
const RANGES_AT_ONCE_MAX: usize = 512;

/// A mapped segment file, or memory that stands in for one.
#[derive(Debug)]
pub(crate) struct Mapping {
    memory: Memory,
    budget: Option<Arc<Budget>>,
}

#[derive(Debug)]
enum Memory {
    File(MmapRaw),
    Heap(Box<[u8]>),
}

impl Mapping {
    /// Maps `capacity_bytes` of `file` for reading. The file may still be shorter: what lies past
    /// its end must not be touched, and nothing past the published end ever is.
    pub(crate) fn readable(
        file: &File,
        capacity_bytes: usize,
        budget: &Arc<Budget>,
    ) -> std::io::Result<Self> {
        let raw = MmapOptions::new().len(capacity_bytes).map_raw_read_only(file)?;
        Ok(Self::counted(raw, budget))
    }

    /// Maps `capacity_bytes` of `file` for the kernel to receive into.
    pub(crate) fn writable(
        file: &File,
        capacity_bytes: usize,
        budget: &Arc<Budget>,
    ) -> std::io::Result<Self> {
        let raw = MmapOptions::new().len(capacity_bytes).map_raw(file)?;
        Ok(Self::counted(raw, budget))
    }

    fn counted(raw: MmapRaw, budget: &Arc<Budget>) -> Self {
        budget.mapping_made();
        Self { memory: Memory::File(raw), budget: Some(Arc::clone(budget)) }
    }

    /// Makes every page present and writable, so that a receive into it takes no fault.
    pub(crate) fn populate(&self) -> std::io::Result<()> {
        match &self.memory {
            Memory::File(raw) => raw.advise(Advice::PopulateWrite),
            Memory::Heap(_) => Ok(()),
        }
    }

    /// Overwrites ranges of a writable mapping with zeros, by the kernel as
    /// [`MappedTail::write`] does. `false` when not all of them could be written.
    ///
    /// The caller knows that no one reads them and no receive is in flight.
    pub(crate) fn zero(&self, ranges: &[Range<usize>]) -> bool {
        static ZEROS: [u8; ZEROED_AT_ONCE_MAX] = [0; ZEROED_AT_ONCE_MAX];
        let Memory::File(raw) = &self.memory else { return false };
        let mut from = Vec::with_capacity(RANGES_AT_ONCE_MAX);
        let mut to = Vec::with_capacity(RANGES_AT_ONCE_MAX);
        for group in ranges.chunks(RANGES_AT_ONCE_MAX) {
            from.clear();
            to.clear();
            for range in group {
                if range.len() > ZEROED_AT_ONCE_MAX || range.end > raw.len() {
                    return false;
                }
                let zeros = ZEROS.as_ptr().cast_mut().cast();
                from.push(libc::iovec { iov_base: zeros, iov_len: range.len() });
                let start = raw.as_mut_ptr().wrapping_add(range.start).cast();
                to.push(libc::iovec { iov_base: start, iov_len: range.len() });
            }
            let count = group.len() as libc::c_ulong;
            // SAFETY: the kernel reads zeros that are never written and writes ranges that were
            // checked to lie inside the mapping, which `self` keeps alive.
            let written = unsafe {
                libc::process_vm_writev(libc::getpid(), from.as_ptr(), count, to.as_ptr(), count, 0)
            };
            let wanted = group.iter().map(ExactSizeIterator::len).sum();
            if !usize::try_from(written).is_ok_and(|written| written == wanted) {
                return false;
            }
        }
        true
    }

    /// Bytes of address space.
    pub(crate) fn len_bytes(&self) -> usize {
        match &self.memory {
            Memory::File(raw) => raw.len(),
            Memory::Heap(bytes) => bytes.len(),
        }
    }

    fn as_ptr(&self) -> *const u8 {
        match &self.memory {
            Memory::File(raw) => raw.as_ptr(),
            Memory::Heap(bytes) => bytes.as_ptr(),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.mapping_dropped();
        }
    }
}

/// Writable memory at the tail of a segment, to be filled by the kernel (a socket receive).
///
/// Holds the mapping, so the memory outlives the log while an operation is in flight. When the
/// segment is cut meanwhile (the log was truncated, closed or deleted under a receive), the kernel
/// ends the receive with a bad-address error; nothing else happens.
#[derive(Debug, Clone)]
pub struct MappedTail {
    mapping: Arc<Mapping>,
    position: usize,
    len_bytes: usize,
}

impl MappedTail {
    /// The bytes of `mapping` from `position` to its end.
    pub(crate) fn new(mapping: Arc<Mapping>, position: usize) -> Self {
        let len_bytes = mapping.len_bytes().saturating_sub(position);
        Self { mapping, position, len_bytes }
    }

    /// Where the bytes go. Valid while `self` lives; only the ring may write there.
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        match &self.mapping.memory {
            Memory::File(raw) => raw.as_mut_ptr().wrapping_add(self.position),
            // Never made: a tail is only ever taken from a writable file mapping.
            Memory::Heap(_) => std::ptr::null_mut(),
        }
    }

    /// Bytes of room.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The first `len_bytes`, which the kernel has filled.
    ///
    /// The caller says so by [`crate::Log::landed_in_place`]: no receive into them is in flight.
    pub(crate) fn received(&self, len_bytes: usize) -> &[u8] {
        let len_bytes = len_bytes.min(self.len_bytes);
        // SAFETY: the range lies inside the mapping, which `self` keeps alive. The kernel has
        // finished its writes here, and no code of this process writes through a mapping. The pages
        // were written a moment ago, so they are in the page cache and inside the file, whose end
        // is only moved by the log's owner, who is the caller.
        unsafe { std::slice::from_raw_parts(self.as_mut_ptr(), len_bytes) }
    }

    /// Writes `bytes` at the front. `false` when they do not fit or could not all be written.
    ///
    /// The kernel writes them, as it does for another process: a store of our own would be a signal
    /// when the disk fails, and a `pwrite` goes through the file system, which walks the whole of a
    /// large page for a few bytes: 8 us and more against 1 us (measured, ext4 on Linux 6.18).
    pub(crate) fn write(&self, bytes: &[u8]) -> bool {
        if bytes.len() > self.len_bytes {
            return false;
        }
        let from = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let to = libc::iovec { iov_base: self.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the kernel reads `bytes` and writes a range that lies inside the mapping, which
        // `self` keeps alive. The caller is the log's owner, so no receive into it is in flight, and
        // nobody reads past the published end. What cannot be written is told by the count.
        let count = unsafe { libc::process_vm_writev(libc::getpid(), &from, 1, &to, 1, 0) };
        usize::try_from(count).is_ok_and(|count| count == bytes.len())
    }

    /// What is left after `len_bytes` were received.
    pub(crate) fn advanced(&self, len_bytes: usize) -> Self {
        let len_bytes = len_bytes.min(self.len_bytes);
        Self {
            mapping: Arc::clone(&self.mapping),
            position: self.position + len_bytes,
            len_bytes: self.len_bytes - len_bytes,
        }
    }

    /// The room as it was before the last `len_bytes` were received.
    pub(crate) fn rewound(&self, len_bytes: usize) -> Self {
        let len_bytes = len_bytes.min(self.position);
        Self {
            mapping: Arc::clone(&self.mapping),
            position: self.position - len_bytes,
            len_bytes: self.len_bytes + len_bytes,
        }
    }
}

/// Published bytes of one segment, kept mapped while this lives.
///
/// For the kernel to read (a socket send): a failing disk then ends the operation with an error
/// instead of ending the process.
#[derive(Debug, Clone)]
pub struct ReadSlice {
    mapping: Arc<Mapping>,
    position: usize,
    len_bytes: usize,
}

impl ReadSlice {
    /// `len_bytes` of `mapping` from `position`; panics when they are not inside it.
    pub(crate) fn new(mapping: Arc<Mapping>, position: usize, len_bytes: usize) -> Self {
        let end = position.checked_add(len_bytes);
        assert!(
            end.is_some_and(|end| end <= mapping.len_bytes()),
            "slice of {len_bytes} bytes at {position} leaves a mapping of {} bytes",
            mapping.len_bytes()
        );
        Self { mapping, position, len_bytes }
    }

    /// A slice of memory that belongs to no segment: for answers made by hand and for tests.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mapping = Mapping { memory: Memory::Heap(bytes.into()), budget: None };
        Self { mapping: Arc::new(mapping), position: 0, len_bytes: bytes.len() }
    }

    /// Start of the bytes; valid while `self` lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.mapping.as_ptr().wrapping_add(self.position)
    }

    /// Number of bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Cuts the first `len_bytes` off (all, if there are fewer) and returns them; `self` keeps the
    /// rest. Both keep the mapping.
    #[must_use]
    pub fn split_to(&mut self, len_bytes: usize) -> Self {
        let front_bytes = len_bytes.min(self.len_bytes);
        let front = Self { len_bytes: front_bytes, ..self.clone() };
        self.position += front_bytes;
        self.len_bytes -= front_bytes;
        front
    }

    /// A copy of the bytes, for readers off the hot path.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        // SAFETY: the range was checked against the mapping, which `self` keeps alive. It lies
        // below the published end, which no one writes to again: a truncation leaves a segment with
        // live slices alone and goes on in a copy, and a recycled file has no live slice.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len_bytes) }.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn writing_to_a_tail_touches_nothing_else() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0xff; 64 * 1024]).unwrap();
        let budget = Budget::new(8, 8);
        let mapping = Arc::new(Mapping::writable(&file, 64 * 1024, &budget).unwrap());
        // Across a page's end, and up to the end of the mapping.
        assert!(MappedTail::new(Arc::clone(&mapping), 4090).write(&[1; 61]));
        assert!(MappedTail::new(Arc::clone(&mapping), 65_530).write(&[2; 6]));
        assert!(!MappedTail::new(mapping, 65_530).write(&[3; 7]), "beyond the mapping");
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let mut expected = vec![0xff; 64 * 1024];
        expected[4090..4151].fill(1);
        expected[65_530..].fill(2);
        assert!(bytes == expected);
    }

    #[test]
    fn zeroing_ranges_touches_nothing_else() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0xff; 200 * 1024]).unwrap();
        let budget = Budget::new(8, 8);
        let mapping = Mapping::writable(&file, 200 * 1024, &budget).unwrap();
        let mut ranges: Vec<_> = (0..1500).map(|number| number * 100..number * 100 + 61).collect();
        ranges.push(150_000..200 * 1024);
        assert!(mapping.zero(&ranges));
        let beyond = 200 * 1024 - 5..200 * 1024 + 1;
        assert!(!mapping.zero(std::slice::from_ref(&beyond)), "beyond the mapping");
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let mut expected = vec![0xff; 200 * 1024];
        ranges.into_iter().for_each(|range| expected[range].fill(0));
        assert!(bytes == expected);
    }

    #[test]
    fn writing_past_the_end_of_a_cut_file_is_refused_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * 1024).unwrap();
        let budget = Budget::new(8, 8);
        let mapping = Arc::new(Mapping::writable(&file, 64 * 1024, &budget).unwrap());
        file.set_len(4096).unwrap();
        assert!(!MappedTail::new(Arc::clone(&mapping), 8192).write(&[1; 61]));
        assert!(!MappedTail::new(mapping, 4090).write(&[1; 61]), "half of it is no success");
    }
}
