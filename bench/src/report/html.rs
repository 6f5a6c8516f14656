//! Runs as one page that needs nothing else: no script, no font, no network.
//!
//! The page's text is in `page.html`, its looks are in `page.css`; here a run becomes the values they show.
//! The template escapes every value; drawings are escaped where they are made.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;

use super::chart::{self, Bar, Chart};
use super::number;
use super::tables::{self, Table};
use super::terminal::spread_words;
use super::view::{
    self, CaseView, OverTime, capital, softirq_seconds_per_gigabyte, spoken, titled,
};
use crate::run::{Row, Run, Spread};

/// Why a page was not made: a fault of this program.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the report's page: {0}")]
pub struct PageError(#[from] minijinja::Error);

/// One page with all runs, in order.
///
/// # Errors
/// When the template is broken.
pub fn html(runs: &[Run]) -> Result<String, PageError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("page", include_str!("page.html"))?;
    let pages: Vec<Page> = (1..).zip(runs).map(|(number, run)| Page::of(number, run)).collect();
    let title = match runs {
        [run] => format!("{} - Longhaul", run.question),
        _ => "Measurements - Longhaul".to_owned(),
    };
    let document = Document {
        title,
        style: include_str!("page.css"),
        runs: pages,
        version: env!("CARGO_PKG_VERSION"),
    };
    let values = Value::from(Serde(&document));
    Ok(environment.get_template("page")?.render(values)?)
}

#[derive(Serialize)]
struct Document {
    title: String,
    style: &'static str,
    runs: Vec<Page>,
    version: &'static str,
}

#[derive(Serialize)]
struct Page {
    kind: String,
    question: String,
    when: String,
    doubts: Vec<String>,
    command: String,
    machine: Vec<Fact>,
    bound_by: Vec<String>,
    left_out: Vec<String>,
    overview: Table,
    cases: Vec<CasePage>,
}

#[derive(Serialize)]
struct Fact {
    name: &'static str,
    value: String,
}

#[derive(Serialize)]
struct CasePage {
    anchor: String,
    name: String,
    /// The figures of a row that is alone: nothing to compare, so no bars.
    tiles: Vec<Tile>,
    charts: Vec<Figure>,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Tile {
    name: String,
    value: String,
}

#[derive(Serialize)]
struct Figure {
    title: String,
    note: String,
    svg: String,
    legend: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    swatch: String,
    label: String,
}

impl Page {
    fn of(number: usize, run: &Run) -> Self {
        let kind = match run.bench.as_str() {
            "node" => "a running node".to_owned(),
            "hlog" => "a histogram log".to_owned(),
            bench => format!("bench {bench}"),
        };
        let cases = (1..).zip(&run.cases).map(|(case, condition)| CasePage {
            anchor: format!("run-{number}-case-{case}"),
            ..CasePage::of(&CaseView::of(condition))
        });
        Self {
            kind,
            question: run.question.clone(),
            when: format!("{}, for {}", number::utc(run.started_ms), number::seconds(run.seconds)),
            doubts: view::doubts(run),
            command: run.command.clone(),
            machine: machine(run),
            bound_by: bound_by(run),
            left_out: run.left_out.clone(),
            overview: tables::overview(run),
            cases: cases.collect(),
        }
    }
}

fn machine(run: &Run) -> Vec<Fact> {
    let machine = &run.machine;
    let facts = [
        ("Kernel", format!("Linux {}", machine.kernel)),
        ("Processors", machine.processors.to_string()),
        ("Processor", machine.processor.clone()),
        ("Memory", number::bytes(machine.memory_bytes)),
        ("TCP congestion control", machine.congestion_control.clone()),
        ("Load average at the start", number::short(machine.load_average)),
    ];
    let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| Fact { name, value }).collect()
}

fn bound_by(run: &Run) -> Vec<String> {
    let mut all = Vec::new();
    for case in &run.cases {
        for row in case.rows.iter().filter(|row| row.ours) {
            if let Some(limit) = row.limit() {
                all.push(format!(
                    "{}, {}: {} ({})",
                    case.name,
                    row.subject,
                    limit.by.words(),
                    limit.evidence
                ));
            }
        }
    }
    all
}

