//! The fetch driver of one core: the [engine](super::engine) on the core's ring.
//!
//! Runs on the core's thread. Keeps one receive in flight on every lane, so that a lost connection is
//! noticed whatever else happens, and one send at most. Must never free a lane's slot while one of
//! its operations is in flight.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use storage::Log;

use super::desk::Moment;
use super::engine::Engine;
use super::lane::{LaneFault, LaneParts};
use crate::core_loop::CoreContext;
use crate::handle::{Assignment, CoreId, LaneSpec, LinkId, LinkSettings, Resume};
use crate::partition::Partition;
use crate::ring::{OperationId, Outcome, Ring, SendPart, Socket, Token, TokenRole};

/// Takes a log that leaves its core.
pub(crate) type Taken = Box<dyn FnOnce(Option<Log>) + Send>;

const RECEIVE: u8 = 0;
const SEND: u8 = 1;

/// A lane's socket and what is in flight on it.
struct LaneIo {
    socket: Socket,
    receiving: Option<OperationId>,
    sending: Option<OperationId>,
    cancelled: bool,
}

/// All links, lanes and cursors of one core.
pub(crate) struct FetchDriver {
    engine: Engine,
    ios: Vec<Option<LaneIo>>,
    frames: BytesMut,
    stopping: bool,
}

impl FetchDriver {
    /// A driver without links.
    pub(crate) fn new(core: CoreId) -> Self {
        Self {
            engine: Engine::new(core),
            ios: Vec::new(),
            frames: BytesMut::new(),
            stopping: false,
        }
    }

    /// Takes a finished operation of token role `Fetch`.
    pub(crate) fn completed(
        &mut self,
        core: &mut CoreContext<'_>,
        slot: u32,
        kind: u8,
        outcome: Outcome,
    ) {
        let Some(io) = self.ios.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        match outcome {
            Outcome::Received { result, into } => {
                io.receiving = None;
                self.engine.received(slot, result, into, moment(core.now));
                self.time_landing(core);
            }
            Outcome::Sent { result } => {
                io.sending = None;
                if let Err(error) = result {
                    self.engine.close(slot, &LaneFault::Failed(error));
                }
            }
            other => tracing::error!(kind, ?other, "no such operation on a lane"),
        }
    }

    /// Runs once a turn, after the completions and commands of the turn: sends what is due and
    /// checks deadlines. Returns when it wants to run again at the latest.
    pub(crate) fn turn(&mut self, core: &mut CoreContext<'_>) -> Option<Instant> {
        let moment = moment(core.now);
        self.engine.tick(moment);
        for slot in std::mem::take(&mut self.engine.cancels) {
            if let Some(Some(io)) = self.ios.get(slot as usize)
                && let Some(operation) = io.receiving
            {
                core.ring.cancel(operation);
            }
        }
        for slot in 0..self.ios.len() {
            self.pump(slot, core.ring, moment);
        }
        self.tell(core);
        self.engine.deadline()
    }

    /// Stops: cancels, closes sockets and logs. Called every turn until it returns true, which says
    /// that nothing is in flight and every log is closed.
    pub(crate) fn shutdown(&mut self, core: &mut CoreContext<'_>) -> bool {
        self.stopping = true;
        let moment = moment(core.now);
        for slot in 0..self.ios.len() {
            self.pump(slot, core.ring, moment);
        }
        self.tell(core);
        if self.ios.iter().any(Option::is_some) {
            return false;
        }
        self.engine.close_logs();
        true
    }

    /// Makes a link known or changes its settings.
    pub(crate) fn set_link(
        &mut self,
        _core: &mut CoreContext<'_>,
        link: LinkId,
        settings: LinkSettings,
    ) {
        self.engine.set_link(link, settings);
    }

    /// Takes over a connected lane.
    pub(crate) fn add_lane(&mut self, core: &mut CoreContext<'_>, lane: LaneSpec) {
        let parts = LaneParts {
            id: lane.lane,
            link: lane.link,
            broker: lane.broker,
            kind: lane.kind,
            version: lane.fetch_version,
        };
        let slot = self.engine.add_lane(parts, moment(core.now)) as usize;
        if self.ios.len() <= slot {
            self.ios.resize_with(slot + 1, || None);
        }
        self.ios[slot] = Some(LaneIo {
            socket: Socket(Arc::new(lane.socket)),
            receiving: None,
            sending: None,
            cancelled: false,
        });
    }

