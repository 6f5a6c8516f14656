//! A run as text for a terminal: for each case its rows with medians and ranges.

use std::fmt;

use super::{Case, Row, Run, Spread, TOO_SHORT};

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.question)?;
        writeln!(
            formatter,
            "Linux {}, {} processors, load {:.1} at the start; median (range) of the valid runs.",
            self.machine.kernel, self.machine.processors, self.machine.load_average
        )?;
        for case in &self.cases {
            writeln!(formatter, "\n{}", case.name)?;
            write_case(formatter, case)?;
        }
        for what in &self.left_out {
            writeln!(formatter, "\nleft out: {what}")?;
        }
        if self.interrupted {
            writeln!(formatter, "\nINTERRUPTED: what was measured until then.")?;
        }
        write!(formatter, "\n{}", self.bound_by())
    }
}

fn write_case(formatter: &mut fmt::Formatter<'_>, case: &Case) -> fmt::Result {
    let lines: Vec<Vec<String>> =
        std::iter::once(header(case)).chain(case.rows.iter().map(|row| cells(case, row))).collect();
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            lines.iter().filter_map(|line| line.get(column)).map(|c| c.chars().count()).max()
        })
        .map(|width| width.unwrap_or(0))
        .collect();
    for line in &lines {
        let text: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(formatter, "  {}", text.join("  ").trim_end())?;
    }
    for row in &case.rows {
        for why in &row.failures {
            writeln!(formatter, "  FAILED: {}: {why}", row.subject)?;
        }
        for why in row.samples.iter().filter_map(|sample| sample.invalid.as_ref()) {
            writeln!(formatter, "  INVALID: {}: {why}", row.subject)?;
        }
    }
    Ok(())
}

/// Every figure that a row of the case has, in the order of first sight.
fn figures(case: &Case) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for figure in case.rows.iter().flat_map(Row::figure_names) {
        if !all.contains(&figure) {
            all.push(figure);
        }
    }
    all
}

fn header(case: &Case) -> Vec<String> {
    let figures = figures(case).into_iter().map(|(name, unit)| format!("{name} {unit}"));
    let last = ["CPU s/GB", "of it system", "bound by"].map(str::to_owned);
    std::iter::once(String::new()).chain(figures).chain(last).collect()
}

fn cells(case: &Case, row: &Row) -> Vec<String> {
    let mut cells = vec![row.subject.clone()];
    cells.extend(figures(case).iter().map(|(name, _)| cell(row.figure(name))));
    if row.cpu_is_too_short() {
        cells.extend([TOO_SHORT.to_owned(), "-".to_owned()]);
    } else {
        cells.push(cell(row.cpu_seconds_per_gigabyte()));
        cells.push(cell(row.system_seconds_per_gigabyte()));
    }
    cells.push(row.limit().map_or_else(String::new, |limit| limit.by.words().to_owned()));
    cells
}

/// Three significant digits, whatever the size.
fn cell(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| {
            let digits = match spread.median.abs() {
                large if large >= 100.0 => 0,
                middle if middle >= 10.0 => 1,
                _ => 2,
            };
            format!("{spread:.digits$}")
        },
    )
}
