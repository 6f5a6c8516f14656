//! The host as files below a root, and its routing table as the `ip` command shows it.
//!
//! Both are parameters, so that tests build machines in a folder. Reads are bounded; nothing is kept
//! between calls. Only the executor writes.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cpus::Cpus;

/// The largest file that is read. `/proc/kallsyms` of a large kernel is about 20 MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// A page is at least this large; the kernel tells no other way than a system call.
const KIB: u64 = 1024;

/// Where a host's settings are read and written.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    ip: PathBuf,
    page_bytes: u64,
}

impl Host {
    /// The machine that this runs on.
    #[must_use]
    pub fn this() -> Self {
        Self {
            root: PathBuf::from("/"),
            ip: PathBuf::from("ip"),
            page_bytes: rustix::param::page_size() as u64,
        }
    }

    /// A machine whose files lie below `root`, with a stand-in for the `ip` command.
    #[must_use]
    pub fn at(root: &Path, ip: &Path) -> Self {
        Self { root: root.to_owned(), ip: ip.to_owned(), page_bytes: 4096 }
    }

    /// The content of a file, whose path is relative to the root.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        fs::File::open(self.root.join(path))?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Writes a setting in one piece. Never makes a file.
    pub fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file =
            fs::OpenOptions::new().write(true).truncate(true).open(self.root.join(path))?;
        file.write_all(value.as_bytes())
    }

    /// Whether there is such a file or folder.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path.trim_start_matches('/')).exists()
    }

    /// Whether the kernel lets anybody write the file: not so for what a child namespace only shows.
    #[must_use]
    pub fn is_writable(&self, path: &str) -> bool {
        fs::metadata(self.root.join(path)).is_ok_and(|meta| meta.permissions().mode() & 0o200 != 0)
    }

    /// Names in a folder, numbers within them in their order; none when it is not there.
    #[must_use]
    pub fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(folder)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| (trailing_number(name), name.clone()));
        names
    }

    /// Where a link points, as text: `net:[4026531840]` for a namespace.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.root.join(path)).ok()?.to_string_lossy().into_owned())
    }

    /// Bytes of memory of the machine.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<u64> {
        let text = self.read("proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(KIB)
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Processors that run.
    #[must_use]
    pub fn online(&self) -> Cpus {
        let text = self.read("sys/devices/system/cpu/online").unwrap_or_default();
        text.parse().unwrap_or_default()
    }

    /// Whether this is a network namespace made by somebody, in which some settings of the network are
    /// only shown or not there. Known by a setting that only the first one has.
    #[must_use]
    pub fn is_child_namespace(&self) -> bool {
        self.exists("proc/sys/net/core/somaxconn")
            && !self.exists("proc/sys/net/core/netdev_max_backlog")
    }

    /// Whether the kernel has a module, loaded, on disk or built in, known by one of its functions.
    #[must_use]
    pub fn has_module(&self, module: &str, function: &str) -> bool {
        if self.exists(&format!("sys/module/{module}")) {
            return true;
        }
        let release = self.read("proc/sys/kernel/osrelease").unwrap_or_default();
        let folder = format!("lib/modules/{}", release.trim());
        let listed = ["modules.dep", "modules.builtin"].iter().any(|list| {
            let text = self.read(&format!("{folder}/{list}")).unwrap_or_default();
            let needle = format!("/{module}.ko");
            text.lines()
                .any(|line| line.split(':').next().is_some_and(|path| path.contains(&needle)))
        });
        listed || {
            let text = self.read("proc/kallsyms").unwrap_or_default();
            text.lines().any(|line| line.split_whitespace().nth(2) == Some(function))
        }
    }

    /// The interface of the default route.
    #[must_use]
    pub fn default_interface(&self) -> Option<String> {
        let text = self.read("proc/net/route").ok()?;
        text.lines().skip(1).find_map(|line| {
            let mut words = line.split_whitespace();
            let (interface, destination) = (words.next()?, words.next()?);
            (destination == "00000000").then(|| interface.to_owned())
        })
    }

    /// Runs `ip`; its one line of output, or what it complains about.
    pub fn ip(&self, arguments: &[&str]) -> io::Result<String> {
        let output = Command::new(&self.ip).args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::other("there is no `ip` command here: install iproute2")
            }
            _ => error,
        })?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("`ip` says: {}", said.trim())))
        }
    }
}

/// Whether this process may change the host.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The number that a name ends with, for sorting; names without one come last.
fn trailing_number(name: &str) -> u64 {
    let digits = name.len() - name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    name[name.len() - digits..].parse().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = Host::at(root.path(), Path::new("/does/not/exist"));
        (root, host)
    }

    #[test]
    fn a_write_never_makes_a_file_and_leaves_nothing_of_the_old_value() {
        let (_root, host) = machine(&[("a", "a long value")]);
        host.write("a", "b").unwrap();
        assert_eq!(host.read("a").unwrap(), "b");
        assert_eq!(host.write("c", "b").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let (_root, host) = machine(&[("q/rx-10", ""), ("q/rx-9", ""), ("q/none", "")]);
        assert_eq!(host.names("q"), ["rx-9", "rx-10", "none"]);
        assert!(host.names("nowhere").is_empty());
    }

    #[test]
    fn a_module_is_found_loaded_on_disk_built_in_or_by_its_function() {
        let release = ("proc/sys/kernel/osrelease", "6.1.0\n");
        for files in [
            vec![("sys/module/sch_fq/refcnt", "0")],
            vec![release, ("lib/modules/6.1.0/modules.dep", "kernel/net/sched/sch_fq.ko.xz:\n")],
            vec![release, ("lib/modules/6.1.0/modules.builtin", "kernel/net/sched/sch_fq.ko\n")],
            vec![("proc/kallsyms", "0000000000000000 t fq_enqueue\n")],
        ] {
            assert!(machine(&files).1.has_module("sch_fq", "fq_enqueue"), "{files:?}");
        }
        for files in [
            vec![],
            vec![
                release,
                ("lib/modules/6.1.0/modules.dep", "kernel/x.ko: kernel/net/sched/sch_fq.ko\n"),
            ],
            vec![release, ("lib/modules/6.1.0/modules.dep", "kernel/net/sched/sch_fq_codel.ko:\n")],
            vec![("proc/kallsyms", "0000000000000000 t fq_enqueue_all\n")],
        ] {
            assert!(!machine(&files).1.has_module("sch_fq", "fq_enqueue"), "{files:?}");
        }
    }

    #[test]
    fn memory_and_the_default_interface_are_read_as_the_kernel_writes_them() {
        let (_root, host) = machine(&[
            ("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n"),
            (
                "proc/net/route",
                "Iface\tDestination\tGateway\neth1\t000200C0\t0\neth0\t00000000\t010200C0\n",
            ),
        ]);
        assert_eq!(host.memory_bytes(), Some(16 << 20));
        assert_eq!(host.default_interface().as_deref(), Some("eth0"));
        let (_root, empty) = machine(&[("proc/meminfo", "MemTotal: much\n")]);
        assert_eq!((empty.memory_bytes(), empty.default_interface()), (None, None));
    }

    #[test]
    fn without_the_ip_command_its_package_is_named() {
        let (_root, host) = machine(&[]);
        assert!(host.ip(&["route"]).unwrap_err().to_string().contains("iproute2"));
    }
}
