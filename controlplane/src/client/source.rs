//! The source cluster as a whole: bootstrap, and one connection a broker for questions.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Mutex;

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
    /// Where metadata was answered last, and what it said of the brokers: a source whose bootstrap
    /// addresses are all gone is still found.
    known: std::sync::Mutex<Vec<Address>>,
    connections: std::sync::Mutex<HashMap<Address, Slot>>,
}

/// A broker's connection, locked by whoever asks it something.
type Slot = Arc<Mutex<Option<Connection>>>;

/// Brokers kept connected; more than any cluster we know of has.
const CONNECTIONS_MAX: usize = 1_000;

impl SourceClient {
    /// A client that knows only where to begin.
    #[must_use]
    pub fn new(bootstrap: Vec<Address>, settings: ClientSettings) -> Self {
        let shared = Shared {
            settings,
            bootstrap,
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
            let asked = self.ask(&address, async |connection| connection.metadata(topics).await);
            match asked.await {
                Ok(metadata) => {
                    self.remember(&address, &metadata);
                    return Ok(metadata);
                }
                Err(error) => failures.push(error),
            }
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

    /// Runs `question` on a connection to `address`, opened if there is none. A connection that
    /// turns out to be stale (closed by the broker while idle) is replaced once.
    pub async fn ask<T>(
        &self,
        address: &Address,
        mut question: impl AsyncFnMut(&mut Connection) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let slot = self.slot(address);
        let mut held = slot.lock().await;
        if let Some(connection) = held.as_mut().filter(|connection| connection.is_usable()) {
            match question(connection).await {
                Err(ClientError::Lost { .. }) => {}
                answered => return answered,
            }
        }
        *held = None;
        let connection = Connection::open(address, &self.shared.settings).await?;
        question(held.insert(connection)).await
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
