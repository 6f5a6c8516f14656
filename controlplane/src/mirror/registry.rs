//! Every mirror of a node: creation, and the way to each mirror's task.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dataplane::{Event, LinkId, MirrorInfo, PartitionTable};
use storage::{Log, LogConfig, Storage};
use tokio::sync::{mpsc, oneshot};

use super::api::{AdminError, MirrorDescription, MirrorListing, TopicResult, codes};
use super::cores::Cores;
use super::restore::{Restored, RestoredMirror, Topics};
use super::shared::{Owners, Shared};
use super::task::{Beginning, Message, MirrorTask, StartRequest};
use crate::client::{
    Address, ClientError, ClientSettings, Connection, SourceClient, TopicSelection,
};
use crate::config::{MirrorConfig, MirrorDefaults};
use crate::discovery::{TopicFilter, TopicPatterns, is_plain_name, is_valid_topic_name};
use crate::store::{Change, MirrorRecord, StoreWriter};

/// Mirrors of one node: each has its own connections and task.
const MIRRORS_MAX: usize = 1_000;
/// Items of one start request.
const ITEMS_MAX: usize = 100_000;
/// A dead path to the source is given up after this long without a sign of life.
const DEAD_PATH_TIMEOUT: Duration = Duration::from_secs(30);

/// What a node's mirrors stand on.
#[derive(Debug)]
pub struct MirrorsContext {
    /// This node's own cluster id.
    pub cluster_id: String,
    /// Settings that hold for all.
    pub defaults: MirrorDefaults,
    /// Settings of each mirrored log.
    pub log_config: LogConfig,
    /// Where mirrors are remembered.
    pub store: StoreWriter,
    /// Where logs are.
    pub storage: Arc<Storage>,
    /// What the node serves.
    pub table: Arc<PartitionTable>,
    /// The cores.
    pub cores: Arc<dyn Cores>,
}

/// Every mirror of the node. Cheap to clone; all methods may be called from any task.
#[derive(Debug, Clone)]
pub struct Mirrors {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    running: RwLock<BTreeMap<String, Handle>>,
    /// One creation at a time: two of the same name must not both pass the check.
    creating: tokio::sync::Mutex<()>,
    next_link: AtomicU32,
}

#[derive(Debug, Clone)]
struct Handle {
    inbox: mpsc::Sender<Message>,
    link: LinkId,
    client: SourceClient,
    source_bootstrap: String,
    source_cluster_id: String,
}

impl Mirrors {
    /// Starts a task for each restored mirror. Must be called within a tokio runtime.
    #[must_use]
    pub fn start_all(context: MirrorsContext, restored: Restored) -> Self {
        let shared = Shared {
            cluster_id: context.cluster_id,
            defaults: context.defaults,
            log_config: context.log_config,
            store: context.store,
            storage: context.storage,
            table: context.table,
            cores: context.cores,
            owners: Owners::default(),
            lane_ids: AtomicU64::new(0),
        };
        let inner = Inner {
            shared: Arc::new(shared),
            running: RwLock::default(),
            creating: tokio::sync::Mutex::default(),
            next_link: AtomicU32::new(0),
        };
        let mirrors = Self { inner: Arc::new(inner) };
        for mirror in restored.mirrors {
            mirrors.resume(mirror);
        }
        mirrors
    }

