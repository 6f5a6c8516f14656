//! A run in a terminal of 80 to 100 columns: bars, percentiles, and lines over time as one row of blocks.
//!
//! Plain text without escape sequences, so that it can be piped and pasted.

use std::fmt::Write as _;

use super::number;
use super::view::{
    self, CaseView, Distribution, OverTime, PERCENTILES, softirq_seconds_per_gigabyte, spoken,
    titled,
};
use crate::run::{Row, Run, Spread};

/// Columns of a bar of the largest value.
const BAR_COLUMNS: usize = 24;
/// Columns of a line over time.
const SPARK_COLUMNS: usize = 40;
/// Most columns of a row's name.
const NAME_COLUMNS: usize = 30;
/// Columns of a number with its range.
const VALUE_COLUMNS: usize = 22;
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The whole run.
#[must_use]
pub fn terminal(run: &Run) -> String {
    let mut text = String::new();
    write_head(&mut text, run);
    for case in &run.cases {
        write_case(&mut text, &CaseView::of(case));
    }
    let doubts = view::doubts(run);
    if !doubts.is_empty() {
        text.push_str("\nDoubts\n");
        for doubt in doubts {
            line(&mut text, 2, &doubt);
        }
    }
    if !run.left_out.is_empty() {
        text.push_str("\nLeft out\n");
        for what in &run.left_out {
            line(&mut text, 2, what);
        }
    }
    text.push('\n');
    line(&mut text, 0, &run.bound_by());
    text
}

fn write_head(text: &mut String, run: &Run) {
    let machine = &run.machine;
    line(text, 0, &run.question);
    line(text, 0, &run.command);
    line(
        text,
        0,
        &format!(
            "{}, {}; Linux {}, {} processors, {}, {}, load {:.1} at the start",
            number::utc(run.started_ms),
            number::seconds(run.seconds),
            machine.kernel,
            machine.processors,
            number::bytes(machine.memory_bytes),
            machine.congestion_control,
            machine.load_average,
        ),
    );
    text.push_str("Medians (range) of the valid repeats; durations by percentile.\n");
}

fn write_case(text: &mut String, view: &CaseView<'_>) {
    text.push('\n');
    line(text, 0, &view.case.name);
    for (name, unit) in &view.figures {
        write_bars(text, &titled(name, unit), &view.case.rows, |row| row.figure(name));
    }
    let rows = &view.case.rows;
    let title = "CPU seconds for a GB, the subject's own";
    write_bars(text, title, rows, Row::cpu_seconds_per_gigabyte);
    write_bars(text, "of it in the kernel", rows, Row::system_seconds_per_gigabyte);
    let title = "soft interrupts of the machine, s for a GB";
    write_bars(text, title, rows, softirq_seconds_per_gigabyte);
    for distribution in &view.distributions {
        write_distribution(text, view, distribution);
    }
    for chart in &view.over_time {
        write_over_time(text, view, chart);
    }
    for row in rows {
        if let Some(limit) = row.limit() {
            let words =
                format!("{} bound by {}: {}", row.subject, limit.by.words(), limit.evidence);
            line(text, 2, &words);
        }
    }
}

/// One bar a row; nothing when no row has a value.
fn write_bars(
    text: &mut String,
    title: &str,
    rows: &[Row],
    value: impl Fn(&Row) -> Option<Spread>,
) {
    let values: Vec<Option<Spread>> = rows.iter().map(value).collect();
    let Some(largest) = values.iter().flatten().map(|spread| spread.median).reduce(f64::max) else {
        return;
    };
    line(text, 2, title);
    for (row, spread) in rows.iter().zip(values) {
        let (words, bar) = match spread {
            Some(spread) => (spread_words(&spread), bar(spread.median, largest)),
            None => ("-".to_owned(), String::new()),
        };
        let name = fit(&row.subject, NAME_COLUMNS);
        let _ =
            writeln!(text, "{}", format!("    {name}  {words:<VALUE_COLUMNS$} {bar}").trim_end());
    }
}

/// `median (least to most)`, or the one value.
pub(super) fn spread_words(spread: &Spread) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(number::short);
    if min == max { median } else { format!("{median} ({min} to {max})") }
}

fn bar(value: f64, largest: f64) -> String {
    let share = if largest > 0.0 { (value / largest).clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * (BAR_COLUMNS * 8) as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    } else if eighths == 0 && value > 0.0 {
        bar.push(EIGHTHS[0]);
    }
    bar
}

fn write_distribution(text: &mut String, view: &CaseView<'_>, distribution: &Distribution) {
    let columns: Vec<String> = PERCENTILES.iter().map(|(name, _)| format!("{name:>8}")).collect();
    let name = fit(&spoken(&distribution.name), NAME_COLUMNS + 2);
    let _ = writeln!(text, "  {name}  {:>9} {} {:>8}", "count", columns.join(" "), "max");
    for (row, histogram) in &distribution.rows {
        let subject = view.case.rows.get(*row).map_or("", |row| &row.subject);
        let values: Vec<String> = PERCENTILES
            .iter()
            .map(|(_, quantile)| number::nanos(histogram.value_at_quantile(*quantile) as f64))
            .chain([number::nanos(histogram.max() as f64)])
            .map(|value| format!("{value:>8}"))
            .collect();
        let _ = writeln!(
            text,
            "    {}  {:>9} {}",
            fit(subject, NAME_COLUMNS),
            number::count(histogram.len()),
            values.join(" ")
        );
    }
}

