//! What a path did, and whether what was measured over it is a result.
//!
//! Owns no state. Must never call a run valid on which the machine, not the path, decided.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::lane::Numbers;
use super::link::LinkCounts;
use super::namespace::Counters;
use super::settings::PathSettings;
use crate::run::others;

/// Of the round trip: what a hundredth of the packets may be later than due.
const LATENESS_SHARE_MAX: f64 = 0.05;
/// Below it lateness spoils nothing, however short the round trip: the wake-up of a thread on a machine at work.
const LATENESS_ALLOWED_MIN: Duration = Duration::from_millis(1);

/// Of TCP's memory that comes without pressure: what may be in use when a run begins.
const MEMORY_BEFORE_MAX: f64 = 0.5;

/// From the opening of the path, or the last restart of its counts, to now.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    /// As they are now.
    pub settings: PathSettings,
    /// How long it was counted.
    pub seconds: f64,
    /// Where the data goes.
    pub source_to_destination: DirectionReport,
    /// Where the acknowledgements go.
    pub destination_to_source: DirectionReport,
    /// How much later than due packets were delivered, of both directions; `None` with netem, which does not say.
    pub lateness: Option<Lateness>,
    /// The share of all processors that programs took which have nothing to do with the path; `None` within the first
    /// second.
    pub others_share: Option<f64>,
    /// Packets that a device's own queue had no room for, before the emulator saw them.
    pub device_dropped: u64,
    /// How often TCP's memory of the whole machine ran short.
    pub tcp_memory_pressures: u64,
    /// How often a TCP receive queue was trimmed for it.
    pub tcp_pruned: u64,
    /// Whether this is a result.
    pub validity: Validity,
}

/// One direction of the path.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionReport {
    /// What it did, in packets as they would be on a wire.
    #[serde(flatten)]
    pub counts: LinkCounts,
    /// Packets that there was no memory for.
    pub memory_dropped: u64,
    /// Packets that the receiving device did not take.
    pub refused: u64,
    /// Pieces of packets that were cut, for a loss or for being late.
    pub cuts: u64,
    /// Processor time of the emulator's thread, in which the kernel also does the receiver's TCP work.
    pub cpu_seconds: f64,
    /// Memory for packets under way.
    pub memory_bytes: u64,
}

/// How much later than due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// Of half of the packets, in milliseconds.
    pub p50_ms: f64,
    /// Of all but a hundredth.
    pub p99_ms: f64,
    /// Of the latest.
    pub max_ms: f64,
}

/// Whether what was measured is a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Validity {
    /// The path was what it was set to.
    Valid,
    /// It was not, and why.
    Invalid(String),
}

/// Everything a report is made from.
pub(super) struct Evidence {
    pub(super) settings: PathSettings,
    pub(super) elapsed: Duration,
    pub(super) others_share: Option<f64>,
    /// Of TCP's memory that was in use when the counts began, 1 for all that comes without pressure.
    pub(super) memory_before: Option<f64>,
    pub(super) carried: Carried,
    /// Since the counts began, of both namespaces.
    pub(super) kernel: Counters,
}

/// What was carried since the counts began.
pub(super) struct Carried {
    pub(super) outward: DirectionReport,
    pub(super) homeward: DirectionReport,
    /// In nanoseconds, of both directions; `None` where it is not known.
    pub(super) lateness: Option<Histogram<u64>>,
    /// Why the path has failed, if it has.
    pub(super) failure: Option<String>,
}

impl PathReport {
    pub(super) fn new(evidence: Evidence) -> Self {
        let Evidence { settings, elapsed, others_share, memory_before, carried, kernel } = evidence;
        let mut report = Self {
            settings,
            seconds: elapsed.as_secs_f64(),
            source_to_destination: carried.outward,
            destination_to_source: carried.homeward,
            lateness: carried.lateness.as_ref().map(Lateness::new),
            others_share,
            device_dropped: kernel.device_dropped,
            tcp_memory_pressures: kernel.memory_pressures,
            tcp_pruned: kernel.pruned,
            validity: Validity::Valid,
        };
        let spoilt = carried.failure.or_else(|| report.spoilt_by());
        if let Some(reason) = spoilt.or_else(|| memory_before.and_then(memory_taken)) {
            report.validity = Validity::Invalid(reason);
        }
        report
    }

