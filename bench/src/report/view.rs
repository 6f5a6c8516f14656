//! A run in the shape in which it is shown: rows with medians, distributions side by side, lines over time.
//!
//! Only valid samples count; spoilt ones are named with their reason. A run with holes gives a view with
//! holes.

use hdrhistogram::Histogram;

use super::encoding;
use crate::run::{Case, Row, Run, Spread, is_too_short};

/// Lines of one row in one chart: beyond, repeats hide each other.
const LINES_OF_A_ROW_MAX: usize = 5;
/// Words at the end of a series' name that say which of several lines of one thing it is.
const LINE_WORDS: [&str; 9] = ["p50", "p90", "p95", "p99", "p99.9", "median", "mean", "min", "max"];
/// Percentiles of a table.
pub(super) const PERCENTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// A condition.
pub(super) struct CaseView<'a> {
    pub(super) case: &'a Case,
    /// Every figure of any row: name and unit.
    pub(super) figures: Vec<(String, String)>,
    /// Every distribution that is not of one core alone.
    pub(super) distributions: Vec<Distribution>,
    /// Distributions of single cores.
    pub(super) cores: Vec<CoreRow>,
    /// Everything over time.
    pub(super) over_time: Vec<OverTime>,
}

/// One measure of several rows.
pub(super) struct Distribution {
    pub(super) name: String,
    /// Index of the row, and its valid samples together.
    pub(super) rows: Vec<(usize, Histogram<u64>)>,
}

/// One core of one row.
pub(super) struct CoreRow {
    pub(super) row: usize,
    pub(super) core: String,
    /// Measure, and its distribution.
    pub(super) measures: Vec<(String, Histogram<u64>)>,
}

/// One thing over time.
pub(super) struct OverTime {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) lines: Vec<Line>,
}

/// A line of it.
pub(super) struct Line {
    pub(super) row: usize,
    /// Which of several lines of this row, such as `p99`; empty when there is one.
    pub(super) word: String,
    /// Whether it is the first valid repeat; later ones are drawn fainter.
    pub(super) first: bool,
    pub(super) points: Vec<(f64, f64)>,
}

impl<'a> CaseView<'a> {
    /// Of a case.
    pub(super) fn of(case: &'a Case) -> Self {
        let mut figures = Vec::new();
        for figure in case.rows.iter().flat_map(Row::figure_names) {
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        }
        let mut view = Self {
            case,
            figures,
            distributions: Vec::new(),
            cores: Vec::new(),
            over_time: Vec::new(),
        };
        for (index, row) in case.rows.iter().enumerate() {
            view.add_histograms(index, row);
            view.add_series(index, row);
        }
        view
    }

    /// How long the longest line lasts: charts of a case share their axis.
    pub(super) fn seconds(&self) -> f64 {
        let lines = self.over_time.iter().flat_map(|chart| &chart.lines);
        lines.flat_map(|line| &line.points).map(|point| point.0).fold(0.0, f64::max)
    }

    fn add_histograms(&mut self, index: usize, row: &Row) {
        for named in row.valid().flat_map(|sample| &sample.histograms) {
            if named.histogram.is_empty() {
                continue;
            }
            let total = match core_of(&named.name) {
                Some((core, measure)) => self.core_measure(index, core, measure),
                None => self.measure(index, &named.name),
            };
            // The sum grows with what is added, so nothing is out of its range.
            let _ = total.add(&named.histogram);
        }
    }

    fn measure(&mut self, row: usize, name: &str) -> &mut Histogram<u64> {
        let known = self.distributions.iter().position(|one| one.name == name);
        let at = known.unwrap_or_else(|| {
            self.distributions.push(Distribution { name: name.to_owned(), rows: Vec::new() });
            self.distributions.len() - 1
        });
        let rows = &mut self.distributions[at].rows;
        histogram_of(rows, |known| *known == row, || row)
    }

    fn core_measure(&mut self, row: usize, core: &str, measure: &str) -> &mut Histogram<u64> {
        let known = self.cores.iter().position(|one| one.row == row && one.core == core);
        let at = known.unwrap_or_else(|| {
            self.cores.push(CoreRow { row, core: core.to_owned(), measures: Vec::new() });
            self.cores.len() - 1
        });
        let measures = &mut self.cores[at].measures;
        histogram_of(measures, |known| known == measure, || measure.to_owned())
    }

    fn add_series(&mut self, index: usize, row: &Row) {
        for (repeat, sample) in row.valid().take(LINES_OF_A_ROW_MAX).enumerate() {
            for series in &sample.series {
                let points: Vec<(f64, f64)> = series
                    .points
                    .iter()
                    .copied()
                    .filter(|(at, value)| at.is_finite() && value.is_finite())
                    .collect();
                if points.is_empty() {
                    continue;
                }
                let (name, word) = split_line_word(&series.name);
                let line = Line { row: index, word: word.to_owned(), first: repeat == 0, points };
                self.chart(name, &series.unit).lines.push(line);
            }
        }
    }

    fn chart(&mut self, name: &str, unit: &str) -> &mut OverTime {
        let known = self.over_time.iter().position(|one| one.name == name && one.unit == unit);
        let at = known.unwrap_or_else(|| {
            let (name, unit) = (name.to_owned(), unit.to_owned());
            self.over_time.push(OverTime { name, unit, lines: Vec::new() });
            self.over_time.len() - 1
        });
        &mut self.over_time[at]
    }
}

