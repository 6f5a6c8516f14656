//! The life of a tail lane's session.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use storage::{LeaderEpoch, Offset};

use super::pair::{BROKER, EPOCH, Pair, batch, batch_of, told, told_by};
use crate::handle::{Event, LaneKind, Resume};
use crate::wire::TopicKey;

/// A lane with a session over two partitions, the first of which has 3 of 3 records.
fn open_session() -> (Pair, u32, [std::sync::Arc<crate::partition::Partition>; 2]) {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let partitions = [pair.assign("a", 0), pair.assign("b", 0)];
    let asked = pair.request(slot);
    let answer = vec![told(&partitions[0], 3, batch(0, 3)), told(&partitions[1], 0, Vec::new())];
    pair.answer(slot, &asked, answer);
    (pair, slot, partitions)
}

#[test]
fn session_opens_with_every_partition_and_goes_on_with_what_moved() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let (a, b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.request(slot);
    assert_eq!(asked.client_id, "longhaul-test");
    assert_eq!((asked.request.session_id, asked.request.session_epoch), (0, 0));
    assert_eq!(asked.partitions().len(), 2);
    assert_eq!(asked.partitions()[0].1.current_leader_epoch, EPOCH.0);
    assert_eq!(asked.partitions()[0].1.last_fetched_epoch, -1);
    assert!(pair.requests(slot).is_empty(), "one request of a session is out at a time");
    pair.answer(slot, &asked, vec![told(&a, 3, batch(0, 3)), told(&b, 0, Vec::new())]);

    let asked = pair.request(slot);
    assert_eq!((asked.request.session_id, asked.request.session_epoch), (7, 1));
    let partition = asked.single();
    assert_eq!((partition.fetch_offset, partition.last_fetched_epoch), (3, EPOCH.0));
    pair.answer(slot, &asked, Vec::new());

    let asked = pair.request(slot);
    assert_eq!((asked.request.session_id, asked.request.session_epoch), (7, 2));
    assert!(asked.partitions().is_empty());
    assert_eq!(a.log.log_end(), Offset(3));
}

#[test]
fn lost_session_is_opened_again_from_scratch_with_every_partition() {
    for code in [70, 71, 100, 103, 106] {
        let (mut pair, slot, [a, b]) = open_session();
        let asked = pair.request(slot);
        pair.answer_as(slot, &asked, Vec::new(), |head| head.error_code = code);
        let asked = pair.request(slot);
        assert_eq!((asked.request.session_id, asked.request.session_epoch), (0, 0), "{code}");
        let mut offsets: Vec<_> = asked.partitions().iter().map(|(_, p)| p.fetch_offset).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [0, 3], "{code}");
        pair.answer(slot, &asked, vec![told(&a, 5, batch(3, 2)), told(&b, 1, batch(0, 1))]);
        assert_eq!((a.log.log_end(), b.log.log_end()), (Offset(5), Offset(1)), "{code}");
        assert!(pair.events().is_empty(), "{code}");
    }
}

#[test]
fn session_refused_again_and_again_is_retried_more_slowly_and_then_given_up() {
    let (mut pair, slot, _) = open_session();
    for attempt in 1..=5 {
        let asked = pair.request(slot);
        pair.answer_as(slot, &asked, Vec::new(), |head| head.error_code = 71);
        if (2..5).contains(&attempt) {
            assert!(pair.requests(slot).is_empty(), "attempt {attempt} follows at once");
            pair.pass(Duration::from_secs(5));
        }
    }
    assert!(pair.engine.is_closed(slot));
    assert!(pair.causes()[0].contains("error 71"));
}

#[test]
fn other_refusal_closes_the_lane_and_cursors_go_on_with_the_next() {
    let (mut pair, slot, _) = open_session();
    let asked = pair.request(slot);
    pair.answer_as(slot, &asked, Vec::new(), |head| head.error_code = 31);
    assert_eq!(pair.causes(), ["the source refused the fetch with error 31"]);
    pair.engine.release(slot);
    let slot = pair.tail();
    let asked = pair.request(slot);
    assert_eq!((asked.request.session_id, asked.request.session_epoch), (0, 0));
    assert_eq!(asked.partitions()[0].1.fetch_offset, 3);
}

#[test]
fn source_without_room_for_a_session_is_asked_for_everything_each_time() {
    let (mut pair, slot, [a, b]) = open_session();
    let asked = pair.request(slot);
    pair.answer_as(slot, &asked, Vec::new(), |head| head.session_id = 0);
    for _ in 0..2 {
        let asked = pair.request(slot);
        assert_eq!((asked.request.session_id, asked.request.session_epoch), (0, 0));
        assert_eq!(asked.partitions().len(), 2);
        let answer = vec![told(&a, 3, Vec::new()), told(&b, 0, Vec::new())];
        pair.answer_as(slot, &asked, answer, |head| head.session_id = 0);
    }
}

#[test]
fn versions_without_sessions_start_at_another_partition_each_time() {
    let mut pair = Pair::new();
    let slot = pair.lane(LaneKind::Tail, 6);
    let partitions: Vec<_> = (0..3).map(|index| pair.assign("a", index)).collect();
    let mut first = HashSet::new();
    for _ in 0..3 {
        let asked = pair.request(slot);
        let order: Vec<_> = asked.partitions().iter().map(|(_, p)| p.partition).collect();
        assert_eq!(order.iter().collect::<HashSet<_>>().len(), 3);
        first.insert(order[0]);
        let name = TopicKey::Name("a".into());
        let told = (0..3).map(|index| told_by(name.clone(), index, 0, Vec::new())).collect();
        pair.answer(slot, &asked, told);
    }
    assert_eq!(first.len(), 3);
    assert_eq!(partitions[2].progress.source_high_watermark.load(Ordering::Relaxed), 0);
}

