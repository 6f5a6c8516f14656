//! The share of the time in which a process waited for storage.
//!
//! The kernel tells of a moment only whether a thread is in an uninterruptible wait, as those for storage are; so it is
//! looked at again and again, by a thread of its own that ends with the watch. What the whole machine waits for says
//! less: it counts the write-back that nobody waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::stat::Stat;

/// Seldom enough to cost nothing for the hundred threads of a Java program.
const BETWEEN_LOOKS: Duration = Duration::from_millis(40);

/// Watches one process from its start on.
#[derive(Debug)]
pub(super) struct StorageWait {
    seen: Arc<Seen>,
    looking: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    looks: AtomicU32,
    waiting: AtomicU32,
    stop: AtomicBool,
}

impl StorageWait {
    /// Begins to look. Without a thread for it, it has seen nothing.
    pub(super) fn of(process: u32) -> Self {
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        let looking = std::thread::Builder::new().name("storage-wait".to_owned());
        let looking = looking.spawn(move || {
            while !shared.stop.load(Ordering::Relaxed) {
                shared.looks.fetch_add(1, Ordering::Relaxed);
                shared.waiting.fetch_add(u32::from(is_waiting(process)), Ordering::Relaxed);
                std::thread::park_timeout(BETWEEN_LOOKS);
            }
        });
        Self { seen, looking: looking.ok() }
    }

    /// The share of the looks that found a thread waiting, 0 to 1.
    pub(super) fn share(&self) -> f64 {
        let looks = self.seen.looks.load(Ordering::Relaxed);
        f64::from(self.seen.waiting.load(Ordering::Relaxed)) / f64::from(looks.max(1))
    }
}

impl Drop for StorageWait {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        if let Some(looking) = self.looking.take() {
            looking.thread().unpark();
            // It cannot panic, and if it did, nothing hangs on it.
            let _ = looking.join();
        }
    }
}

fn is_waiting(process: u32) -> bool {
    Stat::threads(process).any(|thread| thread.uninterruptible)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn share_of(command: &mut Command, time: Duration) -> f64 {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let watch = StorageWait::of(child.id());
        std::thread::sleep(time);
        let share = watch.share();
        child.kill().unwrap();
        child.wait().unwrap();
        share
    }

    #[test]
    fn who_writes_to_the_device_waits_for_it_and_who_sleeps_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = format!("of={}", directory.path().join("file").display());
        let mut writing = Command::new("dd");
        writing.args(["if=/dev/zero", &file, "bs=4k", "count=1000000", "oflag=dsync"]);
        let time = Duration::from_secs(2);
        let share = share_of(&mut writing, time);
        assert!(share > 0.0, "{share}");
        assert_eq!(share_of(Command::new("sleep").arg("9"), time), 0.0);
    }
}
