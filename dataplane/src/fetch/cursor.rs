//! Cursors: positions in partitions, with the logs they write.
//!
//! Owned by one core's [`Desk`](super::desk::Desk) and touched by no other thread. A cursor has at
//! most one request out, and never stores records of a request it made in an earlier generation.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use storage::{AppendContext, Landed, LeaderEpoch, Log, Offset};

use super::driver::Taken;
use crate::handle::{BrokerId, LinkId, LogRepair, Resume};
use crate::partition::Partition;
use crate::wire::{FetchPartition, TopicKey};

/// First Fetch version that names topics by id (KIP-516).
const VERSION_TOPIC_IDS: i16 = 13;

/// Names a cursor; never reused for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CursorKey {
    index: u32,
    serial: u32,
}

/// Which lane asks for a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// None, until the control plane resumes it.
    Parked,
    /// None, until there is a lane to its broker.
    Waiting,
    /// A member of the session of the tail lane in this slot.
    Tail(u32),
    /// In the round of the catch-up lane in this slot.
    CatchUp(u32),
}

/// What the broker was last asked for a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// Generation of the cursor then.
    generation: u32,
    /// First offset wanted.
    offset: i64,
    /// Epoch the request claimed; batches beyond it are not stored from its answer.
    leader_epoch: LeaderEpoch,
    /// Epoch of our last batch.
    last_epoch: LeaderEpoch,
    /// Bound on the records.
    bytes_max: i32,
}

/// A command that has to wait until the kernel no longer writes into the cursor's log.
pub(super) enum Deferred {
    /// Go on, perhaps after a repair.
    Resume(Resume),
    /// Give the log away.
    Take(Taken),
}

/// One partition being mirrored.
pub(super) struct Cursor {
    /// The shared side.
    pub(super) partition: Arc<Partition>,
    /// The log, written by this core alone.
    pub(super) log: Log,
    /// The link it is fetched over.
    pub(super) link: LinkId,
    /// Index of its topic in the link.
    pub(super) topic: u32,
    /// Where it is fetched from.
    pub(super) broker: BrokerId,
    /// The epoch the control plane confirmed; unknown where the source has none.
    leader_epoch: LeaderEpoch,
    /// Epoch of the last batch, kept when an answer is empty or the log runs empty by retention:
    /// forgetting it would switch the source's divergence check off.
    last_epoch: LeaderEpoch,
    /// Counts what makes answers on their way stale.
    generation: u32,
    /// Who asks for it.
    pub(super) place: Place,
    /// What was asked last on its lane.
    pub(super) sent: Option<Sent>,
    /// Position in its session's member list.
    pub(super) member_at: u32,
    /// Whether its session has it in the list of changes.
    pub(super) change_queued: bool,
    /// Whether an answer's records are going into the log.
    pub(super) landing: bool,
    /// The slot whose receive writes into the log's mapping.
    pub(super) in_kernel: Option<u32>,
    /// Commands that wait for it.
    pub(super) deferred: Vec<Deferred>,
    /// Log end at which the last batch was bad: a second one there is a fault.
    pub(super) bad_batch_at: Option<Offset>,
}

impl Cursor {
    /// A parked cursor at the end of its log.
    pub(super) fn new(partition: Arc<Partition>, log: Log, link: LinkId) -> Self {
        let last_epoch = log.reader().latest_epoch();
        Self {
            partition,
            log,
            link,
            topic: 0,
            broker: BrokerId(-1),
            leader_epoch: LeaderEpoch::UNKNOWN,
            last_epoch,
            generation: 0,
            place: Place::Parked,
            sent: None,
            member_at: 0,
            change_queued: false,
            landing: false,
            in_kernel: None,
            deferred: Vec::new(),
            bad_batch_at: None,
        }
    }

