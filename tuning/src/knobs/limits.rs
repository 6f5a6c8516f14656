//! Limits of the node's process, which its service or shell gives it.

use super::{Knob, Place, Setting, Severity};
use crate::value::{Form, Wish};

/// The kernel's default since 5.16. The node locks nothing; io_uring charges registered buffers here.
const LOCKED_BYTES: u64 = 8 << 20;
/// 10,000 consumers and 4,096 segments by default, the lanes, and room for more of each.
const OPEN_FILES: u64 = 65_536;

const OBSTACLE: &str = "a limit is given to a process when it starts: use `render --format systemd` for the \
                        service, or `render --format shell` for this shell";

pub(super) const MEMLOCK: Knob = Knob {
    name: "memlock",
    what: "memory that the node may lock (the hard limit)",
    why: "io_uring counts buffers that are registered with it as locked; with less, a ring is refused",
    harms: "locked memory is never swapped out",
    source: "io_uring_setup(2); getrlimit(2), RLIMIT_MEMLOCK",
    severity: Severity::Warning,
    profiles: |_| true,
    settings: |_| {
        Ok(vec![limit(
            Place::Limit {
                line: "Max locked memory",
                systemd: "LimitMEMLOCK",
                shell: ("ulimit -l", 1024),
            },
            LOCKED_BYTES,
        )])
    },
};

pub(super) const NOFILE: Knob = Knob {
    name: "nofile",
    what: "files and connections that the node may have open (the hard limit)",
    why: "10,000 consumers and 4,096 open segments are the node's defaults; the node raises its soft limit \
          to the hard one by itself",
    harms: "none known at this size for the node; old programs that loop over all numbers become slow",
    source: "systemd.exec(5), LimitNOFILE; docs/configuration.md (descriptors_max, connections_max)",
    severity: Severity::Critical,
    profiles: |_| true,
    settings: |_| {
        Ok(vec![limit(
            Place::Limit {
                line: "Max open files",
                systemd: "LimitNOFILE",
                shell: ("ulimit -n", 1),
            },
            OPEN_FILES,
        )])
    },
};

fn limit(place: Place, least: u64) -> Setting {
    let mut setting = Setting::at(place, Form::Numbers(1), Wish::AtLeast(vec![least]));
    setting.obstacle = Some(OBSTACLE.to_owned());
    setting
}
