//! How a log comes back: what the checkpoint vouches for is taken as it is, the rest is verified.
//!
//! Runs once per log, on the thread that opens it. Segments below the recovery point are not read.
//! From the recovery point on every batch's checksum is computed and must continue the one before;
//! the first byte that does not fit ends the log, and what follows it is removed. Indexes, epochs and
//! transactions of what was scanned are made anew from it. It must never keep a byte it has not
//! verified, and never touch another partition.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::batch::{BatchInfo, BatchLimits, BatchValidator, HEADER_BYTES_MAX};
use crate::checkpoint::{CheckpointEntry, RecoveryPoint};
use crate::epochs::EpochCache;
use crate::files::{LEADER_EPOCH_CHECKPOINT, remove_if_there};
use crate::index::{
    IndexEntry, IndexTail, OffsetEntry, TimeEntry, Unwritten, entries_in, entry_at,
};
use crate::landing::{append_aborted_entries, index_batch_at, note_epoch};
use crate::log::create_segment_files;
use crate::reader::State;
use crate::scan::scan_headers;
use crate::segment::{Segment, SegmentFile, read_at};
use crate::storage::RecoveryReport;
use crate::truncation::open_at_start;
use crate::txns::{AbortedTxn, OpenTransactions, aborted_entries};
use crate::{LeaderEpoch, Offset};

/// Bytes verified at a time.
const SCAN_CHUNK_BYTES: usize = 1 << 20;

/// Largest index file read at once: the default limit of a broker.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// A log as it was found and made sound.
pub(crate) struct Recovered {
    pub(crate) state: State,
    pub(crate) log_start: Offset,
    pub(crate) log_end: Offset,
    pub(crate) last_batch: Option<BatchInfo>,
    pub(crate) since_index_bytes: u64,
    pub(crate) report: RecoveryReport,
}

/// Recovers the log in `folder`. `settle` makes the checkpoint durable: before it has done so a power
/// loss could bring an earlier log start back, and no segment that one needs may be removed.
pub(crate) fn recover(
    folder: &Path,
    checkpoint: Option<&CheckpointEntry>,
    index_interval_bytes: u32,
    settle: &dyn Fn() -> io::Result<()>,
) -> io::Result<Recovered> {
    let mut files = list_segments(folder)?;
    let first = files.keys().next().copied();
    let log_start = checkpoint.map_or(Offset(0), |entry| entry.log_start);
    let log_start = first.map_or(log_start, |first| log_start.max(first));
    remove_below(folder, &mut files, log_start, settle)?;
    let trusted = checkpoint.and_then(|entry| trusted_point(entry.recovery, &files));
    let end = trusted.map_or(files.keys().next().copied().unwrap_or(log_start), |at| at.offset);
    let mut recovery = Recovery::new(folder, index_interval_bytes, log_start, end);
    recovery.load_epochs(&files, trusted)?;
    match (trusted, checkpoint, files.keys().next()) {
        (Some(_), Some(entry), _) => recovery.load_transactions(entry)?,
        (_, _, Some(first)) => match open_at_start(folder, *first) {
            Ok(open) => recovery.state.open = open,
            // Torn by the same crash, or damaged like the checkpoint.
            Err(error) => tracing::warn!(folder = %folder.display(), %error, "open transactions"),
        },
        _ => {}
    }
    recovery.run(files, trusted)?;
    recovery.finish(settle)
}

/// The recovery point, if the files still hold what it vouches for.
fn trusted_point(point: RecoveryPoint, files: &BTreeMap<Offset, u64>) -> Option<RecoveryPoint> {
    match files.get(&point.segment) {
        Some(len_bytes) => (*len_bytes >= point.position).then_some(point),
        // Its segment lies below the log start: it was sealed there, and the next one begins there.
        None => {
            let next = files.keys().find(|base| **base > point.segment)?;
            (*next <= point.offset).then_some(RecoveryPoint {
                segment: *next,
                position: 0,
                ..point
            })
        }
    }
}

fn empty_state() -> State {
    State {
        segments: Vec::new(),
        offsets: IndexTail::default(),
        times: IndexTail::default(),
        largest: None,
        epochs: EpochCache::default(),
        epochs_changed: false,
        open: OpenTransactions::default(),
        generation: 0,
        frozen: false,
        sealed_bytes: 0,
    }
}

