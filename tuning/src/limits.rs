//! What the host lets a process hold, against what the node is configured to hold.
//!
//! Runs at start, before anything is opened: a budget beyond a limit of the host would otherwise show
//! up days later, as a failed open or a failed mapping under load.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, setrlimit};

/// Mappings that a process holds besides the node's segments: libraries, stacks, allocator arenas,
/// rings. A round reserve; too small a one only makes the warning come too late.
const MAPPINGS_BESIDES: u64 = 1024;

/// What the node is configured to hold at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Open files of all kinds: segments, connections, lanes, and a reserve.
    pub open_files: u64,
    /// Memory mappings of segments.
    pub mappings: u64,
    /// Bytes of locked memory; 0 when nothing is locked.
    pub locked_bytes: u64,
}

/// A limit of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// RLIMIT_NOFILE.
    OpenFiles,
    /// The sysctl vm.max_map_count.
    Mappings,
    /// RLIMIT_MEMLOCK.
    LockedMemory,
}

/// A budget that the host does not allow. Displays as a sentence with the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Which limit.
    pub limit: Limit,
    /// What the budgets need.
    pub needed: u64,
    /// What the host allows.
    pub allowed: u64,
}

impl fmt::Display for Shortfall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, allowed, .. } = self;
        match self.limit {
            Limit::OpenFiles => write!(
                formatter,
                "the node may need {needed} open files but the host allows it {allowed}: raise \
                 `ulimit -n` (LimitNOFILE= in a systemd unit), or lower the budgets for \
                 descriptors and connections"
            ),
            Limit::Mappings => write!(
                formatter,
                "the node may need {needed} memory mappings but the host allows a process \
                 {allowed}: set the sysctl vm.max_map_count to {needed} or more, or lower the \
                 budget for mappings"
            ),
            Limit::LockedMemory => write!(
                formatter,
                "the node may need {} KiB of locked memory but the host allows it {} KiB: raise \
                 `ulimit -l` (LimitMEMLOCK= in a systemd unit)",
                needed.div_ceil(1024),
                allowed / 1024
            ),
        }
    }
}

/// Why the limits could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// A file of /proc is not readable.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of /proc does not look as the kernel writes it.
    #[error("{path} has no value for {what}")]
    Format {
        /// Which file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
}

/// Raises this process's soft limit of open files to its hard limit, which needs no privilege, and
/// returns what holds now. A limit that cannot be raised stays; [`check`] then tells.
pub fn raise_open_files() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if setrlimit(Resource::Nofile, limit).is_err() {
            return before;
        }
    }
    limit.current
}

/// Compares the budgets with the limits found below `root`, which is `/` outside tests.
pub fn check(root: &Path, budgets: &Budgets) -> Result<Vec<Shortfall>, LimitsError> {
    let limits_path = root.join("proc/self/limits");
    let limits = read(&limits_path)?;
    let soft = |what| {
        soft_limit(&limits, what)
            .ok_or_else(|| LimitsError::Format { path: limits_path.clone(), what })
    };
    let map_count_path = root.join("proc/sys/vm/max_map_count");
    let map_count = read(&map_count_path)?
        .trim()
        .parse()
        .map_err(|_| LimitsError::Format { path: map_count_path, what: "vm.max_map_count" })?;
    let mappings =
        if budgets.mappings == 0 { 0 } else { budgets.mappings.saturating_add(MAPPINGS_BESIDES) };
    let pairs = [
        (Limit::OpenFiles, budgets.open_files, soft("Max open files")?),
        (Limit::Mappings, mappings, map_count),
        (Limit::LockedMemory, budgets.locked_bytes, soft("Max locked memory")?),
    ];
    Ok(pairs
        .into_iter()
        .filter(|(_, needed, allowed)| needed > allowed)
        .map(|(limit, needed, allowed)| Shortfall { limit, needed, allowed })
        .collect())
}

fn read(path: &Path) -> Result<String, LimitsError> {
    fs::read_to_string(path).map_err(|source| LimitsError::Read { path: path.to_owned(), source })
}

/// The soft limit of a line such as `Max open files   1024   524288   files`; no limit is the
/// largest number.
fn soft_limit(limits: &str, what: &str) -> Option<u64> {
    limit(limits, what, 0)
}

/// The hard limit of such a line, up to which a process may raise the soft one by itself.
pub(crate) fn hard_limit(limits: &str, what: &str) -> Option<u64> {
    limit(limits, what, 1)
}

fn limit(limits: &str, what: &str, column: usize) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(what))?;
    match line.split_whitespace().nth(column)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     \n\
Max cpu time              unlimited            unlimited            seconds   \n\
Max open files            1024                 524288               files     \n\
Max locked memory         8388608              unlimited            bytes     \n";

    fn host(limits: &str, map_count: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
        fs::write(root.path().join("proc/self/limits"), limits).unwrap();
        fs::write(root.path().join("proc/sys/vm/max_map_count"), map_count).unwrap();
        root
    }

    #[test]
    fn budgets_within_the_limits_need_nothing() {
        let root = host(LIMITS, "65530\n");
        let budgets = Budgets { open_files: 1024, mappings: 64_506, locked_bytes: 8_388_608 };
        assert_eq!(check(root.path(), &budgets).unwrap(), []);
    }

    #[test]
    fn each_budget_beyond_its_limit_is_told_with_numbers_and_remedy() {
        let root = host(LIMITS, "65530\n");
        let budgets = Budgets { open_files: 1025, mappings: 64_507, locked_bytes: 8_388_609 };
        let told: Vec<_> =
            check(root.path(), &budgets).unwrap().iter().map(Shortfall::to_string).collect();
        let needles = [
            ["1025 open files", "ulimit -n"],
            ["65531 memory mappings", "vm.max_map_count"],
            ["8193 KiB", "ulimit -l"],
        ];
        assert_eq!(told.len(), needles.len(), "{told:?}");
        for (sentence, needles) in told.iter().zip(needles) {
            for needle in needles {
                assert!(sentence.contains(needle), "{needle:?} not in {sentence:?}");
            }
        }
    }

    #[test]
    fn unlimited_is_enough_for_anything() {
        let limits = LIMITS.replace("1024   ", "unlimited");
        let root = host(&limits, "2147483647");
        let budgets = Budgets { open_files: u64::MAX, mappings: 1, locked_bytes: 0 };
        assert_eq!(check(root.path(), &budgets).unwrap(), []);
    }

    #[test]
    fn strange_or_missing_files_are_errors_that_name_them() {
        let root = host("nothing of use", "65530");
        let error = check(root.path(), &Budgets::default()).unwrap_err().to_string();
        assert!(error.contains("proc/self/limits") && error.contains("Max open files"), "{error}");
        let root = host(LIMITS, "many");
        let error = check(root.path(), &Budgets::default()).unwrap_err().to_string();
        assert!(error.contains("max_map_count"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(check(empty.path(), &Budgets::default()), Err(LimitsError::Read { .. })));
    }

    #[test]
    fn this_host_can_be_checked_and_open_files_are_raised_to_the_hard_limit() {
        let raised = raise_open_files();
        assert_eq!(raised, getrlimit(Resource::Nofile).maximum);
        let budgets = Budgets { open_files: raised.unwrap_or(u64::MAX), ..Budgets::default() };
        assert_eq!(check(Path::new("/"), &budgets).unwrap(), []);
    }
}
