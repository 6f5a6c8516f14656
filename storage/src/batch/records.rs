//! The records inside a batch: for searches by time, verification, dump and our own topics.
//!
//! Reads one whole batch that was verified when it was stored; runs on any thread, never on the
//! landing path. It must not trust the records: a checksum proves that bytes arrived, not that a
//! producer wrote sense. Compressed records inflate into memory the caller owns and bounds.

use super::compression::{DecompressError, decompress};
use super::header::{Attributes, BatchInfo, Compression};
use super::layout::{self, v2};
use super::legacy;
use super::walk::{BatchError, BatchLimits, Walk, walk};
use crate::Offset;
use crate::reader::TimestampOffset;

/// Why records cannot be read. The batch itself may be whole all the same.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The header, or an entry inside a compressed wrapper, is not one.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The bytes are not one whole batch.
    #[error("{found} bytes given, not one whole batch")]
    NotOneBatch {
        /// How many bytes were given.
        found: usize,
    },
    /// A codec number that no Kafka release defines.
    #[error("batch at offset {base_offset}: unknown codec, attributes {attributes:#06x}")]
    Codec {
        /// The batch.
        base_offset: Offset,
        /// Its attributes.
        attributes: i16,
    },
    /// The records cannot be decompressed.
    #[error("batch at offset {base_offset}: {source}")]
    Decompress {
        /// The batch.
        base_offset: Offset,
        /// Why.
        source: DecompressError,
    },
    /// A record's fields contradict each other or the batch.
    #[error("batch at offset {base_offset}: record {index}: {reason}")]
    Malformed {
        /// The batch.
        base_offset: Offset,
        /// Number of the record in the batch, from 0.
        index: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

/// One record. Keys and values are the producer's bytes, null where it sent null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp in milliseconds, -1 where the format has none (v0).
    pub timestamp_ms: i64,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers (v2 only).
    pub headers: RecordHeaders<'a>,
}

/// The headers of a record, in order. A key may occur more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHeaders<'a> {
    /// Checked when the record was read.
    bytes: &'a [u8],
    count: usize,
}

impl RecordHeaders<'_> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Iterator for RecordHeaders<'a> {
    /// Key and value; the key is text by convention, and the value may be null.
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let key = take_nullable(&mut self.bytes)??;
        Some((key, take_nullable(&mut self.bytes)?))
    }
}

/// The records of one batch, in order; ends after the first error.
#[derive(Debug)]
pub struct Records<'a> {
    base_offset: Offset,
    index: usize,
    source: Source<'a>,
    failed: bool,
}

/// Starts to read the records of `batch`, which is one whole v2 batch or message-set entry.
///
/// Compressed records are inflated into `scratch`, which is cleared first and may be used again for
/// the next batch; at most `inflated_bytes_max` of them.
pub fn records<'a>(
    batch: &'a [u8],
    inflated_bytes_max: usize,
    scratch: &'a mut Vec<u8>,
) -> Result<Records<'a>, RecordError> {
    let info = BatchInfo::from_header(batch, &BatchLimits { batch_bytes_max: u32::MAX })?
        .filter(|info| info.size_bytes as usize == batch.len())
        .ok_or(RecordError::NotOneBatch { found: batch.len() })?;
    let base_offset = info.base_offset;
    let Some(codec) = info.attributes.compression() else {
        return Err(RecordError::Codec { base_offset, attributes: info.attributes.0 });
    };
    let mut inflate = |input: &[u8]| {
        scratch.clear();
        decompress(codec, input, inflated_bytes_max, scratch)
            .map_err(|source| RecordError::Decompress { base_offset, source })
    };
    let source = if info.magic >= 2 {
        let body = &batch[v2::HEADER_BYTES..];
        if codec == Compression::None {
            Source::Batch(BatchRecords::new(info, body))
        } else {
            inflate(body)?;
            Source::Batch(BatchRecords::new(info, scratch))
        }
    } else if codec == Compression::None {
        Source::Message(Some((info, batch)))
    } else {
        let malformed = |reason| RecordError::Malformed { base_offset, index: 0, reason };
        let (_, value) = legacy::key_and_value(batch).ok_or(malformed("cannot be read"))?;
        inflate(value.ok_or(malformed("a compressed wrapper without a value"))?)?;
        Source::Wrapper(WrappedMessages::new(&info, scratch, base_offset)?)
    };
    Ok(Records { base_offset, index: 0, source, failed: false })
}

