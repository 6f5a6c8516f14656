//! Brings back what a node had: opens its mirrored logs and shows them before anybody can ask.
//!
//! Runs once at start, on threads that may block. Does not need the source: what was copied is
//! served whether or not it can be reached.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dataplane::{CoreId, MirrorInfo, Partition, PartitionTable};
use storage::{LeaderEpoch, Log, LogConfig, Storage, TopicId, TopicPartition};

use super::entry::{Body, Entry, Topic};
use super::machine::Machine;
use crate::config::{MirrorConfig, MirrorConfigError};
use crate::discovery::{PatternError, TopicFilter};
use crate::store::{MirrorRecord, PartitionRecord, Snapshot, TopicRecord};

/// Logs recovered at once: enough to keep several disks busy, few enough for one spinning disk.
const RECOVERY_THREADS_MAX: usize = 8;

/// Why a node cannot come back as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The stored configuration is not one that this version accepts.
    #[error("mirror {mirror}: its stored configuration cannot be used: {cause}")]
    Config {
        /// The mirror.
        mirror: String,
        /// What is wrong.
        cause: MirrorConfigError,
    },
    /// A stored pattern is not one that this version accepts.
    #[error("mirror {mirror}: {cause}")]
    Pattern {
        /// The mirror.
        mirror: String,
        /// What is wrong.
        cause: PatternError,
    },
}

/// Mirrors and their opened logs.
#[derive(Debug, Default)]
pub struct Restored {
    pub(super) mirrors: Vec<RestoredMirror>,
}

#[derive(Debug)]
pub(super) struct RestoredMirror {
    pub(super) record: MirrorRecord,
    pub(super) config: MirrorConfig,
    pub(super) filter: TopicFilter,
    pub(super) info: Arc<MirrorInfo>,
    topics: Vec<RestoredTopic>,
}

#[derive(Debug)]
struct RestoredTopic {
    record: TopicRecord,
    partitions: Vec<RestoredPartition>,
}

#[derive(Debug)]
struct RestoredPartition {
    id: TopicPartition,
    /// The topic's id here; zero when it cannot be read.
    topic_id: TopicId,
    record: PartitionRecord,
    on_disk: bool,
    opened: Option<(Arc<Partition>, Box<Log>)>,
}

/// Opens every mirrored log that is on disk and puts it into the table.
pub fn restore(
    snapshot: &Snapshot,
    storage: &Arc<Storage>,
    table: &PartitionTable,
    log_config: &LogConfig,
) -> Result<Restored, RestoreError> {
    let on_disk: HashSet<TopicPartition> =
        storage.partitions().into_iter().map(|found| found.partition).collect();
    let mut records: HashMap<TopicPartition, PartitionRecord> = snapshot
        .partitions
        .iter()
        .map(|(topic, partition, record)| {
            (TopicPartition { topic: topic.clone(), partition: *partition }, record.clone())
        })
        .collect();
    let mut mirrors = Vec::new();
    for record in &snapshot.mirrors {
        mirrors.push(restore_mirror(record, snapshot, &on_disk, &mut records)?);
    }
    let known: HashSet<&str> = snapshot.topics.iter().map(|topic| topic.name.as_str()).collect();
    for orphan in on_disk.iter().filter(|found| {
        !known.contains(&*found.topic) && !crate::discovery::is_internal_topic(&found.topic)
    }) {
        tracing::warn!(partition = %orphan, "on disk, but no mirror has it: neither served nor deleted");
    }
    open_logs(&mut mirrors, storage, table, log_config);
    Ok(Restored { mirrors })
}

impl Restored {
    /// Closes the logs again: the node could not start after all.
    pub fn close(self) {
        let topics = self.mirrors.into_iter().flat_map(|mirror| mirror.topics);
        for (partition, log) in
            topics.flat_map(|topic| topic.partitions).filter_map(|partition| partition.opened)
        {
            if let Err(error) = log.close() {
                tracing::warn!(partition = %partition.id, %error, "not closed cleanly");
            }
        }
    }
}

impl RestoredMirror {
    /// The mirror's topics and entries, placed on these cores.
    pub(super) fn into_entries(
        self,
        cores: &[CoreId],
    ) -> (MirrorRecord, MirrorConfig, TopicFilter, Arc<MirrorInfo>, Topics) {
        let mut topics = Topics::default();
        for restored in self.topics {
            let name: Arc<str> = restored.record.name.as_str().into();
            let mut entries = Vec::new();
            for partition in restored.partitions {
                entries.push(topics.entries.len() as u32);
                topics.entries.push(partition.into_entry(cores));
            }
            let record = restored.record;
            // An id that cannot be read is one that nothing at the source equals.
            let id = TopicId::parse(&record.id).unwrap_or(TopicId::ZERO);
            let topic = Topic {
                id,
                source_has_id: record.source_has_id,
                named: record.named,
                entries,
                missing: 0,
                fault: record.fault,
            };
            topics.by_name.insert(name, topic);
        }
        (self.record, self.config, self.filter, self.info, topics)
    }
}

