//! One partition of a fetch: what is asked of it, and a look at what it can answer.

use std::sync::Arc;

use storage::{LeaderEpoch, Offset, ReadError, ReadSlice};

use super::epochs;
use super::errors;
use crate::partition::{Partition, PartitionTable};
use crate::wire::{AnswerPartition, FetchPartition, IsolationLevel, TopicKey};

/// Bytes at the front of a batch that tell its length: base offset and length.
const BATCH_FRONT_BYTES: usize = 12;

/// A partition to fetch, of a request or kept in a session.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The topic as the client names it.
    pub(super) key: TopicKey,
    /// What is asked.
    pub(super) fetch: FetchPartition,
    /// Record bytes there were at the last look.
    pub(super) ready_bytes: usize,
    /// The topic's name once known. A topic id keeps the name it had, so that a topic recreated
    /// under that name is told apart from one that never was.
    name: Option<Arc<str>>,
    partition: Option<Arc<Partition>>,
    /// Log end and last stable offset at the last look.
    seen: (Offset, Offset),
}

/// What one look at a partition gave.
#[derive(Debug)]
pub(super) struct Look {
    /// The fields to answer with.
    pub(super) answer: AnswerPartition,
    /// The epoch that fences the client, which follows an older one.
    pub(super) fenced_by: Option<LeaderEpoch>,
    /// The records to answer with.
    pub(super) records: Option<ReadSlice>,
    /// Its place in the answer.
    pub(super) rank: Rank,
    /// Whether more records are there than a look can give: it ended with its segment.
    pub(super) behind: bool,
}

/// The order of an answer: Kafka lists what it does not know behind the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The partition is here.
    Known,
    /// Nothing has this topic id.
    UnknownId,
    /// There is no such topic, or it has no such partition.
    UnknownPartition,
}

impl Look {
    /// A look that gave these fields and no records.
    fn of(answer: AnswerPartition) -> Self {
        Self { answer, fenced_by: None, records: None, rank: Rank::Known, behind: false }
    }

    /// Whether a client must hear of it at once: it waits for nothing that could still come.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_special() || self.behind
    }

    /// Whether it is an error or a divergence.
    pub(super) fn is_special(&self) -> bool {
        self.answer.error_code != errors::NONE || self.answer.diverging.is_some()
    }
}

/// Bounds of one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookLimits {
    /// What the reader may see.
    pub(super) isolation: IsolationLevel,
    /// Record bytes that the client waits for.
    pub(super) bytes_min: usize,
    /// Room left in the whole answer.
    pub(super) bytes_max: usize,
    /// Whether the first batch is due even when it is larger than the limits.
    pub(super) whole_first_batch: bool,
}

impl Target {
    /// A partition as a request names it, not looked at yet.
    pub(super) fn new(key: TopicKey, fetch: FetchPartition) -> Self {
        Self {
            key,
            fetch,
            ready_bytes: 0,
            name: None,
            partition: None,
            seen: (Offset(-1), Offset(-1)),
        }
    }

    /// Reads what there is for the client.
    pub(super) fn look(&mut self, table: &PartitionTable, limits: LookLimits) -> Look {
        self.ready_bytes = 0;
        let Some(partition) = self.resolve(table) else {
            let named = self.name.is_some() || matches!(self.key, TopicKey::Name(_));
            let (code, rank) = if named {
                (errors::UNKNOWN_TOPIC_OR_PARTITION, Rank::UnknownPartition)
            } else {
                (errors::UNKNOWN_TOPIC_ID, Rank::UnknownId)
            };
            let mut look = failed(self.fetch.partition, code);
            look.answer.aborted = Some(Vec::new());
            look.rank = rank;
            return look;
        };
        self.seen = ends(&partition);
        match read(&partition, &self.key, &self.fetch, limits) {
            Ok(look) => {
                self.ready_bytes = look.answer.records_bytes;
                look
            }
            Err(code) => {
                let mut look = failed(self.fetch.partition, code);
                let fenced = code == errors::FENCED_LEADER_EPOCH;
                look.fenced_by = fenced.then(|| partition.advertised_epoch());
                look
            }
        }
    }

    /// Whether something happened to the partition since the last look.
    pub(super) fn changed_since_look(&self) -> bool {
        self.partition.as_ref().is_some_and(|found| found.is_deleted() || ends(found) != self.seen)
    }

    /// The partition, once a look has found it.
    pub(super) fn partition(&self) -> Option<&Arc<Partition>> {
        self.partition.as_ref()
    }

    fn resolve(&mut self, table: &PartitionTable) -> Option<Arc<Partition>> {
        if let Some(known) = &self.partition
            && !known.is_deleted()
        {
            return Some(known.clone());
        }
        if self.name.is_none() {
            self.name = match &self.key {
                TopicKey::Name(name) => Some(name.clone()),
                TopicKey::Id(id) => table.topic_name(*id),
            };
        }
        self.partition = table.by_name(self.name.as_ref()?, self.fetch.partition);
        self.partition.clone()
    }
}

