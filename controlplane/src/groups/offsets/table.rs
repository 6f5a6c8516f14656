//! What the log says: the latest record of each key, in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::records::{RecordKey, group_key, offset_key, offset_value, read_offset_value};

/// What one entry costs beyond its strings: map nodes, the committed offset itself, allocation.
const ENTRY_BYTES: usize = 160;

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    /// The next offset to be consumed.
    pub(crate) offset: i64,
    /// Epoch of the last consumed record, -1 if the consumer did not say.
    pub(crate) leader_epoch: i32,
    /// The consumer's own note.
    pub(crate) metadata: Arc<str>,
    /// When it was committed.
    pub(crate) commit_timestamp_ms: i64,
}

/// A topic's offsets of one group, by partition.
pub(crate) type TopicOffsets = (Arc<str>, Vec<(i32, Committed)>);

/// One change of a group.
#[derive(Debug, Clone)]
pub(crate) enum Update {
    /// An offset is committed.
    Commit { topic: Arc<str>, partition: i32, committed: Committed },
    /// An offset is deleted.
    Forget { topic: Arc<str>, partition: i32 },
    /// The group's members changed; the value as it is written.
    Group(Bytes),
    /// The group has no members any more; what it committed stays.
    Disband,
    /// The group and all its offsets are deleted.
    Delete,
}

/// A record to be written.
#[derive(Debug, Clone)]
pub(super) struct OwnRecord {
    pub(super) key: Vec<u8>,
    /// `None` deletes.
    pub(super) value: Option<Vec<u8>>,
}

impl OwnRecord {
    pub(super) fn size_bytes(&self) -> usize {
        // Lengths, deltas and attributes of a record take at most this much.
        const FRAMING_BYTES: usize = 24;
        self.key.len() + self.value.as_ref().map_or(0, Vec::len) + FRAMING_BYTES
    }
}

/// What one group committed.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupOffsets {
    topics: BTreeMap<Arc<str>, BTreeMap<i32, Committed>>,
    /// The group's members, as last written.
    record: Option<Bytes>,
}

/// Every group's offsets.
#[derive(Debug, Default)]
pub(crate) struct OffsetTable {
    groups: HashMap<Arc<str>, GroupOffsets>,
    kept_bytes: usize,
}

impl OffsetTable {
    /// A group's offset of a partition.
    pub(crate) fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<Committed> {
        self.groups.get(group)?.topics.get(topic)?.get(&partition).cloned()
    }

    /// A group's offsets, by topic and partition.
    pub(crate) fn of_group(&self, group: &str) -> Vec<TopicOffsets> {
        let Some(offsets) = self.groups.get(group) else { return Vec::new() };
        let topics = offsets.topics.iter().map(|(topic, partitions)| {
            let partitions =
                partitions.iter().map(|(index, committed)| (*index, committed.clone()));
            (topic.clone(), partitions.collect())
        });
        topics.collect()
    }

