//! Lanes: one connection to one source broker, its requests first in, first out.
//!
//! Knows what is out and what each answer means for the cursors; takes fields, not bytes (those are
//! [`landing`](super::landing)'s). A faulty partition never stops the others in its answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use storage::{AppendError, LeaderEpoch, Offset, TopicId};

use super::cursor::{Cursor, CursorKey, Place};
use super::desk::{Desk, Moment};
use super::landing::{Incoming, Landing};
use super::session::{Session, SessionError};
use super::throttle::{Gate, backoff, throttle_time};
use super::{sizing, sizing::RequestSize};
use crate::handle::{
    BrokerId, CursorFault, Event, LaneId, LaneKind, LeaderHint, LinkId, LinkSettings,
};
use crate::partition::Partition;
use crate::wire::{
    ApiKey, FetchRequest, FetchTopic, IsolationLevel, LeaderAndEpoch, NodeEndpoint, PartitionHead,
    PartitionTail, RequestHeader, ResponseHead, WireError,
};

/// Pause of a catch-up lane after an answer without records: its requests do not wait at the broker.
const EMPTY_PAUSE: Duration = Duration::from_millis(100);

/// Why a lane ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaneFault {
    /// The other end is gone.
    #[error("the source closed the connection")]
    Ended,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Failed(#[from] std::io::Error),
    /// The bytes are no answer.
    #[error("the source's answer cannot be read: {0}")]
    Malformed(#[from] WireError),
    /// A frame's length makes no sense.
    #[error("the source announced an answer of {0} bytes")]
    Length(i32),
    /// An answer to nothing.
    #[error("the source sent an answer that was not asked for")]
    Unasked,
    /// An answer to something else.
    #[error("the source answered request {found} where {expected} was due")]
    Mixed {
        /// Correlation id due.
        expected: i32,
        /// Correlation id found.
        found: i32,
    },
    /// The whole request was refused.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A version we do not speak.
    #[error("Fetch version {0} is none of ours")]
    Version(i16),
    /// Nothing came in time.
    #[error("no answer for {} seconds", .0.as_secs_f32())]
    Silent(Duration),
}

/// A request that is out.
#[derive(Debug)]
struct Out {
    correlation_id: i32,
    sent_at: Instant,
    /// How long the broker may hold the answer back.
    wait_max: Duration,
    /// The cursor of a catch-up request and its generation, until the answer named it.
    cursor: Option<(CursorKey, u32)>,
}

/// Cursors of a catch-up lane without a request out, in their order.
#[derive(Debug, Default)]
struct Round {
    ready: VecDeque<CursorKey>,
    members: usize,
}

#[derive(Debug)]
enum Work {
    Tail(Session),
    CatchUp(Round),
}

/// An error code whose hint may only be complete at the answer's end.
struct PendingFault {
    partition: Arc<Partition>,
    code: i16,
    leader: Option<LeaderAndEpoch>,
}

/// One connection's requests and answers.
pub(super) struct Lane {
    /// Its slot on the core.
    pub(super) slot: u32,
    /// Its number.
    pub(super) id: LaneId,
    /// Its link.
    pub(super) link: LinkId,
    /// The broker at the other end.
    pub(super) broker: BrokerId,
    /// What it is for.
    pub(super) kind: LaneKind,
    /// The Fetch version spoken.
    pub(super) version: i16,
    /// Bytes coming in.
    pub(super) incoming: Incoming,
    /// The partition of the answer that is coming in.
    pub(super) landing: Option<Landing>,
    /// Whether it ended; kept until its operations have.
    pub(super) closed: bool,
    work: Work,
    out: VecDeque<Out>,
    correlation_id: i32,
    gate: Gate,
    heard_at: Instant,
    answered_at: Option<Instant>,
    pending: Vec<PendingFault>,
}

/// What a lane is made of.
pub(super) struct LaneParts {
    /// Its number.
    pub(super) id: LaneId,
    /// Its link.
    pub(super) link: LinkId,
    /// The broker at the other end.
    pub(super) broker: BrokerId,
    /// What it is for.
    pub(super) kind: LaneKind,
    /// The Fetch version spoken.
    pub(super) version: i16,
}

impl Lane {
    /// A lane with nothing out.
    pub(super) fn new(slot: u32, parts: LaneParts, now: Instant) -> Self {
        let work = match parts.kind {
            LaneKind::Tail => Work::Tail(Session::new(slot, parts.version)),
            LaneKind::CatchUp => Work::CatchUp(Round::default()),
        };
        Self {
            slot,
            id: parts.id,
            link: parts.link,
            broker: parts.broker,
            kind: parts.kind,
            version: parts.version,
            incoming: Incoming::new(parts.version),
            landing: None,
            closed: false,
            work,
            out: VecDeque::new(),
            correlation_id: 0,
            gate: Gate::default(),
            heard_at: now,
            answered_at: None,
            pending: Vec::new(),
        }
    }

    /// Takes a cursor on.
    pub(super) fn join(&mut self, key: CursorKey, desk: &mut Desk) {
        match &mut self.work {
            Work::Tail(session) => session.join(key, &mut desk.cursors),
            Work::CatchUp(round) => {
                let Some(cursor) = desk.cursors.get_mut(key) else { return };
                cursor.place = Place::CatchUp(self.slot);
                cursor.sent = None;
                round.members += 1;
                round.ready.push_back(key);
            }
        }
    }

    /// Lets a cursor go: nothing of an answer on its way is stored.
    pub(super) fn leave(&mut self, key: CursorKey, desk: &mut Desk) {
        match &mut self.work {
            Work::Tail(session) => session.leave(key, &mut desk.cursors),
            Work::CatchUp(round) => {
                let Some(cursor) = desk.cursors.get_mut(key) else { return };
                cursor.place = Place::Parked;
                round.members = round.members.saturating_sub(1);
                if cursor.sent.take().is_none() {
                    round.ready.retain(|other| *other != key);
                }
            }
        }
    }

    /// Notes that a cursor's leader epoch changed.
    pub(super) fn changed(&mut self, key: CursorKey, desk: &mut Desk) {
        if let Work::Tail(session) = &mut self.work {
            session.changed(key, &mut desk.cursors);
        }
    }

    /// Cursors on the lane.
    pub(super) fn members(&self) -> usize {
        match &self.work {
            Work::Tail(session) => session.members().len(),
            Work::CatchUp(round) => round.members,
        }
    }

    /// Members of the lane's session that its answers speak for without naming them.
    pub(super) fn session_members(&self) -> &[CursorKey] {
        match &self.work {
            Work::Tail(session) => session.members(),
            Work::CatchUp(_) => &[],
        }
    }

    /// When the last answer ended.
    pub(super) fn answered_at(&self) -> Option<Instant> {
        self.answered_at
    }

    /// Notes that bytes arrived.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = self.heard_at.max(now);
    }

    /// Writes every request that is due.
    pub(super) fn requests(&mut self, desk: &mut Desk, moment: Moment, frames: &mut BytesMut) {
        let Desk { cursors, links, tally, .. } = desk;
        let Some(link) = links.get(&self.link) else { return };
        let Some(settings) = &link.settings else { return };
        if self.closed || !self.gate.is_open(moment.now) {
            return;
        }
        match &mut self.work {
            Work::Tail(session) => {
                let size = sizing::tail(settings);
                let Some(mut request) = session.request(cursors, &size) else { return };
                request.rack_id = settings.rack.to_string();
                tally.requests += 1;
                self.put(&link.client_id, &request, None, moment, frames);
            }
            Work::CatchUp(_) => {
                let size = sizing::catch_up(settings);
                while self.out.len() < settings.requests_out_max.max(1) {
                    let Some(key) = self.next_ready() else { return };
                    let Some(cursor) = cursors.get_mut(key) else { continue };
                    if cursor.place != Place::CatchUp(self.slot) || cursor.sent.is_some() {
                        continue;
                    }
                    let request = single(cursor, self.version, &size, settings);
                    let asked = Some((key, cursor.generation()));
                    tally.requests += 1;
                    self.put(&link.client_id, &request, asked, moment, frames);
                }
            }
        }
    }

    fn next_ready(&mut self) -> Option<CursorKey> {
        match &mut self.work {
            Work::CatchUp(round) => round.ready.pop_front(),
            Work::Tail(_) => None,
        }
    }

    fn put(
        &mut self,
        client_id: &str,
        request: &FetchRequest,
        cursor: Option<(CursorKey, u32)>,
        moment: Moment,
        frames: &mut BytesMut,
    ) {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let start = frames.len();
        frames.put_i32(0);
        let header = RequestHeader {
            api_key: ApiKey::FETCH,
            api_version: self.version,
            correlation_id: self.correlation_id,
            client_id: Some(client_id),
        };
        header.encode(frames);
        request.encode(self.version, frames);
        // A request this long would need more partitions than a node has.
        let len_bytes = u32::try_from(frames.len() - start - 4).unwrap_or(u32::MAX);
        frames[start..start + 4].copy_from_slice(&len_bytes.to_be_bytes());
        self.out.push_back(Out {
            correlation_id: self.correlation_id,
            sent_at: moment.now,
            wait_max: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
            cursor,
        });
    }

    /// Whether an answer is due.
    pub(super) fn awaits_answer(&self) -> bool {
        !self.out.is_empty()
    }

    /// When the lane has to be looked at again at the latest.
    pub(super) fn deadline(&self, settings: &LinkSettings) -> Option<Instant> {
        let answer = self.answer_deadline(settings);
        match (answer, self.gate.opens_at()) {
            (Some(answer), Some(gate)) => Some(answer.min(gate)),
            (answer, gate) => answer.or(gate),
        }
    }

    fn answer_deadline(&self, settings: &LinkSettings) -> Option<Instant> {
        let front = self.out.front()?;
        let since = self.heard_at.max(front.sent_at);
        Some(since + front.wait_max + settings.answer_timeout)
    }

    /// Whether the source kept silent for too long.
    pub(super) fn check_deadline(
        &self,
        settings: &LinkSettings,
        now: Instant,
    ) -> Result<(), LaneFault> {
        match self.answer_deadline(settings) {
            Some(deadline) if deadline <= now => {
                let waited = self.out.front().map_or(Duration::ZERO, |front| front.wait_max);
                Err(LaneFault::Silent(waited + settings.answer_timeout))
            }
            _ => Ok(()),
        }
    }

    /// An answer's front.
    pub(super) fn on_head(
        &mut self,
        head: &ResponseHead,
        desk: &mut Desk,
        moment: Moment,
    ) -> Result<(), LaneFault> {
        let front = self.out.front().ok_or(LaneFault::Unasked)?;
        if front.correlation_id != head.correlation_id {
            return Err(LaneFault::Mixed {
                expected: front.correlation_id,
                found: head.correlation_id,
            });
        }
        if let Some(pause) = throttle_time(head.throttle_time_ms) {
            self.gate.close_for(pause, moment.now);
            // Answers behind this one are held back by the broker as well.
            self.heard_at = self.heard_at.max(moment.now + pause);
            desk.events.push(Event::Throttled(self.link, pause));
        }
        match &mut self.work {
            Work::Tail(session) => session.answered(head)?,
            Work::CatchUp(_) if head.error_code != 0 => {
                return Err(SessionError::Refused(head.error_code).into());
            }
            Work::CatchUp(_) => {}
        }
        Ok(())
    }

    /// A partition's fields; what follows is for the cursor in [`Lane::landing`].
    pub(super) fn on_partition(
        &mut self,
        topic: (&str, TopicId),
        head: &PartitionHead,
        desk: &mut Desk,
        moment: Moment,
    ) {
        if let Work::Tail(session) = &mut self.work {
            session.named();
        }
        self.landing = Some(Landing::skip(head));
        let Desk { cursors, links, .. } = desk;
        let Some(link) = links.get(&self.link) else { return };
        let Some(key) = link.find(topic.0, topic.1, head.partition) else { return };
        let Some(cursor) = cursors.get_mut(key) else { return };
        if !self.asked_for(key, cursor) {
            return;
        }
        if let Some(front) = self.out.front_mut() {
            front.cursor = None;
        }
        if head.error_code == 0 {
            cursor.heard(head.high_watermark, head.log_start_offset, moment.unix_ms);
        }
        let mut landing = Landing::of(key, cursor, head);
        let replica = BrokerId(head.preferred_read_replica);
        let elsewhere = head.preferred_read_replica >= 0 && replica != self.broker;
        if head.error_code != 0 || head.records_bytes == 0 || elsewhere {
            self.landing = Some(landing);
            return;
        }
        let len_bytes = u32::try_from(head.records_bytes).unwrap_or(u32::MAX);
        match cursor.log.prepare_landing(len_bytes) {
            Ok(target) => {
                cursor.landing = true;
                landing.begin(&target);
                self.landing = Some(landing);
            }
            Err(error) => {
                self.landing = Some(landing);
                self.refuse(key, &error, desk);
            }
        }
    }

    fn asked_for(&self, key: CursorKey, cursor: &Cursor) -> bool {
        let here = match &self.work {
            Work::Tail(_) => cursor.place == Place::Tail(self.slot),
            Work::CatchUp(_) => {
                let front = self.out.front().and_then(|front| front.cursor);
                let asked = Some((key, cursor.generation()));
                cursor.place == Place::CatchUp(self.slot) && front == asked
            }
        };
        here && cursor.awaits()
    }

    /// A partition's end, after its records were stored.
    pub(super) fn on_partition_end(&mut self, tail: &PartitionTail, desk: &mut Desk, now: Instant) {
        let Some(landing) = self.landing.take() else { return };
        let Some((key, generation)) = landing.cursor() else { return };
        let Some(cursor) = desk.cursors.get_mut(key) else { return };
        if cursor.generation() != generation {
            return;
        }
        if cursor.landing {
            cursor.landing = false;
            if let Err(error) = cursor.log.finish_landing() {
                return self.refuse(key, &error, desk);
            }
        }
        if landing.head.error_code != 0 {
            let partition = self.stop(key, desk);
            let code = landing.head.error_code;
            let leader = tail.current_leader;
            self.pending.extend(partition.map(|partition| PendingFault {
                partition,
                code,
                leader,
            }));
            return;
        }
        if let Some((epoch, end_offset)) = tail.diverging {
            let fault = CursorFault::Diverging {
                epoch: LeaderEpoch(epoch),
                end_offset: Offset(end_offset),
            };
            return self.fault(key, fault, desk);
        }
        let replica = landing.head.preferred_read_replica;
        if replica >= 0 && BrokerId(replica) != self.broker {
            return self.fault(key, CursorFault::ReadFrom { broker: BrokerId(replica) }, desk);
        }
        if let Err(error) = follow_log_start(cursor, landing.head.log_start_offset) {
            return self.refuse(key, &error, desk);
        }
        let stays = self.go_on(key, desk);
        if stays && self.kind == LaneKind::CatchUp && landing.head.records_bytes == 0 {
            // Behind, and yet nothing came: asking again at once would bring the same.
            self.gate.close_for(EMPTY_PAUSE, now);
        }
    }

    /// Where a cursor goes after its answer: on here (true), or to a lane of the other kind.
    fn go_on(&mut self, key: CursorKey, desk: &mut Desk) -> bool {
        let Some(link) = desk.links.get(&self.link) else { return false };
        let Some(cursor) = desk.cursors.get_mut(key) else { return false };
        let lag = cursor.lag().unwrap_or(0);
        let moves = link.settings.as_ref().is_some_and(|settings| match self.kind {
            LaneKind::Tail => sizing::is_behind(settings, lag) && link.has_catch_up(self.broker),
            LaneKind::CatchUp => sizing::has_caught_up(settings, lag),
        });
        if moves {
            self.leave(key, desk);
            if let Some(cursor) = desk.cursors.get_mut(key) {
                cursor.place = Place::Waiting;
            }
            desk.homeless.push(key);
            return false;
        }
        match &mut self.work {
            Work::Tail(session) => session.changed(key, &mut desk.cursors),
            Work::CatchUp(round) => {
                cursor.sent = None;
                round.ready.push_back(key);
            }
        }
        true
    }

    /// An answer's end.
    pub(super) fn on_end(
        &mut self,
        endpoints: &[NodeEndpoint],
        desk: &mut Desk,
        moment: Moment,
    ) -> Result<(), LaneFault> {
        self.report_pending(endpoints, desk);
        let out = self.out.pop_front().ok_or(LaneFault::Unasked)?;
        self.answered_at = Some(moment.now);
        desk.tally.round_trips.push(moment.now.saturating_duration_since(out.sent_at));
        match &mut self.work {
            Work::Tail(session) => {
                session.ended()?;
                let pause = backoff(session.refusals());
                if !pause.is_zero() {
                    self.gate.close_for(pause, moment.now);
                }
            }
            Work::CatchUp(round) => {
                // Not named: a throttled broker answers with nothing at all.
                if let Some((key, generation)) = out.cursor
                    && let Some(cursor) = desk.cursors.get_mut(key)
                    && cursor.place == Place::CatchUp(self.slot)
                    && cursor.generation() == generation
                {
                    cursor.sent = None;
                    round.ready.push_back(key);
                    self.gate.close_for(EMPTY_PAUSE, moment.now);
                }
            }
        }
        Ok(())
    }

    /// Reports error codes with the leader's address, if an answer told it.
    pub(super) fn report_pending(&mut self, endpoints: &[NodeEndpoint], desk: &mut Desk) {
        for pending in self.pending.drain(..) {
            let hint = pending.leader.filter(|leader| leader.leader_id >= 0).map(|leader| {
                let endpoint = endpoints.iter().find(|node| node.node_id == leader.leader_id);
                LeaderHint {
                    broker: BrokerId(leader.leader_id),
                    leader_epoch: LeaderEpoch(leader.leader_epoch),
                    address: endpoint.map(|node| (node.host.clone(), node.port)),
                }
            });
            desk.report(pending.partition, CursorFault::Broker { code: pending.code, hint });
        }
    }

    /// Ends a cursor's fetching after a storage error: at once, or, for a bad batch, when it comes
    /// a second time. The first may have been damaged on the way, so it is fetched again, from
    /// scratch, before the partition is quarantined.
    pub(super) fn refuse(&mut self, key: CursorKey, error: &AppendError, desk: &mut Desk) {
        let Some(cursor) = desk.cursors.get_mut(key) else { return };
        let fault = fault_of(error);
        let position = cursor.position();
        if !matches!(fault, CursorFault::BadBatch(_)) || cursor.bad_batch_at == Some(position) {
            return self.fault(key, fault, desk);
        }
        tracing::warn!(partition = %cursor.partition.id, %error, "fetching again");
        cursor.bad_batch_at = Some(position);
        if let Work::Tail(session) = &mut self.work {
            session.reopen();
        }
    }

    /// Stops a cursor and reports why.
    fn fault(&mut self, key: CursorKey, fault: CursorFault, desk: &mut Desk) {
        if let Some(partition) = self.stop(key, desk) {
            desk.report(partition, fault);
        }
    }

    fn stop(&mut self, key: CursorKey, desk: &mut Desk) -> Option<Arc<Partition>> {
        self.leave(key, desk);
        let cursor = desk.cursors.get_mut(key)?;
        cursor.bad_batch_at = None;
        cursor.invalidate();
        cursor.lose_sight();
        Some(cursor.partition.clone())
    }
}

