//! The source cluster as a whole: bootstrap, and one connection a broker for questions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMappedMutexGuard, OwnedMutexGuard};
use tokio::task::JoinSet;
use tokio::time::timeout;

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

/// How long one broker is waited for before the next is asked as well: longer than metadata of many
/// partitions takes on a long path, shorter than a dead path takes to be noticed.
const PATIENCE: Duration = Duration::from_secs(3);
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

    /// Metadata from the first broker that answers: known ones first, then the bootstrap list. One
    /// that is silent is not waited for before the next is asked. The error lists every address.
    ///
    /// Cancel safe: connections with an unfinished question are not used again.
    pub async fn metadata(
        &self,
        topics: TopicSelection<'_>,
    ) -> Result<ClusterMetadata, ClientError> {
        let wanted = Wanted::from(topics);
        let mut waiting = self.candidates().into_iter();
        let mut asked = JoinSet::new();
        let mut failures = Vec::new();
        loop {
            if let Some(address) = waiting.next() {
                let (client, wanted) = (self.clone(), wanted.clone());
                asked.spawn(async move {
                    let answer = client.metadata_from(&address, wanted.selection()).await;
                    (address, answer)
                });
            }
            // Cancel safety: `join_next` loses nothing when it is dropped.
            let Ok(joined) = timeout(PATIENCE, asked.join_next()).await else { continue };
            match joined {
                Some(Ok((address, Ok(metadata)))) => {
                    self.remember(&address, &metadata);
                    return Ok(metadata);
                }
                Some(Ok((_, Err(error)))) => failures.push(error),
                Some(Err(panicked)) => {
                    failures.push(ClientError::NoBroker(panicked.to_string()));
                }
                None => return Err(summed_up(failures)),
            }
        }
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

/// Topics to ask for, owned: several brokers are asked side by side.
#[derive(Clone)]
enum Wanted {
    Nothing,
    Names(Arc<[Arc<str>]>),
    All,
}

impl Wanted {
    fn selection(&self) -> TopicSelection<'_> {
        match self {
            Self::Nothing => TopicSelection::Nothing,
            Self::Names(names) => TopicSelection::Names(names),
            Self::All => TopicSelection::All,
        }
    }
}

impl From<TopicSelection<'_>> for Wanted {
    fn from(selection: TopicSelection<'_>) -> Self {
        match selection {
            TopicSelection::Nothing => Self::Nothing,
            TopicSelection::Names(names) => Self::Names(names.into()),
            TopicSelection::All => Self::All,
        }
    }
}

/// One error out of those of all addresses.
fn summed_up(mut failures: Vec<ClientError>) -> ClientError {
    // Another cluster at an address is worse than a broker that is down, and never passes by.
    let other = failures.iter().position(|error| matches!(error, ClientError::OtherCluster { .. }));
    if let Some(other) = other {
        return failures.swap_remove(other);
    }
    // One address: its own error says it best.
    if failures.len() == 1
        && let Some(only) = failures.pop()
    {
        return only;
    }
    let list: Vec<_> = failures.iter().map(ToString::to_string).collect();
    ClientError::NoBroker(list.join("; "))
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
