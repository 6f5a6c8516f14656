//! Charts as SVG text, made here so that a page needs no script and no network.
//!
//! Sized for a phone: a chart is 400 units wide and scales with its column. Colours come from the page's
//! style by row number; rows also differ by mark and dash, so that no meaning hangs on colour. Every text
//! that comes from outside goes through [`escape`].

mod bars;
mod curve;
mod frame;
mod lines;
mod scale;

pub(super) use bars::{Bar, bars};
pub(super) use curve::percentile_curve;
pub(super) use lines::over_time;

/// Rows that have a colour and a mark of their own; further ones begin again.
const STYLES: usize = 8;

/// One entry under a chart.
pub(super) struct LegendEntry {
    /// Escaped already.
    pub(super) label: String,
    /// A short line with its mark, as SVG.
    pub(super) swatch: String,
}

/// A drawn chart and what its lines are.
pub(super) struct Chart {
    pub(super) svg: String,
    pub(super) legend: Vec<LegendEntry>,
}

/// The class of a row's colour.
fn colour(row: usize) -> String {
    format!("s{}", row % STYLES)
}

/// A row's mark around a point.
fn mark(row: usize, x: f64, y: f64, title: &str) -> String {
    let class = colour(row);
    let path = |path: String| {
        format!("<path class=\"mark {class}\" d=\"{path}\"><title>{title}</title></path>")
    };
    match row % STYLES {
        0 => format!(
            "<circle class=\"mark {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"><title>{title}</title></circle>"
        ),
        1 => path(format!("M{:.1} {:.1}h6.4v6.4h-6.4z", x - 3.2, y - 3.2)),
        2 => path(format!("M{x:.1} {:.1}l4 7h-8z", y - 4.4)),
        3 => path(format!("M{x:.1} {:.1}l4.4 4.4l-4.4 4.4l-4.4 -4.4z", y - 4.4)),
        4 => path(format!("M{x:.1} {:.1}l4 -7h-8z", y + 4.4)),
        5 => path(format!("M{:.1} {:.1}h3v-3h2v3h3v2h-3v3h-2v-3h-3z", x - 4.0, y - 1.0)),
        6 => path(format!("M{:.1} {:.1}h4v8h-4z", x - 2.0, y - 4.0)),
        _ => path(format!("M{:.1} {:.1}h8v4h-8z", x - 4.0, y - 2.0)),
    }
}

/// A short piece of a row's line.
fn swatch(row: usize, dash: usize) -> String {
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 34 12\" width=\"34\" height=\"12\" aria-hidden=\"true\">\
         <path class=\"line {} d{dash}\" d=\"M1 6H33\"/>{}</svg>",
        colour(row),
        mark(row, 17.0, 6.0, "")
    )
}

/// Text as HTML and SVG take it, in an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