/// Topics and entries of one mirror.
#[derive(Debug, Default)]
pub(super) struct Topics {
    pub(super) by_name: BTreeMap<Arc<str>, Topic>,
    pub(super) entries: Vec<Entry>,
}

impl RestoredPartition {
    fn into_entry(self, cores: &[CoreId]) -> Entry {
        let machine = match &self.record.fault {
            Some(fault) => Machine::stopped(&fault.message),
            None => Machine::new(),
        };
        let body = match self.opened {
            Some((partition, log)) => Body::Held(partition, log),
            // One that could not be opened is tried again when it would be made.
            None => Body::Missing,
        };
        Entry { machine, body, record: self.record, ..Entry::missing(self.id, cores) }
    }
}

fn restore_mirror(
    record: &MirrorRecord,
    snapshot: &Snapshot,
    on_disk: &HashSet<TopicPartition>,
    records: &mut HashMap<TopicPartition, PartitionRecord>,
) -> Result<RestoredMirror, RestoreError> {
    let mirror = record.name.clone();
    let config = MirrorConfig::parse(&record.config)
        .map_err(|cause| RestoreError::Config { mirror: mirror.clone(), cause })?;
    let filter = TopicFilter::new(&config, &record.include, &record.exclude)
        .map_err(|cause| RestoreError::Pattern { mirror: mirror.clone(), cause })?;
    let topics = snapshot.topics.iter().filter(|topic| topic.mirror == mirror).map(|topic| {
        let name: Arc<str> = topic.name.as_str().into();
        let topic_id = TopicId::parse(&topic.id).unwrap_or(TopicId::ZERO);
        let partitions = (0..topic.partitions).map(|partition| {
            let id = TopicPartition { topic: name.clone(), partition };
            RestoredPartition {
                record: records.remove(&id).unwrap_or_default(),
                on_disk: on_disk.contains(&id),
                opened: None,
                topic_id,
                id,
            }
        });
        RestoredTopic { record: topic.clone(), partitions: partitions.collect() }
    });
    Ok(RestoredMirror {
        topics: topics.collect(),
        info: Arc::new(MirrorInfo { name: mirror.into() }),
        record: record.clone(),
        config,
        filter,
    })
}

/// A log to open, and whose it is.
type ToOpen<'a> = (Arc<MirrorInfo>, &'a mut RestoredPartition);

/// Recovery in parallel: each thread takes the next partition until none is left.
fn open_logs(
    mirrors: &mut [RestoredMirror],
    storage: &Arc<Storage>,
    table: &PartitionTable,
    config: &LogConfig,
) {
    let mut waiting: Vec<ToOpen<'_>> = Vec::new();
    for mirror in mirrors {
        for topic in &mut mirror.topics {
            let on_disk = topic.partitions.iter_mut().filter(|partition| partition.on_disk);
            waiting.extend(on_disk.map(|partition| (mirror.info.clone(), partition)));
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.clamp(2, RECOVERY_THREADS_MAX).min(waiting.len().max(1));
    let total = waiting.len();
    let slots: Vec<Mutex<Option<ToOpen<'_>>>> =
        waiting.into_iter().map(|slot| Mutex::new(Some(slot))).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let taken = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some((info, partition)) = taken {
                        open_log(&info, partition, storage, table, config);
                    }
                }
            });
        }
    });
    if total > 0 {
        tracing::info!(partitions = total, "logs opened");
    }
}

fn open_log(
    info: &Arc<MirrorInfo>,
    restored: &mut RestoredPartition,
    storage: &Arc<Storage>,
    table: &PartitionTable,
    config: &LogConfig,
) {
    let (mut log, recovery) = match storage.open_log(&restored.id, config.clone()) {
        Ok(opened) => opened,
        Err(error) => {
            tracing::error!(partition = %restored.id, %error, "cannot open");
            return;
        }
    };
    let found = log.topic_id();
    if !found.is_zero() && found != restored.topic_id {
        // A folder that was copied or put back here. The mirror says so, and how to go on.
        tracing::error!(partition = %restored.id, %found, "on disk is another topic of this name");
        drop(log);
        return;
    }
    if !recovery.clean {
        tracing::info!(
            partition = %restored.id,
            scanned_bytes = recovery.scanned_bytes,
            cut_bytes = recovery.cut_bytes,
            cut_reason = recovery.cut_reason,
            "recovered"
        );
    }
    // An idle log holds no descriptor from the beginning.
    if let Err(error) = log.maintain(super::task::now_ms()) {
        tracing::warn!(partition = %restored.id, %error, "cannot be maintained");
    }
    let partition = Arc::new(Partition::new(
        restored.id.clone(),
        log.topic_id(),
        log.reader().clone(),
        Some(info.clone()),
        LeaderEpoch(restored.record.epoch),
    ));
    table.insert(partition.clone());
    restored.opened = Some((partition, Box::new(log)));
}
