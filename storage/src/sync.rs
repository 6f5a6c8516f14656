//! Bringing what logs have published to the device, so that a checkpoint may vouch for it.
//!
//! Runs on a thread that may block; the logs' owners go on appending meanwhile. First it is noted
//! how far each log is, then its files are synced, then the note is true. It must never note
//! anything after a sync that failed: the kernel reports a lost write once and forgets the pages.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Offset;
use crate::checkpoint::{CheckpointEntry, RecoveryPoint};
use crate::epochs::EpochCache;
use crate::files::{
    LEADER_EPOCH_CHECKPOINT, sync_folder, sync_partition_metadata, write_atomically,
};
use crate::reader::LogReader;
use crate::segment::{Segment, SegmentFile};

/// With more logs to sync than this, one sync of the whole file system is cheaper than one of each
/// file (a log has at least two).
const LOGS_SYNCED_EACH_MAX: usize = 32;

/// A log with something that is not known to be on the device.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) reader: Arc<LogReader>,
    /// True once the sync has succeeded.
    pub(crate) entry: CheckpointEntry,
    /// What the log's generation was: a truncation since then makes the entry worthless.
    pub(crate) generation: u64,
    /// Those that may hold unsynced bytes.
    segments: Vec<Arc<Segment>>,
    epochs: Option<EpochCache>,
    is_first: bool,
    has_records: bool,
}

impl Pending {
    /// Notes how far a log is; `None` when `known` says as much already, and while the log is being
    /// cut: a note of what it was would overrule the log's own.
    pub(crate) fn of(reader: &Arc<LogReader>, known: Option<CheckpointEntry>) -> Option<Self> {
        let state = reader.read_state();
        if state.frozen {
            return None;
        }
        let active = state.segments.last()?;
        let recovery = RecoveryPoint {
            offset: reader.log_end(),
            segment: active.base(),
            position: active.len_bytes(),
        };
        let open = if state.open.is_empty() { Vec::new() } else { state.open.encode() };
        let entry = CheckpointEntry { log_start: reader.log_start(), recovery, open: open.into() };
        if known.as_ref() == Some(&entry) && !state.epochs_changed {
            return None;
        }
        let from = known.as_ref().map_or(Offset(0), |known| known.recovery.segment);
        let mut segments = state.segments.clone();
        segments.retain(|segment| segment.base() >= from);
        Some(Self {
            reader: Arc::clone(reader),
            generation: state.generation,
            segments,
            epochs: state.epochs_changed.then(|| state.epochs.clone()),
            is_first: known.is_none(),
            has_records: known.is_none_or(|known| known.recovery != entry.recovery),
            entry,
        })
    }

    /// Syncs this log's files. `false` when the log was deleted meanwhile.
    pub(crate) fn sync(&self, root: &Path) -> io::Result<bool> {
        match self.sync_files(root) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn sync_files(&self, root: &Path) -> io::Result<()> {
        let folder = self.reader.folder();
        if self.is_first {
            sync_partition_metadata(&folder)?;
            sync_folder(root)?;
        }
        if self.has_records {
            for segment in &self.segments {
                let active = segment.base() == self.entry.recovery.segment;
                self.sync_segment(segment, &folder, active)?;
            }
        }
        if let Some(epochs) = &self.epochs {
            write_atomically(&folder.join(LEADER_EPOCH_CHECKPOINT), &epochs.encode())?;
            self.epochs_written(epochs);
        } else if self.is_first || self.segments.len() > 1 {
            sync_folder(&folder)?;
        }
        Ok(())
    }

    /// Brings a segment's files to the device. The active one's indexes may lag: recovery makes the
    /// missing entries again.
    fn sync_segment(&self, segment: &Segment, folder: &Path, active: bool) -> io::Result<()> {
        for file in SegmentFile::ALL {
            let index = matches!(file, SegmentFile::OffsetIndex | SegmentFile::TimeIndex);
            if active && index {
                continue;
            }
            match File::open(file.path(folder, segment.base())) {
                // What was lost is lost, whether or not the next sync reports success: only the
                // failure to sync ends the log, not a full disk or a lack of descriptors before it.
                Ok(opened) => opened.sync_data().inspect_err(|_| self.reader.set_failed())?,
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && file != SegmentFile::Log => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the epochs and leaves it to another to sync them.
    fn write_epochs(&self) -> io::Result<()> {
        let Some(epochs) = &self.epochs else { return Ok(()) };
        let path = self.reader.folder().join(LEADER_EPOCH_CHECKPOINT);
        let temporary: PathBuf = path.with_extension("tmp");
        fs::write(&temporary, epochs.encode())?;
        fs::rename(&temporary, path)
    }

    fn epochs_written(&self, epochs: &EpochCache) {
        self.reader.update(|state| state.epochs_changed &= state.epochs != *epochs);
    }
}

/// Syncs the logs of one directory; returns those of which the entries are true now. A log that
/// cannot be synced is reported and keeps its old entry; the others go on.
pub(crate) fn sync_logs(root: &Path, pending: Vec<Pending>) -> Vec<Pending> {
    if pending.len() > LOGS_SYNCED_EACH_MAX && sync_file_system(root, &pending).is_ok() {
        return pending;
    }
    let synced = |pending: &Pending| match pending.sync(root) {
        Ok(synced) => synced,
        Err(error) => {
            let partition = pending.reader.partition();
            tracing::error!(%partition, %error, "log cannot be synced");
            false
        }
    };
    pending.into_iter().filter(synced).collect()
}

/// One sync for all. When it fails, which log it failed for is found by syncing each.
fn sync_file_system(root: &Path, pending: &[Pending]) -> io::Result<()> {
    for log in pending {
        match log.write_epochs() {
            // Deleted meanwhile: its entry is dropped with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            written => written?,
        }
    }
    rustix::fs::syncfs(File::open(root)?)?;
    for log in pending {
        log.epochs.iter().for_each(|epochs| log.epochs_written(epochs));
    }
    Ok(())
}
