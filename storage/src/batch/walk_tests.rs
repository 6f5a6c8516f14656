//! Tests of the validator and the walkers.

use proptest::prelude::*;

use super::super::{BatchBuilder, Compression, ControlMarker, legacy};
use super::*;
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

const LIMITS: BatchLimits = BatchLimits { batch_bytes_max: 1 << 20 };

fn data_batch(base_offset: i64, records: i32, value_bytes: usize) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset(base_offset), LeaderEpoch(3)).producer(
        ProducerId(9),
        ProducerEpoch(1),
        40,
    );
    for index in 0..records {
        batch.push(1000 + i64::from(index), Some(b"key"), Some(&vec![7; value_bytes]), &[]);
    }
    batch.finish()
}

fn marker_batch(base_offset: i64, marker: ControlMarker) -> Vec<u8> {
    BatchBuilder::end_of_transaction(
        Offset(base_offset),
        LeaderEpoch(3),
        (ProducerId(9), ProducerEpoch(1)),
        marker,
        (2000, 5),
    )
}

/// A message of format 0 or 1 with a key of three bytes.
fn legacy_entry(offset: i64, magic: i8, value: &[u8]) -> Vec<u8> {
    let mut message = vec![magic.cast_unsigned(), 0];
    if magic == 1 {
        message.extend_from_slice(&1234i64.to_be_bytes());
    }
    message.extend_from_slice(&3i32.to_be_bytes());
    message.extend_from_slice(b"key");
    message.extend_from_slice(&(value.len() as i32).to_be_bytes());
    message.extend_from_slice(value);
    let mut entry = offset.to_be_bytes().to_vec();
    entry.extend_from_slice(&(message.len() as i32 + 4).to_be_bytes());
    entry.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    entry.extend_from_slice(&message);
    entry
}

fn one_shot(bytes: &[u8]) -> Result<Option<BatchInfo>, BatchError> {
    BatchValidator::new(LIMITS).feed(&mut &*bytes)
}

