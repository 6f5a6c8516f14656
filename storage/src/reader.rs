//! The readers' side of one partition's log: any thread, published bytes only.
//!
//! Owns what was published: the segments, their ends, the epochs, the end of the active indexes. The
//! log's writer changes it under a short write lock, once per piece landed; readers look things up
//! under the read lock and do their I/O after it. Offsets that are polled are atomics beside the
//! lock. It must never do I/O under the lock, and never show a reader a byte past the published
//! end.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::batch::BatchInfo;
use crate::budget::Budget;
use crate::epochs::EpochCache;
use crate::index::{Found, IndexTail, OffsetEntry, TailSearch, TimeEntry, entries_in, search};
use crate::mapping::ReadSlice;
use crate::scan::scan_headers;
use crate::segment::{Segment, SegmentError, SegmentFile};
use crate::truncation::Doomed;
use crate::txns::{self, OpenTransactions};
use crate::{LeaderEpoch, Offset, ProducerId, TopicId, TopicPartition};

/// How often a look-up starts again because its segment went away meanwhile. Each time the log start
/// or end has moved, so a second look usually settles it.
const LOOKUPS_MAX: usize = 16;

/// Why a read was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is below the log start or above the log end.
    #[error("offset {offset} is outside {log_start} to {log_end}")]
    OutOfRange {
        /// What was asked.
        offset: Offset,
        /// First offset that can be read.
        log_start: Offset,
        /// One past the last.
        log_end: Offset,
    },
    /// The disk failed, or a file is damaged.
    #[error("cannot read {partition}: {source}")]
    Io {
        /// The partition.
        partition: TopicPartition,
        /// The system's error.
        source: std::io::Error,
    },
}

/// An aborted transaction that a read-committed reader has to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose transaction.
    pub producer_id: ProducerId,
    /// Its first offset.
    pub first_offset: Offset,
}

/// The last offset of an epoch (KIP-101, KIP-279).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest epoch not above the one asked.
    pub epoch: LeaderEpoch,
    /// Its end offset.
    pub end_offset: Offset,
}

/// The answer to a search by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The record's timestamp in milliseconds.
    pub timestamp_ms: i64,
    /// The record's offset.
    pub offset: Offset,
    /// The epoch of the record's batch.
    pub leader_epoch: LeaderEpoch,
}

/// Published state of one log.
#[derive(Debug)]
pub struct LogReader {
    partition: TopicPartition,
    topic_id: TopicId,
    root: Arc<Path>,
    budget: Arc<Budget>,
    /// Bytes of an active segment to map, so that its growth needs no new mapping.
    map_bytes: u64,
    log_start: AtomicI64,
    log_end: AtomicI64,
    last_stable: AtomicI64,
    latest_epoch: AtomicI32,
    size_bytes: AtomicU64,
    /// Set when the device failed under the log: nothing is written until it is reopened.
    failed: AtomicBool,
    state: RwLock<State>,
    /// Segments below the log start that wait for it to become durable, oldest first.
    doomed: Mutex<VecDeque<Doomed>>,
}

/// What was published, apart from the offsets that are polled.
#[derive(Debug)]
pub(crate) struct State {
    /// In offset order, at least one; the last is the active one.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The active segment's indexes.
    pub(crate) offsets: IndexTail<OffsetEntry>,
    pub(crate) times: IndexTail<TimeEntry>,
    /// The active segment's largest timestamp.
    pub(crate) largest: Option<TimeEntry>,
    pub(crate) epochs: EpochCache,
    /// The epochs are not on disk as they are here.
    pub(crate) epochs_changed: bool,
    /// Transactions open at the log end.
    pub(crate) open: OpenTransactions,
    /// Grows with every truncation and reset: what was read of the log before may no longer hold.
    pub(crate) generation: u64,
    /// While something is being taken away: nothing of the log may go into a checkpoint but what the
    /// log itself notes.
    pub(crate) frozen: bool,
    /// Bytes of all segments but the active one.
    pub(crate) sealed_bytes: u64,
}

/// What a new reader starts from.
pub(crate) struct ReaderParts {
    pub(crate) partition: TopicPartition,
    pub(crate) topic_id: TopicId,
    pub(crate) root: Arc<Path>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) map_bytes: u64,
    pub(crate) log_start: Offset,
    pub(crate) log_end: Offset,
    pub(crate) state: State,
}

/// A batch found in a segment.
#[derive(Clone, Debug)]
struct Located {
    segment: Arc<Segment>,
    position: u64,
    info: BatchInfo,
    /// Published bytes of the segment.
    end: u64,
    /// Offset after them.
    end_offset: Offset,
    /// Bytes to map, more than there are while the segment grows.
    map_bytes: u64,
}

