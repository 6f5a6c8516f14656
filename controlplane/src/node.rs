//! A whole node: storage, cores, control plane, from start to clean stop.
//!
//! Owns the order in which things begin and end. Logs are opened and shown before the port is bound;
//! the port is bound before mirrors run; on a stop, mirrors end first, then the cores, which close
//! their logs, and the store last.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use dataplane::{
    Assignment, ColdRequest, ConnectionId, CoreId, Dataplane, LaneSpec, LinkId, LinkSettings,
    Partition, PartitionTable, Reply, Resume, StartError,
};
use storage::{OpenError, Storage};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::admin::{ColdApi, ColdApiError, NodeIdentity};
use crate::config::{NodeConfig, NodeConfigError};
use crate::events::{Events, events};
use crate::http::{self, Http, HttpError, ReadCounters};
use crate::identity::random_id;
use crate::mirror::{Cores, Mirrors, MirrorsContext, RestoreError, Restored, Taken, restore};
use crate::signals::on_signals;
use crate::store::{Change, RedbStore, Snapshot, Store, StoreError, StoreWriter};

/// Blocking calls that are under way when a node stops (a log being made) get this long to end.
const LAST_CALLS_MAX: Duration = Duration::from_secs(5);
/// Threads of the control plane; the cores have their own.
const CONTROL_THREADS: usize = 2;

