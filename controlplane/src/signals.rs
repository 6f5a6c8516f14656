//! What ends a program: signals, of which the first asks and a second insists, and its parent's end.
//!
//! SIGHUP, which the end of a terminal sends, counts as the others do, unless who started the program
//! had it ignored (`nohup`). Waits on a thread of its own, for as long as the process lives.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Sets a flag at the first signal; a second one ends the process at once.
///
/// # Errors
/// When the signals cannot be listened for.
pub fn set_on_signal(flag: Arc<AtomicBool>) -> io::Result<()> {
    on_signals("ended at once", move || flag.store(true, Ordering::SeqCst))
}

/// Lets the kernel send this process a SIGTERM when the thread that started it ends, however it does.
/// `parent` is the process that thread belongs to.
///
/// # Errors
/// When it has ended already.
pub fn end_with_parent(parent: u32) -> io::Result<()> {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // A parent that ended before that call sends nothing any more.
    let still_there = i32::try_from(parent).is_ok_and(|parent| getppid() == Pid::from_raw(parent));
    if still_there { Ok(()) } else { Err(io::Error::other("it has ended already")) }
}

/// Calls `first` at the first signal, on a thread of its own; a second one ends the process.
pub(crate) fn on_signals(
    last_words: &'static str,
    first: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen()?
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            let signal = signals.next().await;
            tracing::info!(signal, "stopping; a second signal ends the process at once");
            first();
            let signal = signals.next().await;
            tracing::warn!(signal, "{last_words}");
            std::process::exit(1);
        });
    })?;
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Option<Signal>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        // To listen would undo the ignoring.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let heard = !ignores_hang_up(&status);
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: if heard { Some(signal(SignalKind::hangup())?) } else { None },
        })
    }

    async fn next(&mut self) -> &'static str {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        // Cancel safety: a signal that was not received stays pending.
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hang_up => "SIGHUP",
        }
    }
}

/// Whether the process's status, as `/proc` shows it, has SIGHUP, the first signal, ignored.
fn ignores_hang_up(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hang_up_is_known() {
        assert!(ignores_hang_up("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hang_up("SigIgn:\t0000000000001000\n"));
        assert!(!ignores_hang_up(""));
    }
}