    /// Whether this is a result.
    pub fn is_valid(&self) -> bool {
        self.validity == Validity::Valid
    }

    fn spoilt_by(&self) -> Option<String> {
        let round_trip_ms = self.settings.round_trip().as_secs_f64() * 1e3;
        let allowed_ms =
            (round_trip_ms * LATENESS_SHARE_MAX).max(LATENESS_ALLOWED_MIN.as_secs_f64() * 1e3);
        if let Some(lateness) = self.lateness
            && lateness.p99_ms > allowed_ms
        {
            return Some(format!(
                "the machine was busy: one packet in a hundred was {:.1} ms or more late, and {allowed_ms:.1} ms are \
                 allowed; run it again with nothing else running",
                lateness.p99_ms
            ));
        }
        if let Some(reason) = self.others_share.and_then(others::spoilt) {
            return Some(reason);
        }
        let both = |count: fn(&DirectionReport) -> u64| {
            count(&self.source_to_destination) + count(&self.destination_to_source)
        };
        let memory_dropped = both(|direction| direction.memory_dropped);
        if memory_dropped > 0 {
            return Some(format!(
                "{memory_dropped} packets found the emulator's memory full; set a rate, or a shorter delay"
            ));
        }
        if self.device_dropped > 0 {
            return Some(format!(
                "the machine was busy: {} packets were dropped before the emulator could read them; run it again with \
                 nothing else running, or at a lower rate",
                self.device_dropped
            ));
        }
        let refused = both(|direction| direction.refused);
        if refused > 0 {
            return Some(format!(
                "{refused} packets were not taken by the receiving device; was it switched off?"
            ));
        }
        if self.tcp_memory_pressures > 0 || self.tcp_pruned > 0 {
            return Some(format!(
                "this machine's TCP memory ran short ({} times, {} queues trimmed); use fewer connections, smaller \
                 buffers, or raise net.ipv4.tcp_mem",
                self.tcp_memory_pressures, self.tcp_pruned
            ));
        }
        None
    }
}

/// While TCP's memory is short the kernel does not say so again, and holds buffers small.
fn memory_taken(share: f64) -> Option<String> {
    (share > MEMORY_BEFORE_MAX).then(|| {
        format!(
            "this machine's TCP memory was taken when it began ({:.0} % of what comes without pressure): connections of \
             an earlier run still hold it; wait a minute and run it again",
            share * 100.0
        )
    })
}

impl DirectionReport {
    /// What the kernel counted, which is all that it tells.
    pub(super) fn of_kernel(counts: LinkCounts) -> Self {
        Self { counts, memory_dropped: 0, refused: 0, cuts: 0, cpu_seconds: 0.0, memory_bytes: 0 }
    }

    pub(super) fn new(numbers: &Numbers) -> Self {
        Self {
            counts: numbers.link,
            memory_dropped: numbers.memory_dropped,
            refused: numbers.refused,
            cuts: numbers.cuts,
            cpu_seconds: numbers.cpu().as_secs_f64(),
            memory_bytes: numbers.capacity,
        }
    }
}

impl Lateness {
    fn new(nanoseconds: &Histogram<u64>) -> Self {
        if nanoseconds.is_empty() {
            return Self::default();
        }
        let at = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1e6;
        Self { p50_ms: at(0.5), p99_ms: at(0.99), max_ms: nanoseconds.max() as f64 / 1e6 }
    }
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "path      {}", self.settings)?;
        direction(f, "data", &self.source_to_destination, self.seconds)?;
        direction(f, "return", &self.destination_to_source, self.seconds)?;
        match self.lateness {
            Some(Lateness { p50_ms, p99_ms, max_ms }) => {
                writeln!(
                    f,
                    "lateness  half {p50_ms:.3} ms, 99 % {p99_ms:.3} ms, most {max_ms:.3} ms"
                )?;
            }
            None => writeln!(f, "lateness  not known: the kernel's netem moved the packets")?,
        }
        if let Some(share) = self.others_share {
            writeln!(f, "others    took {:.0} % of the processors", share * 100.0)?;
        }
        match &self.validity {
            Validity::Valid => write!(f, "valid     the path was what it was set to"),
            Validity::Invalid(reason) => write!(f, "INVALID   no result: {reason}"),
        }
    }
}

