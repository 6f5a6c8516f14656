//! Record bytes on their way into segments.

use std::sync::{Arc, Mutex};

use storage::{LeaderEpoch, Log, Offset};

use super::pair::{BROKER, EPOCH, Pair, assert_stored, batch, batch_of, encode, told};
use crate::handle::{LogRepair, Resume};
use crate::ring::ReceiveInto;

/// Batches of about 200 KB each.
fn large(batches: i64) -> Vec<Vec<u8>> {
    (0..batches).map(|index| batch_of(index * 10, 10, EPOCH, 200_000)).collect()
}

#[test]
fn truncated_last_batch_is_kept_for_the_next_fetch() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let mut cut = [batch(0, 3), batch(3, 3)].concat();
    cut.truncate(cut.len() - 5);
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 6, cut), told(&b, 1, batch(0, 1))]);
    assert_eq!((a.log.log_end(), b.log.log_end()), (Offset(3), Offset(1)));
    let asked = pair.request(slot);
    assert_eq!(asked.partitions()[0].1.fetch_offset, 3);
    pair.answer(slot, &asked, vec![told(&a, 6, batch(3, 3))]);
    assert_stored(&a.log, &[batch(0, 3), batch(3, 3)].concat(), "");
}

#[test]
fn answers_land_the_same_in_pieces_of_any_size() {
    for piece_bytes in [1, 3, 61, 1000, usize::MAX] {
        let mut pair = Pair::new();
        pair.piece_bytes = piece_bytes;
        let slot = pair.tail();
        let partitions: Vec<_> = (0..3).map(|index| pair.assign("a", index)).collect();
        let asked = pair.request(slot);
        let answer = partitions
            .iter()
            .map(|partition| told(partition, 5, [batch(0, 2), batch(2, 3)].concat()))
            .collect();
        pair.answer(slot, &asked, answer);
        for partition in &partitions {
            assert_stored(&partition.log, &[batch(0, 2), batch(2, 3)].concat(), "");
        }
        assert_eq!(pair.engine.desk.tally.batches, 6, "pieces of {piece_bytes}");
    }
}

#[test]

fn large_records_are_received_into_the_segment() {
    for piece_bytes in [50_000, usize::MAX] {
        let mut pair = Pair::warm();
        pair.piece_bytes = piece_bytes;
        let slot = pair.tail();
        let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
        let batches = large(20);
        let asked = pair.request(slot);
        let answer = vec![told(&a, 200, batches.concat()), told(&b, 200, batches.concat())];
        pair.answer(slot, &asked, answer);
        assert_stored(&a.log, &batches.concat(), &format!("pieces of {piece_bytes}"));
        assert_stored(&b.log, &batches.concat(), &format!("pieces of {piece_bytes}"));
        let direct = pair.engine.desk.tally.bytes_direct;
        let all = 2 * batches.concat().len() as u64;
        assert!(direct > all * 8 / 10, "{direct} of {all} bytes");
    }
}

#[test]
fn truncated_large_batch_is_kept_for_the_next_fetch() {
    let mut pair = Pair::warm();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let batches = large(4);
    for round in 0..4 {
        let asked = pair.request(slot);
        let mut rest = batches[round..].concat();
        rest.truncate(batches[round].len() + 100_000);
        pair.answer(slot, &asked, vec![told(&a, 40, rest)]);
    }
    assert_stored(&a.log, &batches.concat(), "");
}

#[test]
fn records_of_a_parked_partition_are_dropped() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.request(slot);
    pair.engine.park(&a);
    pair.answer(slot, &asked, vec![told(&a, 3, batch(0, 3)), told(&b, 1, batch(0, 1))]);
    assert_eq!((a.log.log_end(), b.log.log_end()), (Offset(0), Offset(1)));
    assert_eq!(pair.engine.desk.tally.bytes_skipped, batch(0, 3).len() as u64);
}

