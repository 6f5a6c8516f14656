//! Operations in flight and the memory they own.
//!
//! A slot is boxed and stays at its address while its operation is in flight, because the kernel
//! holds pointers into it. A key names slot and generation: a completion or a cancellation that comes
//! after the slot was used again does not match and is dropped.

use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::{opcode, squeue, types};

use super::types::{Completion, Outcome, ReceiveInto, SendPart, Socket, Token};
use super::waker::Waker;

/// Pieces handed to the kernel in one send; the rest follows in further calls. Far below IOV_MAX
/// (1024), because a slot keeps room for them: 1 KiB for each connection that ever sent.
pub(super) const PIECES_MAX: usize = 64;

/// Bytes asked for in one receive: the length field has 32 bits and the result 31.
const RECEIVE_BYTES_MAX: usize = 1 << 30;

/// An operation's parameters, progress and memory.
pub(super) enum Operation {
    Accept {
        listener: Socket,
        token: Token,
    },
    Receive {
        socket: Socket,
        into: ReceiveInto,
        fill: bool,
        received: usize,
        token: Token,
    },
    Send {
        socket: Socket,
        parts: Vec<SendPart>,
        /// First part with bytes to send, and how many of its bytes are sent.
        part: usize,
        part_sent: usize,
        sent: usize,
        token: Token,
    },
    Wake {
        waker: Waker,
        count: Box<UnsafeCell<u64>>,
    },
}

/// What is to happen to a slot after a completion.
pub(super) enum Next {
    /// The operation ended.
    Finish(Completion),
    /// The operation goes on in the kernel; there is something to tell.
    Tell(Completion),
    /// The operation goes on in the kernel.
    Wait,
    /// The operation needs another submission.
    Resubmit(Option<Completion>),
}

/// One operation and what the kernel points at.
pub(super) struct Slot {
    generation: u32,
    /// Cancellation was asked: a short transfer is not gone on with.
    cancelled: bool,
    operation: Option<Operation>,
    /// The kernel reads it, and writes a receive's flags back.
    message: UnsafeCell<libc::msghdr>,
    pieces: Vec<libc::iovec>,
}

/// All operations of a ring. Their number is bounded by what the drivers admit: a few for each lane
/// and connection.
#[derive(Default)]
pub(super) struct Slab {
    #[expect(clippy::vec_box, reason = "the kernel points into the slots: they must not move")]
    slots: Vec<Box<Slot>>,
    free: Vec<u32>,
}

impl Slab {
    pub(super) fn insert(&mut self, operation: Operation) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Box::new(Slot::vacant()));
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.cancelled = false;
        slot.operation = Some(operation);
        key(index, slot.generation)
    }

    /// The slot of an operation in flight; `None` when the key is from an earlier use of the slot.
    pub(super) fn get(&mut self, key: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key as u32 as usize)?;
        (slot.generation == (key >> 32) as u32 && slot.operation.is_some()).then_some(&mut **slot)
    }

    /// Frees the slot after the final completion; the memory goes to the caller.
    pub(super) fn remove(&mut self, key: u64) -> Option<Operation> {
        let operation = self.get(key)?.operation.take();
        let index = key as u32;
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        operation
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn keys(&self) -> Vec<u64> {
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.operation.is_some())
            .map(|(index, slot)| key(index, slot.generation))
            .collect()
    }
}