/// The state of a new, empty log whose first segment is `segment`.
pub(crate) fn new_state(segment: Arc<Segment>) -> State {
    State { segments: vec![segment], ..empty_state() }
}

struct Recovery<'a> {
    folder: &'a Path,
    interval: u64,
    log_start: Offset,
    /// After the last batch taken.
    end: Offset,
    state: State,
    last_batch: Option<BatchInfo>,
    since_index_bytes: u64,
    report: RecoveryReport,
}

/// Writes down which transactions are open where a segment starts, unless the file says so already: the
/// disk may be full, and an overwrite begins by emptying the file.
fn write_open_transactions(folder: &Path, base: Offset, open: &OpenTransactions) -> io::Result<()> {
    let path = SegmentFile::OpenTransactions.path(folder, base);
    if open.is_empty() {
        return remove_if_there(&path);
    }
    let encoded = open.encode();
    if fs::read(&path).is_ok_and(|found| found == encoded) {
        return Ok(());
    }
    fs::write(path, encoded)
}

fn write_index(path: &Path, entries: &Unwritten) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    if !entries.is_empty() || file.metadata()?.len() != entries.file_bytes() {
        file.set_len(entries.file_bytes())?;
        entries.write_to(&file)?;
    }
    Ok(())
}

fn is_out_of_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// How the scan of a segment ended.
struct ScanEnd {
    /// Bytes that are sound.
    valid_bytes: u64,
    /// Why it ended before the file did; `None` also for a tail of zeros.
    cause: Option<String>,
}

impl<'a> Recovery<'a> {
    fn new(folder: &'a Path, index_interval_bytes: u32, log_start: Offset, end: Offset) -> Self {
        Self {
            folder,
            interval: u64::from(index_interval_bytes),
            log_start,
            end,
            state: empty_state(),
            last_batch: None,
            since_index_bytes: 0,
            report: RecoveryReport::default(),
        }
    }

    fn run(
        &mut self,
        files: BTreeMap<Offset, u64>,
        trusted: Option<RecoveryPoint>,
    ) -> io::Result<()> {
        let mut files = files.into_iter().peekable();
        while let Some((base, len_bytes)) = files.next() {
            let is_last = files.peek().is_none();
            if trusted.is_some_and(|point| base < point.segment) {
                self.state.segments.push(self.found_segment(base, len_bytes));
                continue;
            }
            let from = match trusted {
                Some(point) if point.segment == base => point.position,
                _ if self.continues_at(base) || self.state.segments.is_empty() => 0,
                _ => {
                    // A hole: what follows it continues nothing.
                    self.report.cut_bytes += len_bytes;
                    let reason = format!("segment {base} does not start at {}", self.end);
                    self.report.cut_reason.get_or_insert(reason);
                    remove_segment(self.folder, base)?;
                    continue;
                }
            };
            let len_bytes = self.recover_segment(base, len_bytes, from, is_last)?;
            self.state.segments.push(self.found_segment(base, len_bytes));
        }
        Ok(())
    }

    /// Whether a segment of this base follows what was taken so far without a hole: it is named by
    /// the end of the last batch, which a recovery point may lie beyond.
    fn continues_at(&self, base: Offset) -> bool {
        let last = self.last_batch.as_ref().map_or(self.end, BatchInfo::next_offset);
        (last..=self.end).contains(&base)
    }

    fn finish(mut self, settle: &dyn Fn() -> io::Result<()>) -> io::Result<Recovered> {
        if self.state.segments.is_empty() || self.end < self.log_start {
            settle()?;
            // Empty, or the log start moved beyond the end and the removal was cut short.
            for segment in std::mem::take(&mut self.state.segments) {
                remove_segment(self.folder, segment.base())?;
            }
            create_segment_files(self.folder, self.log_start, &[])?;
            self.state = new_state(Segment::new(self.log_start, 0));
            self.state.epochs_changed = true;
            self.end = self.log_start;
            self.last_batch = None;
            self.since_index_bytes = 0;
        }
        if self.last_batch.is_none() {
            self.last_batch = last_batch_of(self.folder, &self.state.segments)?;
        }
        self.state.epochs_changed |= self.state.epochs.truncate_from_end(self.end);
        let first = self.state.segments[0].base();
        self.state.epochs_changed |= self.state.epochs.truncate_from_start(first);
        self.report.clean = self.report.scanned_bytes == 0 && self.report.cut_reason.is_none();
        Ok(Recovered {
            state: self.state,
            log_start: self.log_start,
            log_end: self.end,
            last_batch: self.last_batch,
            since_index_bytes: self.since_index_bytes,
            report: self.report,
        })
    }