impl LogReader {
    pub(crate) fn new(parts: ReaderParts) -> Arc<Self> {
        let reader = Self {
            partition: parts.partition,
            topic_id: parts.topic_id,
            root: parts.root,
            budget: parts.budget,
            map_bytes: parts.map_bytes,
            log_start: AtomicI64::new(parts.log_start.0),
            log_end: AtomicI64::new(parts.log_end.0),
            last_stable: AtomicI64::new(parts.log_end.0),
            latest_epoch: AtomicI32::new(-1),
            size_bytes: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            state: RwLock::new(parts.state),
            doomed: Mutex::new(VecDeque::new()),
        };
        reader.update(|_| {});
        Arc::new(reader)
    }

    /// First offset that can be read.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        Offset(self.log_start.load(Ordering::Acquire))
    }

    /// One past the last published offset; on a single node also the high watermark.
    #[must_use]
    pub fn log_end(&self) -> Offset {
        Offset(self.log_end.load(Ordering::Acquire))
    }

    /// First offset of the earliest open transaction, else the log end.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        Offset(self.last_stable.load(Ordering::Acquire))
    }

    /// Epoch of the last published batch.
    #[must_use]
    pub fn latest_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.latest_epoch.load(Ordering::Acquire))
    }

    /// Bytes in the log's segments.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// The topic's id as `partition.metadata` has it.
    #[must_use]
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// Reads as Kafka does: from the batch that holds `from`, at most `bytes_max` bytes of one
    /// segment and nothing at or past `until`; the last batch may be cut. With `whole_first_batch`
    /// the first batch comes whole even when it is larger. Empty at the end of the log.
    pub fn read(
        &self,
        from: Offset,
        until: Offset,
        bytes_max: usize,
        whole_first_batch: bool,
    ) -> Result<Option<ReadSlice>, ReadError> {
        self.retry(|| {
            self.check_range(from)?;
            let Some(first) = self.locate(from)? else { return Ok(None) };
            if first.info.base_offset >= until {
                return Ok(None);
            }
            let end = self.position_bound(&first, until)?;
            let first_bytes = u64::from(first.info.size_bytes);
            let wanted = (bytes_max as u64).max(if whole_first_batch { first_bytes } else { 0 });
            let end = end.min(first.position.saturating_add(wanted));
            if end <= first.position {
                return Ok(None);
            }
            let range = first.position..end;
            Ok(Some(first.segment.slice(&self.folder(), &self.budget, first.map_bytes, range)?))
        })
    }

    /// Aborted transactions that overlap what a reader gets from `from`, up to `upper` (exclusive).
    pub fn aborted_transactions(
        &self,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<AbortedTransaction>, ReadError> {
        let segments = {
            let state = self.read_state();
            state.segments[state.segment_index(from)..].to_vec()
        };
        let mut found = Vec::new();
        // A transaction that overlaps may have its marker, and so its entry, in any later segment.
        for segment in segments.iter().filter(|segment| segment.has_aborted()) {
            let path = SegmentFile::AbortedIndex.path(&self.folder(), segment.base());
            let bytes = match std::fs::read(&path) {
                Ok(bytes) => bytes,
                // Deleted or truncated meanwhile; what it listed is below the log start or gone.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(self.io_error(error)),
            };
            let complete = txns::collect_aborted(&bytes, from, upper, &mut found)
                .map_err(|error| self.io_error(std::io::Error::other(error)))?;
            if complete {
                break;
            }
        }
        let listed = found.iter().map(|entry| AbortedTransaction {
            producer_id: entry.producer_id,
            first_offset: entry.first_offset,
        });
        Ok(listed.collect())
    }

    /// The offset that follows the bytes [`LogReader::read`] would return, as far as whole batches
    /// and index entries tell: the upper bound for the aborted list, as Kafka computes it.
    pub fn upper_bound_offset(&self, from: Offset, bytes: usize) -> Result<Offset, ReadError> {
        self.retry(|| {
            self.check_range(from)?;
            let Some(first) = self.locate(from)? else { return Ok(self.log_end()) };
            let position = first.position.saturating_add(bytes as u64);
            if position >= first.end {
                return Ok(first.end_offset);
            }
            let beyond = |entry: &OffsetEntry| u64::from(entry.position) < position;
            let found = self.search_offsets(&first.segment, beyond)?;
            Ok(found.after.map_or(first.end_offset, |entry| {
                first.segment.base().plus(i64::from(entry.relative))
            }))
        })
    }

    /// Where `epoch` ended here. `None` when no epoch at or below it is known.
    ///
    /// Never below the log start, also when that lies inside the first batch: the epochs know where
    /// batches begin, a reader only what it can read.
    #[must_use]
    pub fn epoch_end(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        let state = self.read_state();
        let end = state.epochs.end_offset_for(epoch, self.log_end())?;
        Some(EpochEnd { end_offset: end.end_offset.max(self.log_start()), ..end })
    }

    /// The epoch that was current at the log start (ListOffsets -2 and -4 answer with it).
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        self.read_state().epochs.epoch_for_offset(offset).unwrap_or(LeaderEpoch::UNKNOWN)
    }

    // For the writer and the storage.

    pub(crate) fn folder(&self) -> PathBuf {
        self.root.join(self.partition.to_string())
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub(crate) fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the published state, then the offsets beside it.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.write_state();
        let result = change(&mut state);
        state.recount();
        self.publish_from(&state, self.log_end());
        result
    }

    /// The same with a new log start and end, for a change that removes something.
    pub(crate) fn update_to<T>(
        &self,
        (log_start, log_end): (Offset, Offset),
        change: impl FnOnce(&mut State) -> T,
    ) -> T {
        let mut state = self.write_state();
        let result = change(&mut state);
        state.recount();
        self.log_start.store(log_start.0, Ordering::Release);
        self.publish_from(&state, log_end);
        result
    }

    /// Keeps checkpoints made by another thread away, those begun before included, until the log
    /// is smaller and says so; or lets them come again.
    pub(crate) fn freeze(&self, frozen: bool) {
        let mut state = self.write_state();
        state.generation += 1;
        state.frozen = frozen;
    }

    /// Publishes an append to the active segment.
    pub(crate) fn publish<T>(&self, log_end: Offset, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.write_state();
        let result = change(&mut state);
        self.publish_from(&state, log_end);
        result
    }

    /// Under the write lock, so that a reader holding the read lock sees one moment.
    fn publish_from(&self, state: &State, log_end: Offset) {
        let active_bytes = state.segments.last().map_or(0, |active| active.len_bytes());
        self.size_bytes.store(state.sealed_bytes + active_bytes, Ordering::Release);
        let latest = state.epochs.latest().map_or(LeaderEpoch::UNKNOWN, |latest| latest.epoch);
        self.latest_epoch.store(latest.0, Ordering::Release);
        // A transaction may have begun below the log start.
        let stable = state.open.last_stable_offset(log_end).max(self.log_start());
        // The stable offset must not be seen beyond the end: up goes the end first.
        if log_end >= self.log_end() {
            self.log_end.store(log_end.0, Ordering::Release);
            self.last_stable.store(stable.0, Ordering::Release);
        } else {
            self.last_stable.store(stable.0, Ordering::Release);
            self.log_end.store(log_end.0, Ordering::Release);
        }
    }

    /// Held while files of doomed segments are removed.
    pub(crate) fn lock_doomed(&self) -> MutexGuard<'_, VecDeque<Doomed>> {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_range(&self, from: Offset) -> Result<(), LookupError> {
        let (log_start, log_end) = (self.log_start(), self.log_end());
        if from < log_start || from > log_end {
            let error = ReadError::OutOfRange { offset: from, log_start, log_end };
            return Err(LookupError::Refused(error));
        }
        Ok(())
    }

    /// The batch that holds `from`, or the next one after a gap. `None` at the log end.
    fn locate(&self, from: Offset) -> Result<Option<Located>, LookupError> {
        let mut skip = 0;
        loop {
            let (segment, end, end_offset, map_bytes) = {
                let state = self.read_state();
                let index = state.segment_index(from) + skip;
                let Some(segment) = state.segments.get(index) else { return Ok(None) };
                let end = segment.len_bytes();
                let (end_offset, map_bytes) = match state.segments.get(index + 1) {
                    Some(next) => (next.base(), end),
                    None => (self.log_end(), self.map_bytes),
                };
                (Arc::clone(segment), end, end_offset, map_bytes)
            };
            if let Some((position, info)) = self.first_ending_at(&segment, from, end)? {
                let located = Located { segment, position, info, end, end_offset, map_bytes };
                return Ok(Some(located));
            }
            skip += 1;
        }
    }

    /// The first batch of `segment` whose last offset is at or after `offset`.
    pub(crate) fn first_ending_at(
        &self,
        segment: &Arc<Segment>,
        offset: Offset,
        end: u64,
    ) -> Result<Option<(u64, BatchInfo)>, LookupError> {
        if end == 0 {
            return Ok(None);
        }
        let start = self.position_before(segment, offset)?;
        self.scan(segment, start, end, |position, info| {
            if info.last_offset >= offset {
                ControlFlow::Break((position, info.clone()))
            } else {
                ControlFlow::Continue(())
            }
        })
    }

    /// Where to start looking for `offset`: at or before the batch that holds it.
    pub(crate) fn position_before(
        &self,
        segment: &Arc<Segment>,
        offset: Offset,
    ) -> Result<u64, LookupError> {
        let relative = offset.0.saturating_sub(segment.base().0);
        let at_or_before = |entry: &OffsetEntry| i64::from(entry.relative) <= relative;
        let found = self.search_offsets(segment, at_or_before)?;
        Ok(found.before.map_or(0, |entry| u64::from(entry.position)))
    }

    /// Where the batches below `until` end in the segment of `first`.
    fn position_bound(&self, first: &Located, until: Offset) -> Result<u64, LookupError> {
        if until >= first.end_offset {
            return Ok(first.end);
        }
        let start = self.position_before(&first.segment, until)?.max(first.position);
        let bound = self.scan(&first.segment, start, first.end, |position, info| {
            if info.base_offset >= until {
                ControlFlow::Break(position)
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(bound.unwrap_or(first.end))
    }

    pub(crate) fn scan<B>(
        &self,
        segment: &Arc<Segment>,
        position: u64,
        end: u64,
        visit: impl FnMut(u64, &BatchInfo) -> ControlFlow<B>,
    ) -> Result<Option<B>, LookupError> {
        let file = segment.readable_log_file(&self.folder(), &self.budget)?;
        Ok(scan_headers(&file, position, end, visit)?)
    }

    fn search_offsets(
        &self,
        segment: &Arc<Segment>,
        holds: impl Fn(&OffsetEntry) -> bool,
    ) -> Result<Found<OffsetEntry>, LookupError> {
        let (entries, after) = {
            let state = self.read_state();
            if state.is_active(segment) {
                match state.offsets.search(&holds) {
                    TailSearch::Found(found) => return Ok(found),
                    TailSearch::OnDisk { entries, after } => (Some(entries), after),
                }
            } else {
                (None, None)
            }
        };
        let file = segment.readable_index_file(&self.folder(), &self.budget)?;
        let entries = match entries {
            Some(entries) => entries,
            None => entries_in::<OffsetEntry>(file.metadata()?.len()),
        };
        let found = search(&file, entries, holds)?;
        Ok(Found { before: found.before, after: found.after.or(after) })
    }

    /// Runs `look` again as long as segments go away under it.
    pub(crate) fn retry<T>(
        &self,
        mut look: impl FnMut() -> Result<T, LookupError>,
    ) -> Result<T, ReadError> {
        for _ in 0..LOOKUPS_MAX {
            let generation = self.read_state().generation;
            match look() {
                Ok(found) => return Ok(found),
                Err(LookupError::Moved) => {}
                // A truncation cuts files under a look-up that began before it.
                Err(LookupError::Io(_)) if self.read_state().generation != generation => {}
                Err(LookupError::Io(error)) => return Err(self.io_error(error)),
                Err(LookupError::Refused(error)) => return Err(error),
            }
        }
        Err(self.io_error(std::io::Error::other("the log changes faster than it can be read")))
    }

    fn io_error(&self, source: std::io::Error) -> ReadError {
        ReadError::Io { partition: self.partition.clone(), source }
    }
}

impl State {
    /// The segment that holds `offset`, or would.
    fn segment_index(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base() <= offset).saturating_sub(1)
    }

    fn recount(&mut self) {
        let sealed = self.segments.len().saturating_sub(1);
        self.sealed_bytes = self.segments[..sealed].iter().map(|sealed| sealed.len_bytes()).sum();
    }

    pub(crate) fn is_active(&self, segment: &Arc<Segment>) -> bool {
        self.segments.last().is_some_and(|active| Arc::ptr_eq(active, segment))
    }
}

/// Why a look-up did not find its place.
pub(crate) enum LookupError {
    /// The segment was removed or cut meanwhile: look again.
    Moved,
    Io(std::io::Error),
    Refused(ReadError),
}

impl From<SegmentError> for LookupError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Gone => Self::Moved,
            SegmentError::Io(error) => Self::Io(error),
        }
    }
}

impl From<std::io::Error> for LookupError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}
