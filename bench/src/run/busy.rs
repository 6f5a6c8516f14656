//! How busy the machine and the threads of the processes under test were: the evidence for what bound a
//! sample.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use super::stat::{Stat, TICKS_PER_SECOND};
use super::storage_wait::StorageWait;
use super::{Limit, LimitKind};

/// A thread, or a machine, busy for more than this share of the time was what bound the sample.
const BUSY_MIN: f64 = 0.85;
/// The subject's process waited for storage for more than this share of the time.
const STORAGE_WAIT_MIN: f64 = 0.3;
/// More of all processors with other work than this is worth a word.
const OTHERS_MAX: f64 = 0.25;
/// Shorter samples say nothing: a tick is 10 ms.
const TIME_MIN: Duration = Duration::from_millis(200);

/// Counts from its start on. Read it before the processes end.
#[derive(Debug)]
pub struct BusyWatch {
    began: Instant,
    machine: Machine,
    /// Of the first process, the subject's own.
    storage_wait: Option<StorageWait>,
    processes: Vec<(String, u32, BTreeMap<u32, u64>)>,
}

/// A thread and the share of the time it ran.
#[derive(Clone, Debug, PartialEq)]
pub struct BusyThread {
    /// The process, as the caller named it.
    pub process: String,
    /// The thread's own name.
    pub thread: String,
    /// 0 to 1.
    pub share: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    all: u64,
    idle: u64,
}

impl BusyWatch {
    /// Begins to watch the processes, named by the caller; the first is the subject's own.
    #[must_use]
    pub fn start(processes: &[(&str, u32)]) -> Self {
        let storage_wait = processes.first().map(|&(_, pid)| StorageWait::of(pid));
        let processes = processes
            .iter()
            .map(|&(name, pid)| {
                let ticks = threads(pid).into_iter().map(|(id, (_, ticks))| (id, ticks));
                (name.to_owned(), pid, ticks.collect())
            })
            .collect();
        Self { began: Instant::now(), machine: Machine::read(), storage_wait, processes }
    }

    /// The share of all processors' time that was not idle, 0 to 1, other programs' included.
    #[must_use]
    pub fn machine(&self) -> f64 {
        let now = Machine::read();
        let all = now.all.saturating_sub(self.machine.all);
        let idle = now.idle.saturating_sub(self.machine.idle);
        if all == 0 { 0.0 } else { 1.0 - idle as f64 / all as f64 }
    }

    /// That the subject waited for storage, if it did for a good part of the time.
    #[must_use]
    pub fn storage_limit(&self) -> Option<Limit> {
        let share = self.storage_wait.as_ref()?.share();
        let (name, ..) = self.processes.first()?;
        (share > STORAGE_WAIT_MIN).then(|| {
            let words = format!("{name} waited for storage {:.0} % of the time", share * 100.0);
            Limit::new(LimitKind::Disk, words)
        })
    }

    /// The busiest thread of the process of that name.
    #[must_use]
    pub fn busiest(&self, process: &str) -> Option<BusyThread> {
        let (_, pid, before) = self.processes.iter().find(|(name, ..)| name == process)?;
        let seconds = self.began.elapsed().as_secs_f64();
        let busy = threads(*pid).into_iter().map(|(id, (thread, ticks))| {
            let ticks = ticks.saturating_sub(before.get(&id).copied().unwrap_or(0));
            let share = ticks as f64 / TICKS_PER_SECOND / seconds;
            BusyThread { process: process.to_owned(), thread, share }
        });
        busy.max_by(|left, right| left.share.total_cmp(&right.share))
    }

    /// The share of the time that all threads of the process of that name ran, together: 2 for two
    /// processors.
    #[must_use]
    pub fn process_share(&self, process: &str) -> f64 {
        let of_name = self.processes.iter().filter(|(name, ..)| name == process);
        of_name.map(|(_, pid, before)| self.share_since(*pid, before)).sum()
    }

    fn share_since(&self, pid: u32, before: &BTreeMap<u32, u64>) -> f64 {
        let ran = threads(pid)
            .into_iter()
            .map(|(id, (_, ticks))| ticks.saturating_sub(before.get(&id).copied().unwrap_or(0)));
        ran.sum::<u64>() as f64 / TICKS_PER_SECOND / self.began.elapsed().as_secs_f64()
    }

