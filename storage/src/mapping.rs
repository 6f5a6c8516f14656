//! Mapped files. All `unsafe` of this crate lives here.

use std::sync::Arc;

/// A mapped segment file.
#[derive(Debug)]
pub struct Mapping {}

/// Writable memory at the tail of a segment, to be filled by the kernel (a socket receive).
///
/// Holds the mapping, so the memory outlives the log while an operation is in flight.
#[derive(Debug, Clone)]
pub struct MappedTail {
    mapping: Arc<Mapping>,
    position: usize,
    len_bytes: usize,
}

impl MappedTail {
    /// Where the bytes go. Valid while `self` lives; only the ring may write there.
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        let _ = (&self.mapping, self.position);
        todo!()
    }

    /// Bytes of room.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
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
    /// Start of the bytes; valid while `self` lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        let _ = (&self.mapping, self.position);
        todo!()
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
        todo!()
    }
}
