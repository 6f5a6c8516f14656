//! Tests of record iteration: against Kafka's own bytes, against another codec, and against
//! every contradiction a record can hold.

use bytes::{Bytes, BytesMut};
use kafka_protocol::records as oracle;
use proptest::prelude::*;

use super::super::{BatchBuilder, walk_headers};
use super::*;
use crate::{LeaderEpoch, ProducerEpoch, ProducerId};

const LIMITS: BatchLimits = BatchLimits { batch_bytes_max: 1 << 20 };
const INFLATED_MAX: usize = 1 << 20;

/// A record with memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    offset: i64,
    timestamp_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn read(bytes: &[u8]) -> Result<Vec<Owned>, RecordError> {
    let mut scratch = Vec::new();
    let mut all = Vec::new();
    for batch in walk(bytes, LIMITS) {
        for record in records(batch?.bytes, INFLATED_MAX, &mut scratch)? {
            let record = record?;
            let headers: Vec<_> = record
                .headers
                .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                .collect();
            assert_eq!(headers.len(), record.headers.len());
            all.push(Owned {
                offset: record.offset.0,
                timestamp_ms: record.timestamp_ms,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers,
            });
        }
    }
    Ok(all)
}

/// What Kafka's own library wrote, and what it reads back.
fn kafkas_batches() -> Vec<(String, Vec<u8>, Vec<Owned>)> {
    let unhex = |text: &str| -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    };
    let nullable = |text: &str| (text != "null").then(|| unhex(text.trim_start_matches('x')));
    let mut batches: Vec<(String, Vec<u8>, Vec<Owned>)> = Vec::new();
    for line in include_str!("../../testdata/kafka-batches.txt").lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["batch", name, bytes] => batches.push((name.into(), unhex(bytes), Vec::new())),
            ["record", offset, timestamp, key, value, ref headers @ ..] => {
                batches.last_mut().unwrap().2.push(Owned {
                    offset: offset.parse().unwrap(),
                    timestamp_ms: timestamp.parse().unwrap(),
                    key: nullable(key),
                    value: nullable(value),
                    headers: headers
                        .iter()
                        .map(|header| header.split_once('=').unwrap())
                        .map(|(key, value)| (key.as_bytes().to_vec(), nullable(value)))
                        .collect(),
                });
            }
            _ => panic!("{line}"),
        }
    }
    batches
}

fn kafkas(wanted: &str) -> (Vec<u8>, Vec<Owned>) {
    let (_, bytes, records) =
        kafkas_batches().into_iter().find(|(name, ..)| name == wanted).unwrap();
    (bytes, records)
}

#[test]
fn kafkas_own_batches_of_every_format_and_codec_read_as_kafka_reads_them() {
    let batches = kafkas_batches();
    assert_eq!(batches.len(), 18);
    for (name, bytes, expected) in batches {
        assert_eq!(read(&bytes).unwrap(), expected, "{name}");
        let covered: usize =
            walk(&bytes, LIMITS).map(|batch| batch.unwrap().info.size_bytes as usize).sum();
        assert_eq!(covered, bytes.len(), "{name}");
    }
}

#[test]
fn a_builder_writes_kafkas_bytes() {
    let (theirs, _) = kafkas("v2-far-timestamps-and-headers");
    // What a producer leaves open: the leader sets the epoch, outside the checksum.
    let mut batch = BatchBuilder::new(Offset(1000), LeaderEpoch::UNKNOWN);
    batch.push(0, Some(b"then"), Some(b"0"), &[]);
    let headers: [(&str, Option<&[u8]>); 4] =
        [("null", None), ("twice", Some(b"a")), ("twice", Some(b"b")), ("empty", Some(b""))];
    batch.push(1_760_000_000_000, Some(b"now"), Some(b"1"), &headers);
    assert_eq!(batch.finish(), theirs);

    let (theirs, _) = kafkas("v2-abort");
    let ours = BatchBuilder::end_of_transaction(
        Offset(1001),
        LeaderEpoch(9),
        (ProducerId(4711), ProducerEpoch(3)),
        super::super::ControlMarker::Abort,
        (78, 6),
    );
    assert_eq!(ours, theirs);

    let (theirs, _) = kafkas("v2-transactional");
    let mut batch = BatchBuilder::new(Offset(1000), LeaderEpoch(9))
        .producer(ProducerId(4711), ProducerEpoch(3), 17)
        .transactional();
    batch.push(77, Some(b"k"), Some(b"in a transaction"), &[]);
    assert_eq!(batch.finish(), theirs);
}

