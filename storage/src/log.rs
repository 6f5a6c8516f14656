//! The writer's side of one partition's log.
//!
//! Owns the tail: the active segment, what was received past its published end, and the order of
//! everything that changes the log. One thread at a time runs it; how bytes become published batches
//! is in the landing module. It must never publish before the bytes are stored, and never leave past
//! the published end what recovery could take for a batch.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{BatchError, BatchInfo, BatchLimits, BatchValidator};
use crate::index::{IndexTail, TimeEntry};
use crate::landing::{Expected, Landing, StagedBatch};
use crate::mapping::MappedTail;
use crate::reader::LogReader;
use crate::segment::{SEGMENT_BYTES_LIMIT, Segment, SegmentError, SegmentFile};
use crate::storage::Storage;
use crate::txns::TransactionError;
use crate::{LeaderEpoch, Offset, TopicId, TopicPartition};

/// A smaller landing is written: a recycled file is for partitions that fill it.
const MAPPED_LANDING_BYTES_MIN: u32 = 64 * 1024;

/// Per-log settings.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// A segment is sealed before it would grow past this many bytes (Kafka `segment.bytes`).
    pub segment_bytes_max: u32,
    /// A segment is sealed this long after its first append (Kafka `segment.ms`).
    pub segment_age_max: Duration,
    /// One index entry per this many bytes (Kafka `index.interval.bytes`).
    pub index_interval_bytes: u32,
    /// An index of this size seals its segment (Kafka `segment.index.bytes`).
    pub index_bytes_max: u32,
    /// Largest batch accepted, in bytes.
    pub batch_bytes_max: u32,
}

/// What the caller knows of the batches it appends.
#[derive(Clone, Copy, Debug)]
pub struct AppendContext {
    /// The leader epoch the source confirmed. A batch of a newer epoch is not stored (P2).
    /// [`LeaderEpoch::UNKNOWN`] for a source too old to confirm any: then nothing is compared.
    pub leader_epoch_max: LeaderEpoch,
}

/// What an append published.
#[derive(Clone, Debug, Default)]
pub struct Landed {
    /// Batches published by this call.
    pub batches: u32,
    /// Bytes published by this call.
    pub bytes: u64,
    /// The largest record time of the batch whose is the smallest: of all that were published
    /// together, the one that took longest to come here. `None` when no batch has a time.
    pub oldest_ms: Option<i64>,
}

/// Where the next bytes of a partition are to be received.
#[derive(Debug)]
pub enum LandingTarget {
    /// Receive here, then call [`Log::landed_in_place`].
    Mapped(MappedTail),
    /// Receive into memory of your own, then call [`Log::land`].
    Copy,
}

/// Why a batch was not stored. The log stays readable and at its last published batch.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The bytes are not a valid batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The batch does not continue the log: it starts below the next expected offset.
    #[error("batch starts at offset {found}, below the log end {expected}")]
    NotNext {
        /// The log end offset.
        expected: Offset,
        /// The batch's base offset.
        found: Offset,
    },
    /// The batch's epoch is newer than the source confirmed.
    #[error(
        "batch at offset {offset} carries leader epoch {found}, the source confirmed {confirmed}"
    )]
    EpochAhead {
        /// The batch's base offset.
        offset: Offset,
        /// The batch's epoch.
        found: LeaderEpoch,
        /// The confirmed epoch.
        confirmed: LeaderEpoch,
    },
    /// The batch's epoch is older than the log's last one.
    #[error("batch at offset {offset} carries leader epoch {found}, below the log's {latest}")]
    EpochBehind {
        /// The batch's base offset.
        offset: Offset,
        /// The batch's epoch.
        found: LeaderEpoch,
        /// The log's last epoch.
        latest: LeaderEpoch,
    },
    /// The transactions of the log cannot be followed.
    #[error(transparent)]
    Transactions(#[from] TransactionError),
    /// The disk is full; retry when there is room.
    #[error("no space left for {partition}: {source}")]
    DiskFull {
        /// The partition.
        partition: TopicPartition,
        /// The system's error.
        source: std::io::Error,
    },
    /// The disk failed; the partition is quarantined until it is reopened.
    #[error("cannot write {partition}: {source}")]
    Io {
        /// The partition.
        partition: TopicPartition,
        /// The system's error.
        source: std::io::Error,
    },
}

