//! Committing, asking for and deleting offsets.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::classic::MemberIdentity;
use super::coordinator::{Groups, Shared};
use super::offsets::{Committed, TopicOffsets, Update, WriteRequest};
use crate::admin::KafkaError;

/// What a consumer commits.
#[derive(Debug, Clone)]
pub(crate) struct CommitRequest<'a> {
    pub(crate) group_id: &'a str,
    pub(crate) identity: MemberIdentity<'a>,
    /// -1 for a consumer that is no member.
    pub(crate) generation: i32,
    pub(crate) offsets: Vec<CommitOffset>,
}

/// One partition's offset.
#[derive(Debug, Clone)]
pub(crate) struct CommitOffset {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) committed: Committed,
}

impl Groups {
    /// Commits offsets; returns when they are durable. One outcome for each offset, in order.
    ///
    /// Cancel safe: a commit that is queued is written whether or not anybody waits for it.
    pub(crate) async fn commit(&self, request: CommitRequest<'_>) -> Vec<KafkaError> {
        let count = request.offsets.len();
        let error = self.shared.refusal_of_commit(&request);
        if !error.is_none() {
            return vec![error; count];
        }
        let mut outcomes = Vec::with_capacity(count);
        let mut updates = Vec::with_capacity(count);
        let settings = &self.shared.settings;
        let mut kept_bytes = self.shared.store.table().kept_bytes();
        for offset in request.offsets {
            let metadata = &offset.committed.metadata;
            let added_bytes = self.shared.store.table().added_bytes(
                request.group_id,
                &offset.topic,
                offset.partition,
                metadata,
            );
            let error = if metadata.len() > settings.offset_metadata_bytes_max {
                KafkaError::OFFSET_METADATA_TOO_LARGE
            } else if added_bytes > 0 && kept_bytes + added_bytes > settings.offsets_bytes_max {
                KafkaError::INVALID_COMMIT_OFFSET_SIZE
            } else {
                kept_bytes += added_bytes;
                updates.push(Update::Commit {
                    topic: offset.topic,
                    partition: offset.partition,
                    committed: offset.committed,
                });
                KafkaError::NONE
            };
            outcomes.push(error);
        }
        let written = self.write(request.group_id, updates).await;
        if !written.is_none() {
            outcomes.iter_mut().filter(|error| error.is_none()).for_each(|error| *error = written);
        }
        outcomes
    }

    /// What the group committed for the partitions, in order; `None` where it committed nothing.
    pub(crate) fn committed<'a>(
        &self,
        group_id: &str,
        partitions: impl IntoIterator<Item = (&'a str, i32)>,
    ) -> Result<Vec<Option<Committed>>, KafkaError> {
        self.shared.readable(group_id)?;
        let table = self.shared.store.table();
        let partitions = partitions.into_iter();
        Ok(partitions.map(|(topic, index)| table.committed(group_id, topic, index)).collect())
    }

    /// Everything the group committed.
    pub(crate) fn all_committed(&self, group_id: &str) -> Result<Vec<TopicOffsets>, KafkaError> {
        self.shared.readable(group_id)?;
        Ok(self.shared.store.table().of_group(group_id))
    }

    /// Deletes offsets of topics that no member of the group subscribes to. The first error is the
    /// group's, the others one for each partition, in order.
    pub(crate) async fn delete_offsets(
        &self,
        group_id: &str,
        partitions: Vec<(Arc<str>, i32)>,
    ) -> (KafkaError, Vec<KafkaError>) {
        let count = partitions.len();
        let subscribed = match self.shared.subscribed_topics(group_id) {
            Ok(subscribed) => subscribed,
            Err(error) => return (error, vec![error; count]),
        };
        let mut outcomes = Vec::with_capacity(count);
        let mut updates = Vec::new();
        for (topic, partition) in partitions {
            let is_subscribed = subscribed.as_ref().is_none_or(|topics| topics.contains(&*topic));
            outcomes.push(if is_subscribed {
                KafkaError::GROUP_SUBSCRIBED_TO_TOPIC
            } else {
                updates.push(Update::Forget { topic, partition });
                KafkaError::NONE
            });
        }
        let written = self.write(group_id, updates).await;
        (written, outcomes)
    }

    /// Writes changes of a group; returns when they are durable.
    pub(super) async fn write(&self, group_id: &str, updates: Vec<Update>) -> KafkaError {
        if updates.is_empty() {
            return KafkaError::NONE;
        }
        let (done, outcome) = oneshot::channel();
        let group = Arc::from(group_id);
        if self.shared.store.submit(WriteRequest { group, updates, done: vec![done] }).is_err() {
            return KafkaError::COORDINATOR_NOT_AVAILABLE;
        }
        match outcome.await {
            Ok(Ok(())) => KafkaError::NONE,
            // Why was logged, and stays visible while it lasts; the client tries again.
            Ok(Err(_)) | Err(_) => KafkaError::COORDINATOR_NOT_AVAILABLE,
        }
    }
}

impl Shared {
    pub(super) fn readable(&self, group_id: &str) -> Result<(), KafkaError> {
        match self.store.is_readable(group_id) {
            true => Ok(()),
            false => Err(KafkaError::COORDINATOR_NOT_AVAILABLE),
        }
    }

