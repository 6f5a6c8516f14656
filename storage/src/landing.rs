//! From received bytes to published batches.
//!
//! Every piece goes the same way whatever memory it came in: checked as it streams
//! ([`BatchValidator`](crate::batch::BatchValidator)), compared with what the log expects next as
//! soon as its header is there, stored at the tail, and published when a batch is whole and its
//! checksum holds. Run by the log's owner. It must never publish a batch whose bytes are not
//! stored, and after an error it must not take another byte until the landing is finished: what
//! follows damage has no meaning.

use std::sync::Arc;

use crate::batch::BatchInfo;
use crate::checkpoint::{CheckpointEntry, RecoveryPoint};
use crate::index::{BUFFERED_ENTRIES_MAX, OffsetEntry, TimeEntry};
use crate::log::{AppendContext, AppendError, Landed, Log};
use crate::mapping::MappedTail;
use crate::reader::{LogReader, State};
use crate::segment::{SEGMENT_BYTES_LIMIT, Segment, SegmentFile, write_all_at};
use crate::txns::{AbortedTxn, OpenTransactions};
use crate::{LeaderEpoch, Offset};

/// Batches published under one lock: bounds what is held between storing and publishing.
const GROUP_BATCHES: usize = 64;

/// Most bytes that are stored through the mapping: beyond, a plain write costs less for each.
const MAPPED_WRITE_BYTES_MAX: usize = 64 * 1024;

/// Bytes zeroed past what was received into a recycled file: a whole header, so that a scan after a
/// crash ends there.
const TERMINATOR: [u8; crate::batch::HEADER_BYTES_MAX] = [0; crate::batch::HEADER_BYTES_MAX];

/// What the next batch has to continue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) offset: Offset,
    pub(crate) epoch: LeaderEpoch,
}

impl Expected {
    pub(crate) fn of(reader: &LogReader) -> Self {
        Self { offset: reader.log_end(), epoch: reader.latest_epoch() }
    }
}

/// A landing in progress.
#[derive(Debug)]
pub(crate) struct Landing {
    /// After the batches staged so far.
    expected: Expected,
    /// The header of the batch in progress was compared with it.
    header_checked: bool,
    /// Nothing more is taken of this response: it failed, or the rest belongs in a new segment.
    ignoring: bool,
}

impl Landing {
    pub(crate) fn at(expected: Expected) -> Self {
        Self { expected, header_checked: false, ignoring: false }
    }
}

/// A whole, valid batch between being stored and being published.
#[derive(Debug)]
pub(crate) struct StagedBatch {
    info: BatchInfo,
    position: u64,
}

impl Log {
    /// Takes bytes in any pieces, stores them at the tail and publishes each batch that is
    /// complete and valid. On an error what came before it is published, and further bytes are
    /// passed over until [`Log::finish_landing`].
    ///
    /// Bytes that would need a new segment (a relative offset or a position beyond 31 bits, in a
    /// response larger than announced) are passed over too: fetch again from the log end.
    pub fn land(&mut self, bytes: &[u8], context: &AppendContext) -> Result<Landed, AppendError> {
        self.check_usable()?;
        let room_bytes = self.tail.mapped.as_ref().map(MappedTail::len_bytes);
        if room_bytes.is_some_and(|room_bytes| room_bytes < bytes.len()) {
            self.unmap_tail()?;
        }
        let result = self.take(bytes, context, |log, accepted| log.store(accepted));
        self.terminate()?;
        result
    }

    /// The same for bytes that were received into the last
    /// [`LandingTarget::Mapped`](crate::LandingTarget::Mapped): the `len_bytes` that follow those
    /// of earlier calls.
    pub fn landed_in_place(
        &mut self,
        len_bytes: usize,
        context: &AppendContext,
    ) -> Result<Landed, AppendError> {
        self.check_usable()?;
        let Some(received) = self.tail.mapped.clone() else {
            let cause = std::io::Error::other("bytes were received into a tail that was given up");
            return Err(self.io_error(cause));
        };
        let received_end = self.tail.dirty_end + len_bytes as u64;
        let result = self.take(received.received(len_bytes), context, |log, accepted| {
            log.tail.stored += accepted.len() as u64;
            Ok(())
        });
        self.tail.dirty_end = received_end;
        self.tail.mapped = Some(received.advanced(len_bytes));
        // The kernel wrote over the zeros that ended the segment.
        self.terminate()?;
        result
    }

