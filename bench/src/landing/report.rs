//! Medians and ranges of the runs, as text and for a machine.

use std::fmt;

use serde::Serialize;

/// Throughput the shipped landing must reach on warm segments, as a share of a raw receive's.
const THROUGHPUT_MIN: f64 = 0.70;
/// CPU it may cost, in multiples of a raw receive's.
const CPU_MAX: f64 = 1.6;

/// Share of a run's bytes that must be received in place for its segments to count as warm. The
/// bytes that arrive together with fields are copied.
const IN_PLACE_MIN: f64 = 0.9;

/// One run of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Run {
    pub(super) gigabytes: f64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) system_seconds: f64,
    /// Share of the record bytes that the kernel put where they stay.
    pub(super) in_place_share: f64,
}

/// Median, smallest and largest of all runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        let median = (at(last / 2) + at(last.div_ceil(2))) / 2.0;
        Self { median, min: at(0), max: at(last) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = formatter.precision().unwrap_or(2);
        write!(
            formatter,
            "{:.digits$} ({:.digits$} to {:.digits$})",
            self.median, self.min, self.max
        )
    }
}

/// What one way of receiving and landing cost.
#[derive(Clone, Debug, Serialize)]
pub struct WayReport {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
    /// GB (10^9 bytes of records) received, checked and published in a second.
    pub gigabytes_per_second: Spread,
    /// CPU seconds of the receiving thread for a GB, in the kernel and outside.
    pub cpu_seconds_per_gigabyte: Spread,
    /// The part of it in the kernel, as the kernel's clock ticks sampled it.
    pub system_seconds_per_gigabyte: Spread,
    /// Share of the record bytes that the kernel put where they stay.
    pub in_place_share: f64,
    /// Median throughput as a share of the raw receive's.
    pub throughput_of_raw: f64,
    /// Median CPU in multiples of the raw receive's.
    pub cpu_of_raw: f64,
}

/// Whether the landing that ships is cheap enough on warm segments.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Verdict {
    /// Least share of the raw receive's throughput.
    pub throughput_min: f64,
    /// The share reached.
    pub throughput: f64,
    /// Most CPU in multiples of the raw receive's.
    pub cpu_max: f64,
    /// The multiple taken.
    pub cpu: f64,
    /// Both kept, with warm segments at hand for nearly all bytes.
    pub kept: bool,
}

/// The benchmark's result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Kernel release.
    pub kernel: String,
    /// Processors this process may use.
    pub processors: usize,
    /// Bytes of records in one run.
    pub size_bytes: u64,
    /// Runs of each way, interleaved.
    pub repeats: usize,
    /// Each way.
    pub ways: Vec<WayReport>,
    /// The goal, and how far from it.
    pub verdict: Verdict,
}

/// A way and its runs. The raw receive is the first of all ways, the shipped landing is marked.
pub(super) struct WayRuns {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) shipped: bool,
    pub(super) runs: Vec<Run>,
}

