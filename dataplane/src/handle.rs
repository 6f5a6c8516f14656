//! How the control plane drives the cores, and what it hears from them.
//!
//! Owns the cores' threads and their mailboxes. Runs on the control plane's threads. A command is
//! carried out by its core soon after, in the order given to that core; it waits here only when
//! thousands of commands are unread, and must therefore not be given by a core's own thread.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use storage::{LeaderEpoch, Log, Offset, Storage};

use crate::core_loop::notify_waiters;
use crate::cores::{self, CoreHandle};
use crate::counters::Snapshot;
use crate::listener;
use crate::mailbox::{Command, Mailboxes};
use crate::partition::{Partition, PartitionTable};
use crate::ring::RingError;

/// A core of this node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreId(pub u16);

/// One mirror's tie to one source cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// A connection to one source broker, numbered by the control plane and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u64);

/// A source broker's node id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BrokerId(pub i32);

/// Where a core runs and what it does.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The processor to pin to; `None` leaves it to the scheduler.
    pub cpu: Option<usize>,
    /// Runs cursors.
    pub fetches: bool,
    /// Accepts consumers.
    pub serves: bool,
}

/// Settings of the whole data plane.
#[derive(Clone, Debug)]
pub struct DataplaneConfig {
    /// One entry a core; at most 64 (a waiter set is one word).
    pub cores: Vec<CoreConfig>,
    /// The address consumers connect to; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Who this node is to consumers.
    pub advertised: Advertised,
    /// Connections over all cores; a connection beyond is closed at once.
    pub connections_max: usize,
    /// Largest request frame accepted, in bytes.
    pub request_bytes_max: usize,
    /// Largest fetch answer whatever the client asks, in bytes (Kafka `fetch.max.bytes`).
    pub fetch_bytes_max: usize,
    /// Bytes of requests and unsent answers held for consumers by all cores together.
    pub serve_memory_max: usize,
    /// A consumer that does not take an answer for this long is disconnected.
    pub send_timeout: Duration,
    /// A connection without a request for this long is closed (Kafka `connections.max.idle.ms`).
    pub idle_timeout: Duration,
    /// Fetch sessions kept (Kafka `max.incremental.fetch.session.cache.slots`).
    pub sessions_max: usize,
}

/// Who a node is to its clients, where an answer names a leader.
#[derive(Clone, Debug, Default)]
pub struct Advertised {
    /// Its node id.
    pub node_id: i32,
    /// Its host; the address that the client reached when not set.
    pub host: Option<String>,
    /// Its port; the one that the client reached when not set.
    pub port: Option<u16>,
}

impl Advertised {
    /// The host that a client is told which reached this node at `reached`. Without a configured one it is that
    /// address, the only one known to work for it; an IPv4 client on a socket for both families is told the IPv4
    /// address.
    #[must_use]
    pub fn host_at(&self, reached: SocketAddr) -> String {
        self.host.clone().unwrap_or_else(|| reached.ip().to_canonical().to_string())
    }

    /// The port that it is told.
    #[must_use]
    pub fn port_at(&self, reached: SocketAddr) -> u16 {
        self.port.unwrap_or(reached.port())
    }
}

/// Fetch settings of a link, changeable while it runs.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    /// The mirror's name, as the client id shows it.
    pub mirror: Arc<str>,
    /// Long-poll time of the tail lane (`fetch.wait.max.ms`).
    pub fetch_wait_max: Duration,
    /// `fetch.min.bytes`.
    pub fetch_min_bytes: i32,
    /// Whole response (`fetch.response.max.bytes`).
    pub response_bytes_max: i32,
    /// Per partition (`fetch.max.bytes`).
    pub partition_bytes_max: i32,
    /// Requests out on one catch-up lane.
    pub requests_out_max: usize,
    /// Beyond this many offsets of lag a cursor moves to a catch-up lane.
    pub catch_up_lag_min: i64,
    /// Nothing heard for this long beyond the long poll: the lane is given up (`socket.timeout.ms`).
    pub answer_timeout: Duration,
    /// `client.rack` for KIP-392; empty for none.
    pub rack: Arc<str>,
}

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// One incremental session, long poll: cursors at the end.
    Tail,
    /// Sessionless, many requests out: cursors behind.
    CatchUp,
}