/// One partition's log. Owned by one thread; see [`LogReader`] for the others.
#[derive(Debug)]
pub struct Log {
    pub(crate) reader: Arc<LogReader>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) directory: usize,
    pub(crate) config: LogConfig,
    pub(crate) validator: BatchValidator,
    pub(crate) active: Arc<Segment>,
    pub(crate) tail: Tail,
    pub(crate) landing: Landing,
    pub(crate) staged: Vec<StagedBatch>,
    pub(crate) last_batch: Option<BatchInfo>,
}

/// The active segment as its writer sees it.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Bytes published.
    pub(crate) published: u64,
    /// Bytes stored: the unfinished batch of a landing lies past the published end.
    pub(crate) stored: u64,
    /// Where unpublished bytes may be left behind, at or past `stored`.
    pub(crate) dirty_end: u64,
    /// Published bytes since the last index entry.
    pub(crate) since_index_bytes: u64,
    /// The mapping to receive into, when the file is a recycled one.
    pub(crate) mapped: Option<MappedTail>,
    /// When maintenance first saw the segment with something in it.
    pub(crate) filled_since_ms: Option<i64>,
    /// The next landing starts a new segment, whatever room is left.
    pub(crate) roll_next: bool,
    /// Something was appended since maintenance last looked.
    pub(crate) appended: bool,
}

/// What a log is put together from.
pub(crate) struct LogParts {
    pub(crate) reader: Arc<LogReader>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) directory: usize,
    pub(crate) config: LogConfig,
    pub(crate) last_batch: Option<BatchInfo>,
    pub(crate) since_index_bytes: u64,
}

impl Log {
    pub(crate) fn assemble(parts: LogParts) -> Self {
        let LogParts { reader, storage, directory, config, last_batch, since_index_bytes } = parts;
        let active = {
            let state = reader.read_state();
            Arc::clone(&state.segments[state.segments.len() - 1])
        };
        let published = active.len_bytes();
        let tail = Tail {
            published,
            stored: published,
            dirty_end: published,
            since_index_bytes,
            ..Tail::default()
        };
        let limits = BatchLimits { batch_bytes_max: config.batch_bytes_max };
        let landing = Landing::at(Expected::of(&reader));
        let validator = BatchValidator::new(limits);
        let staged = Vec::new();
        Self {
            reader,
            storage,
            directory,
            config,
            validator,
            active,
            tail,
            landing,
            staged,
            last_batch,
        }
    }

    /// Makes room for `len_bytes` more record bytes, sealing the segment if they do not fit, and
    /// says where they should be received. `len_bytes` is what one response announced.
    ///
    /// In the middle of a landing it only says where the next bytes go.
    pub fn prepare_landing(&mut self, len_bytes: u32) -> Result<LandingTarget, AppendError> {
        self.check_usable()?;
        if self.tail.stored == self.tail.published && self.must_roll(len_bytes) {
            self.roll()?;
        }
        if self.tail.stored == 0 && self.tail.mapped.is_none() {
            self.start_recycled(len_bytes)?;
        }
        if self.tail.mapped.as_ref().is_some_and(|room| room.len_bytes() < len_bytes as usize) {
            // A response larger than the recycled file.
            self.unmap_tail()?;
        }
        Ok(self.tail.mapped.clone().map_or(LandingTarget::Copy, LandingTarget::Mapped))
    }

    /// Appends whole batches from memory: for local topics and tests.
    pub fn append(
        &mut self,
        batches: &[u8],
        context: &AppendContext,
    ) -> Result<Landed, AppendError> {
        let mut total = Landed::default();
        let mut rest = batches;
        while !rest.is_empty() {
            let announced = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            self.prepare_landing(announced)?;
            let result = self.land(rest, context);
            self.finish_landing()?;
            let landed = result?;
            total.batches += landed.batches;
            total.bytes += landed.bytes;
            if landed.bytes == 0 && !self.tail.roll_next {
                break;
            }
            rest = &rest[usize::try_from(landed.bytes).unwrap_or(rest.len())..];
        }
        Ok(total)
    }

    /// Periodic work: seals by age, releases descriptors and mappings of an idle log.
    pub fn maintain(&mut self, now_ms: i64) -> Result<(), AppendError> {
        self.check_usable()?;
        if self.tail.published > 0 {
            let since = *self.tail.filled_since_ms.get_or_insert(now_ms);
            let age_max =
                i64::try_from(self.config.segment_age_max.as_millis()).unwrap_or(i64::MAX);
            self.tail.roll_next |= now_ms.saturating_sub(since) >= age_max;
        }
        let idle =
            !std::mem::take(&mut self.tail.appended) && self.tail.stored == self.tail.published;
        if idle {
            self.write_indexes()?;
            self.unmap_tail()?;
            self.staged = Vec::new();
            let mut holders = self.reader.read_state().segments.clone();
            holders.retain(|segment| segment.holds_anything());
            for segment in holders {
                segment.release();
            }
        }
        Ok(())
    }

