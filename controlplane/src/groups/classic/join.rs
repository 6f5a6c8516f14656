//! Joining a group, anew or again.

use super::group::{Group, GroupState};
use super::member::{Member, MemberIdentity, protocol_bytes};
use super::requests::{Answer, JoinAnswer, JoinRequest, Millis, SyncAnswer, Token};
use crate::admin::KafkaError;

/// A new member that nobody hears of again is forgotten after this long, even while its join is
/// unanswered: without it, clients that join and vanish during a long rebalance would pile up.
const NEW_MEMBER_WAIT_MAX_MS: Millis = 5 * 60 * 1000;

/// Protocols one member may offer. Clients offer one for each assignor they have, a handful;
/// choosing among them compares each member's with each other's.
const PROTOCOLS_MAX: usize = 32;

impl Group {
    /// A client joins; the answer may come later, through [`Group::take_answers`].
    pub(crate) fn join(&mut self, request: JoinRequest, token: Token, now: Millis) {
        let outcome = match self.refusal_of_join(&request) {
            Some(error) => Err(error),
            None if request.member_id.is_empty() => self.join_unknown(&request, token, now),
            None => self.join_known(&request, token, now),
        };
        if let Err(error) = outcome {
            let refusal = JoinAnswer::refusal(error, &request.member_id);
            self.answers.push(Answer::Join(token, refusal));
        }
    }

    fn refusal_of_join(&self, request: &JoinRequest) -> Option<KafkaError> {
        let limits = &self.limits;
        let timeouts = limits.session_timeout_min_ms..=limits.session_timeout_max_ms;
        if !timeouts.contains(&request.session_timeout_ms) {
            return Some(KafkaError::INVALID_SESSION_TIMEOUT);
        }
        if !self.fits_protocols(request) {
            return Some(KafkaError::INCONSISTENT_GROUP_PROTOCOL);
        }
        let is_here = self.members.contains_key(&request.member_id)
            || self.promised.contains_key(&request.member_id)
            || request.instance_id.as_ref().is_some_and(|id| self.instances.contains_key(id));
        let is_full = self.members.len() + self.promised.len() >= limits.members_max;
        let bytes = self.kept_bytes() + protocol_bytes(&request.protocols);
        if (is_full && !is_here) || bytes > limits.group_bytes_max {
            return Some(KafkaError::GROUP_MAX_SIZE_REACHED);
        }
        None
    }

