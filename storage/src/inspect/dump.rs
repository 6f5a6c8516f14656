//! Listing every batch of a segment, a partition or a data directory.

use std::ops::ControlFlow;
use std::path::Path;

use super::scan::{Scanned, SegmentScan};
use super::{InspectError, InspectOptions, partition_folders, segment_bases};
use crate::batch::{BatchError, BatchInfo, RecordError, Records, records};
use crate::segment::SegmentFile;

/// One line of a dump.
#[derive(Debug)]
pub enum DumpedBatch<'a> {
    /// A batch.
    Batch {
        /// The segment's file.
        file: &'a Path,
        /// Where it starts in the file.
        position: u64,
        /// Its header.
        info: &'a BatchInfo,
        /// What is wrong with it: its checksum, or its control record.
        fault: Option<&'a BatchError>,
        /// All its bytes, if [`InspectOptions::records`] asked for them.
        bytes: &'a [u8],
    },
    /// What follows the last batch of a file.
    Tail {
        /// The segment's file.
        file: &'a Path,
        /// Where it starts.
        position: u64,
        /// How much it is.
        len_bytes: u64,
        /// Why it is no batch; `None` for a batch that is cut short.
        fault: Option<&'a BatchError>,
    },
}

impl<'a> DumpedBatch<'a> {
    /// The records of the batch; compressed ones are inflated into `scratch`. `None` for a tail,
    /// and unless [`InspectOptions::records`] asked for them.
    pub fn records(
        &self,
        options: &InspectOptions,
        scratch: &'a mut Vec<u8>,
    ) -> Option<Result<Records<'a>, RecordError>> {
        match self {
            Self::Batch { bytes, .. } if !bytes.is_empty() => {
                Some(records(bytes, options.inflated_bytes_max, scratch))
            }
            _ => None,
        }
    }
}

/// Calls `visit` for every batch at `path`, which is a `.log` file, a partition folder or a
/// directory of partition folders. The visitor can end it.
pub fn dump(
    path: &Path,
    options: &InspectOptions,
    visit: &mut dyn FnMut(&DumpedBatch<'_>) -> ControlFlow<()>,
) -> Result<(), InspectError> {
    if path.is_file() {
        if path.extension().is_none_or(|suffix| suffix != "log") {
            return Err(InspectError::NotALog(path.to_path_buf()));
        }
        return dump_segment(path, options, visit).map(|_| ());
    }
    for folder in partition_folders(path)? {
        let bases = segment_bases(&folder)
            .map_err(|source| InspectError::Io { path: folder.clone(), source })?;
        for base in bases {
            if dump_segment(&SegmentFile::Log.path(&folder, base), options, visit)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn dump_segment(
    file: &Path,
    options: &InspectOptions,
    visit: &mut dyn FnMut(&DumpedBatch<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, InspectError> {
    let failed = |source| InspectError::Io { path: file.to_path_buf(), source };
    let mut scan =
        SegmentScan::open(file, options.batch_bytes_max, options.records).map_err(failed)?;
    while let Some(scanned) = scan.next().map_err(failed)? {
        let line = match &scanned {
            Scanned::Batch { position, info, fault } => DumpedBatch::Batch {
                file,
                position: *position,
                info,
                fault: fault.as_ref(),
                bytes: scan.batch_bytes(),
            },
            Scanned::Tail { position, len_bytes, fault } => DumpedBatch::Tail {
                file,
                position: *position,
                len_bytes: *len_bytes,
                fault: fault.as_ref(),
            },
        };
        if visit(&line).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
