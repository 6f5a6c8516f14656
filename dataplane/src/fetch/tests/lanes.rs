//! Requests and answers in their order, and cursors that move between lanes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use storage::Offset;

use super::pair::{BROKER, EPOCH, Pair, assert_stored, batch, encode, settings, told};
use crate::handle::{Event, LaneKind, LogRepair, Resume};

#[test]
fn catch_up_lane_has_many_requests_out_each_for_another_cursor() {
    let mut pair = Pair::new();
    let slot = pair.catch_up();
    let partitions: Vec<_> = (0..6).map(|index| pair.assign("a", index)).collect();
    let asked = pair.requests(slot);
    assert_eq!(asked.len(), settings().requests_out_max);
    let of: Vec<_> = asked.iter().map(|asked| asked.single().partition).collect();
    assert_eq!(of, [0, 1, 2, 3]);
    for request in &asked {
        assert_eq!((request.request.session_id, request.request.session_epoch), (0, -1));
        assert_eq!(request.request.max_wait_ms, 0, "it must not hold up those behind it");
    }
    // Answers come in the order of the requests; each makes room for the next cursor in turn.
    pair.answer(slot, &asked[0], vec![told(&partitions[0], 1000, batch(0, 2))]);
    assert_eq!(pair.request(slot).single().partition, 4);
    pair.answer(slot, &asked[1], vec![told(&partitions[1], 1000, batch(0, 2))]);
    assert_eq!(pair.request(slot).single().partition, 5);
    pair.answer(slot, &asked[2], vec![told(&partitions[2], 1000, batch(0, 2))]);
    let next = pair.request(slot).single();
    assert_eq!((next.partition, next.fetch_offset), (0, 2));
}

#[test]
fn two_answers_in_one_receive_are_both_taken() {
    let mut pair = Pair::new();
    let slot = pair.catch_up();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.requests(slot);
    let mut bytes = encode(&asked[0], vec![told(&a, 1000, batch(0, 2))], &[], |_| {});
    bytes.extend(encode(&asked[1], vec![told(&b, 1000, batch(0, 3))], &[], |_| {}));
    pair.deliver(slot, &bytes);
    assert_eq!((a.log.log_end(), b.log.log_end()), (Offset(2), Offset(3)));
}

#[test]
fn answer_to_another_request_closes_the_lane() {
    let mut pair = Pair::new();
    let slot = pair.catch_up();
    let (_, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.requests(slot);
    pair.answer(slot, &asked[1], vec![told(&b, 1000, batch(0, 3))]);
    assert_eq!(pair.causes(), ["the source answered request 2 where 1 was due"]);
    assert_eq!(b.log.log_end(), Offset(0));
}

#[test]
fn answer_that_nobody_asked_for_closes_the_lane() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    pair.deliver(slot, &[0, 0, 0, 40, 1, 2, 3, 4]);
    assert_eq!(pair.causes(), ["the source sent an answer that was not asked for"]);
}

#[test]
fn malformed_answer_closes_the_lane() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    let mut frame = encode(&asked, vec![told(&a, 1, batch(0, 1))], &[], |_| {});
    // The number of topics.
    frame[4 + 4 + 1 + 4 + 2 + 4] = 0x7f;
    pair.deliver(slot, &frame);
    assert!(pair.causes()[0].starts_with("the source's answer cannot be read"));
}

#[test]
fn cursor_that_is_far_behind_moves_to_a_catch_up_lane_and_back() {
    let mut pair = Pair::new();
    let tail = pair.tail();
    let catch_up = pair.catch_up();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    assert!(pair.requests(catch_up).is_empty(), "nobody knows yet who is behind");
    let asked = pair.request(tail);
    pair.answer(tail, &asked, vec![told(&a, 1000, batch(0, 2)), told(&b, 3, batch(0, 3))]);

    let asked = pair.request(tail);
    assert_eq!((asked.single().fetch_offset, asked.forgotten()), (3, 1));
    let caught = pair.request(catch_up);
    assert_eq!(caught.single().fetch_offset, 2);
    pair.answer(catch_up, &caught, vec![told(&a, 1000, batch(2, 900))]);
    let caught = pair.request(catch_up);
    assert_eq!(caught.single().fetch_offset, 902, "between the two thresholds it stays");
    pair.answer(catch_up, &caught, vec![told(&a, 1000, batch(902, 98))]);

    assert!(pair.requests(catch_up).is_empty());
    pair.answer(tail, &asked, Vec::new());
    let asked = pair.request(tail);
    assert_eq!((asked.single().fetch_offset, asked.forgotten()), (1000, 0));
    assert_stored(&a.log, &[batch(0, 2), batch(2, 900), batch(902, 98)].concat(), "");
}

#[test]
fn tail_lane_serves_cursors_behind_when_it_is_alone() {
    let mut pair = Pair::new();
    let tail = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(tail);
    pair.answer(tail, &asked, vec![told(&a, 1000, batch(0, 2))]);
    let asked = pair.request(tail);
    assert_eq!(asked.single().fetch_offset, 2);
}

