//! What processes spend: CPU time from `/proc/PID/stat`, memory from `/proc/PID/status`, and the
//! machine's time in soft interrupts.

use std::fs;

use serde::{Deserialize, Serialize};

use super::stat::{Stat, TICKS_PER_SECOND};

/// Fewer of them are no figure: one more or less would be a tenth of it.
const TICKS_MIN: f64 = 10.0;
/// What stands where such a figure would.
pub(crate) const TOO_SHORT: &str = "too short to tell";

/// Whether so much processor time is too little for a figure.
pub(crate) fn is_too_short(seconds: f64) -> bool {
    (seconds * TICKS_PER_SECOND).round() < TICKS_MIN
}

/// What one process spent during a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessCost {
    /// Which process, such as `longhaul node` or `source broker`.
    pub name: String,
    /// Seconds outside the kernel.
    pub user_seconds: f64,
    /// Seconds in the kernel.
    pub system_seconds: f64,
    /// Largest resident memory so far, in bytes.
    pub memory_bytes_max: u64,
}

impl ProcessCost {
    /// User and system time.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

/// Costs from one moment on. Read it before a process is waited for: what is gone has no figures.
#[derive(Debug)]
pub struct CostWatch {
    processes: Vec<Watched>,
    softirq_ticks: u64,
}

#[derive(Debug)]
struct Watched {
    name: String,
    pid: u32,
    before: Stat,
}

impl CostWatch {
    /// Begins to count for the processes, named by the caller.
    #[must_use]
    pub fn start(processes: &[(&str, u32)]) -> Self {
        let processes = processes
            .iter()
            .map(|&(name, pid)| Watched {
                name: name.to_owned(),
                pid,
                before: Stat::of(pid).unwrap_or_default(),
            })
            .collect();
        Self { processes, softirq_ticks: softirq_ticks() }
    }

    /// Counts from the beginning of each process on; soft interrupts from now on.
    #[must_use]
    pub fn of_whole_lives(processes: &[(&str, u32)]) -> Self {
        let mut watch = Self::start(processes);
        watch.processes.iter_mut().for_each(|process| process.before = Stat::default());
        watch
    }

    /// What each spent so far, in the order given. A process that has ended is left out.
    #[must_use]
    pub fn costs(&self) -> Vec<ProcessCost> {
        self.processes.iter().filter_map(Watched::cost).collect()
    }

    /// Seconds all processors spent in soft interrupts so far.
    #[must_use]
    pub fn softirq_seconds(&self) -> f64 {
        softirq_ticks().saturating_sub(self.softirq_ticks) as f64 / TICKS_PER_SECOND
    }
}

impl Watched {
    fn cost(&self) -> Option<ProcessCost> {
        let now = Stat::of(self.pid)?;
        Some(ProcessCost {
            name: self.name.clone(),
            user_seconds: now.user.saturating_sub(self.before.user) as f64 / TICKS_PER_SECOND,
            system_seconds: now.system.saturating_sub(self.before.system) as f64 / TICKS_PER_SECOND,
            memory_bytes_max: resident_bytes_max(self.pid),
        })
    }
}

fn resident_bytes_max(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The seventh number of the first line of `/proc/stat`.
fn softirq_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().map(str::split_whitespace);
    fields.and_then(|mut fields| fields.nth(7)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn ten_ticks_are_a_figure() {
        assert!(is_too_short(0.0) && is_too_short(0.09));
        assert!(!is_too_short(0.03 + 0.07) && !is_too_short(1.0));
    }

    #[test]
    fn work_of_this_process_is_seen() {
        let watch = CostWatch::start(&[("me", std::process::id()), ("nobody", u32::MAX)]);
        let began = Instant::now();
        let mut sum = 0_u64;
        while watch.costs()[0].seconds() < 0.02 && began.elapsed() < Duration::from_secs(30) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let costs = watch.costs();
        assert_eq!(costs.len(), 1, "a process that does not exist has no cost");
        assert_eq!(costs[0].name, "me");
        assert!(costs[0].seconds() >= 0.02 && costs[0].memory_bytes_max > 0, "{costs:?}");
        assert!(watch.softirq_seconds() >= 0.0);
    }
}