/// The first record of `batch` at or after `timestamp_ms` and at or after the offset `from`.
pub fn first_at_or_after(
    batch: &[u8],
    (timestamp_ms, from): (i64, Offset),
    inflated_bytes_max: usize,
    scratch: &mut Vec<u8>,
) -> Result<Option<TimestampOffset>, RecordError> {
    find(batch, inflated_bytes_max, scratch, |record| {
        record.timestamp_ms >= timestamp_ms && record.offset >= from
    })
}

/// The first record of `batch` whose timestamp is the batch's largest. `None` for format v0,
/// which has no timestamps, and where compaction removed the record.
pub fn record_of_max_timestamp(
    batch: &[u8],
    inflated_bytes_max: usize,
    scratch: &mut Vec<u8>,
) -> Result<Option<TimestampOffset>, RecordError> {
    let limits = BatchLimits { batch_bytes_max: u32::MAX };
    match BatchInfo::from_header(batch, &limits)? {
        Some(info) if info.magic >= 1 => find(batch, inflated_bytes_max, scratch, |record| {
            record.timestamp_ms == info.max_timestamp
        }),
        _ => Ok(None),
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = match &mut self.source {
            Source::Batch(batch) => batch.next()?.map_err(Fault::Reason),
            Source::Message(message) => {
                let (info, bytes) = message.take()?;
                message_record(bytes, info.last_offset, info.base_timestamp).map_err(Fault::Reason)
            }
            Source::Wrapper(wrapped) => wrapped.next()?,
        };
        let index = self.index;
        self.index += 1;
        self.failed = next.is_err();
        Some(next.map_err(|fault| match fault {
            Fault::Batch(error) => error.into(),
            Fault::Reason(reason) => {
                RecordError::Malformed { base_offset: self.base_offset, index, reason }
            }
        }))
    }
}