    fn found_segment(&self, base: Offset, len_bytes: u64) -> Arc<Segment> {
        let segment = Segment::new(base, len_bytes);
        segment.set_has_aborted(SegmentFile::AbortedIndex.path(self.folder, base).exists());
        segment
    }

    /// Takes `from` bytes of the segment as they are and verifies the rest. Returns its length.
    fn recover_segment(
        &mut self,
        base: Offset,
        len_bytes: u64,
        from: u64,
        is_last: bool,
    ) -> io::Result<u64> {
        let log = SegmentFile::Log.path(self.folder, base);
        let log = OpenOptions::new().read(true).write(true).open(log)?;
        let clean = from == len_bytes;
        if from == 0 {
            write_open_transactions(self.folder, base, &self.state.open)?;
        }
        self.resume_indexes(base, from, clean)?;
        self.walk_taken(&log, base, from)?;
        let mut valid_bytes = from;
        // Also where nothing is left to verify: a crash may have come between the cut of the log and
        // that of its index.
        keep_aborted_below(self.folder, base, self.end)?;
        if !clean {
            let (scan, aborted) = self.verify(&log, base, from, len_bytes)?;
            valid_bytes = scan.valid_bytes;
            if !aborted.is_empty() {
                let path = SegmentFile::AbortedIndex.path(self.folder, base);
                append_aborted_entries(&path, &aborted)?;
            }
            if let Some(cause) = scan.cause {
                self.report.cut_bytes += len_bytes - valid_bytes;
                self.report.cut_reason.get_or_insert(cause);
            }
            log.set_len(valid_bytes)?;
        }
        if !is_last && let Some(largest) = self.state.largest {
            let last = self.state.times.last().map_or(-1, |entry| entry.timestamp_ms);
            if largest.timestamp_ms > last {
                self.state.times.push(largest);
            }
        }
        self.write_indexes(base)?;
        Ok(valid_bytes)
    }

