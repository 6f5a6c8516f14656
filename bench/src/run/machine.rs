//! The machine a run was made on.

use std::fs;

use serde::{Deserialize, Serialize};

/// What a reader must know of the host to compare figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Model of the processors, as the kernel names it.
    pub processor: String,
    /// Processors this process may use.
    pub processors: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Default congestion control of TCP.
    pub congestion_control: String,
    /// Load average over one minute when the run began: well below the number of processors on a quiet
    /// machine.
    pub load_average: f64,
}

impl Machine {
    /// Reads it from `/proc`. What cannot be read is empty or 0.
    #[must_use]
    pub fn read() -> Self {
        let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let processor = line("/proc/cpuinfo")
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split_once(':'))
            .map_or_else(String::new, |(_, model)| model.trim().to_owned());
        let memory_kib = line("/proc/meminfo")
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0);
        let load = line("/proc/loadavg");
        Self {
            kernel: dataplane::ring::kernel_release(),
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib * 1024,
            congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
            load_average: load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::read();
        assert!(!machine.kernel.is_empty());
        assert!(machine.processors > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
    }
}