fn key(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

impl Slot {
    fn vacant() -> Self {
        Self {
            generation: 0,
            cancelled: false,
            operation: None,
            // SAFETY: msghdr is plain data, for which all zeros says "no address, no pieces".
            message: UnsafeCell::new(unsafe { std::mem::zeroed() }),
            pieces: Vec::new(),
        }
    }

    /// Returns whether cancellation had not been asked before.
    pub(super) fn cancel(&mut self) -> bool {
        !std::mem::replace(&mut self.cancelled, true)
    }

    /// The submission for what is left to do, `None` when nothing is.
    ///
    /// Every pointer in it is into this slot or into memory its operation owns; it is valid until
    /// the operation is removed from the slab, if nobody touches that memory before the completion.
    pub(super) fn entry(&mut self) -> Option<squeue::Entry> {
        let Self { operation, message, pieces, .. } = self;
        match operation.as_mut()? {
            Operation::Accept { listener, .. } => Some(
                opcode::AcceptMulti::new(descriptor(listener)).flags(libc::SOCK_CLOEXEC).build(),
            ),
            Operation::Receive { socket, into, fill, received, .. } => {
                receive_pieces(into, *received, pieces);
                let flags = if *fill { libc::MSG_WAITALL } else { 0 };
                match pieces.as_slice() {
                    [] => None,
                    [piece] => Some(
                        opcode::Recv::new(
                            descriptor(socket),
                            piece.iov_base.cast(),
                            piece.iov_len.min(RECEIVE_BYTES_MAX) as u32,
                        )
                        .flags(flags)
                        .build(),
                    ),
                    _ => Some(
                        opcode::RecvMsg::new(descriptor(socket), describe(message, pieces))
                            .flags(flags as u32)
                            .build(),
                    ),
                }
            }
            Operation::Send { socket, parts, part, part_sent, .. } => {
                send_pieces(&parts[*part..], *part_sent, pieces);
                if pieces.is_empty() {
                    return None;
                }
                let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
                Some(
                    opcode::SendMsg::new(descriptor(socket), describe(message, pieces))
                        .flags(flags as u32)
                        .build(),
                )
            }
            Operation::Wake { waker, count } => {
                Some(opcode::Read::new(types::Fd(waker.raw_fd()), count.get().cast(), 8).build())
            }
        }
    }

    /// Takes a completion of this slot's operation. After `Finish` the caller removes the slot.
    pub(super) fn completed(&mut self, result: i32, more: bool) -> Next {
        let cancelled = self.cancelled;
        let Some(operation) = self.operation.as_mut() else { return Next::Wait };
        let result = to_result(result);
        match operation {
            Operation::Accept { token, .. } => accepted(*token, result, more),
            Operation::Receive { into, fill, received, token, .. } => {
                let goes_on = match result {
                    Ok(count) => {
                        *received += count;
                        *fill && count > 0 && *received < room(into)
                    }
                    Err(ref error) => retriable(error),
                };
                if goes_on && !cancelled {
                    return Next::Resubmit(None);
                }
                let result = match result {
                    // Bytes that were taken from the stream are never lost: the next receive tells
                    // what went wrong.
                    _ if *received > 0 => Ok(*received),
                    Err(_) if goes_on => Err(cancellation()),
                    result => result,
                };
                let into = std::mem::replace(into, nothing());
                Next::Finish(Completion {
                    token: *token,
                    outcome: Outcome::Received { result, into },
                })
            }
            Operation::Send { parts, part, part_sent, sent, token, .. } => {
                let goes_on = match result {
                    Ok(0) => false,
                    Ok(count) => {
                        *sent += count;
                        advance(parts, part, part_sent, count);
                        *part < parts.len()
                    }
                    Err(ref error) => retriable(error),
                };
                if goes_on && !cancelled {
                    return Next::Resubmit(None);
                }
                let result = match result {
                    Ok(_) if *part == parts.len() => Ok(*sent),
                    Ok(_) if cancelled => Err(cancellation()),
                    Ok(_) => Err(std::io::ErrorKind::WriteZero.into()),
                    Err(_) if goes_on => Err(cancellation()),
                    Err(error) => Err(error),
                };
                Next::Finish(Completion { token: *token, outcome: Outcome::Sent { result } })
            }
            Operation::Wake { waker, .. } => {
                // Before the causes are looked at: a wake that comes later is signalled again.
                waker.take();
                let token = Token { role: super::TokenRole::Mailbox, slot: 0, kind: 0 };
                let told = Completion { token, outcome: Outcome::Woken };
                if cancelled { Next::Finish(told) } else { Next::Resubmit(Some(told)) }
            }
        }
    }

    /// The outcome of an operation that has nothing to do.
    pub(super) fn empty_outcome(&mut self) -> Option<Completion> {
        match self.operation.as_mut()? {
            // Zero bytes would read as the end of the stream.
            Operation::Receive { into, token, .. } => Some(Completion {
                token: *token,
                outcome: Outcome::Received {
                    result: Err(std::io::ErrorKind::InvalidInput.into()),
                    into: std::mem::replace(into, nothing()),
                },
            }),
            Operation::Send { token, .. } => {
                Some(Completion { token: *token, outcome: Outcome::Sent { result: Ok(0) } })
            }
            Operation::Accept { .. } | Operation::Wake { .. } => None,
        }
    }
}

fn accepted(token: Token, result: std::io::Result<usize>, more: bool) -> Next {
    let accepted = result.and_then(|number| {
        use std::os::fd::{FromRawFd, OwnedFd};
        // SAFETY: the kernel made this descriptor for this completion; nobody else has its number.
        let connection = unsafe { OwnedFd::from_raw_fd(number as RawFd) };
        let peer = socket2::SockRef::from(&connection).peer_addr()?;
        let peer = peer.as_socket().ok_or(std::io::ErrorKind::Unsupported)?;
        Ok((connection, peer))
    });
    match accepted {
        // The peer left before we looked: nobody to serve, and accepting goes on.
        Err(_) if more => Next::Wait,
        result => {
            let completion = Completion { token, outcome: Outcome::Accepted { result, more } };
            if more { Next::Tell(completion) } else { Next::Finish(completion) }
        }
    }
}

fn descriptor(socket: &Socket) -> types::Fd {
    types::Fd(socket.0.as_raw_fd())
}

/// Points the message at the pieces. Both live in one slot.
fn describe(
    message: &mut UnsafeCell<libc::msghdr>,
    pieces: &mut [libc::iovec],
) -> *mut libc::msghdr {
    let header = message.get_mut();
    header.msg_iov = pieces.as_mut_ptr();
    header.msg_iovlen = pieces.len();
    header.msg_flags = 0;
    message.get()
}

/// Memory not yet filled.
fn receive_pieces(into: &mut ReceiveInto, received: usize, pieces: &mut Vec<libc::iovec>) {
    pieces.clear();
    let mut push = |start: *mut u8, len: usize, skip: usize| {
        if skip < len {
            // SAFETY: start..start+len is one allocation or mapping, and skip is within it.
            let start = unsafe { start.add(skip) };
            pieces.push(libc::iovec { iov_base: start.cast(), iov_len: len - skip });
        }
    };
    match into {
        ReceiveInto::Buffer { buffer, from } => {
            let skip = from.saturating_add(received);
            push(buffer.as_mut_ptr(), buffer.len(), skip);
        }
        ReceiveInto::Tail { tail, tail_bytes, buffer } => {
            // The length of the mapping bounds what the kernel may write, whatever was asked.
            let tail_bytes = (*tail_bytes).min(tail.len_bytes());
            push(tail.as_mut_ptr(), tail_bytes, received);
            push(buffer.as_mut_ptr(), buffer.len(), received.saturating_sub(tail_bytes));
        }
    }
}

/// Bytes a receive can take in all.
fn room(into: &ReceiveInto) -> usize {
    match into {
        ReceiveInto::Buffer { buffer, from } => buffer.len().saturating_sub(*from),
        ReceiveInto::Tail { tail, tail_bytes, buffer } => {
            (*tail_bytes).min(tail.len_bytes()) + buffer.len()
        }
    }
}

fn send_pieces(parts: &[SendPart], first_sent: usize, pieces: &mut Vec<libc::iovec>) {
    pieces.clear();
    let mut skip = first_sent;
    for part in parts {
        let start = match part {
            SendPart::Bytes(bytes) => bytes.as_ptr(),
            SendPart::Records(records) => records.as_ptr(),
        };
        let len = part.len_bytes();
        if skip < len {
            // SAFETY: start..start+len is one allocation or mapping, and skip is within it. The
            // kernel only reads there.
            let start = unsafe { start.add(skip) };
            pieces.push(libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len - skip });
        }
        skip = 0;
        if pieces.len() == PIECES_MAX {
            break;
        }
    }
}

