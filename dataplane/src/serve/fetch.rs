//! Fetch: from a decoded request to an answer, or to a wait for one. No input or output; time is
//! an argument.
//!
//! Answers as Kafka's broker does, with one difference: a partition that is not here answers at
//! once even when others have nothing to read, so that a client learns of it without the wait.
//!
//! Records leave as they are stored, whatever the version: batches of zstd also to versions below
//! 10, as Kafka does from 4.0 on (before, a topic whose `compression.type` is zstd was refused), and
//! message sets of old formats as they are. Nothing is converted (P1).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use storage::LeaderEpoch;

use super::errors;
use super::session::{
    Entry, Opened, PartitionKey, Session, SessionCache, SessionChange, lock, next_epoch,
};
use super::target::{Look, LookLimits, Target};
use crate::handle::Advertised;
use crate::partition::{Partition, PartitionTable};
use crate::ring::SendPart;
use crate::wire::{
    AnswerHead, AnswerPartition, FetchAnswer, FetchPartition, FetchRequest, FetchTopic,
    IsolationLevel, LeaderAndEpoch, NodeEndpoint, TopicKey,
};

/// First version that names topics by id.
const VERSION_TOPIC_IDS: i16 = 13;
/// First version whose clients take a leader's address from an answer (KIP-951).
const VERSION_LEADER_HINTS: i16 = 16;
/// First version whose clients know the storage error.
const VERSION_STORAGE_ERROR: i16 = 6;
/// Session epoch of a full fetch that wants a session.
const EPOCH_INITIAL: i32 = 0;
/// Session epoch of a full fetch that wants none.
const EPOCH_FINAL: i32 = -1;

/// What a fetch runs against.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchEnvironment<'a> {
    /// Who this node is to clients.
    pub(super) advertised: &'a Advertised,
    /// The address that this client reached.
    pub(super) reached: SocketAddr,
    /// All partitions.
    pub(super) table: &'a PartitionTable,
    /// All sessions.
    pub(super) sessions: &'a SessionCache,
    /// Largest answer, whatever the client asks.
    pub(super) bytes_max: usize,
    /// The time.
    pub(super) now: Instant,
}

impl FetchEnvironment<'_> {
    /// Where this client reaches this node, as Metadata tells it.
    fn own_endpoint(&self) -> NodeEndpoint {
        NodeEndpoint {
            node_id: self.advertised.node_id,
            host: self.advertised.host_at(self.reached),
            port: self.advertised.port_at(self.reached).into(),
        }
    }
}

/// An answer, ready to send.
#[derive(Debug)]
pub(super) struct FetchReady {
    /// Fields and records, in order.
    pub(super) parts: Vec<SendPart>,
    /// Bytes of the fields: memory, unlike the records.
    pub(super) encoded_bytes: usize,
}

/// A fetch between its request and its answer.
#[derive(Debug)]
pub(super) struct PendingFetch {
    version: i16,
    correlation_id: i32,
    isolation: IsolationLevel,
    bytes_min: usize,
    bytes_max: usize,
    deadline: Instant,
    context: Context,
    /// Record bytes there were at the last look.
    ready_bytes: usize,
}

/// Where a fetch's partitions are.
#[derive(Debug)]
enum Context {
    /// Nowhere: the session failed with this code.
    Failed(i16),
    /// In the request. With `keeps`, they become a session when they are answered.
    Full { targets: Vec<Target>, keeps: bool },
    /// In a session, which must still be at this epoch when it is answered.
    Incremental { session: Arc<Mutex<Session>>, epoch: i32 },
}

impl PendingFetch {
    /// Takes a request: finds, changes or closes its session.
    pub(super) fn new(
        request: FetchRequest,
        version: i16,
        correlation_id: i32,
        environment: FetchEnvironment<'_>,
    ) -> Self {
        let wait_ms = u64::try_from(request.max_wait_ms).unwrap_or(0);
        let bytes_max = usize::try_from(request.max_bytes).unwrap_or(0).min(environment.bytes_max);
        let bytes_min = usize::try_from(request.min_bytes).unwrap_or(0).min(bytes_max);
        let isolation = request.isolation;
        Self {
            version,
            correlation_id,
            isolation,
            bytes_min,
            bytes_max,
            deadline: environment.now + Duration::from_millis(wait_ms),
            context: open_context(request, version, environment),
            ready_bytes: 0,
        }
    }

    /// Looks at all partitions. Returns the answer if it is due; else the client waits, until
    /// [`PendingFetch::deadline`] or until one of its partitions changes.
    pub(super) fn look(&mut self, environment: FetchEnvironment<'_>) -> Option<FetchReady> {
        let late = environment.now >= self.deadline;
        self.run(environment, late)
    }

    /// Answers with whatever there is.
    pub(super) fn answer(&mut self, environment: FetchEnvironment<'_>) -> FetchReady {
        let empty = self.encode(environment, errors::NONE, 0, Vec::new());
        self.run(environment, true).unwrap_or(empty)
    }

