//! The records of synthetic batches, made once and used again and again.
//!
//! Owns up to [`BODIES_BYTES_MAX`] of noise. A source that made every batch anew would itself be what a
//! benchmark measures.

use super::Workload;

/// Different batches at most. An odd stride between partitions spreads them, see [`Bodies::index`].
const BODIES_MAX: u64 = 1024;
/// Memory for them at most: beyond a processor's inner caches, so that sending reads memory, as a broker's
/// sending does.
const BODIES_BYTES_MAX: u64 = 64 << 20;
/// How far apart the batches of neighbouring partitions begin: a prime.
const PARTITION_STRIDE: u64 = 389;

/// The records of all different batches.
#[derive(Debug)]
pub(super) struct Bodies {
    bytes: Vec<u8>,
    body_bytes: usize,
    checksums: Vec<u32>,
    shift: Shift,
}

impl Bodies {
    /// Makes as many as the workload can use.
    pub(super) fn make(workload: &Workload) -> Self {
        let mut bytes = Vec::new();
        records(workload, 0, &mut bytes);
        let body_bytes = bytes.len();
        let room = BODIES_BYTES_MAX / body_bytes.max(1) as u64;
        let batches = workload.batches().saturating_mul(u64::from(workload.partitions));
        let count = batches.min(BODIES_MAX).min(room).max(1);
        for seed in 1..count {
            records(workload, seed, &mut bytes);
        }
        let checksums = bytes.chunks_exact(body_bytes).map(crc32c::crc32c).collect();
        Self { bytes, body_bytes, checksums, shift: Shift::past(body_bytes) }
    }

    /// Bytes of each.
    pub(super) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// The records of a batch.
    pub(super) fn body(&self, partition: u32, batch: u64) -> &[u8] {
        let start = self.index(partition, batch) * self.body_bytes;
        &self.bytes[start..start + self.body_bytes]
    }

    /// CRC-32C of `front` followed by the records of a batch, without reading those.
    pub(super) fn checksum(&self, front: &[u8], partition: u32, batch: u64) -> u32 {
        let body = self.checksums[self.index(partition, batch)];
        self.shift.apply(crc32c::crc32c(front)) ^ body
    }

    fn index(&self, partition: u32, batch: u64) -> usize {
        let place = batch.wrapping_add(u64::from(partition).wrapping_mul(PARTITION_STRIDE));
        (place % self.checksums.len() as u64) as usize
    }
}

/// What appending a fixed number of bytes does to a CRC-32C: a linear map, kept as the images of single bits.
#[derive(Debug)]
struct Shift([u32; 32]);

impl Shift {
    fn past(bytes: usize) -> Self {
        Self(std::array::from_fn(|bit| crc32c::crc32c_combine(1 << bit, 0, bytes)))
    }

    fn apply(&self, checksum: u32) -> u32 {
        let set = (0..32).filter(|bit| checksum >> bit & 1 == 1);
        set.fold(0, |sum, bit| sum ^ self.0[bit])
    }
}

fn records(workload: &Workload, seed: u64, out: &mut Vec<u8>) {
    let mut noise = Noise::new(seed);
    for delta in 0..workload.batch_records {
        record(workload, delta, &mut noise, out);
    }
}

fn record(workload: &Workload, delta: u32, noise: &mut Noise, out: &mut Vec<u8>) {
    let value_bytes = workload.value_bytes;
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

/// xorshift64*: fast, and different for every seed.
struct Noise(u64);

impl Noise {
    fn new(seed: u64) -> Self {
        let seed = seed ^ 0x9e37_79b9_7f4a_7c15;
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
    fn the_checksum_is_that_of_all_bytes() {
        let bodies = Bodies::make(&Workload::of_size("t", 1 << 20, 2));
        for (partition, batch) in [(0, 0), (1, 3), (1, 70_000)] {
            let front: Vec<u8> = (0..40).map(|byte| byte * 3 + partition as u8).collect();
            let whole = [&front, bodies.body(partition, batch)].concat();
            assert_eq!(bodies.checksum(&front, partition, batch), crc32c::crc32c(&whole));
        }
    }

    #[test]
    fn memory_is_bounded_for_large_batches_and_many() {
        let many = Bodies::make(&Workload::of_size("t", 1 << 40, 3));
        assert!(many.bytes.len() as u64 <= BODIES_BYTES_MAX && many.checksums.len() > 900);
        let large = Workload {
            value_bytes: 20 << 20,
            batch_records: 1,
            ..Workload::of_size("t", 1 << 40, 3)
        };
        assert_eq!(Bodies::make(&large).checksums.len(), 3);
    }
}
