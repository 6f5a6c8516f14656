use bytes::Bytes;

use super::*;
use crate::admin::KafkaError;

pub(super) const LIMITS: Limits = Limits {
    session_timeout_min_ms: 1_000,
    session_timeout_max_ms: 60_000,
    initial_rebalance_delay_ms: 0,
    members_max: 10,
    group_bytes_max: 1_000,
};

pub(super) fn request(member_id: &str, fresh: &str) -> JoinRequest {
    JoinRequest {
        member_id: member_id.into(),
        fresh_member_id: fresh.into(),
        instance_id: None,
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Bytes::from_static(b"topics"))],
        knows_member_id_required: false,
        knows_skip_assignment: false,
    }
}

/// A group with a clock that the test moves, and answers by token.
struct Scene {
    group: Group,
    now: Millis,
    next_token: u64,
}

impl Scene {
    fn new(limits: Limits) -> Self {
        Self { group: Group::new(limits), now: 1_000, next_token: 0 }
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    fn join(&mut self, request: JoinRequest) -> Token {
        let token = self.token();
        self.group.join(request, token, self.now);
        token
    }

    fn sync(&mut self, member_id: &str, assignments: &[(&str, &'static str)]) -> Token {
        let token = self.token();
        let request = SyncRequest {
            member_id: member_id.into(),
            instance_id: None,
            generation: self.group.generation(),
            protocol_type: Some("consumer".into()),
            protocol: None,
            assignments: assignments
                .iter()
                .map(|(member, assignment)| {
                    ((*member).into(), Bytes::from_static(assignment.as_bytes()))
                })
                .collect(),
        };
        self.group.sync(request, token, self.now);
        token
    }

    fn pass(&mut self, ms: Millis) {
        let until = self.now + ms;
        while let Some(deadline) = self.group.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(deadline);
            self.group.tick(self.now);
        }
        self.now = until;
    }

    fn heartbeat(&mut self, member_id: &str) -> KafkaError {
        let generation = self.group.generation();
        let identity = MemberIdentity { member_id, instance_id: None };
        self.group.heartbeat(identity, generation, self.now)
    }

    fn leave(&mut self, member_id: &str) -> KafkaError {
        self.group.leave(MemberIdentity { member_id, instance_id: None }, self.now)
    }

    fn joined(&mut self, token: Token) -> JoinAnswer {
        let position = self.position(token);
        match self.group.answers.remove(position) {
            Answer::Join(_, answer) => answer,
            Answer::Sync(..) => panic!("a sync's answer"),
        }
    }

    fn synced(&mut self, token: Token) -> SyncAnswer {
        let position = self.position(token);
        match self.group.answers.remove(position) {
            Answer::Sync(_, answer) => answer,
            Answer::Join(..) => panic!("a join's answer"),
        }
    }

    fn waits(&self, token: Token) -> bool {
        !self.group.answers.iter().any(|answer| of(answer) == token)
    }

    fn position(&self, token: Token) -> usize {
        let mut answers = self.group.answers.iter();
        answers.position(|answer| of(answer) == token).expect("no answer yet")
    }

    /// Two members, `a` leading, assigned and stable.
    fn stable_pair() -> Self {
        let mut scene = Self::new(LIMITS);
        let first = scene.join(request("", "a"));
        assert_eq!(scene.joined(first).leader, "a");
        let second = scene.join(request("", "b"));
        let again = scene.join(request("a", ""));
        let (b, a) = (scene.joined(second), scene.joined(again));
        assert_eq!((a.generation, b.generation), (2, 2));
        assert_eq!((a.members.len(), b.members.len()), (2, 0));
        let (b, a) = (scene.sync("b", &[]), scene.sync("a", &[("a", "0"), ("b", "1")]));
        assert_eq!(scene.synced(a).assignment, "0");
        assert_eq!(scene.synced(b).assignment, "1");
        assert_eq!(scene.group.state(), GroupState::Stable);
        scene
    }
}

fn of(answer: &Answer) -> Token {
    match answer {
        Answer::Join(token, _) | Answer::Sync(token, _) => *token,
    }
}

#[test]
fn a_single_member_joins_leads_and_is_assigned() {
    let mut scene = Scene::new(LIMITS);
    let token = scene.join(request("", "a"));
    let answer = scene.joined(token);
    assert_eq!(answer.error, KafkaError::NONE);
    assert_eq!((answer.generation, answer.leader.as_str()), (1, "a"));
    assert_eq!(answer.protocol.as_deref(), Some("range"));
    assert_eq!(answer.members[0].metadata, "topics");
    let token = scene.sync("a", &[("a", "all")]);
    assert_eq!(scene.synced(token).assignment, "all");
    assert!(scene.group.take_changed());
    assert_eq!(scene.heartbeat("a"), KafkaError::NONE);
}

#[test]
fn a_newcomer_makes_the_others_join_again() {
    let mut scene = Scene::stable_pair();
    let newcomer = scene.join(request("", "c"));
    assert!(scene.waits(newcomer));
    assert_eq!(scene.heartbeat("a"), KafkaError::REBALANCE_IN_PROGRESS);
    let a = scene.join(request("a", ""));
    let b = scene.join(request("b", ""));
    assert_eq!(scene.joined(newcomer).generation, 3);
    assert_eq!(scene.joined(a).members.len(), 3);
    assert_eq!(scene.joined(b).members.len(), 0);
}

#[test]
fn members_that_do_not_join_in_time_are_left_behind() {
    let mut scene = Scene::stable_pair();
    let newcomer = scene.join(request("", "c"));
    for _ in 0..6 {
        scene.pass(4_900);
        let _ = (scene.heartbeat("a"), scene.heartbeat("b"));
    }
    assert!(scene.waits(newcomer));
    scene.pass(700);
    let answer = scene.joined(newcomer);
    assert_eq!((answer.generation, answer.leader.as_str()), (3, "c"));
    assert_eq!(answer.members.len(), 1);
    assert_eq!(scene.heartbeat("a"), KafkaError::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_session_without_heartbeats_ends_and_the_others_share() {
    let mut scene = Scene::stable_pair();
    scene.pass(9_000);
    assert_eq!(scene.heartbeat("a"), KafkaError::NONE);
    scene.pass(1_000);
    assert_eq!(scene.heartbeat("a"), KafkaError::REBALANCE_IN_PROGRESS);
    assert_eq!(scene.heartbeat("b"), KafkaError::UNKNOWN_MEMBER_ID);
    let again = scene.join(request("a", ""));
    assert_eq!(scene.joined(again).members.len(), 1);
}

#[test]
fn the_last_member_to_leave_leaves_an_empty_group_of_a_new_generation() {
    let mut scene = Scene::stable_pair();
    assert_eq!(scene.leave("a"), KafkaError::NONE);
    assert_eq!(scene.leave("a"), KafkaError::UNKNOWN_MEMBER_ID);
    assert!(matches!(scene.group.state(), GroupState::Preparing { .. }));
    assert_eq!(scene.leave("b"), KafkaError::NONE);
    assert_eq!(scene.group.state(), GroupState::Empty);
    assert_eq!(scene.group.generation(), 3);
    assert!(scene.group.is_vacant());
    assert_eq!(scene.group.next_deadline(), None);
}

#[test]
fn a_leader_that_never_assigns_is_removed_and_the_others_go_on() {
    let mut scene = Scene::new(LIMITS);
    let _ = scene.join(request("", "a"));
    let second = scene.join(request("", "b"));
    let _ = scene.join(request("a", ""));
    assert_eq!(scene.joined(second).leader, "a");
    let sync = scene.sync("b", &[]);
    for _ in 0..5 {
        scene.pass(5_000);
        let _ = scene.heartbeat("a");
    }
    assert!(scene.waits(sync));
    scene.pass(5_000);
    assert_eq!(scene.synced(sync).error, KafkaError::REBALANCE_IN_PROGRESS);
    let again = scene.join(request("b", ""));
    assert_eq!(scene.joined(again).leader, "b");
    assert_eq!(scene.heartbeat("a"), KafkaError::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_client_that_knows_how_joins_with_the_id_it_is_given() {
    let mut scene = Scene::new(LIMITS);
    let mut first = request("", "a");
    first.knows_member_id_required = true;
    let token = scene.join(first);
    let answer = scene.joined(token);
    assert_eq!(answer.error, KafkaError::MEMBER_ID_REQUIRED);
    assert_eq!(answer.member_id, "a");
    assert!(!scene.group.is_vacant());
    let token = scene.join(request("a", ""));
    assert_eq!(scene.joined(token).error, KafkaError::NONE);
    // An id that nobody was given, or whose time is over, is not known.
    let token = scene.join(request("x", ""));
    assert_eq!(scene.joined(token).error, KafkaError::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_promised_id_holds_up_a_rebalance_only_for_its_session() {
    let mut scene = Scene::stable_pair();
    let mut promised = request("", "c");
    promised.knows_member_id_required = true;
    let _ = scene.join(promised);
    let mut changed = request("a", "");
    changed.protocols[0].1 = Bytes::from_static(b"other topics");
    let a = scene.join(changed);
    let b = scene.join(request("b", ""));
    assert!(scene.waits(a) && scene.waits(b));
    scene.pass(10_000);
    assert_eq!(scene.joined(a).members.len(), 2);
    assert_eq!(scene.joined(b).error, KafkaError::NONE);
}

#[test]
fn an_empty_group_waits_for_more_members_but_not_for_ever() {
    let mut scene = Scene::new(Limits { initial_rebalance_delay_ms: 3_000, ..LIMITS });
    let mut tokens = vec![scene.join(request("", "m0"))];
    for number in 1..10 {
        scene.pass(2_999);
        tokens.push(scene.join(request("", &format!("m{number}"))));
    }
    assert!(scene.waits(tokens[0]));
    // The wait is drawn out by newcomers, up to the rebalance timeout of 30 s.
    scene.pass(3_008);
    assert!(scene.waits(tokens[0]));
    scene.pass(1);
    let answer = scene.joined(tokens[0]);
    assert_eq!((answer.generation, answer.members.len()), (1, 10));
}

#[test]
fn members_without_a_common_protocol_are_refused() {
    let mut scene = Scene::stable_pair();
    let mut other = request("", "c");
    other.protocols = vec![("sticky".into(), Bytes::new())];
    let token = scene.join(other);
    assert_eq!(scene.joined(token).error, KafkaError::INCONSISTENT_GROUP_PROTOCOL);
    let mut other = request("", "c");
    other.protocol_type = "connect".into();
    let token = scene.join(other);
    assert_eq!(scene.joined(token).error, KafkaError::INCONSISTENT_GROUP_PROTOCOL);
    let mut other = request("", "c");
    other.protocols = Vec::new();
    let token = scene.join(other);
    assert_eq!(scene.joined(token).error, KafkaError::INCONSISTENT_GROUP_PROTOCOL);
    assert_eq!(scene.group.state(), GroupState::Stable);
}

#[test]
fn the_protocol_is_one_that_all_speak_and_most_prefer() {
    let mut scene = Scene::new(Limits { initial_rebalance_delay_ms: 100, ..LIMITS });
    let lists: [&[&str]; 3] = [&["x", "b", "a"], &["b", "a"], &["a", "b"]];
    for (number, names) in lists.iter().enumerate() {
        let mut join = request("", &format!("m{number}"));
        join.protocols = names.iter().map(|name| ((*name).into(), Bytes::new())).collect();
        let _ = scene.join(join);
    }
    scene.pass(100);
    scene.pass(100);
    assert_eq!(scene.group.protocol(), Some("b"));
}

#[test]
fn bounds_are_kept() {
    let mut scene = Scene::new(Limits { members_max: 2, ..LIMITS });
    for (timeout, expected) in [(999, 26), (60_001, 26), (60_000, 0)] {
        let mut join = request("", "a");
        join.session_timeout_ms = timeout;
        let token = scene.join(join);
        assert_eq!(scene.joined(token).error.code, expected);
    }
    let mut large = request("", "b");
    large.protocols[0].1 = Bytes::from(vec![0; 1_000]);
    let token = scene.join(large);
    assert_eq!(scene.joined(token).error, KafkaError::GROUP_MAX_SIZE_REACHED);
    let _ = scene.join(request("", "b"));
    let token = scene.join(request("", "c"));
    assert_eq!(scene.joined(token).error, KafkaError::GROUP_MAX_SIZE_REACHED);
}

fn static_request(instance_id: &str, member_id: &str, fresh: &str) -> JoinRequest {
    JoinRequest { instance_id: Some(instance_id.into()), ..request(member_id, fresh) }
}

#[test]
fn a_restarted_static_member_gets_its_assignment_back_without_a_rebalance() {
    let mut scene = Scene::new(LIMITS);
    let token = scene.join(static_request("i1", "", "i1-x"));
    assert_eq!(scene.joined(token).leader, "i1-x");
    let token = scene.sync("i1-x", &[("i1-x", "all")]);
    let _ = scene.synced(token);
    let _ = scene.group.take_changed();

    // A client that cannot be told to skip is shown its former self as leader.
    let token = scene.join(static_request("i1", "", "i1-y"));
    let answer = scene.joined(token);
    assert_eq!((answer.generation, answer.member_id.as_str()), (1, "i1-y"));
    assert_eq!((answer.leader.as_str(), answer.members.len()), ("i1-x", 0));
    assert!(scene.group.take_changed());
    let token = scene.sync("i1-y", &[]);
    assert_eq!(scene.synced(token).assignment, "all");

    // One that can be told leads, and skips.
    let mut join = static_request("i1", "", "i1-z");
    join.knows_skip_assignment = true;
    let token = scene.join(join);
    let answer = scene.joined(token);
    assert_eq!(answer.leader, "i1-z");
    assert!(answer.skip_assignment);

    // The former self is fenced.
    let former = MemberIdentity { member_id: "i1-x", instance_id: Some("i1") };
    assert_eq!(scene.group.heartbeat(former, 1, scene.now), KafkaError::FENCED_INSTANCE_ID);
    let token = scene.join(static_request("i1", "i1-y", ""));
    assert_eq!(scene.joined(token).error, KafkaError::FENCED_INSTANCE_ID);
}

#[test]
fn a_static_member_may_miss_a_rebalance_but_not_its_session() {
    let mut scene = Scene::new(LIMITS);
    let mut join = static_request("i1", "", "s");
    join.session_timeout_ms = 50_000;
    let _ = scene.join(join);
    let d = scene.join(request("", "d"));
    scene.pass(30_000);
    // The leader was the absent static member: another one leads.
    assert_eq!(scene.joined(d).leader, "d");
    let _ = scene.sync("d", &[("d", "all")]);
    assert!(scene.group.members().any(|member| member.id == "s"));
    let _ = scene.heartbeat("d");
    scene.pass(9_000);
    let _ = scene.heartbeat("d");
    scene.pass(9_000);
    let _ = scene.heartbeat("d");
    scene.pass(3_000);
    assert!(!scene.group.members().any(|member| member.id == "s"));
}

#[test]
fn a_static_member_that_comes_back_while_others_join_fences_its_waiting_self() {
    let mut scene = Scene::stable_pair();
    let waiting = scene.join(static_request("i1", "", "s1"));
    let back = scene.join(static_request("i1", "", "s2"));
    assert_eq!(scene.joined(waiting).error, KafkaError::FENCED_INSTANCE_ID);
    let _ = (scene.join(request("a", "")), scene.join(request("b", "")));
    assert_eq!(scene.joined(back).member_id, "s2");
}

#[test]
fn a_lost_answer_is_given_again_without_a_rebalance() {
    let mut scene = Scene::stable_pair();
    let again = scene.join(request("b", ""));
    let answer = scene.joined(again);
    assert_eq!((answer.generation, answer.leader.as_str()), (2, "a"));
    let token = scene.sync("b", &[]);
    assert_eq!(scene.synced(token).assignment, "1");
}

#[test]
fn a_leader_that_joins_again_wants_a_new_assignment() {
    let mut scene = Scene::stable_pair();
    let again = scene.join(request("a", ""));
    assert!(scene.waits(again));
    assert_eq!(scene.heartbeat("b"), KafkaError::REBALANCE_IN_PROGRESS);
}

#[test]
fn commits_are_for_the_current_generation_or_an_empty_group() {
    let mut scene = Scene::stable_pair();
    let mut commit = |member_id, generation| {
        let identity = MemberIdentity { member_id, instance_id: None };
        scene.group.may_commit(identity, generation, scene.now)
    };
    assert_eq!(commit("a", 2), KafkaError::NONE);
    assert_eq!(commit("a", 1), KafkaError::ILLEGAL_GENERATION);
    assert_eq!(commit("x", 2), KafkaError::UNKNOWN_MEMBER_ID);
    assert_eq!(commit("", -1), KafkaError::UNKNOWN_MEMBER_ID);
    let _ = (scene.leave("a"), scene.leave("b"));
    let nobody = MemberIdentity { member_id: "", instance_id: None };
    assert_eq!(scene.group.may_commit(nobody, -1, scene.now), KafkaError::NONE);
    let former = MemberIdentity { member_id: "a", instance_id: None };
    assert_eq!(scene.group.may_commit(former, 2, scene.now), KafkaError::UNKNOWN_MEMBER_ID);
}

#[test]
fn commits_wait_while_a_generation_has_no_assignment() {
    let mut scene = Scene::new(LIMITS);
    let _ = scene.join(request("", "a"));
    let a = MemberIdentity { member_id: "a", instance_id: None };
    assert_eq!(scene.group.may_commit(a, 1, scene.now), KafkaError::REBALANCE_IN_PROGRESS);
}

#[test]
fn a_restored_group_goes_on_where_it_was() {
    let protocol = ("range".into(), Bytes::from_static(b"topics"));
    let mut member = Member::kept("a".into(), protocol, (10_000, 30_000), 1_000);
    member.assignment = Bytes::from_static(b"all");
    let group = Group::restored(
        LIMITS,
        7,
        (Some("consumer".into()), Some("range".into())),
        Some("gone".into()),
        vec![member],
    );
    let mut scene = Scene { group, now: 1_000, next_token: 0 };
    assert_eq!(scene.group.leader(), Some("a"));
    assert_eq!(scene.heartbeat("a"), KafkaError::NONE);
    let token = scene.sync("a", &[]);
    assert_eq!(scene.synced(token).assignment, "all");
    scene.pass(10_000);
    assert_eq!(scene.group.state(), GroupState::Empty);
}
