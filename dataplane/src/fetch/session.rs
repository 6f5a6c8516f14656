//! The fetch session of one tail lane (KIP-227), without input or output.
//!
//! A full request (epoch 0) lists every member and opens a session at the broker; incremental ones
//! list only members whose position changed, and those that left. So an answer costs what moved,
//! however many members are idle. Whenever the two sides may disagree, the session is opened again
//! from scratch. Brokers before Fetch 7, and brokers whose session cache is full, are asked for
//! every member each time, starting at another one each time so that none starves.

use std::collections::{HashMap, HashSet};

use super::cursor::{CursorKey, Cursors, Place};
use super::sizing::RequestSize;
use crate::wire::{
    FetchRequest, FetchTopic, ForgottenTopic, IsolationLevel, ResponseHead, TopicKey,
};

/// First Fetch version with sessions.
const VERSION_SESSIONS: i16 = 7;
/// Session epoch that opens a session.
const EPOCH_OPEN: i32 = 0;
/// Session epoch of a request without a session.
const EPOCH_NONE: i32 = -1;

/// Refusals in a row before the lane is given up: each reopening starts from nothing, so more of
/// them would not change the answer.
const REFUSALS_MAX: u32 = 5;

/// Kafka's errors about sessions and topic ids that a full request mends: unknown topic id (100, at
/// the top in Kafka 2.8 to 3.0), session id not found (70), invalid session epoch (71), inconsistent
/// topic id (103), session topic ids differ in kind (106).
const REOPEN_ERRORS: [i16; 5] = [70, 71, 100, 103, 106];

/// An answer after which the session cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SessionError {
    /// An error that a new session does not mend.
    #[error("the source refused the fetch with error {0}")]
    Refused(i16),
    /// Sessions were opened from scratch again and again, in vain.
    #[error("the source refused {REFUSALS_MAX} fetch sessions in a row, last with error {0}")]
    RefusedAgain(i16),
    /// Full answers keep leaving partitions out.
    #[error("the source left {missing} of {asked} partitions out of full answers, repeatedly")]
    Incomplete {
        /// Partitions left out.
        missing: usize,
        /// Partitions asked for.
        asked: usize,
    },
}

/// The request that is out.
#[derive(Debug)]
struct Asked {
    full: bool,
    requested: usize,
    named: usize,
    throttled: bool,
    refused: bool,
}

/// A session and its members.
#[derive(Debug)]
pub(super) struct Session {
    slot: u32,
    version: i16,
    id: i32,
    epoch: i32,
    members: Vec<CursorKey>,
    changed: Vec<CursorKey>,
    forgotten: HashSet<(TopicKey, i32)>,
    rotation: usize,
    asked: Option<Asked>,
    refusals: u32,
}

impl Session {
    /// No session yet, for the tail lane in `slot`.
    pub(super) fn new(slot: u32, version: i16) -> Self {
        let epoch = if version < VERSION_SESSIONS { EPOCH_NONE } else { EPOCH_OPEN };
        Self {
            slot,
            version,
            id: 0,
            epoch,
            members: Vec::new(),
            changed: Vec::new(),
            forgotten: HashSet::new(),
            rotation: 0,
            asked: None,
            refusals: 0,
        }
    }

    /// Adds a cursor; it is asked for from the next request on.
    pub(super) fn join(&mut self, key: CursorKey, cursors: &mut Cursors) {
        let Some(cursor) = cursors.get_mut(key) else { return };
        cursor.place = Place::Tail(self.slot);
        cursor.sent = None;
        cursor.change_queued = false;
        cursor.member_at = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.members.push(key);
        // A broker applies additions before removals: naming it in both would lose it for good.
        self.forgotten.remove(&(cursor.topic_key(self.version), cursor.partition.id.partition));
        self.changed(key, cursors);
    }

    /// Removes a cursor; the broker is told with the next request.
    pub(super) fn leave(&mut self, key: CursorKey, cursors: &mut Cursors) {
        let Some(cursor) = cursors.get_mut(key) else { return };
        cursor.place = Place::Parked;
        cursor.sent = None;
        let at = cursor.member_at;
        if self.version >= VERSION_SESSIONS {
            let topic = cursor.topic_key(self.version);
            self.forgotten.insert((topic, cursor.partition.id.partition));
        }
        if self.members.get(at as usize) == Some(&key) {
            self.members.swap_remove(at as usize);
            if let Some(moved) = self.members.get(at as usize)
                && let Some(moved) = cursors.get_mut(*moved)
            {
                moved.member_at = at;
            }
        }
    }

    /// Notes that a member's position or epoch changed.
    pub(super) fn changed(&mut self, key: CursorKey, cursors: &mut Cursors) {
        let Some(cursor) = cursors.get_mut(key) else { return };
        if !std::mem::replace(&mut cursor.change_queued, true) {
            self.changed.push(key);
        }
    }

    /// Forgets the broker's session: the next request opens one and lists every member.
    pub(super) fn reopen(&mut self) {
        self.id = 0;
        if self.version >= VERSION_SESSIONS {
            self.epoch = EPOCH_OPEN;
        }
    }