    /// How busy all processors were, and how much of that with programs that have no part in it, the
    /// kernel's own work included.
    fn machine_words(&self) -> String {
        let machine = self.machine();
        let watched: f64 =
            self.processes.iter().map(|(_, pid, before)| self.share_since(*pid, before)).sum();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let others = (machine - watched / processors as f64).max(0.0);
        let words = format!("all processors {:.0} % busy", machine * 100.0);
        if others < OTHERS_MAX {
            return words;
        }
        format!(
            "{words}, {:.0} % with other work: measure again with nothing else running",
            others * 100.0
        )
    }

    /// What bound the subject, with the evidence. The first process is the subject's own; the others
    /// bound it as the source, or as `other` says.
    #[must_use]
    pub fn limit(&self, others: &[(&str, LimitKind)]) -> Limit {
        let Some((own, ..)) = self.processes.first() else {
            return Limit::new(LimitKind::Unknown, "no process was watched");
        };
        if self.began.elapsed() < TIME_MIN {
            return Limit::new(LimitKind::Unknown, "too short to tell: make the run longer");
        }
        let machine = self.machine_words();
        let busiest = self.busiest(own);
        let own_words = format!(
            "{}, {:.0} % of one processor in all its threads",
            busiest.as_ref().map_or_else(|| own.clone(), BusyThread::words),
            self.process_share(own) * 100.0
        );
        if busiest.is_some_and(|thread| thread.share > BUSY_MIN) {
            return Limit::new(LimitKind::Cpu, format!("{own_words}; {machine}"));
        }
        for (name, kind) in others {
            if let Some(thread) = self.busiest(name).filter(|thread| thread.share > BUSY_MIN) {
                return Limit::new(*kind, format!("{}; {own_words}; {machine}", thread.words()));
            }
        }
        if self.machine() > BUSY_MIN {
            return Limit::new(LimitKind::Cpu, format!("{machine}; {own_words}"));
        }
        self.storage_limit()
            .unwrap_or_else(|| Limit::new(LimitKind::Unknown, format!("{own_words}; {machine}")))
    }
}

impl BusyThread {
    fn words(&self) -> String {
        format!("{}'s thread {:?} {:.0} % busy", self.process, self.thread, self.share * 100.0)
    }
}

impl Machine {
    /// The first line of `/proc/stat`: user, nice, system, idle, iowait and so on; stolen time counts as
    /// busy, guests are in user already.
    fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let idle = ticks.iter().skip(3).take(2).sum();
        Self { all: ticks.iter().sum(), idle }
    }
}

/// Name and ticks of each thread of a process.
fn threads(pid: u32) -> BTreeMap<u32, (String, u64)> {
    Stat::threads(pid)
        .map(|thread| (thread.id, (thread.name, thread.user + thread.system)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_share_is_that_of_all_its_threads() {
        let watch = BusyWatch::start(&[("me", std::process::id())]);
        let spin = || {
            let began = Instant::now();
            let mut sum = 0_u64;
            while began.elapsed() < Duration::from_millis(500) {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(spin);
            scope.spawn(spin);
            std::thread::sleep(Duration::from_millis(450));
            let (all, one) = (watch.process_share("me"), watch.busiest("me").unwrap().share);
            assert!(all >= one && one > 0.0, "{all} {one}");
        });
        assert_eq!(watch.process_share("nobody"), 0.0);
    }

    #[test]
    fn a_thread_that_runs_all_the_time_is_found_by_its_name() {
        let watch = BusyWatch::start(&[("me", std::process::id())]);
        let spinning = std::thread::Builder::new().name("spinning".to_owned());
        let thread = spinning.spawn(|| {
            let began = Instant::now();
            let mut sum = 0_u64;
            while began.elapsed() < Duration::from_secs(1) {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
        });
        std::thread::sleep(Duration::from_millis(900));
        let me = watch.processes[0].1;
        assert!(threads(me).values().any(|(name, ticks)| name == "spinning" && *ticks > 0));
        assert!(watch.machine() > 0.0 && watch.machine() <= 1.0);
        assert!(watch.busiest("nobody").is_none());
        let limit = watch.limit(&[]);
        assert!(limit.evidence.contains("all processors"), "{limit:?}");
        thread.unwrap().join().unwrap();
    }
}