fn direction(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    report: &DirectionReport,
    seconds: f64,
) -> fmt::Result {
    let counts = report.counts;
    let rate = counts.bytes as f64 * 8.0 / seconds.max(1e-9) / 1e6;
    write!(
        f,
        "{name:<9} {} packets, {:.1} MB in {seconds:.1} s ({rate:.1} Mbit/s)",
        counts.packets,
        counts.bytes as f64 / 1e6
    )?;
    let parts = [
        ("lost", counts.lost),
        ("found the queue full", counts.queue_dropped),
        ("while down", counts.down_dropped),
        ("late", counts.reordered),
        ("without memory", report.memory_dropped),
        ("refused", report.refused),
    ];
    for (what, count) in parts {
        if count > 0 {
            write!(
                f,
                ", {count} {what} ({:.3} %)",
                count as f64 * 100.0 / counts.packets.max(1) as f64
            )?;
        }
    }
    writeln!(f, "; {:.2} s of processor", report.cpu_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::lane::lateness_histogram;

    /// Of a path with a round trip of 100 ms.
    fn report(spoil: impl FnOnce(&mut Evidence)) -> PathReport {
        let counts =
            LinkCounts { packets: 1_000, bytes: 1_500_000, lost: 10, ..LinkCounts::default() };
        let direction = || DirectionReport::of_kernel(counts);
        let mut lateness = lateness_histogram();
        lateness.record_n(200_000, 990).unwrap();
        let carried = Carried {
            outward: direction(),
            homeward: direction(),
            lateness: Some(lateness),
            failure: None,
        };
        let mut evidence = Evidence {
            settings: PathSettings::default(),
            elapsed: Duration::from_secs(10),
            others_share: Some(0.02),
            memory_before: Some(0.1),
            carried,
            kernel: Counters::default(),
        };
        spoil(&mut evidence);
        PathReport::new(evidence)
    }

    #[test]
    fn a_quiet_run_is_valid_and_says_what_happened() {
        let text = report(|_| {}).to_string();
        assert!(text.contains("1000 packets") && text.contains("10 lost (1.000 %)"), "{text}");
        assert!(
            text.contains("half 0.2") && text.ends_with("the path was what it was set to"),
            "{text}"
        );
    }

    #[test]
    fn each_way_to_spoil_a_run_has_its_sentence() {
        type Spoil = fn(&mut Evidence);
        let ways: [(&str, Spoil); 9] = [
            ("a hundred was", |evidence| {
                let lateness = evidence.carried.lateness.as_mut().unwrap();
                lateness.record_n(6_000_000, 50).unwrap();
            }),
            ("other programs took 40 %", |evidence| evidence.others_share = Some(0.4)),
            ("memory full", |evidence| evidence.carried.homeward.memory_dropped = 1),
            ("before the emulator could read", |evidence| evidence.kernel.device_dropped = 1),
            ("receiving device", |evidence| evidence.carried.outward.refused = 1),
            ("TCP memory ran short", |evidence| evidence.kernel.memory_pressures = 1),
            ("TCP memory ran short", |evidence| evidence.kernel.pruned = 1),
            ("memory was taken when it began", |evidence| evidence.memory_before = Some(0.9)),
            ("it broke", |evidence| evidence.carried.failure = Some("it broke".to_owned())),
        ];
        for (words, spoil) in ways {
            let report = report(spoil);
            assert!(!report.is_valid(), "{words}");
            assert!(report.to_string().contains(words), "{words} not in {report}");
        }
    }

    #[test]
    fn lateness_is_judged_by_the_round_trip() {
        let late = |round_trip: Duration| {
            report(|evidence| {
                evidence.settings.delay = round_trip / 2;
                evidence.carried.lateness.as_mut().unwrap().record_n(4_000_000, 50).unwrap();
            })
        };
        assert!(late(Duration::from_millis(100)).is_valid());
        assert!(!late(Duration::from_millis(50)).is_valid());
    }
}