#[test]
fn records_asked_for_before_a_repair_are_dropped_after_it() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 3, batch(0, 3))]);
    let asked = pair.request(slot);
    let repair = Some(LogRepair::ResetTo(Offset(100)));
    pair.engine.resume(&a, Resume { broker: BROKER, leader_epoch: EPOCH, repair });
    pair.answer(slot, &asked, vec![told(&a, 6, batch(3, 3))]);
    assert_eq!(a.log.log_end(), Offset(100));
    let asked = pair.request(slot);
    assert_eq!((asked.single().fetch_offset, asked.single().last_fetched_epoch), (100, -1));
    pair.answer(slot, &asked, vec![told(&a, 103, batch(100, 3))]);
    assert_stored(&a.log, &batch(100, 3), "");
}

#[test]
fn partition_nobody_knows_is_skipped() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.request(slot);
    pair.engine.take(&a, Box::new(|log| drop(log.unwrap().close())));
    pair.answer(slot, &asked, vec![told(&a, 3, batch(0, 3)), told(&b, 1, batch(0, 1))]);
    assert_eq!(b.log.log_end(), Offset(1));
    assert!(pair.events().is_empty());
    let asked = pair.request(slot);
    assert_eq!((asked.single().fetch_offset, asked.forgotten()), (1, 1));
}

#[test]
fn lane_lost_inside_a_record_leaves_neither_gap_nor_duplicate() {
    let batches = large(3);
    let records = batches.concat();
    for lost_at in [100, 150_000, 250_000, 450_000] {
        let mut pair = Pair::warm();
        let slot = pair.tail();
        let a = pair.assign("a", 0);
        let asked = pair.request(slot);
        let frame =
            encode(&asked, vec![told(&a, 30, records.clone())], &[], |head| head.session_id = 7);
        pair.deliver(slot, &frame[..lost_at]);
        let into = pair.engine.receive(slot).unwrap();
        pair.engine.received(slot, Ok(0), into, pair.moment);
        assert_eq!(pair.causes(), ["the source closed the connection"]);
        pair.engine.release(slot);

        let slot = pair.tail();
        let asked = pair.request(slot);
        let from = asked.single().fetch_offset;
        let rest = batches[usize::try_from(from / 10).unwrap()..].concat();
        pair.answer(slot, &asked, vec![told(&a, 30, rest)]);
        assert_stored(&a.log, &records, &format!("lost at {lost_at}"));
    }
}

/// Delivers the start of an answer with large records, up to a receive into the segment.
fn kernel_writes(pair: &mut Pair, slot: u32, frame: &[u8]) -> (ReceiveInto, usize) {
    let mut given = 0;
    loop {
        let into = pair.engine.receive(slot).unwrap();
        if let ReceiveInto::Tail { .. } = into {
            return (into, given);
        }
        let (into, count) = pair.fill(into, &frame[given..]);
        given += count;
        pair.engine.received(slot, Ok(count), into, pair.moment);
    }
}

type TakenLog = Arc<Mutex<Option<Option<Log>>>>;

fn take(pair: &mut Pair, partition: &Arc<crate::partition::Partition>) -> TakenLog {
    let taken = TakenLog::default();
    let into = taken.clone();
    pair.engine.take(partition, Box::new(move |log| *into.lock().unwrap() = Some(log)));
    taken
}

#[test]

fn log_is_given_away_only_when_the_kernel_let_go_of_it() {
    let mut pair = Pair::warm();
    let slot = pair.tail();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.request(slot);
    let records = large(3).concat();
    let answer = vec![told(&a, 30, records), told(&b, 1, batch(0, 1))];
    let frame = encode(&asked, answer, &[], |head| head.session_id = 7);
    let (into, given) = kernel_writes(&mut pair, slot, &frame);
    let end = a.log.log_end();
    let taken = take(&mut pair, &a);
    assert!(taken.lock().unwrap().is_none());
    assert_eq!(pair.engine.cancels, [slot]);
    let cancelled = std::io::Error::from_raw_os_error(libc::ECANCELED);
    pair.engine.received(slot, Err(cancelled), into, pair.moment);
    let log = taken.lock().unwrap().take().unwrap().unwrap();
    assert_eq!(log.reader().log_end(), end);
    // The stream goes on where it was: the rest of the records is dropped.
    pair.deliver(slot, &frame[given..]);
    assert_eq!(b.log.log_end(), Offset(1));
    assert!(pair.events().is_empty());
}

