//! The page's structure, by a small reader of the markup that is written here.

use super::{html, testing};
use crate::run::Run;

/// Elements that have no end.
const EMPTY_ELEMENTS: [&str; 4] = ["meta", "br", "img", "!DOCTYPE"];

/// What a page is made of, and whether its elements are closed in order.
struct Parsed {
    /// Every element's name.
    elements: Vec<String>,
    /// Every attribute's name and value.
    attributes: Vec<(String, String)>,
    /// All text outside of `style`.
    text: String,
}

fn parse(page: &str) -> Parsed {
    let mut parsed = Parsed { elements: Vec::new(), attributes: Vec::new(), text: String::new() };
    let mut open: Vec<String> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let (text, tail) = rest.split_at(at);
        if open.last().is_none_or(|element| element != "style") {
            parsed.text.push_str(text);
        }
        let end = tail.find('>').unwrap_or_else(|| panic!("no end: {:.80}", tail));
        let inside = &tail[1..end];
        rest = &tail[end + 1..];
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed out of order near {text:.80}");
            continue;
        }
        let itself_closed = inside.ends_with('/');
        let inside = inside.trim_end_matches('/');
        let (name, attributes) = inside.split_once([' ', '\n']).unwrap_or((inside, ""));
        parsed.elements.push(name.to_owned());
        parsed.attributes.extend(attributes_of(attributes));
        if !itself_closed && !EMPTY_ELEMENTS.contains(&name) {
            open.push(name.to_owned());
        }
    }
    assert_eq!(open, Vec::<String>::new(), "not closed");
    parsed.text = unescaped(&parsed.text);
    parsed
}

fn unescaped(text: &str) -> String {
    let entities =
        [("&#x2f;", "/"), ("&#x27;", "'"), ("&#39;", "'"), ("&quot;", "\""), ("&lt;", "<")];
    let text = entities.iter().fold(text.to_owned(), |text, (entity, c)| text.replace(entity, c));
    text.replace("&gt;", ">").replace("&amp;", "&")
}

fn attributes_of(mut text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let (value, rest) = rest.split_once('"').unwrap_or_else(|| panic!("no end: {rest:.80}"));
        all.push((name.trim().to_owned(), value.to_owned()));
        text = rest;
    }
    all
}

fn page(run: Run) -> (String, Parsed) {
    let page = html(&[run]).unwrap();
    let parsed = parse(&page);
    assert!(!page.contains("NaN") && !page.contains("inf,"), "a number that is none");
    (page, parsed)
}

#[test]
fn every_row_figure_and_reason_is_on_the_page() {
    let run = testing::run();
    let (_, parsed) = page(run.clone());
    for case in &run.cases {
        assert!(parsed.text.contains(&case.name), "{}", case.name);
    }
    for needle in [
        "Longhaul",
        "MirrorMaker 2 as shipped",
        "longhaul bench lag --rate 100MiB",
        "Linux 6.18.5",
        "Some Processor",
        "cubic",
        "busy machine",
        "no Java",
        "kcat: not installed",
        "source's send buffer",
        "64 partitions byte for byte",
        "CPU seconds for a GB",
        "source broker",
        "99.9",
        "Lag by percentile",
        "Throughput over time, MB/s",
        "core 1",
    ] {
        assert!(parsed.text.contains(needle), "{needle} is missing");
    }
    let charts = parsed.elements.iter().filter(|element| *element == "figure").count();
    // Of each case: 2 figures, CPU, soft interrupts, 2 distributions, 2 lines over time.
    assert_eq!(charts, 2 * 8);
    let rows = parsed.elements.iter().filter(|element| *element == "tr").count();
    assert!(rows > 20, "{rows}");
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let (text, parsed) = page(testing::run());
    for element in ["script", "link", "img", "iframe", "object", "image", "use", "base", "form"] {
        assert!(!parsed.elements.iter().any(|known| known == element), "{element}");
    }
    for (name, value) in &parsed.attributes {
        assert!(!["src", "srcset", "xlink:href", "style"].contains(&name.as_str()), "{name}");
        assert!(!name.starts_with("on"), "{name}");
        assert!(name != "href" || value.starts_with('#'), "{value}");
    }
    for outside in ["http:", "https:", "//", "url(", "@import", "@font-face"] {
        assert!(!text.contains(outside), "{outside}");
    }
}

