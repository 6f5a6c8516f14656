//! What a process holds, from `/proc`.

use std::fs;

use crate::run::SubjectError;

/// Counted at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// Resident bytes of its own: pages of files, which the kernel takes back, do not count.
    pub(super) memory: u64,
    /// Open descriptors.
    pub(super) descriptors: usize,
    /// Lines of its memory map.
    pub(super) mappings: usize,
}

impl Numbers {
    /// Of a process of ours.
    pub(super) fn of(pid: u32) -> Result<Self, SubjectError> {
        let failed = |error| SubjectError::failed("look at the node in /proc", error);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(failed)?;
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(failed)?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_err(failed)?.count();
        Ok(Self { memory: resident(&status), descriptors, mappings: maps.lines().count() })
    }

    /// Bytes more than then.
    pub(super) fn memory_above(&self, then: &Self) -> f64 {
        self.memory.saturating_sub(then.memory) as f64
    }
}

fn resident(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_something() {
        let numbers = Numbers::of(std::process::id()).unwrap();
        assert!(numbers.memory > 0 && numbers.descriptors > 2 && numbers.mappings > 10);
        assert_eq!(resident("VmRSS:\t 9 kB\nRssAnon:\t  12 kB\n"), 12_288);
        assert!(Numbers::of(u32::MAX).is_err());
    }
}