/// Overwrites a field and makes the checksum right again, so that only the field is wrong.
fn patched(mut batch: Vec<u8>, at: usize, field: &[u8]) -> Vec<u8> {
    batch[at..at + field.len()].copy_from_slice(field);
    let crc = crc32c::crc32c(&batch[v2::ATTRIBUTES_AT..]);
    batch[v2::CRC_AT..v2::CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    batch
}

#[test]
fn a_batch_comes_out_with_every_field_of_its_header() {
    let bytes = data_batch(100, 3, 10);
    let info = one_shot(&bytes).unwrap().unwrap();
    assert_eq!(info.base_offset, Offset(100));
    assert_eq!(info.last_offset, Offset(102));
    assert_eq!(info.next_offset(), Offset(103));
    assert_eq!(info.leader_epoch, LeaderEpoch(3));
    assert_eq!(info.magic, 2);
    assert_eq!(info.attributes.compression(), Some(Compression::None));
    assert_eq!((info.base_timestamp, info.max_timestamp), (1000, 1002));
    assert_eq!((info.producer_id, info.producer_epoch), (ProducerId(9), ProducerEpoch(1)));
    assert_eq!((info.base_sequence, info.record_count), (40, 3));
    assert_eq!(info.size_bytes as usize, bytes.len());
    assert_eq!(info.crc.to_be_bytes(), bytes[17..21]);
    assert_eq!(info.control, None);
}

#[test]
fn markers_are_read_from_control_batches() {
    for marker in [ControlMarker::Abort, ControlMarker::Commit, ControlMarker::Other(7)] {
        let info = one_shot(&marker_batch(5, marker)).unwrap().unwrap();
        assert_eq!(info.control, Some(marker));
    }
}

#[test]
fn a_marker_with_the_longest_possible_deltas_is_still_read() {
    let mut batch = BatchBuilder::new(Offset(0), LeaderEpoch(0));
    batch.push(0, None, None, &[]);
    let mut long = BatchBuilder::new(Offset(0), LeaderEpoch(0));
    long.push(0, None, None, &[]);
    long.push_at(i32::MAX - 1, i64::MIN, Some(&[0, 0, 0, 1]), Some(&[0; 200]), &[]);
    // The second record alone, behind the first one's header.
    let first_bytes = batch.finish().len();
    let mut bytes = long.finish();
    bytes.drain(v2::HEADER_BYTES..first_bytes);
    let length = (bytes.len() - layout::OVERHEAD_BYTES) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let bytes = patched(bytes, v2::RECORD_COUNT_AT, &1i32.to_be_bytes());
    let bytes = patched(bytes, v2::ATTRIBUTES_AT, &0x30i16.to_be_bytes());
    assert_eq!(one_shot(&bytes).unwrap().unwrap().control, Some(ControlMarker::Commit));
}

#[test]
fn an_unreadable_control_record_is_an_error_and_an_absent_one_is_not() {
    let marker = marker_batch(5, ControlMarker::Commit);
    // The key's length, after length, attributes and two deltas of one byte each.
    let short_key = patched(marker.clone(), v2::HEADER_BYTES + 4, &[2 * 3]);
    assert_eq!(one_shot(&short_key), Err(BatchError::ControlRecord { base_offset: 5 }));
    let negative_version = patched(marker.clone(), v2::HEADER_BYTES + 5, &[0xff, 0xff]);
    assert_eq!(one_shot(&negative_version), Err(BatchError::ControlRecord { base_offset: 5 }));

    let mut emptied = marker[..v2::HEADER_BYTES].to_vec();
    emptied[8..12].copy_from_slice(&49i32.to_be_bytes());
    let emptied = patched(emptied, v2::RECORD_COUNT_AT, &0i32.to_be_bytes());
    let info = one_shot(&emptied).unwrap().unwrap();
    assert_eq!((info.control, info.record_count), (None, 0));
}

#[test]
fn old_entries_are_verified_and_kept_opaque() {
    for magic in [0, 1] {
        let entry = legacy_entry(77, magic, b"value");
        let info = one_shot(&entry).unwrap().unwrap();
        assert_eq!((info.base_offset, info.last_offset), (Offset(77), Offset(77)));
        assert_eq!(info.leader_epoch, LeaderEpoch::UNKNOWN);
        assert_eq!(info.producer_id, ProducerId(-1));
        assert_eq!(info.max_timestamp, if magic == 0 { -1 } else { 1234 });
        assert_eq!(info.size_bytes as usize, entry.len());

        let mut flipped = entry;
        *flipped.last_mut().unwrap() ^= 1;
        assert!(matches!(one_shot(&flipped), Err(BatchError::Checksum { base_offset: 77, .. })));
    }
}

#[test]
fn transaction_bits_mean_nothing_in_old_entries() {
    let mut entry = legacy_entry(1, 1, b"v");
    entry[legacy::ATTRIBUTES_AT] = 0x38;
    let crc = crc32fast::hash(&entry[layout::MAGIC_AT..]);
    entry[legacy::CRC_AT..legacy::CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    let info = one_shot(&entry).unwrap().unwrap();
    assert!(info.attributes.is_log_append_time());
    assert!(!info.attributes.is_control() && !info.attributes.is_transactional());
}

#[test]
fn every_flipped_bit_of_the_checksummed_part_is_found() {
    let batch = data_batch(100, 2, 3);
    for at in v2::CRC_AT..batch.len() {
        for bit in 0..8 {
            let mut flipped = batch.clone();
            flipped[at] ^= 1 << bit;
            assert!(one_shot(&flipped).is_err(), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn impossible_fields_are_named_with_their_values() {
    let batch = || data_batch(100, 2, 3);
    let with = |at: usize, field: &[u8]| one_shot(&patched(batch(), at, field)).unwrap_err();
    assert_eq!(with(16, &[3]), BatchError::Magic { base_offset: 100, magic: 3 });
    assert_eq!(with(16, &[0xff]), BatchError::Magic { base_offset: 100, magic: -1 });
    assert_eq!(
        with(8, &48i32.to_be_bytes()),
        BatchError::TooShort { base_offset: 100, magic: 2, size_bytes: 60, bytes_min: 61 }
    );
    assert_eq!(
        with(8, &(-1i32).to_be_bytes()),
        BatchError::TooShort { base_offset: 100, magic: 2, size_bytes: 11, bytes_min: 61 }
    );
    assert_eq!(
        with(8, &i32::MAX.to_be_bytes()),
        BatchError::TooLarge {
            base_offset: 100,
            size_bytes: i64::from(i32::MAX) + 12,
            bytes_max: LIMITS.batch_bytes_max
        }
    );
    assert_eq!(with(0, &(-5i64).to_be_bytes()), BatchError::OffsetRange { base_offset: -5 });
    assert_eq!(with(0, &i64::MAX.to_be_bytes()), BatchError::OffsetRange { base_offset: i64::MAX });
    assert_eq!(
        with(0, &(i64::MAX - 1).to_be_bytes()),
        BatchError::LastOffsetDelta { base_offset: i64::MAX - 1, delta: 1 }
    );
    assert_eq!(
        with(v2::LAST_OFFSET_DELTA_AT, &(-1i32).to_be_bytes()),
        BatchError::LastOffsetDelta { base_offset: 100, delta: -1 }
    );
    assert_eq!(
        with(v2::RECORD_COUNT_AT, &3i32.to_be_bytes()),
        BatchError::RecordCount { base_offset: 100, record_count: 3, offsets: 2 }
    );
    assert_eq!(
        with(v2::RECORD_COUNT_AT, &(-1i32).to_be_bytes()),
        BatchError::RecordCount { base_offset: 100, record_count: -1, offsets: 2 }
    );
}

#[test]
fn old_entries_have_a_least_length_too() {
    for (magic, bytes_min) in [(0, 26), (1, 34)] {
        let mut entry = legacy_entry(7, magic, b"value");
        entry[8..12].copy_from_slice(&(bytes_min - 13i32).to_be_bytes());
        assert!(matches!(one_shot(&entry), Err(BatchError::TooShort { base_offset: 7, .. })));
        entry[8..12].copy_from_slice(&(bytes_min - 12i32).to_be_bytes());
        assert!(matches!(one_shot(&entry), Err(BatchError::Checksum { .. })));
    }
}

#[test]
fn a_batch_of_exactly_the_limit_passes_and_one_byte_more_does_not() {
    let batch = data_batch(0, 1, 100);
    let bytes_max = batch.len() as u32;
    let feed = |batch_bytes_max: u32| {
        BatchValidator::new(BatchLimits { batch_bytes_max }).feed(&mut batch.as_slice())
    };
    assert!(feed(bytes_max).unwrap().is_some());
    assert!(matches!(feed(bytes_max - 1), Err(BatchError::TooLarge { .. })));
}

#[test]
fn the_header_is_seen_as_soon_as_it_is_there() {
    for (bytes, header_bytes) in
        [(data_batch(3, 2, 50), 61), (legacy_entry(3, 0, b"v"), 18), (legacy_entry(3, 1, b"v"), 26)]
    {
        let mut validator = BatchValidator::new(LIMITS);
        assert_eq!(validator.feed(&mut &bytes[..header_bytes - 1]), Ok(None));
        assert_eq!(validator.header(), None);
        assert_eq!(validator.unfinished_bytes(), header_bytes - 1);
        assert_eq!(validator.feed(&mut &bytes[header_bytes - 1..header_bytes]), Ok(None));
        assert_eq!(validator.header().unwrap().base_offset, Offset(3));
        assert_eq!(
            validator.feed(&mut &bytes[header_bytes..]).unwrap().unwrap().magic,
            bytes[16] as i8
        );
        assert_eq!((validator.header(), validator.unfinished_bytes()), (None, 0));
    }
}

#[test]
fn a_validator_takes_nothing_beyond_the_batch() {
    let mut bytes = data_batch(0, 1, 5);
    let first_bytes = bytes.len();
    bytes.extend(data_batch(1, 1, 5));
    let mut rest = bytes.as_slice();
    let mut validator = BatchValidator::new(LIMITS);
    assert_eq!(validator.feed(&mut rest).unwrap().unwrap().base_offset, Offset(0));
    assert_eq!(rest.len(), bytes.len() - first_bytes);
    assert_eq!(validator.feed(&mut rest).unwrap().unwrap().base_offset, Offset(1));
    assert!(rest.is_empty());
}

#[test]
fn an_error_stays_until_reset() {
    let good = data_batch(0, 1, 5);
    let bad = patched(good.clone(), 16, &[9]);
    let mut validator = BatchValidator::new(LIMITS);
    let error = validator.feed(&mut bad.as_slice()).unwrap_err();
    let mut rest = good.as_slice();
    assert_eq!(validator.feed(&mut rest), Err(error));
    assert_eq!(rest.len(), good.len(), "nothing is taken after an error");
    validator.reset();
    assert!(validator.feed(&mut rest).unwrap().is_some());
}

#[test]
fn zeros_are_not_a_batch() {
    assert!(matches!(one_shot(&[0; 100]), Err(BatchError::TooShort { magic: 0, .. })));
    assert_eq!(one_shot(&[0; 17]), Ok(None), "what is cut before the header ends is only short");
}

#[test]
fn walking_stops_at_a_cut_batch_and_after_an_error() {
    let mut bytes = data_batch(0, 2, 5);
    bytes.extend(legacy_entry(2, 1, b"old"));
    let whole = bytes.len();
    bytes.extend(marker_batch(3, ControlMarker::Abort));
    bytes.pop();

    let mut batches = walk(&bytes, LIMITS);
    let found: Vec<_> = batches.by_ref().map(|batch| batch.unwrap().info.base_offset.0).collect();
    assert_eq!((found, batches.position()), (vec![0, 2], whole));

    bytes[whole - 1] ^= 1;
    let verified: Vec<_> = walk(&bytes, LIMITS).collect();
    assert!(matches!(verified[..], [Ok(_), Err(BatchError::Checksum { base_offset: 2, .. })]));
    assert_eq!(walk_headers(&bytes, LIMITS).filter(Result::is_ok).count(), 2);
}

/// Everything a validator says about a stream: batches, and the error that ended it.
fn feed_in_pieces(bytes: &[u8], pieces: &[usize]) -> (Vec<BatchInfo>, Option<BatchError>, usize) {
    let mut validator = BatchValidator::new(LIMITS);
    let mut found = Vec::new();
    let mut pieces = pieces.iter().copied().cycle();
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + pieces.next().unwrap_or(1).max(1));
        let mut piece = &bytes[at..end];
        while !piece.is_empty() {
            match validator.feed(&mut piece) {
                Ok(Some(info)) => found.push(info),
                Ok(None) => assert!(piece.is_empty()),
                Err(error) => return (found, Some(error), validator.unfinished_bytes()),
            }
        }
        at = end;
    }
    (found, None, validator.unfinished_bytes())
}

fn any_batch() -> impl Strategy<Value = Vec<u8>> {
    (0u8..5, 0i64..1_000_000, 1i32..5, 0usize..300).prop_map(|(kind, offset, records, bytes)| {
        match kind {
            0 => legacy_entry(offset, 0, &vec![1; bytes]),
            1 => legacy_entry(offset, 1, &vec![2; bytes]),
            2 => marker_batch(offset, ControlMarker::Abort),
            _ => data_batch(offset, records, bytes),
        }
    })
}

proptest! {
    #[test]
    fn how_bytes_are_cut_changes_nothing(
        batches in proptest::collection::vec(any_batch(), 1..6),
        pieces in proptest::collection::vec(1usize..200, 1..8),
        damage in proptest::option::of((any::<proptest::sample::Index>(), 1u8..)),
        cut in 0usize..40,
    ) {
        let mut bytes = batches.concat();
        if let Some((at, flip)) = damage {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        bytes.truncate(bytes.len() - cut.min(bytes.len() - 1));
        let whole = feed_in_pieces(&bytes, &[bytes.len()]);
        // What is left unfinished may differ where a piece ends inside a bad header.
        let cut = feed_in_pieces(&bytes, &pieces);
        prop_assert_eq!((&whole.0, &whole.1), (&cut.0, &cut.1));
        let bytewise = feed_in_pieces(&bytes, &[1]);
        prop_assert_eq!((&whole.0, &whole.1), (&bytewise.0, &bytewise.1));

        let walked: Vec<_> = walk(&bytes, LIMITS).map_while(Result::ok).map(|found| found.info).collect();
        prop_assert_eq!(&walked, &whole.0);
        let mut headers: Vec<_> =
            walk_headers(&bytes, LIMITS).map_while(Result::ok).map(|found| found.info).collect();
        headers.truncate(walked.len());
        for (info, header) in walked.iter().zip(&mut headers) {
            header.control = info.control;
        }
        prop_assert_eq!(headers, walked);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = feed_in_pieces(&bytes, &[7]);
        let _ = walk_headers(&bytes, LIMITS).count();
    }
}
