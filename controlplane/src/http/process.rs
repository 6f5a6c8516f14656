//! What this process spent since it began, from `/proc/self`.

use std::fs;

use serde::Serialize;

/// Ticks of the kernel's clock in a second, as all of Linux' user interfaces count them.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time of all threads, and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Process {
    /// Outside the kernel.
    user_seconds: f64,
    /// In the kernel.
    system_seconds: f64,
    /// Largest resident memory so far.
    memory_bytes_max: u64,
}

impl Process {
    /// Reads it; `None` where `/proc` is not mounted.
    pub(super) fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        Self::parse(&stat, &status)
    }

    /// Fields 14 and 15 of `stat`, counted from behind the name, which may hold anything; `VmHWM` of
    /// `status`.
    fn parse(stat: &str, status: &str) -> Option<Self> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_whitespace().skip(11);
        let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
        let (user_seconds, system_seconds) = (seconds()?, seconds()?);
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = peak.split_whitespace().next()?.parse().ok()?;
        Some(Self { user_seconds, system_seconds, memory_bytes_max: kib * 1024 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_memory_are_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 275 0 0";
        let process = Process::parse(stat, "VmPeak: 9 kB\nVmHWM:\t 512 kB\n").unwrap();
        assert_eq!(
            process,
            Process { user_seconds: 1.5, system_seconds: 2.75, memory_bytes_max: 512 * 1024 }
        );
        assert!(Process::parse("", "").is_none());
        assert!(Process::read().unwrap().memory_bytes_max > 0);
    }
}