    fn refusal_of_commit(&self, request: &CommitRequest<'_>) -> KafkaError {
        if let Err(error) = self.readable(request.group_id) {
            return error;
        }
        let now = self.now();
        let mut state = self.lock();
        match state.groups.get_mut(request.group_id) {
            Some(entry) => entry.group.may_commit(request.identity, request.generation, now),
            // Anybody may commit for a group that has no members; who claims to be one is not.
            None if request.generation < 0 => KafkaError::NONE,
            None => KafkaError::ILLEGAL_GENERATION,
        }
    }

    /// Topics that members subscribe to: none without members, `None` when it cannot be told.
    fn subscribed_topics(&self, group_id: &str) -> Result<Option<BTreeSet<String>>, KafkaError> {
        self.readable(group_id)?;
        let state = self.lock();
        let Some(entry) = state.groups.get(group_id) else {
            return match self.store.table().has_group(group_id) {
                true => Ok(Some(BTreeSet::new())),
                false => Err(KafkaError::GROUP_ID_NOT_FOUND),
            };
        };
        Ok(super::subscription::topics_of(&entry.group))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dataplane::PartitionTable;
    use storage::{Storage, StorageConfig};

    use super::super::classic::{JoinAnswer, JoinRequest};
    use super::super::offsets::OffsetStore;
    use super::super::settings::GroupSettings;
    use super::*;

    async fn commit(groups: &Groups, group_id: &str, offset: i64, metadata: &str) -> KafkaError {
        let committed = Committed {
            offset,
            leader_epoch: 0,
            metadata: metadata.into(),
            commit_timestamp_ms: 1,
        };
        let offset = CommitOffset { topic: "t".into(), partition: 0, committed };
        let identity = MemberIdentity { member_id: "", instance_id: None };
        let offsets = vec![offset];
        let request = CommitRequest { group_id, identity, generation: -1, offsets };
        groups.commit(request).await[0]
    }

    fn open(settings: GroupSettings) -> (tempfile::TempDir, Groups) {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::open(StorageConfig {
            directories: vec![directory.path().to_owned()],
            descriptors_max: 1_000,
            mappings_max: 1_000,
            recycle_bytes_max: 0,
        })
        .unwrap();
        let registry = Arc::new(PartitionTable::default());
        let store = OffsetStore::open(storage, registry, Arc::new(|_| {})).unwrap();
        (directory, Groups::new(store, settings).unwrap())
    }

    async fn join(groups: &Groups, group_id: &str) -> JoinAnswer {
        let request = JoinRequest {
            member_id: String::new(),
            fresh_member_id: format!("{group_id}-member"),
            instance_id: None,
            client_id: "c".into(),
            client_host: "/10.0.0.1".into(),
            session_timeout_ms: 60_000,
            rebalance_timeout_ms: 60_000,
            protocol_type: "consumer".into(),
            protocols: vec![("range".into(), Bytes::new())],
            knows_member_id_required: false,
            knows_skip_assignment: false,
        };
        groups.join(group_id, request).await
    }

    #[tokio::test]
    async fn groups_without_members_give_way_and_keep_their_offsets() {
        let mut settings = GroupSettings { groups_max: 1, ..GroupSettings::default() };
        settings.limits.initial_rebalance_delay_ms = 0;
        let (_directory, groups) = open(settings);
        let joined = join(&groups, "a").await;
        assert_eq!(joined.error, KafkaError::NONE);
        assert_eq!(join(&groups, "b").await.error, KafkaError::GROUP_MAX_SIZE_REACHED);
        let identity = MemberIdentity { member_id: &joined.member_id, instance_id: None };
        assert_eq!(groups.leave("a", &[identity]), [KafkaError::NONE]);
        // It is over, and a new one of that name only commits.
        assert_eq!(commit(&groups, "a", 5, "").await, KafkaError::NONE);
        let joined = join(&groups, "a").await;
        let identity = MemberIdentity { member_id: &joined.member_id, instance_id: None };
        assert_eq!(groups.leave("a", &[identity]), [KafkaError::NONE]);
        assert_eq!(join(&groups, "b").await.error, KafkaError::NONE);
        let found = groups.committed("a", [("t", 0)]).unwrap().remove(0).unwrap();
        assert_eq!(found.offset, 5);
        assert_eq!(join(&groups, "a").await.error, KafkaError::GROUP_MAX_SIZE_REACHED);
    }

    #[tokio::test]
    async fn without_room_for_new_offsets_those_there_are_still_move() {
        // Room for one entry, and not for two.
        let settings = GroupSettings { offsets_bytes_max: 300, ..GroupSettings::default() };
        let (_directory, groups) = open(settings);
        assert_eq!(commit(&groups, "a", 1, "note").await, KafkaError::NONE);
        let full = KafkaError::INVALID_COMMIT_OFFSET_SIZE;
        assert_eq!(commit(&groups, "b", 1, "").await, full);
        assert_eq!(commit(&groups, "a", 2, "n").await, KafkaError::NONE);
        assert_eq!(commit(&groups, "a", 3, &"x".repeat(300)).await, full);
        let found = groups.committed("a", [("t", 0)]).unwrap().remove(0).unwrap();
        assert_eq!((found.offset, &*found.metadata), (2, "n"));
    }
}