    /// Looks at one partition again, after it changed. `watch` is what was registered for it.
    /// Returns whether the answer is due now.
    pub(super) fn partition_changed(
        &mut self,
        watch: &mut Watch,
        partition: &Partition,
        table: &PartitionTable,
    ) -> bool {
        if partition.is_deleted() {
            return true;
        }
        let look = watch.target.look(table, self.limits());
        let now_ready = self.ready_bytes + look.answer.records_bytes;
        self.ready_bytes = now_ready.saturating_sub(watch.counted_bytes);
        watch.counted_bytes = look.answer.records_bytes;
        look.is_urgent() || self.ready_bytes >= self.bytes_min
    }

    /// The partitions to be woken for.
    pub(super) fn watches(&self) -> Vec<Watch> {
        let mut watches = Vec::new();
        self.each_target(|target| {
            if target.partition().is_some() {
                let counted_bytes = target.ready_bytes;
                watches.push(Watch { target: target.clone(), counted_bytes });
            }
        });
        watches
    }

    /// Whether something happened since the last look. Asked after the watches are set: what
    /// happened before that woke nobody.
    pub(super) fn changed_since_look(&self) -> bool {
        let mut changed = false;
        self.each_target(|target| changed |= target.changed_since_look());
        changed
    }

    /// When it must be answered with whatever there is.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    fn limits(&self) -> LookLimits {
        LookLimits {
            isolation: self.isolation,
            bytes_min: self.bytes_min,
            bytes_max: self.bytes_max,
            whole_first_batch: true,
        }
    }

    fn each_target(&self, mut visit: impl FnMut(&Target)) {
        match &self.context {
            Context::Failed(_) => {}
            Context::Full { targets, .. } => targets.iter().for_each(visit),
            Context::Incremental { session, .. } => {
                lock(session).entries().for_each(|entry| visit(&entry.target));
            }
        }
    }

    fn run(&mut self, environment: FetchEnvironment<'_>, late: bool) -> Option<FetchReady> {
        match std::mem::replace(&mut self.context, Context::Failed(errors::NONE)) {
            Context::Failed(code) => {
                self.context = Context::Failed(code);
                Some(self.encode(environment, code, 0, Vec::new()))
            }
            Context::Full { mut targets, keeps } => {
                let answer = self.run_full(&mut targets, keeps, environment, late);
                self.context = Context::Full { targets, keeps };
                answer
            }
            Context::Incremental { session, epoch } => {
                let answer = self.run_incremental(&mut lock(&session), epoch, environment, late);
                self.context = Context::Incremental { session, epoch };
                answer
            }
        }
    }

    fn run_full(
        &mut self,
        targets: &mut [Target],
        keeps: bool,
        environment: FetchEnvironment<'_>,
        late: bool,
    ) -> Option<FetchReady> {
        let mut reading = Reading::new(self);
        let looks: Vec<Look> =
            targets.iter_mut().map(|target| reading.look(target, environment.table)).collect();
        self.ready_bytes = reading.ready_bytes;
        if !(late || reading.is_due(self.bytes_min)) {
            return None;
        }
        let mut order: Vec<usize> = (0..looks.len()).collect();
        order.sort_by_key(|index| looks[*index].rank);
        let session_id = if keeps {
            let entries = order
                .iter()
                .map(|index| Entry::answered(targets[*index].clone(), &looks[*index].answer));
            let by_id = self.version >= VERSION_TOPIC_IDS;
            environment.sessions.create(by_id, entries, environment.now)
        } else {
            0
        };
        let mut looks: Vec<Option<Look>> = looks.into_iter().map(Some).collect();
        let ordered = order
            .into_iter()
            .filter_map(|index| Some((targets[index].key.clone(), looks[index].take()?)))
            .collect();
        Some(self.encode(environment, errors::NONE, session_id, ordered))
    }

    fn run_incremental(
        &mut self,
        session: &mut Session,
        epoch: i32,
        environment: FetchEnvironment<'_>,
        late: bool,
    ) -> Option<FetchReady> {
        if session.epoch() != epoch {
            // The client gave this request up and sent the next one.
            let code = errors::INVALID_FETCH_SESSION_EPOCH;
            return Some(self.encode(environment, code, session.id(), Vec::new()));
        }
        let mut reading = Reading::new(self);
        let mut changed = Vec::new();
        for (place, entry) in session.entries_mut() {
            let look = reading.look(&mut entry.target, environment.table);
            if entry.must_answer(&look) {
                changed.push((place, entry.target.key.clone(), look));
            }
        }
        self.ready_bytes = reading.ready_bytes;
        if !(late || reading.is_due(self.bytes_min)) {
            return None;
        }
        changed.sort_by_key(|(_, _, look)| look.rank);
        for (place, _, look) in &changed {
            session.told(*place, &look.answer);
        }
        let ordered = changed.into_iter().map(|(_, key, look)| (key, look)).collect();
        Some(self.encode(environment, errors::NONE, session.id(), ordered))
    }

    fn encode(
        &self,
        environment: FetchEnvironment<'_>,
        error_code: i16,
        session_id: i32,
        looks: Vec<(TopicKey, Look)>,
    ) -> FetchReady {
        // The fenced ones may come back at once: with the epoch, and where its leader is.
        let mut endpoints = Vec::new();
        let mut topics: Vec<(TopicKey, Vec<AnswerPartition>)> = Vec::new();
        let mut records = Vec::new();
        for (key, mut look) in looks {
            if look.answer.error_code == errors::STORAGE && self.version < VERSION_STORAGE_ERROR {
                look.answer.error_code = errors::NOT_LEADER_OR_FOLLOWER;
            }
            if self.version >= VERSION_LEADER_HINTS
                && let Some(LeaderEpoch(leader_epoch)) = look.fenced_by
            {
                let leader_id = environment.advertised.node_id;
                look.answer.current_leader = Some(LeaderAndEpoch { leader_id, leader_epoch });
                if endpoints.is_empty() {
                    endpoints.push(environment.own_endpoint());
                }
            }
            records.extend(look.records.filter(|records| records.len_bytes() > 0));
            match topics.last_mut() {
                Some((last, partitions)) if *last == key => partitions.push(look.answer),
                _ => topics.push((key, vec![look.answer])),
            }
        }
        let head = AnswerHead {
            correlation_id: self.correlation_id,
            throttle_time_ms: 0,
            error_code,
            session_id,
        };
        let answer = FetchAnswer::encode(self.version, &head, &topics, &endpoints);
        let encoded_bytes = answer.pieces.iter().map(bytes::Bytes::len).sum();
        let mut parts = Vec::with_capacity(answer.pieces.len() + records.len());
        let mut records = records.into_iter();
        for piece in answer.pieces {
            parts.push(SendPart::Bytes(piece));
            parts.extend(records.next().map(SendPart::Records));
        }
        FetchReady { parts, encoded_bytes }
    }
}

