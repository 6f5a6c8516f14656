//! Partitions as every core and the control plane see them: a published log and its progress.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError, RwLock};

use storage::{LeaderEpoch, LogReader, TopicId, TopicPartition};

use crate::handle::CoreId;

/// What a partition's cursor is doing, for `describe` and metrics. KIP-1279's words.
///
/// The control plane writes it; see the state machine there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PartitionState {
    /// Looking up the source's epochs before the first fetch.
    LogAlignment = 0,
    /// Fetching.
    Mirroring = 3,
    /// Stopped by a fault; see the error message.
    Failed = 8,
    /// Not yet known.
    Unknown = 255,
}

/// Progress of one cursor. Written by its core and the control plane, read by anyone.
#[derive(Debug)]
pub struct Progress {
    /// The source's high watermark at the last answer, -1 while unknown.
    pub source_high_watermark: AtomicI64,
    /// The source's log start at the last answer, -1 while unknown.
    pub source_log_start: AtomicI64,
    /// Unix milliseconds of the last answer that named this partition or its session, 0 for never.
    pub last_answer_ms: AtomicI64,
    /// Bytes published since start.
    pub landed_bytes: AtomicU64,
    /// Batches published since start.
    pub landed_batches: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            source_high_watermark: AtomicI64::new(-1),
            source_log_start: AtomicI64::new(-1),
            last_answer_ms: AtomicI64::new(0),
            landed_bytes: AtomicU64::new(0),
            landed_batches: AtomicU64::new(0),
        }
    }
}

/// The mirror a partition belongs to.
#[derive(Debug)]
pub struct MirrorInfo {
    /// The mirror's name, for refusals: "read-only: mirrored by NAME".
    pub name: Arc<str>,
}

/// One partition of this node, shared by all cores and the control plane.
#[derive(Debug)]
pub struct Partition {
    /// Topic and index.
    pub id: TopicPartition,
    /// The topic's id, equal to the source's where the source has one.
    pub topic_id: TopicId,
    /// Published log.
    pub log: Arc<LogReader>,
    /// The mirror it belongs to; `None` for a local topic.
    pub mirror: Option<Arc<MirrorInfo>>,
    /// Cursor progress.
    pub progress: Progress,
    /// Cores with a consumer waiting for this partition, one bit a core: see [`Partition::waiters`].
    waiting_cores: AtomicU64,
    /// Cores in whose mailbox the partition is listed as published, one bit a core.
    listed_cores: AtomicU64,
    /// Leader epoch this node advertises; never falls (P3).
    advertised_epoch: AtomicI32,
    /// Set when the partition is deleted: long polls on it end at once.
    deleted: AtomicBool,
    /// Set by a read that failed, until one works.
    unreadable: AtomicBool,
}

impl Partition {
    /// A partition as it is registered; `advertised_epoch` is what was advertised before a restart.
    #[must_use]
    pub fn new(
        id: TopicPartition,
        topic_id: TopicId,
        log: Arc<LogReader>,
        mirror: Option<Arc<MirrorInfo>>,
        advertised_epoch: LeaderEpoch,
    ) -> Self {
        Self {
            id,
            topic_id,
            log,
            mirror,
            progress: Progress::default(),
            waiting_cores: AtomicU64::new(0),
            listed_cores: AtomicU64::new(0),
            advertised_epoch: AtomicI32::new(advertised_epoch.0.max(0)),
            deleted: AtomicBool::new(false),
            unreadable: AtomicBool::new(false),
        }
    }

    /// Logs a failed read, once until a read works: a client may ask thousands of times a second.
    pub(crate) fn read_failed(&self, error: &dyn std::fmt::Display) {
        if !self.unreadable.swap(true, Ordering::Relaxed) {
            tracing::error!("{error}; said once until a read works");
        }
    }

    /// A read worked.
    pub(crate) fn read_worked(&self) {
        if self.unreadable.load(Ordering::Relaxed) {
            self.unreadable.store(false, Ordering::Relaxed);
            tracing::info!(partition = %self.id, "readable again");
        }
    }

