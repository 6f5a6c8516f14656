//! Landing: an answer is taken apart while it arrives, and its records go where they will stay.
//!
//! Bytes already received with an answer's fields are copied to the segment. What is still to come,
//! when it is much, is received straight into the segment's mapping, followed in the same system call
//! by a short buffer for the fields behind it. Only a cursor that still wants what it asked for is
//! written to; the records of all others are dropped and counted.
//!
//! While the kernel may write into a log's mapping, nothing else writes to that log: see
//! [`Cursor::in_kernel`](super::cursor::Cursor::in_kernel).

use std::time::Instant;

use storage::{AppendContext, AppendError, Landed, LandingTarget};

use super::cursor::{Cursor, CursorKey};
use super::desk::{Desk, Moment};
use super::lane::{Lane, LaneFault};
use crate::ring::ReceiveInto;
use crate::wire::{FetchEvent, FetchResponseParser, PartitionHead};

/// The buffer for records that are copied, and for fields that come in pieces. Below 64 KiB the
/// parser could stand still; much above, its bytes leave the processor's cache before they are used.
const MAIN_BYTES: usize = 256 * 1024;
/// The buffer for fields alone. Records behind the fields that fit into it are copied, so it is small;
/// below 4 KiB the fields of many idle partitions would take many receives.
const SPILL_BYTES: usize = 16 * 1024;
/// Record bytes from which a receive of their own into the segment is worth its system call.
const DIRECT_BYTES_MIN: usize = 16 * 1024;
/// Most record bytes of one receive: their checksum is computed while they are in the cache, and the
/// core's other lanes have to wait for it.
const DIRECT_BYTES_MAX: usize = 1024 * 1024;

const _: () = assert!(MAIN_BYTES >= 64 * 1024 && SPILL_BYTES < MAIN_BYTES);

/// The records of one partition, on their way.
#[derive(Debug)]
pub(super) struct Landing {
    /// The partition's fields.
    pub(super) head: PartitionHead,
    /// Whose they are, and at which generation; `None` when nobody wants them.
    cursor: Option<(CursorKey, u32)>,
    context: AppendContext,
    /// Whether they are stored: not after an error.
    storing: bool,
    /// Whether the log gave mapped memory for them.
    mapped: bool,
}

impl Landing {
    /// For nobody.
    pub(super) fn skip(head: &PartitionHead) -> Self {
        let context = AppendContext { leader_epoch_max: storage::LeaderEpoch::UNKNOWN };
        Self { head: *head, cursor: None, context, storing: false, mapped: false }
    }

    /// For a cursor.
    pub(super) fn of(key: CursorKey, cursor: &Cursor, head: &PartitionHead) -> Self {
        Self {
            cursor: Some((key, cursor.generation())),
            context: cursor.append_context(),
            ..Self::skip(head)
        }
    }

    /// Starts storing.
    pub(super) fn begin(&mut self, target: &LandingTarget) {
        self.storing = true;
        self.mapped = matches!(target, LandingTarget::Mapped(_));
    }

    /// Whose, and at which generation.
    pub(super) fn cursor(&self) -> Option<(CursorKey, u32)> {
        self.cursor
    }

    /// The cursor, if the records are still to be stored.
    fn storing_into<'a>(&self, desk: &'a mut Desk) -> Option<(CursorKey, &'a mut Cursor)> {
        let (key, generation) = self.cursor?;
        if !self.storing {
            return None;
        }
        let cursor = desk.cursors.get_mut(key)?;
        (cursor.generation() == generation).then_some((key, cursor))
    }
}

/// Which buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Main,
    Spill,
    Neither,
}

/// A receive in flight.
#[derive(Debug)]
struct Receiving {
    holder: Holder,
    /// Bytes already in the buffer.
    from: usize,
    /// For a receive into a segment: whose, and how many bytes.
    direct: Option<(CursorKey, usize)>,
}

#[derive(Debug)]
enum Frame {
    /// The length of the next answer is due.
    Length,
    /// Inside an answer, since this time.
    Answer(Box<FetchResponseParser>, Instant),
}

/// The bytes that come in on one lane.
#[derive(Debug)]
pub(super) struct Incoming {
    version: i16,
    main: Box<[u8]>,
    spill: Box<[u8]>,
    /// Where received bytes that were not taken yet are.
    unread: Holder,
    start: usize,
    end: usize,
    frame: Frame,
    /// Whether the last records were too few for a receive of their own.
    small: bool,
    /// Whether this answer had records.
    records: bool,
    receiving: Option<Receiving>,
}

