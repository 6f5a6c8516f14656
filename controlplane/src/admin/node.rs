//! What this node tells clients about itself and its topics.

use std::net::SocketAddr;
use std::sync::Arc;

use dataplane::{Partition, PartitionTable};
use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;

use super::call::{Call, text};

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
    /// Our node id.
    pub node_id: i32,
    /// The host that clients are told, when it is configured; else the address they reached.
    pub advertised_host: Option<String>,
    /// The port that clients are told.
    pub advertised_port: u16,
}

/// What the handlers of topics and cluster share.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) identity: NodeIdentity,
    pub(super) table: Arc<PartitionTable>,
}

impl Node {
    pub(super) fn id(&self) -> BrokerId {
        BrokerId(self.identity.node_id)
    }

    /// The host that this client is told. Without a configured one it is the address the client
    /// reached us at: the only one known to work for it.
    pub(super) fn host(&self, call: &Call) -> StrBytes {
        match &self.identity.advertised_host {
            Some(host) => text(host.as_str()),
            None => text(reached_address(call.local)),
        }
    }

    pub(super) fn port(&self) -> i32 {
        self.identity.advertised_port.into()
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

    /// Whether a partition is here.
    pub(super) fn has(&self, topic: &str, partition: i32) -> bool {
        self.table.by_name(topic, partition).is_some()
    }
}

/// Whether a topic of this name could exist on any Kafka cluster.
pub(super) fn is_topic_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= TOPIC_NAME_LEN_MAX
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// An IPv4 client on a socket for both families is told the IPv4 address, which it can reach.
fn reached_address(local: SocketAddr) -> String {
    local.ip().to_canonical().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_client_of_a_dual_stack_socket_is_told_an_ipv4_address() {
        assert_eq!(reached_address("[::ffff:10.0.0.1]:9092".parse().unwrap()), "10.0.0.1");
        assert_eq!(reached_address("[fd00::1]:9092".parse().unwrap()), "fd00::1");
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