/// What can be wrong below the batch.
enum Fault {
    Batch(BatchError),
    Reason(&'static str),
}

#[derive(Debug)]
enum Source<'a> {
    Batch(BatchRecords<'a>),
    /// One message, not compressed.
    Message(Option<(BatchInfo, &'a [u8])>),
    Wrapper(WrappedMessages<'a>),
}

/// The records of a v2 batch.
#[derive(Debug)]
struct BatchRecords<'a> {
    info: BatchInfo,
    rest: &'a [u8],
    left: i32,
    offset_next: i64,
}

impl<'a> BatchRecords<'a> {
    fn new(info: BatchInfo, rest: &'a [u8]) -> Self {
        let (left, offset_next) = (info.record_count, info.base_offset.0);
        Self { info, rest, left, offset_next }
    }

    fn next(&mut self) -> Option<Result<Record<'a>, &'static str>> {
        if self.left == 0 {
            let rest = std::mem::take(&mut self.rest);
            return (!rest.is_empty()).then_some(Err("bytes after the last record"));
        }
        self.left -= 1;
        Some(self.read())
    }

    fn read(&mut self) -> Result<Record<'a>, &'static str> {
        let cut = "fewer bytes than its length says";
        let (length, taken) = layout::varint(self.rest).ok_or("unreadable length")?;
        let length = usize::try_from(length).map_err(|_| "negative length")?;
        let mut body = self.rest.get(taken..).and_then(|rest| rest.get(..length)).ok_or(cut)?;
        self.rest = &self.rest[taken + length..];

        let body = &mut body;
        take(body, 1).ok_or(cut)?; // Record attributes: no bit has a meaning yet.
        let timestamp_delta = take_varlong(body).ok_or("unreadable timestamp")?;
        let offset_delta = take_varint(body).ok_or("unreadable offset")?;
        let offset = self.info.base_offset.0.saturating_add(i64::from(offset_delta));
        if offset < self.offset_next || offset > self.info.last_offset.0 {
            return Err("offset out of order or outside its batch");
        }
        self.offset_next = offset + 1;
        let key = take_nullable(body).ok_or("unreadable key")?;
        let value = take_nullable(body).ok_or("unreadable value")?;
        let headers = take_headers(body).ok_or("unreadable headers")?;
        if !body.is_empty() {
            return Err("more bytes than its fields");
        }
        let timestamp_ms = if self.info.attributes.is_log_append_time() {
            self.info.max_timestamp
        } else {
            // Deltas have 64 bits; a producer may wrap around, as Java's addition does.
            self.info.base_timestamp.wrapping_add(timestamp_delta)
        };
        Ok(Record { offset: Offset(offset), timestamp_ms, key, value, headers })
    }
}

/// The messages in a compressed v0 or v1 wrapper.
#[derive(Debug)]
struct WrappedMessages<'a> {
    walk: Walk<'a>,
    buffer: &'a [u8],
    magic: i8,
    /// What is added to a message's own offset: nothing in v0, where it is absolute; in v1 it
    /// counts from the wrapper's first, and the wrapper names the last.
    offset_shift: i64,
    /// In v1 with append time, the wrapper's timestamp is every message's.
    timestamp: Option<i64>,
}

impl<'a> WrappedMessages<'a> {
    fn new(
        wrapper: &BatchInfo,
        buffer: &'a [u8],
        base_offset: Offset,
    ) -> Result<Self, RecordError> {
        let limits = BatchLimits { batch_bytes_max: u32::MAX };
        let mut last = None;
        for message in super::walk::walk_headers(buffer, limits) {
            last = Some(message?.info.last_offset.0);
        }
        let last = last.ok_or(RecordError::Malformed {
            base_offset,
            index: 0,
            reason: "a compressed wrapper without a message",
        })?;
        let append_time = wrapper.magic == 1 && wrapper.attributes.is_log_append_time();
        Ok(Self {
            walk: walk(buffer, limits),
            buffer,
            magic: wrapper.magic,
            // Neither is negative, so the difference exists.
            offset_shift: if wrapper.magic == 1 { wrapper.last_offset.0 - last } else { 0 },
            timestamp: append_time.then_some(wrapper.max_timestamp),
        })
    }

    fn next(&mut self) -> Option<Result<Record<'a>, Fault>> {
        let Some(message) = self.walk.next() else {
            let rest = self.buffer.get(self.walk.position()..).unwrap_or_default();
            self.buffer = &[];
            return (!rest.is_empty()).then_some(Err(Fault::Reason("a message is cut short")));
        };
        Some(message.map_err(Fault::Batch).and_then(|message| {
            let info = &message.info;
            if info.magic != self.magic || is_compressed(info.attributes) {
                return Err(Fault::Reason("of another format than its wrapper, or compressed"));
            }
            let offset = info.last_offset.0.saturating_add(self.offset_shift);
            if offset < 0 {
                return Err(Fault::Reason("offset below zero"));
            }
            let timestamp_ms = self.timestamp.unwrap_or(info.base_timestamp);
            message_record(message.bytes, Offset(offset), timestamp_ms).map_err(Fault::Reason)
        }))
    }
}

fn is_compressed(attributes: Attributes) -> bool {
    attributes.compression() != Some(Compression::None)
}

fn message_record(
    message: &[u8],
    offset: Offset,
    timestamp_ms: i64,
) -> Result<Record<'_>, &'static str> {
    let (key, value) = legacy::key_and_value(message).ok_or("unreadable key or value")?;
    Ok(Record { offset, timestamp_ms, key, value, headers: RecordHeaders::default() })
}

fn find(
    batch: &[u8],
    inflated_bytes_max: usize,
    scratch: &mut Vec<u8>,
    wanted: impl Fn(&Record<'_>) -> bool,
) -> Result<Option<TimestampOffset>, RecordError> {
    let limits = BatchLimits { batch_bytes_max: u32::MAX };
    let Some(info) = BatchInfo::from_header(batch, &limits)? else { return Ok(None) };
    for record in records(batch, inflated_bytes_max, scratch)? {
        let record = record?;
        if wanted(&record) {
            return Ok(Some(TimestampOffset {
                timestamp_ms: record.timestamp_ms,
                offset: record.offset,
                leader_epoch: info.leader_epoch,
            }));
        }
    }
    Ok(None)
}

fn take<'a>(bytes: &mut &'a [u8], len_bytes: usize) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(len_bytes)?;
    *bytes = rest;
    Some(front)
}

fn take_varint(bytes: &mut &[u8]) -> Option<i32> {
    let (value, taken) = layout::varint(bytes)?;
    take(bytes, taken)?;
    Some(value)
}

fn take_varlong(bytes: &mut &[u8]) -> Option<i64> {
    let (value, taken) = layout::varlong(bytes)?;
    take(bytes, taken)?;
    Some(value)
}

/// A length and so many bytes; any negative length is null.
fn take_nullable<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = take_varint(bytes)?;
    match usize::try_from(length) {
        Ok(length) => take(bytes, length).map(Some),
        Err(_) => Some(None),
    }
}

/// Checks all headers, so that iterating over them cannot fail.
fn take_headers<'a>(bytes: &mut &'a [u8]) -> Option<RecordHeaders<'a>> {
    let count = usize::try_from(take_varint(bytes)?).ok()?;
    let headers = *bytes;
    for _ in 0..count {
        take_nullable(bytes)??;
        take_nullable(bytes)?;
    }
    Some(RecordHeaders { bytes: &headers[..headers.len() - bytes.len()], count })
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
