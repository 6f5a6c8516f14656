//! The other executor: writes a report down as files that make the host so at each start.
//!
//! Text only; nothing is read or changed. Each format holds what it can express and names the knobs that
//! belong to another. Values are those that `apply` would write on the host of the report, so one that is
//! already larger than wanted stays.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use crate::check::{Finding, Report};
use crate::knobs::{Place, sysctl_name};

const COMMENT_COLUMNS: usize = 96;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For `/etc/sysctl.d`.
    Sysctl,
    /// A drop-in for the node's systemd unit.
    Systemd,
    /// For `/etc/udev/rules.d`.
    Udev,
    /// A shell script for everything.
    Shell,
}

/// No format of this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no format \"{0}\": give sysctl, systemd, udev, shell or source")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        [Self::Sysctl, Self::Systemd, Self::Udev, Self::Shell]
            .into_iter()
            .find(|format| format.to_string() == text)
            .ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Sysctl => "sysctl",
            Self::Systemd => "systemd",
            Self::Udev => "udev",
            Self::Shell => "shell",
        })
    }
}

/// A setting to be written down.
struct Line<'a> {
    finding: &'a Finding,
    place: &'a Place,
    value: &'a str,
}

/// Writes a report down; `command` is how it was asked for.
#[must_use]
pub fn render(report: &Report, format: Format, command: &str) -> String {
    let lines: Vec<Line<'_>> = report.findings.iter().flat_map(lines).collect();
    let mut text = match format {
        Format::Shell => "#!/bin/sh\n".to_owned(),
        _ => String::new(),
    };
    let _ = writeln!(text, "# Longhaul, profile {}: {command}", report.profile);
    let _ = writeln!(
        text,
        "# Computed on this host, from what it has. What each line does: docs/tuning.md"
    );
    match format {
        Format::Sysctl => sysctl(&mut text, &lines),
        Format::Systemd => systemd(&mut text, &lines),
        Format::Udev => udev(&mut text, &lines),
        Format::Shell => shell(&mut text, &lines),
    }
    let absent: Vec<&Finding> =
        report.findings.iter().filter(|finding| finding.readings.is_empty()).collect();
    for finding in absent {
        if let Some(reason) = finding.state.reason() {
            let _ = writeln!(text, "# not here: {}: {reason}", finding.knob);
        }
    }
    text
}

fn lines(finding: &Finding) -> impl Iterator<Item = Line<'_>> {
    finding.readings.iter().filter_map(move |reading| {
        let found = reading.found.as_ref()?;
        Some(Line { finding, place: &found.setting.place, value: &found.after })
    })
}

