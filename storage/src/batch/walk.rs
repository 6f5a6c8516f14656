//! Streaming validation of record batches: bytes in any pieces, verified batches out.

use super::BatchInfo;

/// Bounds on what a peer may send.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Largest batch accepted, in bytes, header included.
    pub batch_bytes_max: u32,
}

/// Why bytes are not a batch. Each names the field and the values, for the operator's eyes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The checksum does not cover the bytes that arrived.
    #[error(
        "batch at offset {base_offset}: checksum is {computed:#010x}, header says {stored:#010x}"
    )]
    Checksum {
        /// Base offset claimed by the header.
        base_offset: i64,
        /// Checksum of the bytes.
        computed: u32,
        /// Checksum in the header.
        stored: u32,
    },
}

/// Checks a stream of batches as it arrives, without holding it.
///
/// Keeps only the header of the current batch, its running checksum and the first bytes of a
/// control record, so a batch of any size costs the same memory.
#[derive(Debug)]
pub struct BatchValidator {}

impl BatchValidator {
    /// A validator at a batch boundary.
    #[must_use]
    pub fn new(_limits: BatchLimits) -> Self {
        todo!()
    }

    /// Takes bytes from the front of `bytes` up to the end of the current batch, if it is there.
    ///
    /// Returns the batch when it is complete and its checksum holds; `None` when more bytes are
    /// needed (all of `bytes` was taken).
    pub fn feed(&mut self, _bytes: &mut &[u8]) -> Result<Option<BatchInfo>, BatchError> {
        todo!()
    }

    /// The header of the batch in progress, as soon as all of it has arrived; not yet verified.
    #[must_use]
    pub fn header(&self) -> Option<&BatchInfo> {
        todo!()
    }

    /// Bytes taken since the last complete batch.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        todo!()
    }

    /// Forgets an unfinished batch.
    pub fn reset(&mut self) {
        todo!()
    }
}