    /// Whether the group would still have a protocol that all members speak.
    fn fits_protocols(&self, request: &JoinRequest) -> bool {
        let count = request.protocols.len();
        if request.protocol_type.is_empty() || count == 0 || count > PROTOCOLS_MAX {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        if self.protocol_type.as_ref() != Some(&request.protocol_type) {
            return false;
        }
        let names = request.protocols.iter().map(|(name, _)| name);
        let mut names = names.filter(|name| self.members.values().all(|m| m.supports(name)));
        names.next().is_some()
    }

    fn join_unknown(
        &mut self,
        request: &JoinRequest,
        token: Token,
        now: Millis,
    ) -> Result<(), KafkaError> {
        let member_id = request.fresh_member_id.clone();
        if let Some(instance_id) = &request.instance_id {
            if let Some(holder) = self.instances.get(instance_id).cloned() {
                self.replace(&holder, member_id, request, token, now);
                return Ok(());
            }
        } else if request.knows_member_id_required {
            self.promised
                .insert(member_id.clone(), now + request.session_timeout_ms.max(0) as Millis);
            let answer = JoinAnswer::refusal(KafkaError::MEMBER_ID_REQUIRED, &member_id);
            self.answers.push(Answer::Join(token, answer));
            return Ok(());
        }
        self.admit(member_id, request, token, now);
        Ok(())
    }

    fn join_known(
        &mut self,
        request: &JoinRequest,
        token: Token,
        now: Millis,
    ) -> Result<(), KafkaError> {
        let member_id = request.member_id.as_str();
        if request.instance_id.is_none() && self.promised.remove(member_id).is_some() {
            self.admit(member_id.to_owned(), request, token, now);
            return Ok(());
        }
        self.find(MemberIdentity { member_id, instance_id: request.instance_id.as_deref() })?;
        let is_leader = self.leader.as_deref() == Some(member_id);
        let same_protocols =
            self.members.get(member_id).is_some_and(|m| m.protocols == request.protocols);
        let needs_rebalance = match self.state {
            GroupState::Empty => return Err(KafkaError::UNKNOWN_MEMBER_ID),
            GroupState::Preparing { .. } => true,
            // The answer to its join was lost: it gets the same one again.
            GroupState::Completing => !same_protocols,
            // A leader that joins again wants a new assignment: its view of the topics changed.
            GroupState::Stable => is_leader || !same_protocols,
        };
        if needs_rebalance {
            self.wait_for_others(member_id, request, token, now);
        } else {
            if let Some(member) = self.members.get_mut(member_id) {
                member.heard_of(now);
            }
            let answer = self.joined(member_id, false);
            self.answers.push(Answer::Join(token, answer));
        }
        Ok(())
    }

    /// Takes in a new member.
    fn admit(&mut self, member_id: String, request: &JoinRequest, token: Token, now: Millis) {
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        if let Some(instance_id) = &request.instance_id {
            self.instances.insert(instance_id.clone(), member_id.clone());
        }
        let mut member = Member::new(member_id.clone(), request, now);
        member.session_deadline = member.session_deadline.max(now + NEW_MEMBER_WAIT_MAX_MS);
        self.members.insert(member_id.clone(), member);
        if let GroupState::Preparing { gathering: Some(gathering), .. } = &mut self.state {
            gathering.grew = true;
        }
        self.wait_for_others(&member_id, request, token, now);
    }

    /// Puts a member's join aside until the generation begins.
    fn wait_for_others(
        &mut self,
        member_id: &str,
        request: &JoinRequest,
        token: Token,
        now: Millis,
    ) {
        if self.leader.is_none() {
            self.leader = Some(member_id.to_owned());
        }
        if let Some(member) = self.members.get_mut(member_id) {
            member.take_over(request);
            if let Some(earlier) = member.joining.replace(token) {
                // The client gave up waiting for its first try: nobody reads that answer.
                let superseded = JoinAnswer::refusal(KafkaError::REBALANCE_IN_PROGRESS, member_id);
                self.answers.push(Answer::Join(earlier, superseded));
            }
        }
        if !matches!(self.state, GroupState::Preparing { .. }) {
            self.prepare(now);
        }
        self.complete_if_all_joined(now);
    }

    /// A static member came back under its instance id: it takes the place of its former self.
    fn replace(
        &mut self,
        holder: &str,
        member_id: String,
        request: &JoinRequest,
        token: Token,
        now: Millis,
    ) {
        let Some(mut member) = self.members.remove(holder) else { return };
        if let Some(earlier) = member.joining.take() {
            let fenced = JoinAnswer::refusal(KafkaError::FENCED_INSTANCE_ID, holder);
            self.answers.push(Answer::Join(earlier, fenced));
        }
        if let Some(earlier) = member.syncing.take() {
            let fenced = SyncAnswer::refusal(KafkaError::FENCED_INSTANCE_ID);
            self.answers.push(Answer::Sync(earlier, fenced));
        }
        let leader_before = self.leader.clone();
        let was_leader = leader_before.as_deref() == Some(holder);
        if was_leader {
            self.leader = Some(member_id.clone());
        }
        member.id = member_id.clone();
        member.take_over(request);
        member.heard_of(now);
        self.members.insert(member_id.clone(), member);
        if let Some(instance_id) = &request.instance_id {
            self.instances.insert(instance_id.clone(), member_id.clone());
        }
        let keeps_generation =
            self.state == GroupState::Stable && self.choose_protocol() == self.protocol;
        if !keeps_generation {
            self.wait_for_others(&member_id, request, token, now);
            return;
        }
        // No rebalance: the member finds its old assignment when it syncs. It must not assign
        // anything even if it leads, so a client that cannot be told so is shown its former self
        // as the leader.
        self.changed = true;
        let mut answer = self.joined(&member_id, request.knows_skip_assignment);
        if was_leader && !request.knows_skip_assignment {
            answer.leader = leader_before.unwrap_or_default();
            answer.members = Vec::new();
        }
        self.answers.push(Answer::Join(token, answer));
    }

    /// What a member is told of the generation.
    pub(super) fn joined(&self, member_id: &str, skip_assignment: bool) -> JoinAnswer {
        let is_leader = self.leader.as_deref() == Some(member_id);
        JoinAnswer {
            error: KafkaError::NONE,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: is_leader && skip_assignment,
            member_id: member_id.to_owned(),
            members: if is_leader { self.metadata_of_all() } else { Vec::new() },
        }
    }
}