/// Names the knobs of lines that a format cannot express.
fn elsewhere(text: &mut String, left: &[&Line<'_>]) {
    let mut knobs: Vec<&str> = left.iter().map(|line| line.finding.knob).collect();
    knobs.dedup();
    let mut line = "# in the other formats:".to_owned();
    for (place, knob) in knobs.iter().enumerate() {
        if line.len() + knob.len() > COMMENT_COLUMNS {
            let _ = writeln!(text, "{line}");
            line = "#  ".to_owned();
        }
        let comma = if place + 1 < knobs.len() { "," } else { "" };
        let _ = write!(line, " {knob}{comma}");
    }
    if !knobs.is_empty() {
        let _ = writeln!(text, "{line}");
    }
}

fn sysctl(text: &mut String, lines: &[Line<'_>]) {
    text.push_str("# Put it into /etc/sysctl.d/90-longhaul.conf, then: sysctl --system\n\n");
    let mut left = Vec::new();
    for line in lines {
        match line.place {
            Place::File(path) if sysctl_name(path).is_some() => {
                let _ = writeln!(text, "# {}", line.finding.what);
                let _ = writeln!(text, "{} = {}\n", line.place, line.value);
            }
            _ => left.push(line),
        }
    }
    elsewhere(text, &left);
}

fn systemd(text: &mut String, lines: &[Line<'_>]) {
    text.push_str(
        "# Put it into /etc/systemd/system/longhaul.service.d/limits.conf, then: systemctl daemon-reload, and\n\
         # restart the service\n\n[Service]\n",
    );
    let mut left = Vec::new();
    for line in lines {
        if let Place::Limit { systemd, .. } = line.place {
            let unlimited = line.value == u64::MAX.to_string();
            let value = if unlimited { "infinity" } else { line.value };
            let _ = writeln!(text, "# {}\n{systemd}={value}", line.finding.what);
        } else {
            left.push(line);
        }
    }
    text.push('\n');
    elsewhere(text, &left);
}

fn udev(text: &mut String, lines: &[Line<'_>]) {
    text.push_str(
        "# Put it into /etc/udev/rules.d/90-longhaul.rules, then: udevadm control --reload && udevadm trigger\n\n",
    );
    let mut rules: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let mut left = Vec::new();
    for line in lines {
        match line.place {
            Place::File(path) if device(path).is_some() => {
                let Some((subsystem, name, attribute)) = device(path) else { continue };
                let rule = rules.entry((subsystem, name)).or_default();
                rule.push(format!("ATTR{{{attribute}}}=\"{}\"", line.value));
            }
            _ => left.push(line),
        }
    }
    for ((subsystem, name), attributes) in rules {
        let _ = writeln!(
            text,
            "ACTION==\"add|change\", SUBSYSTEM==\"{subsystem}\", KERNEL==\"{name}\", {}",
            attributes.join(", ")
        );
    }
    text.push('\n');
    elsewhere(text, &left);
}

/// Subsystem, device and attribute of a file of sysfs.
fn device(path: &str) -> Option<(&'static str, &str, &str)> {
    [("sys/block/", "block"), ("sys/class/net/", "net"), ("sys/devices/system/cpu/", "cpu")]
        .into_iter()
        .find_map(|(folder, subsystem)| {
            let (name, attribute) = path.strip_prefix(folder)?.split_once('/')?;
            Some((subsystem, name, attribute))
        })
}

fn shell(text: &mut String, lines: &[Line<'_>]) {
    text.push_str(
        "# Run it as root at each start. Limits hold for the shell that reads it: . ./FILE\n\n\
         put() { echo \"$1\" > \"$2\" || echo \"longhaul: $2 is left as it is\" >&2; }\n",
    );
    let mut knob = "";
    for line in lines {
        if line.finding.knob != knob {
            knob = line.finding.knob;
            let _ = writeln!(text, "\n# {knob}: {}", line.finding.what);
        }
        let _ = match line.place {
            Place::File(path) => writeln!(text, "put '{}' /{path}", line.value),
            Place::Route(_) => writeln!(text, "ip route replace {}", line.value),
            Place::Limit { shell: (command, unit), .. } => match line.value.parse::<u64>() {
                Ok(count) if count < u64::MAX => {
                    writeln!(text, "{command} {}", count.div_ceil(*unit))
                }
                _ => writeln!(text, "{command} unlimited"),
            },
        };
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_sysfs_are_named_as_udev_names_them() {
        for (path, expected) in [
            ("sys/block/vda/queue/scheduler", Some(("block", "vda", "queue/scheduler"))),
            (
                "sys/class/net/eth0/queues/rx-0/rps_cpus",
                Some(("net", "eth0", "queues/rx-0/rps_cpus")),
            ),
            (
                "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor",
                Some(("cpu", "cpu3", "cpufreq/scaling_governor")),
            ),
            ("sys/kernel/mm/transparent_hugepage/enabled", None),
            ("proc/irq/7/smp_affinity_list", None),
        ] {
            assert_eq!(device(path), expected, "{path}");
        }
    }

    #[test]
    fn each_format_is_found_by_its_name_and_others_are_told() {
        for name in ["sysctl", "systemd", "udev", "shell"] {
            assert_eq!(name.parse::<Format>().unwrap().to_string(), name);
        }
        assert!("yaml".parse::<Format>().unwrap_err().to_string().contains("source"));
    }
}