/// Why a node could not run. Each says what to change.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] NodeConfigError),
    /// A data directory.
    #[error(transparent)]
    Storage(#[from] OpenError),
    /// The metadata store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was stored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The port, the kernel or a thread.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Group offsets.
    #[error(transparent)]
    ColdApi(#[from] ColdApiError),
    /// The port for HTTP.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The control plane's own threads.
    #[error("cannot start the control plane: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Runs a node until SIGTERM, SIGINT or SIGHUP, then stops it cleanly. A second signal ends the process at
/// once.
pub fn run(config: &NodeConfig) -> Result<(), NodeError> {
    let stop = Arc::new(Notify::new());
    {
        let stop = stop.clone();
        on_signals("ended at once; the next start recovers", move || stop.notify_one())?;
    }
    let node = Node::start(config)?;
    node.runtime.block_on(stop.notified());
    node.stop()
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    runtime: Runtime,
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    table: Arc<PartitionTable>,
    storage: Arc<Storage>,
    store: StoreWriter,
    mirrors: Mirrors,
    cores: Arc<CoreGate>,
    tasks: Tasks,
}

impl Node {
    /// Opens the logs, binds the port, goes on mirroring what was mirrored.
    pub fn start(config: &NodeConfig) -> Result<Self, NodeError> {
        config.check()?;
        let http = http::bind(&config.http)?;
        let storage = Storage::open(config.storage())?;
        let opened = Opened::open(config, storage)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(CONTROL_THREADS)
            .thread_name("control")
            .enable_all()
            .build()?;
        opened.start(config, http, runtime)
    }

    /// Where clients connect, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where histograms are read over HTTP, with the real port.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Its mirrors. Their futures run on [`Node::runtime`].
    #[must_use]
    pub fn mirrors(&self) -> &Mirrors {
        &self.mirrors
    }

    /// What it serves.
    #[must_use]
    pub fn table(&self) -> &PartitionTable {
        &self.table
    }

    /// The control plane's threads.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Ends mirrors, then cores, which close their logs, then the store.
    pub fn stop(self) -> Result<(), NodeError> {
        // One sync for all that is not on the device yet. Each log is synced when it is closed, and
        // by then has little left: thousands of single syncs would outlast a supervisor's patience.
        if let Err(error) = self.storage.checkpoint() {
            tracing::warn!(%error, "no recovery points before the stop");
        }
        self.runtime.block_on(async {
            self.mirrors.shut_down().await;
            self.tasks.stop().await;
        });
        self.cores.shut_down();
        self.storage.checkpoint()?;
        drop(self.mirrors);
        self.runtime.shutdown_timeout(LAST_CALLS_MAX);
        self.store.close();
        tracing::info!("stopped");
        Ok(())
    }
}

/// Everything from the disk, before anything runs.
struct Opened {
    storage: Arc<Storage>,
    store: Arc<dyn Store>,
    cluster_id: String,
    table: Arc<PartitionTable>,
    restored: Restored,
}

impl Opened {
    fn open(config: &NodeConfig, storage: Arc<Storage>) -> Result<Self, NodeError> {
        // `check` refuses an empty list.
        let store = RedbStore::open(&config.data_dirs[0])?;
        let snapshot = store.load()?;
        let cluster_id = own_cluster_id(&store, &snapshot)?;
        let table = Arc::new(PartitionTable::default());
        let restored = restore(&snapshot, &storage, &table, &config.log())?;
        Ok(Self { storage, store: Arc::new(store), cluster_id, table, restored })
    }

    fn start(
        self,
        config: &NodeConfig,
        http: Option<Http>,
        runtime: Runtime,
    ) -> Result<Node, NodeError> {
        let inside = runtime.enter();
        let (sink, events) = events(config.serve.connections_max);
        let (table, storage) = (self.table.clone(), self.storage.clone());
        let started = Dataplane::start(config.dataplane()?, table, storage, Arc::new(sink));
        let dataplane = match started {
            Ok(dataplane) => dataplane,
            Err(error) => {
                self.restored.close();
                return Err(error.into());
            }
        };
        let address = dataplane.listen_address();
        let cores = Arc::new(CoreGate { dataplane: RwLock::new(Some(dataplane)) });
        let store = StoreWriter::start(self.store)?;
        let mirrors = Mirrors::start_all(
            MirrorsContext {
                cluster_id: self.cluster_id.clone(),
                defaults: config.mirror.clone(),
                log_config: config.log(),
                store: store.clone(),
                storage: self.storage.clone(),
                table: self.table.clone(),
                cores: cores.clone(),
            },
            self.restored,
        );
        let identity =
            NodeIdentity { cluster_id: self.cluster_id.clone(), advertised: config.advertised() };
        let published = {
            let cores = cores.clone();
            Arc::new(move |partition: &Arc<Partition>| cores.published(partition))
        };
        let api = ColdApi::new(
            identity,
            self.table.clone(),
            self.storage.clone(),
            mirrors.clone(),
            published,
        )?;
        let mut tasks = Tasks::spawn(events, api, &mirrors, &cores, &self.storage, config);
        let http_address = http.as_ref().map(Http::address);
        tasks.running.extend(http.map(|http| spawn_http(http, &cores)));
        if let Some(address) = http_address {
            tracing::info!(%address, "histograms over HTTP");
        }
        tracing::info!(%address, cluster_id = self.cluster_id, "listening");
        drop(inside);
        let Self { table, storage, .. } = self;
        Ok(Node { runtime, address, http_address, table, storage, store, mirrors, cores, tasks })
    }
}

/// What runs beside the mirrors.
#[derive(Debug)]
struct Tasks {
    running: Vec<JoinHandle<()>>,
}

impl Tasks {
    fn spawn(
        events: Events,
        api: ColdApi,
        mirrors: &Mirrors,
        cores: &Arc<CoreGate>,
        storage: &Arc<Storage>,
        config: &NodeConfig,
    ) -> Self {
        let Events { mut requests, mut reports } = events;
        let (api, gate) = (Arc::new(api), cores.clone());
        let answering = async move {
            // Bounded by the connections: each has one request here at a time. Dropped with this
            // task, and every unfinished answer with it.
            let mut answers = JoinSet::new();
            while let Some(request) = requests.recv().await {
                answers.spawn(answer(api.clone(), gate.clone(), request));
                while answers.try_join_next().is_some() {}
            }
        };
        let mirrors = mirrors.clone();
        let reporting = async move {
            while let Some((event, others_lost)) = reports.next().await {
                mirrors.on_event(event).await;
                if others_lost {
                    mirrors.resync().await;
                }
            }
        };
        let storage = storage.clone();
        let interval = Duration::from_millis(config.storage.checkpoint_interval_ms);
        let checkpoints = async move {
            loop {
                tokio::time::sleep(interval).await;
                let storage = storage.clone();
                match tokio::task::spawn_blocking(move || storage.checkpoint()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!(%error, "no checkpoint"),
                    Err(panicked) => tracing::error!(%panicked, "no checkpoint"),
                }
            }
        };
        let running =
            vec![tokio::spawn(answering), tokio::spawn(reporting), tokio::spawn(checkpoints)];
        Self { running }
    }

    async fn stop(self) {
        for task in self.running {
            task.abort();
            // Aborted is what it should be.
            let _ = task.await;
        }
    }
}

fn spawn_http(http: Http, cores: &Arc<CoreGate>) -> JoinHandle<()> {
    let cores = cores.clone();
    let counters: ReadCounters = Arc::new(move || {
        let mut snapshot = None;
        cores.with(|dataplane| snapshot = Some(dataplane.counters()));
        snapshot
    });
    tokio::spawn(http.serve(SystemTime::now(), counters))
}

async fn answer(api: Arc<ColdApi>, cores: Arc<CoreGate>, request: ColdRequest) {
    let connection = request.connection;
    let reply = api.answer(request).await;
    cores.reply(connection, reply);
}

/// The cores, until they are shut down: whoever comes later finds nobody.
#[derive(Debug)]
struct CoreGate {
    dataplane: RwLock<Option<Dataplane>>,
}

impl CoreGate {
    fn with(&self, action: impl FnOnce(&Dataplane)) {
        if let Some(dataplane) = &*self.dataplane.read().unwrap_or_else(PoisonError::into_inner) {
            action(dataplane);
        }
    }

    fn reply(&self, connection: ConnectionId, reply: Reply) {
        self.with(|dataplane| dataplane.reply(connection, reply));
    }

    fn published(&self, partition: &Arc<Partition>) {
        self.with(|dataplane| dataplane.published(partition));
    }

    fn shut_down(&self) {
        let taken = self.dataplane.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(dataplane) = taken {
            dataplane.shutdown();
        }
    }
}

impl Cores for CoreGate {
    fn fetch_cores(&self) -> Vec<CoreId> {
        let mut cores = Vec::new();
        self.with(|dataplane| cores = dataplane.fetch_cores());
        cores
    }

    fn set_link(&self, core: CoreId, link: LinkId, settings: LinkSettings) {
        self.with(|dataplane| dataplane.set_link(core, link, settings));
    }

    fn add_lane(&self, core: CoreId, lane: LaneSpec) {
        self.with(|dataplane| dataplane.add_lane(core, lane));
    }

    fn assign(&self, core: CoreId, assignment: Assignment) {
        self.with(|dataplane| dataplane.assign(core, assignment));
    }

    fn resume(&self, core: CoreId, partition: Arc<Partition>, resume: Resume) {
        self.with(|dataplane| dataplane.resume(core, partition, resume));
    }

    fn park(&self, core: CoreId, partition: Arc<Partition>) {
        self.with(|dataplane| dataplane.park(core, partition));
    }

    fn take(&self, core: CoreId, partition: Arc<Partition>, taken: Taken) {
        self.with(|dataplane| dataplane.take(core, partition, taken));
    }
}

/// This node's own cluster id, made at its first start.
fn own_cluster_id(store: &dyn Store, snapshot: &Snapshot) -> Result<String, NodeError> {
    if let Some(known) = &snapshot.cluster_id {
        return Ok(known.clone());
    }
    let made = random_id()?.to_string();
    store.apply(&[Change::ClusterId(made.clone())])?;
    Ok(made)
}