    /// Ends a response: drops the truncated last batch a broker may legally send (and what an
    /// error left behind), so that the next landing starts at a batch boundary.
    pub fn finish_landing(&mut self) -> Result<(), AppendError> {
        self.validator.reset();
        self.staged.clear();
        self.landing = Landing::at(Expected::of(&self.reader));
        let (published, dirty_end) = (self.tail.published, self.tail.dirty_end);
        if dirty_end > published {
            match self.tail.mapped.take() {
                None => self.cut_file(published)?,
                Some(mapped) => {
                    // All of it, not only the first header: a whole batch further on, which was
                    // refused, must not become the continuation of what lands in front of it.
                    self.zero(published, dirty_end - published)?;
                    self.tail.mapped = Some(mapped.rewound((dirty_end - published) as usize));
                }
            }
        }
        self.tail.stored = published;
        self.tail.dirty_end = published;
        Ok(())
    }

    /// Checks, stores and publishes, a group of batches at a time.
    fn take(
        &mut self,
        bytes: &[u8],
        context: &AppendContext,
        mut store: impl FnMut(&mut Self, &[u8]) -> Result<(), AppendError>,
    ) -> Result<Landed, AppendError> {
        let mut landed = Landed::default();
        let mut rest = bytes;
        while !rest.is_empty() && !self.landing.ignoring {
            let (accepted, outcome) = self.check(rest, context);
            let result = store(self, &rest[..accepted]).and_then(|()| self.publish(&mut landed));
            if let Err(error) = result.and(outcome) {
                self.landing.ignoring = true;
                self.staged.clear();
                return Err(error);
            }
            rest = &rest[accepted..];
        }
        Ok(landed)
    }

    /// Checks bytes until there is a group to publish. Returns how many of them to store: all that
    /// were looked at, or on an error those up to the last whole batch.
    fn check(&mut self, bytes: &[u8], context: &AppendContext) -> (usize, Result<(), AppendError>) {
        let mut rest = bytes;
        let mut whole = 0;
        let started = self.tail.stored - self.validator.unfinished_bytes() as u64;
        let mut position = started;
        while !rest.is_empty() && self.staged.len() < GROUP_BATCHES {
            let complete = match self.validator.feed(&mut rest) {
                Ok(complete) => complete,
                Err(error) => return (whole, Err(error.into())),
            };
            let header = match (&complete, self.landing.header_checked) {
                (Some(info), false) => Some(info.clone()),
                (None, false) => self.validator.header().cloned(),
                (_, true) => None,
            };
            if let Some(header) = header {
                match self.check_header(&header, position, context) {
                    Ok(true) => self.landing.header_checked = true,
                    Ok(false) => {
                        self.landing.ignoring = true;
                        return (whole, Ok(()));
                    }
                    Err(error) => return (whole, Err(error)),
                }
            }
            if let Some(info) = complete {
                self.landing.header_checked = false;
                whole = bytes.len() - rest.len();
                self.stage(info, &mut position);
            }
        }
        (bytes.len() - rest.len(), Ok(()))
    }

    fn stage(&mut self, info: BatchInfo, position: &mut u64) {
        let epoch = self.landing.expected.epoch.max(info.leader_epoch);
        self.landing.expected = Expected { offset: info.last_offset.plus(1), epoch };
        let size_bytes = u64::from(info.size_bytes);
        self.staged.push(StagedBatch { info, position: *position });
        *position += size_bytes;
    }

    /// Compares a batch with what the log expects. `false` when it belongs in a new segment.
    fn check_header(
        &mut self,
        header: &BatchInfo,
        position: u64,
        context: &AppendContext,
    ) -> Result<bool, AppendError> {
        let expected = self.landing.expected;
        let (offset, found) = (header.base_offset, header.leader_epoch);
        if found != LeaderEpoch::UNKNOWN {
            let confirmed = context.leader_epoch_max;
            if confirmed != LeaderEpoch::UNKNOWN && found > confirmed {
                return Err(AppendError::EpochAhead { offset, found, confirmed });
            }
            if found < expected.epoch {
                return Err(AppendError::EpochBehind { offset, found, latest: expected.epoch });
            }
        }
        if offset < expected.offset && !(position == 0 && self.starts_inside(header)) {
            return Err(AppendError::NotNext { expected: expected.offset, found: offset });
        }
        if position == 0 && (offset < self.active.base() || !self.fits(header, position)) {
            self.rebase(offset)?;
        }
        if self.fits(header, position) {
            return Ok(true);
        }
        self.tail.roll_next = true;
        Ok(false)
    }

