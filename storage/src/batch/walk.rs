//! Streaming validation of record batches: bytes in any pieces, verified batches out.
//!
//! Owns no bytes and does no I/O; runs on whichever thread receives or recovers a log. It must
//! never hand out a batch whose checksum it has not computed, and never trust a length before it
//! has checked it.

use super::header::{self, BatchInfo};
use super::layout::{self, v2};

/// Bounds on what a peer may send.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Largest batch accepted, in bytes, header included.
    pub batch_bytes_max: u32,
}

/// Why bytes are not a batch. Each names the field and the values, for the operator's eyes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The format number is none that Kafka has; the bytes are no batch at all.
    #[error("batch at offset {base_offset}: unknown message format {magic} (0, 1 and 2 exist)")]
    Magic {
        /// Base offset claimed by the header.
        base_offset: i64,
        /// The format number found.
        magic: i8,
    },
    /// The length field leaves no room for the header.
    #[error(
        "batch at offset {base_offset}: {size_bytes} bytes long, format {magic} has at least {bytes_min}"
    )]
    TooShort {
        /// Base offset claimed by the header.
        base_offset: i64,
        /// The format number.
        magic: i8,
        /// The length found, header included; negative when the field is.
        size_bytes: i64,
        /// The least a batch of this format has.
        bytes_min: usize,
    },
    /// The batch is larger than the limit.
    #[error("batch at offset {base_offset}: {size_bytes} bytes long, the limit is {bytes_max}")]
    TooLarge {
        /// Base offset claimed by the header.
        base_offset: i64,
        /// The length found, header included.
        size_bytes: i64,
        /// The limit.
        bytes_max: u32,
    },
    /// An offset below zero, or the largest number, which nothing could follow.
    #[error("batch at offset {base_offset}: offsets run from 0 to {max}", max = i64::MAX - 1)]
    OffsetRange {
        /// Base offset claimed by the header.
        base_offset: i64,
    },
    /// The last offset lies before the first, or beyond the largest offset there is.
    #[error("batch at offset {base_offset}: impossible last offset delta {delta}")]
    LastOffsetDelta {
        /// Base offset claimed by the header.
        base_offset: i64,
        /// The delta found.
        delta: i32,
    },
    /// The record count is negative, or larger than the offsets the batch spans.
    #[error("batch at offset {base_offset}: {record_count} records cannot have {offsets} offsets")]
    RecordCount {
        /// Base offset claimed by the header.
        base_offset: i64,
        /// The count found.
        record_count: i32,
        /// Offsets from the first to the last.
        offsets: i64,
    },
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
    /// A control batch whose first record has no readable type. Which transaction it ends is
    /// unknown, so it cannot be passed over.
    #[error("control batch at offset {base_offset}: its first record cannot be read")]
    ControlRecord {
        /// Base offset claimed by the header.
        base_offset: i64,
    },
}

/// The longest first part of a control record that holds its type: length (5), attributes (1),
/// timestamp delta (10), offset delta (5), key length (5), version (2), type (2), and 2 to spare.
const CONTROL_BYTES_MAX: usize = 32;

/// Checks a stream of batches as it arrives, without holding it.
///
/// Keeps only the header of the current batch, its running checksum and the first bytes of a
/// control record, so a batch of any size costs the same memory.
#[derive(Debug)]
pub struct BatchValidator {
    limits: BatchLimits,
    /// Bytes of the current batch taken so far.
    taken_bytes: usize,
    /// The checksum over what was taken of the part it covers.
    checksum: u32,
    /// Set once the header is complete and plausible.
    header: Option<BatchInfo>,
    /// Set by the first error: what follows damage has no meaning until [`BatchValidator::reset`].
    failed: Option<BatchError>,
    /// The header as it arrives, then the start of the first record.
    head: [u8; header::HEADER_BYTES_MAX + CONTROL_BYTES_MAX],
}

impl BatchValidator {
    /// A validator at a batch boundary.
    #[must_use]
    pub fn new(limits: BatchLimits) -> Self {
        Self {
            limits,
            taken_bytes: 0,
            checksum: 0,
            header: None,
            failed: None,
            head: [0; header::HEADER_BYTES_MAX + CONTROL_BYTES_MAX],
        }
    }

