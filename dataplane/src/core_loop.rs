//! One core's thread: wait, dispatch completions to the drivers, run them to the end, submit.
//!
//! Owns the core's ring and its two drivers. It sleeps in the kernel whenever nothing is due and must
//! never wait for anything else: not for another core, not for the control plane, not for a lock that
//! is held for longer than a push.
//!
//! A panic or a broken ring on a core ends the process. The core's partitions would otherwise stay
//! as they are, unwatched and unfed, while the node looks alive (P6); a restart recovers all of them
//! to a valid prefix (P8).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counters::CoreCounters;
use crate::fetch::FetchDriver;
use crate::handle::{CoreId, EventSink};
use crate::mailbox::{Command, Letters, Mailbox, Mailboxes};
use crate::partition::{Partition, PartitionTable};
use crate::ring::{Completion, Ring, RingError, Socket, TokenRole};
use crate::serve::{ServeDriver, ServeShared};

/// How long a core that stops waits for its drivers. Flushing a disk that is slow takes seconds;
/// beyond this the logs are left to recovery.
const SHUTDOWN_MAX: Duration = Duration::from_secs(60);

/// How often a stopping driver is asked again when nothing completes.
const SHUTDOWN_STEP: Duration = Duration::from_millis(20);

/// What a driver may use while it runs.
pub(crate) struct CoreContext<'a> {
    /// The core's ring.
    pub(crate) ring: &'a mut Ring,
    /// The time of this turn.
    pub(crate) now: Instant,
    /// All partitions.
    pub(crate) table: &'a PartitionTable,
    /// The control plane.
    pub(crate) events: &'a dyn EventSink,
    /// This core's counters.
    pub(crate) counters: &'a CoreCounters,
    /// Partitions published in this turn: the loop wakes the waiting cores after the drivers ran.
    pub(crate) published: &'a mut Vec<Arc<Partition>>,
}

/// What a core is started with.
pub(crate) struct CoreParts {
    pub(crate) core: CoreId,
    pub(crate) table: Arc<PartitionTable>,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) counters: Arc<CoreCounters>,
    pub(crate) serve_shared: Arc<ServeShared>,
    /// Where consumers are accepted, on a core that serves.
    pub(crate) listener: Option<Socket>,
    /// Every core's mailbox, by core; this core's own too.
    pub(crate) mailboxes: Mailboxes,
}

/// Runs a core on the calling thread until its mailbox is closed.
pub(crate) fn run(parts: CoreParts, ring: Ring) -> Result<(), RingError> {
    let mut fetch = FetchDriver::new(parts.core);
    let mut serve = ServeDriver::new(parts.core, parts.serve_shared.clone());
    let mut core = Core {
        mailbox: parts.mailboxes[usize::from(parts.core.0)].clone(),
        parts,
        ring,
        now: Instant::now(),
        published: Vec::new(),
        completions: Vec::new(),
        letters: Letters::default(),
    };
    if let Some(listener) = core.parts.listener.take() {
        serve.listen(&mut core.context(), listener);
    }
    let mut deadline = Some(core.now);
    while !core.turn(deadline, &mut fetch, &mut serve)? {
        let fetch_deadline = fetch.turn(&mut core.context());
        core.wake_waiters(&mut serve);
        // Last, so that what was published in this turn is answered in this turn.
        let serve_deadline = serve.turn(&mut core.context());
        deadline = earliest(fetch_deadline, serve_deadline);
    }
    core.stop(&mut fetch, &mut serve)
}

struct Core {
    parts: CoreParts,
    mailbox: Arc<Mailbox>,
    ring: Ring,
    now: Instant,
    published: Vec<Arc<Partition>>,
    completions: Vec<Completion>,
    letters: Letters,
}

