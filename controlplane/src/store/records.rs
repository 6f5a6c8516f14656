//! The records, as they are kept: JSON, so that an old node's file can be read by a newer one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use storage::{LeaderEpoch, Offset, TopicPartition};

/// A mirror as the operator created it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorRecord {
    /// Name.
    pub name: String,
    /// The configuration as it was given.
    pub config: BTreeMap<String, String>,
    /// The source's cluster id, pinned at creation.
    pub source_cluster_id: String,
    /// Patterns given to `start`, for discovery.
    #[serde(default)]
    pub include: Vec<String>,
    /// Names and patterns excluded at `start`.
    #[serde(default)]
    pub exclude: Vec<String>,
}

/// A topic that is mirrored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    /// Name, here and at the source.
    pub name: String,
    /// The mirror it belongs to.
    pub mirror: String,
    /// The topic id in Kafka's form: the source's, or our own where the source has none.
    pub id: String,
    /// Whether `id` is the source's.
    pub source_has_id: bool,
    /// Whether the operator named it; a discovered topic is `false`.
    pub named: bool,
    /// Partitions known.
    pub partitions: i32,
    /// Why the topic as a whole stopped for good (deleted, recreated).
    #[serde(default)]
    pub fault: Option<StoredFault>,
}

/// What must survive of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    /// The highest leader epoch the source confirmed, written before it is advertised.
    pub epoch: i32,
    /// Why it stopped for good, if it did.
    #[serde(default)]
    pub fault: Option<StoredFault>,
    /// Gaps: times the source deleted records before they were copied.
    #[serde(default)]
    pub gaps: u32,
    /// Offsets inside those gaps.
    #[serde(default)]
    pub gap_offsets: i64,
    /// Offsets dropped by accepted divergences.
    #[serde(default)]
    pub dropped_offsets: i64,
    /// The last of these in words: shown as long as nothing worse is.
    #[serde(default)]
    pub note: Option<String>,
    /// The last of these in numbers: it is met again when the log could not be repaired at once, or the
    /// node stopped before it was.
    #[serde(default)]
    pub counted: Option<Counted>,
}

/// A gap or a divergence that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Leader epoch of our last batch then.
    pub epoch: i32,
    /// Our end then.
    pub end: i64,
    /// Where the source's log began, or parted from ours.
    pub source: i64,
}

impl PartitionRecord {
    /// Counts a gap between our end and the source's start; answers whether it brings anything new. One
    /// that was counted and has grown since counts for what it has grown.
    pub(crate) fn count_gap(&mut self, epoch: LeaderEpoch, end: Offset, start: Offset) -> bool {
        let known = self
            .counted
            .filter(|known| known.epoch == epoch.0 && known.end == end.0 && known.source > end.0);
        let counted_to = known.map_or(end.0, |known| known.source);
        let offsets = start.0.saturating_sub(counted_to).max(0);
        if offsets == 0 {
            return false;
        }
        self.gaps = self.gaps.saturating_add(u32::from(known.is_none()));
        self.gap_offsets = self.gap_offsets.saturating_add(offsets);
        self.counted = Some(Counted { epoch: epoch.0, end: end.0, source: start.0 });
        true
    }

    /// Counts what a divergence at `common` drops; answers whether it is a new one. The same place can
    /// part again only after batches of another epoch.
    pub(crate) fn count_divergence(
        &mut self,
        epoch: LeaderEpoch,
        common: Offset,
        end: Offset,
    ) -> bool {
        let counted = Counted { epoch: epoch.0, end: end.0, source: common.0 };
        if self.counted == Some(counted) {
            return false;
        }
        let dropped = end.0.saturating_sub(common.0);
        self.dropped_offsets = self.dropped_offsets.saturating_add(dropped);
        self.counted = Some(counted);
        true
    }
}

/// A fault that only an operator can end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFault {
    /// In words.
    pub message: String,
    /// Unix milliseconds.
    pub since_ms: i64,
}

/// Kinds of history entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The source deleted records before they were copied.
    Gap,
    /// Records were dropped because an operator accepts divergence.
    Truncated,
    /// A partition stopped for good.
    Failed,
    /// A partition that had stopped for good was started again.
    Restarted,
}

/// One entry of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Unix milliseconds.
    pub at_ms: i64,
    /// What.
    pub kind: EventKind,
    /// Whose.
    pub mirror: String,
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// In words.
    pub text: String,
}

/// One write.
#[derive(Clone, Debug)]
pub enum Change {
    /// This node's own cluster id.
    ClusterId(String),
    /// A mirror.
    Mirror(MirrorRecord),
    /// A topic.
    Topic(TopicRecord),
    /// A partition.
    Partition(TopicPartition, PartitionRecord),
    /// History.
    Event(EventRecord),
}

/// Everything at start.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// This node's own cluster id.
    pub cluster_id: Option<String>,
    /// Mirrors by name.
    pub mirrors: Vec<MirrorRecord>,
    /// Topics by name.
    pub topics: Vec<TopicRecord>,
    /// Partitions by topic and index.
    pub partitions: Vec<(Arc<str>, i32, PartitionRecord)>,
    /// History, oldest first.
    pub events: Vec<EventRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: LeaderEpoch = LeaderEpoch(3);

    #[test]
    fn a_gap_that_is_met_again_counts_once() {
        let mut record = PartitionRecord::default();
        assert!(record.count_gap(EPOCH, Offset(100), Offset(250)));
        assert!(!record.count_gap(EPOCH, Offset(100), Offset(250)));
        assert_eq!((record.gaps, record.gap_offsets), (1, 150));
        // The source deleted more before it was passed.
        assert!(record.count_gap(EPOCH, Offset(100), Offset(300)));
        assert_eq!((record.gaps, record.gap_offsets), (1, 200));
        assert!(record.count_gap(EPOCH, Offset(310), Offset(320)));
        assert_eq!((record.gaps, record.gap_offsets), (2, 210));
        // Back at the same end after another history was taken over.
        assert!(record.count_divergence(EPOCH, Offset(90), Offset(310)));
        assert!(record.count_gap(LeaderEpoch(4), Offset(310), Offset(320)));
        assert_eq!((record.gaps, record.gap_offsets), (3, 220));
    }

    #[test]
    fn a_divergence_that_is_met_again_counts_once() {
        let mut record = PartitionRecord::default();
        assert!(record.count_divergence(EPOCH, Offset(60), Offset(100)));
        assert!(!record.count_divergence(EPOCH, Offset(60), Offset(100)));
        assert_eq!(record.dropped_offsets, 40);
        assert!(record.count_divergence(LeaderEpoch(4), Offset(60), Offset(100)));
        assert_eq!(record.dropped_offsets, 80);
    }
}
