//! Whether the landing that ships is cheap enough, next to the raw receive of the same run.

use std::fmt;

use super::{IN_PLACE, RAW, RAW_SPREAD, SHIPPED, THROUGHPUT};
use crate::run::{Case, Row};

/// Throughput the shipped landing must reach on warm segments, as a share of a raw receive's.
const THROUGHPUT_MIN: f64 = 0.70;
/// CPU it may cost, in multiples of a raw receive's.
const CPU_MAX: f64 = 1.6;
/// Share of a run's bytes, in percent, that must be received in place for its segments to count as
/// warm. The bytes that arrive together with fields are copied.
const IN_PLACE_MIN: f64 = 90.0;

/// What the shipped landing reached on warm segments. Not a number where a row is missing.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// Median throughput as a share of the raw receive's.
    pub throughput: f64,
    /// Median CPU for a GB in multiples of the raw receive's.
    pub cpu: f64,
    /// The same in multiples of a raw receive's into memory as large as a segment. No goal: it tells how much of
    /// the cost is that of memory.
    pub cpu_of_spread: f64,
    /// How the first two compare with the goals.
    pub outcome: Outcome,
}

/// What is to be said of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Reached, with warm segments at hand for nearly all bytes.
    Kept,
    /// Not reached.
    Missed,
    /// A figure is missing.
    Unknown,
}

impl Verdict {
    /// Compares the rows of the case.
    #[must_use]
    pub fn of(case: &Case) -> Self {
        let row = |name| case.rows.iter().find(|row| row.subject == name);
        let median = |name, figure| {
            row(name).and_then(|row| row.figure(figure)).map_or(f64::NAN, |spread| spread.median)
        };
        let cpu = |name| {
            let spread = row(name).and_then(Row::cpu_seconds_per_gigabyte);
            spread.map_or(f64::NAN, |spread| spread.median)
        };
        let throughput = median(SHIPPED, THROUGHPUT) / median(RAW, THROUGHPUT);
        let (cpu, cpu_of_spread) = (cpu(SHIPPED) / cpu(RAW), cpu(SHIPPED) / cpu(RAW_SPREAD));
        let warm = median(SHIPPED, IN_PLACE) >= IN_PLACE_MIN;
        let outcome = if throughput.is_nan() || cpu.is_nan() {
            Outcome::Unknown
        } else if warm && throughput >= THROUGHPUT_MIN && cpu <= CPU_MAX {
            Outcome::Kept
        } else {
            Outcome::Missed
        };
        Self { throughput, cpu, cpu_of_spread, outcome }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.outcome == Outcome::Unknown {
            return formatter.write_str(
                "Nothing is said of the landing that ships: the runs failed or were too short to tell; use a larger \
                 --size",
            );
        }
        write!(
            formatter,
            "The landing that ships, on warm segments: {:.0} % of the raw receive's throughput \
             (at least {:.0} %) and {:.2} times its CPU (at most {CPU_MAX:.1}): {}. \
             Of the CPU of a raw receive into as much memory as a segment: {:.2} times",
            self.throughput * 100.0,
            THROUGHPUT_MIN * 100.0,
            self.cpu,
            if self.outcome == Outcome::Kept { "kept" } else { "MISSED" },
            self.cpu_of_spread
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Figure, ProcessCost, Sample};

    fn row(subject: &str, runs: &[(f64, f64)], in_place: f64) -> Row {
        let sample = |&(seconds, cpu): &(f64, f64)| Sample {
            figures: vec![
                Figure::new(THROUGHPUT, "GB/s", 2.0 / seconds),
                Figure::new(IN_PLACE, "%", in_place),
            ],
            processes: vec![ProcessCost {
                name: "receiving thread".to_owned(),
                user_seconds: cpu / 2.0,
                system_seconds: cpu / 2.0,
                memory_bytes_max: 0,
            }],
            bytes: 2_000_000_000,
            ..Sample::default()
        };
        let samples = runs.iter().map(sample).collect();
        Row { subject: subject.to_owned(), ours: false, samples, failures: Vec::new() }
    }

    fn verdict(rows: Vec<Row>) -> Verdict {
        Verdict::of(&Case { name: String::new(), rows })
    }

    #[test]
    fn medians_are_compared_with_the_raw_receive() {
        let verdict = verdict(vec![
            row(RAW, &[(1.0, 0.2), (2.0, 0.4), (0.5, 0.3)], 0.0),
            row(SHIPPED, &[(1.25, 0.45), (1.25, 0.45), (9.0, 9.0)], 98.0),
        ]);
        assert!((verdict.throughput - 0.8).abs() < 1e-9, "{verdict:?}");
        assert!((verdict.cpu - 1.5).abs() < 1e-9, "{verdict:?}");
        assert_eq!(verdict.outcome, Outcome::Kept);
    }

    #[test]
    fn a_landing_that_costs_too_much_misses_the_goal() {
        let against = |shipped| verdict(vec![row(RAW, &[(1.0, 0.2)], 0.0), shipped]);
        let missed = |shipped| against(shipped).outcome == Outcome::Missed;
        assert!(missed(row(SHIPPED, &[(1.5, 0.2)], 98.0)), "too slow");
        assert!(missed(row(SHIPPED, &[(1.0, 0.33)], 98.0)), "too dear");
        assert!(missed(row(SHIPPED, &[(1.0, 0.2)], 50.0)), "no warm segment was used");
        let dear = against(row(SHIPPED, &[(1.0, 0.33)], 98.0)).to_string();
        assert!(dear.contains("MISSED"), "{dear}");
    }

    #[test]
    fn without_figures_nothing_is_said_of_the_goal() {
        let short = row(SHIPPED, &[(0.01, 0.001)], 98.0);
        for shipped in [short, row("other", &[], 0.0)] {
            let verdict = verdict(vec![row(RAW, &[(1.0, 0.2)], 0.0), shipped]);
            assert_eq!(verdict.outcome, Outcome::Unknown);
            assert!(verdict.to_string().contains("larger --size"), "{verdict}");
        }
    }
}
