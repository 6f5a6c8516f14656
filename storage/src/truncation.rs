//! Everything that takes records away: truncation, reset, a new log start.
//!
//! Run by the log's owner, off the hot path: it blocks on the disk. Readers go on meanwhile: first they are
//! shown the smaller log, then the files follow, and bytes someone still holds are left as they are
//! (a truncated segment goes on in a copy). What a crash must not undo is made durable before it
//! happens. It must never cut below the log start, nor leave a recovery point above what is left.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::Offset;
use crate::batch::{BatchInfo, BatchLimits, BatchValidator};
use crate::checkpoint::{CheckpointEntry, RecoveryPoint};
use crate::epochs::EpochCache;
use crate::files::{LEADER_EPOCH_CHECKPOINT, remove_if_there, sync_folder, write_atomically};
use crate::index::IndexTail;
use crate::landing::{Expected, Landing};
use crate::log::{AppendError, Log, create_segment_files};
use crate::recovery::{keep_aborted_below, last_batch_of, remove_segment, resume_tail};
use crate::scan::scan_headers;
use crate::segment::{Ended, Segment, SegmentFile, read_exact_at};
use crate::txns::OpenTransactions;

/// A segment below the log start whose files are still there.
#[derive(Debug)]
pub(crate) struct Doomed {
    pub(crate) segment: Arc<Segment>,
    /// Where the next segment starts: with a durable log start from there on the files may go.
    pub(crate) end: Offset,
    pub(crate) ended: Ended,
    /// What a recycled file of it should hold.
    pub(crate) capacity_bytes: u64,
}

/// Where a truncation cuts.
struct Cut {
    /// The segment that stays and ends there.
    segment: Arc<Segment>,
    /// Its index in the list.
    index: usize,
    position: u64,
    /// The log end afterwards.
    end: Offset,
    /// Transactions open there.
    open: OpenTransactions,
}

impl Log {
    /// Removes everything from `offset` on. `offset` must be at or below the end. A batch that
    /// holds `offset` goes whole.
    pub fn truncate_to(&mut self, offset: Offset) -> Result<(), AppendError> {
        self.check_usable()?;
        self.finish_landing()?;
        if offset >= self.reader.log_end() {
            return Ok(());
        }
        self.unmap_tail()?;
        self.write_indexes()?;
        let cut = self.find_cut(offset).map_err(|error| self.io_error(error))?;
        match cut {
            Some(cut) if cut.end > self.reader.log_start() => self.cut_at(cut),
            // The first batch held the offset: the log is empty where it started.
            Some(_) => self.reset_to(self.reader.log_start().min(offset)),
            None => self.reset_to(offset),
        }
    }

    /// Removes everything and starts again, empty, at `offset`: the source's log start lies beyond
    /// our end.
    pub fn reset_to(&mut self, offset: Offset) -> Result<(), AppendError> {
        self.check_usable()?;
        self.finish_landing()?;
        self.unmap_tail()?;
        let recovery = RecoveryPoint { offset, segment: offset, position: 0 };
        let entry = CheckpointEntry { log_start: offset, recovery, open: Box::default() };
        self.reader.freeze(true);
        let epochs = self.reader.folder().join(LEADER_EPOCH_CHECKPOINT);
        let noted = self.note(entry).and_then(|()| {
            let written = write_atomically(&epochs, &EpochCache::default().encode());
            written.map_err(|error| self.io_error(error))
        });
        if let Err(error) = noted {
            self.reader.freeze(false);
            return Err(error);
        }
        let first = Segment::new(offset, 0);
        let removed = self.reader.update_to((offset, offset), |state| {
            state.generation += 1;
            state.frozen = false;
            state.offsets = IndexTail::default();
            state.times = IndexTail::default();
            state.largest = None;
            state.epochs.clear();
            state.epochs_changed = false;
            state.open.clear();
            std::mem::replace(&mut state.segments, vec![Arc::clone(&first)])
        });
        self.start_tail(first);
        self.last_batch = None;
        self.landing = Landing::at(Expected::of(&self.reader));
        // All of them, whatever they are called: the new segment may have the name of one.
        self.storage.remove_doomed(self.directory, &self.reader, None);
        self.remove(removed.into_iter().rev())?;
        let folder = self.reader.folder();
        create_segment_files(&folder, offset, &[])
            .and_then(|()| sync_folder(&folder))
            .map_err(|error| self.io_error(error))
    }