    /// Whether the group has any offset.
    pub(crate) fn has_offsets(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|offsets| !offsets.topics.is_empty())
    }

    /// Whether anything is known of the group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// Every group of which anything is known.
    pub(crate) fn group_names(&self) -> Vec<Arc<str>> {
        self.groups.keys().cloned().collect()
    }

    /// The members of each group, as written.
    pub(crate) fn group_records(&self) -> impl Iterator<Item = (&Arc<str>, &Bytes)> {
        self.groups.iter().filter_map(|(group, offsets)| Some((group, offsets.record.as_ref()?)))
    }

    /// Memory that the entries take, about.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Memory that an entry takes.
    fn entry_bytes(group: &str, topic: &str, metadata: &str) -> usize {
        ENTRY_BYTES + group.len() + topic.len() + metadata.len()
    }

    /// Memory that a commit would add: none for one that replaces another as long.
    pub(crate) fn added_bytes(
        &self,
        group: &str,
        topic: &str,
        partition: i32,
        metadata: &str,
    ) -> usize {
        let replaced = self.groups.get(group).and_then(|offsets| offsets.topics.get(topic));
        let replaced = replaced.and_then(|partitions| partitions.get(&partition));
        let bytes = |metadata: &str| Self::entry_bytes(group, topic, metadata);
        bytes(metadata).saturating_sub(replaced.map_or(0, |known| bytes(&known.metadata)))
    }

    /// Makes a change.
    pub(super) fn apply(&mut self, group: &str, update: &Update) {
        match update {
            Update::Commit { topic, partition, committed } => {
                let added = Self::entry_bytes(group, topic, &committed.metadata);
                let topics = &mut self.entry(group).topics;
                let partitions = topics.entry(topic.clone()).or_default();
                let replaced = partitions.insert(*partition, committed.clone());
                self.kept_bytes += added;
                if let Some(replaced) = replaced {
                    self.release(Self::entry_bytes(group, topic, &replaced.metadata));
                }
            }
            Update::Forget { topic, partition } => self.forget(group, topic, *partition),
            Update::Group(value) => {
                let added = value.len();
                let replaced = self.entry(group).record.replace(value.clone());
                self.kept_bytes += added;
                self.release(replaced.map_or(0, |record| record.len()));
            }
            Update::Disband => {
                if let Some(offsets) = self.groups.get_mut(group) {
                    let released = offsets.record.take().map_or(0, |record| record.len());
                    self.release(released);
                    self.drop_if_bare(group);
                }
            }
            Update::Delete => {
                let offsets = self.groups.remove(group).unwrap_or_default();
                self.release(offsets.kept_bytes(group));
            }
        }
    }

    /// Makes the change that a record read from the log stands for.
    pub(super) fn replay(&mut self, key: &[u8], value: Option<&[u8]>) {
        match (RecordKey::decode(key), value) {
            (Some(RecordKey::Offset { group, topic, partition }), Some(value)) => {
                let Some(committed) = read_offset_value(value) else { return };
                let topic = self.interned(&group, &topic);
                self.apply(&group, &Update::Commit { topic, partition, committed });
            }
            (Some(RecordKey::Offset { group, topic, partition }), None) => {
                self.forget(&group, &topic, partition);
            }
            (Some(RecordKey::Group { group }), Some(value)) => {
                self.apply(&group, &Update::Group(Bytes::copy_from_slice(value)));
            }
            (Some(RecordKey::Group { group }), None) => self.apply(&group, &Update::Disband),
            (None, _) => {}
        }
    }

    /// Takes what was read back for the groups that `belongs` names, in place of what was there.
    pub(super) fn replace(&mut self, fresh: Self, belongs: impl Fn(&str) -> bool) {
        let stale: Vec<_> = self.groups.keys().filter(|group| belongs(group)).cloned().collect();
        for group in stale {
            self.apply(&group, &Update::Delete);
        }
        self.kept_bytes += fresh.kept_bytes;
        self.groups.extend(fresh.groups);
    }

    /// The records that a change is written as.
    pub(super) fn records(&self, group: &str, update: &Update) -> Vec<OwnRecord> {
        match update {
            Update::Commit { topic, partition, committed } => vec![OwnRecord {
                key: offset_key(group, topic, *partition),
                value: Some(offset_value(committed)),
            }],
            Update::Forget { topic, partition } => {
                vec![OwnRecord { key: offset_key(group, topic, *partition), value: None }]
            }
            Update::Group(value) => {
                vec![OwnRecord { key: group_key(group), value: Some(value.to_vec()) }]
            }
            Update::Disband => vec![OwnRecord { key: group_key(group), value: None }],
            Update::Delete => {
                let mut records = self.live_records(group);
                records.iter_mut().for_each(|record| record.value = None);
                records
            }
        }
    }

    /// Everything known of a group, as records.
    pub(super) fn live_records(&self, group: &str) -> Vec<OwnRecord> {
        let Some(offsets) = self.groups.get(group) else { return Vec::new() };
        let mut records = Vec::new();
        for (topic, partitions) in &offsets.topics {
            records.extend(partitions.iter().map(|(partition, committed)| OwnRecord {
                key: offset_key(group, topic, *partition),
                value: Some(offset_value(committed)),
            }));
        }
        records.extend(
            offsets
                .record
                .iter()
                .map(|value| OwnRecord { key: group_key(group), value: Some(value.to_vec()) }),
        );
        records
    }

    fn entry(&mut self, group: &str) -> &mut GroupOffsets {
        if !self.groups.contains_key(group) {
            self.groups.insert(Arc::from(group), GroupOffsets::default());
        }
        self.groups.entry(Arc::from(group)).or_default()
    }

    /// The topic's name as the group has it already, so that it is kept once.
    fn interned(&self, group: &str, topic: &str) -> Arc<str> {
        let known = self.groups.get(group).and_then(|offsets| offsets.topics.get_key_value(topic));
        known.map_or_else(|| Arc::from(topic), |(topic, _)| topic.clone())
    }

    fn forget(&mut self, group: &str, topic: &str, partition: i32) {
        let Some(offsets) = self.groups.get_mut(group) else { return };
        let Some(partitions) = offsets.topics.get_mut(topic) else { return };
        let Some(forgotten) = partitions.remove(&partition) else { return };
        if partitions.is_empty() {
            offsets.topics.remove(topic);
        }
        self.release(Self::entry_bytes(group, topic, &forgotten.metadata));
        self.drop_if_bare(group);
    }

    fn drop_if_bare(&mut self, group: &str) {
        let is_bare =
            |offsets: &GroupOffsets| offsets.topics.is_empty() && offsets.record.is_none();
        if self.groups.get(group).is_some_and(is_bare) {
            self.groups.remove(group);
        }
    }

    fn release(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_sub(bytes);
    }
}

