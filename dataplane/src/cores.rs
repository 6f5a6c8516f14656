//! The cores' threads: started all or none, pinned, stopped together.
//!
//! Runs on the thread that starts or stops the data plane. A ring must be made by the thread that
//! uses it, so each thread makes its own, reports, and waits for the word to go.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::core_loop::{self, CoreParts};
use crate::counters::CoreCounters;
use crate::handle::{CoreId, DataplaneConfig, EventSink, StartError};
use crate::mailbox::{self, Command, Mailbox, Mailboxes};
use crate::partition::PartitionTable;
use crate::ring::{Ring, RingConfig, Socket, Waker};
use crate::serve::ServeShared;

/// Submissions of one call to the kernel. A turn queues one or two for each connection with work;
/// more than this go in several calls.
const RING_ENTRIES: u32 = 1024;

/// A running core, seen from outside.
#[derive(Debug)]
pub(crate) struct CoreHandle {
    pub(crate) id: CoreId,
    pub(crate) fetches: bool,
    pub(crate) counters: Arc<CoreCounters>,
    thread: Option<JoinHandle<()>>,
}

/// A thread that made its ring and waits for the word to go; dropping `go` ends it.
struct Started {
    handle: CoreHandle,
    go: SyncSender<CoreParts>,
    waker: Waker,
}

/// Starts all cores, or none. `listeners` has one socket for each serving core.
pub(crate) fn start(
    config: DataplaneConfig,
    listeners: Vec<OwnedFd>,
    table: &Arc<PartitionTable>,
    events: &Arc<dyn EventSink>,
) -> Result<(Vec<CoreHandle>, Mailboxes), StartError> {
    let mut started: Vec<Started> = Vec::with_capacity(config.cores.len());
    for (index, core) in config.cores.iter().enumerate() {
        match start_thread(CoreId(index as u16), core.cpu, core.fetches) {
            Ok(core) => started.push(core),
            Err(error) => {
                for Started { mut handle, go, .. } in started {
                    drop(go);
                    join(&mut handle);
                }
                return Err(error);
            }
        }
    }
    let mailboxes: Mailboxes = started
        .iter()
        .map(|core| Arc::new(Mailbox::new(core.handle.id, core.waker.clone())))
        .collect();
    let serves: Vec<bool> = config.cores.iter().map(|core| core.serves).collect();
    let serve_shared = Arc::new(ServeShared::new(config));
    let mut listeners = listeners.into_iter();
    let mut handles = Vec::with_capacity(started.len());
    for (Started { handle, go, .. }, serves) in started.into_iter().zip(serves) {
        let parts = CoreParts {
            core: handle.id,
            table: table.clone(),
            events: events.clone(),
            counters: handle.counters.clone(),
            serve_shared: serve_shared.clone(),
            listener: if serves { listeners.next().map(Socket::from) } else { None },
            mailboxes: mailboxes.clone(),
        };
        // The thread waits for exactly this, and ends the process rather than itself.
        let _ = go.send(parts);
        handles.push(handle);
    }
    Ok((handles, mailboxes))
}

fn start_thread(id: CoreId, cpu: Option<usize>, fetches: bool) -> Result<Started, StartError> {
    let failed = |source| StartError::Thread { core: id.0, source };
    let (ready, is_ready) = sync_channel(1);
    let (go, parts) = sync_channel(1);
    let thread = Builder::new()
        .name(format!("core-{}", id.0))
        .spawn(move || core_thread(id, cpu, &ready, &parts))
        .map_err(failed)?;
    let mut handle = CoreHandle {
        id,
        fetches,
        counters: Arc::new(CoreCounters::default()),
        thread: Some(thread),
    };
    let outcome = is_ready.recv().unwrap_or_else(|_| {
        Err(failed(io::Error::other("the thread ended before it had made its ring")))
    });
    match outcome {
        Ok(waker) => Ok(Started { handle, go, waker }),
        Err(error) => {
            join(&mut handle);
            Err(error)
        }
    }
}

fn core_thread(
    id: CoreId,
    cpu: Option<usize>,
    ready: &SyncSender<Result<Waker, StartError>>,
    parts: &Receiver<CoreParts>,
) {
    mailbox::enter_core_thread();
    let ring = pin(cpu)
        .map_err(|source| StartError::Thread { core: id.0, source })
        .and_then(|()| Ok(Ring::new(RingConfig { entries: RING_ENTRIES })?));
    let ring = match ring {
        Ok(ring) => ring,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(ring.waker()));
    // The other end is dropped when another core could not start.
    let Ok(parts) = parts.recv() else { return };
    // Nothing of the core is used after a panic: the process ends.
    match catch_unwind(AssertUnwindSafe(|| core_loop::run(parts, ring))) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => end_process(id, &error.to_string()),
        Err(panic) => end_process(id, panic_text(&*panic)),
    }
}

/// See the module documentation of [`core_loop`] for why one core takes the node down with it.
fn end_process(id: CoreId, cause: &str) -> ! {
    tracing::error!(
        core = id.0,
        cause,
        "a core broke down; the node ends here, and a restart recovers every partition"
    );
    std::process::abort()
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words")
}

fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| match errno {
        rustix::io::Errno::INVAL => io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("CPU {cpu} does not exist, or this process may not run on it"),
        ),
        errno => errno.into(),
    })
}

/// Closes all mailboxes, then waits for the threads to end.
pub(crate) fn stop(cores: &mut [CoreHandle], mailboxes: &[Arc<Mailbox>]) {
    for mailbox in mailboxes {
        mailbox.close();
    }
    for core in cores {
        join(core);
    }
}

/// A command that came after the core had stopped.
pub(crate) fn refuse(core: CoreId, command: Command) {
    match command {
        Command::Assign(assignment) => {
            let partition = assignment.partition.id.clone();
            if let Err(error) = assignment.log.close() {
                tracing::warn!(core = core.0, %partition, %error, "cannot close a log");
            }
        }
        Command::Take(_, taken) => taken(None),
        Command::SetLink(..)
        | Command::AddLane(_)
        | Command::Resume(..)
        | Command::Park(_)
        | Command::Reply(..) => {}
    }
}

fn join(core: &mut CoreHandle) {
    let Some(thread) = core.thread.take() else { return };
    // The last handle may be dropped by a core's own thread, in an event's receiver: that thread
    // ends when it comes back to its loop.
    if thread.thread().id() != std::thread::current().id() {
        // A core that panics ends the process, so there is no other outcome.
        let _ = thread.join();
    }
}
