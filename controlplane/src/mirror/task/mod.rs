//! The reconcile loop of one mirror.
//!
//! Owns everything that is known of the mirror's topics and partitions; one tokio task. Whatever
//! takes time (metadata, alignment, connecting, making logs) runs beside it and reports back, so the
//! loop itself only waits for the metadata store, which is what orders "stored" before "advertised".

mod alignment;
mod describe;
mod lanes;
mod metadata;
mod start;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dataplane::{FaultReport, LaneClosed, LaneId, LinkId, LinkSettings, MirrorInfo};
use storage::{Log, Offset};
use tokio::sync::{mpsc, oneshot};

use super::align::Answered;
use super::api::{AdminError, MirrorDescription, TopicResult};
use super::backoff::Backoff;
use super::entry::{Body, Entry, Topic};
use super::fault::Failure;
use super::lanes::{LaneTable, Place};
use super::machine::{FaultClass, Leader, Phase};
use super::shared::Shared;
use crate::client::{
    Address, ClientError, ClusterMetadata, LaneConnection, SourceClient, TopicMetadata,
};
use crate::config::MirrorConfig;
use crate::discovery::TopicFilter;
use crate::store::{Change, EventKind, EventRecord, MirrorRecord, StoredFault};

use self::metadata::Refresh;

/// Messages taken in one turn: a burst of faults is one pass over the partitions, not one each.
const MESSAGES_PER_TURN: usize = 4_096;
/// Room in a task's inbox. The reporters wait when it is full; none of them holds up a core.
pub(super) const INBOX_MAX: usize = 8_192;
/// A turn comes at least this often: it proves that lanes which came back bring answers.
const TURN_MAX: Duration = Duration::from_secs(1);

/// Topics to start, resolved at the source by the asker.
#[derive(Debug)]
pub(super) struct StartRequest {
    /// Topics by name, as the source describes them.
    pub(super) named: Vec<(Arc<str>, Option<TopicMetadata>)>,
    /// Patterns to keep for discovery.
    pub(super) include: Vec<String>,
    /// Names and patterns that are never mirrored.
    pub(super) exclude: Vec<String>,
    /// Every topic of the source, when there are patterns.
    pub(super) matched: Vec<TopicMetadata>,
}

/// What a mirror's task is told.
#[derive(Debug)]
pub(super) enum Message {
    /// An operator starts topics.
    Start(StartRequest, oneshot::Sender<Result<Vec<TopicResult>, AdminError>>),
    /// An operator looks.
    Describe(oneshot::Sender<MirrorDescription>),
    /// A core stopped a cursor.
    Fault(FaultReport),
    /// A core lost a lane.
    LaneClosed(LaneClosed),
    /// Reports of the cores were lost: look at everything again.
    Resync,
    /// The node stops.
    Shutdown(oneshot::Sender<Vec<Log>>),
    /// A metadata request ended.
    Metadata(Result<ClusterMetadata, ClientError>),
    /// A broker was asked about partitions it leads.
    Aligned(i32, Vec<Answered>),
    /// Logs were made.
    Created(Vec<Created>),
    /// A lane was connected, or not.
    Lane(Place, Result<LaneConnection, ClientError>),
}

/// A log that was made, or why not.
#[derive(Debug)]
pub(super) struct Created {
    entry: u32,
    /// Who led the partition when its start was asked.
    leader: Leader,
    result: Result<MadeLog, String>,
}

#[derive(Debug)]
struct MadeLog {
    log: Box<Log>,
    /// It was on disk already: made before a crash that came before anything was stored of it.
    existed: bool,
}

/// One mirror, running.
#[derive(Debug)]
pub(super) struct MirrorTask {
    name: Arc<str>,
    info: Arc<MirrorInfo>,
    record: MirrorRecord,
    config: MirrorConfig,
    filter: TopicFilter,
    shared: Arc<Shared>,
    client: SourceClient,
    link: LinkId,
    topics: BTreeMap<Arc<str>, Topic>,
    entries: Vec<Entry>,
    brokers: HashMap<i32, Address>,
    /// Brokers with alignment questions out: one batch at a time each.
    aligning: HashSet<i32>,
    lanes: LaneTable,
    refresh: Refresh,
    backoff: Backoff,
    /// Why the mirror as a whole stopped for good.
    fault: Option<String>,
    /// Why the source cannot be asked now.
    trouble: Option<String>,
    inbox: mpsc::Receiver<Message>,
    /// For those who work beside the task.
    reports: mpsc::Sender<Message>,
}

/// What a task begins with.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) record: MirrorRecord,
    pub(super) config: MirrorConfig,
    pub(super) filter: TopicFilter,
    pub(super) client: SourceClient,
    pub(super) link: LinkId,
    pub(super) info: Arc<MirrorInfo>,
    pub(super) topics: BTreeMap<Arc<str>, Topic>,
    pub(super) entries: Vec<Entry>,
}

