//! Writing v2 batches: for topics whose log is our own, for the synthetic source and for tests.
//! Mirrored data never passes through here: it is stored as it came.

use super::Compression;
use super::compression::compress;
use super::header::ControlMarker;
use super::layout::{self, v2};
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// A header of a record: its key, and its value, which may be null.
pub type HeaderToWrite<'a> = (&'a str, Option<&'a [u8]>);

const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const LOG_APPEND_TIME: i16 = 0x08;

/// Collects records and writes them as one v2 batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    attributes: i16,
    compression: Compression,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: i32,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    record_count: i32,
    /// Offset of the last record, or where the caller put the end, from the base.
    last_offset_delta: i32,
    records: Vec<u8>,
    /// One record at a time: its length comes before it.
    record: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch that starts at `base_offset`: no producer, no transaction, not compressed.
    #[must_use]
    pub fn new(base_offset: Offset, leader_epoch: LeaderEpoch) -> Self {
        Self {
            base_offset,
            leader_epoch,
            attributes: 0,
            compression: Compression::None,
            producer_id: ProducerId(-1),
            producer_epoch: ProducerEpoch(-1),
            base_sequence: -1,
            base_timestamp: None,
            max_timestamp: -1,
            record_count: 0,
            last_offset_delta: 0,
            records: Vec::new(),
            record: Vec::new(),
        }
    }

    /// A whole control batch that ends a producer's transaction (KIP-98): a marker of version 0
    /// whose value names the coordinator's epoch.
    #[must_use]
    pub fn end_of_transaction(
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
        (producer_id, producer_epoch): (ProducerId, ProducerEpoch),
        marker: ControlMarker,
        (timestamp_ms, coordinator_epoch): (i64, i32),
    ) -> Vec<u8> {
        let kind = match marker {
            ControlMarker::Abort => 0,
            ControlMarker::Commit => 1,
            ControlMarker::Other(number) => number,
        };
        let mut key = [0; 4];
        key[2..].copy_from_slice(&i16::to_be_bytes(kind));
        let mut value = [0; 6];
        value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
        let mut batch =
            Self::new(base_offset, leader_epoch).producer(producer_id, producer_epoch, -1);
        batch.attributes |= TRANSACTIONAL | CONTROL;
        batch.push(timestamp_ms, Some(&key), Some(&value), &[]);
        batch.finish()
    }

    /// Names the idempotent producer.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Makes the batch part of its producer's transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.attributes |= TRANSACTIONAL;
        self
    }

    /// Compresses the records.
    #[must_use]
    pub fn compression(mut self, codec: Compression) -> Self {
        self.compression = codec;
        self
    }

    /// Says that the batch's largest timestamp is every record's: the broker's append time.
    #[must_use]
    pub fn log_append_time(mut self) -> Self {
        self.attributes |= LOG_APPEND_TIME;
        self
    }

    /// Adds a record at the next offset. The first one's timestamp becomes the base timestamp.
    pub fn push(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderToWrite<'_>],
    ) {
        let offset_delta =
            if self.record_count == 0 { 0 } else { self.last_offset_delta.saturating_add(1) };
        self.push_at(offset_delta, timestamp_ms, key, value, headers);
    }

    /// Adds a record at an offset of the caller's choice, as a compacted batch has them.
    pub fn push_at(
        &mut self,
        offset_delta: i32,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderToWrite<'_>],
    ) {
        let base_timestamp = *self.base_timestamp.get_or_insert(timestamp_ms);
        self.record.clear();
        self.record.push(0);
        layout::put_varlong(&mut self.record, timestamp_ms.wrapping_sub(base_timestamp));
        layout::put_varlong(&mut self.record, i64::from(offset_delta));
        put_nullable(&mut self.record, key);
        put_nullable(&mut self.record, value);
        layout::put_varlong(&mut self.record, headers.len() as i64);
        for (key, value) in headers {
            put_nullable(&mut self.record, Some(key.as_bytes()));
            put_nullable(&mut self.record, *value);
        }
        layout::put_varlong(&mut self.records, self.record.len() as i64);
        self.records.extend_from_slice(&self.record);
        self.max_timestamp = self.max_timestamp.max(timestamp_ms);
        self.last_offset_delta = self.last_offset_delta.max(offset_delta);
        self.record_count = self.record_count.saturating_add(1);
    }

    /// Moves the end of the batch beyond its last record, as compaction leaves it.
    pub fn extend_to(&mut self, last_offset_delta: i32) {
        self.last_offset_delta = self.last_offset_delta.max(last_offset_delta);
    }

    /// Records so far.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Bytes that [`BatchBuilder::finish`] would write, before compression.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        v2::HEADER_BYTES + self.records.len()
    }

    /// Writes the batch.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let mut batch = vec![0; v2::HEADER_BYTES];
        compress(self.compression, &self.records, &mut batch);
        let attributes = self.attributes | self.compression.number();
        let length = (batch.len() - layout::OVERHEAD_BYTES) as i32;
        let mut put = |at: usize, field: &[u8]| batch[at..at + field.len()].copy_from_slice(field);
        put(layout::OFFSET_AT, &self.base_offset.0.to_be_bytes());
        put(layout::LENGTH_AT, &length.to_be_bytes());
        put(v2::LEADER_EPOCH_AT, &self.leader_epoch.0.to_be_bytes());
        put(layout::MAGIC_AT, &[2]);
        put(v2::ATTRIBUTES_AT, &attributes.to_be_bytes());
        put(v2::LAST_OFFSET_DELTA_AT, &self.last_offset_delta.to_be_bytes());
        put(v2::BASE_TIMESTAMP_AT, &self.base_timestamp.unwrap_or(-1).to_be_bytes());
        put(v2::MAX_TIMESTAMP_AT, &self.max_timestamp.to_be_bytes());
        put(v2::PRODUCER_ID_AT, &self.producer_id.0.to_be_bytes());
        put(v2::PRODUCER_EPOCH_AT, &self.producer_epoch.0.to_be_bytes());
        put(v2::BASE_SEQUENCE_AT, &self.base_sequence.to_be_bytes());
        put(v2::RECORD_COUNT_AT, &self.record_count.to_be_bytes());
        let crc = crc32c::crc32c(&batch[v2::ATTRIBUTES_AT..]);
        batch[v2::CRC_AT..v2::CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
        batch
    }
}

fn put_nullable(out: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else {
        layout::put_varlong(out, -1);
        return;
    };
    layout::put_varlong(out, value.len() as i64);
    out.extend_from_slice(value);
}