    /// Makes answers on their way stale.
    pub(super) fn invalidate(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Repairs the log and takes over where to fetch from.
    pub(super) fn adopt(&mut self, resume: &Resume) -> Result<(), storage::AppendError> {
        match resume.repair {
            Some(LogRepair::TruncateTo(offset)) => {
                self.log.truncate_to(offset)?;
                self.last_epoch = self.log.reader().latest_epoch();
            }
            Some(LogRepair::ResetTo(offset)) => {
                self.log.reset_to(offset)?;
                self.last_epoch = self.log.reader().latest_epoch();
            }
            None => {}
        }
        self.broker = resume.broker;
        self.leader_epoch = resume.leader_epoch;
        self.bad_batch_at = None;
        Ok(())
    }

    /// Takes a newer confirmed epoch over.
    pub(super) fn confirm(&mut self, leader_epoch: LeaderEpoch) {
        self.leader_epoch = leader_epoch;
    }

    /// Remembers the epoch of what was just published.
    pub(super) fn remember_epoch(&mut self) {
        self.last_epoch = self.log.reader().latest_epoch();
    }

    /// Counts what was published.
    pub(super) fn landed(&self, landed: &Landed) {
        let progress = &self.partition.progress;
        progress.landed_bytes.fetch_add(landed.bytes, Ordering::Relaxed);
        progress.landed_batches.fetch_add(u64::from(landed.batches), Ordering::Relaxed);
    }

    /// Sets the source's end and start, as an answer told them.
    pub(super) fn heard(&self, high_watermark: i64, log_start: i64, unix_ms: i64) {
        let progress = &self.partition.progress;
        // A new leader's high watermark may trail what we already have; what we have was below an
        // earlier one, so it is known to exist at the source. Lag is never negative.
        let known = high_watermark.max(self.log.reader().log_end().0);
        progress.source_high_watermark.store(known, Ordering::Relaxed);
        if log_start >= 0 {
            progress.source_log_start.store(log_start, Ordering::Relaxed);
        }
        progress.last_answer_ms.store(unix_ms, Ordering::Relaxed);
    }

    /// An answer at `unix_ms` said, by not naming it, that nothing changed; only of something asked.
    pub(super) fn spoken_for(&self, unix_ms: i64) {
        let progress = &self.partition.progress;
        if self.sent.is_some() && progress.source_high_watermark.load(Ordering::Relaxed) >= 0 {
            progress.last_answer_ms.fetch_max(unix_ms, Ordering::Relaxed);
        }
    }

    /// The source's end is not known any more: nobody asks for it.
    pub(super) fn lose_sight(&self) {
        self.partition.progress.source_high_watermark.store(-1, Ordering::Relaxed);
    }

    /// The next offset to fetch.
    pub(super) fn position(&self) -> Offset {
        self.log.reader().log_end()
    }

    /// Offsets between our end and the source's; `None` while unknown.
    pub(super) fn lag(&self) -> Option<i64> {
        let end = self.partition.progress.source_high_watermark.load(Ordering::Relaxed);
        (end >= 0).then(|| end.saturating_sub(self.position().0).max(0))
    }

    /// Whether answers to what was sent may be stored.
    pub(super) fn awaits(&self) -> bool {
        self.sent.is_some_and(|sent| sent.generation == self.generation)
    }

    /// The generation, to be compared later.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// The bound on what may be stored of the answer to what was sent.
    pub(super) fn append_context(&self) -> AppendContext {
        let confirmed = self.sent.map_or(LeaderEpoch::UNKNOWN, |sent| sent.leader_epoch);
        // A source without leader epochs in its metadata cannot confirm any.
        let leader_epoch_max =
            if confirmed == LeaderEpoch::UNKNOWN { LeaderEpoch(i32::MAX) } else { confirmed };
        AppendContext { leader_epoch_max }
    }

    /// How requests of this version name the topic.
    pub(super) fn topic_key(&self, version: i16) -> TopicKey {
        if version >= VERSION_TOPIC_IDS {
            TopicKey::Id(self.partition.topic_id)
        } else {
            TopicKey::Name(self.partition.id.topic.clone())
        }
    }

    /// Whether requests of this version can name the topic at all.
    pub(super) fn can_be_named(&self, version: i16) -> bool {
        version < VERSION_TOPIC_IDS || !self.partition.topic_id.is_zero()
    }

    /// What would be sent now.
    fn wanted(&self, bytes_max: i32) -> Sent {
        Sent {
            generation: self.generation,
            offset: self.position().0,
            leader_epoch: self.leader_epoch,
            last_epoch: self.last_epoch,
            bytes_max,
        }
    }

    /// The cursor's part of a request, unless the broker has exactly that from an earlier one.
    pub(super) fn ask_if_changed(&mut self, bytes_max: i32) -> Option<FetchPartition> {
        (self.sent != Some(self.wanted(bytes_max))).then(|| self.ask(bytes_max))
    }

    /// The cursor's part of a request.
    pub(super) fn ask(&mut self, bytes_max: i32) -> FetchPartition {
        let wanted = self.wanted(bytes_max);
        self.sent = Some(wanted);
        FetchPartition {
            partition: self.partition.id.partition,
            current_leader_epoch: wanted.leader_epoch.0,
            fetch_offset: wanted.offset,
            last_fetched_epoch: wanted.last_epoch.0,
            log_start_offset: -1,
            max_bytes: bytes_max,
        }
    }
}

struct Slot {
    serial: u32,
    cursor: Option<Cursor>,
}

/// The cursors of one core.
#[derive(Default)]
pub(super) struct Cursors {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// By address of the shared partition, which the cursor keeps alive: a recreated topic has the
    /// same name and another address.
    by_partition: HashMap<usize, CursorKey>,
}

impl Cursors {
    /// Adds a cursor. `None` when the partition has one already.
    pub(super) fn insert(&mut self, cursor: Cursor) -> Result<CursorKey, Box<Cursor>> {
        let address = Arc::as_ptr(&cursor.partition).addr();
        if self.by_partition.contains_key(&address) {
            return Err(Box::new(cursor));
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { serial: 0, cursor: None });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.serial = slot.serial.wrapping_add(1);
        slot.cursor = Some(cursor);
        let key = CursorKey { index, serial: slot.serial };
        self.by_partition.insert(address, key);
        Ok(key)
    }