impl GroupOffsets {
    fn kept_bytes(&self, group: &str) -> usize {
        let entries = self.topics.iter().flat_map(|(topic, partitions)| {
            partitions
                .values()
                .map(move |committed| OffsetTable::entry_bytes(group, topic, &committed.metadata))
        });
        entries.sum::<usize>() + self.record.as_ref().map_or(0, Bytes::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(topic: &str, partition: i32, offset: i64) -> Update {
        Update::Commit {
            topic: topic.into(),
            partition,
            committed: Committed {
                offset,
                leader_epoch: 1,
                metadata: "note".into(),
                commit_timestamp_ms: 5,
            },
        }
    }

    #[test]
    fn what_is_written_replays_to_what_was_applied() {
        let updates = [
            ("g", commit("a-1-b", 0, 5)),
            ("g", commit("a-1", 1, 6)),
            ("g", commit("a-1-b", 0, 7)),
            ("h", commit("a-1", 0, 1)),
            ("g", Update::Group(Bytes::from_static(b"\0\x03members"))),
            ("g", Update::Forget { topic: "a-1".into(), partition: 1 }),
            ("i", commit("t", 0, 1)),
            ("i", Update::Group(Bytes::from_static(b"x"))),
            ("i", Update::Delete),
            ("j", Update::Group(Bytes::from_static(b"x"))),
            ("j", Update::Disband),
            ("k", Update::Group(Bytes::from_static(b"x"))),
            ("k", commit("t", 0, 1)),
            ("k", Update::Disband),
            ("h", Update::Forget { topic: "a-1".into(), partition: 0 }),
        ];
        let mut applied = OffsetTable::default();
        let mut replayed = OffsetTable::default();
        for (group, update) in &updates {
            for record in applied.records(group, update) {
                replayed.replay(&record.key, record.value.as_deref());
            }
            applied.apply(group, update);
        }
        assert_eq!(applied.committed("g", "a-1-b", 0).unwrap().offset, 7);
        assert_eq!(applied.committed("g", "a-1", 1), None);
        assert_eq!(applied.committed("k", "t", 0).unwrap().offset, 1);
        for group in ["g", "h", "i", "j", "k"] {
            assert_eq!(applied.of_group(group), replayed.of_group(group));
        }
        let names = |table: &OffsetTable| {
            let mut names = table.group_names();
            names.sort();
            names
        };
        assert_eq!(names(&applied), ["g".into(), "k".into()] as [Arc<str>; 2]);
        assert_eq!(names(&replayed), names(&applied));
        assert_eq!(applied.group_records().count(), 1, "that of g");
        assert_eq!(replayed.kept_bytes(), applied.kept_bytes());
    }

    #[test]
    fn memory_is_given_back() {
        let mut table = OffsetTable::default();
        table.apply("g", &commit("t", 0, 1));
        let once = table.kept_bytes();
        table.apply("g", &commit("t", 0, 2));
        assert_eq!(table.kept_bytes(), once);
        table.apply("g", &Update::Group(Bytes::from_static(b"abc")));
        table.apply("g", &Update::Delete);
        assert_eq!(table.kept_bytes(), 0);
        assert!(!table.has_group("g"));
    }
}