/// A connection made, secured and version-negotiated by the control plane.
#[derive(Debug)]
pub struct LaneSpec {
    /// Its number.
    pub lane: LaneId,
    /// The link it serves.
    pub link: LinkId,
    /// The broker at the other end.
    pub broker: BrokerId,
    /// What it is for.
    pub kind: LaneKind,
    /// The connected socket.
    pub socket: OwnedFd,
    /// Fetch version to speak: 4 to 18, from ApiVersions.
    pub fetch_version: i16,
}

/// A partition given to a core.
#[derive(Debug)]
pub struct Assignment {
    /// The shared partition.
    pub partition: Arc<Partition>,
    /// Its log; the core becomes the writer.
    pub log: Log,
    /// The link to fetch over.
    pub link: LinkId,
    /// Where and how to go on.
    pub resume: Resume,
}

/// Leave to fetch, from the log's end.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The partition's leader at the source (or the replica to read from).
    pub broker: BrokerId,
    /// The leader epoch the source's metadata confirmed; batches beyond it are not stored.
    pub leader_epoch: LeaderEpoch,
    /// What must be done to the log first.
    pub repair: Option<LogRepair>,
}

/// A change to a log that the control plane decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRepair {
    /// Remove everything from this offset on (an operator accepted a divergence).
    TruncateTo(Offset),
    /// Start again, empty, at this offset: the source deleted what lay between.
    ResetTo(Offset),
}

/// A hint at the new leader in a fetch error (KIP-951).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderHint {
    /// The leader's node id.
    pub broker: BrokerId,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
    /// Its address, where the answer named it (Fetch 16 and later).
    pub address: Option<(String, i32)>,
}

/// Why a cursor stopped. It stays parked, and its log readable, until [`Dataplane::resume`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorFault {
    /// The broker answered with an error code for this partition.
    Broker {
        /// Kafka error code.
        code: i16,
        /// The new leader, if it said.
        hint: Option<LeaderHint>,
    },
    /// The source's log does not contain our last epoch up to our end.
    Diverging {
        /// Largest epoch the source knows at or below ours.
        epoch: LeaderEpoch,
        /// Where it ended there.
        end_offset: Offset,
    },
    /// A batch carries an epoch the source has not confirmed to us; it was not stored.
    EpochAhead {
        /// The batch's epoch.
        found: LeaderEpoch,
    },
    /// The broker wants this reader to go to a nearer replica (KIP-392): resume it there.
    ReadFrom {
        /// The replica.
        broker: BrokerId,
    },
    /// A batch is damaged or does not continue the log; it was not stored.
    BadBatch(String),
    /// The disk is full.
    DiskFull(String),
    /// The disk failed.
    Disk(String),
}

/// A fault of one partition.
#[derive(Clone, Debug)]
pub struct FaultReport {
    /// Whose.
    pub partition: Arc<Partition>,
    /// What.
    pub fault: CursorFault,
}

/// A lane that ended. Its cursors wait for the next lane to the same broker.
#[derive(Clone, Debug)]
pub struct LaneClosed {
    /// The core that owned it.
    pub core: CoreId,
    /// Which lane.
    pub lane: LaneId,
    /// Its link.
    pub link: LinkId,
    /// Its broker.
    pub broker: BrokerId,
    /// What it was for.
    pub kind: LaneKind,
    /// Why, in words for `describe`.
    pub cause: String,
}

/// A consumer's connection, for replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// The core that owns it.
    pub core: CoreId,
    /// Its slot there.
    pub slot: u32,
    /// Tells a reused slot's connections apart.
    pub generation: u32,
}

/// A request the cores leave to the control plane. One at a time for each connection.
#[derive(Clone, Debug)]
pub struct ColdRequest {
    /// Where the answer goes.
    pub connection: ConnectionId,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address the client reached us at.
    pub local: SocketAddr,
    /// The frame without its length: header and body.
    pub frame: Bytes,
}

/// The control plane's answer to a [`ColdRequest`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// The answer's frame without its length: response header and body.
    Frame(Bytes),
    /// No answer is due (Produce with acks 0).
    Nothing,
    /// The request cannot be answered; the connection is closed.
    Close,
}

/// What the cores tell the control plane.
#[derive(Clone, Debug)]
pub enum Event {
    /// A cursor stopped.
    Fault(FaultReport),
    /// A lane ended.
    LaneClosed(LaneClosed),
    /// A consumer asked something cold.
    Request(ColdRequest),
    /// A connection ended: group members on it keep their session, nothing else is kept.
    ConnectionClosed(ConnectionId),
    /// The source lets a link pass only more slowly, for this long.
    Throttled(LinkId, Duration),
}

