//! The thread that writes offsets: takes what waits, appends it, flushes once, applies, answers.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dataplane::PartitionTable;
use storage::{AppendError, OpenError, Storage, TopicId, TopicPartition};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::partition::{OffsetsPartition, WriteError};
use super::store::{OFFSETS_PARTITIONS, OFFSETS_TOPIC, SharedOffsets, partition_of};
use super::table::{OffsetTable, OwnRecord, Update};
use crate::admin::PublishedHook;

/// Requests written with one flush.
const ROUND_REQUESTS_MAX: usize = 1024;

/// How often idle logs are looked after and unread partitions tried again.
const MAINTENANCE_PERIOD: Duration = Duration::from_secs(30);

/// After a failure a partition is left alone for this long: opening it reads its tail again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// Whether a write is durable, else why not.
pub(crate) type WriteOutcome = Result<(), Arc<str>>;

/// Threads that flush at the same time, when several partitions were written.
const FLUSH_THREADS_MAX: usize = 16;

/// A change to one group.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub(crate) group: Arc<str>,
    pub(crate) updates: Vec<Update>,
    /// Who is told the outcome.
    pub(crate) done: Vec<oneshot::Sender<WriteOutcome>>,
}

/// A partition's place.
#[derive(Debug)]
enum Slot {
    /// Not created yet.
    Absent,
    Open(OffsetsPartition),
    /// It failed to be written: its log has to be reopened.
    Failed {
        partition: OffsetsPartition,
        since: Instant,
    },
    /// It could not be opened or read back: what it holds is unknown.
    Unread {
        since: Instant,
    },
}

/// The writer.
#[derive(Debug)]
pub(super) struct Writer {
    storage: Arc<Storage>,
    registry: Arc<PartitionTable>,
    published: Hook,
    shared: Arc<SharedOffsets>,
    slots: Vec<Slot>,
    /// Known once the topic exists.
    topic_id: Option<TopicId>,
}

struct Hook(PublishedHook);

impl std::fmt::Debug for Hook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hook")
    }
}

impl Writer {
    pub(super) fn new(
        storage: Arc<Storage>,
        registry: Arc<PartitionTable>,
        published: PublishedHook,
        shared: Arc<SharedOffsets>,
    ) -> Self {
        let slots = (0..OFFSETS_PARTITIONS).map(|_| Slot::Absent).collect();
        Self { storage, registry, published: Hook(published), shared, slots, topic_id: None }
    }

    /// Opens and replays the partitions on disk.
    pub(super) fn open_existing(&mut self) {
        for found in self.storage.partitions() {
            if &*found.partition.topic != OFFSETS_TOPIC {
                continue;
            }
            match usize::try_from(found.partition.partition) {
                Ok(index) if index < OFFSETS_PARTITIONS => {
                    self.topic_id = Some(found.topic_id);
                    self.load(index);
                }
                _ => warn!(partition = %found.partition, "not a partition of ours: left alone"),
            }
        }
    }

