//! The tables of a page: every number that a chart shows, and some that none does.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::number;
use super::view::{
    CaseView, Distribution, PERCENTILES, capital, softirq_seconds_per_gigabyte, spoken, titled,
};
use crate::run::{ProcessCost, Row, Run, Spread, TOO_SHORT, is_too_short};

/// A table with a name for each row.
#[derive(Default, Serialize)]
pub(super) struct Table {
    caption: String,
    /// What the rows are.
    first: String,
    columns: Vec<Column>,
    rows: Vec<TableRow>,
}

#[derive(Clone, Serialize)]
struct Column {
    name: String,
    number: bool,
}

#[derive(Serialize)]
struct TableRow {
    name: String,
    ours: bool,
    cells: Vec<Cell>,
}

#[derive(Serialize)]
struct Cell {
    /// The column's name again, for narrow pages.
    label: String,
    text: String,
    /// Less important, behind it.
    small: String,
    number: bool,
}

impl Table {
    fn new(caption: &str, first: &str, columns: &[(&str, bool)]) -> Self {
        let columns = columns
            .iter()
            .map(|(name, number)| Column { name: (*name).to_owned(), number: *number });
        Self {
            caption: capital(caption),
            first: capital(first),
            columns: columns.collect(),
            rows: Vec::new(),
        }
    }

    /// What no row has a value for is not worth a column.
    fn drop_empty_columns(&mut self) {
        let kept = |index: usize, rows: &[TableRow]| {
            rows.iter().any(|row| row.cells.get(index).is_some_and(|cell| cell.text != "-"))
        };
        let kept: Vec<bool> =
            (0..self.columns.len()).map(|index| kept(index, &self.rows)).collect();
        let mut keep = kept.iter();
        self.columns.retain(|_| *keep.next().unwrap_or(&true));
        for row in &mut self.rows {
            let mut keep = kept.iter();
            row.cells.retain(|_| *keep.next().unwrap_or(&true));
        }
    }

    fn row(&mut self, name: &str, ours: bool, cells: impl IntoIterator<Item = (String, String)>) {
        let cells = self.columns.iter().zip(cells).map(|(column, (text, small))| Cell {
            label: column.name.clone(),
            text,
            small,
            number: column.number,
        });
        let cells = cells.collect();
        self.rows.push(TableRow { name: name.to_owned(), ours, cells });
    }
}

/// The first figure of every case, subjects side by side.
pub(super) fn overview(run: &Run) -> Table {
    let mut subjects: Vec<&str> = Vec::new();
    for row in run.cases.iter().flat_map(|case| &case.rows) {
        if !subjects.contains(&row.subject.as_str()) {
            subjects.push(&row.subject);
        }
    }
    let columns: Vec<(&str, bool)> = subjects.iter().map(|subject| (*subject, true)).collect();
    let first = run
        .cases
        .iter()
        .flat_map(|case| &case.rows)
        .find_map(|row| row.figure_names().into_iter().next());
    let Some((figure, unit)) = first else { return Table::default() };
    let mut table = Table::new(&titled(&figure, &unit), "condition", &columns);
    for case in &run.cases {
        let value = |subject: &&str| {
            let row = case.rows.iter().find(|row| row.subject == **subject);
            spread_cell(row.and_then(|row| row.figure(&figure)))
        };
        table.row(&case.name, false, subjects.iter().map(value));
    }
    table
}

/// All tables of a case.
pub(super) fn of_case(view: &CaseView<'_>) -> Vec<Table> {
    let mut tables = vec![rows(view)];
    if view.case.rows.len() == 1 {
        tables.push(measures(view));
    } else {
        tables.extend(view.distributions.iter().map(|one| distribution(view, one)));
    }
    tables.push(cores(view));
    tables.push(processes(&view.case.rows));
    for table in &mut tables {
        table.drop_empty_columns();
    }
    tables
}

fn rows(view: &CaseView<'_>) -> Table {
    let titles: Vec<String> =
        view.figures.iter().map(|(name, unit)| capital(&titled(name, unit))).collect();
    let mut columns: Vec<(&str, bool)> =
        titles.iter().map(|title| (title.as_str(), true)).collect();
    columns.extend([
        ("CPU s/GB", true),
        ("Of it in the kernel", true),
        ("Soft interrupts s/GB", true),
        ("Valid repeats", true),
        ("Bound by", false),
        ("Checked", false),
    ]);
    let mut table = Table::new("all figures, median and range", "subject", &columns);
    for row in &view.case.rows {
        let valid = row.valid().count();
        let tried = row.samples.len() + row.failures.len();
        let repeats =
            if valid == tried { valid.to_string() } else { format!("{valid} of {tried}") };
        let limit = row.limit().map_or_else(
            || ("-".to_owned(), String::new()),
            |limit| (limit.by.words().to_owned(), String::new()),
        );
        let checked = row.valid().find_map(|sample| sample.checked.clone());
        let mut cells: Vec<(String, String)> =
            view.figures.iter().map(|(name, _)| spread_cell(row.figure(name))).collect();
        let cpu = if row.cpu_is_too_short() {
            (TOO_SHORT.to_owned(), String::new())
        } else {
            spread_cell(row.cpu_seconds_per_gigabyte())
        };
        cells.extend([
            cpu,
            spread_cell(row.system_seconds_per_gigabyte()),
            spread_cell(softirq_seconds_per_gigabyte(row)),
            (repeats, String::new()),
            limit,
            (checked.unwrap_or_else(|| "-".to_owned()), String::new()),
        ]);
        table.row(&row.subject, row.ours, cells);
    }
    table
}

