//! Batches made from their position alone: the same partition and offset give the same bytes.

/// Shape of what a synthetic topic holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Topic name.
    pub topic: String,
    /// Partitions.
    pub partitions: u32,
    /// Records in each partition.
    pub records: u64,
    /// Bytes of a record's value.
    pub value_bytes: usize,
    /// Records in a batch.
    pub batch_records: u32,
}

impl Workload {
    /// A workload of about `size_bytes` over all partitions, in 1 KiB records and 64-record batches.
    #[must_use]
    pub fn of_size(topic: &str, size_bytes: u64, partitions: u32) -> Self {
        let (value_bytes, batch_records) = (1024_u64, 64_u64);
        let batches =
            (size_bytes / u64::from(partitions.max(1)) / (value_bytes * batch_records)).max(1);
        Self {
            topic: topic.to_owned(),
            partitions: partitions.max(1),
            records: batches * batch_records,
            value_bytes: 1024,
            batch_records: 64,
        }
    }
}

/// Makes the batches of one workload.
#[derive(Clone, Debug)]
pub struct Generator {
    workload: Workload,
    batch_bytes: usize,
}

/// Bytes of a v2 batch header.
const HEADER_BYTES: usize = 61;
/// Where the checksummed part of a batch begins.
const CHECKED_FROM: usize = 21;
/// Milliseconds of the first record: an arbitrary, fixed day, so that equal positions give equal bytes.
const FIRST_TIMESTAMP_MS: i64 = 1_750_000_000_000;

impl Generator {
    /// A generator; all its batches have one length.
    #[must_use]
    pub fn new(workload: Workload) -> Self {
        let mut generator = Self { workload, batch_bytes: 0 };
        let mut sample = Vec::new();
        generator.batch(0, 0, &mut sample);
        generator.batch_bytes = sample.len();
        generator
    }

    /// What it makes.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Length of every batch in bytes.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// End offset of every partition.
    #[must_use]
    pub fn end_offset(&self) -> i64 {
        i64::try_from(self.workload.records).unwrap_or(i64::MAX)
    }

    /// Bytes of all partitions' batches.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let batches = self.workload.records / u64::from(self.workload.batch_records);
        batches * self.batch_bytes as u64 * u64::from(self.workload.partitions)
    }

    /// Appends the batch that holds `offset` of `partition` to `out`; returns its first offset.
    pub fn batch(&self, partition: u32, offset: i64, out: &mut Vec<u8>) -> i64 {
        let records = i64::from(self.workload.batch_records);
        let base_offset = offset.max(0) / records * records;
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let mut noise = Noise::at(partition, base_offset);
        for delta in 0..self.workload.batch_records {
            self.record(delta, &mut noise, out);
        }
        self.header(base_offset, &mut out[start..]);
        base_offset
    }

    fn record(&self, delta: u32, noise: &mut Noise, out: &mut Vec<u8>) {
        let value_bytes = self.workload.value_bytes;
        // Attributes, timestamp delta 0, offset delta, null key, value, no headers.
        let body =
            2 + varint_len(i64::from(delta)) + 1 + varint_len(value_bytes as i64) + value_bytes + 1;
        varint(body as i64, out);
        out.extend_from_slice(&[0, 0]);
        varint(i64::from(delta), out);
        varint(-1, out);
        varint(value_bytes as i64, out);
        let end = out.len() + value_bytes;
        while out.len() < end {
            let bytes = noise.next().to_le_bytes();
            let wanted = (end - out.len()).min(8);
            out.extend_from_slice(&bytes[..wanted]);
        }
        out.push(0);
    }

    fn header(&self, base_offset: i64, batch: &mut [u8]) {
        let count = i32::try_from(self.workload.batch_records).unwrap_or(i32::MAX);
        let timestamp = FIRST_TIMESTAMP_MS + base_offset;
        batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
        let length = i32::try_from(batch.len() - 12).unwrap_or(i32::MAX);
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[16] = 2;
        batch[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        batch[27..35].copy_from_slice(&timestamp.to_be_bytes());
        batch[35..43].copy_from_slice(&timestamp.to_be_bytes());
        batch[43..51].copy_from_slice(&(-1_i64).to_be_bytes());
        batch[51..53].copy_from_slice(&(-1_i16).to_be_bytes());
        batch[53..57].copy_from_slice(&(-1_i32).to_be_bytes());
        batch[57..61].copy_from_slice(&count.to_be_bytes());
        let crc = crc32c::crc32c(&batch[CHECKED_FROM..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
    }
}

/// xorshift64*, seeded by position: fast, and different everywhere.
struct Noise(u64);

impl Noise {
    fn at(partition: u32, base_offset: i64) -> Self {
        let seed =
            (u64::from(partition) << 48) ^ base_offset.cast_unsigned() ^ 0x9e37_79b9_7f4a_7c15;
        Self(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

fn varint(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest as u8 & 0x7f) | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn varint_len(value: i64) -> usize {
    let zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    (64 - (zigzag | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_positions_give_equal_bytes_and_others_differ() {
        let generator = Generator::new(Workload::of_size("t", 1 << 20, 2));
        let (mut first, mut again, mut other, mut next) = (vec![], vec![], vec![], vec![]);
        assert_eq!(generator.batch(0, 70, &mut first), 64);
        assert_eq!(generator.batch(0, 64, &mut again), 64);
        generator.batch(1, 64, &mut other);
        generator.batch(0, 128, &mut next);
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert_ne!(first[61..], next[61..]);
        assert_eq!(first.len(), generator.batch_bytes());
    }

    #[test]
    fn a_batch_decodes_with_an_independent_codec() {
        let generator = Generator::new(Workload::of_size("t", 1 << 20, 1));
        let mut batch = Vec::new();
        generator.batch(0, 64, &mut batch);
        let mut bytes = bytes::Bytes::from(batch);
        let decoded = kafka_protocol::records::RecordBatchDecoder::decode(&mut bytes).unwrap();
        assert_eq!(decoded.records.len(), 64);
        assert_eq!(decoded.records[3].offset, 67);
        assert_eq!(decoded.records[3].value.as_ref().map(bytes::Bytes::len), Some(1024));
    }

    #[test]
    fn a_workloads_size_is_about_what_was_asked() {
        let generator = Generator::new(Workload::of_size("t", 64 << 20, 4));
        let ratio = generator.total_bytes() as f64 / f64::from(64 << 20);
        assert!((0.98..1.05).contains(&ratio), "{ratio}");
    }
}