#[test]
fn a_time_is_found_at_its_first_record_from_an_offset_on() {
    let mut scratch = Vec::new();
    // Timestamps of Kafka's batches: base + 0, 2, 4, 1, 3.
    for name in ["v1-gzip", "v2-zstd", "v2-none"] {
        let (bytes, expected) = kafkas(name);
        let base = 1_700_000_000_000;
        let mut first = |timestamp_ms: i64, from: i64| {
            first_at_or_after(&bytes, (timestamp_ms, Offset(from)), INFLATED_MAX, &mut scratch)
                .unwrap()
                .map(|found| (found.timestamp_ms - base, found.offset.0))
        };
        let offset = |index: usize| expected[index].offset;
        assert_eq!(first(0, 0), Some((0, offset(0))));
        assert_eq!(first(base + 1, 0), Some((2, offset(1))));
        assert_eq!(first(base + 4, 0), Some((4, offset(2))));
        assert_eq!(first(base + 2, offset(3)), Some((3, offset(4))));
        assert_eq!(first(base + 5, 0), None);
        let largest = record_of_max_timestamp(&bytes, INFLATED_MAX, &mut scratch).unwrap().unwrap();
        assert_eq!((largest.timestamp_ms, largest.offset.0), (base + 4, offset(2)));
    }
    let (v0, _) = kafkas("v0-gzip");
    assert_eq!(record_of_max_timestamp(&v0, INFLATED_MAX, &mut scratch).unwrap(), None);
}

#[test]
fn append_time_is_every_records_time() {
    for name in ["v1-append-time", "v2-append-time"] {
        let (bytes, _) = kafkas(name);
        let found =
            record_of_max_timestamp(&bytes, INFLATED_MAX, &mut Vec::new()).unwrap().unwrap();
        assert_eq!((found.offset.0, found.timestamp_ms), (1000, 1_800_000_000_000), "{name}");
    }
}

#[test]
fn compacted_batches_keep_their_gaps() {
    let mut batch = BatchBuilder::new(Offset(100), LeaderEpoch(0)).compression(Compression::Lz4);
    batch.push_at(3, 10, None, None, &[]);
    batch.push_at(8, 20, None, None, &[]);
    batch.extend_to(11);
    let bytes = batch.finish();
    let info = walk_headers(&bytes, LIMITS).next().unwrap().unwrap().info;
    assert_eq!((info.base_offset, info.last_offset), (Offset(100), Offset(111)));
    let offsets: Vec<_> = read(&bytes).unwrap().iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [103, 108]);
    let emptied = BatchBuilder::new(Offset(5), LeaderEpoch(0)).finish();
    assert_eq!(read(&emptied).unwrap(), []);
}

/// A batch of one record whose body is `body`, checksum right.
fn with_body(body: &[u8], count: i32) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset(10), LeaderEpoch(0));
    for _ in 0..count {
        batch.push(0, None, None, &[]);
    }
    let mut bytes = batch.finish();
    bytes.truncate(v2::HEADER_BYTES);
    bytes.extend_from_slice(body);
    let length = (bytes.len() - layout::OVERHEAD_BYTES) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[v2::ATTRIBUTES_AT..]);
    bytes[v2::CRC_AT..v2::CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    bytes
}