    /// Makes everything published durable, to the device.
    pub fn flush(&mut self) -> Result<(), AppendError> {
        self.check_usable()?;
        self.write_indexes()?;
        let synced = self.storage.sync_log(self.directory, &self.reader);
        synced.map_err(|error| self.io_error(error))
    }

    /// A clean stop: cuts the preallocated tail, writes indexes and the recovery point.
    pub fn close(mut self) -> Result<(), AppendError> {
        self.finish_landing()?;
        self.unmap_tail()?;
        self.finish_time_index();
        self.flush()
    }

    /// The shared, read-only side.
    #[must_use]
    pub fn reader(&self) -> &Arc<LogReader> {
        &self.reader
    }

    /// The last published batch, for the caller's epoch bookkeeping.
    #[must_use]
    pub fn last_batch(&self) -> Option<&BatchInfo> {
        self.last_batch.as_ref()
    }

    /// The topic's id as `partition.metadata` has it.
    #[must_use]
    pub fn topic_id(&self) -> TopicId {
        self.reader.topic_id()
    }

    pub(crate) fn check_usable(&self) -> Result<(), AppendError> {
        if self.reader.has_failed() {
            let cause = std::io::Error::other("an earlier write failed; the log must be reopened");
            return Err(AppendError::Io { partition: self.partition(), source: cause });
        }
        Ok(())
    }

    fn must_roll(&self, len_bytes: u32) -> bool {
        if self.tail.published == 0 {
            return false;
        }
        let room_max = u64::from(self.config.segment_bytes_max).min(SEGMENT_BYTES_LIMIT);
        let room_max = match &self.tail.mapped {
            Some(mapped) => room_max.min(self.tail.stored + mapped.len_bytes() as u64),
            None => room_max,
        };
        // As many entries as the landing may add must fit, in the larger of the two formats.
        let new_entries = u64::from(len_bytes / self.config.index_interval_bytes.max(1)) + 1;
        let entries = u64::from(self.reader.read_state().offsets.entries());
        self.tail.roll_next
            || self.tail.published + u64::from(len_bytes) > room_max
            || (entries + new_entries) * 12 > u64::from(self.config.index_bytes_max)
    }

    /// Seals the active segment and starts the next one.
    pub(crate) fn roll(&mut self) -> Result<(), AppendError> {
        debug_assert_eq!(self.tail.stored, self.tail.published, "rolled in mid landing");
        self.unmap_tail()?;
        self.finish_time_index();
        self.write_indexes()?;
        let largest = self.reader.read_state().largest;
        self.active.set_largest(largest);
        // Named by the end of the last batch, not by the log end, which lies beyond it after a
        // truncation into a gap: recovery takes a segment that does not start where the last one ends
        // for one that follows a hole.
        let end = self.last_batch.as_ref().map_or(self.reader.log_end(), BatchInfo::next_offset);
        let next = self.create_segment(end)?;
        self.reader.update(|state| {
            state.segments.push(Arc::clone(&next));
            state.offsets = IndexTail::default();
            state.times = IndexTail::default();
            state.largest = None;
        });
        self.active.release();
        self.start_tail(next);
        Ok(())
    }

    /// Puts a recycled file in place of the active segment's empty one, if there is one and the
    /// landing is worth it.
    fn start_recycled(&mut self, len_bytes: u32) -> Result<(), AppendError> {
        if len_bytes < MAPPED_LANDING_BYTES_MIN {
            return Ok(());
        }
        let segment_bytes = u64::from(self.config.segment_bytes_max);
        let ready = self.storage.take_recycled(self.directory, u64::from(len_bytes), segment_bytes);
        let Some(ready) = ready else { return Ok(()) };
        let path = SegmentFile::Log.path(&self.reader.folder(), self.active.base());
        ready.place(&path).map_err(|error| self.io_error(error))?;
        self.active.reopen();
        self.active.adopt(
            self.reader.budget(),
            Arc::clone(&ready.file),
            Arc::clone(&ready.mapping),
        );
        self.tail.mapped = Some(MappedTail::new(ready.mapping, 0));
        Ok(())
    }

    pub(crate) fn start_tail(&mut self, active: Arc<Segment>) {
        self.active = active;
        self.tail = Tail { appended: true, ..Tail::default() };
    }

