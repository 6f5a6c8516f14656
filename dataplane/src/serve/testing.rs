//! Logs with known batches, and answers read by another codec, for the tests of this module.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{FetchResponse, ResponseHeader};
use kafka_protocol::protocol::Decodable;
use storage::{
    AppendContext, LeaderEpoch, Log, LogConfig, Offset, Storage, StorageConfig, TopicId,
    TopicPartition,
};

use super::fetch::{FetchEnvironment, FetchReady};
use super::session::SessionCache;
use crate::handle::Advertised;
use crate::partition::{MirrorInfo, Partition, PartitionTable};
use crate::ring::SendPart;
use crate::wire::{FetchPartition, FetchRequest, FetchTopic, IsolationLevel, TopicKey};

/// A batch to append.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) base_offset: i64,
    pub(super) epoch: i32,
    pub(super) records: i32,
    pub(super) value_bytes: usize,
    pub(super) timestamp: i64,
    pub(super) producer_id: i64,
    pub(super) transactional: bool,
    /// Ends the producer's transaction: true for a commit.
    pub(super) marker: Option<bool>,
}

impl Batch {
    /// One record of `value_bytes`.
    pub(super) fn at(base_offset: i64, value_bytes: usize) -> Self {
        Self {
            base_offset,
            epoch: 0,
            records: 1,
            value_bytes,
            timestamp: 1_000 + base_offset,
            producer_id: -1,
            transactional: false,
            marker: None,
        }
    }

    /// One record of a transaction.
    pub(super) fn of_transaction(base_offset: i64, producer_id: i64) -> Self {
        Self { producer_id, transactional: true, ..Self::at(base_offset, 10) }
    }

    /// The end of a transaction.
    pub(super) fn end_of_transaction(base_offset: i64, producer_id: i64, commit: bool) -> Self {
        Self { marker: Some(commit), ..Self::of_transaction(base_offset, producer_id) }
    }

    /// The bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut records = BytesMut::new();
        for delta in 0..self.records {
            let mut record = BytesMut::new();
            record.put_u8(0);
            put_varint(&mut record, 0);
            put_varint(&mut record, i64::from(delta));
            match self.marker {
                Some(commit) => {
                    put_varint(&mut record, 4);
                    record.put_i16(0);
                    record.put_i16(i16::from(commit));
                    put_varint(&mut record, 6);
                    record.put_i16(0);
                    record.put_i32(0);
                }
                None => {
                    put_varint(&mut record, -1);
                    put_varint(&mut record, self.value_bytes as i64);
                    record.put_bytes(self.base_offset as u8, self.value_bytes);
                }
            }
            put_varint(&mut record, 0);
            put_varint(&mut records, record.len() as i64);
            records.extend_from_slice(&record);
        }
        let mut checked = BytesMut::new();
        let attributes = i16::from(self.transactional) << 4 | i16::from(self.marker.is_some()) << 5;
        checked.put_i16(attributes);
        checked.put_i32(self.records - 1);
        checked.put_i64(self.timestamp);
        checked.put_i64(self.timestamp);
        checked.put_i64(self.producer_id);
        checked.put_i16(if self.producer_id >= 0 { 0 } else { -1 });
        checked.put_i32(if self.marker.is_none() && self.producer_id >= 0 { 0 } else { -1 });
        checked.put_i32(self.records);
        checked.extend_from_slice(&records);
        let mut batch = BytesMut::new();
        batch.put_i64(self.base_offset);
        batch.put_i32(4 + 1 + 4 + checked.len() as i32);
        batch.put_i32(self.epoch);
        batch.put_i8(2);
        batch.put_u32(crc32c::crc32c(&checked));
        batch.extend_from_slice(&checked);
        batch.to_vec()
    }
}