/// The histogram under a key, made when it is not there.
fn histogram_of<K>(
    all: &mut Vec<(K, Histogram<u64>)>,
    is: impl Fn(&K) -> bool,
    key: impl FnOnce() -> K,
) -> &mut Histogram<u64> {
    let at = all.iter().position(|(known, _)| is(known)).unwrap_or_else(|| {
        all.push((key(), encoding::sum()));
        all.len() - 1
    });
    &mut all[at].1
}

/// `core-3.landing` is core 3's landing.
pub(super) fn core_of(name: &str) -> Option<(&str, &str)> {
    let (core, measure) = name.strip_prefix("core-")?.split_once('.')?;
    core.chars().all(|c| c.is_ascii_digit()).then_some((core, measure))
}

/// `lag p99` is the line `p99` of the chart `lag`.
fn split_line_word(name: &str) -> (&str, &str) {
    match name.rsplit_once(' ') {
        Some((name, word)) if LINE_WORDS.contains(&word) => (name, word),
        _ => (name, ""),
    }
}

/// A measure's name for people.
pub(super) fn spoken(measure: &str) -> String {
    measure.replace('_', " ")
}

/// A name with its unit.
pub(super) fn titled(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

/// With a capital letter, as headings have.
pub(super) fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// The machine's soft interrupts for a GB, where they were counted and enough to tell.
pub(super) fn softirq_seconds_per_gigabyte(row: &Row) -> Option<Spread> {
    let all =
        row.valid().filter(|sample| sample.bytes > 0 && !is_too_short(sample.softirq_seconds));
    Spread::of(all.map(|sample| sample.softirq_seconds / (sample.bytes as f64 / 1e9)))
}

/// Whether the run has anything that was measured, valid or not.
#[must_use]
pub fn is_measured(run: &Run) -> bool {
    let rows = run.cases.iter().flat_map(|case| &case.rows);
    rows.flat_map(|row| &row.samples).any(|sample| {
        let timed = sample.histograms.iter().any(|named| !named.histogram.is_empty());
        timed || !sample.figures.is_empty()
    })
}

/// What is to be said about whether the run is a result: nothing when all is well.
pub(super) fn doubts(run: &Run) -> Vec<String> {
    let mut doubts = Vec::new();
    if run.interrupted {
        doubts.push("Interrupted: this is what was measured until then.".to_owned());
    }
    if !is_measured(run) {
        doubts.push("Nothing was measured.".to_owned());
    }
    let machine = &run.machine;
    // A node's own work may be the load; a benchmark's begins after this was read.
    let quiet_is_due = !["node", "hlog"].contains(&run.bench.as_str());
    if quiet_is_due && machine.load_average > machine.processors as f64 {
        doubts.push(format!(
            "The machine was busy when it began: load average {} on {} processors. Compare rows of one \
             condition, and measure again with nothing else running.",
            super::number::short(machine.load_average),
            machine.processors
        ));
    }
    for case in &run.cases {
        for row in &case.rows {
            let place = format!("{}, {}", case.name, row.subject);
            doubts.extend(row.failures.iter().map(|why| format!("{place}: failed: {why}")));
            let spoilt = row.samples.iter().filter_map(|sample| sample.invalid.as_ref());
            doubts.extend(spoilt.map(|why| format!("{place}: no result: {why}")));
            if row.samples.is_empty() && row.failures.is_empty() {
                doubts.push(format!("{place}: not measured"));
            }
        }
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn repeats_are_one_distribution_and_cores_stay_apart() {
        let run = testing::run();
        let view = CaseView::of(&run.cases[0]);
        let lag = view.distributions.iter().find(|one| one.name == "lag").unwrap();
        assert_eq!(lag.rows.len(), 2, "ours and the peer's");
        assert_eq!(lag.rows[0].1.len(), 2 * testing::VALUES, "the spoilt third repeat is left out");
        assert_eq!(view.cores.len(), 2);
        assert_eq!(view.cores[1].measures[0].1.len(), 2 * testing::VALUES);
        assert!(view.distributions.iter().all(|one| !one.name.starts_with("core-")));
    }

    #[test]
    fn lines_of_one_thing_share_a_chart() {
        let run = testing::run();
        let view = CaseView::of(&run.cases[0]);
        let names: Vec<_> = view.over_time.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["throughput", "lag"]);
        let words: Vec<_> = view.over_time[1].lines.iter().map(|line| line.word.as_str()).collect();
        assert!(words.starts_with(&["p50", "p99"]), "{words:?}");
    }

    #[test]
    fn whatever_spoils_a_run_is_said() {
        let run = testing::run();
        let said = doubts(&run).join("\n");
        for needle in ["busy machine", "no Java"] {
            assert!(said.contains(needle), "{needle}: {said}");
        }
        assert_eq!(doubts(&testing::empty()), ["Nothing was measured."]);
        let mut busy = testing::empty();
        busy.machine.load_average = 2.5;
        assert!(doubts(&busy)[1].contains("load average 2.5 on 2 processors"));
    }
}
