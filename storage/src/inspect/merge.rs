//! Reading a segment's index files in step with the segment itself.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

/// Entries of `N` bytes, one ahead.
#[derive(Debug)]
pub(super) struct Entries<const N: usize> {
    file: Option<BufReader<File>>,
    next: Option<[u8; N]>,
    /// Bytes after the last whole entry.
    odd_bytes: usize,
}

impl<const N: usize> Entries<N> {
    /// Opens an index file; one that is missing has no entries.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Ok(file) => Some(BufReader::new(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut entries = Self { file, next: None, odd_bytes: 0 };
        entries.advance()?;
        Ok(entries)
    }

    /// Takes the next entry if `wanted` says so.
    pub(super) fn next_if(
        &mut self,
        wanted: impl FnOnce(&[u8; N]) -> bool,
    ) -> io::Result<Option<[u8; N]>> {
        if !self.next.as_ref().is_some_and(wanted) {
            return Ok(None);
        }
        let entry = self.next;
        self.advance()?;
        Ok(entry)
    }

    /// Bytes at the end that are less than an entry; known once all entries are taken.
    pub(super) fn odd_bytes(&self) -> usize {
        self.odd_bytes
    }

    fn advance(&mut self) -> io::Result<()> {
        self.next = None;
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut entry = [0; N];
        let mut filled = 0;
        while filled < N {
            match file.read(&mut entry[filled..]) {
                Ok(0) => break,
                Ok(len_bytes) => filled += len_bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
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
