//! What every benchmark produces: a [`Run`] of cases, in each case rows of subjects measured in turn.
//!
//! Plain data with its medians and ranges, written as `run.json` and read back by the report. Knows
//! nothing of what was measured or how; the benchmarks fill it from one thread.

mod busy;
mod cost;
mod files;
mod machine;
pub(crate) mod others;
mod series;
mod session;
mod spread;
mod stat;
mod storage_wait;
mod text;

use serde::{Deserialize, Serialize};

pub use busy::{BusyThread, BusyWatch};
pub use cost::{CostWatch, ProcessCost};
pub(crate) use cost::{TOO_SHORT, is_too_short};
pub(crate) use files::free_bytes;
pub use files::{FileError, Place, check_writable, read, replace, write};
pub use machine::Machine;
pub use series::{NamedHistogram, Series};
pub use session::{Session, Subject, SubjectError};
pub use spread::Spread;
pub(crate) use stat::{Stat, TICKS_PER_SECOND};

/// Version of the `run.json` this program writes and reads.
pub const FORMAT: u32 = 1;

/// One benchmark's results.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// The subcommand, such as `wan`.
    pub bench: String,
    /// The question it answers.
    pub question: String,
    /// The command line that repeats it.
    pub command: String,
    /// When it began, in milliseconds since 1970, UTC.
    pub started_ms: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Where it ran.
    pub machine: Machine,
    /// Each condition measured.
    pub cases: Vec<Case>,
    /// What was asked for or usual and was not measured, each with the reason.
    pub left_out: Vec<String>,
    /// Whether it was ended before all was measured.
    pub interrupted: bool,
}

/// Subjects side by side under one condition.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    /// The condition, such as `1 partition, 1 Gbit/s, 100 ms, 0.1 % loss`.
    pub name: String,
    /// Each subject.
    pub rows: Vec<Row>,
}

/// One subject's samples under one condition.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Who, such as `Longhaul` or `raw TCP, 1 flow`.
    pub subject: String,
    /// Whether it is Longhaul and not a peer.
    pub ours: bool,
    /// Each repeat that ran to its end, in order.
    pub samples: Vec<Sample>,
    /// Why repeats did not run to their end.
    pub failures: Vec<String>,
}

/// One repeat of one subject.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// What was measured, in the order it is to be shown. Every sample of a row has the same names.
    pub figures: Vec<Figure>,
    /// What each process spent, the subject's own first.
    pub processes: Vec<ProcessCost>,
    /// Bytes the costs are divided by; 0 when no bytes were moved.
    pub bytes: u64,
    /// The whole machine's time in soft interrupts meanwhile, in seconds: most of the network stack.
    pub softirq_seconds: f64,
    /// What was compared with the source, in words; nothing when the subject keeps nothing.
    pub checked: Option<String>,
    /// What bound it.
    pub limit: Option<Limit>,
    /// Why it is no result, such as a busy machine; nothing when it is one.
    pub invalid: Option<String>,
    /// Values over time.
    pub series: Vec<Series>,
    /// Distributions.
    pub histograms: Vec<NamedHistogram>,
}

/// One number of a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Figure {
    /// What it is, such as `throughput`.
    pub name: String,
    /// Its unit, such as `MB/s`.
    pub unit: String,
    /// The value.
    pub value: f64,
}

/// What bound a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// The kind of limit.
    pub by: LimitKind,
    /// How that was seen, in words and figures.
    pub evidence: String,
}

/// The kinds of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitKind {
    /// The path's rate: nothing is left to gain on this link.
    Link,
    /// The receiver's window.
    Window,
    /// Packet loss, through congestion control.
    Loss,
    /// The source's send buffer.
    SendBuffer,
    /// Writing or reading files.
    Disk,
    /// The source did not offer more.
    Source,
    /// A processor was full.
    Cpu,
    /// Waiting for single answers: too few requests under way.
    RoundTrips,
    /// The reader of the subject's output did not take more.
    Consumer,
    /// None of the known ones could be shown.
    Unknown,
}

