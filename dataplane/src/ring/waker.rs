//! Wakes a ring from another thread, through an eventfd that the ring always reads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

#[derive(Debug)]
struct Shared {
    eventfd: OwnedFd,
    /// Set from a wake until the ring took note of it: wakes in between cost no system call.
    pending: AtomicBool,
}

/// Wakes a ring from another thread.
#[derive(Debug, Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        // A blocking descriptor: the read in flight is to wait for a wake, not to fail.
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { shared: Arc::new(Shared { eventfd, pending: AtomicBool::new(false) }) })
    }

    /// Makes [`Ring::wait`](super::Ring::wait) return soon. Cheap when it is already awake.
    ///
    /// What the caller wrote before is seen by the ring's thread after it returns from `wait`: either
    /// this call finds no wake pending and causes one, or the pending one is not yet taken note of,
    /// and `Waker::take` comes after.
    pub fn wake(&self) {
        if self.shared.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        // The counter cannot overflow: one write at most per read. Nothing else can fail on an
        // eventfd that is open.
        if let Err(error) = rustix::io::write(self.shared.eventfd.as_fd(), &1u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot wake a core");
        }
    }

    /// Takes note of a wake, before its causes are looked at.
    pub(super) fn take(&self) {
        self.shared.pending.swap(false, Ordering::AcqRel);
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.shared.eventfd.as_raw_fd()
    }
}