    /// Verifies batches from `from` until the end or the first that does not fit.
    fn verify(
        &mut self,
        log: &File,
        base: Offset,
        from: u64,
        len_bytes: u64,
    ) -> io::Result<(ScanEnd, Vec<AbortedTxn>)> {
        let limits = BatchLimits { batch_bytes_max: i32::MAX as u32 };
        let mut validator = BatchValidator::new(limits);
        let mut chunk = vec![0; SCAN_CHUNK_BYTES];
        let mut aborted = Vec::new();
        let (mut read_to, mut valid_bytes) = (from, from);
        let mut cause = None;
        'file: while read_to < len_bytes {
            let wanted = usize::try_from(len_bytes - read_to).unwrap_or(SCAN_CHUNK_BYTES);
            let read = read_at(log, &mut chunk[..wanted.min(SCAN_CHUNK_BYTES)], read_to)?;
            if read == 0 {
                break;
            }
            let mut rest = &chunk[..read];
            while !rest.is_empty() {
                match validator.feed(&mut rest) {
                    Ok(None) => {}
                    Ok(Some(info)) => match self.take(base, valid_bytes, info) {
                        Ok((size_bytes, entry)) => {
                            valid_bytes += size_bytes;
                            aborted.extend(entry);
                        }
                        Err(reason) => {
                            cause = Some(reason);
                            break 'file;
                        }
                    },
                    Err(error) => {
                        cause = Some(error.to_string());
                        break 'file;
                    }
                }
            }
            read_to += read as u64;
        }
        self.report.scanned_bytes += read_to.max(valid_bytes) - from;
        if cause.is_none() && valid_bytes < len_bytes {
            cause = Some("the last batch is incomplete".to_owned());
        }
        if is_zero(log, valid_bytes)? {
            cause = None;
        }
        Ok((ScanEnd { valid_bytes, cause }, aborted))
    }

    /// Takes a verified batch, if it continues the log.
    fn take(
        &mut self,
        base: Offset,
        position: u64,
        info: BatchInfo,
    ) -> Result<(u64, Option<AbortedTxn>), String> {
        // A log whose start lies inside a batch begins with all of that batch.
        let begins = position == 0 && info.base_offset == base && info.last_offset >= self.end;
        if info.base_offset < self.end && !begins {
            return Err(format!("batch at offset {} follows {}", info.base_offset, self.end));
        }
        if info.last_offset.0 - base.0 > i64::from(i32::MAX) {
            return Err(format!("batch at offset {} is too far from {base}", info.base_offset));
        }
        let latest = self.state.epochs.latest().map_or(LeaderEpoch::UNKNOWN, |last| last.epoch);
        if info.leader_epoch != LeaderEpoch::UNKNOWN && info.leader_epoch < latest {
            let (offset, epoch) = (info.base_offset, info.leader_epoch);
            return Err(format!("batch at offset {offset} has epoch {epoch}, after {latest}"));
        }
        let aborted = self.state.open.append(&info).map_err(|error| error.to_string())?;
        self.note(base, position, &info);
        note_epoch(&mut self.state, &info);
        self.end = info.next_offset();
        let size_bytes = u64::from(info.size_bytes);
        self.last_batch = Some(info);
        Ok((size_bytes, aborted))
    }

    fn note(&mut self, base: Offset, position: u64, info: &BatchInfo) {
        let since = &mut self.since_index_bytes;
        index_batch_at(&mut self.state, base, (info, position), self.interval, since);
    }

    /// Picks up the indexes of the taken part; entries that cannot be right are dropped.
    fn resume_indexes(&mut self, base: Offset, from: u64, clean: bool) -> io::Result<()> {
        let last = u32::try_from(self.end.0 - 1 - base.0).ok();
        let offset_fits = |entry: &OffsetEntry| {
            u64::from(entry.position) < from && last.is_some_and(|last| entry.relative <= last)
        };
        let time_fits = |entry: &TimeEntry| last.is_some_and(|last| entry.relative <= last);
        let offsets_rise = |one: &OffsetEntry, next: &OffsetEntry| {
            one.relative < next.relative && one.position < next.position
        };
        let times_rise = |one: &TimeEntry, next: &TimeEntry| {
            one.relative <= next.relative && one.timestamp_ms < next.timestamp_ms
        };
        self.state.offsets = resume_index(
            &SegmentFile::OffsetIndex.path(self.folder, base),
            clean,
            offset_fits,
            offsets_rise,
        )?;
        self.state.times = resume_index(
            &SegmentFile::TimeIndex.path(self.folder, base),
            clean,
            time_fits,
            times_rise,
        )?;
        self.state.largest = self.state.times.last();
        Ok(())
    }

    /// Walks over what lies between the last index entry and the recovery point: for the largest
    /// timestamp, the last batch, and entries that did not reach the disk.
    fn walk_taken(&mut self, log: &File, base: Offset, from: u64) -> io::Result<()> {
        self.since_index_bytes = 0;
        self.last_batch = None;
        let start = self.state.offsets.last().map_or(0, |entry| u64::from(entry.position));
        scan_headers(log, start, from, |position, info| {
            self.note(base, position, info);
            self.last_batch = Some(info.clone());
            ControlFlow::<()>::Continue(())
        })?;
        Ok(())
    }

    /// Where there is no room the entries stay in memory, and what is theirs alone is found by walking:
    /// a full disk is no reason not to serve what is sound.
    fn write_indexes(&mut self, base: Offset) -> io::Result<()> {
        let offsets = self.state.offsets.unwritten();
        let times = self.state.times.unwritten();
        for (file, entries) in
            [(SegmentFile::OffsetIndex, offsets), (SegmentFile::TimeIndex, times)]
        {
            match write_index(&file.path(self.folder, base), &entries) {
                Ok(()) => {}
                Err(error) if is_out_of_room(&error) => {
                    tracing::warn!(folder = %self.folder.display(), %error, "an index is not written");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.state.offsets.mark_written();
        self.state.times.mark_written();
        Ok(())
    }

    /// Reads the epochs of what is taken as it is; walks over it if the file is not sound.
    fn load_epochs(
        &mut self,
        files: &BTreeMap<Offset, u64>,
        trusted: Option<RecoveryPoint>,
    ) -> io::Result<()> {
        let Some(trusted) = trusted else { return Ok(()) };
        let read = fs::read(self.folder.join(LEADER_EPOCH_CHECKPOINT));
        match read.ok().and_then(|bytes| EpochCache::parse(&bytes).ok()) {
            Some(epochs) => self.state.epochs = epochs,
            None => {
                for (base, len_bytes) in files.range(..=trusted.segment) {
                    let end = if *base == trusted.segment { trusted.position } else { *len_bytes };
                    let log = File::open(SegmentFile::Log.path(self.folder, *base))?;
                    scan_headers(&log, 0, end, |_, info| {
                        note_epoch(&mut self.state, info);
                        ControlFlow::<()>::Continue(())
                    })?;
                }
                self.state.epochs_changed = true;
            }
        }
        // Entries beyond it must not lie in wait in the file until the log has grown past them.
        self.state.epochs_changed |= self.state.epochs.truncate_from_end(trusted.offset);
        Ok(())
    }

    fn load_transactions(&mut self, entry: &CheckpointEntry) -> io::Result<()> {
        if !entry.open.is_empty() {
            self.state.open = OpenTransactions::parse(&entry.open).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// The indexes of a segment that was cut, and what follows from them.
pub(crate) struct ResumedTail {
    pub(crate) offsets: IndexTail<OffsetEntry>,
    pub(crate) times: IndexTail<TimeEntry>,
    pub(crate) largest: Option<TimeEntry>,
    pub(crate) last_batch: Option<BatchInfo>,
    pub(crate) since_index_bytes: u64,
}

/// Cuts the indexes of a segment to its first `position` bytes, which end at offset `end`.
pub(crate) fn resume_tail(
    folder: &Path,
    base: Offset,
    position: u64,
    end: Offset,
    index_interval_bytes: u32,
) -> io::Result<ResumedTail> {
    let mut recovery = Recovery::new(folder, index_interval_bytes, Offset(0), end);
    let log = File::open(SegmentFile::Log.path(folder, base))?;
    recovery.resume_indexes(base, position, false)?;
    recovery.walk_taken(&log, base, position)?;
    recovery.write_indexes(base)?;
    Ok(ResumedTail {
        offsets: recovery.state.offsets,
        times: recovery.state.times,
        largest: recovery.state.largest,
        last_batch: recovery.last_batch,
        since_index_bytes: recovery.since_index_bytes,
    })
}

/// The last batch of a log whose newest segment may be empty.
pub(crate) fn last_batch_of(
    folder: &Path,
    segments: &[Arc<Segment>],
) -> io::Result<Option<BatchInfo>> {
    let Some(segment) = segments.iter().rfind(|segment| segment.len_bytes() > 0) else {
        return Ok(None);
    };
    let (base, end) = (segment.base(), segment.len_bytes());
    let index = SegmentFile::OffsetIndex.path(folder, base);
    let fits = |entry: &OffsetEntry| u64::from(entry.position) < end;
    let start = resume_index(&index, true, fits, |_, _| true)?.last();
    let log = File::open(SegmentFile::Log.path(folder, base))?;
    let mut last = None;
    scan_headers(&log, start.map_or(0, |entry| u64::from(entry.position)), end, |_, info| {
        last = Some(info.clone());
        ControlFlow::<()>::Continue(())
    })?;
    Ok(last)
}

/// Drops index entries of transactions that were aborted at or past `end`.
pub(crate) fn keep_aborted_below(folder: &Path, base: Offset, end: Offset) -> io::Result<()> {
    let path = SegmentFile::AbortedIndex.path(folder, base);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let kept: Vec<u8> = aborted_entries(&bytes)
        .map_while(Result::ok)
        .take_while(|entry| entry.last_offset < end)
        .flat_map(|entry| entry.encode())
        .collect();
    match kept.len() {
        0 => remove_if_there(&path),
        len_bytes if len_bytes == bytes.len() => Ok(()),
        _ => fs::write(&path, kept),
    }
}

/// Whether the file goes on with zeros, as a recycled file does past what was received.
fn is_zero(log: &File, position: u64) -> io::Result<bool> {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let read = read_at(log, &mut bytes, position)?;
    Ok(bytes[..read].iter().all(|byte| *byte == 0))
}

/// The sound front of an index file. After a clean stop only its last entry is looked at.
fn resume_index<E: IndexEntry>(
    path: &Path,
    clean: bool,
    fits: impl Fn(&E) -> bool,
    rise: impl Fn(&E, &E) -> bool,
) -> io::Result<IndexTail<E>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(IndexTail::default()),
        Err(error) => return Err(error),
    };
    let file_bytes = file.metadata()?.len();
    let entries = entries_in::<E>(file_bytes);
    if clean && entries > 0 && file_bytes == u64::from(entries) * E::BYTES as u64 {
        let last = entry_at::<E>(&file, entries - 1)?;
        let rises = match entries.checked_sub(2) {
            Some(previous) => rise(&entry_at(&file, previous)?, &last),
            None => true,
        };
        if fits(&last) && rises {
            return Ok(IndexTail::resume(entries, Some(last)));
        }
    }
    let mut bytes = vec![0; usize::try_from(file_bytes.min(INDEX_BYTES_MAX)).unwrap_or(0)];
    let read = read_at(&file, &mut bytes, 0)?;
    let (mut kept, mut last) = (0, None::<E>);
    for chunk in bytes[..read].chunks_exact(E::BYTES) {
        let entry = E::decode(chunk);
        if !fits(&entry) || last.is_some_and(|last| !rise(&last, &entry)) {
            break;
        }
        kept += 1;
        last = Some(entry);
    }
    Ok(IndexTail::resume(kept, last))
}

/// The segments of a folder with the lengths of their log files.
fn list_segments(folder: &Path) -> io::Result<BTreeMap<Offset, u64>> {
    let mut segments = BTreeMap::new();
    let mut companions = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        match name.to_str().and_then(SegmentFile::parse) {
            Some((base, SegmentFile::Log)) => {
                segments.insert(base, entry.metadata()?.len());
            }
            Some((base, _)) => companions.push((base, entry.path())),
            None => {}
        }
    }
    for (base, path) in companions {
        if !segments.contains_key(&base) {
            remove_if_there(&path)?;
        }
    }
    Ok(segments)
}

/// Removes segments that lie wholly below the log start: their removal was cut short. They stay, which
/// harms nothing, where the checkpoint cannot be settled.
fn remove_below(
    folder: &Path,
    files: &mut BTreeMap<Offset, u64>,
    log_start: Offset,
    settle: &dyn Fn() -> io::Result<()>,
) -> io::Result<()> {
    let second = |files: &BTreeMap<Offset, u64>| files.keys().nth(1).copied();
    if second(files).is_none_or(|base| base > log_start) {
        return Ok(());
    }
    if let Err(error) = settle() {
        tracing::warn!(folder = %folder.display(), %error, "segments below the log start stay");
        return Ok(());
    }
    while second(files).is_some_and(|base| base <= log_start)
        && let Some((first, _)) = files.pop_first()
    {
        remove_segment(folder, first)?;
    }
    Ok(())
}

/// Removes a segment's files, the log last: without it the others mean nothing.
pub(crate) fn remove_segment(folder: &Path, base: Offset) -> io::Result<()> {
    for file in SegmentFile::ALL.into_iter().rev() {
        remove_if_there(&file.path(folder, base))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with empty segments at 0, 10 and 20.
    fn segments() -> (tempfile::TempDir, BTreeMap<Offset, u64>) {
        let folder = tempfile::tempdir().unwrap();
        for base in [0, 10, 20] {
            create_segment_files(folder.path(), Offset(base), &[]).unwrap();
        }
        let files = list_segments(folder.path()).unwrap();
        (folder, files)
    }

    #[test]
    fn no_segment_is_removed_before_the_checkpoint_is_on_the_device() {
        let (folder, mut files) = segments();
        let settle = || {
            assert_eq!(list_segments(folder.path()).unwrap().len(), 3, "removed too early");
            Ok(())
        };
        remove_below(folder.path(), &mut files, Offset(12), &settle).unwrap();
        assert_eq!(list_segments(folder.path()).unwrap().keys().next(), Some(&Offset(10)));
    }

    #[test]
    fn segments_stay_where_the_checkpoint_cannot_be_settled() {
        let (folder, mut files) = segments();
        let settle = || Err(io::Error::other("read-only"));
        remove_below(folder.path(), &mut files, Offset(20), &settle).unwrap();
        assert_eq!((files.len(), list_segments(folder.path()).unwrap().len()), (3, 3));
    }

    #[test]
    fn nothing_is_settled_when_nothing_is_to_be_removed() {
        let (folder, mut files) = segments();
        let settle = || panic!("a sync for each log would make a start slow");
        remove_below(folder.path(), &mut files, Offset(9), &settle).unwrap();
    }
}
