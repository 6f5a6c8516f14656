//! The block device below the data directory.

use std::path::Path;

use super::{Knob, Scene, Setting, Severity};
use crate::profile::Profile;
use crate::value::{Form, Wish};

/// As much as the tuned profile throughput-performance asks for.
const READ_AHEAD_KIB: u64 = 4096;
/// Volumes of volumes of volumes: deeper nesting is not followed.
const DEPTH_MAX: usize = 4;

pub(super) const SCHEDULER: Knob = Knob {
    name: "io_scheduler",
    what: "how the kernel orders requests to the disk",
    why: "a drive with queues of its own gains nothing from being ordered twice; a spinning one does",
    harms: "without a scheduler one busy program can delay the reads of others",
    source: "Documentation/block/switching-sched.rst; Documentation/block/stat.rst",
    severity: Severity::Advice,
    profiles: |_| true,
    settings: |scene| {
        let device = scene.block_device()?;
        let mut leaves = Vec::new();
        scene.leaves(&device, DEPTH_MAX, &mut leaves);
        Ok(leaves
            .iter()
            .map(|device| {
                let rotational = scene.host.read(&format!("sys/block/{device}/queue/rotational"));
                let spins = rotational.is_ok_and(|text| text.trim() == "1");
                // A virtual disk says that it spins when its host does not know.
                let is_virtual = device.starts_with("vd") || device.starts_with("xvd");
                let wanted = match (spins, is_virtual) {
                    (false, _) => vec!["none"],
                    (true, false) => vec!["mq-deadline", "bfq"],
                    (true, true) => vec!["none", "mq-deadline"],
                };
                let kind = if spins { "says that it spins" } else { "does not spin" };
                Setting::file(
                    format!("sys/block/{device}/queue/scheduler"),
                    Form::Choice,
                    Wish::OneOf(wanted),
                )
                .formula(format!("{device} {kind}"))
            })
            .collect())
    },
};

pub(super) const READ_AHEAD: Knob = Knob {
    name: "read_ahead_kb",
    what: "how far the kernel reads ahead of a program that reads a file in order",
    why: "a consumer that is far behind reads whole segments in order; each read ahead is one less wait",
    harms: "reads at random places fetch what nobody wants, and push it into the page cache",
    source: "Documentation/ABI/stable/sysfs-block (read_ahead_kb); the tuned profile throughput-performance",
    severity: Severity::Advice,
    profiles: |profile| profile != Profile::Latency,
    settings: |scene| {
        let device = scene.block_device()?;
        Ok(vec![Setting::file(
            format!("sys/block/{device}/queue/read_ahead_kb"),
            Form::Numbers(1),
            Wish::AtLeast(vec![READ_AHEAD_KIB]),
        )])
    },
};

impl Scene<'_> {
    /// The whole device that the data directory lies on.
    fn block_device(&self) -> Result<String, String> {
        let folder =
            self.request.data_dir.as_deref().ok_or("name the node's folder with --data-dir DIR")?;
        let mounts = self.host.read("proc/self/mountinfo").unwrap_or_default();
        let (number, source) = mount_of(&mounts, folder)
            .ok_or_else(|| format!("the mount of {} is not known", folder.display()))?;
        // A file system over several devices has a number of its own; its mount then names one of them.
        let name = self.device_by_number(&number).or_else(|| {
            let name = source.strip_prefix("/dev/")?;
            self.whole_device(name)
        });
        name.ok_or_else(|| {
            format!("{} lies on {source}, which is no block device here", folder.display())
        })
    }

    fn device_by_number(&self, number: &str) -> Option<String> {
        let link = self.host.link(&format!("sys/dev/block/{number}"))?;
        self.whole_device(link.rsplit('/').next()?)
    }

    /// A device itself, or the one that it is a partition of.
    fn whole_device(&self, name: &str) -> Option<String> {
        let is_device = |name: &str| self.host.exists(&format!("sys/block/{name}/queue"));
        if is_device(name) {
            return Some(name.to_owned());
        }
        self.host.names("sys/block").into_iter().find(|device| {
            is_device(device) && self.host.exists(&format!("sys/block/{device}/{name}"))
        })
    }

    /// The devices that a volume is made of.
    fn leaves(&self, device: &str, depth: usize, found: &mut Vec<String>) {
        let below = self.host.names(&format!("sys/block/{device}/slaves"));
        if below.is_empty() || depth == 0 {
            if !found.iter().any(|known| known == device) {
                found.push(device.to_owned());
            }
            return;
        }
        for name in below {
            if let Some(whole) = self.whole_device(&name) {
                self.leaves(&whole, depth - 1, found);
            }
        }
    }
}

/// Number and source of the mount that a folder lies on: the longest mount point above it, the last
/// mounted there.
fn mount_of(mounts: &str, folder: &Path) -> Option<(String, String)> {
    let mut best: Option<(usize, String, String)> = None;
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (Some(number), Some(point)) = (words.get(2), words.get(4)) else { continue };
        let Some(dash) = words.iter().position(|word| *word == "-") else { continue };
        let Some(source) = words.get(dash + 2) else { continue };
        if folder.starts_with(point)
            && best.as_ref().is_none_or(|(length, ..)| point.len() >= *length)
        {
            best = Some((point.len(), (*number).to_owned(), (*source).to_owned()));
        }
    }
    best.map(|(_, number, source)| (number, source))
}
