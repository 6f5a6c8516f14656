//! A group: its members, and everything they ask except joins.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::member::{Member, MemberIdentity};
use super::requests::{Answer, JoinedMember, Limits, Millis, SyncAnswer, SyncRequest, Token};
use crate::admin::KafkaError;

/// What a group, a member or a promised id costs beyond what clients put into it: ids, names,
/// addresses and map nodes.
const ENTRY_BYTES: usize = 1024;

/// Where a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupState {
    /// No members.
    Empty,
    /// Members are to join.
    Preparing {
        /// When the generation begins with those who have joined.
        deadline: Millis,
        /// The wait for more members of a group that was empty; `None` once it may end early.
        gathering: Option<Gathering>,
    },
    /// Everybody joined; the leader is to assign.
    Completing,
    /// Everybody has an assignment.
    Stable,
}

/// The first wait of a group that was empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gathering {
    /// How much longer the wait may be drawn out.
    pub(super) remaining_ms: Millis,
    /// Somebody joined since the wait began or was drawn out.
    pub(super) grew: bool,
}

impl GroupState {
    /// Kafka's word, as `kafka-consumer-groups --state` shows it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Preparing { .. } => "PreparingRebalance",
            Self::Completing => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// One group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(super) limits: Limits,
    pub(super) state: GroupState,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// Member id by group instance id.
    pub(super) instances: BTreeMap<String, String>,
    /// Ids given out but not joined with yet, and until when.
    pub(super) promised: BTreeMap<String, Millis>,
    /// When members that still owe a sync are removed; set when a generation begins.
    pub(super) sync_deadline: Option<Millis>,
    pub(super) answers: Vec<Answer>,
    /// What has to be written to the log changed.
    pub(super) changed: bool,
}

