//! The thread of one direction: reads packets from one device, holds them, writes them to the other when they are due.
//!
//! Owns its packets' memory, its link and its histogram; shares with the rest of the program a box for new settings and
//! the numbers of the report. It waits in `ppoll` only, without timer slack. Must never block in a read or a write, and
//! never let a packet out of its memory before the kernel has taken it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::link::{Link, LinkCounts, LinkSettings, Run};
use super::ring::{Memory, Ring, Ticket};
use super::segment::{PACKET_MAX, Shape};
use super::sys;

/// Packets read in a row before the clock decides what is next.
const READS_MAX: usize = 64;
/// Lateness is told apart from a microsecond to this.
const LATENESS_MAX: Duration = Duration::from_secs(60);
const LATENESS_DIGITS: u8 = 2;

/// What the rest of the program sees of a lane.
#[derive(Debug)]
pub(super) struct Shared {
    stop: AtomicBool,
    wake: OwnedFd,
    change: Mutex<Option<Change>>,
    numbers: Mutex<Numbers>,
}

/// New settings, with more memory if they need it.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) link: LinkSettings,
    pub(super) memory: Option<Memory>,
}

/// What a lane has done.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    pub(super) link: LinkCounts,
    /// Packets that there was no memory for.
    pub(super) memory_dropped: u64,
    /// Packets that the other device did not take.
    pub(super) refused: u64,
    /// Pieces of packets that were cut, for a loss or for being late.
    pub(super) cuts: u64,
    /// How much later than due packets were delivered, in nanoseconds.
    pub(super) lateness: Histogram<u64>,
    /// Processor time of the lane's thread since it began, and up to the restart of counting.
    cpu: Duration,
    cpu_before: Duration,
    /// Of the packets' memory.
    pub(super) capacity: u64,
    /// Why the lane has ended, if it has.
    pub(super) failure: Option<String>,
}

/// One direction at work.
pub(super) struct Lane {
    pub(super) input: Arc<File>,
    pub(super) output: Arc<File>,
    link: Link,
    ring: Ring,
    waiting: Waiting,
    runs: Vec<Run>,
    /// What is delivered of a packet, run by run.
    parts: Vec<Part>,
    scratch: Box<[u8]>,
    epoch: Instant,
    wake_up: WakeUp,
}

/// Bytes of a packet in the ring.
struct Part {
    /// In place of the packet's own, if it was cut.
    header: Option<Box<[u8]>>,
    bytes: Range<usize>,
}

/// How long an idle processor takes to wake up, in nanoseconds: the wait ends so much before a packet is due.
#[derive(Debug, Default)]
struct WakeUp(u64);

impl WakeUp {
    /// More than that is the work of others, which comes and goes.
    const LATE_MAX: u64 = 200_000;
    /// One wait in so many decides.
    const WEIGHT: u64 = 8;

    /// What there is to wait of the time until a packet is due. Nothing when it is as good as due.
    fn wait(&self, left: u64) -> Option<u64> {
        left.checked_sub(self.0).filter(|wait| *wait > 0)
    }

    /// A wait ended by itself, this long after the time it was for, or before it.
    fn ended(&mut self, due: u64, now: u64) {
        let late = now.saturating_sub(due).min(Self::LATE_MAX);
        self.0 += late / Self::WEIGHT;
        self.0 = self.0.saturating_sub(due.saturating_sub(now) / Self::WEIGHT).min(Self::LATE_MAX);
    }
}

impl Shared {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            change: Mutex::new(None),
            numbers: Mutex::new(Numbers::new()),
        })
    }

    /// The lane takes it up at once.
    pub(super) fn change(&self, change: Change) {
        *locked(&self.change) = Some(change);
        self.wake();
    }

    /// The lane's thread ends at once.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn numbers(&self) -> MutexGuard<'_, Numbers> {
        locked(&self.numbers)
    }

    fn wake(&self) {
        // It fails only when the count is full, and then the lane is being woken already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Numbers {
    fn new() -> Self {
        Self {
            link: LinkCounts::default(),
            memory_dropped: 0,
            refused: 0,
            cuts: 0,
            lateness: lateness_histogram(),
            cpu: Duration::ZERO,
            cpu_before: Duration::ZERO,
            capacity: 0,
            failure: None,
        }
    }

    /// Counts from here on.
    pub(super) fn restart(&mut self) {
        let (capacity, cpu, failure) = (self.capacity, self.cpu, self.failure.take());
        *self = Self { capacity, cpu, cpu_before: cpu, failure, ..Self::new() };
    }

    /// Processor time of the lane's thread.
    pub(super) fn cpu(&self) -> Duration {
        self.cpu.saturating_sub(self.cpu_before)
    }
}

