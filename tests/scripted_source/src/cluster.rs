//! The cluster as a test holds it: brokers, topics, hooks, and the requests that came.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{self, Sessions};
use crate::broker::{Broker, Connections};
use crate::call::{Call, Reply};
use crate::log::{PartitionLog, Topic};
use crate::{Batch, keys};

/// What every thread of the cluster shares.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) state: Guarded<State>,
    pub(crate) calls: Guarded<Calls>,
    pub(crate) hooks: Mutex<BTreeMap<i16, Hook>>,
    pub(crate) connections: Mutex<Connections>,
}

type Hook = Box<dyn FnMut(&Call) -> Reply + Send>;

/// What the brokers know.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) cluster_id: String,
    pub(crate) brokers: BTreeMap<i32, SocketAddr>,
    pub(crate) versions: BTreeMap<i16, (i16, i16)>,
    pub(crate) topics: Vec<Topic>,
    pub(crate) sessions: Sessions,
    pub(crate) ended: bool,
}

/// The requests that came, in order, and how many of each API.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) all: Vec<Call>,
    pub(crate) counts: BTreeMap<i16, usize>,
}

impl State {
    pub(crate) fn speaks(&self, api_key: i16, version: i16) -> bool {
        self.versions.get(&api_key).is_some_and(|(min, max)| (*min..=*max).contains(&version))
    }

    pub(crate) fn partition(&self, topic: &str, partition: i32) -> Option<&PartitionLog> {
        let topic = self.topics.iter().find(|known| known.name == topic)?;
        topic.partitions.get(usize::try_from(partition).ok()?)
    }
}

/// A value behind a lock whose changes can be waited for.
#[derive(Default)]
pub(crate) struct Guarded<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Guarded<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // A test that failed with the lock held has been reported; the others go on.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let outcome = change(&mut self.lock());
        self.changed.notify_all();
        outcome
    }

    pub(crate) fn wait_until<'a>(
        &self,
        guard: MutexGuard<'a, T>,
        until: Instant,
    ) -> MutexGuard<'a, T> {
        let left = until.saturating_duration_since(Instant::now());
        self.changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A stand-in cluster of brokers 1, 2 and so on; ends when dropped.
pub struct ScriptedCluster {
    shared: Arc<Shared>,
    brokers: BTreeMap<i32, Broker>,
}

