//! The groups of this node: gives each state machine a clock, a place for its answers and a log.
//!
//! Owns every group's state, behind one lock that is held for microseconds and never across a
//! wait, and the thread that calls groups when their time has come. Offsets are validated here
//! and written by the store's own thread.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::classic::{
    Answer, Group, GroupState, JoinAnswer, JoinRequest, MemberIdentity, Millis, SyncAnswer,
    SyncRequest, Token,
};
use super::offsets::{OffsetStore, Update, WriteOutcome, WriteRequest};
use super::persisted;
use super::settings::GroupSettings;
use crate::admin::KafkaError;

/// How soon a group is tried again that could not be queued for writing.
const WRITE_RETRY_MS: Millis = 1_000;

/// The longest the timer thread sleeps, so that it sees the end of the node.
const TIMER_NAP_MAX: Duration = Duration::from_secs(1);

/// Every group of this node.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: GroupSettings,
    pub(super) store: OffsetStore,
    state: Mutex<State>,
    /// Rung when an earlier deadline was set.
    earlier: Condvar,
    started: Instant,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) groups: HashMap<Arc<str>, Entry>,
    waiting: HashMap<Token, Waiter>,
    next_token: u64,
    deadlines: BTreeSet<(Millis, Arc<str>)>,
    /// What all groups take, about.
    memory_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) group: Group,
    deadline: Option<Millis>,
    memory_bytes: usize,
}

#[derive(Debug)]
enum Waiter {
    Join(oneshot::Sender<JoinAnswer>),
    Sync(oneshot::Sender<SyncedAnswer>),
}

/// A sync's answer, and what tells that the generation is written.
type SyncedAnswer = (SyncAnswer, Option<oneshot::Receiver<WriteOutcome>>);

impl Groups {
    /// Takes up the groups that the store read back.
    pub(crate) fn new(store: OffsetStore, settings: GroupSettings) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            settings,
            store,
            state: Mutex::default(),
            earlier: Condvar::new(),
            started: Instant::now(),
        });
        shared.restore();
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new().name("group-timer".into()).spawn(move || {
            while let Some(shared) = weak.upgrade() {
                shared.run_due();
            }
        })?;
        Ok(Self { shared })
    }

    /// A client joins a group. Waits until the generation begins.
    pub(crate) async fn join(&self, group_id: &str, request: JoinRequest) -> JoinAnswer {
        let member_id = request.member_id.clone();
        let refused = |error| JoinAnswer::refusal(error, &member_id);
        let answer = match self.shared.enqueue_join(group_id, request) {
            Ok(answer) => answer,
            Err(error) => return refused(error),
        };
        answer.await.unwrap_or_else(|_| refused(KafkaError::COORDINATOR_NOT_AVAILABLE))
    }

    /// A member asks for its assignment. Waits until the leader gave it and it is written.
    pub(crate) async fn sync(&self, group_id: &str, request: SyncRequest) -> SyncAnswer {
        let answer = match self.shared.enqueue_sync(group_id, request) {
            Ok(answer) => answer,
            Err(error) => return SyncAnswer::refusal(error),
        };
        match answer.await {
            Ok((answer, written)) => {
                if let Some(written) = written {
                    // A generation that could not be written is one that ends with the node:
                    // its members join again then, as after any other loss of their coordinator.
                    let _ = written.await;
                }
                answer
            }
            Err(_) => SyncAnswer::refusal(KafkaError::COORDINATOR_NOT_AVAILABLE),
        }
    }

    /// A member says it is alive.
    pub(crate) fn heartbeat(
        &self,
        group_id: &str,
        identity: MemberIdentity<'_>,
        generation: i32,
    ) -> KafkaError {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        match state.groups.get_mut(group_id) {
            Some(entry) => entry.group.heartbeat(identity, generation, now),
            None => self.shared.unknown_group(group_id, KafkaError::UNKNOWN_MEMBER_ID),
        }
    }

    /// Members leave, or are removed.
    pub(crate) fn leave(
        &self,
        group_id: &str,
        identities: &[MemberIdentity<'_>],
    ) -> Vec<KafkaError> {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let Some(entry) = state.groups.get_mut(group_id) else {
            let error = self.shared.unknown_group(group_id, KafkaError::UNKNOWN_MEMBER_ID);
            return vec![error; identities.len()];
        };
        let outcomes =
            identities.iter().map(|identity| entry.group.leave(*identity, now)).collect();
        self.shared.settle(&mut state, group_id, now);
        outcomes
    }
}

