//! Listing, describing and deleting groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::classic::GroupState;
use super::coordinator::{Groups, Shared};
use super::offsets::{Update, WriteRequest};
use crate::admin::KafkaError;

/// The state of a group that does not exist.
const DEAD: &str = "Dead";

/// One group in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedGroup {
    pub(crate) group_id: Arc<str>,
    /// Empty for a group whose members never joined, only committed.
    pub(crate) protocol_type: String,
    pub(crate) state: &'static str,
}

/// One group in full.
#[derive(Debug, Clone)]
pub(crate) struct GroupDescription {
    pub(crate) error: KafkaError,
    pub(crate) state: &'static str,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) members: Vec<MemberDescription>,
}

/// One member.
#[derive(Debug, Clone)]
pub(crate) struct MemberDescription {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) metadata: Bytes,
    pub(crate) assignment: Bytes,
}

impl Groups {
    /// Every group, by name.
    pub(crate) fn list(&self) -> Vec<ListedGroup> {
        let state = self.shared.lock();
        let mut listed: BTreeMap<Arc<str>, ListedGroup> = BTreeMap::new();
        for (group_id, entry) in &state.groups {
            let protocol_type = entry.group.protocol_type().unwrap_or_default().to_owned();
            let state = entry.group.state().name();
            let group_id = group_id.clone();
            listed.insert(group_id.clone(), ListedGroup { group_id, protocol_type, state });
        }
        let offsets_only = self.shared.store.table().group_names();
        for group_id in offsets_only {
            listed.entry(group_id.clone()).or_insert_with(|| ListedGroup {
                group_id,
                protocol_type: String::new(),
                state: GroupState::Empty.name(),
            });
        }
        listed.into_values().collect()
    }

    /// One group.
    pub(crate) fn describe(&self, group_id: &str) -> GroupDescription {
        if let Err(error) = self.shared.readable(group_id) {
            return GroupDescription::bare(error, DEAD);
        }
        let state = self.shared.lock();
        let Some(entry) = state.groups.get(group_id) else {
            return match self.shared.store.table().has_group(group_id) {
                true => GroupDescription::bare(KafkaError::NONE, GroupState::Empty.name()),
                false => GroupDescription::bare(KafkaError::GROUP_ID_NOT_FOUND, DEAD),
            };
        };
        let group = &entry.group;
        // Before the generation is complete there is no protocol to show metadata of.
        let is_stable = group.state() == GroupState::Stable;
        let protocol = group.protocol().filter(|_| is_stable).unwrap_or_default();
        let members = group.members().map(|member| MemberDescription {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: member.metadata(protocol),
            assignment: if is_stable { member.assignment.clone() } else { Bytes::new() },
        });
        GroupDescription {
            error: KafkaError::NONE,
            state: group.state().name(),
            protocol_type: group.protocol_type().unwrap_or_default().to_owned(),
            protocol: protocol.to_owned(),
            members: members.collect(),
        }
    }

    /// Deletes a group without members, and all its offsets; returns when that is durable.
    pub(crate) async fn delete(&self, group_id: &str) -> KafkaError {
        let outcome = match self.shared.enqueue_delete(group_id) {
            Ok(outcome) => outcome,
            Err(error) => return error,
        };
        match outcome.await {
            Ok(Ok(())) => KafkaError::NONE,
            Ok(Err(_)) | Err(_) => KafkaError::COORDINATOR_NOT_AVAILABLE,
        }
    }
}

impl Shared {
    /// Queues the deletion while the group cannot change: who joins later begins anew, behind it.
    fn enqueue_delete(
        &self,
        group_id: &str,
    ) -> Result<oneshot::Receiver<super::offsets::WriteOutcome>, KafkaError> {
        self.readable(group_id)?;
        let mut state = self.lock();
        match state.groups.get(group_id) {
            Some(entry) if !entry.group.is_vacant() => return Err(KafkaError::NON_EMPTY_GROUP),
            None if !self.store.table().has_group(group_id) => {
                return Err(KafkaError::GROUP_ID_NOT_FOUND);
            }
            _ => {}
        }
        let (done, outcome) = oneshot::channel();
        let request = WriteRequest {
            group: Arc::from(group_id),
            updates: vec![Update::Delete],
            done: vec![done],
        };
        self.store.submit(request).map_err(|_| KafkaError::COORDINATOR_NOT_AVAILABLE)?;
        state.forget(group_id);
        Ok(outcome)
    }
}

impl GroupDescription {
    fn bare(error: KafkaError, state: &'static str) -> Self {
        Self {
            error,
            state,
            protocol_type: String::new(),
            protocol: String::new(),
            members: Vec::new(),
        }
    }
}
