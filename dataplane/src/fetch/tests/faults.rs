//! What stops one partition, and leaves the others going.

use bytes::BufMut;
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::protocol::Encodable;
use storage::{AppendError, LeaderEpoch, Offset, TopicId, TopicPartition};

use super::super::lane::fault_of;
use super::pair::{BROKER, EPOCH, Pair, assert_stored, batch, batch_of, encode, told};
use crate::handle::{BrokerId, CursorFault, LeaderHint, LogRepair, Resume};
use crate::wire::{LeaderAndEpoch, NodeEndpoint};

#[test]
fn error_code_stops_its_partition_with_the_new_leaders_address() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.request(slot);
    let mut moved = told(&a, 0, Vec::new()).error(6);
    moved.fields.current_leader = Some(LeaderAndEpoch { leader_id: 2, leader_epoch: 9 });
    let endpoint = NodeEndpoint { node_id: 2, host: "two".into(), port: 9092 };
    let answer = vec![moved, told(&b, 1, batch(0, 1))];
    let frame = encode(&asked, answer, &[endpoint], |head| head.session_id = 7);
    pair.deliver(slot, &frame);
    let hint = LeaderHint {
        broker: BrokerId(2),
        leader_epoch: LeaderEpoch(9),
        address: Some(("two".into(), 9092)),
    };
    let fault = CursorFault::Broker { code: 6, hint: Some(hint) };
    assert_eq!(pair.faults(), [("a-0".to_owned(), fault)]);
    assert_eq!(b.log.log_end(), Offset(1));
    let asked = pair.request(slot);
    assert_eq!(asked.single().fetch_offset, 1);
    assert_eq!(asked.forgotten(), 1);
}

#[test]
fn partition_of_a_moved_leader_goes_on_at_the_new_one() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 0, Vec::new()).error(6)]);
    let resume = |broker| Resume { broker, leader_epoch: LeaderEpoch(6), repair: None };
    pair.engine.resume(&a, resume(BrokerId(2)));
    assert!(pair.requests(slot).is_empty(), "the old leader is not asked again");
    pair.engine.resume(&a, resume(BROKER));
    let asked = pair.request(slot);
    assert_eq!(asked.single().current_leader_epoch, 6);
}

#[test]
fn diverging_history_stops_the_partition_and_stores_nothing() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 3, batch(0, 3))]);
    let asked = pair.request(slot);
    let mut diverging = told(&a, 3, Vec::new());
    diverging.fields.diverging = Some((2, 1));
    pair.answer(slot, &asked, vec![diverging]);
    let fault = CursorFault::Diverging { epoch: LeaderEpoch(2), end_offset: Offset(1) };
    assert_eq!(pair.faults(), [("a-0".to_owned(), fault)]);
    assert_eq!(a.log.log_end(), Offset(3));
    let repair = Some(LogRepair::TruncateTo(Offset(1)));
    // Offset 1 lies inside the batch, which goes as a whole.
    pair.engine.resume(&a, Resume { broker: BROKER, leader_epoch: EPOCH, repair });
    let asked = pair.request(slot);
    assert_eq!(asked.single().fetch_offset, a.log.log_end().0);
    assert!(a.log.log_end() <= Offset(1));
}

#[test]
fn batch_of_an_unconfirmed_epoch_is_not_stored_until_the_epoch_is_confirmed() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    let newer = LeaderEpoch(EPOCH.0 + 1);
    let mut records = batch(0, 2);
    records.extend(batch_of(2, 2, newer, 50));
    pair.answer(slot, &asked, vec![told(&a, 4, records)]);
    assert_eq!(pair.faults(), [("a-0".to_owned(), CursorFault::EpochAhead { found: newer })]);
    assert_eq!(a.log.log_end(), Offset(2));
    // The confirmed leader has other records there.
    pair.engine.resume(&a, Resume { broker: BROKER, leader_epoch: newer, repair: None });
    let asked = pair.request(slot);
    assert_eq!((asked.single().fetch_offset, asked.single().current_leader_epoch), (2, newer.0));
    let other = batch_of(2, 5, newer, 500);
    pair.answer(slot, &asked, vec![told(&a, 7, other.clone())]);
    assert_stored(&a.log, &[batch(0, 2), other].concat(), "");
}

#[test]
fn late_answer_is_held_against_the_epoch_its_request_claimed() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    let newer = LeaderEpoch(EPOCH.0 + 1);
    pair.engine.resume(&a, Resume { broker: BROKER, leader_epoch: newer, repair: None });
    pair.answer(slot, &asked, vec![told(&a, 2, batch_of(0, 2, newer, 50))]);
    assert_eq!(pair.faults(), [("a-0".to_owned(), CursorFault::EpochAhead { found: newer })]);
    assert_eq!(a.log.log_end(), Offset(0));
}

