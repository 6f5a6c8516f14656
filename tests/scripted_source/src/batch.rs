//! Bytes of batches, made by hand so that a test decides every field.

use std::io::Write as _;

use bytes::{BufMut, BytesMut};

/// A record batch of format 2, uncompressed.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Offset of its first record.
    pub base_offset: i64,
    /// Leader epoch in its header.
    pub leader_epoch: i32,
    /// Timestamp of each record, in milliseconds; the first is the base.
    pub timestamps: Vec<i64>,
    /// Value of each record.
    pub values: Vec<Vec<u8>>,
    /// Producer id, epoch and first sequence; -1 each for none.
    pub producer: (i64, i16, i32),
    /// Whether it belongs to a transaction.
    pub transactional: bool,
    /// Makes it a control batch, whose one record ends a transaction.
    pub marker: Option<Marker>,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Aborted.
    Abort,
    /// Committed.
    Commit,
}

/// 2023-11-14: long past, and not so near to zero that a sign could hide.
const TIMESTAMP_MS: i64 = 1_700_000_000_000;

impl Batch {
    /// A plain batch with one record for each value.
    pub fn new<V: Into<Vec<u8>>>(
        base_offset: i64,
        leader_epoch: i32,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let values: Vec<Vec<u8>> = values.into_iter().map(Into::into).collect();
        Self {
            base_offset,
            leader_epoch,
            timestamps: vec![TIMESTAMP_MS; values.len()],
            values,
            producer: (-1, -1, -1),
            transactional: false,
            marker: None,
        }
    }

    /// A batch of `records` values of `value_bytes` each, told apart by their offsets.
    #[must_use]
    pub fn filled(base_offset: i64, leader_epoch: i32, records: i64, value_bytes: usize) -> Self {
        let value = |offset: i64| {
            let mut value = format!("offset {offset} ").into_bytes();
            value.resize(value_bytes, b'.');
            value
        };
        Self::new(base_offset, leader_epoch, (base_offset..base_offset + records).map(value))
    }

    /// The control batch that ends a transaction.
    #[must_use]
    pub fn end_of_transaction(
        base_offset: i64,
        leader_epoch: i32,
        producer: (i64, i16),
        marker: Marker,
    ) -> Self {
        let value = [0u8, 0, 0, 0, 0, 0];
        Self {
            producer: (producer.0, producer.1, -1),
            transactional: true,
            marker: Some(marker),
            ..Self::new(base_offset, leader_epoch, [value])
        }
    }

    /// The offset behind its last record.
    #[must_use]
    pub fn end_offset(&self) -> i64 {
        self.base_offset + self.values.len() as i64
    }

    /// Its bytes, with the right checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = BytesMut::new();
        let attributes = i16::from(self.transactional) << 4 | i16::from(self.marker.is_some()) << 5;
        body.put_i16(attributes);
        body.put_i32(self.values.len() as i32 - 1);
        let first = self.timestamps.first().copied().unwrap_or(-1);
        body.put_i64(first);
        body.put_i64(self.timestamps.iter().copied().max().unwrap_or(-1));
        body.put_i64(self.producer.0);
        body.put_i16(self.producer.1);
        body.put_i32(self.producer.2);
        body.put_i32(self.values.len() as i32);
        for (index, value) in self.values.iter().enumerate() {
            let record = self.record(index as i64, self.timestamps[index] - first, value);
            put_varint(record.len() as i64, &mut body);
            body.put_slice(&record);
        }
        let mut batch = BytesMut::new();
        batch.put_i64(self.base_offset);
        batch.put_i32(4 + 1 + 4 + body.len() as i32);
        batch.put_i32(self.leader_epoch);
        batch.put_i8(2);
        batch.put_u32(crc32c::crc32c(&body));
        batch.put_slice(&body);
        batch.to_vec()
    }

    fn record(&self, offset_delta: i64, timestamp_delta: i64, value: &[u8]) -> BytesMut {
        let mut record = BytesMut::new();
        record.put_i8(0);
        put_varint(timestamp_delta, &mut record);
        put_varint(offset_delta, &mut record);
        match self.marker {
            Some(marker) => {
                put_varint(4, &mut record);
                record.put_i16(0);
                record.put_i16(i16::from(marker == Marker::Commit));
            }
            None => put_varint(-1, &mut record),
        }
        put_varint(value.len() as i64, &mut record);
        record.put_slice(value);
        put_varint(0, &mut record);
        record
    }
}

/// The same bytes with one bit of the last byte turned, so that the checksum is wrong.
///
/// # Panics
/// For no bytes.
#[must_use]
pub fn damaged(mut bytes: Vec<u8>) -> Vec<u8> {
    *bytes.last_mut().expect("a batch has bytes") ^= 1;
    bytes
}

/// A message set of format 0 or 1 (before Kafka 0.11): single messages, or one that wraps them all
/// with gzip.
#[must_use]
pub fn legacy_message_set(magic: i8, base_offset: i64, values: &[&[u8]], gzip: bool) -> Vec<u8> {
    let mut plain = BytesMut::new();
    for (index, value) in values.iter().enumerate() {
        // Format 1 counts wrapped offsets from zero, format 0 does not.
        let base = if gzip && magic == 1 { 0 } else { base_offset };
        put_legacy_message(magic, base + index as i64, 0, value, &mut plain);
    }
    if !gzip {
        return plain.to_vec();
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&plain).expect("memory takes bytes");
    let wrapped = encoder.finish().expect("memory takes bytes");
    let mut set = BytesMut::new();
    put_legacy_message(magic, base_offset + values.len() as i64 - 1, 1, &wrapped, &mut set);
    set.to_vec()
}

fn put_legacy_message(magic: i8, offset: i64, attributes: i8, value: &[u8], out: &mut BytesMut) {
    let mut body = BytesMut::new();
    body.put_i8(magic);
    body.put_i8(attributes);
    if magic == 1 {
        body.put_i64(TIMESTAMP_MS);
    }
    body.put_i32(-1);
    body.put_i32(value.len() as i32);
    body.put_slice(value);
    out.put_i64(offset);
    out.put_i32(4 + body.len() as i32);
    out.put_u32(crc32fast::hash(&body));
    out.put_slice(&body);
}

fn put_varint(value: i64, out: &mut BytesMut) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::records::RecordBatchDecoder;

    use super::*;

    #[test]
    fn kafkas_decoder_reads_what_the_builder_makes() {
        let mut batch = Batch::new(100, 7, ["one", "two"]);
        batch.timestamps[1] += 5_000_000_000;
        let mut bytes = Bytes::from(batch.encode());
        let records = RecordBatchDecoder::decode(&mut bytes).unwrap().records;
        let seen: Vec<_> = records
            .iter()
            .map(|record| (record.offset, record.partition_leader_epoch, record.timestamp))
            .collect();
        assert_eq!(seen, [(100, 7, TIMESTAMP_MS), (101, 7, TIMESTAMP_MS + 5_000_000_000)]);
        assert_eq!(records[1].value.as_deref(), Some(&b"two"[..]));
        let mut wrong = Bytes::from(damaged(batch.encode()));
        assert!(RecordBatchDecoder::decode(&mut wrong).is_err());
    }
}