#[test]
fn empty_answer_keeps_the_last_fetched_epoch() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 2, batch_of(0, 2, LeaderEpoch(3), 10))]);
    let asked = pair.request(slot);
    assert_eq!(asked.single().last_fetched_epoch, 3);
    pair.answer(slot, &asked, vec![told(&a, 2, Vec::new())]);
    // A new session, so that the partition is named.
    let asked = pair.request(slot);
    pair.answer_as(slot, &asked, Vec::new(), |head| head.error_code = 70);
    assert_eq!(pair.request(slot).single().last_fetched_epoch, 3);
}

#[test]
fn throttled_empty_answer_delays_the_next_request_and_keeps_the_session() {
    let (mut pair, slot, _) = open_session();
    let asked = pair.request(slot);
    pair.answer_as(slot, &asked, Vec::new(), |head| {
        head.throttle_time_ms = 1000;
        head.session_id = 7;
    });
    match &pair.events()[..] {
        [Event::Throttled(_, pause)] => assert_eq!(*pause, Duration::from_secs(1)),
        other => panic!("{other:?}"),
    }
    pair.pass(Duration::from_millis(999));
    assert!(pair.requests(slot).is_empty());
    pair.pass(Duration::from_millis(1));
    let asked = pair.request(slot);
    assert_eq!((asked.request.session_id, asked.request.session_epoch), (7, 2));
    assert!(pair.events().is_empty());
}

#[test]
fn throttled_opening_answer_without_partitions_is_no_refusal() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let a = pair.assign("a", 0);
    for _ in 0..10 {
        let asked = pair.request(slot);
        assert_eq!(asked.request.session_epoch, 0);
        pair.answer_as(slot, &asked, Vec::new(), |head| head.throttle_time_ms = 100);
        pair.pass(Duration::from_millis(100));
    }
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 1, batch(0, 1))]);
    assert_eq!(a.log.log_end(), Offset(1));
    assert!(!pair.engine.is_closed(slot));
}

#[test]
fn opening_answer_that_leaves_a_partition_out_is_not_trusted() {
    let mut pair = Pair::new();
    let slot = pair.tail();
    let (a, _b) = (pair.assign("a", 0), pair.assign("b", 0));
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 0, Vec::new())]);
    let asked = pair.request(slot);
    assert_eq!((asked.request.session_id, asked.request.session_epoch), (0, 0));
    assert_eq!(asked.partitions().len(), 2);
}

#[test]
fn parked_partition_leaves_the_session_and_comes_back_when_resumed() {
    let (mut pair, slot, [a, _]) = open_session();
    pair.engine.park(&a);
    assert_eq!(a.progress.source_high_watermark.load(Ordering::Relaxed), -1);
    let asked = pair.request(slot);
    assert_eq!((asked.partitions().len(), asked.forgotten()), (0, 1));
    pair.answer(slot, &asked, Vec::new());
    pair.resume(&a);
    let asked = pair.request(slot);
    assert_eq!((asked.single().fetch_offset, asked.forgotten()), (3, 0));
}

#[test]
fn partition_parked_and_resumed_between_requests_is_not_forgotten() {
    // A broker adds before it forgets, so naming it in both would lose it.
    let (mut pair, slot, [a, _]) = open_session();
    pair.engine.park(&a);
    pair.resume(&a);
    let asked = pair.request(slot);
    assert_eq!((asked.single().fetch_offset, asked.forgotten()), (3, 0));
}

#[test]
fn new_leader_epoch_is_told_to_the_source_with_the_next_request() {
    let (mut pair, slot, [_, b]) = open_session();
    let asked = pair.request(slot);
    let newer = LeaderEpoch(EPOCH.0 + 1);
    pair.engine.resume(&b, Resume { broker: BROKER, leader_epoch: newer, repair: None });
    pair.answer(slot, &asked, Vec::new());
    assert_eq!(pair.request(slot).single().current_leader_epoch, newer.0);
}

#[test]
fn source_end_is_unknown_until_a_full_answer_told_it() {
    let mut pair = Pair::new();
    let a = pair.assign("a", 0);
    let end = || a.progress.source_high_watermark.load(Ordering::Relaxed);
    assert_eq!(end(), -1);
    let slot = pair.tail();
    let asked = pair.request(slot);
    pair.answer(slot, &asked, vec![told(&a, 4, batch(0, 4))]);
    assert_eq!(end(), 4);
    let asked = pair.request(slot);
    pair.answer_as(slot, &asked, Vec::new(), |head| head.error_code = 31);
    assert_eq!(end(), -1, "nobody asks any more");
}

#[test]
fn partitions_that_answers_leave_out_are_marked_as_heard_of() {
    let (mut pair, slot, [_, b]) = open_session();
    let heard = || b.progress.last_answer_ms.load(Ordering::Relaxed);
    let opened = heard();
    assert_eq!(opened, pair.moment.unix_ms);
    pair.pass(Duration::ZERO);
    for _ in 0..20 {
        pair.pass(Duration::from_millis(500));
        let asked = pair.request(slot);
        pair.answer(slot, &asked, Vec::new());
    }
    assert!(heard() >= opened + 5000, "{} after {opened}", heard());
}
