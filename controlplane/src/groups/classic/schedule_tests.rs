//! Random schedules: whatever clients do and in whatever order, nobody is left waiting, a
//! generation has one leader, and generations only grow.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;

use super::tests::{LIMITS, request};
use super::*;

#[derive(Debug, Clone)]
enum Step {
    /// A client joins: as it is known, or anew; with or without the KIP-394 round.
    Join {
        client: usize,
        anew: bool,
        careful: bool,
        metadata: u8,
    },
    Sync {
        client: usize,
    },
    Heartbeat {
        client: usize,
    },
    Leave {
        client: usize,
    },
    Pass {
        ms: Millis,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..6usize;
    prop_oneof![
        4 => (client.clone(), any::<bool>(), any::<bool>(), 0..3u8).prop_map(
            |(client, anew, careful, metadata)| Step::Join { client, anew, careful, metadata }
        ),
        4 => client.clone().prop_map(|client| Step::Sync { client }),
        2 => client.clone().prop_map(|client| Step::Heartbeat { client }),
        1 => client.prop_map(|client| Step::Leave { client }),
        2 => (1..12_000u64).prop_map(|ms| Step::Pass { ms }),
    ]
}

/// What the clients know, and what must hold.
struct World {
    group: Group,
    now: Millis,
    next_id: u64,
    member_ids: BTreeMap<usize, String>,
    generations: BTreeMap<usize, i32>,
    waiting: BTreeMap<Token, usize>,
    leaders: BTreeMap<i32, BTreeSet<String>>,
    generation: i32,
}

impl World {
    fn new(initial_rebalance_delay_ms: i32) -> Self {
        Self {
            group: Group::new(Limits { initial_rebalance_delay_ms, ..LIMITS }),
            now: 0,
            next_id: 0,
            member_ids: BTreeMap::new(),
            generations: BTreeMap::new(),
            waiting: BTreeMap::new(),
            leaders: BTreeMap::new(),
            generation: 0,
        }
    }

    /// Odd clients are static members.
    fn instance(client: usize) -> Option<String> {
        (client % 2 == 1).then(|| format!("instance-{client}"))
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Join { client, anew, careful, metadata } => {
                self.join(client, anew, careful, metadata);
            }
            Step::Sync { client } => self.sync(client),
            Step::Heartbeat { client } => {
                let member_id = self.member_ids.get(&client).cloned().unwrap_or_default();
                let instance_id = Self::instance(client);
                let identity =
                    MemberIdentity { member_id: &member_id, instance_id: instance_id.as_deref() };
                let generation = self.generations.get(&client).copied().unwrap_or(-1);
                let _ = self.group.heartbeat(identity, generation, self.now);
            }
            Step::Leave { client } => {
                let member_id = self.member_ids.get(&client).cloned().unwrap_or_default();
                let instance_id = Self::instance(client);
                let identity =
                    MemberIdentity { member_id: &member_id, instance_id: instance_id.as_deref() };
                let _ = self.group.leave(identity, self.now);
            }
            Step::Pass { ms } => {
                self.now += ms;
                self.group.tick(self.now);
            }
        }
        self.check();
    }

    fn join(&mut self, client: usize, anew: bool, careful: bool, metadata: u8) {
        let number = self.id();
        let member_id = if anew {
            String::new()
        } else {
            self.member_ids.get(&client).cloned().unwrap_or_default()
        };
        let mut join = request(&member_id, &format!("c{client}-{number}"));
        join.instance_id = Self::instance(client);
        join.knows_member_id_required = careful;
        join.protocols[0].1 = Bytes::from(vec![metadata]);
        self.waiting.insert(Token(number), client);
        self.group.join(join, Token(number), self.now);
    }

    fn sync(&mut self, client: usize) {
        let number = self.id();
        let sync = SyncRequest {
            member_id: self.member_ids.get(&client).cloned().unwrap_or_default(),
            instance_id: Self::instance(client),
            generation: self.generations.get(&client).copied().unwrap_or(-1),
            protocol_type: None,
            protocol: None,
            assignments: vec![],
        };
        self.waiting.insert(Token(number), client);
        self.group.sync(sync, Token(number), self.now);
    }

    fn check(&mut self) {
        for answer in self.group.take_answers() {
            match answer {
                Answer::Join(token, answer) => {
                    let client = self.waiting.remove(&token).expect("answered once");
                    if !answer.member_id.is_empty() {
                        self.member_ids.insert(client, answer.member_id.clone());
                    }
                    if answer.error.is_none() {
                        self.generations.insert(client, answer.generation);
                        if !answer.members.is_empty() {
                            let leaders = self.leaders.entry(answer.generation).or_default();
                            leaders.insert(Self::instance(client).unwrap_or(answer.member_id));
                        }
                    }
                }
                Answer::Sync(token, _) => {
                    self.waiting.remove(&token).expect("answered once");
                }
            }
        }
        assert!(self.group.generation() >= self.generation, "the generation fell");
        self.generation = self.group.generation();
        assert!(self.leaders.values().all(|leaders| leaders.len() == 1), "{:?}", self.leaders);
        let is_empty = self.group.members().next().is_none();
        let leads = self.group.leader().map(str::to_owned);
        assert!(is_empty || leads.is_some(), "members without a leader");
        assert!(
            leads.is_none_or(|leader| self.group.members().any(|member| member.id == leader)),
            "the leader is no member"
        );
        assert_eq!(is_empty, self.group.state() == GroupState::Empty);
        assert!(self.waiting.is_empty() || self.group.next_deadline().is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_left_waiting(
        steps in proptest::collection::vec(step(), 1..80),
        delay in prop_oneof![Just(0), Just(3_000)],
    ) {
        let mut world = World::new(delay);
        for step in &steps {
            world.apply(step);
        }
        // From here on everybody is silent: the group must come to rest by itself, each time it
        // asks to be called, and within bounded time.
        for _ in 0..1_000 {
            let Some(deadline) = world.group.next_deadline() else { break };
            world.now = world.now.max(deadline);
            world.group.tick(world.now);
            world.check();
        }
        prop_assert!(world.waiting.is_empty(), "still waiting: {:?}", world.waiting);
        prop_assert_eq!(world.group.state(), GroupState::Empty);
        prop_assert!(world.group.is_vacant());
    }
}
