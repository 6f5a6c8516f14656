use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn leader(broker: i32, epoch: i32) -> Option<Leader> {
    Some(Leader { broker, epoch: LeaderEpoch(epoch) })
}

fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(100), Duration::from_secs(300), 1)
}

/// A partition that mirrors from broker 1 in epoch 5.
fn running(now: Instant) -> Machine {
    let mut machine = Machine::new();
    machine.leader_is(leader(1, 5));
    machine.ask().unwrap();
    machine.runs(now);
    machine
}

#[test]
fn a_new_partition_is_aligned_before_it_mirrors() {
    let now = Instant::now();
    let mut machine = Machine::new();
    assert_eq!(machine.shown(Offset(0), now).state, "FAILED");
    assert_eq!(machine.ask(), None, "nobody to ask");
    assert!(!machine.leader_is(leader(1, 5)));
    let (asked, question) = machine.ask().unwrap();
    assert_eq!(Some(asked), leader(1, 5));
    assert_eq!(machine.shown(Offset(0), now).state, "LOG_ALIGNMENT");
    assert!(machine.expects(question) && !machine.expects(question + 1));
    machine.runs(now);
    assert!(!machine.expects(question), "an answer counts once");
    assert_eq!(machine.shown(Offset(0), now).state, "MIRRORING");
}

#[test]
fn a_new_leader_parks_the_cursor_and_aligns_again() {
    let mut machine = running(Instant::now());
    assert!(!machine.leader_is(leader(1, 5)));
    assert!(machine.leader_is(leader(2, 6)));
    assert_eq!(machine.phase(), Phase::Align);
    assert_eq!(machine.ask().unwrap().0.broker, 2);
}

#[test]
fn news_of_an_older_epoch_are_stale() {
    let mut machine = running(Instant::now());
    assert!(!machine.leader_is(leader(2, 4)));
    assert_eq!(machine.leader(), leader(1, 5));
}

#[test]
fn an_older_epoch_that_stays_is_aligned_where_no_topic_id_could_tell() {
    let mut machine = running(Instant::now());
    for look in 1..=FALLEN_LOOKS {
        let fallen = leader(1, 0).unwrap();
        machine.epoch_fell(fallen);
        assert_eq!(machine.leader_is(Some(fallen)), look == FALLEN_LOOKS);
    }
    assert_eq!((machine.phase(), machine.leader()), (Phase::Align, leader(1, 0)));
    // A look in between that agrees starts the count anew.
    let mut machine = running(Instant::now());
    for epoch in [0, 0, 5, 0, 0] {
        machine.epoch_fell(leader(1, epoch).unwrap());
        machine.leader_is(leader(1, epoch));
    }
    assert_eq!(machine.leader(), leader(1, 5));
}

#[test]
fn a_leader_that_changes_under_the_question_makes_its_answer_stale() {
    let mut machine = Machine::new();
    machine.leader_is(leader(1, 5));
    let (_, question) = machine.ask().unwrap();
    machine.leader_is(leader(2, 6));
    assert!(!machine.expects(question));
    let (_, second) = machine.ask().unwrap();
    assert!(machine.expects(second) && !machine.expects(question));
}

#[test]
fn a_leader_fault_waits_shortly_and_ends_with_a_new_leader() {
    let now = Instant::now();
    let mut machine = running(now);
    machine.fails(FaultClass::Leader, "NOT_LEADER", Offset(9), now, &mut backoff());
    let shown = machine.shown(Offset(9), now);
    assert_eq!((shown.state, shown.attempts), ("FAILED", 1));
    assert_eq!(shown.message.as_deref(), Some("NOT_LEADER"));
    assert!(machine.due_at().unwrap() <= now + Duration::from_millis(120));
    assert!(!machine.leader_is(leader(2, 6)), "its cursor is parked already");
    assert_eq!(machine.phase(), Phase::Align);
}