impl MirrorTask {
    /// A task, and where it is told things.
    pub(super) fn new(shared: Arc<Shared>, beginning: Beginning) -> (Self, mpsc::Sender<Message>) {
        let (reports, inbox) = mpsc::channel(INBOX_MAX);
        let defaults = &shared.defaults;
        let backoff = Backoff::new(
            Duration::from_millis(defaults.retry_initial_backoff_ms),
            Duration::from_millis(defaults.retry_max_backoff_ms),
            u64::from(beginning.link.0) ^ now_ms().unsigned_abs(),
        );
        let task = Self {
            name: beginning.info.name.clone(),
            info: beginning.info,
            record: beginning.record,
            config: beginning.config,
            filter: beginning.filter,
            client: beginning.client,
            link: beginning.link,
            topics: beginning.topics,
            entries: beginning.entries,
            brokers: HashMap::new(),
            aligning: HashSet::new(),
            lanes: LaneTable::new(defaults.catch_up_lanes),
            refresh: Refresh::new(Duration::from_millis(defaults.metadata_refresh_interval_ms)),
            backoff,
            fault: None,
            trouble: None,
            inbox,
            reports: reports.clone(),
            shared,
        };
        (task, reports)
    }

    /// Runs until told to shut down.
    pub(super) async fn run(mut self) {
        self.set_link();
        let mut messages = Vec::new();
        loop {
            let wake = self.advance(Instant::now());
            // Cancel safety: `recv_many` takes nothing when it is dropped, and a sleep has no state.
            tokio::select! {
                _ = self.inbox.recv_many(&mut messages, MESSAGES_PER_TURN) => {}
                () = tokio::time::sleep_until(wake.into()) => {}
            }
            for message in messages.drain(..) {
                if let Message::Shutdown(done) = message {
                    self.shut_down(done);
                    return;
                }
                self.take(message).await;
            }
        }
    }

    async fn take(&mut self, message: Message) {
        let now = Instant::now();
        match message {
            Message::Start(request, reply) => {
                // The asker may have gone; what it started stays started.
                let _ = reply.send(self.start(request).await);
            }
            Message::Describe(reply) => {
                let _ = reply.send(self.describe(now));
            }
            Message::Fault(report) => self.cursor_stopped(&report, now),
            Message::LaneClosed(closed) => self.lane_closed(&closed, now),
            Message::Resync => self.resync(),
            Message::Metadata(result) => self.metadata_arrived(result, now).await,
            Message::Aligned(broker, answers) => self.aligned(broker, answers, now).await,
            Message::Created(created) => self.created(created, now).await,
            Message::Lane(place, result) => self.lane_connected(place, result, now),
            Message::Shutdown(_) => {}
        }
    }

    /// Starts what is due; returns when to look again.
    fn advance(&mut self, now: Instant) -> Instant {
        let mut next = now + TURN_MAX;
        if self.fault.is_some() {
            return next;
        }
        for entry in &mut self.entries {
            if entry.machine.due(now) {
                self.refresh.want();
            }
            if let Some(at) = entry.machine.due_at() {
                next = next.min(at);
            }
        }
        self.start_refresh(now);
        self.reopen_logs();
        self.start_alignments(now);
        self.start_lanes(now);
        next = next.min(self.refresh.due_at(now));
        self.lanes.due_at().map_or(next, |at| next.min(at))
    }

    /// A cursor stopped: by its fault the partition waits, aligns again, or takes the new leader.
    fn cursor_stopped(&mut self, report: &FaultReport, now: Instant) {
        let id = &report.partition.id;
        let Some(index) = self.entry_of(&id.topic, id.partition) else { return };
        let entry = &mut self.entries[index];
        let ours =
            entry.body.partition().is_some_and(|known| Arc::ptr_eq(known, &report.partition));
        // Anything but mirroring: the fault is older than what is being done about the partition.
        if !ours || !matches!(entry.machine.phase(), Phase::Mirroring { .. }) {
            return;
        }
        if let dataplane::CursorFault::ReadFrom { broker } = report.fault
            && self.read_from(index, broker)
        {
            return;
        }
        let entry = &mut self.entries[index];
        entry.reopen |= matches!(report.fault, dataplane::CursorFault::Disk(_));
        // It is parked already, unless the report crossed a resume on its way.
        self.shared.cores.park(entry.core, report.partition.clone());
        let failure = Failure::from_cursor(&report.fault);
        // A leader that moves stops thousands at once, and is no news of any of them.
        match failure.class {
            FaultClass::Leader => {
                tracing::debug!(mirror = %self.name, partition = %id, cause = failure.message, "stopped");
            }
            _ => {
                tracing::info!(mirror = %self.name, partition = %id, cause = failure.message, "stopped");
            }
        }
        self.fail(index, &failure, now);
        if let dataplane::CursorFault::Broker { hint: Some(hint), .. } = &report.fault {
            if let Some((host, port)) = &hint.address
                && let Ok(port) = u16::try_from(*port)
            {
                let address = Address { host: host.as_str().into(), port };
                self.brokers.insert(hint.broker.0, address);
            }
            let leader = Leader { broker: hint.broker.0, epoch: hint.leader_epoch };
            if leader.broker >= 0 {
                self.entries[index].machine.leader_is(Some(leader));
            }
        }
    }