/// What a publish changes. Both are needed: they are not published in one step, and a look between
/// the steps sees the new end with the old stable offset.
fn ends(partition: &Partition) -> (Offset, Offset) {
    (partition.log.log_end(), partition.log.last_stable_offset())
}

/// An answer without records for a partition that cannot be read.
fn failed(partition: i32, error_code: i16) -> Look {
    let answer = AnswerPartition {
        partition,
        error_code,
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        aborted: None,
        records_bytes: 0,
        diverging: None,
        current_leader: None,
    };
    Look::of(answer)
}

/// Reads as Kafka does, down to where its aborted list is null and where it is empty.
fn read(
    partition: &Partition,
    key: &TopicKey,
    fetch: &FetchPartition,
    limits: LookLimits,
) -> Result<Look, i16> {
    if matches!(key, TopicKey::Id(id) if *id != partition.topic_id) {
        return Err(errors::INCONSISTENT_TOPIC_ID);
    }
    epochs::check_current(partition, fetch.current_leader_epoch)?;
    let log = &partition.log;
    // The end is read last: what is below it was published, and its transactions with it.
    let log_start = log.log_start();
    let last_stable = log.last_stable_offset();
    let high_watermark = log.log_end();
    let committed = limits.isolation == IsolationLevel::ReadCommitted;
    let answer = AnswerPartition {
        partition: fetch.partition,
        error_code: errors::NONE,
        high_watermark: high_watermark.0,
        last_stable_offset: last_stable.0,
        log_start_offset: log_start.0,
        aborted: committed.then(Vec::new),
        records_bytes: 0,
        diverging: None,
        current_leader: None,
    };
    let mut look = Look::of(answer);
    if fetch.last_fetched_epoch >= 0 {
        look.answer.diverging = divergence(partition, fetch)?;
        if look.answer.diverging.is_some() {
            look.answer.aborted = None;
            return Ok(look);
        }
    }
    let from = Offset(fetch.fetch_offset);
    if from < log_start || from > high_watermark {
        return Err(errors::OFFSET_OUT_OF_RANGE);
    }
    let until = if committed { last_stable } else { high_watermark };
    let partition_max = usize::try_from(fetch.max_bytes).unwrap_or(0);
    let bytes_max = partition_max.min(limits.bytes_max);
    if from >= until || (bytes_max == 0 && !limits.whole_first_batch) {
        return Ok(look);
    }
    let read = log.read(from, until, bytes_max, limits.whole_first_batch);
    let Some(records) = read.map_err(|error| read_code(partition, &error))? else {
        return Ok(look);
    };
    partition.read_worked();
    if is_first_batch_cut(&records) {
        look.answer.aborted = None;
        return Ok(look);
    }
    let bytes = records.len_bytes();
    look.answer.records_bytes = bytes;
    look.records = Some(records);
    if committed || bytes < limits.bytes_min.min(bytes_max) {
        let upper =
            log.upper_bound_offset(from, bytes).map_err(|error| read_code(partition, &error))?;
        look.behind = bytes < bytes_max && upper < until;
        if committed {
            // Exactly the range that the records may cover.
            let aborted = log.aborted_transactions(from, upper);
            look.answer.aborted = Some(aborted.map_err(|error| read_code(partition, &error))?);
        }
    }
    Ok(look)
}

/// Where the reader's history leaves ours, by the epoch of its last batch (KIP-595).
fn divergence(partition: &Partition, fetch: &FetchPartition) -> Result<Option<(i32, i64)>, i16> {
    let end = epochs::end_of_epoch(partition, fetch.last_fetched_epoch);
    let (epoch, end_offset) = end.ok_or(errors::OFFSET_OUT_OF_RANGE)?;
    if fetch.fetch_offset < partition.log.log_start().0 {
        return Err(errors::OFFSET_OUT_OF_RANGE);
    }
    let diverges = epoch < fetch.last_fetched_epoch || end_offset < fetch.fetch_offset;
    Ok(diverges.then_some((epoch, end_offset)))
}

/// Whether not even the first batch is whole: Kafka then answers none instead of a part.
fn is_first_batch_cut(records: &ReadSlice) -> bool {
    let front = records.clone().split_to(BATCH_FRONT_BYTES).to_vec();
    let Some(length) = front.get(8..BATCH_FRONT_BYTES).and_then(<[u8]>::first_chunk::<4>) else {
        return true;
    };
    let batch_bytes = i64::from(i32::from_be_bytes(*length)) + BATCH_FRONT_BYTES as i64;
    i64::try_from(records.len_bytes()).is_ok_and(|there| there < batch_bytes)
}

fn read_code(partition: &Partition, error: &ReadError) -> i16 {
    match error {
        ReadError::OutOfRange { .. } => errors::OFFSET_OUT_OF_RANGE,
        ReadError::Io { .. } => {
            partition.read_failed(error);
            errors::STORAGE
        }
    }
}
