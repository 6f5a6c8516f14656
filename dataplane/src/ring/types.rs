//! What goes into a ring and what comes out: no kernel types here.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use storage::{MappedTail, ReadSlice};

/// Size of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    /// Submission entries; completions get twice as many. More operations than this may be in
    /// flight: the number bounds what is handed to the kernel in one call.
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

impl From<OwnedFd> for Socket {
    fn from(descriptor: OwnedFd) -> Self {
        Self(Arc::new(descriptor))
    }
}

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

impl SendPart {
    /// Bytes of the piece.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Records(records) => records.len_bytes(),
        }
    }
}

/// Names an operation in flight, for [`Ring::cancel`](super::Ring::cancel).
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
///
/// A cancelled operation ends with `ECANCELED`, unless it had ended by itself before. A receive that
/// failed or was cancelled took nothing from the stream: if it had taken something, it ends with
/// that, and the next receive tells what went wrong. A send may have sent a part.
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
        /// Count over all pieces of memory, in their order. With `fill`, less than all of it means
        /// that the stream ended there, or that the receive failed or was cancelled after so much.
        result: std::io::Result<usize>,
        /// The memory.
        into: ReceiveInto,
    },
    /// All parts were sent, or the connection failed.
    Sent {
        /// Bytes sent. `EFAULT` is a disk that failed under a segment's pages.
        result: std::io::Result<usize>,
    },
    /// Another thread called [`Waker::wake`](super::Waker::wake).
    Woken,
}