/// One pass over a fetch's partitions, with the room left in the answer.
struct Reading {
    limits: LookLimits,
    ready_bytes: usize,
    urgent: bool,
    empty: bool,
}

impl Reading {
    fn new(fetch: &PendingFetch) -> Self {
        Self { limits: fetch.limits(), ready_bytes: 0, urgent: false, empty: true }
    }

    fn look(&mut self, target: &mut Target, table: &PartitionTable) -> Look {
        let look = target.look(table, self.limits);
        let bytes = look.answer.records_bytes;
        if bytes > 0 {
            // Only the first batch of the whole answer may exceed the limits.
            self.limits.whole_first_batch = false;
            self.limits.bytes_max = self.limits.bytes_max.saturating_sub(bytes);
        }
        self.ready_bytes += bytes;
        self.urgent |= look.is_urgent();
        self.empty = false;
        look
    }

    fn is_due(&self, bytes_min: usize) -> bool {
        self.empty || self.urgent || self.ready_bytes >= bytes_min
    }
}

/// A partition that a waiting fetch is to be woken for.
#[derive(Debug)]
pub(super) struct Watch {
    target: Target,
    /// Its part of the fetch's ready bytes.
    counted_bytes: usize,
}

impl Watch {
    /// The partition to watch.
    pub(super) fn partition(&self) -> Option<&Arc<Partition>> {
        self.target.partition()
    }
}

fn open_context(request: FetchRequest, version: i16, environment: FetchEnvironment<'_>) -> Context {
    let FetchRequest { session_id, session_epoch, topics, forgotten, .. } = request;
    let targets = targets(topics);
    if session_epoch == EPOCH_INITIAL || session_epoch == EPOCH_FINAL {
        if session_id != 0 {
            environment.sessions.remove(session_id);
        }
        return Context::Full { targets, keeps: session_epoch == EPOCH_INITIAL };
    }
    let forgotten = forgotten
        .into_iter()
        .flat_map(|topic| {
            let key = topic.topic;
            topic.partitions.into_iter().map(move |partition| (key.clone(), partition))
        })
        .collect();
    let by_id = version >= VERSION_TOPIC_IDS;
    let change = SessionChange {
        id: session_id,
        epoch: session_epoch,
        by_id,
        targets: targets.clone(),
        forgotten,
    };
    match environment.sessions.open(change, environment.now) {
        Opened::Session(session) => {
            Context::Incremental { session, epoch: next_epoch(session_epoch) }
        }
        Opened::Closed => Context::Full { targets, keeps: false },
        Opened::Failed(code) => Context::Failed(code),
    }
}

/// The request's partitions in order; of one named twice, the last values count.
fn targets(topics: Vec<FetchTopic>) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let mut places: HashMap<PartitionKey, usize> = HashMap::new();
    for topic in topics {
        for fetch in topic.partitions {
            add_target(&mut targets, &mut places, &topic.topic, fetch);
        }
    }
    targets
}

fn add_target(
    targets: &mut Vec<Target>,
    places: &mut HashMap<PartitionKey, usize>,
    topic: &TopicKey,
    fetch: FetchPartition,
) {
    let key = (topic.clone(), fetch.partition);
    if let Some(place) = places.get(&key) {
        targets[*place].fetch = fetch;
        return;
    }
    places.insert(key, targets.len());
    targets.push(Target::new(topic.clone(), fetch));
}