/// Receives events on a core's thread: must not block. It may call [`Dataplane::reply`] and
/// [`Dataplane::published`], which never wait.
pub trait EventSink: Send + Sync {
    /// Takes one event.
    fn deliver(&self, event: Event);
}

/// Why the data plane could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be run.
    #[error("{0}")]
    Config(String),
    /// The port cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// io_uring is not available; the message says what to change.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A thread could not be started or pinned.
    #[error("cannot start core {core}: {source}")]
    Thread {
        /// Which.
        core: u16,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Cores of one node: a set of cores is one word.
const CORES_MAX: usize = 64;

/// The running cores. Dropping it stops them as [`Dataplane::shutdown`] does.
#[derive(Debug)]
pub struct Dataplane {
    cores: Vec<CoreHandle>,
    mailboxes: Mailboxes,
    listen_address: SocketAddr,
    /// Keeps the log directories locked as long as a core may write there.
    _storage: Arc<Storage>,
}

impl Dataplane {
    /// Probes the kernel, binds the port and starts the cores: all of them or none.
    pub fn start(
        config: DataplaneConfig,
        table: Arc<PartitionTable>,
        storage: Arc<Storage>,
        events: Arc<dyn EventSink>,
    ) -> Result<Self, StartError> {
        if config.cores.is_empty() || config.cores.len() > CORES_MAX {
            return Err(StartError::Config(format!(
                "{} cores are configured; a node has 1 to {CORES_MAX}",
                config.cores.len()
            )));
        }
        let serving = config.cores.iter().filter(|core| core.serves).count();
        let (listeners, listen_address) = listener::bind(config.listen, serving)
            .map_err(|source| StartError::Listen { address: config.listen, source })?;
        let (cores, mailboxes) = cores::start(config, listeners, &table, &events)?;
        Ok(Self { cores, mailboxes, listen_address, _storage: storage })
    }

    /// The address consumers reach, with the real port.
    #[must_use]
    pub fn listen_address(&self) -> SocketAddr {
        self.listen_address
    }

    /// Cores that run cursors.
    #[must_use]
    pub fn fetch_cores(&self) -> Vec<CoreId> {
        self.cores.iter().filter(|core| core.fetches).map(|core| core.id).collect()
    }

    /// Counters and timings of all cores, read now.
    #[must_use]
    pub fn counters(&self) -> Snapshot {
        Snapshot::read(self.cores.iter().map(|core| (core.id, &*core.counters)))
    }

    /// Makes a link known on a core, or changes its settings.
    pub fn set_link(&self, core: CoreId, link: LinkId, settings: LinkSettings) {
        self.send(core, Command::SetLink(link, settings));
    }

    /// Hands a connected lane to a core.
    pub fn add_lane(&self, core: CoreId, lane: LaneSpec) {
        self.send(core, Command::AddLane(lane));
    }

    /// Hands a partition and its log to a core.
    pub fn assign(&self, core: CoreId, assignment: Assignment) {
        self.send(core, Command::Assign(Box::new(assignment)));
    }

    /// Sends a parked cursor on.
    pub fn resume(&self, core: CoreId, partition: Arc<Partition>, resume: Resume) {
        self.send(core, Command::Resume(partition, resume));
    }

    /// Parks a cursor: no new request, and none of a late answer is stored.
    pub fn park(&self, core: CoreId, partition: Arc<Partition>) {
        self.send(core, Command::Park(partition));
    }

    /// Takes a partition off its core; the log comes back through `taken`, with nothing in flight.
    pub fn take(
        &self,
        core: CoreId,
        partition: Arc<Partition>,
        taken: Box<dyn FnOnce(Option<Log>) + Send>,
    ) {
        self.send(core, Command::Take(partition, taken));
    }

    /// Answers a cold request.
    pub fn reply(&self, connection: ConnectionId, reply: Reply) {
        self.send(connection.core, Command::Reply(connection, reply));
    }

    /// Wakes consumers that wait for a partition the control plane itself appended to, or deleted.
    pub fn published(&self, partition: &Arc<Partition>) {
        notify_waiters(partition, &self.mailboxes, |_| false);
    }

    /// Stops accepting, drains, closes every log cleanly and ends the threads.
    pub fn shutdown(self) {
        // Dropping does it.
    }

    fn send(&self, core: CoreId, command: Command) {
        if let Err(command) = self.mailboxes[usize::from(core.0)].send(command) {
            cores::refuse(core, command);
        }
    }
}

impl Drop for Dataplane {
    fn drop(&mut self) {
        cores::stop(&mut self.cores, &self.mailboxes);
    }
}
