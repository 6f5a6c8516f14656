//! Memory: mappings, unwritten data, swap, huge pages.

use std::time::Duration;

use super::{Knob, Scene, Setting, Severity, human};
use crate::profile::Profile;
use crate::value::{Form, Wish};

/// The node maps 8,192 segments by default; four times the kernel's default leaves room for that to be raised.
const MAPPINGS: u64 = 262_144;
const SWAPPINESS_MOST: u64 = 10;
/// Less than this wakes the disk for nothing.
const BACKGROUND_BYTES_MIN: u64 = 256 << 20;
/// Of the memory, a quarter may be unwritten, and writing begins at a quarter of that.
const DIRTY_SHARE: u64 = 4;
/// How long the path's full rate may wait unwritten before writers are made to wait too.
const DIRTY_SECONDS: u64 = 4;
const PAGE_BYTES: u64 = 4096;

pub(super) const MAP_COUNT: Knob = Knob {
    name: "max_map_count",
    what: "memory mappings that a process may have",
    why: "each open segment is a mapping; beyond the limit mapping fails under load, not at start",
    harms: "each mapping costs the kernel a few hundred bytes",
    source: "Documentation/admin-guide/sysctl/vm.rst (max_map_count)",
    severity: Severity::Warning,
    profiles: |_| true,
    settings: |_| {
        Ok(vec![
            Setting::file(
                "proc/sys/vm/max_map_count",
                Form::Numbers(1),
                Wish::AtLeast(vec![MAPPINGS]),
            )
            .formula("mappings_max (8192) with room to raise it"),
        ])
    },
};

pub(super) const DIRTY: Knob = Knob {
    name: "dirty_bytes",
    what: "unwritten data above which a program that writes has to wait for the disk",
    why: "the default, a share of the memory, lets many seconds of catch-up pile up on a large host; then all \
          writers stop at once, the node's cores among them",
    harms: "on a disk slower than the path writers wait earlier; what is lost in a power failure is bounded by \
            the node's checkpoints, not by this",
    source: "Documentation/admin-guide/sysctl/vm.rst (dirty_bytes)",
    severity: Severity::Warning,
    profiles: |profile| profile != Profile::Lan,
    settings: |scene| {
        let (_, dirty, memory) = scene.dirty_bytes()?;
        Ok(vec![scene.unwritten(
            "dirty",
            dirty,
            format!(
                "{DIRTY_SECONDS} s of {}, at most a quarter of {}; 0 means that dirty_ratio rules",
                scene.request.path.rate,
                human(memory)
            ),
        )])
    },
};

pub(super) const DIRTY_BACKGROUND: Knob = Knob {
    name: "dirty_background_bytes",
    what: "unwritten data above which the kernel begins to write it out",
    why: "writing begins early and goes on steadily, so that dirty_bytes is not reached",
    harms: "data that would have been deleted before it was written is written",
    source: "Documentation/admin-guide/sysctl/vm.rst (dirty_background_bytes)",
    severity: Severity::Warning,
    profiles: |profile| profile != Profile::Lan,
    settings: |scene| {
        let (background, _, memory) = scene.dirty_bytes()?;
        Ok(vec![scene.unwritten(
            "dirty_background",
            background,
            format!(
                "1 s of {}, at least 256 MiB, at most a sixteenth of {}",
                scene.request.path.rate,
                human(memory)
            ),
        )])
    },
};

pub(super) const SWAPPINESS: Knob = Knob {
    name: "swappiness",
    what: "how readily the kernel swaps programs out to keep files in memory",
    why: "a mirror fills the page cache all day; swapping the node out for it stalls a core",
    harms: "with little memory the page cache shrinks sooner",
    source: "Documentation/admin-guide/sysctl/vm.rst (swappiness); the tuned profile throughput-performance",
    severity: Severity::Advice,
    profiles: |_| true,
    settings: |_| {
        Ok(vec![Setting::file(
            "proc/sys/vm/swappiness",
            Form::Numbers(1),
            Wish::AtMost(SWAPPINESS_MOST),
        )])
    },
};

pub(super) const HUGE_PAGES: Knob = Knob {
    name: "transparent_hugepage",
    what: "whether the kernel gives programs huge pages unasked, and makes room for them at once",
    why: "collecting huge pages stalls the thread that faults; programs that gain ask for them",
    harms: "programs that gain without asking lose a little",
    source: "Documentation/admin-guide/mm/transhuge.rst",
    severity: Severity::Advice,
    profiles: |_| true,
    settings: |_| {
        let folder = "sys/kernel/mm/transparent_hugepage";
        Ok(vec![
            Setting::file(
                format!("{folder}/enabled"),
                Form::Choice,
                Wish::OneOf(vec!["madvise", "never"]),
            ),
            Setting::file(
                format!("{folder}/defrag"),
                Form::Choice,
                Wish::OneOf(vec!["madvise", "defer+madvise", "defer", "never"]),
            ),
        ])
    },
};

impl Scene<'_> {
    /// Background, dirty, and the machine's memory.
    fn dirty_bytes(&self) -> Result<(u64, u64, u64), String> {
        let memory = self
            .host
            .memory_bytes()
            .ok_or("the machine's memory is not known: /proc/meminfo has no MemTotal")?;
        let second = self.request.path.rate.bytes_in(Duration::from_secs(1));
        let whole = |bytes: u64| bytes / PAGE_BYTES * PAGE_BYTES;
        let dirty = (second * DIRTY_SECONDS)
            .max(BACKGROUND_BYTES_MIN * DIRTY_SECONDS)
            .min(memory / DIRTY_SHARE);
        let background = second.max(BACKGROUND_BYTES_MIN).min(dirty / DIRTY_SHARE);
        Ok((whole(background), whole(dirty), memory))
    }

    /// One of the two limits in bytes. Writing it sets its counterpart, a share of the memory, to 0, and
    /// the kernel takes no 0 for bytes: the way back is to write the share.
    fn unwritten(&self, name: &'static str, bytes: u64, formula: String) -> Setting {
        let path = format!("proc/sys/vm/{name}_bytes");
        let ratio = format!("proc/sys/vm/{name}_ratio");
        let mut setting =
            Setting::file(path, Form::Numbers(1), Wish::Exactly(bytes)).formula(formula);
        setting.return_by = Some(("0", ratio));
        setting
    }
}
