//! How much of the machine programs took that have no part in what is measured.
//!
//! Owns nothing; reads `/proc` on the thread that calls. Ours is this process, what descends from it, what runs in the
//! network namespaces given, and the kernel's own threads, which write back and receive for whoever is measured. Must
//! never be needed for a measurement to work: what cannot be read is no number.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::stat::{Stat, TICKS_PER_SECOND};

/// Below it ticks are too coarse for a share.
const ELAPSED_MIN: Duration = Duration::from_millis(200);
/// Said of what is shorter.
pub(crate) const TOO_SHORT: &str = "what other programs took during runs of less than 0.2 s: the kernel counts in ticks \
                                    of 10 ms; make the runs longer";
/// The kernel rounds what it says of a process, and what it says of the machine are samples: so much of the difference
/// may be no program's.
const TICKS_UNSURE: u64 = 5;
/// The parent of the kernel's threads.
const KERNEL_THREADS: u32 = 2;
/// Of the machine's processors: what other programs may take. An idle machine's own services take a few per cent.
const SHARE_MAX: f64 = 0.1;
/// A chain of parents is no longer than this; a cycle, from processes that ended while they were read, would be.
const GENERATIONS_MAX: usize = 64;

/// Processor time up to now, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    all: u64,
    ours: u64,
}

impl ProcessorTime {
    /// Reads it; the namespaces as their links under `/proc` say them.
    pub(crate) fn read(namespaces: &[PathBuf]) -> Option<Self> {
        let all = busy_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        let processes = processes()?;
        let ours = processes
            .iter()
            .filter(|(process, _)| {
                descends(**process, std::process::id(), &processes)
                    || descends(**process, KERNEL_THREADS, &processes)
                    || is_in(**process, namespaces)
            })
            .map(|(_, process)| process.user + process.system + process.children)
            .sum();
        Some(Self { all, ours })
    }

    /// The share of all processors that others took since an earlier time; `None` after too short a while.
    pub(crate) fn others_share(
        &self,
        earlier: &Self,
        elapsed: Duration,
        processors: usize,
    ) -> Option<f64> {
        if elapsed < ELAPSED_MIN {
            return None;
        }
        let ours = self.ours.saturating_sub(earlier.ours) + TICKS_UNSURE;
        let others = self.all.saturating_sub(earlier.all).saturating_sub(ours) as f64;
        Some(
            (others / TICKS_PER_SECOND / elapsed.as_secs_f64() / processors.max(1) as f64).min(1.0),
        )
    }
}

/// Why what was measured is no result, when others took too much meanwhile.
pub(crate) fn spoilt(share: f64) -> Option<String> {
    (share > SHARE_MAX).then(|| {
        format!(
            "the machine was busy: other programs took {:.0} % of its processors, and {:.0} % are allowed; run it \
             again with nothing else running",
            share * 100.0,
            SHARE_MAX * 100.0
        )
    })
}

/// Time in programs and in the kernel for them. Interrupts are left out: no process is charged for them.
fn busy_ticks(stat: &str) -> Option<u64> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?;
    let (user, nice, system) = (0, 1, 2);
    let numbers: Vec<u64> =
        numbers.split_whitespace().take(3).filter_map(|number| number.parse().ok()).collect();
    Some(numbers.get(user)? + numbers.get(nice)? + numbers.get(system)?)
}

fn processes() -> Option<HashMap<u32, Stat>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some(numbers.filter_map(|number| Some((number, Stat::of(number)?))).collect())
}

fn descends(process: u32, ancestor: u32, processes: &HashMap<u32, Stat>) -> bool {
    let parents = std::iter::successors(Some(process), |child| Some(processes.get(child)?.parent));
    parents.take(GENERATIONS_MAX).any(|process| process == ancestor)
}

fn is_in(process: u32, namespaces: &[PathBuf]) -> bool {
    fs::read_link(format!("/proc/{process}/ns/net")).is_ok_and(|link| namespaces.contains(&link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_ours_nor_idle_is_others() {
        let before = ProcessorTime { all: 1_000, ours: 400 };
        let after = ProcessorTime { all: 1_700 + TICKS_UNSURE, ours: 600 };
        // 5 of 20 processor seconds.
        assert_eq!(after.others_share(&before, Duration::from_secs(10), 2), Some(0.25));
        assert_eq!(after.others_share(&before, Duration::from_millis(10), 2), None);
        assert_eq!(before.others_share(&after, Duration::from_secs(10), 2), Some(0.0));
        // Half a second, of which another program took a half of both processors, and one in which none did.
        let half = Duration::from_millis(500);
        let taken = ProcessorTime { all: 1_090, ours: 440 }.others_share(&before, half, 2);
        assert_eq!(taken.and_then(spoilt).map(|why| why.contains("took 45 %")), Some(true));
        let alone = ProcessorTime { all: 1_094, ours: 480 }.others_share(&before, half, 2);
        assert_eq!(alone.map(spoilt), Some(None));
    }

    #[test]
    fn a_tenth_of_the_machine_is_allowed() {
        assert_eq!(spoilt(0.1), None);
        assert!(spoilt(0.3).unwrap().contains("took 30 % of its processors, and 10 % are allowed"));
    }

    #[test]
    fn the_kernels_tables_are_read() {
        assert_eq!(busy_ticks("cpu  100 20 3 4000 5 6 7 8 9 10\ncpu0 1 2 3\n"), Some(123));
    }

    #[test]
    fn descendants_are_found_and_cycles_end() {
        let process = |parent| Stat { parent, ..Stat::default() };
        let processes = HashMap::from([
            (2, process(1)),
            (3, process(2)),
            (4, process(3)),
            (8, process(9)),
            (9, process(8)),
        ]);
        assert!(descends(4, 2, &processes) && descends(2, 2, &processes));
        assert!(!descends(2, 3, &processes) && !descends(8, 2, &processes));
    }

    #[test]
    fn our_own_work_is_ours() {
        let before = ProcessorTime::read(&[]).unwrap();
        let mut number = 1_u64;
        let give_up = std::time::Instant::now() + Duration::from_secs(60);
        let after = loop {
            (0..10_000_000).for_each(|_| number = std::hint::black_box(number.wrapping_mul(3)));
            let now = ProcessorTime::read(&[]).unwrap();
            if now.ours > before.ours {
                break now;
            }
            assert!(std::time::Instant::now() < give_up, "a minute of work is not counted");
        };
        assert!(after.all >= before.all);
    }
}