/// An empty one, of nanoseconds.
pub(super) fn lateness_histogram() -> Histogram<u64> {
    let most = LATENESS_MAX.as_nanos() as u64;
    Histogram::new_with_bounds(1_000, most, LATENESS_DIGITS)
        .unwrap_or_else(|error| unreachable!("bounds that do not change are accepted: {error}"))
}

impl Lane {
    pub(super) fn new(
        input: Arc<File>,
        output: Arc<File>,
        link: LinkSettings,
        memory: Memory,
    ) -> Self {
        Self {
            input,
            output,
            link: Link::new(link),
            ring: Ring::new(memory),
            waiting: Waiting::default(),
            wake_up: WakeUp::default(),
            parts: Vec::new(),
            runs: Vec::new(),
            scratch: vec![0; PACKET_MAX].into(),
            epoch: Instant::now(),
        }
    }

    /// The thread's work, until it is told to stop.
    pub(super) fn run(mut self, shared: &Shared) {
        // Both are wishes. Timers are exact to a nanosecond instead of 50 microseconds; and as root the lane runs before
        // what is measured, since a real link does not slow down because a host is busy. Without, busy machines show in
        // the lateness.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let _ = sys::run_in_real_time();
        shared.numbers().capacity = self.ring.capacity();
        while !shared.stop.load(Ordering::Acquire) {
            if let Some(change) = locked(&shared.change).take() {
                self.adopt(change, shared);
            }
            if let Err(error) = self.turn(shared) {
                shared.numbers().failure =
                    Some(format!("a device of the path has failed: {error}"));
                return;
            }
        }
    }

    fn adopt(&mut self, change: Change, shared: &Shared) {
        if let Some(memory) = change.memory {
            self.ring.move_to(memory);
            shared.numbers().capacity = self.ring.capacity();
        }
        self.link.change(change.link);
    }

