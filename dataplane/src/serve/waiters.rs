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

    /// Whether nobody waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.free.len() == self.nodes.len()
    }

    fn node_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.nodes.get_mut(index as usize)?.as_mut()
    }
}

fn key_of(partition: &Arc<Partition>) -> usize {
    Arc::as_ptr(partition) as usize
}
