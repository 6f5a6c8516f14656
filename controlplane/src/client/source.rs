//! The source cluster as a whole: bootstrap, and one connection a broker for questions.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMappedMutexGuard, OwnedMutexGuard};

use super::calls::{ClusterMetadata, TopicSelection};
use super::{Address, ClientError, ClientSettings, Connection};

/// Asks brokers of one source cluster. Cheap to clone; questions to one broker queue up behind each
/// other, questions to different brokers do not.
#[derive(Debug, Clone)]
pub struct SourceClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: ClientSettings,
    bootstrap: Vec<Address>,
    /// The cluster that every broker must belong to; `None` while a mirror is being created.
    cluster_id: Option<String>,
    /// Where metadata was answered last, and what it said of the brokers: a source whose bootstrap
    /// addresses are all gone is still found.
    known: std::sync::Mutex<Vec<Address>>,
    connections: std::sync::Mutex<HashMap<Address, Slot>>,
}

/// A broker's connection, locked by whoever asks it something.
type Slot = Arc<Mutex<Option<Connection>>>;

/// A broker's connection while one asker has it. Given back when it is dropped, unless a call on it
/// did not finish.
#[derive(Debug)]
pub struct Lease {
    connection: OwnedMappedMutexGuard<Option<Connection>, Connection>,
    reused: bool,
}

impl Lease {
    /// The connection.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Whether this error only says that the broker had closed an idle connection: lease again, and
    /// a fresh one is opened.
    #[must_use]
    pub fn was_stale(&self, error: &ClientError) -> bool {
        self.reused && matches!(error, ClientError::Lost { .. })
    }
}

/// Brokers kept connected; more than any cluster we know of has.
const CONNECTIONS_MAX: usize = 1_000;

impl SourceClient {
    /// A client that knows only where to begin. With a cluster id, a broker of another cluster is
    /// asked nothing.
    #[must_use]
    pub fn new(
        bootstrap: Vec<Address>,
        settings: ClientSettings,
        cluster_id: Option<String>,
    ) -> Self {
        let shared = Shared {
            settings,
            bootstrap,
            cluster_id,
            known: std::sync::Mutex::default(),
            connections: std::sync::Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How connections are made.
    #[must_use]
    pub fn settings(&self) -> &ClientSettings {
        &self.shared.settings
    }

    /// Metadata from the first broker that answers: known ones first, then the bootstrap list.
    /// The error lists every address that was tried.
    pub async fn metadata(
        &self,
        topics: TopicSelection<'_>,
    ) -> Result<ClusterMetadata, ClientError> {
        let mut failures = Vec::new();
        for address in self.candidates() {
            match self.metadata_from(&address, topics).await {
                Ok(metadata) => {
                    self.remember(&address, &metadata);
                    return Ok(metadata);
                }
                Err(error) => failures.push(error),
            }
        }
        // Another cluster at an address is worse than a broker that is down, and never passes by.
        if let Some(other) =
            failures.iter().position(|error| matches!(error, ClientError::OtherCluster { .. }))
        {
            return Err(failures.swap_remove(other));
        }
        // One address: its own error says it best.
        if failures.len() == 1
            && let Some(only) = failures.pop()
        {
            return Err(only);
        }
        let list: Vec<_> = failures.iter().map(ToString::to_string).collect();
        Err(ClientError::NoBroker(list.join("; ")))
    }

    /// A connection to `address`, opened if there is none; others who want it wait meanwhile.
    pub async fn lease(&self, address: &Address) -> Result<Lease, ClientError> {
        let mut slot = self.slot(address).lock_owned().await;
        let reused = slot.as_ref().is_some_and(Connection::is_usable);
        if !reused {
            *slot = None;
            *slot = Some(self.open(address).await?);
        }
        let held = OwnedMutexGuard::try_map(slot, Option::as_mut);
        let connection = held.map_err(|_| ClientError::Lost {
            address: address.clone(),
            cause: "it was not kept".to_owned(),
        })?;
        Ok(Lease { connection, reused })
    }

    async fn metadata_from(
        &self,
        address: &Address,
        topics: TopicSelection<'_>,
    ) -> Result<ClusterMetadata, ClientError> {
        loop {
            let mut lease = self.lease(address).await?;
            match lease.connection().metadata(topics).await {
                Err(error) if lease.was_stale(&error) => {}
                answered => return answered,
            }
        }
    }

    async fn open(&self, address: &Address) -> Result<Connection, ClientError> {
        let mut connection = Connection::open(address, &self.shared.settings).await?;
        if let Some(expected) = &self.shared.cluster_id {
            connection.belongs_to(expected).await?;
        }
        Ok(connection)
    }

    fn candidates(&self) -> Vec<Address> {
        let known = lock(&self.shared.known).clone();
        let mut candidates = known;
        for address in &self.shared.bootstrap {
            if !candidates.contains(address) {
                candidates.push(address.clone());
            }
        }
        candidates
    }

    fn remember(&self, answered: &Address, metadata: &ClusterMetadata) {
        let mut known = vec![answered.clone()];
        let brokers = metadata.brokers.iter().map(|broker| &broker.address);
        known.extend(brokers.filter(|address| *address != answered).take(CONNECTIONS_MAX).cloned());
        // Connections to brokers that left are dropped with their slots.
        lock(&self.shared.connections).retain(|address, _| {
            known.contains(address) || self.shared.bootstrap.contains(address)
        });
        *lock(&self.shared.known) = known;
    }

    fn slot(&self, address: &Address) -> Slot {
        let mut connections = lock(&self.shared.connections);
        if connections.len() >= CONNECTIONS_MAX && !connections.contains_key(address) {
            connections.clear();
        }
        connections.entry(address.clone()).or_default().clone()
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
