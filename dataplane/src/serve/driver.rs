//! The serve driver of one core: glues connections to ring operations.
//!
//! Owns the core's connections and what they wait for. Runs on the core's thread. Must never wait,
//! and never begin a request of a connection before the answer to the one before has left.

use std::collections::{HashSet, VecDeque};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use socket2::SockRef;

use super::budget::Budget;
use super::connection::{Connection, Patience, Poll, State};
use super::fetch::{FetchEnvironment, FetchReady, PendingFetch};
use super::frames::{FrameBuffer, Framing};
use super::listener::Listener;
use super::outgoing::Outgoing;
use super::requests::{self, CloseReason, Handled};
use super::session::SessionCache;
use super::slots::Slots;
use super::timers::Timers;
use super::waiters::{Chain, WAIT_BYTES, Waiters};
use crate::core_loop::CoreContext;
use crate::handle::{ColdRequest, ConnectionId, CoreId, DataplaneConfig, Event, Reply};
use crate::partition::Partition;
use crate::ring::{Outcome, ReceiveInto, SendPart, Socket, Token, TokenRole};

/// Kinds of operations, as their tokens say.
pub(super) const KIND_ACCEPT: u8 = 0;
const KIND_RECEIVE: u8 = 1;
const KIND_SEND: u8 = 2;

/// Who waits for memory asks again after this: room may come from another core.
const STARVED_RETRY: Duration = Duration::from_millis(10);
/// A fetch for whose wait there is no memory is looked at again, once, after this: at once would make
/// its client ask in a loop.
const UNWATCHED_WAIT: Duration = Duration::from_millis(100);
/// At a shutdown, answers under way have this long to leave.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Largest answer whatever is configured: a frame's length must fit, with the fields and a last
/// batch that goes beyond.
const FETCH_BYTES_MAX: usize = 1 << 30;
/// Reasons for closing that are remembered as logged, each for one client address: a client that
/// comes back every second with the same fault fills no log.
const LOGGED_MAX: usize = 256;

/// What all serve cores share: the settings and the budgets counted over all of them.
#[derive(Debug)]
pub(crate) struct ServeShared {
    config: DataplaneConfig,
    budget: Arc<Budget>,
    sessions: SessionCache,
    connections: AtomicUsize,
}

impl ServeShared {
    /// Budgets as configured, nothing used.
    pub(crate) fn new(config: DataplaneConfig) -> Self {
        Self {
            budget: Budget::new(config.serve_memory_max),
            sessions: SessionCache::new(config.sessions_max),
            connections: AtomicUsize::new(0),
            config,
        }
    }

    fn patience(&self) -> Patience {
        Patience { idle: self.config.idle_timeout, stalled: self.config.send_timeout }
    }

    /// `reached` is the address that the client connected to.
    fn environment<'a>(
        &'a self,
        core: &CoreContext<'a>,
        reached: SocketAddr,
    ) -> FetchEnvironment<'a> {
        FetchEnvironment {
            advertised: &self.config.advertised,
            reached,
            table: core.table,
            sessions: &self.sessions,
            bytes_max: self.config.fetch_bytes_max.min(FETCH_BYTES_MAX),
            now: core.now,
        }
    }
}

/// All consumers of one core.
pub(crate) struct ServeDriver {
    core: CoreId,
    shared: Arc<ServeShared>,
    listener: Listener,
    slots: Slots,
    waiters: Waiters,
    timers: Timers,
    /// Connections that wait for memory, the longest waiting first.
    starved: VecDeque<u32>,
    starved_retry_at: Option<Instant>,
    logged: HashSet<String>,
    stopping_since: Option<Instant>,
}

impl ServeDriver {
    /// A driver without a listener.
    pub(crate) fn new(core: CoreId, shared: Arc<ServeShared>) -> Self {
        Self {
            core,
            shared,
            listener: Listener::default(),
            slots: Slots::default(),
            waiters: Waiters::default(),
            timers: Timers::default(),
            starved: VecDeque::new(),
            starved_retry_at: None,
            logged: HashSet::new(),
            stopping_since: None,
        }
    }