impl Drop for Groups {
    /// What waits is written, and the logs are closed cleanly.
    fn drop(&mut self) {
        self.shared.store.close();
    }
}

impl Shared {
    pub(super) fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a member of a group without members is told: the group may merely be unread.
    pub(super) fn unknown_group(&self, group_id: &str, error: KafkaError) -> KafkaError {
        if self.store.is_readable(group_id) { error } else { KafkaError::COORDINATOR_NOT_AVAILABLE }
    }

    fn enqueue_join(
        &self,
        group_id: &str,
        request: JoinRequest,
    ) -> Result<oneshot::Receiver<JoinAnswer>, KafkaError> {
        if group_id.is_empty() {
            return Err(KafkaError::INVALID_GROUP_ID);
        }
        if !self.store.is_readable(group_id) {
            return Err(KafkaError::COORDINATOR_NOT_AVAILABLE);
        }
        let now = self.now();
        let mut state = self.lock();
        let asked: usize = request.protocols.iter().map(|(_, metadata)| metadata.len()).sum();
        if state.memory_bytes.saturating_add(asked) > self.settings.memory_bytes_max {
            return Err(KafkaError::GROUP_MAX_SIZE_REACHED);
        }
        if !state.groups.contains_key(group_id) {
            if !request.member_id.is_empty() {
                return Err(KafkaError::UNKNOWN_MEMBER_ID);
            }
            if state.groups.len() >= self.settings.groups_max {
                state.forget_vacant();
            }
            if state.groups.len() >= self.settings.groups_max {
                return Err(KafkaError::GROUP_MAX_SIZE_REACHED);
            }
            state.groups.insert(Arc::from(group_id), Entry::new(Group::new(self.settings.limits)));
        }
        let (sender, receiver) = oneshot::channel();
        let token = state.wait(Waiter::Join(sender));
        if let Some(entry) = state.groups.get_mut(group_id) {
            entry.group.join(request, token, now);
        }
        self.settle(&mut state, group_id, now);
        Ok(receiver)
    }

    fn enqueue_sync(
        &self,
        group_id: &str,
        request: SyncRequest,
    ) -> Result<oneshot::Receiver<SyncedAnswer>, KafkaError> {
        let now = self.now();
        let mut state = self.lock();
        if !state.groups.contains_key(group_id) {
            return Err(self.unknown_group(group_id, KafkaError::UNKNOWN_MEMBER_ID));
        }
        let asked: usize = request.assignments.iter().map(|(_, bytes)| bytes.len()).sum();
        if state.memory_bytes.saturating_add(asked) > self.settings.memory_bytes_max {
            return Err(KafkaError::GROUP_MAX_SIZE_REACHED);
        }
        let (sender, receiver) = oneshot::channel();
        let token = state.wait(Waiter::Sync(sender));
        if let Some(entry) = state.groups.get_mut(group_id) {
            entry.group.sync(request, token, now);
        }
        self.settle(&mut state, group_id, now);
        Ok(receiver)
    }

    /// After a group was called: its answers go out, what changed is written, its next deadline is
    /// noted, and it is dropped when nothing is left of it.
    pub(super) fn settle(&self, state: &mut State, group_id: &str, now: Millis) {
        let Some((group_id, _)) = state.groups.get_key_value(group_id) else { return };
        let group_id = group_id.clone();
        let Some(entry) = state.groups.get_mut(&group_id) else { return };
        let answers = entry.group.take_answers();
        let memory_bytes = entry.group.memory_bytes();
        state.memory_bytes = state.memory_bytes + memory_bytes - entry.memory_bytes;
        entry.memory_bytes = memory_bytes;
        let is_over = entry.group.is_vacant()
            && entry.group.state() == GroupState::Empty
            && !self.store.table().has_offsets(&group_id);
        // An empty group that was read back may be over without having changed.
        let changed =
            entry.group.take_changed() || (is_over && self.store.table().has_group(&group_id));
        let mut request = changed.then(|| {
            let update = match is_over {
                // Not deleted: a commit may be under way, and comes first.
                true => Update::Disband,
                false => Update::Group(persisted::encode(&entry.group).into()),
            };
            WriteRequest { group: group_id.clone(), updates: vec![update], done: Vec::new() }
        });
        state.deliver(answers, request.as_mut());
        let unwritten = request.is_some_and(|request| self.store.submit(request).is_err());
        let Some(entry) = state.groups.get_mut(&group_id) else { return };
        if unwritten {
            entry.group.mark_changed();
        }
        let retry = unwritten.then_some(now + WRITE_RETRY_MS);
        let deadline = [entry.group.next_deadline(), retry].into_iter().flatten().min();
        let before = std::mem::replace(&mut entry.deadline, deadline);
        if let Some(before) = before {
            state.deadlines.remove(&(before, group_id.clone()));
        }
        if let Some(deadline) = deadline {
            let is_first = state.deadlines.first().is_none_or(|(first, _)| deadline < *first);
            state.deadlines.insert((deadline, group_id.clone()));
            if is_first {
                self.earlier.notify_one();
            }
        }
        if is_over && !unwritten {
            state.forget(&group_id);
        }
    }