    /// Writes until the queue is closed and empty, then closes the logs.
    pub(super) fn run(mut self, requests: &Receiver<WriteRequest>) {
        loop {
            match requests.recv_timeout(MAINTENANCE_PERIOD) {
                Ok(first) => self.write_round(first, requests),
                Err(RecvTimeoutError::Timeout) => self.maintain(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for slot in std::mem::take(&mut self.slots) {
            if let Slot::Open(partition) = slot {
                let id = partition.shared.id.clone();
                if let Err(cause) = partition.close() {
                    warn!(partition = %id, %cause, "group offsets were not closed cleanly");
                }
            }
        }
    }

    fn write_round(&mut self, first: WriteRequest, requests: &Receiver<WriteRequest>) {
        let mut next = Some(first);
        let mut round = 0;
        let mut by_partition: BTreeMap<usize, Vec<WriteRequest>> = BTreeMap::new();
        while let Some(request) = next.take() {
            // A deletion names what is there: what was queued before it has to be applied first.
            if request.updates.iter().any(|update| matches!(update, Update::Delete)) {
                self.write_all(std::mem::take(&mut by_partition));
                let index = partition_of(&request.group);
                self.write_all(BTreeMap::from([(index, vec![request])]));
            } else {
                by_partition.entry(partition_of(&request.group)).or_default().push(request);
            }
            round += 1;
            if round < ROUND_REQUESTS_MAX {
                next = requests.try_recv().ok();
            }
        }
        self.write_all(by_partition);
    }

    /// Makes requests durable, then visible, then answers them.
    fn write_all(&mut self, by_partition: BTreeMap<usize, Vec<WriteRequest>>) {
        let mut outcomes: BTreeMap<usize, WriteOutcome> = by_partition
            .iter()
            .map(|(index, requests)| (*index, self.append(*index, requests)))
            .collect();
        self.flush(&mut outcomes);
        for (index, requests) in by_partition {
            let outcome = outcomes.remove(&index).unwrap_or(Ok(()));
            if outcome.is_ok() {
                self.apply(&requests);
                if let Slot::Open(partition) = &self.slots[index] {
                    (self.published.0)(&partition.shared);
                }
            }
            for done in requests.into_iter().flat_map(|request| request.done) {
                // Who asked may have gone; the write holds all the same.
                let _ = done.send(outcome.clone());
            }
            self.rewrite_if_due(index);
        }
    }

    /// Appends the requests of one partition.
    fn append(&mut self, index: usize, requests: &[WriteRequest]) -> WriteOutcome {
        self.create_topic().map_err(|cause| said(index, &cause))?;
        self.heal(index)?;
        let records = self.records(requests);
        let Slot::Open(partition) = &mut self.slots[index] else {
            return Err(Arc::from("the partition is not open"));
        };
        partition.append(records, now_ms()).map_err(|cause| {
            self.failed(index, &cause);
            said(index, &cause)
        })
    }

    /// Flushes the partitions that were appended to, several at once: a device takes many syncs
    /// in little more time than one.
    fn flush(&mut self, outcomes: &mut BTreeMap<usize, WriteOutcome>) {
        let appended = |index: usize| outcomes.get(&index).is_some_and(WriteOutcome::is_ok);
        let mut partitions: Vec<(usize, &mut OffsetsPartition)> = self
            .slots
            .iter_mut()
            .enumerate()
            .filter_map(|(index, slot)| match slot {
                Slot::Open(partition) if appended(index) => Some((index, partition)),
                _ => None,
            })
            .collect();
        let share = partitions.len().div_ceil(FLUSH_THREADS_MAX).max(1);
        let flush_each = |partitions: &mut [(usize, &mut OffsetsPartition)]| {
            let mut failed = Vec::new();
            for (index, partition) in partitions {
                failed.extend(partition.flush().err().map(|cause| (*index, cause)));
            }
            failed
        };
        let failed: Vec<(usize, WriteError)> = match partitions.as_mut_slice() {
            [] => Vec::new(),
            [one] => flush_each(std::slice::from_mut(one)),
            many => std::thread::scope(|scope| {
                let threads: Vec<_> =
                    many.chunks_mut(share).map(|part| scope.spawn(|| flush_each(part))).collect();
                let joined = threads.into_iter().map(|thread| match thread.join() {
                    Ok(failed) => failed,
                    // Nothing may be taken for flushed: this thread ends, too.
                    Err(panicked) => std::panic::resume_unwind(panicked),
                });
                joined.flatten().collect()
            }),
        };
        for (index, cause) in failed {
            self.failed(index, &cause);
            outcomes.insert(index, Err(said(index, &cause)));
        }
    }

    fn apply(&self, requests: &[WriteRequest]) {
        let mut table = self.shared.table.write().unwrap_or_else(PoisonError::into_inner);
        for request in requests {
            for update in &request.updates {
                table.apply(&request.group, update);
            }
        }
    }

    fn records(&self, requests: &[WriteRequest]) -> Vec<OwnRecord> {
        let table = self.shared.table.read().unwrap_or_else(PoisonError::into_inner);
        let updates = requests
            .iter()
            .flat_map(|request| request.updates.iter().map(|update| (&*request.group, update)));
        updates.flat_map(|(group, update)| table.records(group, update)).collect()
    }

    /// Creates what is missing of the topic: all partitions at once, so that who subscribes to it
    /// finds them without gaps.
    fn create_topic(&mut self) -> Result<(), OpenError> {
        if !self.slots.iter().any(|slot| matches!(slot, Slot::Absent)) {
            return Ok(());
        }
        let topic_id = *self.topic_id.get_or_insert_with(new_topic_id);
        for index in 0..OFFSETS_PARTITIONS {
            if matches!(self.slots[index], Slot::Absent) {
                let partition = OffsetsPartition::create(&self.storage, &id(index), topic_id)?;
                self.registry.insert(partition.shared.clone());
                self.slots[index] = Slot::Open(partition);
            }
        }
        info!(partitions = OFFSETS_PARTITIONS, %topic_id, "created {OFFSETS_TOPIC}");
        Ok(())
    }

    /// Opens and replays one partition.
    fn load(&mut self, index: usize) {
        let bit = 1u64 << index;
        match self.read_back(index) {
            Ok(partition) => {
                self.registry.insert(partition.shared.clone());
                self.slots[index] = Slot::Open(partition);
                self.shared.unread.fetch_and(!bit, Ordering::AcqRel);
            }
            Err(cause) => {
                warn!(
                    partition = %id(index), cause,
                    "group offsets cannot be read back: their groups are refused until they can"
                );
                self.slots[index] = Slot::Unread { since: Instant::now() };
                self.shared.unread.fetch_or(bit, Ordering::AcqRel);
            }
        }
    }

    fn read_back(&self, index: usize) -> Result<OffsetsPartition, String> {
        let partition =
            OffsetsPartition::open(&self.storage, &id(index)).map_err(|error| error.to_string())?;
        // Apart at first: reading takes time, and others must not wait for it.
        let mut fresh = OffsetTable::default();
        partition
            .replay(|key, value| fresh.replay(key, value))
            .map_err(|error| error.to_string())?;
        let mut table = self.shared.table.write().unwrap_or_else(PoisonError::into_inner);
        table.replace(fresh, |group| partition_of(group) == index);
        Ok(partition)
    }

    /// Reopens a partition that failed, if its pause is over.
    fn heal(&mut self, index: usize) -> WriteOutcome {
        let since = match &self.slots[index] {
            Slot::Absent | Slot::Open(_) => return Ok(()),
            Slot::Failed { since, .. } | Slot::Unread { since } => *since,
        };
        if since.elapsed() < REOPEN_PAUSE {
            return Err(Arc::from(format!("{} failed a moment ago", id(index))));
        }
        match std::mem::replace(&mut self.slots[index], Slot::Absent) {
            Slot::Failed { partition, .. } => match partition.reopen(&self.storage) {
                Ok(partition) => {
                    self.registry.insert(partition.shared.clone());
                    info!(partition = %id(index), "group offsets can be written again");
                    self.slots[index] = Slot::Open(partition);
                    Ok(())
                }
                // What is in memory still holds, but only reading it back tells what is on disk.
                Err(cause) => {
                    self.slots[index] = Slot::Unread { since: Instant::now() };
                    self.shared.unread.fetch_or(1u64 << index, Ordering::AcqRel);
                    Err(said(index, &cause))
                }
            },
            _ => {
                self.load(index);
                match &self.slots[index] {
                    Slot::Open(_) => Ok(()),
                    _ => Err(Arc::from(format!("{} cannot be read back", id(index)))),
                }
            }
        }
    }

    fn failed(&mut self, index: usize, cause: &WriteError) {
        warn!(partition = %id(index), %cause, "group offsets cannot be written");
        if matches!(cause, WriteError::Append(AppendError::DiskFull { .. })) {
            // The log is as it was: it goes on when there is room.
            return;
        }
        let slot = std::mem::replace(&mut self.slots[index], Slot::Absent);
        self.slots[index] = match slot {
            Slot::Open(partition) => Slot::Failed { partition, since: Instant::now() },
            other => other,
        };
    }

    fn rewrite_if_due(&mut self, index: usize) {
        let Slot::Open(partition) = &mut self.slots[index] else { return };
        let table = self.shared.table.read().unwrap_or_else(PoisonError::into_inner);
        let live = || {
            let groups = table.group_names().into_iter();
            let groups = groups.filter(|group| partition_of(group) == index);
            groups.flat_map(|group| table.live_records(&group)).collect::<Vec<_>>()
        };
        let bytes = |records: &[OwnRecord]| {
            records.iter().map(|record| record.size_bytes() as u64).sum::<u64>()
        };
        if !partition.wants_rewrite(|| bytes(&live())) {
            return;
        }
        let outcome = partition.rewrite(live(), now_ms());
        drop(table);
        match outcome {
            Ok(()) => (self.published.0)(&partition.shared),
            Err(cause) => self.failed(index, &cause),
        }
    }

    fn maintain(&mut self) {
        for index in 0..OFFSETS_PARTITIONS {
            match &mut self.slots[index] {
                Slot::Open(partition) => {
                    if let Err(cause) = partition.maintain(now_ms()) {
                        self.failed(index, &cause);
                    }
                }
                Slot::Failed { .. } | Slot::Unread { .. } => {
                    // Said by the attempt itself.
                    let _ = self.heal(index);
                }
                Slot::Absent => {}
            }
        }
    }
}

fn id(index: usize) -> TopicPartition {
    TopicPartition { topic: Arc::from(OFFSETS_TOPIC), partition: index as i32 }
}

fn said(index: usize, cause: &dyn std::fmt::Display) -> Arc<str> {
    Arc::from(format!("{}: {cause}", id(index)))
}

/// A random id, as Kafka makes them.
fn new_topic_id() -> TopicId {
    TopicId(*uuid::Uuid::new_v4().as_bytes())
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
