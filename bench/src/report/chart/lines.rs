//! Values over time.

use super::frame::{Axis, Frame};
use super::scale::Scale;
use super::{Chart, LegendEntry, colour, escape, mark, swatch};
use crate::report::number;
use crate::report::view::{Line, OverTime, titled};

/// Points of a line that can be told apart.
const POINTS_MAX: usize = 300;
/// Marks along a line.
const MARKS: usize = 5;

/// A chart of all lines over so many seconds. `names` are the rows' names.
pub(in super::super) fn over_time(chart: &OverTime, names: &[String], seconds: f64) -> Chart {
    let points = chart.lines.iter().flat_map(|line| &line.points);
    let max = points.map(|point| point.1).fold(0.0, f64::max);
    let y = Scale::from_zero(max);
    let title = titled(&chart.name, &chart.unit);
    let labels = |scale: Scale| {
        scale.ticks().into_iter().map(|tick| (tick, number::short(tick))).collect::<Vec<_>>()
    };
    // Up to the last point, not to a round number beyond it.
    let end = if seconds > 0.0 { seconds } else { 1.0 };
    let mut x_ticks = labels(Scale::from_zero(end));
    x_ticks.retain(|(tick, _)| *tick <= end);
    let x_axis = Axis { scale: Scale::Linear(0.0, end), ticks: x_ticks };
    let y_axis = Axis { scale: y, ticks: labels(y) };
    let description =
        format!("{title} over {}, at most {}", number::seconds(seconds), number::short(max));
    let mut frame = Frame::new(&x_axis, &y_axis, "seconds", &description);
    let mut words: Vec<&str> = Vec::new();
    let mut legend = Vec::new();
    for line in &chart.lines {
        if !words.contains(&line.word.as_str()) {
            words.push(&line.word);
        }
        let dash = words.iter().position(|word| *word == line.word).unwrap_or(0) % 4;
        draw(&mut frame, line, dash, names, &chart.unit);
        if line.first {
            let label = escape(&label_of(line, names));
            legend.push(LegendEntry { label, swatch: swatch(line.row, dash) });
        }
    }
    Chart { svg: frame.end(), legend }
}

fn label_of(line: &Line, names: &[String]) -> String {
    let name = names.get(line.row).map_or("", String::as_str);
    format!("{name} {}", line.word).trim_end().to_owned()
}

fn draw(frame: &mut Frame, line: &Line, dash: usize, names: &[String], unit: &str) {
    let points = thinned(line);
    let faint = if line.first { "" } else { " faint" };
    frame.line(&format!("{} d{dash}{faint}", colour(line.row)), &points);
    if !line.first {
        return;
    }
    for index in 1..=MARKS {
        // Rows' marks are apart, so that lines that lie together can be told.
        let at = (index * points.len() / MARKS + line.row).saturating_sub(1) % points.len().max(1);
        let Some((seconds, value)) = points.get(at) else { continue };
        let label = label_of(line, names);
        let words =
            format!("{label}: {} {unit} at {} s", number::short(*value), number::short(*seconds));
        let (x, y) = (frame.x(*seconds), frame.y(*value));
        frame.add(&mark(line.row, x, y, &escape(&words)));
    }
}

/// At most [`POINTS_MAX`] points: of each group the largest of what is a maximum or a percentile, the mean
/// of other things.
fn thinned(line: &Line) -> Vec<(f64, f64)> {
    if line.points.len() <= POINTS_MAX {
        return line.points.clone();
    }
    let largest = line.word == "max" || line.word.starts_with('p');
    let group = line.points.len().div_ceil(POINTS_MAX);
    line.points
        .chunks(group)
        .map(|points| {
            let values = points.iter().map(|point| point.1);
            let value = if largest {
                values.fold(0.0, f64::max)
            } else {
                values.sum::<f64>() / points.len() as f64
            };
            (points[points.len() / 2].0, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(row: usize, word: &str, points: Vec<(f64, f64)>) -> Line {
        Line { row, word: word.to_owned(), first: true, points }
    }

    #[test]
    fn long_lines_keep_their_peaks() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|at| (f64::from(at), 1.0)).collect();
        points[4_321].1 = 900.0;
        let thin = thinned(&line(0, "p99", points.clone()));
        assert!(thin.len() <= POINTS_MAX);
        assert!(thin.iter().any(|point| point.1 == 900.0));
        let mean = thinned(&line(0, "", points));
        assert!(mean.iter().all(|point| point.1 < 100.0));
    }

    #[test]
    fn a_line_of_one_point_at_0_is_drawn() {
        let chart = OverTime {
            name: "lag".to_owned(),
            unit: "ms".to_owned(),
            lines: vec![line(0, "", vec![(0.0, 0.0)])],
        };
        let drawn = over_time(&chart, &["a \"b\"".to_owned()], 0.0);
        assert!(!drawn.svg.contains("NaN") && !drawn.svg.contains("inf"), "{}", drawn.svg);
        assert!(drawn.svg.contains("a &quot;b&quot;"), "{}", drawn.svg);
    }
}
