//! Bounded queues into a core, and the wake-ups that go with them.
//!
//! One [`Mailbox`] a core. Any thread puts in, the core's own thread takes out. It never holds its
//! lock while a command is carried out, and never loses a wake-up.
//!
//! A mutex around a queue rather than a ring buffer for each producer: the producers are all threads
//! of the control plane and all other cores, what they send is rare (record bytes never pass here),
//! and the core takes everything out in one exchange of pointers.
//!
//! Two bounds. Commands of the control plane: at [`COMMANDS_MAX`] the sender waits for the core,
//! which empties its mailbox every turn. Published partitions: a partition is listed once a core
//! however often it is published, so the list is never longer than the partitions there are, and
//! putting one in never waits; a core must not wait for another.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::fetch::Taken;
use crate::handle::{
    Assignment, ConnectionId, CoreId, LaneSpec, LinkId, LinkSettings, Reply, Resume,
};
use crate::partition::Partition;
use crate::ring::Waker;

/// Commands waiting in one mailbox. Large enough that a node which starts with 100,000 partitions
/// seldom waits, small enough to be nothing in memory.
const COMMANDS_MAX: usize = 4096;

thread_local! {
    /// Whether this thread is a core. It must not wait for a mailbox: it might be its own.
    static IS_CORE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as a core's.
pub(crate) fn enter_core_thread() {
    IS_CORE.set(true);
}

/// What the control plane asks of a core.
pub(crate) enum Command {
    SetLink(LinkId, LinkSettings),
    AddLane(LaneSpec),
    Assign(Box<Assignment>),
    Resume(Arc<Partition>, Resume),
    Park(Arc<Partition>),
    Take(Arc<Partition>, Taken),
    /// Not counted against the bound: a connection has one cold request at a time, so there are no
    /// more replies than connections.
    Reply(ConnectionId, Reply),
}

#[derive(Default)]
struct State {
    commands: VecDeque<Command>,
    published: Vec<Arc<Partition>>,
    closed: bool,
}

/// What a core finds in its mailbox.
#[derive(Default)]
pub(crate) struct Letters {
    /// Commands, oldest first.
    pub(crate) commands: VecDeque<Command>,
    /// Partitions published elsewhere that consumers here wait for.
    pub(crate) published: Vec<Arc<Partition>>,
}

/// Every core's mailbox, by core.
pub(crate) type Mailboxes = Arc<[Arc<Mailbox>]>;

/// A core's mailbox.
pub(crate) struct Mailbox {
    core: CoreId,
    waker: Waker,
    state: Mutex<State>,
    emptied: Condvar,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Mailbox").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Mailbox {
    pub(crate) fn new(core: CoreId, waker: Waker) -> Self {
        Self { core, waker, state: Mutex::default(), emptied: Condvar::new() }
    }

    /// Puts a command in and wakes the core; waits for room if need be, unless the caller is a core.
    /// Gives the command back when the core has stopped.
    pub(crate) fn send(&self, command: Command) -> Result<(), Command> {
        let mut state = self.lock();
        let may_wait = !matches!(command, Command::Reply(..)) && !IS_CORE.get();
        while may_wait && !state.closed && state.commands.len() >= COMMANDS_MAX {
            state = self.emptied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return Err(command);
        }
        state.commands.push_back(command);
        drop(state);
        self.waker.wake();
        Ok(())
    }

    /// Tells the core that a partition its consumers wait for was published. Never waits.
    pub(crate) fn publish(&self, partition: &Arc<Partition>) {
        if !partition.mark_listed(self.core) {
            return;
        }
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.published.push(partition.clone());
        drop(state);
        self.waker.wake();
    }

    /// Lets nothing more in and wakes the core; what is inside is still carried out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.emptied.notify_all();
        self.waker.wake();
    }

    /// Takes everything out; `letters` must be empty. Returns whether the mailbox is closed, so that
    /// nothing follows.
    pub(crate) fn take(&self, letters: &mut Letters) -> bool {
        let closed = {
            let mut state = self.lock();
            std::mem::swap(&mut state.commands, &mut letters.commands);
            std::mem::swap(&mut state.published, &mut letters.published);
            state.closed
        };
        if !letters.commands.is_empty() {
            self.emptied.notify_all();
        }
        for partition in &letters.published {
            // Before its log is looked at: a publish after that look is listed again.
            partition.clear_listed(self.core);
        }
        closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::ring::{Ring, RingConfig};

    fn mailbox() -> (Ring, Arc<Mailbox>) {
        let ring = Ring::new(RingConfig { entries: 8 }).unwrap();
        let mailbox = Arc::new(Mailbox::new(CoreId(3), ring.waker()));
        (ring, mailbox)
    }

    fn settings() -> LinkSettings {
        LinkSettings {
            mirror: "m".into(),
            fetch_wait_max: Duration::ZERO,
            fetch_min_bytes: 1,
            response_bytes_max: 1,
            partition_bytes_max: 1,
            requests_out_max: 1,
            catch_up_lag_min: 1,
            answer_timeout: Duration::ZERO,
            rack: "".into(),
        }
    }

    fn command(number: u32) -> Command {
        Command::SetLink(LinkId(number), settings())
    }

    fn number(command: &Command) -> u32 {
        let Command::SetLink(link, _) = command else { panic!("another command") };
        link.0
    }

    fn reply() -> Command {
        let connection = ConnectionId { core: CoreId(3), slot: 0, generation: 0 };
        Command::Reply(connection, Reply::Nothing)
    }

    fn fill(mailbox: &Mailbox) {
        for index in 0..COMMANDS_MAX {
            assert!(mailbox.send(command(index as u32)).is_ok());
        }
    }

    #[test]
    fn sender_waits_at_a_full_mailbox_and_nothing_is_lost_or_reordered() {
        let (_ring, mailbox) = mailbox();
        fill(&mailbox);
        let (told, heard) = mpsc::channel();
        let sender = std::thread::spawn({
            let mailbox = mailbox.clone();
            move || {
                assert!(mailbox.send(command(COMMANDS_MAX as u32)).is_ok());
                told.send(()).unwrap();
            }
        });
        assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "the bound was ignored");
        let mut letters = Letters::default();
        assert!(!mailbox.take(&mut letters));
        assert_eq!(letters.commands.len(), COMMANDS_MAX);
        sender.join().unwrap();
        let mut more = Letters::default();
        mailbox.take(&mut more);
        letters.commands.append(&mut more.commands);
        assert!(letters.commands.iter().map(number).eq(0..=COMMANDS_MAX as u32));
    }

    #[test]
    fn replies_and_core_threads_never_wait_for_room() {
        let (_ring, mailbox) = mailbox();
        fill(&mailbox);
        assert!(mailbox.send(reply()).is_ok());
        let core = std::thread::spawn({
            let mailbox = mailbox.clone();
            move || {
                enter_core_thread();
                mailbox.send(command(0)).is_ok()
            }
        });
        assert!(core.join().unwrap());
    }

    #[test]
    fn closing_frees_waiting_senders_and_keeps_what_was_inside() {
        let (_ring, mailbox) = mailbox();
        fill(&mailbox);
        let sender = std::thread::spawn({
            let mailbox = mailbox.clone();
            move || mailbox.send(command(9)).is_err()
        });
        std::thread::sleep(Duration::from_millis(20));
        mailbox.close();
        assert!(sender.join().unwrap(), "the command comes back");
        assert!(mailbox.send(reply()).is_err());
        let mut letters = Letters::default();
        assert!(mailbox.take(&mut letters), "closed");
        assert_eq!(letters.commands.len(), COMMANDS_MAX);
    }

    #[test]
    fn a_command_wakes_the_core() {
        let (mut ring, mailbox) = mailbox();
        let sender = std::thread::spawn(move || mailbox.send(command(0)).is_ok());
        let mut completions = Vec::new();
        ring.wait(Some(std::time::Instant::now() + Duration::from_secs(30)), &mut completions)
            .unwrap();
        assert_eq!(completions.len(), 1, "woken");
        assert!(sender.join().unwrap());
    }
}
