//! Invented machines for tests: a folder with the files of a kernel, and a stand-in for `ip`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::host::Host;

/// Keeps one route in a file beside it, as `ip route get ... fibmatch` and `ip route replace` see it.
const IP: &str = "\
#!/bin/sh
route=$(dirname \"$0\")/route
if [ \"$3\" = route ] && [ \"$4\" = get ]; then
  [ -s \"$route\" ] || { echo 'RTNETLINK answers: Network is unreachable' >&2; exit 2; }
  cat \"$route\"
elif [ \"$2\" = route ] && [ \"$3\" = replace ]; then
  shift 3; echo \"$*\" > \"$route\"
else
  echo \"not known: $*\" >&2; exit 1
fi
";

pub(crate) const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
";

/// A server as `wan-10g` wants it, with the files that every profile looks at. 8 processors in two
/// memory domains, 64 GiB, a card with 4 queues in the first domain, an NVMe drive.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn server() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        for (path, text) in SYSCTLS {
            machine.set(&format!("proc/sys/{path}"), text);
        }
        machine.set("proc/meminfo", "MemTotal:       67108864 kB\n");
        machine.set("proc/self/limits", LIMITS);
        machine.set("proc/net/route", "Iface\tDestination\neth0\t00000000\n");
        machine.set("sys/devices/system/cpu/online", "0-7\n");
        machine.set("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
        machine.set("sys/kernel/mm/transparent_hugepage/defrag", "always defer [madvise] never");
        machine.set("sys/module/sch_fq/refcnt", "0");
        machine.card();
        machine.processors();
        machine.disk();
        machine.link("proc/self/ns/net", "net:[4026531840]");
        machine.set("ip", IP);
        let ip = machine.path().join("ip");
        fs::set_permissions(ip, fs::Permissions::from_mode(0o755)).unwrap();
        machine.set("route", "unicast default via 192.0.2.1 dev eth0 table main congctl bbr\n");
        machine
    }

    fn card(&self) {
        self.set("sys/class/net/eth0/device/local_cpulist", "0-3\n");
        let mut interrupts = " CPU0 CPU1\n 30: 1 0 PCI-MSIX eth0-config\n".to_owned();
        self.set("sys/class/net/eth0/device/msi_irqs/30", "");
        for queue in 0..4 {
            let irq = 40 + queue;
            self.set(&format!("sys/class/net/eth0/device/msi_irqs/{irq}"), "");
            self.set(&format!("proc/irq/{irq}/smp_affinity_list"), &queue.to_string());
            self.set(&format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus"), "f");
            let mask = format!("{:x}", (1 << queue) | (1 << (queue + 4)));
            self.set(&format!("sys/class/net/eth0/queues/tx-{queue}/xps_cpus"), &mask);
            interrupts.push_str(&format!(" {irq}: 7 9 PCI-MSIX eth0-TxRx-{queue}\n"));
        }
        self.set("proc/interrupts", &(interrupts + "NMI: 0 0 Non-maskable interrupts\n"));
    }

    fn processors(&self) {
        for cpu in 0..8 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            self.set(&format!("{folder}/cpufreq/scaling_governor"), "performance");
            for (state, wake) in [(0, 0), (1, 2), (2, 50)] {
                self.set(&format!("{folder}/cpuidle/state{state}/latency"), &format!("{wake}\n"));
                self.set(&format!("{folder}/cpuidle/state{state}/disable"), "0");
            }
            self.set(&format!("{folder}/cpuidle/state2/disable"), "1");
        }
    }

    fn disk(&self) {
        self.set(
            "proc/self/mountinfo",
            "27 1 259:1 / / rw - ext4 /dev/root rw\n28 27 259:7 / /srv rw shared:1 - xfs /dev/nvme0n1p1 rw\n",
        );
        self.set("srv/longhaul/keep", "");
        self.set("sys/block/nvme0n1/nvme0n1p1/partition", "1");
        self.set("sys/block/nvme0n1/queue/scheduler", "[none] mq-deadline");
        self.set("sys/block/nvme0n1/queue/rotational", "0\n");
        self.set("sys/block/nvme0n1/queue/read_ahead_kb", "4096");
        self.link("sys/dev/block/259:7", "../../devices/pci/nvme0n1/nvme0n1p1");
    }

    /// Writes a file; makes it and its folders.
    pub(crate) fn set(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes a link; replaces one that is there.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
    }

    /// Removes a file or a folder.
    pub(crate) fn remove(&self, path: &str) {
        let path = self.path().join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
    }

    pub(crate) fn get(&self, path: &str) -> String {
        fs::read_to_string(self.path().join(path)).unwrap()
    }

    /// Every file and what it holds.
    pub(crate) fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        gather(self.path(), self.path(), &mut files);
        files
    }

    pub(crate) fn host(&self) -> Host {
        Host::at(self.path(), &self.path().join("ip"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A folder for a state file; in memory where there is one, since each line is made durable.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn gather(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        } else if path.is_dir() {
            gather(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            // The routes are compared by their words.
            let text = fs::read_to_string(&path).unwrap();
            files.insert(name, text.trim_end().to_owned());
        }
    }
}

const SYSCTLS: &[(&str, &str)] = &[
    ("kernel/osrelease", "6.12.0\n"),
    ("kernel/random/boot_id", "first\n"),
    ("net/core/busy_poll", "50"),
    ("net/core/busy_read", "50"),
    ("net/core/default_qdisc", "fq"),
    ("net/core/netdev_max_backlog", "10000"),
    ("net/core/rmem_max", "134217728"),
    ("net/core/somaxconn", "4096"),
    ("net/core/wmem_max", "134217728"),
    ("net/ipv4/tcp_allowed_congestion_control", "reno bbr cubic"),
    ("net/ipv4/tcp_available_congestion_control", "reno bbr cubic"),
    ("net/ipv4/tcp_congestion_control", "bbr"),
    ("net/ipv4/tcp_mem", "786432 1048576 1572864"),
    ("net/ipv4/tcp_mtu_probing", "1"),
    ("net/ipv4/tcp_no_metrics_save", "1"),
    ("net/ipv4/tcp_rmem", "4096 131072 134217728"),
    ("net/ipv4/tcp_slow_start_after_idle", "0"),
    ("net/ipv4/tcp_wmem", "4096 16384 134217728"),
    ("vm/dirty_background_bytes", "1249996800"),
    ("vm/dirty_background_ratio", "0"),
    ("vm/dirty_bytes", "4999999488"),
    ("vm/dirty_ratio", "0"),
    ("vm/max_map_count", "262144"),
    ("vm/swappiness", "10"),
];
