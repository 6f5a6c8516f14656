//! One io_uring and the operations in flight on it.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::operation::{Next, Operation, Slab};
use super::probe;
use super::types::{
    Completion, OperationId, ReceiveInto, RingConfig, RingError, SendPart, Socket, Token,
};
use super::waker::Waker;

/// User data of cancellations, whose own completions say nothing. No key equals it: a slab of 2^32
/// slots does not fit in memory.
const CANCELLATION: u64 = u64::MAX;

/// How long a ring that is dropped waits for its cancelled operations. Socket operations end at
/// once; beyond this the kernel is stuck, and their memory is given up instead of freed.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// One ring, used by the thread that made it.
///
/// Dropping it cancels what is in flight and waits for the kernel to let go of the memory.
pub struct Ring {
    uring: IoUring,
    slab: Slab,
    waker: Waker,
    wake: OperationId,
    /// Entries that did not fit into the submission queue, in order.
    backlog: VecDeque<squeue::Entry>,
    /// Outcomes that needed no kernel.
    ready: VecDeque<Completion>,
    /// Scratch for completions taken from the queue.
    reaped: Vec<cqueue::Entry>,
    /// SINGLE_ISSUER: the kernel accepts submissions from the making thread only, so a ring must
    /// not move to another.
    _not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ring").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl Ring {
    /// Probes and sets up.
    pub fn new(config: RingConfig) -> Result<Self, RingError> {
        let uring = probe::set_up(config.entries)?;
        let waker = Waker::new()
            .map_err(|error| RingError(format!("cannot make an eventfd for wake-ups: {error}")))?;
        let mut ring = Self {
            uring,
            slab: Slab::default(),
            waker: waker.clone(),
            wake: OperationId(0),
            backlog: VecDeque::new(),
            ready: VecDeque::new(),
            reaped: Vec::new(),
            _not_send: PhantomData,
        };
        let count = Box::new(UnsafeCell::new(0));
        ring.wake = ring.start(Operation::Wake { waker, count });
        Ok(ring)
    }

    /// Accepts connections until cancelled.
    pub fn accept(&mut self, listener: &Socket, token: Token) -> OperationId {
        self.start(Operation::Accept { listener: listener.clone(), token })
    }

    /// Receives once. With `fill` set, completes only when everything is filled, or when the stream
    /// ends, fails or the receive is cancelled.
    ///
    /// There must be room for at least one byte: zero bytes would read as the end of the stream, so
    /// a receive without room ends with `InvalidInput`.
    pub fn receive(
        &mut self,
        socket: &Socket,
        into: ReceiveInto,
        fill: bool,
        token: Token,
    ) -> OperationId {
        self.start(Operation::Receive { socket: socket.clone(), into, fill, received: 0, token })
    }

    /// Sends all parts in order; completes once, when the last byte was taken or on error.
    pub fn send(&mut self, socket: &Socket, parts: Vec<SendPart>, token: Token) -> OperationId {
        self.start(Operation::Send {
            socket: socket.clone(),
            parts,
            part: 0,
            part_sent: 0,
            sent: 0,
            token,
        })
    }

