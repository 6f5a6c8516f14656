//! Which connections wait for which partitions, on one core. No input or output, no clock.
//!
//! Each wait is a node in two chains, that of its partition and that of its connection, so adding
//! and removing one costs the same however many connections wait for a partition. The nodes of a
//! connection are removed when its wait ends; their memory is charged to the budget of parked polls.

use std::collections::HashMap;
use std::sync::Arc;

use super::fetch::Watch;
use crate::partition::Partition;

/// End of a chain.
const NONE: u32 = u32::MAX;

/// Bytes that one wait costs, about.
pub(super) const WAIT_BYTES: usize = size_of::<Node>() + size_of::<Head>() + 64;

/// All waits of a core.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    nodes: Vec<Option<Node>>,
    free: Vec<u32>,
    heads: HashMap<usize, Head>,
}

#[derive(Debug)]
struct Head {
    first: u32,
    /// Keeps the address in use as a key from being reused.
    _partition: Arc<Partition>,
}

#[derive(Debug)]
struct Node {
    slot: u32,
    partition: usize,
    previous: u32,
    next: u32,
    next_of_connection: u32,
    watch: Watch,
}

/// The waits of one connection.
#[derive(Debug)]
pub(super) struct Chain(u32);

impl Default for Chain {
    fn default() -> Self {
        Self(NONE)
    }
}

impl Waiters {
    /// Adds a wait of the connection in `slot` to its chain.
    pub(super) fn add(&mut self, slot: u32, chain: &mut Chain, watch: Watch) {
        let Some(partition) = watch.partition().cloned() else { return };
        let key = key_of(&partition);
        let head =
            self.heads.entry(key).or_insert_with(|| Head { first: NONE, _partition: partition });
        let next = head.first;
        let node =
            Node { slot, partition: key, previous: NONE, next, next_of_connection: chain.0, watch };
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.nodes.push(None);
                (self.nodes.len() - 1) as u32
            }
        };
        head.first = index;
        self.nodes[index as usize] = Some(node);
        if let Some(next) = self.node_mut(next) {
            next.previous = index;
        }
        chain.0 = index;
    }

    /// Removes all waits of a connection.
    pub(super) fn remove(&mut self, chain: Chain) {
        let mut index = chain.0;
        while let Some(node) = self.nodes.get_mut(index as usize).and_then(Option::take) {
            self.free.push(index);
            if let Some(next) = self.node_mut(node.next) {
                next.previous = node.previous;
            }
            match self.node_mut(node.previous) {
                Some(previous) => previous.next = node.next,
                None if node.next == NONE => {
                    self.heads.remove(&node.partition);
                }
                None => {
                    if let Some(head) = self.heads.get_mut(&node.partition) {
                        head.first = node.next;
                    }
                }
            }
            index = node.next_of_connection;
        }
    }

    /// The first wait for a partition.
    pub(super) fn first(&self, partition: &Arc<Partition>) -> Option<u32> {
        self.heads.get(&key_of(partition)).map(|head| head.first)
    }

    /// A wait: the connection's slot and what it watches, and the next wait for the partition.
    pub(super) fn visit(&mut self, index: u32) -> Option<(u32, &mut Watch, Option<u32>)> {
        let node = self.node_mut(index)?;
        let next = (node.next != NONE).then_some(node.next);
        Some((node.slot, &mut node.watch, next))
    }

    fn node_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.nodes.get_mut(index as usize)?.as_mut()
    }
}

fn key_of(partition: &Arc<Partition>) -> usize {
    Arc::as_ptr(partition) as usize
}

#[cfg(test)]
mod tests {
    use super::super::fetch::PendingFetch;
    use super::super::testing::{Local, Node, partition_from, request};
    use super::*;

    fn slots(waiters: &mut Waiters, partition: &Arc<Partition>) -> Vec<u32> {
        let mut found = Vec::new();
        let mut next = waiters.first(partition);
        while let Some(index) = next {
            let (slot, _, following) = waiters.visit(index).expect("a chained node");
            found.push(slot);
            next = following;
        }
        found.sort_unstable();
        found
    }

    /// Registers a connection for the topics named.
    fn wait(node: &Node, waiters: &mut Waiters, slot: u32, topics: &[&str]) -> Chain {
        let partitions: Vec<_> = topics.iter().map(|name| (*name, partition_from(0, 0))).collect();
        let mut fetch = PendingFetch::new(request(&partitions), 12, 0, node.environment());
        assert!(fetch.look(node.environment()).is_none());
        let mut chain = Chain::default();
        for watch in fetch.watches() {
            waiters.add(slot, &mut chain, watch);
        }
        chain
    }

    #[test]
    fn connections_are_found_by_partition_until_they_are_removed() {
        let node = Node::new();
        let locals: Vec<Local> = ["a", "b", "c"].map(|name| node.add(name, 0)).into();
        let at = |waiters: &mut Waiters| -> Vec<Vec<u32>> {
            locals.iter().map(|local| slots(waiters, &local.partition)).collect()
        };
        let mut waiters = Waiters::default();
        let first = wait(&node, &mut waiters, 1, &["a", "b"]);
        let second = wait(&node, &mut waiters, 2, &["b", "c"]);
        let third = wait(&node, &mut waiters, 3, &["b"]);
        assert_eq!(at(&mut waiters), [vec![1], vec![1, 2, 3], vec![2]]);
        waiters.remove(second);
        assert_eq!(at(&mut waiters), [vec![1], vec![1, 3], vec![]]);
        let again = wait(&node, &mut waiters, 4, &["c", "b", "a"]);
        assert_eq!(at(&mut waiters), [vec![1, 4], vec![1, 3, 4], vec![4]]);
        assert_eq!(waiters.nodes.len(), 6, "freed nodes are used again");
        for chain in [first, third, again] {
            waiters.remove(chain);
        }
        assert_eq!(at(&mut waiters), [vec![0; 0], vec![], vec![]]);
        assert!(waiters.heads.is_empty() && waiters.free.len() == waiters.nodes.len());
    }
}
