//! Incremental fetch sessions (KIP-227), shared by all serve cores.
//!
//! A client may come back to another core, so the sessions lie in one place: a map under a lock
//! that is held only to find, add or remove one, and each session under a lock of its own, which
//! its one client practically never contends for.
//!
//! Bounded in sessions and in partitions over all of them. As in Kafka, a full cache takes a new
//! session in only in place of one unused for two minutes, or of a smaller one older than that;
//! who gets none is answered with session id 0 and goes on with full fetches.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::errors;
use super::target::{Look, Target};
use crate::wire::{AnswerPartition, TopicKey};

/// A session unused for so long, or older, gives way to a new one (Kafka
/// `min.incremental.fetch.session.eviction.ms`).
const EVICTION_AGE: Duration = Duration::from_secs(120);
/// Partitions kept over all sessions; each costs about 300 bytes.
const CACHED_PARTITIONS_MAX: usize = 1_000_000;

/// Identity of a partition within a session.
pub(super) type PartitionKey = (TopicKey, i32);

/// All sessions of the node.
#[derive(Debug)]
pub(crate) struct SessionCache {
    sessions_max: usize,
    partitions_max: usize,
    slots: Mutex<Slots>,
    /// Makes session ids that nobody guesses.
    random: RandomState,
}

#[derive(Debug, Default)]
struct Slots {
    by_id: HashMap<i32, Slot>,
    partitions: usize,
    made: u64,
}

#[derive(Debug)]
struct Slot {
    session: Arc<Mutex<Session>>,
    partitions: usize,
    created: Instant,
    used: Instant,
}

/// What an incremental request changes in its session.
#[derive(Debug)]
pub(super) struct SessionChange {
    /// The session.
    pub(super) id: i32,
    /// The epoch the request carries.
    pub(super) epoch: i32,
    /// Whether it names topics by id.
    pub(super) by_id: bool,
    /// Partitions added, or asked with new values.
    pub(super) targets: Vec<Target>,
    /// Partitions dropped.
    pub(super) forgotten: Vec<PartitionKey>,
}

/// What became of an incremental request's session.
#[derive(Debug)]
pub(super) enum Opened {
    /// It goes on, at its next epoch.
    Session(Arc<Mutex<Session>>),
    /// Nothing was left in it, so it was closed.
    Closed,
    /// It cannot: the answer's error code.
    Failed(i16),
}

impl SessionCache {
    /// An empty cache.
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self {
            sessions_max,
            partitions_max: CACHED_PARTITIONS_MAX,
            slots: Mutex::default(),
            random: RandomState::new(),
        }
    }

    /// Keeps the partitions of a full fetch with what was just answered for them. Returns the
    /// session's id, or 0 when there is no room.
    pub(super) fn create(
        &self,
        by_id: bool,
        entries: impl ExactSizeIterator<Item = Entry>,
        now: Instant,
    ) -> i32 {
        let mut slots = lock(&self.slots);
        let partitions = entries.len();
        let full = slots.by_id.len() >= self.sessions_max;
        if full && !slots.evict(partitions, now) {
            return 0;
        }
        if slots.partitions + partitions > self.partitions_max || self.sessions_max == 0 {
            return 0;
        }
        let id = loop {
            slots.made += 1;
            let id = (self.random.hash_one(slots.made) & 0x7fff_ffff) as i32;
            if id != 0 && !slots.by_id.contains_key(&id) {
                break id;
            }
        };
        let mut session = Session::new(id, by_id);
        for entry in entries {
            session.insert(entry);
        }
        let session = Arc::new(Mutex::new(session));
        slots.by_id.insert(id, Slot { session, partitions, created: now, used: now });
        slots.partitions += partitions;
        id
    }

    /// Finds a request's session, changes it as asked and moves it to its next epoch.
    pub(super) fn open(&self, change: SessionChange, now: Instant) -> Opened {
        let found = lock(&self.slots).by_id.get(&change.id).map(|slot| slot.session.clone());
        let Some(shared) = found else {
            return Opened::Failed(errors::FETCH_SESSION_ID_NOT_FOUND);
        };
        let id = change.id;
        let partitions = match lock(&shared).change(change) {
            Ok(partitions) => partitions,
            Err(code) => return Opened::Failed(code),
        };
        if partitions == 0 {
            self.remove(id);
            return Opened::Closed;
        }
        if !lock(&self.slots).touch(id, partitions, self.partitions_max, now) {
            self.remove(id);
            return Opened::Failed(errors::FETCH_SESSION_ID_NOT_FOUND);
        }
        Opened::Session(shared)
    }

    /// Closes a session, if it is there.
    pub(super) fn remove(&self, id: i32) {
        lock(&self.slots).remove(id);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.slots).by_id.len()
    }
}