    /// Asks for an operation to end; its completion still comes.
    pub fn cancel(&mut self, operation: OperationId) {
        let Some(slot) = self.slab.get(operation.0) else { return };
        if slot.cancel() {
            let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(operation.0)).build();
            self.push(entry.user_data(CANCELLATION));
        }
    }

    /// Submits what is queued and waits for completions until `deadline`; `None` waits for any.
    pub fn wait(
        &mut self,
        deadline: Option<Instant>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), RingError> {
        let before = completions.len();
        loop {
            completions.extend(self.ready.drain(..));
            self.reap(completions);
            self.move_backlog();
            let told = completions.len() > before;
            let unsubmitted = !self.uring.submission().is_empty();
            if told && !unsubmitted {
                return Ok(());
            }
            let now = Instant::now();
            let timeout = match deadline {
                _ if told => Some(Duration::ZERO),
                Some(deadline) => Some(deadline.saturating_duration_since(now)),
                None => None,
            };
            self.enter(timeout)?;
            self.reap(completions);
            let expired = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if (completions.len() > before || expired) && self.ready.is_empty() {
                return Ok(());
            }
        }
    }

    /// For other threads.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slab.len().saturating_sub(1)
    }

    fn start(&mut self, operation: Operation) -> OperationId {
        let key = self.slab.insert(operation);
        self.submit(key);
        OperationId(key)
    }

    /// Queues the next submission of an operation, or ends it if nothing is left to do.
    fn submit(&mut self, key: u64) {
        let Some(slot) = self.slab.get(key) else { return };
        if let Some(entry) = slot.entry() {
            self.push(entry.user_data(key));
        } else if let Some(completion) = slot.empty_outcome() {
            self.slab.remove(key);
            self.ready.push_back(completion);
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        self.backlog.push_back(entry);
        self.move_backlog();
        // A full queue is emptied by one call, which waits for nothing.
        if !self.backlog.is_empty() && self.uring.submit().is_ok() {
            self.move_backlog();
        }
    }

    /// Moves waiting entries into the submission queue, as far as there is room.
    fn move_backlog(&mut self) {
        let mut queue = self.uring.submission();
        while !queue.is_full() {
            let Some(entry) = self.backlog.pop_front() else { return };
            // SAFETY: an entry points only into its operation's slot and the memory that operation
            // owns (or, a cancellation, nowhere). The slot is boxed, and neither it nor the memory
            // is freed, moved or handed out before `Slab::remove`, which `reap` calls after the
            // final completion only; `drop` waits for all of them. The queue is not full.
            if unsafe { queue.push(&entry) }.is_err() {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// One system call: submits, and waits for at least one completion or the timeout. It asks for
    /// events even when it must not wait, because only that runs the kernel's deferred work.
    fn enter(&mut self, timeout: Option<Duration>) -> Result<(), RingError> {
        let submitter = self.uring.submitter();
        let result = match timeout {
            None => submitter.submit_and_wait(1),
            Some(timeout) => {
                let timespec = Timespec::from(timeout);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
        };
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Timed out; interrupted; completions must be taken first; no memory for requests
                // now. What was not submitted is still queued, and the caller comes again.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(probe::enter_failed(&error)),
            },
        }
    }

    /// Takes what the kernel completed.
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let mut reaped = std::mem::take(&mut self.reaped);
        reaped.extend(self.uring.completion());
        for entry in reaped.drain(..) {
            let key = entry.user_data();
            if key == CANCELLATION {
                continue;
            }
            let Some(slot) = self.slab.get(key) else {
                tracing::error!(key, result = entry.result(), "completion of no operation");
                continue;
            };
            match slot.completed(entry.result(), cqueue::more(entry.flags())) {
                Next::Finish(completion) => {
                    self.slab.remove(key);
                    completions.push(completion);
                }
                Next::Tell(completion) => completions.push(completion),
                Next::Wait => {}
                Next::Resubmit(completion) => {
                    completions.extend(completion);
                    self.submit(key);
                }
            }
        }
        self.reaped = reaped;
    }

    /// Cancels everything and waits until the kernel holds no memory of ours.
    fn drain(&mut self) -> Result<(), RingError> {
        let deadline = Instant::now() + DRAIN_MAX;
        for key in self.slab.keys() {
            self.cancel(OperationId(key));
        }
        let mut completions = Vec::new();
        while self.slab.len() > 0 {
            self.move_backlog();
            self.enter(Some(deadline.saturating_duration_since(Instant::now())))?;
            self.reap(&mut completions);
            completions.clear();
            if Instant::now() >= deadline {
                return Err(RingError(format!(
                    "{} operations did not end when cancelled",
                    self.slab.len()
                )));
            }
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Err(error) = self.drain() {
            // The kernel may still write there: leaking is the only safe end.
            tracing::error!(%error, "the memory of unfinished operations is given up");
            std::mem::forget(std::mem::take(&mut self.slab));
        }
    }
}