    /// The next request; at most one may be out. `None` without members.
    pub(super) fn request(
        &mut self,
        cursors: &mut Cursors,
        size: &RequestSize,
    ) -> Option<FetchRequest> {
        if self.members.is_empty() || self.asked.is_some() {
            return None;
        }
        let full = self.epoch <= EPOCH_OPEN;
        let topics =
            if full { self.every_member(cursors, size) } else { self.moved(cursors, size) };
        let forgotten = if full { Vec::new() } else { self.left() };
        let requested = topics.iter().map(|topic| topic.partitions.len()).sum();
        self.asked = Some(Asked { full, requested, named: 0, throttled: false, refused: false });
        Some(FetchRequest {
            replica_id: -1,
            max_wait_ms: size.wait_max_ms,
            min_bytes: size.bytes_min,
            max_bytes: size.bytes_max,
            isolation: IsolationLevel::ReadUncommitted,
            session_id: self.id,
            session_epoch: self.epoch,
            topics,
            forgotten,
            rack_id: String::new(),
        })
    }

    fn every_member(&mut self, cursors: &mut Cursors, size: &RequestSize) -> Vec<FetchTopic> {
        for key in self.changed.drain(..) {
            if let Some(cursor) = cursors.get_mut(key) {
                cursor.change_queued = false;
            }
        }
        self.forgotten.clear();
        let mut order: Vec<_> = self
            .members
            .iter()
            .filter_map(|key| {
                let cursor = cursors.get(*key)?;
                Some((cursor.topic, cursor.partition.id.partition, *key))
            })
            .collect();
        order.sort_unstable();
        if !order.is_empty() {
            let by = self.rotation % order.len();
            order.rotate_left(by);
            self.rotation = self.rotation.wrapping_add(1);
        }
        let mut topics = Topics::new(self.version);
        for (_, _, key) in order {
            topics.push(key, cursors, size.partition_bytes_max, true);
        }
        topics.done
    }

    fn moved(&mut self, cursors: &mut Cursors, size: &RequestSize) -> Vec<FetchTopic> {
        let mut order: Vec<_> = self
            .changed
            .drain(..)
            .filter_map(|key| {
                let cursor = cursors.get_mut(key)?;
                cursor.change_queued = false;
                let ours = cursor.place == Place::Tail(self.slot);
                ours.then_some((cursor.topic, cursor.partition.id.partition, key))
            })
            .collect();
        order.sort_unstable();
        let mut topics = Topics::new(self.version);
        for (_, _, key) in order {
            topics.push(key, cursors, size.partition_bytes_max, false);
        }
        topics.done
    }

    fn left(&mut self) -> Vec<ForgottenTopic> {
        let mut topics: HashMap<TopicKey, Vec<i32>> = HashMap::new();
        for (topic, partition) in self.forgotten.drain() {
            topics.entry(topic).or_default().push(partition);
        }
        topics.into_iter().map(|(topic, partitions)| ForgottenTopic { topic, partitions }).collect()
    }

    /// Takes an answer's front.
    pub(super) fn answered(&mut self, head: &ResponseHead) -> Result<(), SessionError> {
        let Some(asked) = &mut self.asked else { return Ok(()) };
        asked.throttled = head.throttle_time_ms > 0;
        if head.error_code != 0 {
            if !REOPEN_ERRORS.contains(&head.error_code) {
                return Err(SessionError::Refused(head.error_code));
            }
            asked.refused = true;
            self.refusals += 1;
            if self.refusals >= REFUSALS_MAX {
                return Err(SessionError::RefusedAgain(head.error_code));
            }
            self.reopen();
        } else if self.version >= VERSION_SESSIONS {
            // A session id of 0 says there is none: the cache is full, or it was closed.
            if asked.full && head.session_id != 0 {
                self.id = head.session_id;
                self.epoch = 1;
            } else if !asked.full && head.session_id == self.id {
                self.epoch = self.epoch.checked_add(1).unwrap_or(1);
            } else {
                self.reopen();
            }
        }
        Ok(())
    }

    /// Counts a partition the answer named.
    pub(super) fn named(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.named += 1;
        }
    }

    /// Ends an answer. A full one must name every partition asked for: one that is left out is in
    /// no session, and would stand still for ever.
    pub(super) fn ended(&mut self) -> Result<(), SessionError> {
        let Some(asked) = self.asked.take() else { return Ok(()) };
        if asked.refused {
            return Ok(());
        }
        if !asked.full || asked.named >= asked.requested || asked.throttled {
            self.refusals = 0;
            return Ok(());
        }
        self.refusals += 1;
        if self.refusals >= REFUSALS_MAX {
            let missing = asked.requested - asked.named;
            return Err(SessionError::Incomplete { missing, asked: asked.requested });
        }
        self.reopen();
        Ok(())
    }

    /// Refusals in a row.
    pub(super) fn refusals(&self) -> u32 {
        self.refusals
    }

    /// The members.
    pub(super) fn members(&self) -> &[CursorKey] {
        &self.members
    }
}

/// Groups partitions, given in order of their topics.
struct Topics {
    version: i16,
    topic: Option<u32>,
    done: Vec<FetchTopic>,
}

impl Topics {
    fn new(version: i16) -> Self {
        Self { version, topic: None, done: Vec::new() }
    }

    fn push(&mut self, key: CursorKey, cursors: &mut Cursors, bytes_max: i32, always: bool) {
        let Some(cursor) = cursors.get_mut(key) else { return };
        let partition =
            if always { Some(cursor.ask(bytes_max)) } else { cursor.ask_if_changed(bytes_max) };
        let Some(partition) = partition else { return };
        match self.done.last_mut() {
            Some(topic) if self.topic == Some(cursor.topic) => topic.partitions.push(partition),
            _ => {
                self.topic = Some(cursor.topic);
                let topic = cursor.topic_key(self.version);
                self.done.push(FetchTopic { topic, partitions: vec![partition] });
            }
        }
    }
}
