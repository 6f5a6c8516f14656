//! Bars of medians with their ranges, one below the other.

use std::fmt::Write as _;

use super::frame::WIDTH;
use super::{colour, escape};
use crate::report::number;
use crate::run::Spread;

const ROW_HEIGHT: f64 = 42.0;
const BAR_HEIGHT: f64 = 15.0;
const BAR_TOP: f64 = 20.0;
/// Room for the end of the widest range.
const RIGHT: f64 = 8.0;

/// A row's bar.
pub(in super::super) struct Bar<'a> {
    pub(in super::super) name: &'a str,
    /// Whether it is ours: drawn stronger.
    pub(in super::super) ours: bool,
    pub(in super::super) value: Option<Spread>,
    /// A part of the value that is set apart by hatching, such as time in the kernel.
    pub(in super::super) part: Option<f64>,
    /// What was measured, in words.
    pub(in super::super) words: String,
}

/// The drawing.
pub(in super::super) fn bars(title: &str, all: &[Bar<'_>]) -> String {
    let largest = all.iter().filter_map(|bar| bar.value).map(|value| value.max).fold(0.0, f64::max);
    let largest = if largest > 0.0 { largest } else { 1.0 };
    let height = ROW_HEIGHT * all.len() as f64;
    let described: Vec<String> =
        all.iter().map(|bar| format!("{}: {}", bar.name, bar.words)).collect();
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">",
        escape(&format!("{title}. {}", described.join("; ")))
    );
    for (index, bar) in all.iter().enumerate() {
        let top = ROW_HEIGHT * index as f64;
        let weight = if bar.ours { " strong" } else { "" };
        let _ = write!(
            svg,
            "<text class=\"name{weight}\" x=\"0\" y=\"{0:.1}\">{1}</text>\
             <text class=\"value end{weight}\" x=\"{2:.1}\" y=\"{0:.1}\">{3}</text>\
             <rect class=\"track\" x=\"0\" y=\"{4:.1}\" width=\"{2:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\"/>",
            top + 14.0,
            escape(&cut(bar.name)),
            WIDTH - RIGHT,
            escape(&bar.words),
            top + BAR_TOP,
        );
        if let Some(value) = bar.value {
            draw(&mut svg, index, bar, &value, top + BAR_TOP, largest);
        }
    }
    svg.push_str("</svg>");
    svg
}

fn draw(svg: &mut String, row: usize, bar: &Bar<'_>, value: &Spread, top: f64, largest: f64) {
    let to_x = |value: f64| (value / largest).clamp(0.0, 1.0) * (WIDTH - RIGHT);
    let width = to_x(value.median).max(1.0);
    let words = escape(&format!("{}: {}", bar.name, bar.words));
    let _ = write!(
        svg,
        "<rect class=\"bar {}\" x=\"0\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\">\
         <title>{words}</title></rect>",
        colour(row)
    );
    if let Some(part) = bar.part.filter(|part| *part > 0.0) {
        let part = to_x(part).min(width);
        let mut x = 3.0;
        while x < part {
            let _ = write!(svg, "<path class=\"hatch\" d=\"M{x:.1} {top:.1}v{BAR_HEIGHT}\"/>");
            x += 5.0;
        }
        let _ = write!(svg, "<path class=\"edge\" d=\"M{part:.1} {top:.1}v{BAR_HEIGHT}\"/>");
    }
    if value.min < value.max {
        let (from, to) = (to_x(value.min), to_x(value.max));
        let middle = top + BAR_HEIGHT / 2.0;
        let _ = write!(
            svg,
            "<path class=\"range\" d=\"M{from:.1} {0:.1}v8M{from:.1} {middle:.1}H{to:.1}M{to:.1} {0:.1}v8\">\
             <title>from {1} to {2}</title></path>",
            middle - 4.0,
            escape(&number::short(value.min)),
            escape(&number::short(value.max))
        );
    }
}

/// A name that leaves room for the value beside it.
fn cut(name: &str) -> String {
    const CHARACTERS_MAX: usize = 28;
    if name.chars().count() <= CHARACTERS_MAX {
        return name.to_owned();
    }
    let kept: String = name.chars().take(CHARACTERS_MAX - 1).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, median: f64) -> Bar<'_> {
        let value = Spread::of([median]);
        Bar { name, ours: false, value, part: Some(median / 2.0), words: number::short(median) }
    }

    #[test]
    fn bars_are_to_scale_and_missing_ones_have_their_name() {
        let mut all = vec![bar("full", 10.0), bar("half", 5.0), bar("none", f64::NAN)];
        all[0].part = None;
        let svg = bars("throughput", &all);
        let widths: Vec<&str> = svg
            .split("<rect class=\"bar")
            .skip(1)
            .map(|rest| rest.split("width=\"").nth(1).unwrap().split('"').next().unwrap())
            .collect();
        assert_eq!(widths, ["392.0", "196.0"]);
        assert!(svg.contains(">none<") && !svg.contains("NaN"), "{svg}");
    }
}