    /// Gives the active segment, in which nothing is published, another base offset.
    fn rebase(&mut self, base: Offset) -> Result<(), AppendError> {
        if base > self.active.base() {
            // The segment will not start where the one before it ends: recovery takes that from a
            // recovery point only.
            self.flush()?;
        }
        self.reader.freeze(true);
        let moved = self.rename_active(base);
        self.reader.freeze(false);
        moved
    }

    fn rename_active(&mut self, base: Offset) -> Result<(), AppendError> {
        let folder = self.reader.folder();
        let moved = Segment::new(base, 0);
        let old = std::mem::replace(&mut self.active, Arc::clone(&moved));
        self.reader.update(|state| {
            state.segments.pop();
            state.segments.push(Arc::clone(&moved));
        });
        let ended = old.end();
        for file in SegmentFile::ALL {
            let renamed = std::fs::rename(file.path(&folder, old.base()), file.path(&folder, base));
            match renamed {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                renamed => renamed.map_err(|error| self.io_error(error))?,
            }
        }
        if let (Some(file), Some(mapping)) = (ended.log, ended.mapping) {
            moved.adopt(self.reader.budget(), file, mapping);
        }
        // The segment's name no longer tells the log start.
        let offset = self.reader.log_end();
        let open = {
            let state = self.reader.read_state();
            if state.open.is_empty() { Vec::new() } else { state.open.encode() }
        };
        let entry = CheckpointEntry {
            log_start: self.reader.log_start(),
            recovery: RecoveryPoint { offset, segment: base, position: 0 },
            open: open.into(),
        };
        let noted = self.storage.note_bounds(self.directory, &self.reader, entry);
        noted.map_err(|error| self.io_error(error))
    }

    /// A log whose start lies inside a batch of the source (records were deleted up to there)
    /// begins with that whole batch.
    fn starts_inside(&self, header: &BatchInfo) -> bool {
        let (log_start, log_end) = (self.reader.log_start(), self.reader.log_end());
        log_start == log_end && self.reader.size_bytes() == 0 && header.last_offset >= log_start
    }

    fn fits(&self, header: &BatchInfo, position: u64) -> bool {
        let relative = header.last_offset.0.saturating_sub(self.active.base().0);
        relative <= i64::from(i32::MAX)
            && position + u64::from(header.size_bytes) <= SEGMENT_BYTES_LIMIT
    }

    /// Stores accepted bytes at the tail: few of them through the mapping, if there is one, else by
    /// a plain write.
    fn store(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        self.tail.dirty_end = self.tail.stored + bytes.len() as u64;
        let mut written = false;
        if let Some(mapped) = self.tail.mapped.take() {
            written = bytes.len() <= MAPPED_WRITE_BYTES_MAX && mapped.write(bytes);
            self.tail.mapped = Some(mapped.advanced(bytes.len()));
        }
        if !written {
            let file = self.active_file()?;
            write_all_at(&file, bytes, self.tail.stored).map_err(|error| self.io_error(error))?;
        }
        self.tail.stored = self.tail.dirty_end;
        Ok(())
    }

    /// Publishes the staged batches, whose bytes are stored.
    fn publish(&mut self, landed: &mut Landed) -> Result<(), AppendError> {
        let (Some(first), Some(last)) = (self.staged.first(), self.staged.last()) else {
            return Ok(());
        };
        let end = last.position + u64::from(last.info.size_bytes);
        let bytes = end - first.position;
        let log_end = last.info.next_offset();
        let last_batch = last.info.clone();
        let transactions = self.follow_transactions()?;
        let (base, interval) = (self.active.base(), u64::from(self.config.index_interval_bytes));
        let (staged, since_index_bytes) = (&self.staged, &mut self.tail.since_index_bytes);
        let active = &self.active;
        let buffered = self.reader.publish(log_end, |state| {
            for batch in staged {
                index_batch(state, base, batch, interval, since_index_bytes);
                note_epoch(state, &batch.info);
            }
            if let Some(open) = transactions {
                state.open = open;
            }
            active.publish(end);
            state.offsets.buffered().len()
        });
        landed.batches += u32::try_from(self.staged.len()).unwrap_or(u32::MAX);
        landed.bytes += bytes;
        let times = self.staged.iter().map(|batch| batch.info.max_timestamp);
        let known = times.filter(|time_ms| *time_ms >= 0);
        landed.oldest_ms = known.chain(landed.oldest_ms).min();
        self.staged.clear();
        self.last_batch = Some(last_batch);
        self.tail.published = end;
        self.tail.appended = true;
        if buffered >= BUFFERED_ENTRIES_MAX
            && let Err(error) = self.write_indexes()
        {
            // The batches are published; the entries stay in memory and are tried again.
            tracing::warn!(partition = %self.reader.partition(), %error, "index not written");
        }
        Ok(())
    }

