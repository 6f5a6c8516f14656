//! One consumer's connection: what it is doing, and until when. The driver moves the bytes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::budget::Charge;
use super::fetch::PendingFetch;
use super::frames::FrameBuffer;
use super::outgoing::Outgoing;
use super::waiters::Chain;
use crate::ring::Socket;

/// What a connection is doing. A request is answered before the next is looked at, so answers
/// leave in the order of their requests.
#[derive(Debug)]
pub(super) enum State {
    /// Waiting for a request, or for the rest of one.
    Reading,
    /// Waiting for memory, to begin a request or to receive more of it.
    Starved,
    /// Waiting for the control plane's answer.
    Cold { _charge: Charge },
    /// Waiting for records.
    Polling(Box<Poll>),
    /// Sending an answer; this piece of it since then.
    Sending(Outgoing, Instant),
    /// Over; waiting for its operations to come back.
    Closing,
}

/// A parked fetch.
#[derive(Debug)]
pub(super) struct Poll {
    pub(super) fetch: PendingFetch,
    pub(super) chain: Chain,
    /// When it is answered with what there is.
    pub(super) until: Instant,
    pub(super) _charge: Option<Charge>,
}

/// A consumer's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) frames: FrameBuffer,
    pub(super) state: State,
    /// Whether a receive is in flight: the frame buffer is lent to it.
    pub(super) receiving: bool,
    /// Whether a send is in flight.
    pub(super) sending: bool,
    /// Whether the client has closed its side.
    pub(super) ended: bool,
    /// Whether the control plane has heard of it.
    pub(super) known: bool,
    /// Its entry among the timers.
    pub(super) armed: Option<Instant>,
    /// When bytes last came or an answer last left.
    pub(super) active_at: Instant,
    /// When it went beyond the budget.
    pub(super) beyond_since: Option<Instant>,
    /// When the request in progress was read; `None` once it has waited for records.
    pub(super) request_at: Option<Instant>,
}

/// The times a client is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Between requests.
    pub(super) idle: Duration,
    /// For a piece of an answer to be taken, and between the bytes of a request.
    pub(super) stalled: Duration,
}

impl Connection {
    /// A connection that was just accepted.
    pub(super) fn new(
        socket: Socket,
        peer: SocketAddr,
        local: SocketAddr,
        frames: FrameBuffer,
        now: Instant,
    ) -> Self {
        Self {
            socket,
            peer,
            local,
            frames,
            state: State::Reading,
            receiving: false,
            sending: false,
            ended: false,
            known: false,
            armed: None,
            active_at: now,
            beyond_since: None,
            request_at: None,
        }
    }

    /// When it must be looked at again if nothing happens until then.
    ///
    /// Who is beyond the budget keeps others from receiving, and so has one patience for all of its
    /// request. The control plane answers every request, and room comes back when others end, so
    /// nothing is due for those who wait for either.
    pub(super) fn deadline(&self, patience: Patience) -> Option<Instant> {
        match &self.state {
            State::Reading if self.frames.is_mid_frame() => {
                let stalled = self.active_at + patience.stalled;
                let beyond = self.beyond_since.map(|since| since + patience.stalled);
                Some(beyond.map_or(stalled, |beyond| beyond.min(stalled)))
            }
            State::Reading => Some(self.active_at + patience.idle),
            State::Polling(poll) => Some(poll.until),
            State::Sending(_, since) => Some(*since + patience.stalled),
            State::Starved | State::Cold { .. } | State::Closing => None,
        }
    }

    /// Whether no operation is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        !self.receiving && !self.sending
    }
}