    /// Takes a cursor out.
    pub(super) fn remove(&mut self, key: CursorKey) -> Option<Cursor> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.serial != key.serial {
            return None;
        }
        let cursor = slot.cursor.take()?;
        self.free.push(key.index);
        self.by_partition.remove(&Arc::as_ptr(&cursor.partition).addr());
        Some(cursor)
    }

    /// A cursor, unless it is gone.
    pub(super) fn get_mut(&mut self, key: CursorKey) -> Option<&mut Cursor> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.serial == key.serial { slot.cursor.as_mut() } else { None }
    }

    /// The cursor of a partition.
    pub(super) fn of_partition(&self, partition: &Arc<Partition>) -> Option<CursorKey> {
        self.by_partition.get(&Arc::as_ptr(partition).addr()).copied()
    }

    /// A cursor, unless it is gone.
    pub(super) fn get(&self, key: CursorKey) -> Option<&Cursor> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.serial == key.serial { slot.cursor.as_ref() } else { None }
    }

    /// Keys of all cursors that `matches`; walks them all, so for rare events only.
    pub(super) fn keys_where(&self, matches: impl Fn(&Cursor) -> bool) -> Vec<CursorKey> {
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.cursor.as_ref().is_some_and(&matches))
            .map(|(index, slot)| CursorKey { index, serial: slot.serial })
            .collect()
    }

    /// Positions a walk in steps can visit: 0 to this.
    pub(super) fn positions(&self) -> usize {
        self.slots.len()
    }

    /// The cursor at a walk's position.
    pub(super) fn at(&mut self, position: usize) -> Option<(CursorKey, &mut Cursor)> {
        let slot = self.slots.get_mut(position)?;
        let index = u32::try_from(position).ok()?;
        let key = CursorKey { index, serial: slot.serial };
        slot.cursor.as_mut().map(|cursor| (key, cursor))
    }

    /// Takes every cursor out.
    pub(super) fn drain(&mut self) -> Vec<Cursor> {
        self.by_partition.clear();
        self.free.clear();
        self.slots.drain(..).filter_map(|slot| slot.cursor).collect()
    }
}