    /// Makes the files of a new, empty segment.
    pub(crate) fn create_segment(&self, base: Offset) -> Result<Arc<Segment>, AppendError> {
        let open = {
            let state = self.reader.read_state();
            if state.open.is_empty() { Vec::new() } else { state.open.encode() }
        };
        create_segment_files(&self.reader.folder(), base, &open)
            .map_err(|error| self.io_error(error))?;
        Ok(Segment::new(base, 0))
    }

    /// Adds the last entry of the time index, which a sealed segment ends with.
    fn finish_time_index(&self) {
        self.reader.update(|state| {
            let last = state.times.last().map_or(-1, |entry: TimeEntry| entry.timestamp_ms);
            if let Some(largest) = state.largest
                && largest.timestamp_ms > last
            {
                state.times.push(largest);
            }
        });
    }

    /// Writes the buffered index entries to their files.
    pub(crate) fn write_indexes(&mut self) -> Result<(), AppendError> {
        let (offsets, times) = {
            let state = self.reader.read_state();
            (state.offsets.unwritten(), state.times.unwritten())
        };
        if offsets.is_empty() && times.is_empty() {
            return Ok(());
        }
        self.write_index_files(&offsets, &times).map_err(|error| self.segment_error(error))?;
        self.reader.update(|state| {
            state.offsets.mark_written();
            state.times.mark_written();
        });
        Ok(())
    }

    fn write_index_files(
        &self,
        offsets: &crate::index::Unwritten,
        times: &crate::index::Unwritten,
    ) -> Result<(), SegmentError> {
        let folder = self.reader.folder();
        if !offsets.is_empty() {
            let file = self.active.index_file(&folder, self.reader.budget())?;
            offsets.write_to(&file)?;
        }
        if !times.is_empty() {
            let path = SegmentFile::TimeIndex.path(&folder, self.active.base());
            let file =
                std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            times.write_to(&file)?;
        }
        Ok(())
    }

    /// Gives the room past the published end back to the file system and goes on by plain writes.
    pub(crate) fn unmap_tail(&mut self) -> Result<(), AppendError> {
        if self.tail.mapped.take().is_none() {
            return Ok(());
        }
        self.cut_file(self.tail.dirty_end)
    }

    /// Cuts the active segment's file.
    pub(crate) fn cut_file(&mut self, len_bytes: u64) -> Result<(), AppendError> {
        let file = self.active_file()?;
        file.set_len(len_bytes).map_err(|error| self.io_error(error))
    }

    pub(crate) fn active_file(&self) -> Result<Arc<crate::budget::CountedFile>, AppendError> {
        let folder = self.reader.folder();
        let file = self.active.log_file(&folder, self.reader.budget());
        file.map_err(|error| self.segment_error(error))
    }

    pub(crate) fn partition(&self) -> TopicPartition {
        self.reader.partition().clone()
    }

    pub(crate) fn segment_error(&self, error: SegmentError) -> AppendError {
        match error {
            SegmentError::Gone => self.io_error(std::io::Error::other("the log was deleted")),
            SegmentError::Io(error) => self.io_error(error),
        }
    }

    /// Tells a full disk, which passes, from a failing one, which ends the log until it is
    /// reopened.
    pub(crate) fn io_error(&self, source: std::io::Error) -> AppendError {
        let partition = self.partition();
        match source.kind() {
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge => AppendError::DiskFull { partition, source },
            // Too many open files, here or in the system, passes as well.
            _ if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                AppendError::DiskFull { partition, source }
            }
            _ => {
                self.reader.set_failed();
                AppendError::Io { partition, source }
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.storage.log_closed(self.reader.partition());
    }
}

/// Makes the files of an empty segment, in place of whatever an earlier one of that base left.
pub(crate) fn create_segment_files(
    folder: &std::path::Path,
    base: Offset,
    open_transactions: &[u8],
) -> std::io::Result<()> {
    crate::files::remove_if_there(&SegmentFile::AbortedIndex.path(folder, base))?;
    crate::files::remove_if_there(&SegmentFile::OpenTransactions.path(folder, base))?;
    if !open_transactions.is_empty() {
        std::fs::write(SegmentFile::OpenTransactions.path(folder, base), open_transactions)?;
    }
    // A broker wants both indexes beside the log, empty or not.
    for file in [SegmentFile::OffsetIndex, SegmentFile::TimeIndex, SegmentFile::Log] {
        std::fs::File::create(file.path(folder, base))?;
    }
    Ok(())
}
