//! One partition of `__consumer_offsets`: appended to, replayed, and kept short.

use std::sync::Arc;
use std::time::Duration;

use dataplane::Partition;
use storage::batch::{BatchBuilder, BatchLimits, records, walk_headers};
use storage::{
    AppendContext, AppendError, LeaderEpoch, Log, LogConfig, OpenError, ReadError, Storage,
    TopicId, TopicPartition,
};

use super::table::OwnRecord;

/// The epoch of our own records. Never bumped: the node is the only leader they ever had.
const LEADER_EPOCH: LeaderEpoch = LeaderEpoch(0);

/// A batch is closed beyond this size, so that a reader of the topic gets it in one ordinary fetch.
const BATCH_BYTES: usize = 512 * 1024;

/// Largest batch: one group's members, at their bound, and room for what is around them.
const BATCH_BYTES_MAX: u32 = 40 * 1024 * 1024;

/// Bytes read at once in a replay.
const REPLAY_BYTES: usize = 1024 * 1024;

/// A log is rewritten once this much was appended since the last time, if less than that lives.
const REWRITE_BYTES_MIN: u64 = 16 * 1024 * 1024;

const _: () = assert!(BATCH_BYTES < BATCH_BYTES_MAX as usize);

/// Why a partition could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log refused.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Why a partition could not be read back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The disk failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record of ours is damaged though its batch is whole.
    #[error("damaged record: {0}")]
    Record(String),
}

/// One partition.
#[derive(Debug)]
pub(super) struct OffsetsPartition {
    log: Log,
    pub(super) shared: Arc<Partition>,
    /// Bytes appended since the log was last rewritten.
    since_rewrite_bytes: u64,
    /// At how many of them to look again whether a rewrite would pay.
    consider_rewrite_at_bytes: u64,
}

/// The settings of the logs: small segments, so that a rewrite gives space back soon.
pub(super) fn log_config() -> LogConfig {
    LogConfig {
        segment_bytes_max: 64 * 1024 * 1024,
        segment_age_max: Duration::from_secs(7 * 24 * 3600),
        index_interval_bytes: 4096,
        index_bytes_max: 1024 * 1024,
        batch_bytes_max: BATCH_BYTES_MAX,
    }
}

impl OffsetsPartition {
    pub(super) fn create(
        storage: &Arc<Storage>,
        id: &TopicPartition,
        topic_id: TopicId,
    ) -> Result<Self, OpenError> {
        let start = storage::Offset(0);
        Ok(Self::new(id, storage.create_log(id, topic_id, start, log_config())?))
    }

    pub(super) fn open(storage: &Arc<Storage>, id: &TopicPartition) -> Result<Self, OpenError> {
        let (log, _) = storage.open_log(id, log_config())?;
        Ok(Self::new(id, log))
    }

    fn new(id: &TopicPartition, log: Log) -> Self {
        let reader = log.reader().clone();
        let since_rewrite_bytes = reader.size_bytes();
        let shared = Partition::new(id.clone(), log.topic_id(), reader, None, LEADER_EPOCH);
        Self {
            log,
            shared: Arc::new(shared),
            since_rewrite_bytes,
            consider_rewrite_at_bytes: REWRITE_BYTES_MIN,
        }
    }

    /// Replaces the log of a partition that failed by the reopened one.
    pub(super) fn reopen(self, storage: &Arc<Storage>) -> Result<Self, OpenError> {
        let id = self.shared.id.clone();
        drop(self.log);
        Self::open(storage, &id)
    }

    /// Hands every record to `take`, oldest first.
    pub(super) fn replay(
        &self,
        mut take: impl FnMut(&[u8], Option<&[u8]>),
    ) -> Result<(), ReplayError> {
        let reader = self.log.reader();
        let limits = BatchLimits { batch_bytes_max: BATCH_BYTES_MAX };
        let mut from = reader.log_start();
        let end = reader.log_end();
        let mut scratch = Vec::new();
        while from < end {
            let Some(slice) = reader.read(from, end, REPLAY_BYTES, true)? else { break };
            let bytes = slice.to_vec();
            let before = from;
            for batch in walk_headers(&bytes, limits) {
                let batch = batch.map_err(|error| ReplayError::Record(error.to_string()))?;
                let found = records(batch.bytes, BATCH_BYTES_MAX as usize, &mut scratch)
                    .map_err(|error| ReplayError::Record(error.to_string()))?;
                for record in found {
                    let record = record.map_err(|error| ReplayError::Record(error.to_string()))?;
                    if let Some(key) = record.key {
                        take(key, record.value);
                    }
                }
                from = batch.info.next_offset();
            }
            if from <= before {
                return Err(ReplayError::Record(format!("no whole batch at offset {before}")));
            }
        }
        Ok(())
    }

    /// Appends the records, in batches of ordinary size. They are not durable yet.
    pub(super) fn append(
        &mut self,
        records: impl IntoIterator<Item = OwnRecord>,
        now_ms: i64,
    ) -> Result<(), WriteError> {
        let mut batch = self.batch();
        for record in records {
            if batch.record_count() > 0 && batch.size_bytes() + record.size_bytes() > BATCH_BYTES {
                self.append_batch(batch)?;
                batch = self.batch();
            }
            batch.push(now_ms, Some(&record.key), record.value.as_deref(), &[]);
        }
        if batch.record_count() > 0 {
            self.append_batch(batch)?;
        }
        Ok(())
    }

    /// Makes what was appended durable.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        Ok(self.log.flush()?)
    }

    /// Whether most of the log is out of date. `live_bytes` is asked only now and then.
    pub(super) fn wants_rewrite(&mut self, live_bytes: impl FnOnce() -> u64) -> bool {
        if self.since_rewrite_bytes < self.consider_rewrite_at_bytes {
            return false;
        }
        let pays_from = live_bytes().saturating_mul(2);
        self.consider_rewrite_at_bytes = pays_from.max(REWRITE_BYTES_MIN);
        self.since_rewrite_bytes >= pays_from
    }

    /// Writes everything that lives anew and lets go of what came before. A crash in between
    /// leaves both, which replay to the same.
    pub(super) fn rewrite(
        &mut self,
        live: impl IntoIterator<Item = OwnRecord>,
        now_ms: i64,
    ) -> Result<(), WriteError> {
        let start = self.log.reader().log_end();
        self.append(live, now_ms)?;
        self.log.flush()?;
        self.log.advance_log_start(start)?;
        self.since_rewrite_bytes = 0;
        Ok(())
    }

    /// Seals by age and gives back what an idle log holds.
    pub(super) fn maintain(&mut self, now_ms: i64) -> Result<(), WriteError> {
        Ok(self.log.maintain(now_ms)?)
    }

    pub(super) fn close(self) -> Result<(), WriteError> {
        Ok(self.log.close()?)
    }

    fn batch(&self) -> BatchBuilder {
        BatchBuilder::new(self.log.reader().log_end(), LEADER_EPOCH)
    }

    fn append_batch(&mut self, batch: BatchBuilder) -> Result<(), WriteError> {
        let bytes = batch.finish();
        self.log.append(&bytes, &AppendContext { leader_epoch_max: LEADER_EPOCH })?;
        self.since_rewrite_bytes += bytes.len() as u64;
        Ok(())
    }
}
