//! What all mirrors of a node share.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataplane::PartitionTable;
use storage::{LogConfig, Storage};

use super::cores::Cores;
use crate::config::MirrorDefaults;
use crate::store::StoreWriter;

/// The node as a mirror sees it.
#[derive(Debug)]
pub(super) struct Shared {
    /// This node's own cluster id: a mirror of ourselves is refused.
    pub(super) cluster_id: String,
    pub(super) defaults: MirrorDefaults,
    pub(super) log_config: LogConfig,
    pub(super) store: StoreWriter,
    pub(super) storage: Arc<Storage>,
    pub(super) table: Arc<PartitionTable>,
    pub(super) cores: Arc<dyn Cores>,
    /// Which mirror has a topic.
    pub(super) owners: Owners,
    pub(super) lane_ids: AtomicU64,
}

/// Topics and the mirrors they belong to: no topic has two.
#[derive(Debug, Default)]
pub(super) struct Owners {
    by_topic: Mutex<HashMap<Arc<str>, Arc<str>>>,
}

impl Owners {
    /// Takes a topic for a mirror; the error names the mirror that has it.
    pub(super) fn claim(&self, topic: &Arc<str>, mirror: &Arc<str>) -> Result<(), Arc<str>> {
        let mut owners = self.lock();
        match owners.get(topic) {
            Some(owner) if owner != mirror => Err(owner.clone()),
            Some(_) => Ok(()),
            None => {
                owners.insert(topic.clone(), mirror.clone());
                Ok(())
            }
        }
    }

    /// Gives back what was claimed and then could not be stored.
    pub(super) fn release(&self, topic: &str) {
        self.lock().remove(topic);
    }

    /// A mirror's topics, sorted.
    pub(super) fn topics_of(&self, mirror: &str) -> Vec<String> {
        let owners = self.lock();
        let mine = owners.iter().filter(|(_, owner)| &***owner == mirror);
        let mut topics: Vec<_> = mine.map(|(topic, _)| topic.to_string()).collect();
        topics.sort();
        topics
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<str>>> {
        self.by_topic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_one_mirror() {
        let owners = Owners::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let topic: Arc<str> = "t".into();
        assert_eq!(owners.claim(&topic, &a), Ok(()));
        assert_eq!(owners.claim(&topic, &a), Ok(()));
        assert_eq!(owners.claim(&topic, &b), Err(a.clone()));
        assert_eq!(owners.topics_of("a"), ["t"]);
        owners.release("t");
        assert_eq!(owners.claim(&topic, &b), Ok(()));
    }
}