#[test]
fn cursors_spread_over_catch_up_lanes_and_leave_a_lost_one() {
    let mut pair = Pair::new();
    let tail = pair.tail();
    let lanes = [pair.catch_up(), pair.catch_up()];
    let partitions: Vec<_> = (0..4).map(|index| pair.assign("a", index)).collect();
    let asked = pair.request(tail);
    let behind = partitions.iter().map(|partition| told(partition, 1000, batch(0, 2))).collect();
    pair.answer(tail, &asked, behind);
    let asked: Vec<_> = lanes.iter().map(|lane| pair.requests(*lane)).collect();
    assert_eq!((asked[0].len(), asked[1].len()), (2, 2));
    pair.deliver(lanes[0], &[0xff; 4]);
    assert_eq!(pair.causes(), ["the source announced an answer of -1 bytes"]);
    assert_eq!(pair.requests(lanes[1]).len(), 2, "the other lane takes them over");
    for partition in &partitions {
        assert_eq!(partition.progress.source_high_watermark.load(Ordering::Relaxed), 1000);
    }
}

#[test]
fn throttled_catch_up_answer_without_partitions_is_asked_again() {
    let mut pair = Pair::new();
    let slot = pair.catch_up();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    pair.answer_as(slot, &asked, Vec::new(), |head| head.throttle_time_ms = 300);
    assert!(pair.requests(slot).is_empty());
    pair.pass(Duration::from_millis(300));
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 1000, batch(0, 2))]);
    assert_eq!(a.log.log_end(), Offset(2));
}

#[test]
fn silent_source_loses_its_lane_after_the_long_poll_and_the_timeout() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let _a = pair.assign("a", 0);
    let _asked = pair.request(slot);
    let limit = settings().fetch_wait_max + settings().answer_timeout;
    assert!(pair.engine.deadline().unwrap() <= pair.moment.now + limit);
    pair.pass(limit - Duration::from_millis(1));
    assert!(pair.causes().is_empty());
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.causes(), ["no answer for 30.5 seconds"]);
}

#[test]
fn source_that_sends_slowly_is_not_silent() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    let frame = encode(&asked, vec![told(&a, 3, batch(0, 3))], &[], |head| head.session_id = 7);
    for piece in frame.chunks(20) {
        pair.pass(Duration::from_secs(20));
        pair.deliver(slot, piece);
    }
    assert!(pair.causes().is_empty());
    assert_eq!(a.log.log_end(), Offset(3));
}

#[test]
fn lane_without_members_asks_nothing_and_may_stay_silent() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    assert!(pair.requests(slot).is_empty());
    pair.pass(Duration::from_secs(3600));
    assert!(!pair.engine.is_closed(slot));
}

#[test]
fn unknown_version_closes_the_lane_at_once() {
    let mut pair = Pair::new();
    let _slot = pair.lane(LaneKind::Tail, 3);
    assert_eq!(pair.causes(), ["Fetch version 3 is none of ours"]);
}

#[test]
fn settings_change_while_the_link_runs() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    assert_eq!(asked.single().max_bytes, 1 << 20);
    pair.answer(slot, &asked, vec![told(&a, 1, batch(0, 1))]);
    let mut changed = settings();
    changed.partition_bytes_max = 4096;
    changed.rack = "r1".into();
    pair.engine.set_link(super::pair::LINK, changed);
    let asked = pair.request(slot);
    assert_eq!((asked.single().max_bytes, asked.request.rack_id.as_str()), (4096, "r1"));
}

#[test]
fn idle_partitions_cost_nothing_per_answer() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let partitions: Vec<_> = (0..300).map(|index| pair.assign("a", index)).collect();
    let asked = pair.request(slot);
    assert_eq!(asked.partitions().len(), 300);
    let answer = partitions.iter().map(|partition| told(partition, 0, Vec::new())).collect();
    pair.answer(slot, &asked, answer);
    for round in 0..3 {
        let asked = pair.request(slot);
        assert!(asked.partitions().len() <= 1, "{}", asked.partitions().len());
        let busy = &partitions[17];
        pair.answer(slot, &asked, vec![told(busy, round + 1, batch(round, 1))]);
    }
    assert_eq!(pair.request(slot).single().partition, 17);
    assert!(!pair.events().iter().any(|event| matches!(event, Event::Fault(_))));
}

#[test]
fn answer_to_a_request_from_before_a_repair_is_not_taken_for_the_next_ones() {
    let mut pair = Pair::new();
    let slot = pair.catch_up();
    let a = pair.assign("a", 0);
    let stale = pair.request(slot);
    let repair = Some(LogRepair::ResetTo(Offset(500)));
    pair.engine.resume(&a, Resume { broker: BROKER, leader_epoch: EPOCH, repair });
    let asked = pair.request(slot);
    assert_eq!(asked.single().fetch_offset, 500);
    // Its records would fit behind the new end.
    pair.answer(slot, &stale, vec![told(&a, 1000, batch(500, 7))]);
    assert_eq!(a.log.log_end(), Offset(500));
    pair.answer(slot, &asked, vec![told(&a, 1000, batch(500, 3))]);
    assert_stored(&a.log, &batch(500, 3), "");
}

#[test]
fn throttle_time_is_no_silence_of_the_answers_behind_it() {
    let mut pair = Pair::new();
    let slot = pair.catch_up();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.requests(slot);
    pair.answer_as(slot, &asked[0], vec![told(&a, 1000, batch(0, 2))], |head| {
        head.throttle_time_ms = 60_000;
    });
    pair.pass(Duration::from_secs(80));
    assert!(pair.causes().is_empty());
    pair.answer(slot, &asked[1], vec![told(&b, 1000, batch(0, 2))]);
    assert_eq!(b.log.log_end(), Offset(2));
}

#[test]
fn idle_cursor_is_small() {
    // The node's budget is 8 KiB a partition, storage and lookups included.
    let bytes = size_of::<super::super::cursor::Cursor>();
    assert!(bytes <= 1024, "{bytes} bytes");
}
