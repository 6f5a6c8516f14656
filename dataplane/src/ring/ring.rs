//! One io_uring and the operations in flight on it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use storage::{MappedTail, ReadSlice};

/// Size of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    /// Submission entries; completions get twice as many.
    pub entries: u32,
}

/// Why a ring cannot be made or entered, as a sentence that says what to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RingError(pub String);

/// Which driver of a core an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRole {
    /// The core's mailbox.
    Mailbox,
    /// The fetch driver.
    Fetch,
    /// The serve driver.
    Serve,
}

/// What a completion comes back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Whose operation.
    pub role: TokenRole,
    /// The driver's slot (a lane, a connection).
    pub slot: u32,
    /// The driver's own distinction (receive, send, accept).
    pub kind: u8,
}

/// A socket shared by operations in flight; closed when the last of them is done.
#[derive(Debug, Clone)]
pub struct Socket(pub Arc<OwnedFd>);

/// Memory to receive into; handed to the ring and back.
#[derive(Debug)]
pub enum ReceiveInto {
    /// `buffer[from..]`, up to its length.
    Buffer {
        /// The memory.
        buffer: Box<[u8]>,
        /// First byte to fill.
        from: usize,
    },
    /// The tail of a segment first, then `buffer[0..]`, in one system call.
    Tail {
        /// Segment memory.
        tail: MappedTail,
        /// Bytes of it to fill (at most its length).
        tail_bytes: usize,
        /// What follows the records in the stream.
        buffer: Box<[u8]>,
    },
}

/// One piece of an answer.
#[derive(Debug, Clone)]
pub enum SendPart {
    /// Encoded fields.
    Bytes(Bytes),
    /// Records, from a segment.
    Records(ReadSlice),
}

/// Names an operation in flight, for [`Ring::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationId(pub u64);

/// A finished operation.
#[derive(Debug)]
pub struct Completion {
    /// The token it was submitted with.
    pub token: Token,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an operation ended. Memory comes back whatever happened.
#[derive(Debug)]
pub enum Outcome {
    /// A connection was accepted; more follow from the same operation while `more` is set.
    Accepted {
        /// The connection and its peer, or why accepting ended.
        result: std::io::Result<(OwnedFd, SocketAddr)>,
        /// Whether the operation goes on.
        more: bool,
    },
    /// Bytes arrived; 0 is the end of the stream.
    Received {
        /// Count over all pieces of memory, in their order.
        result: std::io::Result<usize>,
        /// The memory.
        into: ReceiveInto,
    },
    /// All parts were sent, or the connection failed.
    Sent {
        /// Bytes sent.
        result: std::io::Result<usize>,
    },
    /// Another thread called [`Waker::wake`].
    Woken,
}

/// Wakes a ring from another thread.
#[derive(Debug, Clone)]
pub struct Waker {}

impl Waker {
    /// Makes [`Ring::wait`] return soon. Cheap when it is already awake.
    pub fn wake(&self) {
        todo!()
    }
}

/// One ring, used by the thread that made it.
#[derive(Debug)]
pub struct Ring {}

impl Ring {
    /// Probes and sets up.
    pub fn new(_config: RingConfig) -> Result<Self, RingError> {
        todo!()
    }

    /// For other threads.
    #[must_use]
    pub fn waker(&self) -> Waker {
        todo!()
    }

    /// Accepts connections until cancelled.
    pub fn accept(&mut self, _listener: &Socket, _token: Token) -> OperationId {
        todo!()
    }

    /// Receives once. With `fill` set, completes only when everything is filled (or on end or error).
    pub fn receive(
        &mut self,
        _socket: &Socket,
        _into: ReceiveInto,
        _fill: bool,
        _token: Token,
    ) -> OperationId {
        todo!()
    }

    /// Sends all parts in order; completes once, when the last byte was taken or on error.
    pub fn send(&mut self, _socket: &Socket, _parts: Vec<SendPart>, _token: Token) -> OperationId {
        todo!()
    }

    /// Asks for an operation to end; its completion still comes.
    pub fn cancel(&mut self, _operation: OperationId) {
        todo!()
    }

    /// Submits what is queued and waits for completions until `deadline`; `None` waits for any.
    pub fn wait(
        &mut self,
        _deadline: Option<Instant>,
        _completions: &mut Vec<Completion>,
    ) -> Result<(), RingError> {
        todo!()
    }

    /// Operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        todo!()
    }
}