    /// Starts to accept on this core's own listening socket. An accept operation that ends
    /// (`more` unset) is armed again, after a pause when it ended with an error.
    pub(crate) fn listen(&mut self, core: &mut CoreContext<'_>, listener: Socket) {
        self.listener.listen(core.ring, listener);
    }

    /// Takes a finished operation of token role `Serve`.
    pub(crate) fn completed(
        &mut self,
        core: &mut CoreContext<'_>,
        slot: u32,
        _kind: u8,
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Accepted { result, more } => {
                if !more {
                    self.listener.ended(core.now, result.is_err());
                }
                match result {
                    Ok((descriptor, peer)) => self.accepted(core, descriptor, peer),
                    Err(error) if self.stopping_since.is_none() => {
                        tracing::warn!("cannot accept consumers: {error}");
                    }
                    Err(_) => {}
                }
            }
            Outcome::Received { result, into } => self.received(core, slot, result, into),
            Outcome::Sent { result } => self.sent(core, slot, result),
            Outcome::Woken => {}
        }
    }

    /// Runs once a turn, after the completions and commands of the turn: deadlines and what became
    /// due. Returns when it wants to run again at the latest.
    pub(crate) fn turn(&mut self, core: &mut CoreContext<'_>) -> Option<Instant> {
        while let Some(slot) = self.timers.pop_due(core.now) {
            self.due(core, slot);
        }
        if self.starved_retry_at.is_some_and(|at| at <= core.now) {
            self.feed_starved(core);
        }
        let accept_at = if self.stopping_since.is_none() {
            self.listener.turn(core.ring, core.now)
        } else {
            None
        };
        [self.timers.next(), self.starved_retry_at, accept_at].into_iter().flatten().min()
    }

    /// Stops accepting, then closes connections. Called every turn until it returns true, which
    /// says that nothing is in flight.
    pub(crate) fn shutdown(&mut self, core: &mut CoreContext<'_>) -> bool {
        let since = *self.stopping_since.get_or_insert(core.now);
        self.listener.stop(core.ring);
        let late = core.now >= since + SHUTDOWN_GRACE;
        for slot in self.slots.in_use() {
            let sending = self
                .slots
                .get_mut(slot)
                .is_some_and(|connection| matches!(connection.state, State::Sending(..)));
            if late || !sending {
                self.close(core, slot);
            }
        }
        self.slots.is_empty() && self.listener.is_stopped()
    }

    /// Takes the control plane's answer to a cold request.
    pub(crate) fn reply(
        &mut self,
        core: &mut CoreContext<'_>,
        connection: ConnectionId,
        reply: Reply,
    ) {
        let slot = connection.slot;
        if self.slots.generation(slot) != connection.generation {
            return;
        }
        let Some(waiting) = self.slots.get_mut(slot) else { return };
        if !matches!(waiting.state, State::Cold { .. }) {
            return;
        }
        match reply {
            Reply::Frame(frame) => match i32::try_from(frame.len()) {
                Ok(length) => {
                    let prefix = Bytes::copy_from_slice(&length.to_be_bytes());
                    let encoded_bytes = prefix.len() + frame.len();
                    let parts = vec![SendPart::Bytes(prefix), SendPart::Bytes(frame)];
                    self.start_sending(core, slot, FetchReady { parts, encoded_bytes });
                }
                Err(_) => self.close(core, slot),
            },
            Reply::Nothing => {
                waiting.state = State::Reading;
                self.advance(core, slot);
            }
            Reply::Close => self.close(core, slot),
        }
    }

    /// A partition this core waits for (`Partition::wait_on`) was published or deleted.
    pub(crate) fn published(&mut self, core: &mut CoreContext<'_>, partition: &Arc<Partition>) {
        let Some(first) = self.waiters.first(partition) else { return };
        // Who is not served now waits on, for the next publish: so first the wait, then the look.
        partition.wait_on(usize::from(self.core.0));
        let mut waits = vec![first];
        while let Some((_, _, Some(next))) = self.waiters.visit(waits[waits.len() - 1]) {
            waits.push(next);
        }
        for wait in waits {
            // Gone, if its connection was answered for another wait just now.
            let Some((slot, watch, _)) = self.waiters.visit(wait) else { continue };
            let Some(connection) = self.slots.get_mut(slot) else { continue };
            let State::Polling(poll) = &mut connection.state else { continue };
            if poll.fetch.partition_changed(watch, partition, core.table) {
                self.finish_poll(core, slot);
            }
        }
    }

    fn accepted(&mut self, core: &mut CoreContext<'_>, descriptor: OwnedFd, peer: SocketAddr) {
        if self.stopping_since.is_some() {
            return;
        }
        if self.shared.connections.fetch_add(1, Ordering::AcqRel)
            >= self.shared.config.connections_max
        {
            self.shared.connections.fetch_sub(1, Ordering::AcqRel);
            core.counters.connections_refused.add(1);
            return;
        }
        core.counters.connections_opened.add(1);
        let socket = SockRef::from(&descriptor);
        // Neither is worth refusing a client for: they make answers prompt and dead peers known.
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_keepalive(true);
        let local = socket.local_addr().ok().and_then(|address| address.as_socket());
        let local = local.unwrap_or(self.shared.config.listen);
        let frames = FrameBuffer::new(&self.shared.budget, self.shared.config.request_bytes_max);
        let socket = Socket::from(descriptor);
        let slot = self.slots.insert(Connection::new(socket, peer, local, frames, core.now));
        self.advance(core, slot);
    }

    fn received(
        &mut self,
        core: &mut CoreContext<'_>,
        slot: u32,
        result: std::io::Result<usize>,
        into: ReceiveInto,
    ) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        connection.receiving = false;
        if let ReceiveInto::Buffer { buffer, .. } = into {
            connection.frames.take_back(buffer, *result.as_ref().unwrap_or(&0));
        }
        if matches!(connection.state, State::Closing) {
            self.release(slot);
            return;
        }
        match result {
            Ok(0) => connection.ended = true,
            Ok(_) => connection.active_at = core.now,
            Err(_) => {
                self.close(core, slot);
                return;
            }
        }
        if connection.ended && matches!(connection.state, State::Polling(_)) {
            // Most likely it is gone; if it only closed its side, it gets what there is.
            self.finish_poll(core, slot);
            return;
        }
        self.advance(core, slot);
    }

    fn sent(&mut self, core: &mut CoreContext<'_>, slot: u32, result: std::io::Result<usize>) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        connection.sending = false;
        if matches!(connection.state, State::Closing) {
            self.release(slot);
            return;
        }
        connection.active_at = core.now;
        match result {
            Ok(_) => self.send_piece(core, slot),
            Err(_) => self.close(core, slot),
        }
    }

    /// Goes on with what a connection can do now: read, answer, or wait.
    fn advance(&mut self, core: &mut CoreContext<'_>, slot: u32) {
        loop {
            let Some(connection) = self.slots.get_mut(slot) else { return };
            if connection.receiving {
                break;
            }
            let framing = match connection.frames.framing() {
                Ok(framing) => framing,
                Err(bad) => {
                    tracing::info!(peer = %connection.peer, "consumer closed: {bad}");
                    self.close(core, slot);
                    return;
                }
            };
            let reading = matches!(connection.state, State::Reading);
            match framing {
                _ if matches!(connection.state, State::Closing) => return,
                Framing::More if connection.ended && reading => {
                    self.close(core, slot);
                    return;
                }
                // Also while it waits: so the end of a client that waits is known.
                Framing::More if !connection.ended => {
                    self.receive(core, slot);
                    break;
                }
                Framing::Frame(len) if reading => {
                    // Who holds memory goes on whatever the room: its memory comes back.
                    if !connection.frames.holds_memory() && !self.shared.budget.has_room() {
                        self.starve(core, slot);
                        return;
                    }
                    self.handle(core, slot, len);
                }
                Framing::Grow if reading => {
                    if !connection.frames.grow() {
                        self.starve(core, slot);
                        return;
                    }
                    if connection.frames.is_beyond_budget() {
                        connection.beyond_since.get_or_insert(core.now);
                    }
                }
                _ => break,
            }
        }
        self.arm(slot);
    }

    fn receive(&mut self, core: &mut CoreContext<'_>, slot: u32) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        let (buffer, from) = connection.frames.lend();
        connection.receiving = true;
        let token = Token { role: TokenRole::Serve, slot, kind: KIND_RECEIVE };
        let into = ReceiveInto::Buffer { buffer, from };
        core.ring.receive(&connection.socket, into, false, token);
    }

    /// Begins the request at the front of a connection's bytes.
    fn handle(&mut self, core: &mut CoreContext<'_>, slot: u32, len: usize) {
        let generation = self.slots.generation(slot);
        let Some(connection) = self.slots.get_mut(slot) else { return };
        core.counters.requests.add(1);
        connection.request_at = Some(core.now);
        connection.beyond_since = None;
        let environment = self.shared.environment(core, connection.local);
        let handled = requests::handle(connection.frames.frame(len), environment);
        if let Handled::Cold = handled {
            let (frame, charge) = connection.frames.take_frame(len);
            connection.state = State::Cold { _charge: charge };
            connection.known = true;
            core.events.deliver(Event::Request(ColdRequest {
                connection: ConnectionId { core: self.core, slot, generation },
                peer: connection.peer,
                local: connection.local,
                frame,
            }));
            return;
        }
        connection.frames.consume(len);
        match handled {
            Handled::Answer(ready) => self.start_sending(core, slot, ready),
            Handled::Wait(fetch) => self.park(core, slot, *fetch),
            Handled::Close(reason) => {
                self.log_once(slot, &reason);
                self.close(core, slot);
            }
            Handled::Cold => {}
        }
    }

    /// Lets a fetch wait for its partitions.
    fn park(&mut self, core: &mut CoreContext<'_>, slot: u32, mut fetch: PendingFetch) {
        loop {
            let watches = fetch.watches();
            let Some(charge) = self.shared.budget.park(watches.len() * WAIT_BYTES) else {
                core.counters.stalls.add(1);
                let until = fetch.deadline().min(core.now + UNWATCHED_WAIT);
                self.wait(slot, Poll { fetch, chain: Chain::default(), until, _charge: None });
                return;
            };
            let mut chain = Chain::default();
            for watch in watches {
                if let Some(partition) = watch.partition() {
                    partition.wait_on(usize::from(self.core.0));
                }
                self.waiters.add(slot, &mut chain, watch);
            }
            // What was published between the look and the wait woke nobody.
            if !fetch.changed_since_look() {
                let until = fetch.deadline();
                self.wait(slot, Poll { fetch, chain, until, _charge: Some(charge) });
                return;
            }
            self.waiters.remove(chain);
            let Some(reached) = self.slots.get_mut(slot).map(|connection| connection.local) else {
                return;
            };
            if let Some(ready) = fetch.look(self.shared.environment(core, reached)) {
                self.start_sending(core, slot, ready);
                return;
            }
        }
    }

    fn wait(&mut self, slot: u32, poll: Poll) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        connection.request_at = None;
        connection.state = State::Polling(Box::new(poll));
    }

    /// Answers a parked fetch with what there is.
    fn finish_poll(&mut self, core: &mut CoreContext<'_>, slot: u32) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        let State::Polling(poll) = std::mem::replace(&mut connection.state, State::Reading) else {
            return;
        };
        let reached = connection.local;
        let Poll { mut fetch, chain, .. } = *poll;
        self.waiters.remove(chain);
        let ready = fetch.answer(self.shared.environment(core, reached));
        self.start_sending(core, slot, ready);
    }

    fn start_sending(&mut self, core: &mut CoreContext<'_>, slot: u32, ready: FetchReady) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        let mut charge = self.shared.budget.charge();
        charge.grow_beyond(ready.encoded_bytes);
        let is_slice = |part: &&SendPart| matches!(part, SendPart::Records(_));
        charge.pin(ready.parts.iter().filter(is_slice).count());
        connection.state = State::Sending(Outgoing::new(ready.parts, charge), core.now);
        self.send_piece(core, slot);
    }

    /// Sends the next piece of an answer, or ends it.
    fn send_piece(&mut self, core: &mut CoreContext<'_>, slot: u32) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        let State::Sending(outgoing, since) = &mut connection.state else { return };
        if let Some(piece) = outgoing.next_piece() {
            *since = core.now;
            connection.sending = true;
            let token = Token { role: TokenRole::Serve, slot, kind: KIND_SEND };
            core.ring.send(&connection.socket, piece, token);
            self.arm(slot);
            return;
        }
        core.counters.answers.add(1);
        core.counters.answer_bytes.add(outgoing.total_bytes);
        if let Some(since) = connection.request_at.take() {
            core.counters.serve.record(core.now.saturating_duration_since(since));
        }
        connection.state = State::Reading;
        if self.stopping_since.is_some() {
            self.close(core, slot);
        } else {
            self.advance(core, slot);
        }
    }

    /// A connection's timer came up.
    fn due(&mut self, core: &mut CoreContext<'_>, slot: u32) {
        let patience = self.shared.patience();
        let Some(connection) = self.slots.get_mut(slot) else { return };
        connection.armed = None;
        if connection.deadline(patience).is_none_or(|at| at > core.now) {
            self.arm(slot);
            return;
        }
        match &connection.state {
            State::Polling(_) => self.finish_poll(core, slot),
            State::Sending(..) => {
                let peer = connection.peer;
                tracing::info!(%peer, "consumer closed: it does not take its answer");
                self.close(core, slot);
            }
            _ => self.close(core, slot),
        }
    }

    fn arm(&mut self, slot: u32) {
        let patience = self.shared.patience();
        let Some(connection) = self.slots.get_mut(slot) else { return };
        if let Some(deadline) = connection.deadline(patience) {
            self.timers.arm(slot, &mut connection.armed, deadline);
        }
    }

    fn starve(&mut self, core: &mut CoreContext<'_>, slot: u32) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        core.counters.stalls.add(1);
        connection.state = State::Starved;
        self.starved.push_back(slot);
        self.starved_retry_at.get_or_insert(core.now + STARVED_RETRY);
    }

    fn feed_starved(&mut self, core: &mut CoreContext<'_>) {
        self.starved_retry_at = None;
        for slot in std::mem::take(&mut self.starved) {
            let Some(connection) = self.slots.get_mut(slot) else { continue };
            if matches!(connection.state, State::Starved) {
                connection.active_at = core.now;
                connection.state = State::Reading;
                self.advance(core, slot);
            }
        }
    }

    fn log_once(&mut self, slot: u32, reason: &CloseReason) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        if self.logged.len() >= LOGGED_MAX {
            self.logged.clear();
        }
        if self.logged.insert(format!("{} {reason}", connection.peer.ip())) {
            tracing::info!(peer = %connection.peer, "consumer closed: {reason}");
        }
    }

    /// Ends a connection; its slot is free once its operations came back.
    fn close(&mut self, core: &mut CoreContext<'_>, slot: u32) {
        let generation = self.slots.generation(slot);
        let Some(connection) = self.slots.get_mut(slot) else { return };
        let before = std::mem::replace(&mut connection.state, State::Closing);
        match before {
            State::Closing => return,
            State::Polling(poll) => self.waiters.remove(poll.chain),
            _ => {}
        }
        self.timers.disarm(slot, &mut connection.armed);
        // Ends what is in flight; fails only when the client has ended it before.
        let _ = SockRef::from(&*connection.socket.0).shutdown(Shutdown::Both);
        core.counters.connections_closed.add(1);
        self.shared.connections.fetch_sub(1, Ordering::AcqRel);
        if connection.known {
            let id = ConnectionId { core: self.core, slot, generation };
            core.events.deliver(Event::ConnectionClosed(id));
        }
        self.release(slot);
    }

    fn release(&mut self, slot: u32) {
        if self.slots.get_mut(slot).is_some_and(|connection| connection.is_quiet()) {
            self.slots.remove(slot);
        }
    }
}