impl CasePage {
    fn of(view: &CaseView<'_>) -> Self {
        let rows = &view.case.rows;
        let names: Vec<String> = rows.iter().map(|row| row.subject.clone()).collect();
        let (tiles, mut charts) = match rows.as_slice() {
            [alone] => (tiles(view, alone), Vec::new()),
            _ => (Vec::new(), bar_charts(view)),
        };
        for distribution in &view.distributions {
            let title = spoken(&distribution.name);
            let drawn: Vec<_> = distribution
                .rows
                .iter()
                .map(|(row, histogram)| (*row, names[*row].as_str(), histogram))
                .collect();
            let chart = chart::percentile_curve(&title, &drawn);
            charts.push(Figure::new(&format!("{title} by percentile"), chart));
        }
        let seconds = view.seconds();
        charts.extend(view.over_time.iter().map(|chart| time_chart(chart, &names, seconds)));
        if let [alone] = names.as_slice() {
            for chart in &mut charts {
                chart.name_only_lines(&chart::escape(alone));
            }
        }
        let tables = tables::of_case(view);
        Self { anchor: String::new(), name: view.case.name.clone(), tiles, charts, tables }
    }
}

fn tiles(view: &CaseView<'_>, row: &Row) -> Vec<Tile> {
    let mut values: Vec<(String, Option<Spread>)> =
        view.figures.iter().map(|(name, unit)| (titled(name, unit), row.figure(name))).collect();
    values.extend([
        ("CPU seconds for a GB".to_owned(), row.cpu_seconds_per_gigabyte()),
        ("of it in the kernel".to_owned(), row.system_seconds_per_gigabyte()),
        ("soft interrupts, s for a GB".to_owned(), softirq_seconds_per_gigabyte(row)),
    ]);
    let known = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.map(|(name, value)| Tile { name: capital(&name), value: spread_words(&value) }).collect()
}

fn bar_charts(view: &CaseView<'_>) -> Vec<Figure> {
    let rows = &view.case.rows;
    let mut charts = Vec::new();
    for (name, unit) in &view.figures {
        charts.extend(bar_chart(&titled(name, unit), "", rows, |row| (row.figure(name), None)));
    }
    charts.extend(bar_chart(
        "CPU seconds for a GB",
        "The subject's own process; the hatched part in the kernel.",
        rows,
        |row| {
            let system = row.system_seconds_per_gigabyte().map(|spread| spread.median);
            (row.cpu_seconds_per_gigabyte(), system)
        },
    ));
    charts.extend(bar_chart(
        "Soft interrupts, s for a GB",
        "The whole machine's: most of the network stack.",
        rows,
        |row| (softirq_seconds_per_gigabyte(row), None),
    ));
    charts
}

impl Figure {
    fn new(title: &str, chart: Chart) -> Self {
        let legend = chart.legend.into_iter();
        let legend = legend.map(|entry| Entry { swatch: entry.swatch, label: entry.label });
        Self {
            title: capital(title),
            note: String::new(),
            svg: chart.svg,
            legend: legend.collect(),
        }
    }

    /// Where all lines are of one subject, its name says nothing: lines keep their own word.
    fn name_only_lines(&mut self, subject: &str) {
        for entry in &mut self.legend {
            if let Some(word) = entry.label.strip_prefix(subject) {
                entry.label = word.trim().to_owned();
            }
        }
        self.legend.retain(|entry| !entry.label.is_empty());
    }
}

fn time_chart(over_time: &OverTime, names: &[String], seconds: f64) -> Figure {
    let chart = chart::over_time(over_time, names, seconds);
    let title = titled(&format!("{} over time", spoken(&over_time.name)), &over_time.unit);
    let mut figure = Figure::new(&title, chart);
    if over_time.lines.iter().any(|line| !line.first) {
        "The first valid repeat; further ones fainter.".clone_into(&mut figure.note);
    }
    figure
}

/// Nothing when no row has a value.
fn bar_chart(
    title: &str,
    note: &str,
    rows: &[Row],
    value: impl Fn(&Row) -> (Option<Spread>, Option<f64>),
) -> Option<Figure> {
    let bars: Vec<Bar<'_>> = rows
        .iter()
        .map(|row| {
            let (value, part) = value(row);
            let words = value.as_ref().map_or_else(|| "no value".to_owned(), spread_words);
            Bar { name: &row.subject, ours: row.ours, value, part, words }
        })
        .collect();
    bars.iter().any(|bar| bar.value.is_some()).then(|| Figure {
        title: capital(title),
        note: note.to_owned(),
        svg: chart::bars(title, &bars),
        legend: Vec::new(),
    })
}