#[test]
fn records_that_contradict_themselves_or_their_batch_are_refused() {
    let reason = |body: &[u8], count: i32| match read(&with_body(body, count)) {
        Err(RecordError::Malformed { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    // Length 12/2 = 6: attributes, two deltas, null key, null value, no header.
    let good = [12, 0, 0, 0, 1, 1, 0];
    assert_eq!(read(&with_body(&good, 1)).unwrap().len(), 1);
    assert_eq!(reason(&[], 1), "unreadable length");
    assert_eq!(reason(&[1], 1), "negative length");
    assert_eq!(reason(&good[..6], 1), "fewer bytes than its length says");
    assert_eq!(reason(&[0], 1), "fewer bytes than its length says");
    assert_eq!(reason(&[2, 0], 1), "unreadable timestamp");
    assert_eq!(reason(&[4, 0, 0], 1), "unreadable offset");
    assert_eq!(reason(&[6, 0, 0, 0], 1), "unreadable key");
    assert_eq!(reason(&[8, 0, 0, 0, 20], 1), "unreadable key");
    assert_eq!(reason(&[8, 0, 0, 0, 1], 1), "unreadable value");
    assert_eq!(reason(&[10, 0, 0, 0, 1, 1], 1), "unreadable headers");
    assert_eq!(reason(&[12, 0, 0, 0, 1, 1, 1], 1), "unreadable headers");
    assert_eq!(reason(&[16, 0, 0, 0, 1, 1, 2, 1, 1], 1), "unreadable headers", "null header key");
    // A header count of 2^31 - 1 and nothing behind it.
    assert_eq!(reason(&[20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f], 1), "unreadable headers");
    assert_eq!(reason(&[14, 0, 0, 0, 1, 1, 0, 9], 1), "more bytes than its fields");
    assert_eq!(reason(&[good.as_slice(), &[0]].concat(), 1), "bytes after the last record");
    let outside = "offset out of order or outside its batch";
    assert_eq!(reason(&[12, 0, 0, 2, 1, 1, 0], 1), outside, "beyond the last offset");
    assert_eq!(reason(&[12, 0, 0, 1, 1, 1, 0], 1), outside, "before the first");
    assert_eq!(reason(&[good, good].concat(), 2), outside, "twice the same");
}

#[test]
fn an_error_ends_the_iteration() {
    let bytes = with_body(&[2, 0, 2, 0, 2, 0], 3);
    let mut scratch = Vec::new();
    let mut all = records(&bytes, INFLATED_MAX, &mut scratch).unwrap();
    assert!(all.next().unwrap().is_err());
    assert!(all.next().is_none());
}

#[test]
fn unknown_codecs_cut_batches_and_inflated_sizes_are_refused() {
    let mut scratch = Vec::new();
    let mut batch = BatchBuilder::new(Offset(0), LeaderEpoch(0)).compression(Compression::Zstd);
    batch.push(0, None, Some(&vec![0; 100_000]), &[]);
    let bytes = batch.finish();
    let mut unknown = bytes.clone();
    unknown[v2::ATTRIBUTES_AT + 1] = 7;
    assert!(matches!(
        records(&unknown, INFLATED_MAX, &mut scratch),
        Err(RecordError::Codec { attributes: 7, .. })
    ));
    assert!(matches!(
        records(&bytes[..bytes.len() - 1], INFLATED_MAX, &mut scratch),
        Err(RecordError::NotOneBatch { .. })
    ));
    assert!(matches!(
        records(&bytes, 99_999, &mut scratch),
        Err(RecordError::Decompress { source: DecompressError::TooLarge { .. }, .. })
    ));
}

/// An old message, or a wrapper when `codec` is not zero.
fn old_message(offset: i64, magic: i8, codec: u8, value: Option<&[u8]>) -> Vec<u8> {
    let mut message = vec![magic.cast_unsigned(), codec];
    if magic == 1 {
        message.extend_from_slice(&55i64.to_be_bytes());
    }
    message.extend_from_slice(&(-1i32).to_be_bytes());
    message.extend_from_slice(&value.map_or(-1, |value| value.len() as i32).to_be_bytes());
    message.extend_from_slice(value.unwrap_or_default());
    let mut entry = offset.to_be_bytes().to_vec();
    entry.extend_from_slice(&(message.len() as i32 + 4).to_be_bytes());
    entry.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    entry.extend_from_slice(&message);
    entry
}

fn wrapped(offset: i64, magic: i8, messages: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    super::super::compress(Compression::Gzip, messages, &mut packed);
    old_message(offset, magic, 1, Some(&packed))
}

#[test]
fn old_wrappers_that_make_no_sense_are_refused() {
    let inner = |magic, codec| old_message(3, magic, codec, Some(b"v"));
    assert_eq!(read(&wrapped(10, 1, &inner(1, 0))).unwrap()[0].offset, 10);
    assert_eq!(read(&wrapped(10, 0, &inner(0, 0))).unwrap()[0].offset, 3, "absolute in v0");
    let refused = |bytes: &[u8]| assert!(read(bytes).is_err());
    refused(&wrapped(10, 1, &inner(0, 0)));
    refused(&wrapped(10, 1, &inner(1, 1)));
    refused(&wrapped(10, 1, &[]));
    refused(&wrapped(10, 1, &inner(1, 0)[..20]));
    refused(&wrapped(10, 1, &[&inner(1, 0), &inner(1, 0)[..20]].concat()));
    refused(&old_message(10, 1, 1, None));
    let mut flipped = inner(1, 0);
    *flipped.last_mut().unwrap() ^= 1;
    refused(&wrapped(10, 1, &flipped));
    // The wrapper's last offset is 1, yet messages count from 0 to 3: the first would be below 0.
    let backwards = [old_message(0, 1, 0, None), old_message(3, 1, 0, None)].concat();
    refused(&wrapped(1, 1, &backwards));
    let mut lengths = inner(1, 0);
    lengths[legacy::V1_HEADER_BYTES + 7] = 0;
    let crc = crc32fast::hash(&lengths[layout::MAGIC_AT..]);
    lengths[legacy::CRC_AT..legacy::CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    refused(&lengths);
}

fn any_value() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40))
}

fn any_records() -> impl Strategy<Value = Vec<Owned>> {
    let headers = proptest::collection::vec(("[a-z]{0,4}", any_value()), 0..3);
    let record = (0i64..3, any::<i64>(), any_value(), any_value(), headers);
    proptest::collection::vec(record, 1..12).prop_map(|records| {
        let mut offset = 500;
        records
            .into_iter()
            .map(|(gap, timestamp_ms, key, value, headers)| {
                offset += gap + 1;
                let headers =
                    headers.into_iter().map(|(key, value)| (key.into_bytes(), value)).collect();
                Owned { offset, timestamp_ms, key, value, headers }
            })
            .collect()
    })
}

fn any_codec() -> impl Strategy<Value = Compression> {
    proptest::sample::select(vec![
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ])
}

fn build(all: &[Owned], codec: Compression) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset(500), LeaderEpoch(1)).compression(codec);
    for record in all {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| (std::str::from_utf8(key).unwrap(), value.as_deref()))
            .collect();
        batch.push_at(
            (record.offset - 500) as i32,
            record.timestamp_ms,
            record.key.as_deref(),
            record.value.as_deref(),
            &headers,
        );
    }
    batch.finish()
}