fn write_over_time(text: &mut String, view: &CaseView<'_>, chart: &OverTime) {
    line(text, 2, &titled(&format!("{} over time", spoken(&chart.name)), &chart.unit));
    let lines = chart.lines.iter().filter(|line| line.first);
    let largest =
        lines.clone().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max);
    for drawn in lines {
        let subject = view.case.rows.get(drawn.row).map_or("", |row| &row.subject);
        let name = fit(format!("{} {subject}", drawn.word).trim_start(), NAME_COLUMNS);
        let last = drawn.points.last().map_or(0.0, |point| point.0);
        let most = drawn.points.iter().map(|point| point.1).fold(0.0, f64::max);
        let spark = spark(&drawn.points, last, largest);
        let most = number::short(most);
        let _ = writeln!(text, "    {name}  {spark}  up to {most} in {}", number::seconds(last));
    }
}

/// The largest value of each column; blanks where there is none.
fn spark(points: &[(f64, f64)], last: f64, largest: f64) -> String {
    let mut columns = [None::<f64>; SPARK_COLUMNS];
    for (at, value) in points {
        let share = if last > 0.0 { at / last } else { 0.0 };
        let column = ((share * SPARK_COLUMNS as f64) as usize).min(SPARK_COLUMNS - 1);
        let slot = &mut columns[column];
        *slot = Some(slot.map_or(*value, |known| known.max(*value)));
    }
    // Fewer points than columns: a value lasts for the shortest time between two, so that gaps show.
    let steps = points.windows(2).map(|pair| pair[1].0 - pair[0].0).filter(|step| *step > 0.0);
    let step = steps.fold(last, f64::min) / last.max(f64::MIN_POSITIVE);
    let held = ((step * SPARK_COLUMNS as f64).ceil() as usize).clamp(1, SPARK_COLUMNS);
    let mut known = (0, None);
    for (index, column) in columns.iter_mut().enumerate() {
        if column.is_some() {
            known = (index, *column);
        } else if index - known.0 < held {
            *column = known.1;
        }
    }
    let height = |value: f64| {
        let share = if largest > 0.0 { (value / largest).clamp(0.0, 1.0) } else { 0.0 };
        HEIGHTS[((share * 8.0) as usize).min(7)]
    };
    columns.iter().map(|column| column.map_or(' ', height)).collect()
}

/// Exactly that many columns, cut with an ellipsis.
fn fit(text: &str, columns: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= columns {
        return format!("{text:<columns$}");
    }
    let kept: String = text.chars().take(columns - 1).collect();
    format!("{kept}…")
}

fn line(text: &mut String, indent: usize, words: &str) {
    let _ = writeln!(text, "{:indent$}{}", "", printable(words));
}

/// Names come from files: nothing in them may steer the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn all_rows_percentiles_and_doubts_are_there_within_100_columns() {
        let text = terminal(&testing::run());
        for needle in [
            "longhaul bench lag",
            "throughput, MB/s",
            "MirrorMaker 2 as shipped",
            "p99.99",
            "fetch round trip",
            "throughput over time, MB/s",
            "p99 Longhaul",
            "busy machine",
            "no Java",
            "kcat: not installed",
            "bound by: 1 partition",
            "█",
            "▁",
        ] {
            assert!(text.contains(needle), "{needle}: {text}");
        }
        let drawn = text.lines().filter(|line| line.contains('█') || line.contains(" ms "));
        for line in drawn {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn holes_and_hostile_names_do_not_break_it() {
        assert!(terminal(&testing::empty()).contains("Nothing was measured"));
        let mut run = testing::run();
        run.cases[0].name = "\u{1b}[2J\nfake".to_owned();
        run.cases[0].rows[0].samples.clear();
        run.cases[0].rows[1].subject = "x".repeat(300);
        for sample in &mut run.cases[1].rows[0].samples {
            sample.figures[0].value = f64::NAN;
            sample.series[0].points = vec![(f64::NAN, 1.0), (0.0, f64::INFINITY)];
            sample.series[1].points = vec![(0.0, 5.0)];
        }
        let text = terminal(&run);
        assert!(!text.contains('\u{1b}') && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn bars_and_lines_are_to_scale() {
        assert_eq!(bar(10.0, 10.0).chars().count(), BAR_COLUMNS);
        assert_eq!(bar(5.0, 10.0), "█".repeat(BAR_COLUMNS / 2));
        assert_eq!((bar(0.001, 10.0), bar(0.0, 10.0)), ("▏".to_owned(), String::new()));
        let points: Vec<(f64, f64)> = (0..=40).map(|at| (f64::from(at), f64::from(at))).collect();
        let spark = spark(&points, 40.0, 40.0);
        assert!(spark.starts_with('▁') && spark.ends_with('█'), "{spark}");
        assert_eq!(spark.chars().count(), SPARK_COLUMNS);
        let gap =
            super::spark(&[(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (8.0, 1.0), (10.0, 1.0)], 10.0, 1.0);
        assert_eq!(gap.chars().filter(|c| *c == ' ').count(), 23, "{gap}");
    }
}