/// A catch-up request: one cursor, no session.
fn single(
    cursor: &mut Cursor,
    version: i16,
    size: &RequestSize,
    settings: &LinkSettings,
) -> FetchRequest {
    let topic = cursor.topic_key(version);
    let partitions = vec![cursor.ask(size.partition_bytes_max)];
    FetchRequest {
        replica_id: -1,
        max_wait_ms: size.wait_max_ms,
        min_bytes: size.bytes_min,
        max_bytes: size.bytes_max,
        isolation: IsolationLevel::ReadUncommitted,
        session_id: 0,
        session_epoch: -1,
        topics: vec![FetchTopic { topic, partitions }],
        forgotten: Vec::new(),
        rack_id: settings.rack.to_string(),
    }
}

/// Deletes what the source deleted. Not beyond our end: that is a gap, the control plane's case.
fn follow_log_start(cursor: &mut Cursor, source_log_start: i64) -> Result<(), AppendError> {
    let target = source_log_start.min(cursor.position().0);
    if target > cursor.log.reader().log_start().0 {
        cursor.log.advance_log_start(Offset(target))?;
    }
    Ok(())
}

/// What a storage error means for a cursor.
pub(super) fn fault_of(error: &AppendError) -> CursorFault {
    match error {
        AppendError::Batch(_)
        | AppendError::NotNext { .. }
        | AppendError::EpochBehind { .. }
        | AppendError::Transactions(_) => CursorFault::BadBatch(error.to_string()),
        AppendError::EpochAhead { found, .. } => CursorFault::EpochAhead { found: *found },
        AppendError::DiskFull { .. } => CursorFault::DiskFull(error.to_string()),
        AppendError::Io { .. } => CursorFault::Disk(error.to_string()),
    }
}