    /// Delivers what is due, takes what has come, waits when there is neither.
    fn turn(&mut self, shared: &Shared) -> io::Result<()> {
        let busy = {
            let mut numbers = shared.numbers();
            let delivered = self.deliver(&mut numbers)?;
            let received = self.receive(&mut numbers)?;
            delivered || received
        };
        if busy {
            return Ok(());
        }
        shared.numbers().cpu = thread_time();
        self.wait(shared)
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn deliver(&mut self, numbers: &mut Numbers) -> io::Result<bool> {
        let mut any = false;
        loop {
            let now = self.now();
            let Some(entry) = self.waiting.pop_due(now) else { return Ok(any) };
            any = true;
            // A value above the histogram's range counts as its largest.
            numbers.lateness.saturating_record(now - entry.due);
            let bytes = self.ring.bytes(entry.ticket, entry.part.bytes.clone());
            let written = match &entry.part.header {
                None => rustix::io::write(&self.output, bytes),
                Some(header) => {
                    rustix::io::writev(&self.output, &[IoSlice::new(header), IoSlice::new(bytes)])
                }
            };
            match written {
                Ok(_) => {}
                Err(Errno::BADFD) => return Err(Errno::BADFD.into()),
                Err(_) => numbers.refused += 1,
            }
            self.ring.deliver(entry.ticket);
        }
    }

    /// Stops when there is nothing to read, or something is due.
    fn receive(&mut self, numbers: &mut Numbers) -> io::Result<bool> {
        for read in 0..READS_MAX {
            let room = self.ring.vacancy();
            let has_room = room.is_some();
            let room = room.unwrap_or(&mut self.scratch);
            let len = match rustix::io::read(&self.input, room) {
                Ok(len) => len,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(read > 0),
                Err(error) => return Err(error.into()),
            };
            let now = self.now();
            if has_room {
                self.take(len, now, numbers);
            } else {
                numbers.memory_dropped += 1;
            }
            if self.waiting.next_due().is_some_and(|due| due <= now) {
                break;
            }
        }
        Ok(true)
    }

    /// The packet of `len` bytes in the vacancy.
    fn take(&mut self, len: usize, now: u64, numbers: &mut Numbers) {
        let Some(room) = self.ring.vacancy() else { return };
        let shape = Shape::of(&room[..len]);
        self.runs.clear();
        self.link.send(now, &shape, &mut numbers.link, &mut self.runs);
        if self.runs.is_empty() {
            return;
        }
        self.parts.clear();
        for run in &self.runs {
            self.parts.push(if run.count == shape.segments {
                Part { header: None, bytes: 0..len }
            } else {
                numbers.cuts += 1;
                let (header, bytes) = shape.cut(&room[..len], run.first, run.count);
                Part { header: Some(header), bytes }
            });
        }
        // A full queue takes the beginning of a packet: the rest of it is not held.
        let held = self.parts.iter().map(|part| part.bytes.end).max().unwrap_or(0);
        let Some(ticket) = self.ring.admit(held, self.runs.len() as u32) else { return };
        for (run, part) in self.runs.iter().zip(self.parts.drain(..)) {
            self.waiting.push(Entry { due: run.due, ticket, part }, run.late);
        }
    }

    fn wait(&mut self, shared: &Shared) -> io::Result<()> {
        let due = self.waiting.next_due();
        let wait = match due {
            None => None,
            Some(due) => match self.wake_up.wait(due.saturating_sub(self.now())) {
                None => return Ok(()),
                wait => wait,
            },
        };
        let timeout = wait.map(|wait| Timespec {
            tv_sec: (wait / 1_000_000_000) as i64,
            tv_nsec: (wait % 1_000_000_000) as i64,
        });
        let mut ready =
            [PollFd::new(&*self.input, PollFlags::IN), PollFd::new(&shared.wake, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(0) => {
                let now = self.now();
                self.wake_up.ended(due.unwrap_or(now), now);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if ready[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
        }
        Ok(())
    }
}

/// What is under way, in the order in which it comes out.
#[derive(Default)]
struct Waiting {
    /// Each due no earlier than the one before it.
    in_order: VecDeque<Entry>,
    late: BinaryHeap<Reverse<Entry>>,
}

/// A run of a packet in the ring.
struct Entry {
    due: u64,
    ticket: Ticket,
    part: Part,
}

impl Waiting {
    fn push(&mut self, entry: Entry, late: bool) {
        if late {
            self.late.push(Reverse(entry));
        } else {
            self.in_order.push_back(entry);
        }
    }

    fn next_due(&self) -> Option<u64> {
        let in_order = self.in_order.front().map(|entry| entry.due);
        let late = self.late.peek().map(|entry| entry.0.due);
        in_order.into_iter().chain(late).min()
    }

    fn pop_due(&mut self, now: u64) -> Option<Entry> {
        let in_order = self.in_order.front().map_or(u64::MAX, |entry| entry.due);
        let late = self.late.peek().map_or(u64::MAX, |entry| entry.0.due);
        if in_order.min(late) > now {
            return None;
        }
        if in_order <= late {
            self.in_order.pop_front()
        } else {
            self.late.pop().map(|entry| entry.0)
        }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |entry: &Self| (entry.due, entry.ticket, entry.part.bytes.start);
        key(self).cmp(&key(other))
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A lane that panicked is seen when it is joined; its numbers are still what it counted.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_as_much_earlier_as_the_processor_takes_to_wake_up() {
        let mut wake_up = WakeUp::default();
        assert_eq!(wake_up.wait(50_000), Some(50_000));
        for wait in 0..100 {
            let due = 1_000_000 * (wait + 1);
            let slept = wake_up.wait(1_000_000).unwrap();
            // This processor takes 80 us.
            wake_up.ended(due, due - 1_000_000 + slept + 80_000);
        }
        let slept = wake_up.wait(1_000_000).unwrap();
        assert!((919_000..921_000).contains(&slept), "{slept}");
        assert_eq!(wake_up.wait(70_000), None, "a sleep would end too late");
        for wait in 0..1000 {
            wake_up.ended(wait, wait + 50_000_000);
        }
        assert_eq!(wake_up.wait(1_000_000), Some(800_000), "a busy machine is not made up for");
    }
}