/// Moves past `count` sent bytes, and past empty parts behind them.
fn advance(parts: &[SendPart], part: &mut usize, part_sent: &mut usize, count: usize) {
    let mut left = count;
    while let Some(current) = parts.get(*part) {
        let unsent = current.len_bytes() - *part_sent;
        if left < unsent {
            *part_sent += left;
            return;
        }
        left -= unsent;
        *part += 1;
        *part_sent = 0;
    }
}

fn to_result(result: i32) -> std::io::Result<usize> {
    usize::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result))
}

/// Interrupted, or the kernel could not wait for the socket: the same call again is right.
fn retriable(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

fn cancellation() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::ECANCELED)
}

/// Left in an operation whose memory was handed back.
fn nothing() -> ReceiveInto {
    ReceiveInto::Buffer { buffer: Box::default(), from: 0 }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn token() -> Token {
        Token { role: super::super::TokenRole::Serve, slot: 1, kind: 2 }
    }

    fn socket() -> Socket {
        Socket::from(OwnedFd::from(UnixStream::pair().unwrap().0))
    }

    fn piece_bytes(slot: &Slot) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in &slot.pieces {
            // SAFETY: the pieces point into memory that the slot's operation owns, and no kernel
            // knows of them.
            let bytes = unsafe {
                std::slice::from_raw_parts(piece.iov_base.cast::<u8>().cast_const(), piece.iov_len)
            };
            all.extend_from_slice(bytes);
        }
        all
    }

    fn fill_pieces(slot: &Slot, bytes: &[u8]) {
        let mut rest = bytes;
        for piece in &slot.pieces {
            let (front, behind) = rest.split_at(piece.iov_len.min(rest.len()));
            // SAFETY: as in `piece_bytes`; the memory is a buffer that nobody reads meanwhile.
            unsafe {
                piece.iov_base.cast::<u8>().copy_from_nonoverlapping(front.as_ptr(), front.len());
            }
            rest = behind;
        }
        assert!(rest.is_empty());
    }

    proptest! {
        /// The kernel may take any number of bytes at a time.
        #[test]
        fn short_sends_go_on_at_the_next_byte(
            lengths in prop::collection::vec(0usize..50, 0..200),
            takes in prop::collection::vec(1usize..300, 1..50),
        ) {
            let whole = Bytes::from_iter((0..lengths.iter().sum()).map(|at| (at % 251) as u8));
            let mut rest = whole.clone();
            let parts: Vec<_> =
                lengths.iter().map(|len| SendPart::Bytes(rest.split_to(*len))).collect();
            let mut slab = Slab::default();
            let key = slab.insert(Operation::Send {
                socket: socket(), parts, part: 0, part_sent: 0, sent: 0, token: token(),
            });
            let mut arrived = Vec::new();
            let mut takes = takes.iter().cycle();
            let slot = slab.get(key).unwrap();
            while slot.entry().is_some() {
                prop_assert!(slot.pieces.len() <= PIECES_MAX);
                let offered = piece_bytes(slot);
                let taken = offered.len().min(*takes.next().unwrap());
                arrived.extend_from_slice(&offered[..taken]);
                match slot.completed(taken as i32, false) {
                    Next::Resubmit(None) => {}
                    Next::Finish(Completion { outcome: Outcome::Sent { result }, .. }) => {
                        prop_assert_eq!(result.unwrap(), whole.len());
                        break;
                    }
                    _ => prop_assert!(false, "neither goes on nor ends"),
                }
            }
            prop_assert_eq!(&arrived, &whole);
        }

        #[test]
        fn short_receives_go_on_at_the_next_byte(
            len in 1usize..500,
            from in 0usize..20,
            gives in prop::collection::vec(1usize..100, 1..20),
        ) {
            let mut slab = Slab::default();
            let buffer = vec![0; from + len].into_boxed_slice();
            let key = slab.insert(Operation::Receive {
                socket: socket(),
                into: ReceiveInto::Buffer { buffer, from },
                fill: true,
                received: 0,
                token: token(),
            });
            let stream: Vec<u8> = (0..len).map(|at| (at % 251) as u8 + 1).collect();
            let mut given = 0;
            let mut gives = gives.iter().cycle();
            loop {
                let slot = slab.get(key).unwrap();
                prop_assert!(slot.entry().is_some());
                let count = (len - given).min(*gives.next().unwrap());
                fill_pieces(slot, &stream[given..given + count]);
                given += count;
                match slot.completed(count as i32, false) {
                    Next::Resubmit(None) => prop_assert!(given < len),
                    Next::Finish(Completion { outcome: Outcome::Received { result, into }, .. }) => {
                        prop_assert_eq!(result.unwrap(), len);
                        let ReceiveInto::Buffer { buffer, .. } = into else { panic!() };
                        prop_assert!(buffer[..from].iter().all(|byte| *byte == 0));
                        prop_assert_eq!(&buffer[from..], &stream[..]);
                        break;
                    }
                    _ => prop_assert!(false, "neither goes on nor ends"),
                }
            }
        }
    }

    #[test]
    fn short_receives_go_on_across_the_end_of_the_tail() {
        let stream: Vec<u8> = (1..=40).collect();
        for give in [1, 3, 7, 24, 25, 39, 40] {
            let mut mapped = super::super::tests::MappedLog::new();
            let mut slab = Slab::default();
            let key = slab.insert(Operation::Receive {
                socket: socket(),
                into: mapped.tail(25, 15),
                fill: true,
                received: 0,
                token: token(),
            });
            let mut given = 0;
            let into = loop {
                let slot = slab.get(key).unwrap();
                assert!(slot.entry().is_some());
                let count = (stream.len() - given).min(give);
                fill_pieces(slot, &stream[given..given + count]);
                given += count;
                match slot.completed(count as i32, false) {
                    Next::Resubmit(None) => assert!(given < stream.len()),
                    Next::Finish(Completion {
                        outcome: Outcome::Received { result, into },
                        ..
                    }) => {
                        assert_eq!(result.unwrap(), stream.len());
                        break into;
                    }
                    _ => panic!("neither goes on nor ends"),
                }
            };
            let ReceiveInto::Tail { buffer, .. } = into else { panic!("other memory") };
            assert_eq!(mapped.stored(26), [&stream[..25], &[0]].concat(), "{give} at a time");
            assert_eq!(&*buffer, &stream[25..]);
        }
    }

    #[test]
    fn a_cancelled_transfer_is_not_gone_on_with() {
        let mut slab = Slab::default();
        let parts = vec![SendPart::Bytes(Bytes::from_static(b"abcdef"))];
        let key = slab.insert(Operation::Send {
            socket: socket(),
            parts,
            part: 0,
            part_sent: 0,
            sent: 0,
            token: token(),
        });
        let slot = slab.get(key).unwrap();
        assert!(slot.cancel());
        assert!(!slot.cancel(), "one cancellation is enough");
        let Next::Finish(Completion { outcome: Outcome::Sent { result }, .. }) =
            slot.completed(3, false)
        else {
            panic!("went on")
        };
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    }

    #[test]
    fn interrupted_operations_are_submitted_again() {
        let mut slab = Slab::default();
        let buffer = vec![0; 4].into_boxed_slice();
        let key = slab.insert(Operation::Receive {
            socket: socket(),
            into: ReceiveInto::Buffer { buffer, from: 0 },
            fill: false,
            received: 0,
            token: token(),
        });
        let slot = slab.get(key).unwrap();
        assert!(matches!(slot.completed(-libc::EINTR, false), Next::Resubmit(None)));
        assert!(matches!(slot.completed(-libc::EBADF, false), Next::Finish(_)));
    }

    #[test]
    fn a_slot_used_again_has_another_key() {
        let mut slab = Slab::default();
        let operation = || Operation::Accept { listener: socket(), token: token() };
        let first = slab.insert(operation());
        assert!(slab.remove(first).is_some());
        assert!(slab.remove(first).is_none());
        let second = slab.insert(operation());
        assert_ne!(first, second);
        assert!(slab.get(first).is_none());
        assert!(slab.get(second).is_some());
        assert_eq!(slab.keys(), [second]);
    }
}