#[test]
fn bad_batch_is_fetched_once_more_from_scratch_and_then_quarantined_alone() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let poisoned = |from: i64| {
        let mut records = batch(from, 2);
        let mut bad = batch(from + 2, 2);
        *bad.last_mut().unwrap() ^= 1;
        records.extend(bad);
        records
    };
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 4, poisoned(0)), told(&b, 1, batch(0, 1))]);
    assert!(pair.events().is_empty(), "the first may have been damaged on the way");
    assert_eq!((a.log.log_end(), b.log.log_end()), (Offset(2), Offset(1)));

    let asked = pair.request(slot);
    assert_eq!((asked.request.session_id, asked.request.session_epoch), (0, 0));
    assert_eq!(asked.partitions().len(), 2);
    let bad = poisoned(0).split_off(batch(0, 2).len());
    pair.answer(slot, &asked, vec![told(&a, 4, bad), told(&b, 2, batch(1, 1))]);
    match &pair.faults()[..] {
        [(name, CursorFault::BadBatch(cause))] => {
            assert_eq!(name, "a-0");
            assert!(cause.contains("offset 2"), "{cause}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(b.log.log_end(), Offset(2), "the other partition goes on");
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&b, 3, batch(2, 1))]);
    assert_eq!(b.log.log_end(), Offset(3));
    assert_stored(&a.log, &batch(0, 2), "");
}

#[test]
fn batch_damaged_on_the_way_is_stored_when_it_comes_whole() {
    let mut pair = Pair::new();
    let slot = pair.catch_up();
    let a = pair.assign("a", 0);
    let mut bad = batch(0, 2);
    *bad.last_mut().unwrap() ^= 1;
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 1000, bad)]);
    let asked = pair.request(slot);
    assert_eq!(asked.single().fetch_offset, 0);
    pair.answer(slot, &asked, vec![told(&a, 1000, batch(0, 2))]);
    assert_stored(&a.log, &batch(0, 2), "");
    assert!(pair.events().is_empty());
}

#[test]
fn batch_that_overlaps_the_log_is_not_stored() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 3, batch(0, 3))]);
    for _ in 0..2 {
        let asked = pair.request(slot);
        pair.answer(slot, &asked, vec![told(&a, 4, batch(2, 2))]);
    }
    assert!(matches!(&pair.faults()[..], [(_, CursorFault::BadBatch(_))]));
    assert_stored(&a.log, &batch(0, 3), "");
}

#[test]
fn log_start_follows_the_source_without_data_and_never_passes_our_end() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 6, [batch(0, 3), batch(3, 3)].concat())]);
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 6, Vec::new()).log_start(4)]);
    assert_eq!((a.log.log_start(), a.log.log_end()), (Offset(4), Offset(6)));
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 9, Vec::new()).log_start(9)]);
    assert_eq!((a.log.log_start(), a.log.log_end()), (Offset(6), Offset(6)));
}

#[test]
fn mirror_of_a_log_that_starts_inside_a_batch_begins_with_that_batch() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign_from("a", 0, 2);
    let asked = pair.request(slot);
    assert_eq!(asked.single().fetch_offset, 2);
    pair.answer(slot, &asked, vec![told(&a, 5, batch(0, 5)).log_start(2)]);
    assert!(pair.events().is_empty());
    assert_eq!((a.log.log_start(), a.log.log_end()), (Offset(2), Offset(5)));
}

#[test]
fn nearer_replica_is_reported_with_nothing_stored() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let hex: String = a.topic_id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    for (replica, faults) in [(BROKER.0, 0), (3, 1)] {
        let asked = pair.request(slot);
        let fields = PartitionData::default()
            .with_partition_index(0)
            .with_high_watermark(1000)
            .with_preferred_read_replica(replica.into())
            .with_records(Some(Vec::new().into()));
        let topic = FetchableTopicResponse::default()
            .with_topic_id(hex.parse().unwrap())
            .with_partitions(vec![fields]);
        let answer = FetchResponse::default().with_session_id(7).with_responses(vec![topic]);
        let mut frame = bytes::BytesMut::new();
        frame.put_i32(0);
        frame.put_i32(asked.correlation_id);
        frame.put_u8(0);
        answer.encode(&mut frame, asked.version).unwrap();
        let length = u32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        pair.deliver(slot, &frame);
        let expected = ("a-0".to_owned(), CursorFault::ReadFrom { broker: BrokerId(3) });
        assert_eq!(pair.faults(), vec![expected; faults]);
    }
}

#[test]
fn topic_without_id_cannot_be_fetched_by_id() {
    let mut pair = Pair::new();
    let _slot = pair.tail();
    let _partition = pair.assign_as("a", TopicId::ZERO, 0, 0);
    let fault = CursorFault::Broker { code: 100, hint: None };
    assert_eq!(pair.faults(), [("a-0".to_owned(), fault)]);
}

#[test]
fn faults_tell_what_helps() {
    let partition = TopicPartition { topic: "a".into(), partition: 0 };
    let full = || std::io::Error::from_raw_os_error(libc::ENOSPC);
    let error = AppendError::DiskFull { partition: partition.clone(), source: full() };
    assert!(matches!(fault_of(&error), CursorFault::DiskFull(_)));
    let error = AppendError::Io { partition, source: full() };
    assert!(matches!(fault_of(&error), CursorFault::Disk(_)));
}