    /// The leader epoch clients are told: never below any published batch, never falling.
    pub fn advertised_epoch(&self) -> LeaderEpoch {
        let latest = self.log.latest_epoch().0;
        LeaderEpoch(self.advertised_epoch.fetch_max(latest, Ordering::AcqRel).max(latest))
    }

    /// Advertises at least this epoch from now on. Whoever calls it has stored the epoch first, so
    /// that it does not fall after a crash either.
    pub fn raise_advertised_epoch(&self, epoch: LeaderEpoch) {
        self.advertised_epoch.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Marks the partition deleted.
    pub fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Whether the partition was deleted.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Registers a core's interest in the next publish. The core must look at the log end once
    /// more afterwards: a publish between its first look and this call would be missed otherwise.
    pub fn wait_on(&self, core: usize) {
        self.waiting_cores.fetch_or(1 << core, Ordering::SeqCst);
        // With the fence in `waiters`: of the two orders "set the bit, look at the log" and "publish,
        // look at the bits", one sees the other, so no publish is missed by both.
        fence(Ordering::SeqCst);
    }

    /// Takes the set of waiting cores after a publish, clearing it.
    pub fn waiters(&self) -> u64 {
        fence(Ordering::SeqCst);
        if self.waiting_cores.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        self.waiting_cores.swap(0, Ordering::SeqCst)
    }

    /// Returns whether the partition was not yet listed in that core's mailbox.
    pub(crate) fn mark_listed(&self, core: CoreId) -> bool {
        let bit = 1u64 << core.0;
        self.listed_cores.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// The core took the partition out of its mailbox. Acquires what the publishers who found it
    /// listed had published.
    pub(crate) fn clear_listed(&self, core: CoreId) {
        self.listed_cores.fetch_and(!(1u64 << core.0), Ordering::AcqRel);
    }
}

#[derive(Debug, Default)]
struct Entries {
    by_name: HashMap<Arc<str>, Vec<Option<Arc<Partition>>>>,
    names_by_id: HashMap<TopicId, Arc<str>>,
}

/// Every partition this node serves, by name and by topic id.
#[derive(Debug, Default)]
pub struct PartitionTable {
    entries: RwLock<Entries>,
}

impl PartitionTable {
    /// Adds a partition, or replaces one of the same name, which is then marked deleted.
    pub fn insert(&self, partition: Arc<Partition>) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(partition.id.partition).unwrap_or(0);
        if !partition.topic_id.is_zero() {
            entries.names_by_id.insert(partition.topic_id, partition.id.topic.clone());
        }
        let slots = entries.by_name.entry(partition.id.topic.clone()).or_default();
        if slots.len() <= index {
            slots.resize(index + 1, None);
        }
        if let Some(replaced) = slots[index].replace(partition) {
            replaced.mark_deleted();
        }
    }

    /// Removes a topic's partitions and returns them.
    pub fn remove_topic(&self, topic: &str) -> Vec<Arc<Partition>> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let removed: Vec<_> =
            entries.by_name.remove(topic).unwrap_or_default().into_iter().flatten().collect();
        for partition in &removed {
            entries.names_by_id.remove(&partition.topic_id);
            partition.mark_deleted();
        }
        removed
    }

    /// A partition by topic name.
    #[must_use]
    pub fn by_name(&self, topic: &str, partition: i32) -> Option<Arc<Partition>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(partition).ok()?;
        entries.by_name.get(topic)?.get(index)?.clone()
    }

    /// The name of a topic id.
    #[must_use]
    pub fn topic_name(&self, id: TopicId) -> Option<Arc<str>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.names_by_id.get(&id).cloned()
    }

    /// A topic's partitions, in order; empty when the topic is unknown.
    #[must_use]
    pub fn topic(&self, topic: &str) -> Vec<Arc<Partition>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries
            .by_name
            .get(topic)
            .map(|slots| slots.iter().flatten().cloned().collect())
            .unwrap_or_default()
    }

    /// All topic names, sorted.
    #[must_use]
    pub fn topic_names(&self) -> Vec<Arc<str>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<_> = entries.by_name.keys().cloned().collect();
        names.sort();
        names
    }
}
