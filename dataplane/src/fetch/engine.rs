//! All links, lanes and cursors of one core, without input or output.
//!
//! Takes commands, bytes and times; what is to be sent and received is pulled from it, and what is to
//! be told gathers on its [`Desk`]. So the tests drive it against a scripted broker, and the
//! [driver](super::driver) against the ring.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use storage::Log;

use super::cursor::{Cursor, CursorKey, Deferred, Place};
use super::desk::{Desk, Moment};
use super::driver::Taken;
use super::landing::end_landing;
use super::lane::{Lane, LaneFault, LaneParts};
use super::sizing;
use crate::handle::{
    Assignment, CoreId, CursorFault, Event, LaneClosed, LinkId, LinkSettings, Resume,
};
use crate::partition::Partition;
use crate::ring::ReceiveInto;
use crate::wire::FetchRequest;

/// Kafka's UNKNOWN_TOPIC_ID: what fetching a topic without id by id would be answered with.
const UNKNOWN_TOPIC_ID: i16 = 100;

/// Time between steps of the walk over all cursors.
const WALK_STEP: Duration = Duration::from_millis(250);
/// Steps of a whole walk: every log is maintained about every ten seconds.
const WALK_STEPS: usize = 40;
/// How often session members that answers do not name are marked as heard of.
const STAMP_PERIOD: Duration = Duration::from_secs(5);

/// The fetch state of one core.
pub(super) struct Engine {
    /// What the lanes share.
    pub(super) desk: Desk,
    /// Slots whose receive must end, because a command needs the log it writes to.
    pub(super) cancels: Vec<u32>,
    core: CoreId,
    lanes: Vec<Option<Box<Lane>>>,
    walk_at: Option<Instant>,
    walk_position: usize,
    stamp_at: Option<Instant>,
}

impl Engine {
    /// Nothing yet.
    pub(super) fn new(core: CoreId) -> Self {
        Self {
            desk: Desk::default(),
            cancels: Vec::new(),
            core,
            lanes: Vec::new(),
            walk_at: None,
            walk_position: 0,
            stamp_at: None,
        }
    }

    /// Makes a link known or changes its settings.
    pub(super) fn set_link(&mut self, link: LinkId, settings: LinkSettings) {
        self.desk.links.entry(link).or_default().set(settings);
    }