    /// Checks the configuration against the source and stores the mirror. The refusal lists every
    /// problem that was found.
    pub async fn create(
        &self,
        name: &str,
        config: Vec<(String, Option<String>)>,
    ) -> Result<(), AdminError> {
        if !is_valid_topic_name(name) {
            let message = format!(
                "{name:?} is not a mirror name: 1 to 249 characters of A-Z, a-z, 0-9, '.', '_' and '-'"
            );
            return Err(AdminError::new(codes::INVALID_REQUEST, message));
        }
        let _creating = self.inner.creating.lock().await;
        if self.handle(name).is_some() {
            let message = format!("mirror {name} exists already");
            return Err(AdminError::new(codes::CLUSTER_MIRROR_ALREADY_EXISTS, message));
        }
        if self.running().len() >= MIRRORS_MAX {
            let message = format!("a node has at most {MIRRORS_MAX} mirrors");
            return Err(AdminError::new(codes::INVALID_REQUEST, message));
        }
        let entries: BTreeMap<String, String> =
            config.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let invalid = |problems: String| AdminError::new(codes::INVALID_CONFIG, problems);
        let config = MirrorConfig::parse(&entries).map_err(|error| invalid(error.to_string()))?;
        let source_cluster_id = self
            .check_source(name, &config)
            .await
            .map_err(|problems| invalid(problems.join("; ")))?;
        for warning in &config.warnings {
            tracing::warn!(mirror = name, "{warning}");
        }
        let filter =
            TopicFilter::new(&config, &[], &[]).map_err(|error| invalid(error.to_string()))?;
        let record = MirrorRecord {
            name: name.to_owned(),
            config: entries,
            source_cluster_id,
            include: Vec::new(),
            exclude: Vec::new(),
        };
        let stored = self.inner.shared.store.write(vec![Change::Mirror(record.clone())]).await;
        stored.map_err(|error| AdminError::new(codes::KAFKA_STORAGE_ERROR, error.to_string()))?;
        tracing::info!(mirror = name, source = record.source_cluster_id, "created");
        let info = Arc::new(MirrorInfo { name: name.into() });
        self.run(record, config, filter, info, Topics::default());
        Ok(())
    }

    /// Starts topics by name or pattern; patterns stay for discovery.
    ///
    /// An item made only of the characters of topic names is a name, everything else a pattern. A
    /// topic that this mirror has already is not an error: its stopped partitions try again.
    pub async fn start(
        &self,
        name: &str,
        include: Vec<String>,
        exclude: Vec<String>,
    ) -> Result<Vec<TopicResult>, AdminError> {
        let handle = self.handle(name).ok_or_else(|| unknown_mirror(name))?;
        check_items(&include, &exclude)?;
        let (names, patterns): (Vec<String>, Vec<String>) =
            include.into_iter().partition(|item| is_plain_name(item));
        let mut seen = HashSet::new();
        let names: Vec<Arc<str>> = names
            .iter()
            .filter(|name| seen.insert(name.as_str()))
            .map(|name| name.as_str().into())
            .collect();
        let ask = async |selection: TopicSelection<'_>| {
            handle.client.metadata(selection).await.map_err(|error| source_error(&error))
        };
        let mut found = BTreeMap::new();
        if !names.is_empty() {
            let metadata = ask(TopicSelection::Names(&names)).await?;
            found.extend(metadata.topics.into_iter().map(|topic| (topic.name.clone(), topic)));
        }
        let named = names.into_iter().map(|name| {
            let topic = found.remove(&name);
            (name, topic)
        });
        let named = named.collect();
        let matched =
            if patterns.is_empty() { Vec::new() } else { ask(TopicSelection::All).await?.topics };
        let request = StartRequest { named, include: patterns, exclude, matched };
        let (reply, result) = oneshot::channel();
        let sent = handle.inbox.send(Message::Start(request, reply)).await;
        sent.map_err(|_| stopping())?;
        result.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// All mirrors.
    pub async fn list(&self) -> Vec<MirrorListing> {
        let running = self.running().clone();
        let listing = running.into_iter().map(|(name, handle)| MirrorListing {
            topics: self.inner.shared.owners.topics_of(&name),
            name,
            source_bootstrap: handle.source_bootstrap,
            source_cluster_id: handle.source_cluster_id,
        });
        listing.collect()
    }

    /// The named mirrors, or all when `names` is empty.
    pub async fn describe(&self, names: &[String]) -> Vec<Result<MirrorDescription, AdminError>> {
        let names: Vec<String> = if names.is_empty() {
            self.running().keys().cloned().collect()
        } else {
            names.to_vec()
        };
        let mut descriptions = Vec::new();
        for name in &names {
            descriptions.push(self.describe_one(name).await);
        }
        descriptions
    }