impl ScriptedCluster {
    /// Starts brokers on loopback ports of the system's choice.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn start(brokers: i32) -> Self {
        let mut cluster = Self { shared: Arc::default(), brokers: BTreeMap::new() };
        cluster.shared.state.change(|state| {
            state.cluster_id = "scripted-source-cluster".to_owned();
            state.versions = BTreeMap::from([
                (keys::FETCH, api::fetch::VERSIONS),
                (keys::LIST_OFFSETS, api::list_offsets::VERSIONS),
                (keys::METADATA, api::metadata::VERSIONS),
                (keys::API_VERSIONS, api::api_versions::VERSIONS),
                (keys::OFFSET_FOR_LEADER_EPOCH, api::offset_for_leader_epoch::VERSIONS),
                (keys::DESCRIBE_CLUSTER, api::describe_cluster::VERSIONS),
            ]);
        });
        (1..=brokers).for_each(|id| cluster.start_broker(id));
        cluster
    }

    /// `HOST:PORT,...` of the running brokers.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let state = self.shared.state.lock();
        state.brokers.values().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Starts a broker that is not running, on a port of the system's choice.
    ///
    /// # Panics
    /// When it runs, or there is no port.
    pub fn start_broker(&mut self, id: i32) {
        let broker = Broker::start(id, Arc::clone(&self.shared));
        let address = broker.address();
        assert!(self.brokers.insert(id, broker).is_none(), "broker {id} runs");
        self.shared.state.change(|state| state.brokers.insert(id, address));
    }

    /// Stops a broker: its port and its connections are closed, its sessions forgotten.
    pub fn stop_broker(&mut self, id: i32) {
        self.shared.state.change(|state| {
            state.brokers.remove(&id);
            state.sessions.clear();
        });
        self.brokers.remove(&id);
        self.disconnect(id);
    }

    /// Closes the connections that a broker has now.
    pub fn disconnect(&self, broker: i32) {
        self.connections().close(broker);
    }

    /// From now on the connections that a broker has now answer nothing; new ones do. So does a
    /// path whose middlebox forgot them.
    pub fn silence(&self, broker: i32) {
        self.connections().silence(broker);
    }

    /// Open connections of a broker that are not silenced.
    #[must_use]
    pub fn connection_count(&self, broker: i32) -> usize {
        self.connections().count(broker)
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes another cluster of it, behind the same addresses.
    pub fn set_cluster_id(&self, id: &str) {
        self.shared.state.change(|state| id.clone_into(&mut state.cluster_id));
    }

    /// Speaks an API in these versions only; a range that is empty removes it.
    pub fn set_versions(&self, api_key: i16, min: i16, max: i16) {
        self.shared.state.change(|state| match min > max {
            true => state.versions.remove(&api_key),
            false => state.versions.insert(api_key, (min, max)),
        });
    }

    /// The next session gets this id, and the ones after it count on.
    pub fn number_sessions_from(&self, id: i32) {
        self.shared.state.change(|state| state.sessions.number_from(id));
    }

    /// Creates a topic, its partitions led by the brokers in turn; its id is made from `generation`
    /// and its name, so that a topic made again with another generation has another id.
    pub fn create_topic(&self, name: &str, partitions: usize, generation: u8) {
        self.shared.state.change(|state| {
            let brokers: Vec<i32> = state.brokers.keys().copied().collect();
            let leader = |index: usize| brokers.get(index % brokers.len().max(1)).copied();
            let logs = (0..partitions).map(|index| PartitionLog::new(leader(index).unwrap_or(-1)));
            let mut id = [generation; 16];
            id[..4].copy_from_slice(&crc32fast::hash(name.as_bytes()).to_be_bytes());
            let partitions = logs.collect();
            state.topics.push(Topic { name: name.to_owned(), id, partitions });
        });
    }

    /// Grows a topic; the new partitions are led by the brokers in turn.
    pub fn grow_topic(&self, name: &str, partitions: usize) {
        self.shared.state.change(|state| {
            let brokers: Vec<i32> = state.brokers.keys().copied().collect();
            let leader = |index: usize| brokers.get(index % brokers.len().max(1)).copied();
            for topic in state.topics.iter_mut().filter(|topic| topic.name == name) {
                let known = topic.partitions.len();
                let new = (known..partitions).map(|index| leader(index).unwrap_or(-1));
                topic.partitions.extend(new.map(PartitionLog::new));
            }
        });
    }

    /// Deletes a topic.
    pub fn delete_topic(&self, name: &str) {
        self.shared.state.change(|state| state.topics.retain(|topic| topic.name != name));
    }

    /// Appends a batch to a partition.
    ///
    /// # Panics
    /// When there is no such partition.
    pub fn append(&self, topic: &str, partition: usize, batch: &Batch) {
        self.change(topic, partition, |log| log.append(batch));
    }

    /// Looks at a partition, or changes it in any way.
    ///
    /// # Panics
    /// When there is no such partition.
    pub fn change<R>(
        &self,
        topic: &str,
        partition: usize,
        change: impl FnOnce(&mut PartitionLog) -> R,
    ) -> R {
        self.shared.state.change(|state| {
            let found = state.topics.iter_mut().find(|known| known.name == topic);
            let log = found.and_then(|topic| topic.partitions.get_mut(partition));
            change(log.unwrap_or_else(|| panic!("there is no {topic}-{partition}")))
        })
    }

    /// Asks `hook` about every request of this API from now on. It runs on the connection's thread;
    /// while it runs no other connection is answered with a hook.
    pub fn on(&self, api_key: i16, hook: impl FnMut(&Call) -> Reply + Send + 'static) {
        let mut hooks = self.shared.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.insert(api_key, Box::new(hook));
    }

    /// Every request of an API so far, in the order of arrival.
    #[must_use]
    pub fn calls(&self, api_key: i16) -> Vec<Call> {
        let calls = self.shared.calls.lock();
        calls.all.iter().filter(|call| call.api_key == api_key).cloned().collect()
    }

    /// Waits until `look` finds what it looks for in the requests of an API.
    ///
    /// # Panics
    /// When it does not in time.
    pub fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        api_key: i16,
        mut look: impl FnMut(&[Call]) -> Option<T>,
    ) -> T {
        let until = Instant::now() + within;
        let mut calls = self.shared.calls.lock();
        loop {
            let of_api: Vec<Call> =
                calls.all.iter().filter(|call| call.api_key == api_key).cloned().collect();
            if let Some(found) = look(&of_api) {
                return found;
            }
            assert!(Instant::now() < until, "waited {within:?} for {what}; {} calls", of_api.len());
            calls = self.shared.calls.wait_until(calls, until);
        }
    }
}

impl Drop for ScriptedCluster {
    fn drop(&mut self) {
        self.shared.state.change(|state| state.ended = true);
        let ids: Vec<i32> = self.brokers.keys().copied().collect();
        ids.into_iter().for_each(|id| self.stop_broker(id));
    }
}
