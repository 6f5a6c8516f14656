//! From one generation to the next, and what time does to a group.

use std::collections::BTreeMap;

use super::group::{Gathering, Group, GroupState};
use super::requests::{Answer, JoinAnswer, Millis, SyncAnswer};
use crate::admin::KafkaError;

/// A group whose members allow no time at all would be called again without end.
const REBALANCE_TIMEOUT_MIN_MS: Millis = 100;

impl Group {
    /// When [`Group::tick`] wants to be called, if nothing else happens before.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        let sessions = self.members.values().filter_map(|member| {
            let waits = member.joining.is_some() || member.syncing.is_some();
            (!waits || member.is_new).then_some(member.session_deadline)
        });
        let rebalance = match self.state {
            GroupState::Preparing { deadline, .. } => Some(deadline),
            _ => None,
        };
        let promises = self.promised.values().copied();
        sessions.chain(promises).chain(rebalance).chain(self.sync_deadline).min()
    }

    /// Does what has become due: sessions that ended, joins and syncs that were waited for.
    pub(crate) fn tick(&mut self, now: Millis) {
        self.expire_promises(now);
        self.expire_sessions(now);
        self.expire_syncs(now);
        let GroupState::Preparing { deadline, gathering } = self.state else { return };
        if deadline > now {
            return;
        }
        match gathering {
            Some(gathering) if gathering.grew && gathering.remaining_ms > 0 => {
                let delay = self.initial_delay_ms().min(gathering.remaining_ms);
                self.state = GroupState::Preparing {
                    deadline: now + delay,
                    gathering: Some(Gathering {
                        remaining_ms: gathering.remaining_ms - delay,
                        grew: false,
                    }),
                };
            }
            _ => self.begin_generation(now),
        }
    }

    /// Calls everybody to join.
    pub(super) fn prepare(&mut self, now: Millis) {
        if self.state == GroupState::Completing {
            for member in self.members.values_mut() {
                member.assignment = bytes::Bytes::new();
            }
        }
        self.sync_deadline = None;
        for member in self.members.values_mut() {
            member.owes_sync = false;
            if let Some(token) = member.syncing.take() {
                member.heard_of(now);
                let refusal = SyncAnswer::refusal(KafkaError::REBALANCE_IN_PROGRESS);
                self.answers.push(Answer::Sync(token, refusal));
            }
        }
        let rebalance_timeout_ms = self.rebalance_timeout_ms();
        let initial_delay_ms = self.initial_delay_ms();
        self.state = if self.state == GroupState::Empty && initial_delay_ms > 0 {
            GroupState::Preparing {
                deadline: now + initial_delay_ms,
                gathering: Some(Gathering {
                    remaining_ms: rebalance_timeout_ms.saturating_sub(initial_delay_ms),
                    grew: false,
                }),
            }
        } else {
            GroupState::Preparing { deadline: now + rebalance_timeout_ms, gathering: None }
        };
    }

    /// Begins the generation as soon as nobody is missing.
    pub(super) fn complete_if_all_joined(&mut self, now: Millis) {
        let GroupState::Preparing { gathering, .. } = self.state else { return };
        let all_joined = self.members.values().all(|member| member.joining.is_some());
        let is_complete = gathering.is_none() && all_joined && self.promised.is_empty();
        // When the last member left there is nobody to wait for: who was promised an id begins anew.
        if is_complete || self.members.is_empty() {
            self.begin_generation(now);
        }
    }

    /// Takes a member out; its waiting requests are answered.
    pub(super) fn remove(&mut self, member_id: &str) {
        let Some(member) = self.members.remove(member_id) else { return };
        if let Some(instance_id) = &member.instance_id
            && self.instances.get(instance_id).is_some_and(|holder| holder == member_id)
        {
            self.instances.remove(instance_id);
        }
        if self.leader.as_deref() == Some(member_id) {
            self.leader = None;
            // Who joins waits to lead: somebody has to, should everybody have joined already.
            self.elect_leader();
        }
        if let Some(token) = member.joining {
            let refusal = JoinAnswer::refusal(KafkaError::UNKNOWN_MEMBER_ID, member_id);
            self.answers.push(Answer::Join(token, refusal));
        }
        if let Some(token) = member.syncing {
            let refusal = SyncAnswer::refusal(KafkaError::UNKNOWN_MEMBER_ID);
            self.answers.push(Answer::Sync(token, refusal));
        }
    }

    /// Goes on after members went: the others share what those had.
    pub(super) fn after_removal(&mut self, now: Millis) {
        if matches!(self.state, GroupState::Completing | GroupState::Stable) {
            self.prepare(now);
        }
        self.complete_if_all_joined(now);
    }

    /// The protocol that most members like best among those that all speak.
    pub(super) fn choose_protocol(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut names = member.protocols.iter().map(|(name, _)| name.as_str());
            let liked = names.find(|name| self.members.values().all(|m| m.supports(name)));
            *votes.entry(liked?).or_default() += 1;
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name.to_owned())
    }

    /// Makes sure that a group with members has a leader, one that has joined if there is any.
    pub(super) fn elect_leader(&mut self) {
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader));
        let is_preparing = matches!(self.state, GroupState::Preparing { .. });
        if leader.is_some_and(|leader| !is_preparing || leader.joining.is_some()) {
            return;
        }
        let mut joined = self.members.values().filter(|member| member.joining.is_some());
        let successor = joined.next().or_else(|| self.members.values().next());
        self.leader = successor.map(|member| member.id.clone());
    }

    fn begin_generation(&mut self, now: Millis) {
        let absent: Vec<String> = self
            .members
            .values()
            .filter(|member| member.joining.is_none() && member.instance_id.is_none())
            .map(|member| member.id.clone())
            .collect();
        for member_id in absent {
            self.remove(&member_id);
        }
        if self.members.is_empty() {
            self.generation = self.generation.wrapping_add(1).max(0);
            self.become_empty();
            return;
        }
        if !self.members.values().any(|member| member.joining.is_some()) {
            // Only static members, none of which has come back yet: their sessions decide.
            let deadline = now + self.rebalance_timeout_ms();
            self.state = GroupState::Preparing { deadline, gathering: None };
            return;
        }
        self.elect_leader();
        self.generation = self.generation.wrapping_add(1).max(0);
        self.protocol = self.choose_protocol();
        self.state = GroupState::Completing;
        self.sync_deadline = Some(now + self.rebalance_timeout_ms());
        self.answer_joins(now);
    }

    fn become_empty(&mut self) {
        self.state = GroupState::Empty;
        self.protocol = None;
        self.leader = None;
        self.sync_deadline = None;
        self.changed = true;
    }

    fn answer_joins(&mut self, now: Millis) {
        let mut joined = Vec::new();
        for member in self.members.values_mut() {
            member.owes_sync = true;
            if let Some(token) = member.joining.take() {
                member.is_new = false;
                member.heard_of(now);
                joined.push((token, member.id.clone()));
            }
        }
        for (token, member_id) in joined {
            let answer = self.joined(&member_id, false);
            self.answers.push(Answer::Join(token, answer));
        }
    }

    fn expire_promises(&mut self, now: Millis) {
        let before = self.promised.len();
        self.promised.retain(|_, deadline| *deadline > now);
        if self.promised.len() < before {
            self.complete_if_all_joined(now);
        }
    }

    fn expire_sessions(&mut self, now: Millis) {
        let gone: Vec<String> = self
            .members
            .values()
            .filter(|member| {
                let waits = member.joining.is_some() || member.syncing.is_some();
                (!waits || member.is_new) && member.session_deadline <= now
            })
            .map(|member| member.id.clone())
            .collect();
        self.remove_all(gone, now);
    }

    fn expire_syncs(&mut self, now: Millis) {
        if self.sync_deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.sync_deadline = None;
        let owing: Vec<String> = self
            .members
            .values()
            .filter(|member| member.owes_sync)
            .map(|member| member.id.clone())
            .collect();
        self.remove_all(owing, now);
    }

    fn remove_all(&mut self, member_ids: Vec<String>, now: Millis) {
        if member_ids.is_empty() {
            return;
        }
        for member_id in member_ids {
            self.remove(&member_id);
        }
        self.after_removal(now);
    }

    fn rebalance_timeout_ms(&self) -> Millis {
        let longest = self.members.values().map(|member| member.rebalance_timeout_ms).max();
        (longest.unwrap_or(0).max(0) as Millis).max(REBALANCE_TIMEOUT_MIN_MS)
    }

    fn initial_delay_ms(&self) -> Millis {
        self.limits.initial_rebalance_delay_ms.max(0) as Millis
    }
}