    /// Marks a partition failed and asks for metadata when that may help.
    fn fail(&mut self, index: usize, failure: &Failure, now: Instant) {
        let entry = &mut self.entries[index];
        let end = entry.body.end();
        entry.machine.fails(failure.class, &failure.message, end, now, &mut self.backoff);
        let leader_in_doubt = matches!(failure.class, FaultClass::Leader | FaultClass::Unreachable);
        if failure.look_at_topic || leader_in_doubt {
            self.refresh.want();
        }
    }

    /// Stops a partition for good, with a cause that outlives a restart.
    fn stop(&mut self, index: usize, message: &str, changes: &mut Vec<Change>) {
        let entry = &mut self.entries[index];
        if let Body::Given(partition) = &entry.body {
            self.shared.cores.park(entry.core, partition.clone());
        }
        entry.machine.stop(message);
        let fault = StoredFault { message: message.to_owned(), since_ms: now_ms() };
        entry.record.fault = Some(fault);
        tracing::error!(mirror = %self.name, partition = %entry.id, cause = message, "stopped for good");
        changes.push(Change::Partition(entry.id.clone(), entry.record.clone()));
        changes.push(self.event(index, EventKind::Failed, message.to_owned()));
    }

    fn event(&self, index: usize, kind: EventKind, text: String) -> Change {
        let id = &self.entries[index].id;
        Change::Event(EventRecord {
            at_ms: now_ms(),
            kind,
            mirror: self.name.to_string(),
            topic: id.topic.to_string(),
            partition: id.partition,
            text,
        })
    }

    /// Writes what nothing has to wait for; a failure is in the log, and tried again with the next.
    async fn remember(&self, changes: Vec<Change>) {
        if let Err(error) = self.shared.store.write(changes).await {
            tracing::error!(mirror = %self.name, %error, "not remembered");
        }
    }

    fn resync(&mut self) {
        for entry in &mut self.entries {
            if let (Phase::Mirroring { .. }, Body::Given(partition)) =
                (entry.machine.phase(), &entry.body)
            {
                self.shared.cores.park(entry.core, partition.clone());
                entry.machine.align_again();
            }
        }
        self.refresh.want();
    }

    fn entry_of(&self, topic: &str, partition: i32) -> Option<usize> {
        let entries = &self.topics.get(topic)?.entries;
        let index = *entries.get(usize::try_from(partition).ok()?)?;
        Some(index as usize)
    }

    fn set_link(&self) {
        let config = &self.config;
        let defaults = &self.shared.defaults;
        let settings = LinkSettings {
            mirror: self.name.clone(),
            fetch_wait_max: config.fetch_wait_max,
            fetch_min_bytes: config.fetch_min_bytes,
            response_bytes_max: config.response_bytes_max,
            partition_bytes_max: config.partition_bytes_max,
            requests_out_max: defaults.requests_out_max,
            catch_up_lag_min: defaults.catch_up_lag_min,
            answer_timeout: config.socket_timeout,
            rack: config.rack.as_str().into(),
        };
        for core in self.shared.cores.fetch_cores() {
            self.shared.cores.set_link(core, self.link, settings.clone());
        }
    }

    /// Gives back the logs that no core has.
    fn shut_down(mut self, done: oneshot::Sender<Vec<Log>>) {
        let mut held: Vec<Log> = Vec::new();
        while let Ok(message) = self.inbox.try_recv() {
            if let Message::Created(created) = message {
                held.extend(created.into_iter().filter_map(|made| Some(*made.result.ok()?.log)));
            }
        }
        held.extend(self.entries.into_iter().filter_map(|entry| match entry.body {
            Body::Held(_, log) => Some(*log),
            _ => None,
        }));
        // Whoever asked for the shutdown waits for this.
        let _ = done.send(held);
    }
}

/// Reports to a task; a task that is gone needs none.
async fn report(reports: mpsc::Sender<Message>, message: Message) {
    let _ = reports.send(message).await;
}

/// Unix milliseconds.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn next_lane(shared: &Shared) -> LaneId {
    LaneId(shared.lane_ids.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

/// Offsets between two positions.
fn distance(from: Offset, to: Offset) -> i64 {
    to.0.saturating_sub(from.0)
}