impl Incoming {
    /// Buffers for a lane; they last as long as it.
    pub(super) fn new(version: i16) -> Self {
        Self {
            version,
            main: vec![0; MAIN_BYTES].into_boxed_slice(),
            spill: vec![0; SPILL_BYTES].into_boxed_slice(),
            unread: Holder::Neither,
            start: 0,
            end: 0,
            frame: Frame::Length,
            small: true,
            records: false,
            receiving: None,
        }
    }

    /// Whether a receive is in flight.
    pub(super) fn is_receiving(&self) -> bool {
        self.receiving.is_some()
    }

    fn records_remaining(&self) -> usize {
        match &self.frame {
            Frame::Answer(parser, _) => parser.records_remaining(),
            Frame::Length => 0,
        }
    }

    /// Puts what was not taken at the front of the main buffer, with room behind it.
    fn gather(&mut self) -> usize {
        let unread = self.end - self.start;
        match self.unread {
            Holder::Main => self.main.copy_within(self.start..self.end, 0),
            Holder::Spill => {
                self.main[..unread].copy_from_slice(&self.spill[self.start..self.end]);
            }
            Holder::Neither => {}
        }
        (self.unread, self.start, self.end) = (Holder::Main, 0, unread);
        unread
    }

    /// A receive into a buffer.
    fn buffered(&mut self) -> ReceiveInto {
        let unread = self.end - self.start;
        // Fields alone go to the small buffer, so that few record bytes come with them.
        let holder = if unread > 0 || self.small || self.records_remaining() > 0 {
            Holder::Main
        } else {
            Holder::Spill
        };
        let from = if unread > 0 { self.gather() } else { 0 };
        self.receiving = Some(Receiving { holder, from, direct: None });
        ReceiveInto::Buffer { buffer: self.lend(holder), from }
    }

    fn lend(&mut self, holder: Holder) -> Box<[u8]> {
        match holder {
            Holder::Main => std::mem::take(&mut self.main),
            Holder::Spill => std::mem::take(&mut self.spill),
            Holder::Neither => Box::default(),
        }
    }

    /// Takes a buffer back that was lent, with bytes up to `end` in it.
    fn restore(&mut self, holder: Holder, buffer: Box<[u8]>, end: usize) {
        match holder {
            Holder::Main => self.main = buffer,
            Holder::Spill => self.spill = buffer,
            Holder::Neither => {}
        }
        (self.unread, self.start, self.end) = (holder, 0, end);
    }
}

impl Lane {
    /// Where the next bytes of the connection are to be received; `None` while a receive is in
    /// flight and after the end.
    pub(super) fn receive(&mut self, desk: &mut Desk) -> Option<ReceiveInto> {
        if self.closed || self.incoming.is_receiving() {
            return None;
        }
        Some(self.receive_direct(desk).unwrap_or_else(|| self.incoming.buffered()))
    }

    fn receive_direct(&mut self, desk: &mut Desk) -> Option<ReceiveInto> {
        let remaining = self.incoming.records_remaining();
        if remaining < DIRECT_BYTES_MIN || self.incoming.start < self.incoming.end {
            return None;
        }
        let landing = self.landing.as_mut().filter(|landing| landing.mapped)?;
        let (key, cursor) = landing.storing_into(desk)?;
        let announced = u32::try_from(remaining).unwrap_or(u32::MAX);
        let tail = match cursor.log.prepare_landing(announced) {
            Ok(LandingTarget::Mapped(tail)) => tail,
            Ok(LandingTarget::Copy) => {
                landing.mapped = false;
                return None;
            }
            Err(error) => {
                self.stop_storing(key, &error, desk);
                return None;
            }
        };
        let tail_bytes = remaining.min(tail.len_bytes()).min(DIRECT_BYTES_MAX);
        if tail_bytes == 0 {
            landing.mapped = false;
            return None;
        }
        cursor.in_kernel = Some(self.slot);
        // Fields follow only when all records fit into this receive.
        let holder = if tail_bytes == remaining { Holder::Spill } else { Holder::Neither };
        let buffer = self.incoming.lend(holder);
        self.incoming.receiving =
            Some(Receiving { holder, from: 0, direct: Some((key, tail_bytes)) });
        Some(ReceiveInto::Tail { tail, tail_bytes, buffer })
    }