impl Core {
    /// Waits, then takes completions and letters. Returns whether the mailbox is closed.
    fn turn(
        &mut self,
        deadline: Option<Instant>,
        fetch: &mut FetchDriver,
        serve: &mut ServeDriver,
    ) -> Result<bool, RingError> {
        self.ring.wait(deadline, &mut self.completions)?;
        self.now = Instant::now();
        self.parts.counters.turns.add(1);
        let mut completions = std::mem::take(&mut self.completions);
        for Completion { token, outcome } in completions.drain(..) {
            match token.role {
                TokenRole::Fetch => {
                    fetch.completed(&mut self.context(), token.slot, token.kind, outcome);
                }
                TokenRole::Serve => {
                    serve.completed(&mut self.context(), token.slot, token.kind, outcome);
                }
                // A wake-up: its cause is in the mailbox.
                TokenRole::Mailbox => {}
            }
        }
        self.completions = completions;
        Ok(self.read_letters(fetch, serve))
    }

    fn read_letters(&mut self, fetch: &mut FetchDriver, serve: &mut ServeDriver) -> bool {
        let mut letters = std::mem::take(&mut self.letters);
        let closed = self.mailbox.take(&mut letters);
        for command in letters.commands.drain(..) {
            let mut context = self.context();
            match command {
                Command::SetLink(link, settings) => fetch.set_link(&mut context, link, settings),
                Command::AddLane(lane) => fetch.add_lane(&mut context, lane),
                Command::Assign(assignment) => fetch.assign(&mut context, *assignment),
                Command::Resume(partition, resume) => {
                    fetch.resume(&mut context, &partition, resume);
                }
                Command::Park(partition) => fetch.park(&mut context, &partition),
                Command::Take(partition, taken) => fetch.take(&mut context, &partition, taken),
                Command::Reply(connection, reply) => serve.reply(&mut context, connection, reply),
            }
        }
        for partition in letters.published.drain(..) {
            serve.published(&mut self.context(), &partition);
        }
        self.letters = letters;
        closed
    }

    /// Tells every core with a waiting consumer what was published in this turn.
    fn wake_waiters(&mut self, serve: &mut ServeDriver) {
        let mut published = std::mem::take(&mut self.published);
        let mailboxes = self.parts.mailboxes.clone();
        for partition in published.drain(..) {
            notify_waiters(&partition, &mailboxes, |core| {
                let here = core == self.parts.core;
                if here {
                    serve.published(&mut self.context(), &partition);
                }
                here
            });
        }
        self.published = published;
    }

    /// Lets both drivers end what is in flight and close what they hold.
    fn stop(mut self, fetch: &mut FetchDriver, serve: &mut ServeDriver) -> Result<(), RingError> {
        let give_up = Instant::now() + SHUTDOWN_MAX;
        loop {
            let serve_done = serve.shutdown(&mut self.context());
            let fetch_done = fetch.shutdown(&mut self.context());
            if serve_done && fetch_done {
                return Ok(());
            }
            if self.now >= give_up {
                tracing::error!(
                    core = self.parts.core.0,
                    in_flight = self.ring.in_flight(),
                    "the core did not come to rest in time; its logs are left to recovery"
                );
                return Ok(());
            }
            let deadline = self.now + SHUTDOWN_STEP;
            self.turn(Some(deadline), fetch, serve)?;
        }
    }

    fn context(&mut self) -> CoreContext<'_> {
        CoreContext {
            ring: &mut self.ring,
            now: self.now,
            table: &self.parts.table,
            events: &*self.parts.events,
            counters: &self.parts.counters,
            published: &mut self.published,
        }
    }
}

/// Puts a published partition into the mailbox of every core that waits for it, unless `handled`
/// says that it took care of that core.
pub(crate) fn notify_waiters(
    partition: &Arc<Partition>,
    mailboxes: &[Arc<Mailbox>],
    mut handled: impl FnMut(CoreId) -> bool,
) {
    let mut waiters = partition.waiters();
    while waiters != 0 {
        let core = CoreId(waiters.trailing_zeros() as u16);
        waiters &= waiters - 1;
        if !handled(core) {
            mailboxes[usize::from(core.0)].publish(partition);
        }
    }
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
