//! What a mirror's task keeps of each topic and partition.

use std::sync::Arc;

use dataplane::{CoreId, Partition};
use storage::{LeaderEpoch, Log, Offset, TopicId, TopicPartition};

use super::machine::Machine;
use crate::store::{PartitionRecord, StoredFault, TopicRecord};

/// Where a partition's log is.
#[derive(Debug)]
pub(super) enum Body {
    /// Not there yet.
    Missing,
    /// With us: readable, and nobody fetches into it.
    Held(Arc<Partition>, Box<Log>),
    /// With its core.
    Given(Arc<Partition>),
    /// Between two of the above.
    Moving,
}

impl Body {
    /// The shared partition, once there is a log.
    pub(super) fn partition(&self) -> Option<&Arc<Partition>> {
        match self {
            Self::Missing | Self::Moving => None,
            Self::Held(partition, _) | Self::Given(partition) => Some(partition),
        }
    }

    /// The epoch of the log's last batch.
    pub(super) fn epoch(&self) -> LeaderEpoch {
        self.partition().map_or(LeaderEpoch::UNKNOWN, |partition| partition.log.latest_epoch())
    }

    /// The log's end; -1 while there is none.
    pub(super) fn end(&self) -> Offset {
        self.partition().map_or(Offset(-1), |partition| partition.log.log_end())
    }
}

/// One partition.
#[derive(Debug)]
pub(super) struct Entry {
    /// Topic and index.
    pub(super) id: TopicPartition,
    /// The core that runs its cursor, always the same.
    pub(super) core: CoreId,
    /// Its state.
    pub(super) machine: Machine,
    /// The replica its leader sent us to (KIP-392), while that is not the leader.
    pub(super) read_from: Option<i32>,
    /// Its disk failed under the log: nothing is written before it is opened anew.
    pub(super) reopen: bool,
    /// An operator started it again: it goes on behind a gap, whatever the policy says.
    pub(super) gap_accepted: bool,
    /// Its log.
    pub(super) body: Body,
    /// What is stored of it.
    pub(super) record: PartitionRecord,
}

impl Entry {
    /// A partition the source has and this node does not have yet.
    pub(super) fn missing(id: TopicPartition, cores: &[CoreId]) -> Self {
        Self {
            core: core_of(&id, cores),
            id,
            machine: Machine::new(),
            read_from: None,
            reopen: false,
            gap_accepted: false,
            body: Body::Missing,
            record: PartitionRecord::default(),
        }
    }

    /// The broker its cursor fetches from.
    pub(super) fn broker(&self) -> Option<i32> {
        let leader = self.machine.leader()?;
        Some(self.read_from.unwrap_or(leader.broker))
    }
}

/// One topic.
#[derive(Debug)]
pub(super) struct Topic {
    /// The id it has here.
    pub(super) id: TopicId,
    /// Whether that is the source's.
    pub(super) source_has_id: bool,
    /// Whether the operator named it.
    pub(super) named: bool,
    /// Its entries, by partition index.
    pub(super) entries: Vec<u32>,
    /// Looks in a row that did not find it.
    pub(super) missing: u8,
    /// Why it stopped for good.
    pub(super) fault: Option<StoredFault>,
}

impl Topic {
    /// As it is stored.
    pub(super) fn record(&self, name: &str, mirror: &str) -> TopicRecord {
        TopicRecord {
            name: name.to_owned(),
            mirror: mirror.to_owned(),
            id: self.id.to_string(),
            source_has_id: self.source_has_id,
            named: self.named,
            partitions: i32::try_from(self.entries.len()).unwrap_or(i32::MAX),
            fault: self.fault.clone(),
        }
    }

    /// The source's id; zero where it has none.
    pub(super) fn source_id(&self) -> TopicId {
        if self.source_has_id { self.id } else { TopicId::ZERO }
    }
}

/// The core of a partition: by its name, so that a restart finds it where it was (FNV-1a).
pub(super) fn core_of(id: &TopicPartition, cores: &[CoreId]) -> CoreId {
    let index = id.partition.to_be_bytes();
    let bytes = id.topic.bytes().chain(index);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // FNV leaves neighbouring partitions alike in all but a few bits: mix them through.
    let mixed = (hash ^ (hash >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    cores[((mixed >> 32) % cores.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_topic_spread_over_the_cores_evenly_and_for_ever() {
        let cores: Vec<_> = (0..4).map(CoreId).collect();
        let place =
            |partition| core_of(&TopicPartition { topic: "orders".into(), partition }, &cores);
        let mut counts = [0; 4];
        for partition in 0..1000 {
            counts[usize::from(place(partition).0)] += 1;
        }
        assert!(counts.iter().all(|count| (180..320).contains(count)), "{counts:?}");
        let first: Vec<_> = (0..8).map(|partition| place(partition).0).collect();
        assert_eq!(first, [0, 0, 0, 1, 2, 1, 2, 3]);
    }
}