fn spread_cell(spread: Option<Spread>) -> (String, String) {
    let Some(spread) = spread else { return ("-".to_owned(), String::new()) };
    let range = format!("{} to {}", number::short(spread.min), number::short(spread.max));
    let range = if spread.min < spread.max { range } else { String::new() };
    (number::short(spread.median), range)
}

/// Every measure of the only row.
fn measures(view: &CaseView<'_>) -> Table {
    let mut table = Table::new("durations by percentile", "measure", &distribution_columns());
    for Distribution { name, rows } in &view.distributions {
        for (_, histogram) in rows {
            table.row(&capital(&spoken(name)), false, distribution_cells(histogram));
        }
    }
    table
}

fn distribution(view: &CaseView<'_>, distribution: &Distribution) -> Table {
    let caption = format!("{} by percentile", spoken(&distribution.name));
    let mut table = Table::new(&caption, "subject", &distribution_columns());
    for (row, histogram) in &distribution.rows {
        let row = &view.case.rows[*row];
        table.row(&row.subject, row.ours, distribution_cells(histogram));
    }
    table
}

fn distribution_columns() -> Vec<(&'static str, bool)> {
    let mut columns = vec![("Count", true), ("Mean", true)];
    columns.extend(PERCENTILES.iter().map(|(name, _)| (*name, true)));
    columns.push(("Max", true));
    columns
}

fn distribution_cells(histogram: &Histogram<u64>) -> Vec<(String, String)> {
    let nanos = |value: f64| (number::nanos(value), String::new());
    let mut cells = vec![(number::count(histogram.len()), String::new()), nanos(histogram.mean())];
    cells.extend(percentiles(histogram).map(nanos));
    cells
}

fn percentiles(histogram: &Histogram<u64>) -> impl Iterator<Item = f64> + '_ {
    let at = PERCENTILES.iter().map(|(_, quantile)| histogram.value_at_quantile(*quantile) as f64);
    at.chain([histogram.max() as f64])
}

/// Each core's median and 99th percentile of each measure.
fn cores(view: &CaseView<'_>) -> Table {
    let mut measures: Vec<&str> = Vec::new();
    for (measure, _) in view.cores.iter().flat_map(|core| &core.measures) {
        if !measures.contains(&measure.as_str()) {
            measures.push(measure);
        }
    }
    let titles: Vec<String> = measures.iter().map(|measure| capital(&spoken(measure))).collect();
    let columns: Vec<(&str, bool)> = titles.iter().map(|title| (title.as_str(), true)).collect();
    let mut table = Table::new("each core: median, and 99 %", "core", &columns);
    for core in &view.cores {
        let row = &view.case.rows[core.row];
        let cells = measures.iter().map(|measure| {
            let known = core.measures.iter().find(|(name, _)| name == measure);
            known.map_or_else(
                || ("-".to_owned(), String::new()),
                |(_, histogram)| {
                    let at = |quantile| number::nanos(histogram.value_at_quantile(quantile) as f64);
                    (at(0.5), at(0.99))
                },
            )
        });
        table.row(&format!("{}, core {}", row.subject, core.core), row.ours, cells);
    }
    table
}

/// What each process of each row spent.
fn processes(rows: &[Row]) -> Table {
    let columns = [("CPU s/GB", true), ("User s", true), ("System s", true), ("Most memory", true)];
    let mut table = Table::new("every process", "subject and process", &columns);
    for row in rows {
        let names = row.valid().next().map_or(&[][..], |sample| &sample.processes);
        for named in names {
            let all = || {
                row.valid().flat_map(|sample| {
                    let own = sample.processes.iter().filter(|one| one.name == named.name);
                    own.map(move |process| (sample.bytes, process))
                })
            };
            let told =
                |(bytes, one): &(u64, &ProcessCost)| *bytes > 0 && !is_too_short(one.seconds());
            let per_gigabyte = all().filter(told);
            let per_gigabyte =
                Spread::of(per_gigabyte.map(|(bytes, one)| one.seconds() / (bytes as f64 / 1e9)));
            let user = Spread::of(all().map(|(_, one)| one.user_seconds));
            let system = Spread::of(all().map(|(_, one)| one.system_seconds));
            let memory = all().map(|(_, one)| one.memory_bytes_max).max().unwrap_or(0);
            let name = format!("{}: {}", row.subject, named.name);
            let cells = [
                spread_cell(per_gigabyte),
                spread_cell(user),
                spread_cell(system),
                (number::bytes(memory), String::new()),
            ];
            table.row(&name, row.ours, cells);
        }
    }
    table
}