    /// Moves the log start. Segments that fall wholly below it are not shown any more; their files
    /// are deleted (recycled) by the next [`Storage::checkpoint`](crate::Storage::checkpoint), once
    /// the new log start is durable: an older one must not come back without them.
    pub fn advance_log_start(&mut self, offset: Offset) -> Result<(), AppendError> {
        self.check_usable()?;
        let log_end = self.reader.log_end();
        if offset > log_end {
            return Err(AppendError::NotNext { expected: log_end, found: offset });
        }
        if offset <= self.reader.log_start() {
            return Ok(());
        }
        let between_landings = self.tail.stored == self.tail.published;
        if offset == log_end && self.tail.published > 0 && between_landings {
            self.roll()?;
        }
        let capacity_bytes = u64::from(self.config.segment_bytes_max);
        let doomed = self.reader.update_to((offset, log_end), |state| {
            let below = state.segments.partition_point(|segment| segment.base() <= offset) - 1;
            let removed: Vec<_> = state.segments.drain(..below).collect();
            let kept = state.segments[0].base();
            let ends = removed.iter().skip(1).map(|next| next.base()).chain([kept]);
            let ends: Vec<_> = ends.collect();
            removed.into_iter().zip(ends).collect::<Vec<_>>()
        });
        for (segment, end) in doomed {
            let ended = segment.end();
            self.reader.lock_doomed().push_back(Doomed { segment, end, ended, capacity_bytes });
        }
        Ok(())
    }

    /// The place to cut for `offset`; `None` when nothing would be left.
    fn find_cut(&self, offset: Offset) -> io::Result<Option<Cut>> {
        let (segment, index) = {
            let state = self.reader.read_state();
            let above = state.segments.partition_point(|segment| segment.base() < offset);
            let Some(index) = above.checked_sub(1) else { return Ok(None) };
            (Arc::clone(&state.segments[index]), index)
        };
        let folder = self.reader.folder();
        let log = fs::File::open(SegmentFile::Log.path(&folder, segment.base()))?;
        let mut open = open_at_start(&folder, segment.base())?;
        let mut position = 0;
        // The end is that of the last batch kept, even where a gap follows: the next segment must
        // start there, or recovery takes the gap for a missing segment.
        let mut end = segment.base();
        let damaged = scan_headers(&log, 0, segment.len_bytes(), |at, info| {
            if info.last_offset >= offset {
                return ControlFlow::Break(Ok(()));
            }
            position = at + u64::from(info.size_bytes);
            end = info.next_offset();
            match follow(&mut open, &log, at, info) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Err(error)),
            }
        })?;
        damaged.unwrap_or(Ok(()))?;
        Ok(Some(Cut { segment, index, position, end, open }))
    }

    fn cut_at(&mut self, cut: Cut) -> Result<(), AppendError> {
        let base = cut.segment.base();
        let log_start = self.reader.log_start();
        self.reader.freeze(true);
        if let Err(error) = self.note_cut(&cut) {
            self.reader.freeze(false);
            return Err(error);
        }
        let kept = Segment::new(base, cut.position);
        kept.set_has_aborted(cut.segment.has_aborted());
        let removed = self.reader.update_to((log_start, cut.end), |state| {
            state.generation += 1;
            state.frozen = false;
            let removed = state.segments.split_off(cut.index + 1);
            state.segments[cut.index] = Arc::clone(&kept);
            // Until they are read again below, readers scan the segment from its start.
            state.offsets = IndexTail::default();
            state.times = IndexTail::default();
            state.largest = None;
            state.epochs_changed |= state.epochs.truncate_from_end(cut.end);
            state.open = cut.open;
            removed
        });
        self.start_tail(Arc::clone(&kept));
        self.tail.published = cut.position;
        self.tail.stored = cut.position;
        self.tail.dirty_end = cut.position;
        let ended = cut.segment.end();
        self.remove(removed.into_iter().rev())?;
        self.cut_files(&kept, ended, cut.end).map_err(|error| self.io_error(error))?;
        self.landing = Landing::at(Expected::of(&self.reader));
        Ok(())
    }

    /// Writes down where to scan from before anything is cut: what will be appended in place of
    /// the removed records is not on the device just because the old checkpoint reached so far.
    fn note_cut(&self, cut: &Cut) -> Result<(), AppendError> {
        let point =
            RecoveryPoint { offset: cut.end, segment: cut.segment.base(), position: cut.position };
        let open = if cut.open.is_empty() { Vec::new() } else { cut.open.encode() };
        match self.storage.checkpoint_entry(self.directory, &self.reader) {
            Some(mut entry) if entry.recovery.offset > cut.end => {
                entry.log_start = self.reader.log_start();
                entry.recovery = point;
                entry.open = open.into();
                self.note(entry)
            }
            // Nothing up to the cut is vouched for anyway.
            _ => Ok(()),
        }
    }

    fn note(&self, entry: CheckpointEntry) -> Result<(), AppendError> {
        let noted = self.storage.note_bounds(self.directory, &self.reader, entry);
        noted.map_err(|error| self.io_error(error))
    }

    /// Cuts the kept segment's files and picks its indexes up again.
    fn cut_files(&mut self, kept: &Arc<Segment>, ended: Ended, end: Offset) -> io::Result<()> {
        let (base, position) = (kept.base(), kept.len_bytes());
        let folder = self.reader.folder();
        let path = SegmentFile::Log.path(&folder, base);
        let is_shared = ended.mapping.is_some_and(|mapping| Arc::strong_count(&mapping) > 1);
        if is_shared {
            go_on_in_copy(&path, position)?;
            kept.reopen();
        } else {
            let log = fs::OpenOptions::new().write(true).open(&path)?;
            log.set_len(position)?;
            log.sync_all()?;
        }
        keep_aborted_below(&folder, base, end)?;
        let interval = self.config.index_interval_bytes;
        let resumed = resume_tail(&folder, base, position, end, interval)?;
        sync_folder(&folder)?;
        self.tail.since_index_bytes = resumed.since_index_bytes;
        self.last_batch = match resumed.last_batch {
            None => last_batch_of(&folder, &self.reader.read_state().segments.clone())?,
            last_batch => last_batch,
        };
        self.reader.update(|state| {
            state.offsets = resumed.offsets;
            state.times = resumed.times;
            state.largest = resumed.largest;
        });
        Ok(())
    }

    /// Removes the files of segments no reader is shown any more, in the order given: newest first,
    /// so that what a crash leaves is continuous.
    fn remove(&self, removed: impl IntoIterator<Item = Arc<Segment>>) -> Result<(), AppendError> {
        let folder = self.reader.folder();
        for segment in removed {
            let ended = segment.end();
            let path = SegmentFile::Log.path(&folder, segment.base());
            let capacity = u64::from(self.config.segment_bytes_max);
            self.storage
                .retire(self.directory, &path, (ended, segment.len_bytes()), capacity)
                .and_then(|()| remove_segment(&folder, segment.base()))
                .map_err(|error| self.io_error(error))?;
        }
        Ok(())
    }
}

