//! Accepting consumers on one core's listening socket.

use std::time::{Duration, Instant};

use super::driver::KIND_ACCEPT;
use crate::ring::{OperationId, Ring, Socket, Token, TokenRole};

/// After an error (no descriptors left, as a rule) accepting rests this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket and the accept operation on it.
#[derive(Debug, Default)]
pub(super) struct Listener {
    socket: Option<Socket>,
    accepting: Option<OperationId>,
    resume_at: Option<Instant>,
}

impl Listener {
    /// Starts to accept.
    pub(super) fn listen(&mut self, ring: &mut Ring, socket: Socket) {
        self.socket = Some(socket);
        self.accept(ring);
    }

    /// The accept operation ended.
    pub(super) fn ended(&mut self, now: Instant, failed: bool) {
        self.accepting = None;
        self.resume_at = Some(if failed { now + ACCEPT_PAUSE } else { now });
    }

    /// Accepts again when it is time. Returns when that is.
    pub(super) fn turn(&mut self, ring: &mut Ring, now: Instant) -> Option<Instant> {
        if self.resume_at.is_some_and(|at| at <= now) {
            self.resume_at = None;
            self.accept(ring);
        }
        self.resume_at
    }

    /// Stops accepting; may be called again.
    pub(super) fn stop(&mut self, ring: &mut Ring) {
        self.resume_at = None;
        if self.socket.take().is_some()
            && let Some(operation) = self.accepting
        {
            ring.cancel(operation);
        }
    }

    /// Whether no accept operation is in flight.
    pub(super) fn is_stopped(&self) -> bool {
        self.accepting.is_none()
    }

    fn accept(&mut self, ring: &mut Ring) {
        if let Some(socket) = &self.socket {
            let token = Token { role: TokenRole::Serve, slot: 0, kind: KIND_ACCEPT };
            self.accepting = Some(ring.accept(socket, token));
        }
    }
}
