//! Consumers of our own: each with a connection and some of the partitions, reading as a Kafka consumer
//! does by default, and checking every batch.
//!
//! Each runs on a thread of its own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use dataplane::wire::{
    ApiKey, FetchEvent, FetchPartition, FetchRequest, FetchResponseParser, FetchTopic,
    IsolationLevel, RequestHeader, TopicKey,
};

/// The last Fetch version that names topics by name.
const FETCH_VERSION: i16 = 12;
/// A Java consumer's `fetch.max.bytes` and `max.partition.fetch.bytes`.
const ANSWER_BYTES_MAX: i32 = 50 << 20;
const PARTITION_BYTES_MAX: i32 = 1 << 20;
/// Its `fetch.max.wait.ms`.
const WAIT_MAX_MS: i32 = 500;
/// Bytes of a frame that is accepted.
const FRAME_BYTES_MAX: usize = 96 << 20;
/// Without an answer for this long the connection is given up.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Bytes of a batch header.
const HEAD_BYTES: usize = 61;
/// Where a batch's length field ends, and where its checksummed part begins.
const LENGTH_END: usize = 12;
const CHECKED_FROM: usize = 21;

/// A partition and its end offset.
pub(super) type Part = (u32, i64);

/// Reads the partitions from their beginning to their ends; answers the bytes of their batches.
///
/// # Errors
/// When the connection is lost, or a batch is wrong, in words.
pub(super) fn read_all(
    address: SocketAddr,
    topic: &str,
    parts: &[Part],
    stop: &AtomicBool,
) -> Result<u64, String> {
    let lost = |error: io::Error| format!("a consumer lost its connection to {address}: {error}");
    let mut stream = TcpStream::connect(address).map_err(lost)?;
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(ANSWER_MAX)))
        .map_err(lost)?;
    let mut reading: Vec<Reading> =
        parts.iter().map(|&(partition, end)| Reading { partition, next: 0, end }).collect();
    let (mut bytes, mut correlation_id, mut frame) = (0, 0, Vec::new());
    while reading.iter().any(|part| part.next < part.end) {
        if stop.load(Ordering::Relaxed) {
            return Err("interrupted".to_owned());
        }
        correlation_id += 1;
        exchange(&mut stream, topic, &reading, correlation_id, &mut frame).map_err(lost)?;
        bytes += take(&frame, &mut reading)?;
        // Who was read first comes last the next time, or the first partitions would be read alone.
        reading.rotate_left(1);
    }
    Ok(bytes)
}

struct Reading {
    partition: u32,
    next: i64,
    end: i64,
}

fn exchange(
    stream: &mut TcpStream,
    topic: &str,
    reading: &[Reading],
    correlation_id: i32,
    frame: &mut Vec<u8>,
) -> io::Result<()> {
    let wanted = reading.iter().filter(|part| part.next < part.end);
    let partitions = wanted.map(|part| FetchPartition {
        partition: part.partition.cast_signed(),
        current_leader_epoch: -1,
        fetch_offset: part.next,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: PARTITION_BYTES_MAX,
    });
    let request = FetchRequest {
        replica_id: -1,
        max_wait_ms: WAIT_MAX_MS,
        min_bytes: 1,
        max_bytes: ANSWER_BYTES_MAX,
        isolation: IsolationLevel::ReadUncommitted,
        session_id: 0,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: TopicKey::Name(topic.into()),
            partitions: partitions.collect(),
        }],
        forgotten: Vec::new(),
        rack_id: String::new(),
    };
    let mut body = BytesMut::new();
    let header = RequestHeader {
        api_key: ApiKey::FETCH,
        api_version: FETCH_VERSION,
        correlation_id,
        client_id: Some("longhaul-bench"),
    };
    header.encode(&mut body);
    request.encode(FETCH_VERSION, &mut body);
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), &body[..]].concat())?;
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix)?;
    let length = u32::from_be_bytes(prefix) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!("an answer of {length} bytes")));
    }
    frame.resize(length, 0);
    stream.read_exact(frame)
}

/// Checks an answer's whole batches and moves on behind them; answers their bytes.
fn take(frame: &[u8], reading: &mut [Reading]) -> Result<u64, String> {
    let mut parser = FetchResponseParser::new(FETCH_VERSION, frame.len());
    let (mut bytes, mut taken) = (frame, 0);
    let mut current: Option<usize> = None;
    while let Some(event) = parser.next(&mut bytes).map_err(|error| error.to_string())? {
        match event {
            FetchEvent::Head(_) | FetchEvent::PartitionEnd(_) => {}
            FetchEvent::Partition(head) => {
                if head.error_code != 0 {
                    let (partition, error) = (head.partition, head.error_code);
                    return Err(format!("partition {partition}: error code {error}"));
                }
                current =
                    reading.iter().position(|part| part.partition.cast_signed() == head.partition);
            }
            FetchEvent::Records => {
                let (records, rest) = bytes.split_at(parser.records_remaining().min(bytes.len()));
                bytes = rest;
                parser.take_records(records.len());
                let index = current.ok_or("records of a partition nobody asked for")?;
                taken += take_batches(records, &mut reading[index])?;
            }
            FetchEvent::End(_) => break,
        }
    }
    Ok(taken)
}

/// A cut last batch is left for the next answer.
fn take_batches(mut records: &[u8], part: &mut Reading) -> Result<u64, String> {
    let mut taken = 0;
    while records.len() >= HEAD_BYTES {
        let number = |at: usize| [0, 1, 2, 3].map(|place| records[at + place]);
        let length = usize::try_from(i32::from_be_bytes(number(8))).unwrap_or(usize::MAX);
        let whole = length.saturating_add(LENGTH_END);
        if whole > records.len() {
            break;
        }
        let wrong = |what: &str| {
            Err(format!("partition {}: the batch at offset {} {what}", part.partition, part.next))
        };
        if whole < HEAD_BYTES {
            return wrong("is shorter than its header");
        }
        let first = i64::from_be_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|place| records[place]));
        if first != part.next {
            return wrong("is missing");
        }
        if u32::from_be_bytes(number(17)) != crc32c::crc32c(&records[CHECKED_FROM..whole]) {
            return wrong("has a wrong checksum");
        }
        part.next = first + i64::from(i32::from_be_bytes(number(23))) + 1;
        taken += whole as u64;
        records = &records[whole..];
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Generator, Workload};

    #[test]
    fn a_flipped_byte_and_a_missing_batch_are_found() {
        let generator = Generator::new(Workload::of_size("t", 1 << 20, 1));
        let mut records = Vec::new();
        generator.batch(0, 0, &mut records);
        generator.batch(0, 64, &mut records);
        let begin = || Reading { partition: 0, next: 0, end: 128 };
        let mut part = begin();
        let cut = records.len() - 1;
        assert_eq!(take_batches(&records[..cut], &mut part), Ok(generator.batch_bytes() as u64));
        assert_eq!(part.next, 64);
        let missing = take_batches(&records[generator.batch_bytes()..], &mut begin());
        assert!(missing.unwrap_err().contains("missing"));
        records[200] ^= 1;
        assert!(take_batches(&records, &mut begin()).unwrap_err().contains("checksum"));
    }
}