/// The transactions open where a segment starts.
pub(crate) fn open_at_start(folder: &Path, base: Offset) -> io::Result<OpenTransactions> {
    match fs::read(SegmentFile::OpenTransactions.path(folder, base)) {
        Ok(bytes) => OpenTransactions::parse(&bytes).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(OpenTransactions::default()),
        Err(error) => Err(error),
    }
}

/// Takes a stored batch into account; of a control batch the marker has to be read.
fn follow(
    open: &mut OpenTransactions,
    log: &fs::File,
    position: u64,
    info: &BatchInfo,
) -> io::Result<()> {
    if !info.attributes.is_control() {
        open.append(info).map_err(io::Error::other)?;
        return Ok(());
    }
    let mut batch = vec![0; info.size_bytes as usize];
    read_exact_at(log, &mut batch, position)?;
    let mut validator = BatchValidator::new(BatchLimits { batch_bytes_max: i32::MAX as u32 });
    let whole = validator.feed(&mut &batch[..]).map_err(io::Error::other)?;
    let whole = whole.ok_or_else(|| io::Error::other("a control batch is cut"))?;
    open.append(&whole).map_err(io::Error::other)?;
    Ok(())
}

/// Puts the first `len_bytes` of a file in place of it, in a file of their own: readers hold bytes
/// past them, which must stay what they are.
fn go_on_in_copy(path: &Path, len_bytes: u64) -> io::Result<()> {
    let copy = path.with_extension("copy");
    remove_if_there(&copy)?;
    let from = fs::File::open(path)?;
    let to = fs::File::create(&copy)?;
    let copied = io::copy(&mut io::Read::take(&from, len_bytes), &mut &to)?;
    if copied != len_bytes {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    to.sync_all()?;
    fs::rename(&copy, path)
}
