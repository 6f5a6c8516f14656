//! The knobs: each names where its value lives, how the wanted one is computed, why, and when it harms.
//!
//! Data and formulas. A knob reads the host only to compute what it wants (memory, processors, queues);
//! it never changes anything. One file for each part of the host.

mod cpu;
mod disk;
mod limits;
mod memory;
mod net;
mod placement;
mod tcp;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::cpus::Cpus;
use crate::host::Host;
use crate::path::{LANES_MAX, Path};
use crate::profile::{Profile, nearest, suggestion};
use crate::value::{Form, Wish};

/// How much is lost where a knob is not as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth it on a host that does little else.
    Advice,
    /// Costs speed or steadiness under load.
    Warning,
    /// The path cannot be filled, or the node fails.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Advice => "advice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

/// Something of the host that may be set.
#[derive(Debug)]
pub struct Knob {
    /// Its name, which is also its section in `docs/tuning.md`.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Why the wanted value helps.
    pub why: &'static str,
    /// When the wanted value harms.
    pub harms: &'static str,
    /// Where the advice comes from.
    pub source: &'static str,
    /// What is lost without it.
    pub severity: Severity,
    /// Whether a profile has it.
    pub(crate) profiles: fn(Profile) -> bool,
    /// Its settings on a host; the reason when it has none there.
    pub(crate) settings: fn(&Scene<'_>) -> Result<Vec<Setting>, String>,
}

impl Knob {
    /// Whether a profile has it.
    #[must_use]
    pub fn is_in(&self, profile: Profile) -> bool {
        (self.profiles)(profile)
    }
}

/// Where a value lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file, relative to the root.
    File(String),
    /// The route to a destination.
    Route(String),
    /// A limit of processes started from here; a line of `/proc/self/limits`, and the words for it in a
    /// systemd unit and in a shell.
    Limit {
        /// The line's name.
        line: &'static str,
        /// The key of a systemd unit.
        systemd: &'static str,
        /// The command of a shell, and the bytes that it counts in.
        shell: (&'static str, u64),
    },
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => match sysctl_name(path) {
                Some(name) => formatter.write_str(&name),
                None => write!(formatter, "/{path}"),
            },
            Self::Route(destination) => write!(formatter, "route to {destination}"),
            Self::Limit { systemd, .. } => formatter.write_str(systemd),
        }
    }
}

/// The name that `sysctl` has for a file.
#[must_use]
pub fn sysctl_name(path: &str) -> Option<String> {
    Some(path.strip_prefix("proc/sys/")?.replace('/', "."))
}

/// One value of a knob: most have one, some have one for each queue or processor.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where it lives.
    pub place: Place,
    /// How it is written.
    pub form: Form,
    /// What it should be.
    pub wish: Wish,
    /// How that was computed.
    pub formula: String,
    /// Why it cannot be changed here although it is there.
    pub obstacle: Option<String>,
    /// What else of the host changes with it: saved before, and restored after it.
    pub beside: Vec<(String, Form)>,
    /// What to write into which file to bring a value back that the file itself does not take.
    pub return_by: Option<(&'static str, String)>,
}

impl Setting {
    pub(crate) fn at(place: Place, form: Form, wish: Wish) -> Self {
        Self {
            place,
            form,
            wish,
            formula: String::new(),
            obstacle: None,
            beside: Vec::new(),
            return_by: None,
        }
    }

    pub(crate) fn file(path: impl Into<String>, form: Form, wish: Wish) -> Self {
        Self::at(Place::File(path.into()), form, wish)
    }

    pub(crate) fn formula(mut self, formula: impl Into<String>) -> Self {
        self.formula = formula.into();
        self
    }
}

/// What somebody asks to have tuned.
#[derive(Clone, Debug)]
pub struct Request {
    /// For what.
    pub profile: Profile,
    /// For which path.
    pub path: Path,
    /// The interface of the path; that of the default route when not given.
    pub interface: Option<String>,
    /// Where partition folders lie.
    pub data_dir: Option<PathBuf>,
    /// The processors that the node is pinned to.
    pub cores: Option<Cpus>,
    /// A destination whose route gets a congestion control of its own.
    pub route: Option<String>,
    /// The knobs asked for; all when empty.
    pub only: Vec<String>,
}

