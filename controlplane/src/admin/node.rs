//! What this node tells clients about itself and its topics.

use std::sync::Arc;

use dataplane::{Advertised, Partition, PartitionTable};
use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;

use super::call::{Call, text};
use super::errors::KafkaError;

pub(super) use crate::groups::OFFSETS_TOPIC;

/// "Not asked for", in a field of authorized operations.
pub(super) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;

/// What anybody may do with a mirrored topic: READ, DESCRIBE, DESCRIBE_CONFIGS, one bit each by
/// the operation's number.
pub(super) const TOPIC_OPERATIONS: i32 = (1 << 3) | (1 << 8) | (1 << 10);

/// What anybody may do with the cluster: CREATE (of mirrors), ALTER, DESCRIBE, DESCRIBE_CONFIGS.
pub(super) const CLUSTER_OPERATIONS: i32 = (1 << 5) | (1 << 7) | (1 << 8) | (1 << 10);

/// What anybody may do with a group: READ, DELETE, DESCRIBE.
pub(super) const GROUP_OPERATIONS: i32 = (1 << 3) | (1 << 6) | (1 << 8);

/// Kafka's bound on a topic name.
const TOPIC_NAME_LEN_MAX: usize = 249;

/// Who this node is to clients.
#[derive(Debug, Clone)]
pub struct NodeIdentity {
    /// Our own cluster id (22 characters), made once and kept.
    pub cluster_id: String,
    /// Our node id, and where clients are told to find it.
    pub advertised: Advertised,
}

/// What the handlers of topics and cluster share.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) identity: NodeIdentity,
    pub(super) table: Arc<PartitionTable>,
}

impl Node {
    pub(super) fn id(&self) -> BrokerId {
        BrokerId(self.identity.advertised.node_id)
    }

    /// The host that this client is told.
    pub(super) fn host(&self, call: &Call) -> StrBytes {
        text(self.identity.advertised.host_at(call.local))
    }

    /// The port that this client is told.
    pub(super) fn port(&self, call: &Call) -> i32 {
        self.identity.advertised.port_at(call.local).into()
    }

    /// A topic's partitions; empty when it is not here.
    pub(super) fn topic(&self, name: &str) -> Vec<Arc<Partition>> {
        self.table.topic(name)
    }

    /// A topic's partitions by index. `None` keeps the place of one that is not here, because its log
    /// cannot be made or opened: clients take the number of partitions they are told for all there are,
    /// and a group would share out the first ones and leave the last to nobody.
    pub(super) fn places(&self, topic: &str) -> Vec<Option<Arc<Partition>>> {
        let mut places = Vec::new();
        for partition in self.topic(topic) {
            let index = usize::try_from(partition.id.partition).unwrap_or(0);
            places.resize(places.len().max(index), None);
            places.push(Some(partition));
        }
        places
    }

    /// How the partition of a place is led.
    pub(super) fn leadership(&self, place: Option<&Partition>) -> Leadership {
        match place {
            Some(known) => Leadership {
                error: KafkaError::NONE,
                leader: self.id(),
                epoch: known.advertised_epoch().0,
                in_sync: vec![self.id()],
                offline: Vec::new(),
            },
            None => Leadership {
                error: KafkaError::LEADER_NOT_AVAILABLE,
                leader: BrokerId(-1),
                epoch: -1,
                in_sync: Vec::new(),
                offline: vec![self.id()],
            },
        }
    }

    /// Whether a partition is here.
    pub(super) fn has(&self, topic: &str, partition: i32) -> bool {
        self.table.by_name(topic, partition).is_some()
    }
}

/// What clients are told of who leads a partition. Its one replica is here.
pub(super) struct Leadership {
    pub(super) error: KafkaError,
    pub(super) leader: BrokerId,
    pub(super) epoch: i32,
    pub(super) in_sync: Vec<BrokerId>,
    pub(super) offline: Vec<BrokerId>,
}

/// Whether a topic of this name could exist on any Kafka cluster.
pub(super) fn is_topic_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= TOPIC_NAME_LEN_MAX
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_client_of_a_dual_stack_socket_is_told_an_ipv4_address() {
        let told = |reached: &str| Advertised::default().host_at(reached.parse().unwrap());
        assert_eq!(told("[::ffff:10.0.0.1]:9092"), "10.0.0.1");
        assert_eq!(told("[fd00::1]:9092"), "fd00::1");
    }

    #[test]
    fn names_are_held_to_kafkas_rules() {
        assert!(is_topic_name("a-1-b.c_d"));
        assert!(is_topic_name(&"x".repeat(249)));
        for bad in ["", ".", "..", "a b", "ä", &"x".repeat(250)] {
            assert!(!is_topic_name(bad), "{bad:?}");
        }
    }
}