    /// Calls the groups whose time has come, then waits for the next one's.
    fn run_due(&self) {
        let mut state = self.lock();
        let now = self.now();
        let due = state.deadlines.first().filter(|(deadline, _)| *deadline <= now).cloned();
        if let Some((_, group_id)) = due {
            if let Some(entry) = state.groups.get_mut(&group_id) {
                entry.group.tick(now);
            }
            self.settle(&mut state, &group_id, now);
            return;
        }
        let until = state.deadlines.first().map(|(deadline, _)| *deadline);
        let nap = until.map_or(TIMER_NAP_MAX, |until| Duration::from_millis(until - now));
        let woken = self.earlier.wait_timeout(state, nap.min(TIMER_NAP_MAX));
        drop(woken);
    }

    fn restore(&self) {
        let now = self.now();
        let restored: Vec<_> = {
            let table = self.store.table();
            let records = table.group_records();
            records
                .filter_map(|(group_id, value)| {
                    let group = persisted::decode(value, self.settings.limits, now)?;
                    Some((group_id.clone(), group))
                })
                .collect()
        };
        let mut state = self.lock();
        for (group_id, group) in restored {
            state.groups.insert(group_id.clone(), Entry::new(group));
            self.settle(&mut state, &group_id, now);
        }
    }
}

impl State {
    /// Drops a group.
    pub(super) fn forget(&mut self, group_id: &str) {
        let Some((group_id, entry)) = self.groups.remove_entry(group_id) else { return };
        self.memory_bytes -= entry.memory_bytes;
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, group_id));
        }
    }

    /// Drops the groups that nobody is in, and of which nothing waits to be written. What they committed
    /// stays; who joins one again begins at generation 1, under another member id.
    fn forget_vacant(&mut self) {
        let vacant = |entry: &Entry| {
            let is_empty = entry.group.is_vacant() && entry.group.state() == GroupState::Empty;
            is_empty && entry.deadline.is_none()
        };
        let vacant = self.groups.iter().filter(|(_, entry)| vacant(entry));
        let vacant: Vec<_> = vacant.map(|(group_id, _)| group_id.clone()).collect();
        for group_id in vacant {
            self.forget(&group_id);
        }
    }

    fn wait(&mut self, waiter: Waiter) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        self.waiting.insert(token, waiter);
        token
    }

    /// Hands answers to who waits for them. Who went away is not missed: its member stays.
    fn deliver(&mut self, answers: Vec<Answer>, mut request: Option<&mut WriteRequest>) {
        for answer in answers {
            match answer {
                Answer::Join(token, answer) => {
                    if let Some(Waiter::Join(sender)) = self.waiting.remove(&token) {
                        let _ = sender.send(answer);
                    }
                }
                Answer::Sync(token, answer) => {
                    if let Some(Waiter::Sync(sender)) = self.waiting.remove(&token) {
                        let written = request.as_mut().map(|request| {
                            let (done, written) = oneshot::channel();
                            request.done.push(done);
                            written
                        });
                        let _ = sender.send((answer, written));
                    }
                }
            }
        }
    }
}

impl Entry {
    fn new(group: Group) -> Self {
        Self { group, deadline: None, memory_bytes: 0 }
    }
}
