//! Walking over the headers of stored batches by `pread`.
//!
//! For bytes that were verified when they were stored: look-ups and truncation. Nothing is held
//! between calls; any thread. It must never read past the end it is given, nor through a mapping.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;

use crate::batch::{BatchInfo, BatchLimits, HEADER_BYTES_MAX};
use crate::segment::read_at;

/// Bytes read at once: an index interval and some more, so that a look-up is one read.
const CHUNK_BYTES: usize = 8 * 1024;

/// Bytes read where batches are longer than a chunk, so that the next header is not in it either.
const HEADER_CHUNK_BYTES: usize = 256;

/// What was stored was checked against the log's own limit then.
const STORED: BatchLimits = BatchLimits { batch_bytes_max: i32::MAX as u32 };

/// Calls `visit` for each batch of `file` from `position` to `end` until it breaks. Every batch
/// must be whole, or the file is damaged.
pub(crate) fn scan_headers<B>(
    file: &File,
    position: u64,
    end: u64,
    mut visit: impl FnMut(u64, &BatchInfo) -> ControlFlow<B>,
) -> io::Result<Option<B>> {
    let mut chunk = [0; CHUNK_BYTES];
    let (mut chunk_start, mut chunk_len) = (position, 0u64);
    let mut position = position;
    let mut chunk_bytes = CHUNK_BYTES;
    while position < end {
        let header_end = (position + HEADER_BYTES_MAX as u64).min(end);
        if position < chunk_start || header_end > chunk_start + chunk_len {
            let wanted = usize::try_from(end - position).unwrap_or(chunk_bytes).min(chunk_bytes);
            chunk_start = position;
            chunk_len = read_at(file, &mut chunk[..wanted], position)? as u64;
        }
        let from = (position - chunk_start) as usize;
        let bytes = chunk.get(from..chunk_len as usize).unwrap_or_default();
        let info = match BatchInfo::from_header(bytes, &STORED) {
            Ok(Some(info)) => info,
            Ok(None) => return Err(damaged(position, &"the file ends inside a header")),
            Err(error) => return Err(damaged(position, &error)),
        };
        let next = position + u64::from(info.size_bytes);
        if next > end {
            return Err(damaged(position, &"the last batch is cut"));
        }
        if let ControlFlow::Break(found) = visit(position, &info) {
            return Ok(Some(found));
        }
        let long = info.size_bytes as usize > CHUNK_BYTES;
        chunk_bytes = if long { HEADER_CHUNK_BYTES } else { CHUNK_BYTES };
        position = next;
    }
    Ok(None)
}

fn damaged(position: u64, cause: &dyn std::fmt::Display) -> io::Error {
    let message = format!("stored batch at byte {position} is damaged: {cause}");
    io::Error::new(io::ErrorKind::InvalidData, message)
}