fn put_varint(out: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

/// A storage in a temporary directory, with the partitions that clients see.
pub(super) struct Node {
    pub(super) table: Arc<PartitionTable>,
    pub(super) storage: Arc<Storage>,
    pub(super) sessions: SessionCache,
    pub(super) now: Instant,
    advertised: Advertised,
    _directory: tempfile::TempDir,
}

impl Node {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let storage = Storage::open(StorageConfig {
            directories: vec![directory.path().to_owned()],
            descriptors_max: 1000,
            mappings_max: 1000,
            recycle_bytes_max: 0,
        })
        .expect("a storage");
        let (table, sessions) = (Arc::new(PartitionTable::default()), SessionCache::new(10));
        let (now, advertised) = (Instant::now(), Advertised::default());
        Self { table, storage, sessions, now, advertised, _directory: directory }
    }

    /// A partition of a mirrored topic whose id is made from its name.
    pub(super) fn add(&self, topic: &str, partition: i32) -> Local {
        self.add_with_id(topic, partition, topic_id(topic))
    }

    pub(super) fn add_with_id(&self, topic: &str, partition: i32, topic_id: TopicId) -> Local {
        self.create(log_config(), topic, partition, topic_id)
    }

    /// The same with its own settings.
    pub(super) fn add_with(&self, config: LogConfig, topic: &str, partition: i32) -> Local {
        self.create(config, topic, partition, topic_id(topic))
    }

    /// Replaces a partition by one that serves another opening of its log.
    pub(super) fn serve(&self, log: &Log, partition: &Partition) {
        self.table.insert(Arc::new(Partition::new(
            partition.id.clone(),
            partition.topic_id,
            log.reader().clone(),
            partition.mirror.clone(),
            LeaderEpoch(0),
        )));
    }

    fn create(&self, config: LogConfig, topic: &str, partition: i32, topic_id: TopicId) -> Local {
        let id = TopicPartition { topic: topic.into(), partition };
        let log = self.storage.create_log(&id, topic_id, Offset(0), config).expect("a log");
        let mirror = Arc::new(MirrorInfo { name: "west".into() });
        let reader = log.reader().clone();
        let partition =
            Arc::new(Partition::new(id, topic_id, reader, Some(mirror), LeaderEpoch(0)));
        self.table.insert(partition.clone());
        Local { log, partition }
    }

    pub(super) fn environment(&self) -> FetchEnvironment<'_> {
        FetchEnvironment {
            advertised: &self.advertised,
            reached: "127.0.0.1:9092".parse().expect("an address"),
            table: &self.table,
            sessions: &self.sessions,
            bytes_max: 50 << 20,
            now: self.now,
        }
    }
}

/// A partition with its writer.
pub(super) struct Local {
    pub(super) log: Log,
    pub(super) partition: Arc<Partition>,
}

impl Local {
    /// Appends batches and returns their bytes.
    pub(super) fn append(&mut self, batches: &[Batch]) -> Vec<u8> {
        append(&mut self.log, batches)
    }
}

/// Appends batches and returns their bytes.
pub(super) fn append(log: &mut Log, batches: &[Batch]) -> Vec<u8> {
    let bytes: Vec<u8> = batches.iter().flat_map(Batch::encode).collect();
    let context = AppendContext { leader_epoch_max: LeaderEpoch(i32::MAX) };
    log.append(&bytes, &context).expect("good batches");
    bytes
}

fn log_config() -> LogConfig {
    LogConfig {
        segment_bytes_max: 1 << 20,
        segment_age_max: Duration::from_secs(3600),
        index_interval_bytes: 4096,
        index_bytes_max: 1 << 20,
        batch_bytes_max: 1 << 20,
    }
}

/// An id for a topic's name.
pub(super) fn topic_id(topic: &str) -> TopicId {
    let mut id = [7; 16];
    for (place, byte) in id.iter_mut().zip(topic.bytes()) {
        *place = byte;
    }
    TopicId(id)
}

/// A partition fetched from `offset`, with no limit and no epochs.
pub(super) fn partition_from(partition: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        partition,
        current_leader_epoch: -1,
        fetch_offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: i32::MAX,
    }
}

/// A sessionless request that waits a minute for one byte.
pub(super) fn request(partitions: &[(&str, FetchPartition)]) -> FetchRequest {
    let topics = partitions
        .iter()
        .map(|(topic, partition)| FetchTopic {
            topic: TopicKey::Name((*topic).into()),
            partitions: vec![*partition],
        })
        .collect();
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 60_000,
        min_bytes: 1,
        max_bytes: i32::MAX,
        isolation: IsolationLevel::ReadUncommitted,
        session_id: 0,
        session_epoch: -1,
        topics,
        forgotten: Vec::new(),
        rack_id: String::new(),
    }
}

/// The answer's frame without its length.
pub(super) fn frame(ready: &FetchReady) -> Bytes {
    let mut all = Vec::new();
    for part in &ready.parts {
        match part {
            SendPart::Bytes(bytes) => all.extend_from_slice(bytes),
            SendPart::Records(records) => all.extend_from_slice(&records.to_vec()),
        }
    }
    let length = u32::from_be_bytes(all[..4].try_into().expect("four bytes"));
    assert_eq!(length as usize, all.len() - 4, "the frame's length");
    Bytes::from(all).slice(4..)
}

/// The answer as another codec reads it.
pub(super) fn decode(ready: &FetchReady, version: i16) -> FetchResponse {
    decode_frame(frame(ready), version)
}

pub(super) fn decode_frame(mut frame: Bytes, version: i16) -> FetchResponse {
    let header_version = if version >= 12 { 1 } else { 0 };
    ResponseHeader::decode(&mut frame, header_version).expect("a header");
    let response = FetchResponse::decode(&mut frame, version).expect("an answer");
    assert!(frame.is_empty(), "nothing follows the answer");
    response
}
