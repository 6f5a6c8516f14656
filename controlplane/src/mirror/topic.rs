//! Whether a topic at the source is still the one we mirror.

use storage::TopicId;

use crate::client::{KafkaCode, TopicMetadata};

/// How often in a row a topic must be missing before it counts as deleted: a broker that has just
/// started does not know every topic yet.
const MISSING_LOOKS: u8 = 2;

/// What is known of a mirrored topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The source's id; zero for a source without ids.
    pub(super) source_id: TopicId,
    /// Partitions it had.
    pub(super) partitions: usize,
    /// How often in a row it was missing before this look.
    pub(super) missing: u8,
}

/// What a look at the source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The same topic, maybe with more partitions.
    Same,
    /// Not there: look again soon.
    Missing,
    /// Not there, again.
    Deleted,
    /// Another topic has its name now.
    Recreated(String),
    /// The source would not say.
    Unclear(KafkaCode),
}

/// Judges one look.
pub(super) fn look(known: Known, seen: Option<&TopicMetadata>) -> Look {
    let gone = |code: KafkaCode| code == KafkaCode::UNKNOWN_TOPIC_OR_PARTITION;
    let Some(seen) = seen.filter(|seen| !gone(seen.code)) else {
        return if known.missing + 1 >= MISSING_LOOKS { Look::Deleted } else { Look::Missing };
    };
    if seen.code.is_error() {
        return Look::Unclear(seen.code);
    }
    if !known.source_id.is_zero() && !seen.id.is_zero() && known.source_id != seen.id {
        return Look::Recreated(format!(
            "its topic id was {}, now it is {}",
            known.source_id, seen.id
        ));
    }
    // Kafka never takes a partition away from a topic.
    if seen.partitions.len() < known.partitions {
        return Look::Recreated(format!(
            "it had {} partitions, now it has {}",
            known.partitions,
            seen.partitions.len()
        ));
    }
    Look::Same
}

#[cfg(test)]
mod tests {
    use storage::LeaderEpoch;

    use super::*;
    use crate::client::PartitionMetadata;

    fn seen(id: u8, partitions: i32, code: i16) -> TopicMetadata {
        let partition = |partition| PartitionMetadata {
            partition,
            code: KafkaCode::NONE,
            leader: Some(1),
            leader_epoch: LeaderEpoch(0),
        };
        TopicMetadata {
            name: "t".into(),
            id: TopicId([id; 16]),
            code: KafkaCode(code),
            is_internal: false,
            partitions: (0..partitions).map(partition).collect(),
        }
    }

    fn known(id: u8, missing: u8) -> Known {
        Known { source_id: TopicId([id; 16]), partitions: 3, missing }
    }

    #[test]
    fn the_same_topic_may_grow() {
        assert_eq!(look(known(1, 0), Some(&seen(1, 3, 0))), Look::Same);
        assert_eq!(look(known(1, 1), Some(&seen(1, 6, 0))), Look::Same);
    }

    #[test]
    fn missing_once_is_not_deleted() {
        assert_eq!(look(known(1, 0), None), Look::Missing);
        assert_eq!(look(known(1, 0), Some(&seen(0, 0, 3))), Look::Missing);
        assert_eq!(look(known(1, 1), None), Look::Deleted);
    }

    #[test]
    fn another_id_or_fewer_partitions_is_another_topic() {
        assert!(matches!(look(known(1, 0), Some(&seen(2, 3, 0))), Look::Recreated(_)));
        assert!(matches!(look(known(1, 0), Some(&seen(1, 2, 0))), Look::Recreated(_)));
        // A source that has learned to give ids since.
        assert_eq!(look(known(0, 0), Some(&seen(2, 3, 0))), Look::Same);
    }

    #[test]
    fn a_refusal_says_nothing_about_the_topic() {
        assert_eq!(look(known(1, 1), Some(&seen(0, 0, 29))), Look::Unclear(KafkaCode(29)));
    }
}