impl LimitKind {
    /// The word for it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Link => "link rate",
            Self::Window => "receive window",
            Self::Loss => "packet loss",
            Self::SendBuffer => "source's send buffer",
            Self::Disk => "disk",
            Self::Source => "source",
            Self::Cpu => "CPU",
            Self::RoundTrips => "round trips",
            Self::Consumer => "consumer",
            Self::Unknown => "not found",
        }
    }
}

impl Figure {
    /// A figure.
    #[must_use]
    pub fn new(name: &str, unit: &str, value: f64) -> Self {
        Self { name: name.to_owned(), unit: unit.to_owned(), value }
    }
}

impl Limit {
    /// A limit and how it was seen.
    pub fn new(by: LimitKind, evidence: impl Into<String>) -> Self {
        Self { by, evidence: evidence.into() }
    }
}

impl Sample {
    /// CPU seconds of the subject's own process for a GB (10^9 bytes); nothing without bytes or process.
    #[must_use]
    pub fn cpu_seconds_per_gigabyte(&self) -> Option<f64> {
        let own = self.processes.first()?;
        (self.bytes > 0).then(|| own.seconds() / (self.bytes as f64 / 1e9))
    }
}

impl Row {
    /// Samples that are results: all that are not spoilt.
    pub fn valid(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|sample| sample.invalid.is_none())
    }

    /// Names and units of the figures, in order.
    #[must_use]
    pub fn figure_names(&self) -> Vec<(String, String)> {
        let first = self.samples.first().map_or(&[][..], |sample| &sample.figures);
        first.iter().map(|figure| (figure.name.clone(), figure.unit.clone())).collect()
    }

    /// Median and range of the figure over valid samples.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<Spread> {
        let values = self.valid().filter_map(|sample| {
            sample.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
        });
        Spread::of(values)
    }

    /// Median and range of the subject's own CPU seconds for a GB; nothing when they are too few to tell.
    #[must_use]
    pub fn cpu_seconds_per_gigabyte(&self) -> Option<Spread> {
        self.own_cpu(ProcessCost::seconds)
    }

    /// The part of them in the kernel.
    #[must_use]
    pub fn system_seconds_per_gigabyte(&self) -> Option<Spread> {
        self.own_cpu(|own| own.system_seconds)
    }

    /// Whether a sample spent less on its bytes than the clock's ticks can tell.
    #[must_use]
    pub fn cpu_is_too_short(&self) -> bool {
        self.own_costs().any(|(_, own)| is_too_short(own.seconds()))
    }

    fn own_cpu(&self, seconds: impl Fn(&ProcessCost) -> f64) -> Option<Spread> {
        if self.cpu_is_too_short() {
            return None;
        }
        Spread::of(self.own_costs().map(|(gigabytes, own)| seconds(own) / gigabytes))
    }

    /// GB and costs of the subject's own process, of valid samples that moved bytes.
    fn own_costs(&self) -> impl Iterator<Item = (f64, &ProcessCost)> {
        let moved = self.valid().filter(|sample| sample.bytes > 0);
        moved.filter_map(|sample| Some((sample.bytes as f64 / 1e9, sample.processes.first()?)))
    }

    /// The limit most of the valid samples had; of several as frequent, the first.
    #[must_use]
    pub fn limit(&self) -> Option<&Limit> {
        let limits: Vec<&Limit> = self.valid().filter_map(|sample| sample.limit.as_ref()).collect();
        let count = |kind| limits.iter().filter(|limit| limit.by == kind).count();
        let most = limits.iter().map(|limit| count(limit.by)).max()?;
        limits.iter().find(|limit| count(limit.by) == most).copied()
    }
}