#[test]
fn waiting_ends_in_time_and_asks_for_metadata_only_when_the_leader_is_in_doubt() {
    let now = Instant::now();
    for (class, refreshes) in
        [(FaultClass::Leader, true), (FaultClass::Unreachable, true), (FaultClass::Retry, false)]
    {
        let mut machine = running(now);
        machine.fails(class, "x", Offset(0), now, &mut backoff());
        let at = machine.due_at().unwrap();
        assert!(!machine.due(now));
        assert!(matches!(machine.phase(), Phase::Waiting { .. }));
        assert_eq!(machine.due(at), refreshes);
        assert_eq!(machine.phase(), Phase::Align);
    }
}

#[test]
fn a_fault_that_repeats_without_progress_waits_longer_each_time() {
    let mut now = Instant::now();
    let mut backoff = backoff();
    let mut machine = running(now);
    for attempt in 1..=30 {
        machine.fails(FaultClass::Retry, "bad batch", Offset(9), now, &mut backoff);
        assert_eq!(machine.shown(Offset(9), now).attempts, attempt);
        now = machine.due_at().unwrap();
        machine.due(now);
        machine.ask().unwrap();
        machine.runs(now);
        let shown = machine.shown(Offset(9), now);
        assert_eq!((shown.state, shown.message.is_some()), ("MIRRORING", true), "not yet proven");
    }
    machine.fails(FaultClass::Retry, "bad batch", Offset(9), now, &mut backoff);
    assert!(machine.due_at().unwrap() - now > Duration::from_secs(200));
    // Progress, or a while without a fault, starts the count anew.
    machine.restart();
    machine.ask().unwrap();
    machine.runs(now);
    machine.fails(FaultClass::Retry, "other", Offset(10), now, &mut backoff);
    assert_eq!(machine.shown(Offset(10), now).attempts, 1);
    machine.due(now + SECOND);
    machine.ask().unwrap();
    machine.runs(now);
    now += SETTLED_AFTER;
    assert_eq!(machine.shown(Offset(10), now).message, None);
    machine.fails(FaultClass::Retry, "other", Offset(10), now, &mut backoff);
    assert_eq!(machine.shown(Offset(10), now).attempts, 1);
}

#[test]
fn an_absent_leader_is_looked_for_at_least_every_half_minute() {
    let now = Instant::now();
    let mut machine = running(now);
    for _ in 0..40 {
        machine.fails(FaultClass::Leader, "x", Offset(0), now, &mut backoff());
    }
    assert!(machine.due_at().unwrap() - now <= Duration::from_secs(36));
}

#[test]
fn the_first_position_fault_is_aligned_at_once_and_a_second_waits() {
    let now = Instant::now();
    let mut machine = running(now);
    machine.fails(FaultClass::Position, "out of range", Offset(0), now, &mut backoff());
    assert_eq!(machine.phase(), Phase::Align);
    machine.ask().unwrap();
    machine.runs(now);
    machine.fails(FaultClass::Position, "out of range", Offset(0), now, &mut backoff());
    assert!(matches!(machine.phase(), Phase::Waiting { .. }));
}

#[test]
fn a_broker_that_is_reached_again_ends_the_wait_for_it_only() {
    let now = Instant::now();
    let mut machine = running(now);
    machine.fails(FaultClass::Unreachable, "refused", Offset(0), now, &mut backoff());
    machine.reached(2);
    assert!(matches!(machine.phase(), Phase::Waiting { .. }));
    machine.reached(1);
    assert_eq!(machine.phase(), Phase::Align);
}

#[test]
fn stopped_stays_stopped_whatever_happens_until_an_operator_restarts_it() {
    let now = Instant::now();
    let mut machine = running(now);
    machine.stop("recreated");
    machine.leader_is(leader(7, 9));
    machine.fails(FaultClass::Retry, "late", Offset(0), now, &mut backoff());
    machine.due(now + 1000 * SECOND);
    machine.reached(7);
    assert_eq!(machine.ask(), None);
    let shown = machine.shown(Offset(0), now);
    assert_eq!((shown.state, shown.attempts), ("FAILED", -1));
    assert_eq!(shown.message.as_deref(), Some("recreated"));
    machine.restart();
    assert!(machine.ask().is_some());
}