    /// Applies the staged batches to a copy of the open transactions, so that nothing changes when
    /// the index of aborted ones cannot be written. `None` when no batch takes part.
    fn follow_transactions(&self) -> Result<Option<OpenTransactions>, AppendError> {
        let takes_part = |batch: &StagedBatch| {
            batch.info.attributes.is_transactional() || batch.info.attributes.is_control()
        };
        if !self.staged.iter().any(takes_part) {
            return Ok(None);
        }
        let mut open = self.reader.read_state().open.clone();
        let mut aborted = Vec::new();
        for batch in &self.staged {
            aborted.extend(open.append(&batch.info)?);
        }
        if !aborted.is_empty() {
            self.append_aborted(&aborted).map_err(|error| self.io_error(error))?;
        }
        Ok(Some(open))
    }

    fn append_aborted(&self, aborted: &[AbortedTxn]) -> std::io::Result<()> {
        let path = SegmentFile::AbortedIndex.path(&self.reader.folder(), self.active.base());
        append_aborted_entries(&path, aborted)?;
        self.active.set_has_aborted(true);
        Ok(())
    }

    /// Ends what was received into a recycled file with zeros.
    fn terminate(&self) -> Result<(), AppendError> {
        let Some(rest) = &self.tail.mapped else { return Ok(()) };
        let terminator = &TERMINATOR[..TERMINATOR.len().min(rest.len_bytes())];
        if rest.write(terminator) {
            return Ok(());
        }
        self.zero(self.tail.dirty_end, terminator.len() as u64)
    }

    /// Overwrites part of the active file with zeros.
    fn zero(&self, position: u64, len_bytes: u64) -> Result<(), AppendError> {
        static ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];
        let file = self.active_file()?;
        let mut done = 0;
        while done < len_bytes {
            let step = (len_bytes - done).min(ZEROS.len() as u64);
            write_all_at(&file, &ZEROS[..step as usize], position + done)
                .map_err(|error| self.io_error(error))?;
            done += step;
        }
        Ok(())
    }
}

/// Adds entries to an index of aborted transactions; all of them or none.
pub(crate) fn append_aborted_entries(
    path: &std::path::Path,
    aborted: &[AbortedTxn],
) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let before = file.metadata()?.len();
    let bytes: Vec<u8> = aborted.iter().flat_map(AbortedTxn::encode).collect();
    let result = write_all_at(&file, &bytes, before);
    if result.is_err() {
        file.set_len(before)?;
    }
    result
}

/// Index entries are made as a broker makes them: one when more than the interval was appended
/// since the last, naming the batch's last offset and the position where it starts.
pub(crate) fn index_batch_at(
    state: &mut State,
    base: Offset,
    (info, position): (&BatchInfo, u64),
    interval: u64,
    since_index_bytes: &mut u64,
) {
    let relative = u32::try_from(info.last_offset.0 - base.0).unwrap_or(u32::MAX);
    if info.max_timestamp > state.largest.map_or(-1, |largest| largest.timestamp_ms) {
        state.largest = Some(TimeEntry { timestamp_ms: info.max_timestamp, relative });
    }
    if *since_index_bytes > interval {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        state.offsets.push(OffsetEntry { relative, position });
        let last = state.times.last().map_or(-1, |entry| entry.timestamp_ms);
        if let Some(largest) = state.largest
            && largest.timestamp_ms > last
        {
            state.times.push(largest);
        }
        *since_index_bytes = 0;
    }
    *since_index_bytes += u64::from(info.size_bytes);
}

fn index_batch(
    state: &mut State,
    base: Offset,
    batch: &StagedBatch,
    interval: u64,
    since_index_bytes: &mut u64,
) {
    index_batch_at(state, base, (&batch.info, batch.position), interval, since_index_bytes);
}

/// Notes the epoch of a batch; batches without one say nothing.
pub(crate) fn note_epoch(state: &mut State, info: &BatchInfo) {
    if info.leader_epoch == LeaderEpoch::UNKNOWN {
        return;
    }
    match state.epochs.assign(info.leader_epoch, info.base_offset) {
        Ok(changed) => state.epochs_changed |= changed,
        Err(error) => {
            tracing::error!(offset = %info.base_offset, %error, "leader epoch not noted");
        }
    }
}
