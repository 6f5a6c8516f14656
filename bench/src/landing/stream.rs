//! What the sender sends: answers of whole batches with consecutive offsets, over one connection.
//!
//! Runs on the sender's thread. The template is made once and sent again and again; only the base
//! offsets change, which no checksum covers. So a run of any size costs the sender little, and what
//! arrived can be checked byte by byte afterwards.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::load::{Generator, Workload};

/// Bytes in front of the records of each answer, as long as the fields of a fetch response with one
/// partition. The first four are the length of the records.
pub(super) const ANSWER_HEAD_BYTES: usize = 64;

/// Record bytes of one answer: Kafka's default `max.partition.fetch.bytes`.
const ANSWER_RECORDS_MAX: usize = 1024 * 1024;

/// Size of the template: beyond the processor's inner caches, so that sending reads memory.
const TEMPLATE_BYTES: usize = 48 * 1024 * 1024;

/// A prepared stream.
pub(super) struct Stream {
    template: Vec<u8>,
    batch_bytes: usize,
    batch_records: i64,
    batches_in_answer: usize,
    answers_in_template: usize,
    answers: usize,
}

impl Stream {
    /// A stream of at least `size_bytes` of records.
    pub(super) fn prepare(size_bytes: u64) -> Self {
        let generator = Generator::new(Workload::of_size("landing", TEMPLATE_BYTES as u64, 1));
        let batch_bytes = generator.batch_bytes();
        let batch_records = i64::from(generator.workload().batch_records);
        let batches_in_answer = (ANSWER_RECORDS_MAX / batch_bytes).max(1);
        let answer_records = batches_in_answer * batch_bytes;
        let answers_in_template = (TEMPLATE_BYTES / answer_records).max(1);
        let mut template = Vec::with_capacity(answers_in_template * 2 * ANSWER_RECORDS_MAX);
        let mut offset = 0;
        for _ in 0..answers_in_template {
            let head_start = template.len();
            template.resize(head_start + ANSWER_HEAD_BYTES, 0);
            let length = u32::try_from(answer_records).unwrap_or(u32::MAX);
            template[head_start..head_start + 4].copy_from_slice(&length.to_be_bytes());
            for _ in 0..batches_in_answer {
                generator.batch(0, offset, &mut template);
                offset += batch_records;
            }
        }
        let answers = size_bytes.div_ceil(answer_records as u64);
        Self {
            template,
            batch_bytes,
            batch_records,
            batches_in_answer,
            answers_in_template,
            answers: usize::try_from(answers).unwrap_or(usize::MAX).max(1),
        }
    }

    pub(super) fn answers(&self) -> usize {
        self.answers
    }

    pub(super) fn record_bytes(&self) -> u64 {
        self.answers as u64 * self.answer_records() as u64
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.answers as u64 * self.answer_bytes() as u64
    }

    pub(super) fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    pub(super) fn batch_records(&self) -> i64 {
        self.batch_records
    }

    pub(super) fn end_offset(&self) -> i64 {
        self.answers as i64 * self.batches_in_answer as i64 * self.batch_records
    }

    /// Whether `batch` is, bit for bit, the one sent as number `index`.
    pub(super) fn is_batch(&self, index: usize, batch: &[u8]) -> bool {
        let (answer, place) = (index / self.batches_in_answer, index % self.batches_in_answer);
        let start = (answer % self.answers_in_template) * self.answer_bytes()
            + ANSWER_HEAD_BYTES
            + place * self.batch_bytes;
        let sent = &self.template[start..start + self.batch_bytes];
        let base_offset = index as i64 * self.batch_records;
        batch.len() == sent.len()
            && batch[..8] == base_offset.to_be_bytes()
            && batch[8..] == sent[8..]
    }

    /// Sends everything from a thread of its own, which ends early if the receiver goes away.
    pub(super) fn send(self: &Arc<Self>, mut socket: TcpStream) -> JoinHandle<()> {
        let stream = self.clone();
        let mut template = self.template.clone();
        std::thread::spawn(move || {
            let answer_bytes = stream.answer_bytes();
            let mut offset = 0;
            for answer in 0..stream.answers {
                let start = (answer % stream.answers_in_template) * answer_bytes;
                let piece = &mut template[start..start + answer_bytes];
                for batch in piece[ANSWER_HEAD_BYTES..].chunks_exact_mut(stream.batch_bytes) {
                    batch[..8].copy_from_slice(&i64::to_be_bytes(offset));
                    offset += stream.batch_records;
                }
                if socket.write_all(piece).is_err() {
                    return;
                }
            }
        })
    }

    fn answer_records(&self) -> usize {
        self.batches_in_answer * self.batch_bytes
    }

    fn answer_bytes(&self) -> usize {
        ANSWER_HEAD_BYTES + self.answer_records()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_stream_repeats_its_template_with_rising_offsets() {
        let stream = Arc::new(Stream::prepare(2 * TEMPLATE_BYTES as u64));
        assert!(stream.answers() > stream.answers_in_template);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let sender = stream.send(socket);
        let mut bytes = Vec::new();
        receiver.read_to_end(&mut bytes).unwrap();
        sender.join().unwrap();
        assert_eq!(bytes.len() as u64, stream.total_bytes());
        let mut index = 0;
        for answer in bytes.chunks_exact(stream.answer_bytes()) {
            for batch in answer[ANSWER_HEAD_BYTES..].chunks_exact(stream.batch_bytes()) {
                assert!(stream.is_batch(index, batch), "batch {index}");
                assert!(!stream.is_batch(index + 1, batch));
                index += 1;
            }
        }
        assert_eq!(index as i64 * stream.batch_records(), stream.end_offset());
    }
}
