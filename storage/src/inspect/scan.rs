//! One pass over a segment file, batch by batch, through a fixed buffer.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::batch::{BatchError, BatchInfo, BatchLimits, BatchValidator};

/// Bytes read from the file at once.
const READ_BYTES: usize = 256 * 1024;

/// What a scan finds next.
#[derive(Debug)]
pub(super) enum Scanned {
    /// A batch that is whole by its length.
    Batch {
        /// Where it starts in the file.
        position: u64,
        /// Its header; the control marker only if it is valid.
        info: BatchInfo,
        /// What is wrong with its content.
        fault: Option<BatchError>,
    },
    /// The file does not end with a batch.
    Tail {
        /// Where the last batch ends.
        position: u64,
        /// Bytes from there to the end of the file.
        len_bytes: u64,
        /// Why they are no batch; `None` for a batch that is cut short.
        fault: Option<BatchError>,
    },
}

/// Reads a segment from its start.
#[derive(Debug)]
pub(super) struct SegmentScan {
    file: File,
    file_bytes: u64,
    validator: BatchValidator,
    /// Where the current batch starts.
    position: u64,
    buffer: Vec<u8>,
    /// The part of the buffer that is not taken yet.
    pending: std::ops::Range<usize>,
    /// The current batch's bytes, where they are wanted.
    batch: Option<Vec<u8>>,
    ended: bool,
}

impl SegmentScan {
    /// Opens a segment. With `keep_bytes` each batch's bytes can be asked for.
    pub(super) fn open(path: &Path, batch_bytes_max: u32, keep_bytes: bool) -> io::Result<Self> {
        let file = File::open(path)?;
        let file_bytes = file.metadata()?.len();
        Ok(Self {
            file,
            file_bytes,
            validator: BatchValidator::new(BatchLimits { batch_bytes_max }),
            position: 0,
            buffer: vec![0; READ_BYTES],
            pending: 0..0,
            batch: keep_bytes.then(Vec::new),
            ended: false,
        })
    }

    /// The next batch, then the tail if there is one, then `None`.
    pub(super) fn next(&mut self) -> io::Result<Option<Scanned>> {
        if self.ended {
            return Ok(None);
        }
        if let Some(batch) = &mut self.batch {
            batch.clear();
        }
        loop {
            if self.pending.is_empty() {
                let len_bytes = read_some(&mut self.file, &mut self.buffer)?;
                self.pending = 0..len_bytes;
                if len_bytes == 0 {
                    self.ended = true;
                    let cut = self.validator.unfinished_bytes() > 0;
                    return Ok(cut.then(|| self.tail(None)));
                }
            }
            let available = &self.buffer[self.pending.clone()];
            let mut rest = available;
            let fed = self.validator.feed(&mut rest);
            let taken = available.len() - rest.len();
            if let Some(batch) = &mut self.batch {
                batch.extend_from_slice(&available[..taken]);
            }
            self.pending.start += taken;
            match fed {
                Ok(None) => {}
                Ok(Some(info)) => return Ok(Some(self.batch(info, None))),
                Err(error) => return Ok(Some(self.fault(error))),
            }
        }
    }

    /// The bytes of the batch last returned; empty unless they were asked for.
    pub(super) fn batch_bytes(&self) -> &[u8] {
        self.batch.as_deref().unwrap_or_default()
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// A batch whose header is plausible is passed over and the scan goes on behind it; after any
    /// other fault nobody knows where the next one starts.
    fn fault(&mut self, error: BatchError) -> Scanned {
        let content =
            matches!(error, BatchError::Checksum { .. } | BatchError::ControlRecord { .. });
        match self.validator.header().cloned() {
            Some(info) if content => {
                self.validator.reset();
                self.batch(info, Some(error))
            }
            _ => {
                self.ended = true;
                self.tail(Some(error))
            }
        }
    }

    fn batch(&mut self, info: BatchInfo, fault: Option<BatchError>) -> Scanned {
        let position = self.position;
        self.position += u64::from(info.size_bytes);
        Scanned::Batch { position, info, fault }
    }

    fn tail(&self, fault: Option<BatchError>) -> Scanned {
        let len_bytes = self.file_bytes.saturating_sub(self.position);
        Scanned::Tail { position: self.position, len_bytes, fault }
    }
}

fn read_some(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