impl Slots {
    /// Makes room for one session more. Refuses when every session is in use and as large.
    fn evict(&mut self, partitions: usize, now: Instant) -> bool {
        let age = |since: Instant| now.saturating_duration_since(since);
        let oldest = self.by_id.iter().min_by_key(|(_, slot)| slot.used);
        let stale = oldest.filter(|(_, slot)| age(slot.used) > EVICTION_AGE).map(|(id, _)| *id);
        let smallest = || {
            let settled = self.by_id.iter().filter(|(_, slot)| age(slot.created) > EVICTION_AGE);
            settled
                .min_by_key(|(id, slot)| (slot.partitions, **id))
                .filter(|(_, slot)| slot.partitions < partitions)
                .map(|(id, _)| *id)
        };
        match stale.or_else(smallest) {
            Some(id) => {
                self.remove(id);
                true
            }
            None => false,
        }
    }

    fn remove(&mut self, id: i32) {
        if let Some(slot) = self.by_id.remove(&id) {
            self.partitions -= slot.partitions;
        }
    }

    /// Notes a session's use and size; `false` when it has grown beyond what all may hold.
    fn touch(&mut self, id: i32, partitions: usize, partitions_max: usize, now: Instant) -> bool {
        let Some(slot) = self.by_id.get_mut(&id) else { return true };
        slot.used = now;
        let total = self.partitions - slot.partitions + partitions;
        if total > partitions_max && partitions > slot.partitions {
            return false;
        }
        self.partitions = total;
        slot.partitions = partitions;
        true
    }
}

/// A partition of a session, with what its client was last told.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// What is asked.
    pub(super) target: Target,
    high_watermark: i64,
    log_start: i64,
}

impl Entry {
    /// A partition as a full fetch was answered.
    pub(super) fn answered(target: Target, answer: &AnswerPartition) -> Self {
        Self { target, high_watermark: answer.high_watermark, log_start: answer.log_start_offset }
    }

    /// Whether the client has to be told.
    pub(super) fn must_answer(&self, look: &Look) -> bool {
        look.is_special()
            || look.answer.records_bytes > 0
            || look.answer.high_watermark != self.high_watermark
            || look.answer.log_start_offset != self.log_start
    }

    fn told(&mut self, answer: &AnswerPartition) {
        self.log_start = answer.log_start_offset;
        // After an error the partition is due again as soon as the error is gone.
        let failed = answer.error_code != errors::NONE;
        self.high_watermark = if failed { -1 } else { answer.high_watermark };
    }
}

/// One client's partitions, in the order they are looked at.
#[derive(Debug)]
pub(super) struct Session {
    id: i32,
    by_id: bool,
    epoch: i32,
    next_place: u64,
    entries: BTreeMap<u64, Entry>,
    places: HashMap<PartitionKey, u64>,
}

impl Session {
    fn new(id: i32, by_id: bool) -> Self {
        let (entries, places) = (BTreeMap::new(), HashMap::new());
        Self { id, by_id, epoch: 1, next_place: 0, entries, places }
    }

    /// Takes an answer's partition: remembers what the client was told, and moves a partition that
    /// gave records behind the others, so that a full answer starves none.
    pub(super) fn told(&mut self, place: u64, answer: &AnswerPartition) {
        let Some(mut entry) = self.entries.remove(&place) else { return };
        entry.told(answer);
        if answer.records_bytes > 0 {
            self.insert(entry);
        } else {
            self.entries.insert(place, entry);
        }
    }

    /// The partitions with their places, in the order they are due.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = (u64, &mut Entry)> {
        self.entries.iter_mut().map(|(place, entry)| (*place, entry))
    }

    /// The partitions, in the order they are due.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Its id.
    pub(super) fn id(&self) -> i32 {
        self.id
    }

    /// The epoch its next request must carry.
    pub(super) fn epoch(&self) -> i32 {
        self.epoch
    }

    fn change(&mut self, change: SessionChange) -> Result<usize, i16> {
        if self.epoch != change.epoch {
            return Err(errors::INVALID_FETCH_SESSION_EPOCH);
        }
        if self.by_id != change.by_id {
            return Err(errors::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        for target in change.targets {
            let place = self.places.get(&(target.key.clone(), target.fetch.partition));
            match place.and_then(|place| self.entries.get_mut(place)) {
                Some(entry) => entry.target.fetch = target.fetch,
                None => self.insert(Entry { target, high_watermark: -1, log_start: -1 }),
            }
        }
        for key in change.forgotten {
            if let Some(place) = self.places.remove(&key) {
                self.entries.remove(&place);
            }
        }
        if !self.entries.is_empty() {
            self.epoch = next_epoch(self.epoch);
        }
        Ok(self.entries.len())
    }

    fn insert(&mut self, entry: Entry) {
        let place = self.next_place;
        self.next_place += 1;
        let key = (entry.target.key.clone(), entry.target.fetch.partition);
        if let Some(old) = self.places.insert(key, place) {
            self.entries.remove(&old);
        }
        self.entries.insert(place, entry);
    }
}

/// Epochs count from 1 and start again at 1; 0 asks for a new session.
pub(super) fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// Locks; a panic elsewhere leaves nothing half done that the next holder could not use.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