    /// Takes a receive's memory back, and what it brought.
    pub(super) fn received(
        &mut self,
        result: std::io::Result<usize>,
        into: ReceiveInto,
        desk: &mut Desk,
        moment: Moment,
    ) -> Result<(), LaneFault> {
        let Some(receiving) = self.incoming.receiving.take() else { return Ok(()) };
        let received = result.as_ref().map_or(0, |received| *received);
        let is_direct = receiving.direct.is_some();
        let buffer = match into {
            ReceiveInto::Buffer { buffer, .. } | ReceiveInto::Tail { buffer, .. } => buffer,
        };
        let in_tail = receiving.direct.map_or(0, |(_, tail_bytes)| received.min(tail_bytes));
        let end = receiving.from + received - in_tail;
        self.incoming.restore(receiving.holder, buffer, end);
        if let Some((key, _)) = receiving.direct {
            self.landed_in_place(key, in_tail, desk);
        }
        match result {
            // Cancelled, because a command needs the log: the stream itself goes on.
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => return Ok(()),
            // No page could be had for the segment's memory, most likely because the disk is full.
            // Nothing was taken from the stream: copying meets the same trouble and can name it.
            Err(error) if is_direct && error.raw_os_error() == Some(libc::EFAULT) => {
                if let Some(landing) = &mut self.landing {
                    landing.mapped = false;
                }
                return Ok(());
            }
            Err(error) => return Err(error.into()),
            Ok(0) => return Err(LaneFault::Ended),
            Ok(_) => {}
        }
        if self.closed {
            return Ok(());
        }
        self.heard(moment.now);
        self.consume(desk, moment)
    }

    /// The kernel is done with a log's memory; `len_bytes` of it were filled.
    fn landed_in_place(&mut self, key: CursorKey, len_bytes: usize, desk: &mut Desk) {
        if let Some(cursor) = desk.cursors.get_mut(key) {
            cursor.in_kernel = None;
            desk.unblocked.push(key);
        }
        if let Frame::Answer(parser, _) = &mut self.incoming.frame {
            parser.take_records(len_bytes);
        }
        if len_bytes == 0 {
            return self.drop_stale(key, desk);
        }
        let closed = self.closed;
        let Some(landing) = self.landing.as_ref().filter(|_| !closed) else {
            return self.drop_stale(key, desk);
        };
        let context = landing.context;
        let Some((key, cursor)) = landing.storing_into(desk) else {
            desk.tally.bytes_skipped += len_bytes as u64;
            return self.drop_stale(key, desk);
        };
        let position = cursor.position();
        let result = cursor.log.landed_in_place(len_bytes, &context);
        desk.tally.bytes_direct += len_bytes as u64;
        self.stored(key, position, result, desk);
    }

    /// Ends the landing of a cursor that was stopped while the kernel wrote into its log.
    fn drop_stale(&mut self, key: CursorKey, desk: &mut Desk) {
        let current = self.landing.as_ref().and_then(|landing| landing.storing_into(desk));
        if !self.closed && current.is_some() {
            return;
        }
        if let Some(cursor) = desk.cursors.get_mut(key) {
            end_landing(cursor);
        }
    }

    /// Takes apart what is in the buffer.
    fn consume(&mut self, desk: &mut Desk, moment: Moment) -> Result<(), LaneFault> {
        let holder = self.incoming.unread;
        let (start, end) = (self.incoming.start, self.incoming.end);
        let buffer = self.incoming.lend(holder);
        let mut bytes = &buffer[start..end];
        let result = self.take_apart(&mut bytes, desk, moment);
        let rest = end - bytes.len();
        self.incoming.restore(holder, buffer, end);
        self.incoming.start = rest;
        result
    }

    fn take_apart(
        &mut self,
        bytes: &mut &[u8],
        desk: &mut Desk,
        moment: Moment,
    ) -> Result<(), LaneFault> {
        loop {
            let Frame::Answer(parser, since) = &mut self.incoming.frame else {
                if self.begin_answer(bytes, moment)? {
                    continue;
                }
                return Ok(());
            };
            let Some(event) = parser.next(bytes)? else { return Ok(()) };
            match event {
                FetchEvent::Head(head) => self.on_head(&head, desk, moment)?,
                FetchEvent::Partition(head) => {
                    if head.records_bytes > 0 {
                        self.incoming.records = true;
                        self.incoming.small = head.records_bytes < DIRECT_BYTES_MIN;
                    }
                    self.partition(&head, desk, moment);
                }
                FetchEvent::Records => {
                    let len_bytes = bytes.len().min(parser.records_remaining());
                    if len_bytes == 0 {
                        return Ok(());
                    }
                    parser.take_records(len_bytes);
                    let (records, rest) = bytes.split_at(len_bytes);
                    *bytes = rest;
                    self.land(records, desk);
                }
                FetchEvent::PartitionEnd(tail) => self.on_partition_end(&tail, desk, moment.now),
                FetchEvent::End(endpoints) => {
                    let since = *since;
                    self.incoming.frame = Frame::Length;
                    if std::mem::take(&mut self.incoming.records) {
                        desk.tally.landed_since.push(since);
                    }
                    self.on_end(&endpoints, desk, moment)?;
                }
            }
        }
    }