    /// Takes over a partition and its log.
    pub(crate) fn assign(&mut self, _core: &mut CoreContext<'_>, assignment: Assignment) {
        self.engine.assign(assignment);
    }

    /// Sends a parked cursor on.
    pub(crate) fn resume(
        &mut self,
        _core: &mut CoreContext<'_>,
        partition: &Arc<Partition>,
        resume: Resume,
    ) {
        self.engine.resume(partition, resume);
    }

    /// Parks a cursor: no new request, and none of a late answer is stored.
    pub(crate) fn park(&mut self, _core: &mut CoreContext<'_>, partition: &Arc<Partition>) {
        self.engine.park(partition);
    }

    /// Gives a partition's log back once no operation writes into it; `None` when it is not here.
    pub(crate) fn take(
        &mut self,
        _core: &mut CoreContext<'_>,
        partition: &Arc<Partition>,
        taken: Taken,
    ) {
        self.engine.take(partition, taken);
    }

    /// Starts what a lane wants, or ends its operations and then the lane.
    fn pump(&mut self, slot: usize, ring: &mut Ring, moment: Moment) {
        let Some(Some(io)) = self.ios.get_mut(slot) else { return };
        let number = u32::try_from(slot).unwrap_or(u32::MAX);
        if self.stopping || self.engine.is_closed(number) {
            if !std::mem::replace(&mut io.cancelled, true) {
                for operation in io.receiving.iter().chain(&io.sending) {
                    ring.cancel(*operation);
                }
            }
            if io.receiving.is_none() && io.sending.is_none() {
                self.ios[slot] = None;
                self.engine.release(number);
            }
            return;
        }
        let token = |kind| Token { role: TokenRole::Fetch, slot: number, kind };
        if io.sending.is_none() {
            self.engine.requests(number, moment, &mut self.frames);
            if !self.frames.is_empty() {
                let frames = self.frames.split().freeze();
                let parts = vec![SendPart::Bytes(frames)];
                io.sending = Some(ring.send(&io.socket, parts, token(SEND)));
            }
        }
        if let Some(into) = self.engine.receive(number) {
            io.receiving = Some(ring.receive(&io.socket, into, false, token(RECEIVE)));
        }
    }

    /// Times what the receive that was just taken made visible to readers, and the answer it may have
    /// ended. Two looks at the clocks for each receive, whatever came with it: by the turn's own time,
    /// an answer that came in one piece would have taken none.
    fn time_landing(&mut self, core: &CoreContext<'_>) {
        let tally = &mut self.engine.desk.tally;
        let (published, landed_since) = (&mut tally.published_times, &mut tally.landed_since);
        if published.is_empty() && landed_since.is_empty() {
            return;
        }
        let (now, unix) = (Instant::now(), unix_time());
        for since in landed_since.drain(..) {
            core.counters.landing.record(now.saturating_duration_since(since));
        }
        let since_received = now.saturating_duration_since(core.now);
        core.counters.publish.record_many(since_received, published.len() as u64);
        for oldest_ms in published.drain(..) {
            core.counters.record_lag(oldest_ms, unix);
        }
    }

    /// Hands out what gathered on the desk.
    fn tell(&mut self, core: &mut CoreContext<'_>) {
        let desk = &mut self.engine.desk;
        for event in desk.events.drain(..) {
            core.events.deliver(event);
        }
        core.published.append(&mut desk.published);
        let tally = &mut desk.tally;
        let counters = core.counters;
        counters.fetch_requests.add(std::mem::take(&mut tally.requests));
        counters.landed_batches.add(std::mem::take(&mut tally.batches));
        counters.landed_bytes.add(std::mem::take(&mut tally.bytes));
        counters.landed_in_place_bytes.add(std::mem::take(&mut tally.bytes_direct));
        counters.skipped_bytes.add(std::mem::take(&mut tally.bytes_skipped));
        counters.fetch_answers.add(tally.round_trips.len() as u64);
        for elapsed in tally.round_trips.drain(..) {
            counters.fetch_round_trip.record(elapsed);
        }
    }
}

fn moment(now: Instant) -> Moment {
    Moment { now, unix_ms: i64::try_from(unix_time().as_millis()).unwrap_or(i64::MAX) }
}

/// Since 1970.
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