impl Group {
    /// An empty group.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: GroupState::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            promised: BTreeMap::new(),
            sync_deadline: None,
            answers: Vec::new(),
            changed: false,
        }
    }

    /// A group as it was written when it last became stable or empty.
    pub(crate) fn restored(
        limits: Limits,
        generation: i32,
        protocol: (Option<String>, Option<String>),
        leader: Option<String>,
        members: Vec<Member>,
    ) -> Self {
        let mut group = Self::new(limits);
        group.generation = generation;
        (group.protocol_type, group.protocol) = protocol;
        for member in members {
            if let Some(instance_id) = &member.instance_id {
                group.instances.insert(instance_id.clone(), member.id.clone());
            }
            group.members.insert(member.id.clone(), member);
        }
        if !group.members.is_empty() {
            group.state = GroupState::Stable;
            group.leader = leader.filter(|leader| group.members.contains_key(leader));
            group.elect_leader();
        }
        group
    }

    /// Answers that became due since the last call.
    pub(crate) fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// Whether what the log has of this group is out of date; clears the mark.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What changed could not be written: it is to be written the next time.
    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// A member asks for its assignment; the answer may come later, through [`Group::take_answers`].
    pub(crate) fn sync(&mut self, request: SyncRequest, token: Token, now: Millis) {
        let refusal = self.refusal_of_sync(&request);
        if let Some(error) = refusal {
            self.answers.push(Answer::Sync(token, SyncAnswer::refusal(error)));
            return;
        }
        let is_leader = self.leader.as_ref() == Some(&request.member_id);
        let Some(member) = self.members.get_mut(&request.member_id) else { return };
        member.heard_of(now);
        member.owes_sync = false;
        if let Some(earlier) = member.syncing.replace(token) {
            let superseded = SyncAnswer::refusal(KafkaError::REBALANCE_IN_PROGRESS);
            self.answers.push(Answer::Sync(earlier, superseded));
        }
        if self.state == GroupState::Completing && is_leader {
            self.assign(request.assignments);
        }
        if self.state == GroupState::Stable {
            self.answer_syncs(now);
        }
    }

    /// A member says it is alive.
    pub(crate) fn heartbeat(
        &mut self,
        identity: MemberIdentity<'_>,
        generation: i32,
        now: Millis,
    ) -> KafkaError {
        if let Err(error) = self.find(identity) {
            return error;
        }
        if generation != self.generation {
            return KafkaError::ILLEGAL_GENERATION;
        }
        if let Some(member) = self.members.get_mut(identity.member_id) {
            member.heard_of(now);
        }
        match self.state {
            GroupState::Preparing { .. } => KafkaError::REBALANCE_IN_PROGRESS,
            _ => KafkaError::NONE,
        }
    }

    /// A member leaves, or an operator removes it.
    pub(crate) fn leave(&mut self, identity: MemberIdentity<'_>, now: Millis) -> KafkaError {
        let by_instance = identity.instance_id.filter(|_| identity.member_id.is_empty());
        let member_id = match by_instance {
            Some(instance_id) => match self.instances.get(instance_id) {
                Some(member_id) => member_id.clone(),
                None => return KafkaError::UNKNOWN_MEMBER_ID,
            },
            None => identity.member_id.to_owned(),
        };
        if self.promised.remove(&member_id).is_some() {
            self.complete_if_all_joined(now);
            return KafkaError::NONE;
        }
        if let Err(error) = self.find(MemberIdentity { member_id: &member_id, ..identity }) {
            return error;
        }
        self.remove(&member_id);
        self.after_removal(now);
        KafkaError::NONE
    }

    /// Whether a member of this generation, or anybody when the group is empty, may commit.
    pub(crate) fn may_commit(
        &mut self,
        identity: MemberIdentity<'_>,
        generation: i32,
        now: Millis,
    ) -> KafkaError {
        let claims_membership =
            generation >= 0 || !identity.member_id.is_empty() || identity.instance_id.is_some();
        if !claims_membership {
            return match self.state {
                GroupState::Empty => KafkaError::NONE,
                _ => KafkaError::UNKNOWN_MEMBER_ID,
            };
        }
        if self.members.is_empty() && generation < 0 {
            return KafkaError::NONE;
        }
        if let Err(error) = self.find(identity) {
            return error;
        }
        if generation != self.generation {
            return KafkaError::ILLEGAL_GENERATION;
        }
        if let Some(member) = self.members.get_mut(identity.member_id) {
            member.heard_of(now);
        }
        match self.state {
            // The generation has no owner of anything yet.
            GroupState::Completing => KafkaError::REBALANCE_IN_PROGRESS,
            _ => KafkaError::NONE,
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        self.state
    }

    pub(crate) fn generation(&self) -> i32 {
        self.generation
    }

    pub(crate) fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    pub(crate) fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    pub(crate) fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Nobody is in the group or about to be.
    pub(crate) fn is_vacant(&self) -> bool {
        self.members.is_empty() && self.promised.is_empty()
    }

    /// Metadata and assignments of all members, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.members.values().map(Member::kept_bytes).sum()
    }

    /// Memory that the group takes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entries = 1 + self.members.len() + self.promised.len();
        entries * ENTRY_BYTES + self.kept_bytes()
    }

    /// Checks that a request comes from a member, and from the one that holds its instance id.
    pub(super) fn find(&self, identity: MemberIdentity<'_>) -> Result<(), KafkaError> {
        if let Some(instance_id) = identity.instance_id {
            match self.instances.get(instance_id) {
                None => return Err(KafkaError::UNKNOWN_MEMBER_ID),
                Some(member_id) if member_id != identity.member_id => {
                    return Err(KafkaError::FENCED_INSTANCE_ID);
                }
                Some(_) => {}
            }
        }
        if self.members.contains_key(identity.member_id) {
            return Ok(());
        }
        Err(KafkaError::UNKNOWN_MEMBER_ID)
    }

    /// Everybody's metadata of the chosen protocol, for the leader.
    pub(super) fn metadata_of_all(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = self.members.values();
        members
            .map(|member| JoinedMember {
                member_id: member.id.clone(),
                instance_id: member.instance_id.clone(),
                metadata: member.metadata(protocol),
            })
            .collect()
    }

    fn refusal_of_sync(&self, request: &SyncRequest) -> Option<KafkaError> {
        let identity = MemberIdentity {
            member_id: &request.member_id,
            instance_id: request.instance_id.as_deref(),
        };
        if let Err(error) = self.find(identity) {
            return Some(error);
        }
        if request.generation != self.generation {
            return Some(KafkaError::ILLEGAL_GENERATION);
        }
        let differs = |asked: &Option<String>, ours: &Option<String>| {
            asked.is_some() && ours.is_some() && asked != ours
        };
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol, &self.protocol)
        {
            return Some(KafkaError::INCONSISTENT_GROUP_PROTOCOL);
        }
        match self.state {
            GroupState::Empty => Some(KafkaError::UNKNOWN_MEMBER_ID),
            GroupState::Preparing { .. } => Some(KafkaError::REBALANCE_IN_PROGRESS),
            GroupState::Completing | GroupState::Stable => {
                let assigned: usize = request.assignments.iter().map(|(_, a)| a.len()).sum();
                let room = self.limits.group_bytes_max.saturating_sub(self.kept_bytes());
                (assigned > room).then_some(KafkaError::GROUP_MAX_SIZE_REACHED)
            }
        }
    }

    /// Takes the leader's word: whom it does not name gets nothing.
    fn assign(&mut self, assignments: Vec<(String, Bytes)>) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
        }
        for (member_id, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&member_id) {
                // A copy: a slice would keep the whole request's memory.
                member.assignment = Bytes::copy_from_slice(&assignment);
            }
        }
        self.state = GroupState::Stable;
        self.changed = true;
    }

    fn answer_syncs(&mut self, now: Millis) {
        for member in self.members.values_mut() {
            if let Some(token) = member.syncing.take() {
                member.heard_of(now);
                let answer = SyncAnswer {
                    error: KafkaError::NONE,
                    protocol_type: self.protocol_type.clone(),
                    protocol: self.protocol.clone(),
                    assignment: member.assignment.clone(),
                };
                self.answers.push(Answer::Sync(token, answer));
            }
        }
        if !self.members.values().any(|member| member.owes_sync) {
            self.sync_deadline = None;
        }
    }
}
