//! Links: settings, the cursors of each topic, and the lanes to each broker.
//!
//! Looked up for every partition of every answer: by topic id or name, then by index, without
//! allocation.

use std::collections::HashMap;
use std::sync::Arc;

use storage::TopicId;

use super::cursor::CursorKey;
use crate::handle::{BrokerId, LaneKind, LinkSettings};
use crate::partition::Partition;

/// The lanes to one broker, by slot.
#[derive(Debug, Default)]
pub(super) struct BrokerLanes {
    /// Tail lanes.
    pub(super) tail: Vec<u32>,
    /// Catch-up lanes.
    pub(super) catch_up: Vec<u32>,
}

impl BrokerLanes {
    fn of(&mut self, kind: LaneKind) -> &mut Vec<u32> {
        match kind {
            LaneKind::Tail => &mut self.tail,
            LaneKind::CatchUp => &mut self.catch_up,
        }
    }
}

#[derive(Debug, Default)]
struct Topic {
    partitions: HashMap<i32, CursorKey>,
    name: Option<Arc<str>>,
    id: TopicId,
}

/// One mirror's tie to one source cluster, as one core sees it.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Settings; nothing is sent before they are here.
    pub(super) settings: Option<LinkSettings>,
    /// The client id of its requests.
    pub(super) client_id: String,
    topics: Vec<Topic>,
    free_topics: Vec<u32>,
    by_name: HashMap<Arc<str>, u32>,
    by_id: HashMap<TopicId, u32>,
    brokers: HashMap<BrokerId, BrokerLanes>,
}

impl Link {
    /// Takes settings over; the next request goes by them.
    pub(super) fn set(&mut self, settings: LinkSettings) {
        self.client_id = format!("longhaul-{}", settings.mirror);
        self.settings = Some(settings);
    }

    /// Lists a cursor under its topic; returns the topic's index.
    pub(super) fn list(&mut self, partition: &Partition, key: CursorKey) -> u32 {
        let known = if partition.topic_id.is_zero() {
            self.by_name.get(&partition.id.topic).copied()
        } else {
            self.by_id.get(&partition.topic_id).copied()
        };
        let index = known.unwrap_or_else(|| self.new_topic(partition));
        self.topics[index as usize].partitions.insert(partition.id.partition, key);
        index
    }

    fn new_topic(&mut self, partition: &Partition) -> u32 {
        let index = self.free_topics.pop().unwrap_or_else(|| {
            self.topics.push(Topic::default());
            u32::try_from(self.topics.len() - 1).unwrap_or(u32::MAX)
        });
        let topic = &mut self.topics[index as usize];
        topic.name = Some(partition.id.topic.clone());
        topic.id = partition.topic_id;
        // A recreated topic takes the name over from the one before it; ids never change hands.
        self.by_name.insert(partition.id.topic.clone(), index);
        if !partition.topic_id.is_zero() {
            self.by_id.insert(partition.topic_id, index);
        }
        index
    }

    /// Takes a cursor off its topic.
    pub(super) fn unlist(&mut self, index: u32, partition: i32, key: CursorKey) {
        let Some(topic) = self.topics.get_mut(index as usize) else { return };
        if topic.partitions.get(&partition) == Some(&key) {
            topic.partitions.remove(&partition);
        }
        if !topic.partitions.is_empty() {
            return;
        }
        let Some(name) = topic.name.take() else { return };
        if self.by_name.get(&name) == Some(&index) {
            self.by_name.remove(&name);
        }
        if self.by_id.get(&topic.id) == Some(&index) {
            self.by_id.remove(&topic.id);
        }
        self.free_topics.push(index);
    }

    /// The cursor an answer names: by id where it has one, else by name.
    pub(super) fn find(&self, name: &str, id: TopicId, partition: i32) -> Option<CursorKey> {
        let index = if id.is_zero() { self.by_name.get(name)? } else { self.by_id.get(&id)? };
        self.topics.get(*index as usize)?.partitions.get(&partition).copied()
    }

    /// Adds a lane.
    pub(super) fn add_lane(&mut self, broker: BrokerId, kind: LaneKind, slot: u32) {
        self.brokers.entry(broker).or_default().of(kind).push(slot);
    }

    /// Removes a lane.
    pub(super) fn remove_lane(&mut self, broker: BrokerId, kind: LaneKind, slot: u32) {
        if let Some(lanes) = self.brokers.get_mut(&broker) {
            lanes.of(kind).retain(|other| *other != slot);
            if lanes.tail.is_empty() && lanes.catch_up.is_empty() {
                self.brokers.remove(&broker);
            }
        }
    }

    /// The lanes to a broker.
    pub(super) fn lanes(&self, broker: BrokerId) -> Option<&BrokerLanes> {
        self.brokers.get(&broker)
    }

    /// Whether there is a catch-up lane to a broker.
    pub(super) fn has_catch_up(&self, broker: BrokerId) -> bool {
        self.lanes(broker).is_some_and(|lanes| !lanes.catch_up.is_empty())
    }
}