#[test]

fn repair_waits_until_the_kernel_let_go_of_the_log() {
    let mut pair = Pair::warm();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    let frame =
        encode(&asked, vec![told(&a, 30, large(3).concat())], &[], |head| head.session_id = 7);
    let (into, given) = kernel_writes(&mut pair, slot, &frame);
    let repair = Some(LogRepair::ResetTo(Offset(500)));
    pair.engine.resume(&a, Resume { broker: BROKER, leader_epoch: EPOCH, repair });
    assert!(a.log.log_end() < Offset(30));
    let (into, count) = pair.fill(into, &frame[given..]);
    pair.engine.received(slot, Ok(count), into, pair.moment);
    assert_eq!(a.log.log_end(), Offset(500));
    pair.deliver(slot, &frame[given + count..]);
    let asked = pair.request(slot);
    assert_eq!(asked.single().fetch_offset, 500);
    pair.answer(slot, &asked, vec![told(&a, 503, batch(500, 3))]);
    assert_stored(&a.log, &batch(500, 3), "");
}

#[test]

fn cursor_of_a_lane_lost_under_a_receive_waits_for_the_kernel() {
    let mut pair = Pair::warm();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    let batches = large(3);
    let frame =
        encode(&asked, vec![told(&a, 30, batches.concat())], &[], |head| head.session_id = 7);
    let (into, _) = kernel_writes(&mut pair, slot, &frame);
    pair.pass(std::time::Duration::from_secs(60));
    assert_eq!(pair.causes().len(), 1);
    let next = pair.tail();
    assert!(pair.requests(next).is_empty(), "the kernel may still write into the log");
    let cancelled = std::io::Error::from_raw_os_error(libc::ECANCELED);
    pair.engine.received(slot, Err(cancelled), into, pair.moment);
    pair.engine.release(slot);
    let asked = pair.request(next);
    let landed = usize::try_from(asked.single().fetch_offset / 10).unwrap();
    pair.answer(next, &asked, vec![told(&a, 30, batches[landed..].concat())]);
    assert_stored(&a.log, &batches.concat(), "");
}

#[test]
fn taking_what_is_not_here_gives_nothing() {
    let mut pair = Pair::new();
    let a = pair.assign("a", 0);
    assert!(take(&mut pair, &a).lock().unwrap().take().unwrap().is_some());
    assert!(take(&mut pair, &a).lock().unwrap().take().unwrap().is_none());
    assert_eq!(a.advertised_epoch(), LeaderEpoch(0));
}

#[test]
fn partition_parked_inside_its_records_keeps_whole_batches_only() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.request(slot);
    let records = [batch(0, 3), batch(3, 3), batch(6, 3)].concat();
    let answer = vec![told(&a, 9, records), told(&b, 1, batch(0, 1))];
    let frame = encode(&asked, answer, &[], |head| head.session_id = 7);
    let inside = 100 + batch(0, 3).len() + batch(3, 3).len() / 2;
    pair.deliver(slot, &frame[..inside]);
    assert_eq!(a.log.log_end(), Offset(3));
    pair.engine.park(&a);
    pair.resume(&a);
    pair.deliver(slot, &frame[inside..]);
    assert_eq!((a.log.log_end(), b.log.log_end()), (Offset(3), Offset(1)));
    let asked = pair.request(slot);
    assert_eq!(asked.partitions()[0].1.fetch_offset, 3);
    pair.answer(slot, &asked, vec![told(&a, 9, batch(3, 6))]);
    assert_stored(&a.log, &[batch(0, 3), batch(3, 6)].concat(), "");
}