    /// Passes on what the cores report of lanes and cursors.
    pub async fn on_event(&self, event: Event) {
        let (inbox, message) = match event {
            Event::Fault(report) => {
                let mirror = report.partition.mirror.as_ref().map(|info| info.name.clone());
                let handle = mirror.and_then(|name| self.handle(&name));
                (handle.map(|handle| handle.inbox), Message::Fault(report))
            }
            Event::LaneClosed(closed) => (self.inbox_of(closed.link), Message::LaneClosed(closed)),
            Event::Throttled(link, by) => {
                tracing::debug!(link = link.0, ?by, "throttled by the source");
                return;
            }
            Event::Request(_) | Event::ConnectionClosed(_) => return,
        };
        if let Some(inbox) = inbox {
            // A mirror that is stopping needs no reports.
            let _ = inbox.send(message).await;
        }
    }

    /// Reports of the cores were lost: every mirror looks at everything again.
    pub async fn resync(&self) {
        let inboxes: Vec<_> = self.running().values().map(|handle| handle.inbox.clone()).collect();
        for inbox in inboxes {
            let _ = inbox.send(Message::Resync).await;
        }
    }

    /// Ends every task and closes the logs that no core has. Nothing can be asked afterwards.
    pub async fn shut_down(&self) {
        let running = std::mem::take(
            &mut *self.inner.running.write().unwrap_or_else(PoisonError::into_inner),
        );
        let mut held: Vec<Log> = Vec::new();
        for handle in running.into_values() {
            let (done, logs) = oneshot::channel();
            if handle.inbox.send(Message::Shutdown(done)).await.is_ok() {
                held.extend(logs.await.unwrap_or_default());
            }
        }
        let closing = tokio::task::spawn_blocking(move || {
            for log in held {
                if let Err(error) = log.close() {
                    tracing::error!(%error, "a log was not closed cleanly");
                }
            }
        });
        if closing.await.is_err() {
            tracing::error!("closing logs panicked");
        }
    }

    fn resume(&self, mirror: RestoredMirror) {
        let cores = self.inner.shared.cores.fetch_cores();
        let (record, config, filter, info, topics) = mirror.into_entries(&cores);
        for topic in topics.by_name.keys() {
            if let Err(owner) = self.inner.shared.owners.claim(topic, &info.name) {
                tracing::error!(%topic, mirror = record.name, %owner, "stored for two mirrors");
            }
        }
        self.run(record, config, filter, info, topics);
    }

    fn run(
        &self,
        record: MirrorRecord,
        config: MirrorConfig,
        filter: TopicFilter,
        info: Arc<MirrorInfo>,
        topics: Topics,
    ) {
        let link = LinkId(self.inner.next_link.fetch_add(1, Ordering::Relaxed));
        let settings = client_settings(&record.name, &config);
        let cluster_id = Some(record.source_cluster_id.clone());
        let client = SourceClient::new(config.bootstrap.clone(), settings, cluster_id);
        let name = record.name.clone();
        let source_bootstrap = record.config.get("bootstrap.servers").cloned().unwrap_or_default();
        let source_cluster_id = record.source_cluster_id.clone();
        let beginning = Beginning {
            record,
            config,
            filter,
            client: client.clone(),
            link,
            info,
            topics: topics.by_name,
            entries: topics.entries,
        };
        let (task, inbox) = MirrorTask::new(self.inner.shared.clone(), beginning);
        tokio::spawn(task.run());
        let handle = Handle { inbox, link, client, source_bootstrap, source_cluster_id };
        let mut running = self.inner.running.write().unwrap_or_else(PoisonError::into_inner);
        running.insert(name, handle);
    }