fn oracle_record(record: &Owned) -> oracle::Record {
    oracle::Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 1,
        producer_id: -1,
        producer_epoch: -1,
        timestamp_type: oracle::TimestampType::Creation,
        offset: record.offset,
        sequence: -1,
        timestamp: record.timestamp_ms,
        key: record.key.clone().map(Bytes::from),
        value: record.value.clone().map(Bytes::from),
        headers: record
            .headers
            .iter()
            .map(|(key, value)| {
                let key = std::str::from_utf8(key).unwrap().to_owned();
                (kafka_protocol::protocol::StrBytes::from(key), value.clone().map(Bytes::from))
            })
            .collect(),
    }
}

proptest! {
    #[test]
    fn what_a_builder_writes_is_read_back(all in any_records(), codec in any_codec()) {
        prop_assert_eq!(read(&build(&all, codec)).unwrap(), all);
    }

    #[test]
    fn another_codec_reads_the_same_records(mut all in any_records(), codec in any_codec()) {
        // Its own arithmetic on timestamps does not wrap around.
        all.iter_mut().for_each(|record| record.timestamp_ms >>= 2);
        let mut bytes = Bytes::from(build(&all, codec));
        let inflate = |input: &mut Bytes, _: oracle::Compression| {
            let mut out = Vec::new();
            decompress(codec, input, INFLATED_MAX, &mut out)?;
            Ok(Bytes::from(out))
        };
        let decoded =
            oracle::RecordBatchDecoder::decode_with_custom_compression(&mut bytes, Some(inflate))
                .unwrap();
        let theirs: Vec<_> = decoded
            .records
            .iter()
            .map(|record| (record.offset, record.timestamp, record.key.clone(), record.value.clone()))
            .collect();
        let ours: Vec<_> = all
            .iter()
            .map(|record| (
                record.offset,
                record.timestamp_ms,
                record.key.clone().map(Bytes::from),
                record.value.clone().map(Bytes::from),
            ))
            .collect();
        prop_assert_eq!(theirs, ours);
    }

    #[test]
    fn what_another_codec_writes_is_read(mut all in any_records()) {
        for record in &mut all {
            // It keeps only one header of a name, and its arithmetic on timestamps does not wrap.
            record.timestamp_ms >>= 2;
            record.headers.truncate(1);
        }
        let mut bytes = BytesMut::new();
        let list: Vec<_> = all.iter().map(oracle_record).collect();
        let options =
            oracle::RecordEncodeOptions { version: 2, compression: oracle::Compression::None };
        oracle::RecordBatchEncoder::encode(&mut bytes, &list, &options).unwrap();
        prop_assert_eq!(read(&bytes).unwrap(), all);
    }

    #[test]
    fn damaged_records_never_panic_and_never_multiply(
        all in any_records(),
        codec in any_codec(),
        at in any::<proptest::sample::Index>(),
        flip in 1u8..,
    ) {
        let mut bytes = build(&all, codec);
        let at = v2::ATTRIBUTES_AT + at.index(bytes.len() - v2::ATTRIBUTES_AT);
        bytes[at] ^= flip;
        let mut scratch = Vec::new();
        if let Ok(records) = records(&bytes, INFLATED_MAX, &mut scratch) {
            prop_assert!(records.take(1000).count() <= bytes.len().max(INFLATED_MAX));
        }
    }
}