    /// Adds a lane and moves waiting cursors onto it; returns its slot.
    pub(super) fn add_lane(&mut self, parts: LaneParts, moment: Moment) -> u32 {
        let free = self.lanes.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() - 1
        });
        let slot = u32::try_from(index).unwrap_or(u32::MAX);
        let (link, broker, kind, version) = (parts.link, parts.broker, parts.kind, parts.version);
        self.lanes[index] = Some(Box::new(Lane::new(slot, parts, moment.now)));
        self.desk.links.entry(link).or_default().add_lane(broker, kind, slot);
        if !(FetchRequest::VERSION_MIN..=FetchRequest::VERSION_MAX).contains(&version) {
            self.close(slot, &LaneFault::Version(version));
            return slot;
        }
        let waiting = self.desk.cursors.keys_where(|cursor| {
            cursor.place == Place::Waiting && cursor.link == link && cursor.broker == broker
        });
        self.desk.homeless.extend(waiting);
        self.settle();
        slot
    }

    /// Takes a partition over.
    pub(super) fn assign(&mut self, assignment: Assignment) {
        let Assignment { partition, log, link, resume } = assignment;
        let cursor = Cursor::new(partition.clone(), log, link);
        let key = match self.desk.cursors.insert(cursor) {
            Ok(key) => key,
            Err(rejected) => {
                tracing::error!(partition = %partition.id, "assigned to this core already");
                close_log(*rejected);
                return;
            }
        };
        let topic = self.desk.links.entry(link).or_default().list(&partition, key);
        if let Some(cursor) = self.desk.cursors.get_mut(key) {
            cursor.topic = topic;
        }
        self.resume_now(key, &resume);
        self.settle();
    }

    /// Sends a cursor on, or tells it of a new epoch.
    pub(super) fn resume(&mut self, partition: &Arc<Partition>, resume: Resume) {
        let Some(key) = self.desk.cursors.of_partition(partition) else { return };
        if self.kernel_writes(key) {
            self.detach(key);
            self.defer(key, Deferred::Resume(resume));
        } else {
            self.resume_now(key, &resume);
        }
        self.settle();
    }

    /// Stops a cursor.
    pub(super) fn park(&mut self, partition: &Arc<Partition>) {
        let Some(key) = self.desk.cursors.of_partition(partition) else { return };
        self.detach(key);
        if let Some(cursor) = self.desk.cursors.get_mut(key) {
            // A resume that waits for the kernel came before this command.
            cursor.deferred.retain(|deferred| !matches!(deferred, Deferred::Resume(_)));
            cursor.lose_sight();
        }
        self.settle();
    }

    /// Gives a log back, as soon as nothing writes to it.
    pub(super) fn take(&mut self, partition: &Arc<Partition>, taken: Taken) {
        let Some(key) = self.desk.cursors.of_partition(partition) else { return taken(None) };
        self.detach(key);
        if self.kernel_writes(key) {
            self.defer(key, Deferred::Take(taken));
        } else {
            taken(self.remove(key));
        }
        self.settle();
    }

    /// Writes the requests that are due on a lane.
    pub(super) fn requests(&mut self, slot: u32, moment: Moment, frames: &mut BytesMut) {
        if let Some(lane) = lane_in(&mut self.lanes, slot) {
            lane.requests(&mut self.desk, moment, frames);
        }
    }

    /// Where a lane wants to receive, if it does and is not receiving.
    pub(super) fn receive(&mut self, slot: u32) -> Option<ReceiveInto> {
        lane_in(&mut self.lanes, slot)?.receive(&mut self.desk)
    }

    /// Takes what a receive brought.
    pub(super) fn received(
        &mut self,
        slot: u32,
        result: std::io::Result<usize>,
        into: ReceiveInto,
        moment: Moment,
    ) {
        let Some(lane) = lane_in(&mut self.lanes, slot) else { return };
        if let Err(fault) = lane.received(result, into, &mut self.desk, moment) {
            self.close(slot, &fault);
        }
        self.settle();
    }

    /// Ends a lane; its cursors go to other lanes or wait. Its slot stays until [`Engine::release`].
    pub(super) fn close(&mut self, slot: u32, fault: &LaneFault) {
        let Some(lane) = lane_in(&mut self.lanes, slot) else { return };
        if lane.closed {
            return;
        }
        lane.closed = true;
        lane.abandon_landing(&mut self.desk);
        lane.report_pending(&[], &mut self.desk);
        if let Some(link) = self.desk.links.get_mut(&lane.link) {
            link.remove_lane(lane.broker, lane.kind, slot);
        }
        self.desk.events.push(Event::LaneClosed(LaneClosed {
            core: self.core,
            lane: lane.id,
            link: lane.link,
            broker: lane.broker,
            kind: lane.kind,
            cause: fault.to_string(),
        }));
        let here = [Place::Tail(slot), Place::CatchUp(slot)];
        for key in self.desk.cursors.keys_where(|cursor| here.contains(&cursor.place)) {
            if let Some(cursor) = self.desk.cursors.get_mut(key) {
                cursor.place = Place::Waiting;
                cursor.sent = None;
                cursor.invalidate();
                self.desk.homeless.push(key);
            }
        }
        self.settle();
    }

    /// Frees the slot of a closed lane that has nothing in flight.
    pub(super) fn release(&mut self, slot: u32) {
        if let Some(place) = self.lanes.get_mut(slot as usize) {
            *place = None;
        }
    }

    /// Closes silent lanes, and does a step of the periodic work.
    pub(super) fn tick(&mut self, moment: Moment) {
        for slot in 0..u32::try_from(self.lanes.len()).unwrap_or(u32::MAX) {
            let Some(lane) = lane_in(&mut self.lanes, slot).filter(|lane| !lane.closed) else {
                continue;
            };
            let settings = self.desk.links.get(&lane.link).and_then(|link| link.settings.as_ref());
            if let Some(settings) = settings
                && let Err(fault) = lane.check_deadline(settings, moment.now)
            {
                self.close(slot, &fault);
            }
        }
        self.walk(moment);
        self.stamp(moment);
    }

    /// When [`Engine::tick`] is due again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let lanes = self.lanes.iter().flatten().filter(|lane| !lane.closed);
        let due = lanes.filter_map(|lane| {
            let settings = self.desk.links.get(&lane.link)?.settings.as_ref()?;
            lane.deadline(settings)
        });
        due.chain(self.walk_at).chain(self.stamp_at).min()
    }

    /// Closes every log. Nothing may be in flight.
    pub(super) fn close_logs(&mut self) {
        for cursor in self.desk.cursors.drain() {
            close_log(cursor);
        }
    }

    /// Whether a lane is closed; also when there is none.
    pub(super) fn is_closed(&self, slot: u32) -> bool {
        self.lanes.get(slot as usize).and_then(Option::as_ref).is_none_or(|lane| lane.closed)
    }

    fn kernel_writes(&self, key: CursorKey) -> bool {
        self.desk.cursors.get(key).is_some_and(|cursor| cursor.in_kernel.is_some())
    }

    fn defer(&mut self, key: CursorKey, command: Deferred) {
        let Some(cursor) = self.desk.cursors.get_mut(key) else { return };
        cursor.deferred.push(command);
        self.cancels.extend(cursor.in_kernel);
    }

    /// Takes a cursor off its lane; what is on its way for it will not be stored.
    fn detach(&mut self, key: CursorKey) {
        let Some(cursor) = self.desk.cursors.get(key) else { return };
        if let Place::Tail(slot) | Place::CatchUp(slot) = cursor.place
            && let Some(lane) = lane_in(&mut self.lanes, slot)
        {
            lane.leave(key, &mut self.desk);
        }
        let Some(cursor) = self.desk.cursors.get_mut(key) else { return };
        cursor.place = Place::Parked;
        cursor.invalidate();
        if cursor.in_kernel.is_none() {
            end_landing(cursor);
        }
    }

    fn remove(&mut self, key: CursorKey) -> Option<Log> {
        let cursor = self.desk.cursors.remove(key)?;
        cursor.lose_sight();
        if let Some(link) = self.desk.links.get_mut(&cursor.link) {
            link.unlist(cursor.topic, cursor.partition.id.partition, key);
        }
        Some(cursor.log)
    }

    fn resume_now(&mut self, key: CursorKey, resume: &Resume) {
        let Some(cursor) = self.desk.cursors.get_mut(key) else { return };
        let place = cursor.place;
        let stays = cursor.broker == resume.broker && resume.repair.is_none();
        if let Place::Tail(slot) | Place::CatchUp(slot) = place
            && stays
        {
            // Already under way: the next request claims the new epoch. What the one that is out
            // brings is held against the epoch that one claimed.
            cursor.confirm(resume.leader_epoch);
            if let Some(lane) = lane_in(&mut self.lanes, slot) {
                lane.changed(key, &mut self.desk);
            }
            return;
        }
        self.detach(key);
        let Some(cursor) = self.desk.cursors.get_mut(key) else { return };
        match cursor.adopt(resume) {
            Ok(()) => {
                cursor.place = Place::Waiting;
                self.desk.homeless.push(key);
            }
            Err(error) => self.stop(key, super::lane::fault_of(&error)),
        }
    }

    /// Stops a cursor and reports why.
    fn stop(&mut self, key: CursorKey, fault: CursorFault) {
        self.detach(key);
        let Some(cursor) = self.desk.cursors.get(key) else { return };
        cursor.lose_sight();
        let partition = cursor.partition.clone();
        self.desk.report(partition, fault);
    }

    /// Runs commands that waited for the kernel, and finds lanes for cursors without one.
    fn settle(&mut self) {
        while let Some(key) = self.desk.unblocked.pop() {
            let Some(cursor) = self.desk.cursors.get_mut(key) else { continue };
            if cursor.place == Place::Waiting {
                self.desk.homeless.push(key);
            }
            for command in std::mem::take(&mut cursor.deferred) {
                match command {
                    Deferred::Resume(resume) => self.resume_now(key, &resume),
                    Deferred::Take(taken) => {
                        self.detach(key);
                        taken(self.remove(key));
                    }
                }
            }
        }
        while let Some(key) = self.desk.homeless.pop() {
            self.place(key);
        }
    }

    /// Finds a lane for a waiting cursor: catch-up when it is far behind, else the tail; the other
    /// kind when that one is missing, unless there is nothing to catch up with.
    fn place(&mut self, key: CursorKey) {
        let Some(cursor) = self.desk.cursors.get(key) else { return };
        if cursor.place != Place::Waiting || cursor.in_kernel.is_some() {
            return;
        }
        let Some(link) = self.desk.links.get(&cursor.link) else { return };
        let Some(lanes) = link.lanes(cursor.broker) else { return cursor.lose_sight() };
        let lag = cursor.lag();
        let behind = link
            .settings
            .as_ref()
            .zip(lag)
            .is_some_and(|(settings, lag)| sizing::is_behind(settings, lag));
        let candidates = match (behind, lanes.tail.is_empty(), lanes.catch_up.is_empty()) {
            (true, _, false) => &lanes.catch_up,
            (false, true, false) if lag.is_none() => &lanes.catch_up,
            (_, false, _) => &lanes.tail,
            _ => return cursor.lose_sight(),
        };
        let fewest = candidates.iter().copied().min_by_key(|slot| {
            let lane = self.lanes.get(*slot as usize).and_then(Option::as_ref);
            lane.map_or(usize::MAX, |lane| lane.members())
        });
        let Some(lane) = fewest.and_then(|slot| lane_in(&mut self.lanes, slot)) else { return };
        if cursor.can_be_named(lane.version) {
            lane.join(key, &mut self.desk);
        } else {
            self.stop(key, CursorFault::Broker { code: UNKNOWN_TOPIC_ID, hint: None });
        }
    }

    /// Maintains a share of the logs.
    fn walk(&mut self, moment: Moment) {
        let positions = self.desk.cursors.positions();
        if positions == 0 {
            self.walk_at = None;
            return;
        }
        if *self.walk_at.get_or_insert(moment.now + WALK_STEP) > moment.now {
            return;
        }
        self.walk_at = Some(moment.now + WALK_STEP);
        for _ in 0..positions.div_ceil(WALK_STEPS) {
            self.walk_position = (self.walk_position + 1) % positions;
            let Some((key, cursor)) = self.desk.cursors.at(self.walk_position) else { continue };
            if cursor.landing || cursor.in_kernel.is_some() {
                continue;
            }
            if let Err(error) = cursor.log.maintain(moment.unix_ms) {
                self.stop(key, super::lane::fault_of(&error));
            }
        }
    }

    /// Marks the members of live sessions as heard of: an incremental answer speaks for all of them,
    /// and naming them in every answer would cost what it is there to save.
    fn stamp(&mut self, moment: Moment) {
        let sessions = self.lanes.iter().flatten().any(|lane| !lane.session_members().is_empty());
        if !sessions {
            self.stamp_at = None;
            return;
        }
        if *self.stamp_at.get_or_insert(moment.now + STAMP_PERIOD) > moment.now {
            return;
        }
        self.stamp_at = Some(moment.now + STAMP_PERIOD);
        for lane in self.lanes.iter().flatten().filter(|lane| !lane.closed) {
            let Some(answered_at) = lane.answered_at() else { continue };
            let ago = moment.now.saturating_duration_since(answered_at).as_millis();
            let unix_ms = moment.unix_ms.saturating_sub(i64::try_from(ago).unwrap_or(i64::MAX));
            for key in lane.session_members() {
                if let Some(cursor) = self.desk.cursors.get(*key) {
                    cursor.spoken_for(unix_ms);
                }
            }
        }
    }
}

fn lane_in(lanes: &mut [Option<Box<Lane>>], slot: u32) -> Option<&mut Lane> {
    lanes.get_mut(slot as usize)?.as_deref_mut()
}

fn close_log(cursor: Cursor) {
    let partition = cursor.partition;
    if let Err(error) = cursor.log.close() {
        tracing::warn!(partition = %partition.id, %error, "not closed cleanly: the next start scans its tail");
    }
}