    /// Reads a frame's length; false when it is not there yet.
    fn begin_answer(&mut self, bytes: &mut &[u8], moment: Moment) -> Result<bool, LaneFault> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(false) };
        let length = i32::from_be_bytes(*length);
        let frame_bytes = usize::try_from(length).map_err(|_| LaneFault::Length(length))?;
        if !self.awaits_answer() {
            return Err(LaneFault::Unasked);
        }
        *bytes = rest;
        let parser = FetchResponseParser::new(self.incoming.version, frame_bytes);
        self.incoming.frame = Frame::Answer(Box::new(parser), moment.now);
        Ok(true)
    }

    /// Looks a partition's cursor up while the parser holds its topic.
    fn partition(&mut self, head: &PartitionHead, desk: &mut Desk, moment: Moment) {
        let frame = std::mem::replace(&mut self.incoming.frame, Frame::Length);
        if let Frame::Answer(parser, _) = &frame {
            self.on_partition(parser.topic(), head, desk, moment);
        }
        self.incoming.frame = frame;
    }

    /// Stores record bytes from a buffer, or drops them.
    fn land(&mut self, records: &[u8], desk: &mut Desk) {
        let context = self.landing.as_ref().map(|landing| landing.context);
        let target = self.landing.as_ref().and_then(|landing| landing.storing_into(desk));
        let (Some(context), Some((key, cursor))) = (context, target) else {
            desk.tally.bytes_skipped += records.len() as u64;
            return;
        };
        let position = cursor.position();
        let result = cursor.log.land(records, &context);
        self.stored(key, position, result, desk);
    }

    /// Accounts for what the log made of record bytes.
    fn stored(
        &mut self,
        key: CursorKey,
        position_before: storage::Offset,
        result: Result<Landed, AppendError>,
        desk: &mut Desk,
    ) {
        let Desk { cursors, published, tally, .. } = desk;
        let Some(cursor) = cursors.get_mut(key) else { return };
        // Batches before a bad one are published too.
        if cursor.position() != position_before {
            cursor.remember_epoch();
            Desk::publish(published, cursor);
        }
        match result {
            Ok(landed) => {
                if landed.batches > 0 {
                    cursor.bad_batch_at = None;
                    cursor.landed(&landed);
                    tally.batches += u64::from(landed.batches);
                    tally.bytes += landed.bytes;
                    tally.published_times.push(landed.oldest_ms);
                }
            }
            Err(error) => self.stop_storing(key, &error, desk),
        }
    }

    /// Drops the rest of a partition's records after an error.
    fn stop_storing(&mut self, key: CursorKey, error: &AppendError, desk: &mut Desk) {
        if let Some(landing) = &mut self.landing {
            landing.storing = false;
        }
        if let Some(cursor) = desk.cursors.get_mut(key) {
            end_landing(cursor);
        }
        self.refuse(key, error, desk);
    }

    /// Ends the landing that an ending lane leaves unfinished.
    pub(super) fn abandon_landing(&mut self, desk: &mut Desk) {
        let Some((key, _)) = self.landing.take().and_then(|landing| landing.cursor()) else {
            return;
        };
        if let Some(cursor) = desk.cursors.get_mut(key)
            && cursor.in_kernel.is_none()
        {
            end_landing(cursor);
        }
    }
}

/// Drops an unfinished batch, if a landing is under way.
///
/// Nothing of an unfinished batch was published, so an error here loses nothing; the next landing
/// meets it again and reports it.
pub(super) fn end_landing(cursor: &mut Cursor) {
    if !std::mem::take(&mut cursor.landing) {
        return;
    }
    if let Err(error) = cursor.log.finish_landing() {
        tracing::warn!(partition = %cursor.partition.id, %error, "cannot end a landing");
    }
}