/// Why a request is not one of this host.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No knob of this name.
    #[error(
        "there is no knob \"{asked}\" in profile {profile}{} `longhaul tune list {profile}` shows all",
        suggestion(*nearest)
    )]
    Knob {
        /// What was asked for.
        asked: String,
        /// In which profile.
        profile: Profile,
        /// The one most like it, if one is.
        nearest: Option<&'static str>,
    },
    /// No interface of this name.
    #[error("there is no network interface \"{asked}\" here; there are {there}")]
    Interface {
        /// What was asked for.
        asked: String,
        /// Those that are there.
        there: String,
    },
    /// No such folder.
    #[error("there is no folder {}: make it, or name the node's data directory", .0.display())]
    DataDir(PathBuf),
    /// Processors that the machine does not run.
    #[error("processors {asked} are not all running here; there are {there}")]
    Cores {
        /// What was asked for.
        asked: Cpus,
        /// Those that run.
        there: Cpus,
    },
    /// A destination that is no address.
    #[error("\"{0}\" is not an address: give the source's IP address, such as 192.0.2.7")]
    Route(String),
    /// Too many lanes, or none.
    #[error("{0} lanes are not possible: give from 1 to {LANES_MAX}")]
    Lanes(u32),
}

impl Request {
    /// A profile as it is, nothing given.
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        Self {
            profile,
            path: profile.path(),
            interface: None,
            data_dir: None,
            cores: None,
            route: None,
            only: Vec::new(),
        }
    }

    /// The knobs asked for, or what is wrong with the request on this host.
    pub fn knobs(&self, host: &Host) -> Result<Vec<&'static Knob>, RequestError> {
        self.fits(host)?;
        let all = || ALL.iter().filter(|knob| knob.is_in(self.profile));
        for asked in &self.only {
            if !all().any(|knob| knob.name == asked) {
                return Err(RequestError::Knob {
                    asked: asked.clone(),
                    profile: self.profile,
                    nearest: nearest(asked, all().map(|knob| knob.name)),
                });
            }
        }
        let wanted =
            |knob: &&Knob| self.only.is_empty() || self.only.iter().any(|name| name == knob.name);
        Ok(all().filter(wanted).collect())
    }

    fn fits(&self, host: &Host) -> Result<(), RequestError> {
        if !(1..=LANES_MAX).contains(&self.path.lanes) {
            return Err(RequestError::Lanes(self.path.lanes));
        }
        if let Some(asked) = &self.interface {
            let there = host.names("sys/class/net");
            if !there.contains(asked) {
                let there = there.join(", ");
                return Err(RequestError::Interface { asked: asked.clone(), there });
            }
        }
        if let Some(folder) = &self.data_dir
            && !host.exists(&folder.to_string_lossy())
        {
            return Err(RequestError::DataDir(folder.clone()));
        }
        if let Some(asked) = &self.cores {
            let there = host.online();
            if !asked.without(&there).is_empty() {
                return Err(RequestError::Cores { asked: asked.clone(), there });
            }
        }
        match &self.route {
            Some(route) if route.parse::<std::net::IpAddr>().is_err() => {
                Err(RequestError::Route(route.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// A request on a host: what a knob computes its settings from.
pub(crate) struct Scene<'a> {
    pub(crate) request: &'a Request,
    pub(crate) host: &'a Host,
}

/// Every knob, in the order in which they are shown.
pub static ALL: &[Knob] = &[
    tcp::RMEM,
    tcp::WMEM,
    tcp::MEM,
    tcp::CONGESTION,
    tcp::CONGESTION_ROUTE,
    tcp::SLOW_START_AFTER_IDLE,
    tcp::MTU_PROBING,
    tcp::NO_METRICS_SAVE,
    net::RMEM_MAX,
    net::WMEM_MAX,
    net::BACKLOG,
    net::QDISC,
    net::SOMAXCONN,
    net::BUSY_READ,
    net::BUSY_POLL,
    placement::IRQ,
    placement::RPS,
    placement::XPS,
    limits::MEMLOCK,
    limits::NOFILE,
    memory::MAP_COUNT,
    memory::DIRTY,
    memory::DIRTY_BACKGROUND,
    memory::SWAPPINESS,
    memory::HUGE_PAGES,
    cpu::GOVERNOR,
    cpu::IDLE_STATES,
    disk::SCHEDULER,
    disk::READ_AHEAD,
];

/// Bytes for people: whole where they are, else one digit behind the point.
#[must_use]
pub fn human(bytes: u64) -> String {
    let (unit, name) = match bytes {
        1_073_741_824.. => (1_073_741_824.0, "GiB"),
        1_048_576.. => (1_048_576.0, "MiB"),
        _ => (1024.0, "KiB"),
    };
    let count = bytes as f64 / unit;
    if count.fract() < 0.05 { format!("{count:.0} {name}") } else { format!("{count:.1} {name}") }
}