    /// Takes bytes from the front of `bytes` up to the end of the current batch, if it is there.
    ///
    /// Returns the batch when it is complete and its checksum holds; `None` when more bytes are
    /// needed (all of `bytes` was taken). After an error every call gives the same error until
    /// [`BatchValidator::reset`].
    pub fn feed(&mut self, bytes: &mut &[u8]) -> Result<Option<BatchInfo>, BatchError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.advance(bytes);
        match &result {
            Ok(Some(_)) => self.reset(),
            Ok(None) => {}
            Err(error) => self.failed = Some(error.clone()),
        }
        result
    }

    /// Forgets an unfinished batch, and an error.
    pub fn reset(&mut self) {
        self.taken_bytes = 0;
        self.header = None;
        self.failed = None;
    }

    /// The header of the batch in progress, as soon as all of it has arrived; not yet verified.
    #[must_use]
    pub fn header(&self) -> Option<&BatchInfo> {
        self.header.as_ref()
    }

    /// Bytes taken since the last complete batch.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        self.taken_bytes
    }

    fn advance(&mut self, bytes: &mut &[u8]) -> Result<Option<BatchInfo>, BatchError> {
        if self.header.is_none() {
            if !self.take_head(bytes, layout::MAGIC_AT + 1) {
                return Ok(None);
            }
            let header_bytes = header::header_bytes(&self.head)?;
            if !self.take_head(bytes, header_bytes) {
                return Ok(None);
            }
            let info = header::parse(&self.head[..header_bytes], &self.limits)?;
            self.checksum =
                checksum(info.magic, 0, &self.head[header::checksum_at(info.magic)..header_bytes]);
            self.header = Some(info);
        }
        let Some(info) = &self.header else { return Ok(None) };
        let body = take(bytes, info.size_bytes as usize - self.taken_bytes);
        if info.attributes.is_control() && self.taken_bytes < self.head.len() {
            let kept = body.len().min(self.head.len() - self.taken_bytes);
            self.head[self.taken_bytes..self.taken_bytes + kept].copy_from_slice(&body[..kept]);
        }
        self.checksum = checksum(info.magic, self.checksum, body);
        self.taken_bytes += body.len();
        if self.taken_bytes < info.size_bytes as usize { Ok(None) } else { self.complete() }
    }

    fn complete(&mut self) -> Result<Option<BatchInfo>, BatchError> {
        let Some(mut info) = self.header.clone() else { return Ok(None) };
        if self.checksum != info.crc {
            return Err(BatchError::Checksum {
                base_offset: info.base_offset.0,
                computed: self.checksum,
                stored: info.crc,
            });
        }
        // Compaction leaves a control batch without records once its transaction is gone.
        if info.attributes.is_control() && info.record_count > 0 {
            let end = self.taken_bytes.min(self.head.len());
            let marker = header::control_marker(&self.head[v2::HEADER_BYTES..end])
                .ok_or(BatchError::ControlRecord { base_offset: info.base_offset.0 })?;
            info.control = Some(marker);
        }
        Ok(Some(info))
    }

    /// Fills the head up to `wanted` bytes; whether they are there.
    fn take_head(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.taken_bytes);
        let part = take(bytes, missing);
        self.head[self.taken_bytes..self.taken_bytes + part.len()].copy_from_slice(part);
        self.taken_bytes += part.len();
        part.len() == missing
    }
}

/// One batch found in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkedBatch<'a> {
    /// Where it starts in the buffer.
    pub position: usize,
    /// Its header.
    pub info: BatchInfo,
    /// All its bytes.
    pub bytes: &'a [u8],
}

/// The whole batches of a buffer, in order. Ends at the buffer's end, at a batch that is cut
/// short, or after the first error.
#[derive(Debug)]
pub struct Walk<'a> {
    buffer: &'a [u8],
    position: usize,
    limits: BatchLimits,
    verify: bool,
    failed: bool,
}

/// Walks batches and verifies their checksums.
#[must_use]
pub fn walk(buffer: &[u8], limits: BatchLimits) -> Walk<'_> {
    Walk { buffer, position: 0, limits, verify: true, failed: false }
}

/// Walks batches by their headers alone: for bytes that were verified before they were stored.
/// [`BatchInfo::control`] stays empty.
#[must_use]
pub fn walk_headers(buffer: &[u8], limits: BatchLimits) -> Walk<'_> {
    Walk { buffer, position: 0, limits, verify: false, failed: false }
}

impl Walk<'_> {
    /// Where the next batch would start: after the last one returned.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The next batch's header, if its header and all its bytes are there.
    fn read(&self) -> Result<Option<BatchInfo>, BatchError> {
        let rest = &self.buffer[self.position..];
        if self.verify {
            return BatchValidator::new(self.limits).feed(&mut &*rest);
        }
        let info = BatchInfo::from_header(rest, &self.limits)?;
        Ok(info.filter(|info| info.size_bytes as usize <= rest.len()))
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<WalkedBatch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.read() {
            Ok(Some(info)) => {
                let position = self.position;
                self.position += info.size_bytes as usize;
                let bytes = &self.buffer[position..self.position];
                Some(Ok(WalkedBatch { position, info, bytes }))
            }
            Ok(None) => None,
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

/// The whole length that a header claims, if it is possible. Checks the offset on the way.
pub(super) fn checked_size(
    head: &[u8],
    bytes_min: usize,
    limits: &BatchLimits,
) -> Result<u32, BatchError> {
    let base_offset = layout::i64_at(head, layout::OFFSET_AT);
    let magic = head[layout::MAGIC_AT].cast_signed();
    let length = i64::from(layout::i32_at(head, layout::LENGTH_AT));
    let size_bytes = length + layout::OVERHEAD_BYTES as i64;
    if size_bytes < bytes_min as i64 {
        return Err(BatchError::TooShort { base_offset, magic, size_bytes, bytes_min });
    }
    let bytes_max = limits.batch_bytes_max;
    match u32::try_from(size_bytes) {
        Ok(_) if !(0..i64::MAX).contains(&base_offset) => {
            Err(BatchError::OffsetRange { base_offset })
        }
        Ok(size) if size <= bytes_max => Ok(size),
        _ => Err(BatchError::TooLarge { base_offset, size_bytes, bytes_max }),
    }
}

/// Continues a checksum: CRC-32C for v2, CRC-32 (IEEE) for v0 and v1.
fn checksum(magic: i8, so_far: u32, bytes: &[u8]) -> u32 {
    if magic >= 2 {
        return crc32c::crc32c_append(so_far, bytes);
    }
    let mut hasher = crc32fast::Hasher::new_with_initial(so_far);
    hasher.update(bytes);
    hasher.finalize()
}

fn take<'a>(bytes: &mut &'a [u8], bytes_max: usize) -> &'a [u8] {
    let (front, rest) = bytes.split_at(bytes_max.min(bytes.len()));
    *bytes = rest;
    front
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