impl Report {
    pub(super) fn new(size_bytes: u64, repeats: usize, ways: &[WayRuns]) -> Self {
        let spreads: Vec<[Spread; 3]> = ways.iter().map(|way| spreads(&way.runs)).collect();
        let raw = spreads.first().map(|[throughput, cpu, _]| (throughput.median, cpu.median));
        let (raw_throughput, raw_cpu) = raw.unwrap_or((f64::NAN, f64::NAN));
        let reports: Vec<WayReport> = ways
            .iter()
            .zip(&spreads)
            .map(|(way, [throughput, cpu, system])| WayReport {
                name: way.name,
                description: way.description,
                gigabytes_per_second: *throughput,
                cpu_seconds_per_gigabyte: *cpu,
                system_seconds_per_gigabyte: *system,
                in_place_share: Spread::of(way.runs.iter().map(|run| run.in_place_share).collect())
                    .median,
                throughput_of_raw: throughput.median / raw_throughput,
                cpu_of_raw: cpu.median / raw_cpu,
            })
            .collect();
        let shipped = ways.iter().position(|way| way.shipped).and_then(|at| reports.get(at));
        let throughput = shipped.map_or(f64::NAN, |way| way.throughput_of_raw);
        let cpu = shipped.map_or(f64::NAN, |way| way.cpu_of_raw);
        let warm = shipped.is_some_and(|way| way.in_place_share >= IN_PLACE_MIN);
        let verdict = Verdict {
            throughput_min: THROUGHPUT_MIN,
            throughput,
            cpu_max: CPU_MAX,
            cpu,
            kept: warm && throughput >= THROUGHPUT_MIN && cpu <= CPU_MAX,
        };
        Self {
            kernel: dataplane::ring::kernel_release(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            size_bytes,
            repeats,
            ways: reports,
            verdict,
        }
    }
}

fn spreads(runs: &[Run]) -> [Spread; 3] {
    let spread = |value: fn(&Run) -> f64| Spread::of(runs.iter().map(value).collect());
    [
        spread(|run| run.gigabytes / run.seconds),
        spread(|run| run.cpu_seconds / run.gigabytes),
        spread(|run| run.system_seconds / run.gigabytes),
    ]
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "Receive and land over loopback: {:.2} GB of records a run, {} runs of each way, \
             interleaved; Linux {}, {} processors.\n\
             Median (range). CPU is that of the receiving thread.\n",
            self.size_bytes as f64 / 1e9,
            self.repeats,
            self.kernel,
            self.processors
        )?;
        writeln!(
            formatter,
            "{:<14} {:>21} {:>6} {:>24} {:>6} {:>24} {:>8}",
            "way", "GB/s", "of raw", "CPU s/GB", "of raw", "of it in the kernel", "in place"
        )?;
        for way in &self.ways {
            writeln!(
                formatter,
                "{:<14} {:>21} {:>5.0}% {:>24} {:>5.2}x {:>24} {:>7.0}%",
                way.name,
                format!("{:.2}", way.gigabytes_per_second),
                way.throughput_of_raw * 100.0,
                format!("{:.3}", way.cpu_seconds_per_gigabyte),
                way.cpu_of_raw,
                format!("{:.3}", way.system_seconds_per_gigabyte),
                way.in_place_share * 100.0,
            )?;
        }
        writeln!(formatter)?;
        for way in &self.ways {
            writeln!(formatter, "{:<14} {}", way.name, way.description)?;
        }
        let verdict = &self.verdict;
        write!(
            formatter,
            "\nThe landing that ships, on warm segments: {:.0} % of the raw receive's throughput \
             (at least {:.0} %) and {:.2} times its CPU (at most {:.1}): {}",
            verdict.throughput * 100.0,
            verdict.throughput_min * 100.0,
            verdict.cpu,
            verdict.cpu_max,
            if verdict.kept { "kept" } else { "MISSED" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(name: &'static str, shipped: bool, runs: &[(f64, f64)]) -> WayRuns {
        let runs = runs
            .iter()
            .map(|&(seconds, cpu_seconds)| Run {
                gigabytes: 2.0,
                seconds,
                cpu_seconds,
                system_seconds: cpu_seconds / 2.0,
                in_place_share: 1.0,
            })
            .collect();
        WayRuns { name, description: "", shipped, runs }
    }

    #[test]
    fn medians_are_compared_with_the_raw_receive() {
        let ways = [
            way("raw", false, &[(1.0, 0.2), (2.0, 0.4), (0.5, 0.3)]),
            way("warm", true, &[(1.25, 0.45), (1.25, 0.45), (9.0, 9.0)]),
        ];
        let report = Report::new(2_000_000_000, 3, &ways);
        let raw = &report.ways[0];
        assert_eq!(raw.gigabytes_per_second, Spread { median: 2.0, min: 1.0, max: 4.0 });
        assert!((raw.cpu_seconds_per_gigabyte.median - 0.15).abs() < 1e-9);
        assert!((report.verdict.throughput - 0.8).abs() < 1e-9);
        assert!((report.verdict.cpu - 1.5).abs() < 1e-9);
        assert!(report.verdict.kept);
    }

    #[test]
    fn a_landing_that_costs_too_much_misses_the_goal() {
        let raw = || way("raw", false, &[(1.0, 0.2)]);
        let slow = Report::new(1, 1, &[raw(), way("warm", true, &[(1.5, 0.2)])]);
        assert!(!slow.verdict.kept);
        let dear = Report::new(1, 1, &[raw(), way("warm", true, &[(1.0, 0.33)])]);
        assert!(!dear.verdict.kept);
        assert!(dear.to_string().contains("MISSED"));
        let mut copied = way("warm", true, &[(1.0, 0.2)]);
        copied.runs[0].in_place_share = 0.5;
        let cold = Report::new(1, 1, &[raw(), copied]);
        assert!(!cold.verdict.kept, "no warm segment was used");
        let none = Report::new(1, 1, &[raw()]);
        assert!(!none.verdict.kept, "nothing measured is nothing kept");
    }
}