impl Run {
    /// Whether everything that was begun ended well: nothing interrupted, no failure, and for every row
    /// a valid sample.
    #[must_use]
    pub fn complete(&self) -> bool {
        let mut rows = self.cases.iter().flat_map(|case| &case.rows);
        !self.interrupted && rows.all(|row| row.failures.is_empty() && row.valid().next().is_some())
    }

    /// The last line: what bound our row in each case.
    #[must_use]
    pub fn bound_by(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for case in &self.cases {
            let Some(limit) = case.rows.iter().filter(|row| row.ours).find_map(Row::limit) else {
                continue;
            };
            parts.push(format!("{}: {} ({})", case.name, limit.by.words(), limit.evidence));
        }
        if parts.is_empty() {
            "bound by: nothing could be shown".to_owned()
        } else {
            format!("bound by: {}", parts.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: f64, invalid: Option<&str>, by: LimitKind) -> Sample {
        Sample {
            figures: vec![Figure::new("throughput", "MB/s", value)],
            limit: Some(Limit::new(by, "seen")),
            invalid: invalid.map(str::to_owned),
            ..Sample::default()
        }
    }

    fn row(samples: Vec<Sample>) -> Row {
        Row { subject: "Longhaul".to_owned(), ours: true, samples, failures: Vec::new() }
    }

    #[test]
    fn a_spoilt_sample_counts_for_nothing() {
        let row = row(vec![
            sample(1.0, None, LimitKind::Loss),
            sample(100.0, Some("busy"), LimitKind::Cpu),
            sample(3.0, None, LimitKind::Loss),
        ]);
        let spread = row.figure("throughput").unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(row.limit().unwrap().by, LimitKind::Loss);
        assert!(row.figure("latency").is_none());
    }

    #[test]
    fn processor_time_below_the_clocks_resolution_is_no_figure() {
        let spent = |user_seconds, system_seconds| Sample {
            processes: vec![ProcessCost {
                name: "node".to_owned(),
                user_seconds,
                system_seconds,
                memory_bytes_max: 0,
            }],
            bytes: 1_000_000_000,
            ..Sample::default()
        };
        let long = row(vec![spent(0.4, 0.02), spent(0.4, 0.04)]);
        assert!(!long.cpu_is_too_short());
        assert!((long.cpu_seconds_per_gigabyte().unwrap().median - 0.43).abs() < 1e-9);
        assert!((long.system_seconds_per_gigabyte().unwrap().median - 0.03).abs() < 1e-9);
        let short = row(vec![spent(0.4, 0.04), spent(0.0, 0.01)]);
        assert!(short.cpu_is_too_short());
        assert_eq!(short.cpu_seconds_per_gigabyte(), None);
        assert_eq!(short.system_seconds_per_gigabyte(), None);
        assert!(!row(vec![sample(1.0, None, LimitKind::Cpu)]).cpu_is_too_short());
    }

    #[test]
    fn a_run_with_nothing_valid_in_a_row_is_not_complete() {
        let mut run = Run {
            format: FORMAT,
            bench: "wan".to_owned(),
            question: String::new(),
            command: String::new(),
            started_ms: 0,
            seconds: 1.0,
            machine: Machine::read(),
            cases: vec![Case {
                name: "1 partition".to_owned(),
                rows: vec![row(vec![sample(1.0, None, LimitKind::Link)])],
            }],
            left_out: Vec::new(),
            interrupted: false,
        };
        assert!(run.complete());
        assert_eq!(run.bound_by(), "bound by: 1 partition: link rate (seen)");
        run.cases[0].rows.push(row(vec![sample(1.0, Some("busy"), LimitKind::Link)]));
        assert!(!run.complete());
        let text = serde_json::to_string(&run).unwrap();
        let back: Run = serde_json::from_str(&text).unwrap();
        assert_eq!(
            back.cases[0].rows[0].figure("throughput"),
            run.cases[0].rows[0].figure("throughput")
        );
    }
}