    /// Asks every bootstrap address. All must lead to one cluster, and not to us.
    async fn check_source(
        &self,
        mirror: &str,
        config: &MirrorConfig,
    ) -> Result<String, Vec<String>> {
        let settings = client_settings(mirror, config);
        let mut checks = tokio::task::JoinSet::new();
        for address in config.bootstrap.clone() {
            let settings = settings.clone();
            checks.spawn(async move {
                let found = cluster_of(&address, &settings).await;
                (address, found)
            });
        }
        let mut problems = Vec::new();
        let mut clusters: BTreeMap<String, Address> = BTreeMap::new();
        while let Some(check) = checks.join_next().await {
            match check {
                Ok((address, Ok(cluster_id))) => {
                    clusters.entry(cluster_id).or_insert(address);
                }
                Ok((_, Err(error))) => problems.push(format!("bootstrap.servers: {error}")),
                Err(error) => problems.push(format!("bootstrap.servers: {error}")),
            }
        }
        problems.sort();
        if clusters.len() > 1 {
            let list: Vec<_> =
                clusters.iter().map(|(id, address)| format!("{address} to {id}")).collect();
            problems.push(format!(
                "bootstrap.servers: the addresses lead to different clusters: {}",
                list.join(", ")
            ));
        }
        let Some((found, address)) = clusters.pop_first() else { return Err(problems) };
        if found == self.inner.shared.cluster_id {
            problems.push(format!("bootstrap.servers: {address} is this node itself"));
        }
        if let Some(pinned) = config.source_cluster_id.as_ref().filter(|pinned| **pinned != found) {
            problems
                .push(format!("source.cluster.id: is {pinned}, but {address} belongs to {found}"));
        }
        if problems.is_empty() { Ok(found) } else { Err(problems) }
    }

    async fn describe_one(&self, name: &str) -> Result<MirrorDescription, AdminError> {
        let handle = self.handle(name).ok_or_else(|| unknown_mirror(name))?;
        let (reply, description) = oneshot::channel();
        let sent = handle.inbox.send(Message::Describe(reply)).await;
        sent.map_err(|_| stopping())?;
        description.await.map_err(|_| stopping())
    }

    fn handle(&self, name: &str) -> Option<Handle> {
        self.running().get(name).cloned()
    }

    fn inbox_of(&self, link: LinkId) -> Option<mpsc::Sender<Message>> {
        let running = self.running();
        running.values().find(|handle| handle.link == link).map(|handle| handle.inbox.clone())
    }

    fn running(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Handle>> {
        self.inner.running.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cluster behind an address, if everything we need is spoken there.
async fn cluster_of(address: &Address, settings: &ClientSettings) -> Result<String, ClientError> {
    let mut connection = Connection::open(address, settings).await?;
    connection.speaks_what_mirrors_need()?;
    let metadata = connection.metadata(TopicSelection::Nothing).await?;
    metadata.cluster_id.ok_or_else(|| ClientError::Unsupported {
        address: address.clone(),
        what: "Metadata",
        theirs: "without a cluster id".to_owned(),
        ours: "a cluster id".to_owned(),
    })
}

fn client_settings(mirror: &str, config: &MirrorConfig) -> ClientSettings {
    ClientSettings {
        client_id: format!("longhaul-{mirror}").into(),
        connect_timeout: config.connect_timeout,
        request_timeout: config.request_timeout,
        dead_path_timeout: DEAD_PATH_TIMEOUT,
        security: config.security,
    }
}

fn check_items(include: &[String], exclude: &[String]) -> Result<(), AdminError> {
    let refuse = |message: String| Err(AdminError::new(codes::INVALID_REQUEST, message));
    if include.is_empty() && exclude.is_empty() {
        return refuse("no topic is named".to_owned());
    }
    if include.len() + exclude.len() > ITEMS_MAX {
        return refuse(format!("more than {ITEMS_MAX} topics and patterns in one request"));
    }
    if let Some(both) = include.iter().find(|item| exclude.contains(item)) {
        return refuse(format!("{both:?} is both included and excluded"));
    }
    let patterns: Vec<String> =
        include.iter().chain(exclude).filter(|item| !is_plain_name(item)).cloned().collect();
    match TopicPatterns::compile(&patterns) {
        Ok(_) => Ok(()),
        Err(error) => refuse(error.to_string()),
    }
}

fn source_error(error: &ClientError) -> AdminError {
    let code = match error {
        ClientError::OtherCluster { .. } => codes::INVALID_REQUEST,
        _ => codes::NETWORK_EXCEPTION,
    };
    AdminError::new(code, error.to_string())
}

fn unknown_mirror(name: &str) -> AdminError {
    AdminError::new(codes::UNKNOWN_CLUSTER_MIRROR, format!("there is no mirror {name}"))
}

fn stopping() -> AdminError {
    AdminError::new(codes::NETWORK_EXCEPTION, "the node is stopping")
}