#[test]
fn hostile_names_stay_text() {
    let hostile = "\"><script>alert('1')</script>&amp;\u{1b}";
    let mut run = testing::run();
    run.question = hostile.to_owned();
    run.command = hostile.to_owned();
    run.machine.processor = hostile.to_owned();
    run.left_out.push(hostile.to_owned());
    let case = &mut run.cases[0];
    case.name = hostile.to_owned();
    for row in &mut case.rows {
        row.subject = hostile.to_owned();
        row.failures.push(hostile.to_owned());
        for sample in &mut row.samples {
            sample.checked = Some(hostile.to_owned());
            sample.figures[0].name = hostile.to_owned();
            sample.figures[0].unit = hostile.to_owned();
            sample.processes[0].name = hostile.to_owned();
            sample.series[0].name = hostile.to_owned();
            sample.series[0].unit = hostile.to_owned();
            sample.histograms[0].name = hostile.to_owned();
        }
    }
    let (_, parsed) = page(run);
    assert!(!parsed.elements.iter().any(|element| element == "script"));
    assert!(!parsed.attributes.iter().any(|(_, value)| value.contains('<')));
}

#[test]
fn a_run_with_holes_has_a_page_with_holes() {
    let (_, parsed) = page(testing::empty());
    assert!(parsed.text.contains("Nothing was measured"));

    let mut run = testing::run();
    run.seconds = f64::NAN;
    run.machine.load_average = f64::INFINITY;
    let rows = &mut run.cases[0].rows;
    rows[0].samples.truncate(1);
    let sample = &mut rows[0].samples[0];
    sample.bytes = 0;
    sample.processes.clear();
    sample.figures[0].value = f64::NAN;
    sample.figures[1].value = -0.0;
    sample.series[0].points = vec![(f64::NAN, 1.0), (0.0, f64::NEG_INFINITY)];
    sample.series[1].points = vec![(0.0, 0.0)];
    for named in &mut sample.histograms {
        named.histogram.reset();
    }
    sample.histograms[1].histogram.record(0).unwrap();
    rows[1].samples.clear();
    rows[1].failures.clear();
    let (_, parsed) = page(run);
    assert!(parsed.text.contains("not measured"));
}

#[test]
fn processor_time_of_a_few_ticks_has_a_word_and_no_figure() {
    let shown = |run: &crate::run::Run| {
        let (_, parsed) = page(run.clone());
        (parsed.text.matches("too short to tell").count(), run.to_string())
    };
    let mut run = testing::run();
    assert_eq!(shown(&run).0, 0);
    let own = &mut run.cases[0].rows[0].samples[0].processes[0];
    (own.user_seconds, own.system_seconds) = (0.01, 0.02);
    let (on_the_page, text) = shown(&run);
    assert_eq!(on_the_page, 1);
    assert_eq!(text.matches("too short to tell").count(), 1, "{text}");
}

#[test]
fn charts_are_described_for_those_who_do_not_see_them() {
    let (_, parsed) = page(testing::run());
    let described = |name: &str| {
        parsed.attributes.iter().filter(|(known, value)| known == name && !value.is_empty()).count()
    };
    let charts = parsed.elements.iter().filter(|element| *element == "figure").count();
    // The list of conditions has a label too.
    assert_eq!(described("aria-label"), charts + 1);
    assert!(parsed.attributes.contains(&("lang".to_owned(), "en".to_owned())));
}

#[test]
fn a_row_alone_has_its_figures_and_no_bars() {
    let mut run = testing::run();
    for case in &mut run.cases {
        case.rows.truncate(1);
    }
    let (text, parsed) = page(run);
    assert!(!text.contains("<rect class=\"bar"));
    for needle in ["Throughput, MB/s", "Durations by percentile", "CPU seconds for a GB"] {
        assert!(parsed.text.contains(needle), "{needle}");
    }
}
