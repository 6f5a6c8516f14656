//! The percentile curve: durations over a logarithmic axis of 90, 99, 99.9 %, and so on.

use hdrhistogram::Histogram;

use super::frame::{Axis, Frame};
use super::scale::Scale;
use super::{Chart, LegendEntry, colour, escape, mark, swatch};
use crate::report::number;

/// Nines beyond which no run of ours has enough values.
const NINES_MAX: f64 = 7.0;
/// Points of a curve for each nine.
const POINTS_PER_NINE: f64 = 40.0;

/// A curve for each row: its number, its name and its values in nanoseconds, none of them empty.
pub(in super::super) fn percentile_curve(
    title: &str,
    rows: &[(usize, &str, &Histogram<u64>)],
) -> Chart {
    let most = rows.iter().map(|(.., histogram)| histogram.len()).max().unwrap_or(1);
    let nines = nines_of(most);
    let min = rows.iter().map(|(.., h)| h.value_at_quantile(0.0).max(1)).min().unwrap_or(1);
    let max = rows.iter().map(|(.., h)| h.max()).max().unwrap_or(1);
    let y = Scale::fitting(min as f64, max as f64);
    let x_axis = Axis { scale: Scale::Linear(0.0, nines), ticks: percentiles(nines) };
    let y_axis = Axis {
        scale: y,
        ticks: y.ticks().into_iter().map(|tick| (tick, number::nanos(tick))).collect(),
    };
    let mut frame = Frame::new(&x_axis, &y_axis, "percentile", &description(title, rows));
    let mut legend = Vec::new();
    // The first row, most often ours, lies on top.
    for (row, name, histogram) in rows.iter().rev() {
        let dash = row % 4;
        let end = nines_of(histogram.len()).min(nines);
        let steps = (end * POINTS_PER_NINE).ceil() as usize;
        let value = |nine: f64| histogram.value_at_quantile(1.0 - 10_f64.powf(-nine)) as f64;
        let mut points: Vec<(f64, f64)> = (0..steps)
            .map(|step| step as f64 / POINTS_PER_NINE)
            .map(|nine| (nine, value(nine)))
            .collect();
        points.push((end, histogram.max() as f64));
        frame.line(&format!("{} d{dash}", colour(*row)), &points);
        for (nine, label) in percentiles(end) {
            let nanos = value(nine);
            let words = escape(&format!("{name}: {label} % within {}", number::nanos(nanos)));
            let (x, y) = (frame.x(nine), frame.y(nanos));
            frame.add(&mark(*row, x, y, &words));
        }
        legend.insert(0, LegendEntry { label: escape(name), swatch: swatch(*row, dash) });
    }
    Chart { svg: frame.end(), legend }
}

/// How far to the right so many values reach: at least to 90 %.
fn nines_of(count: u64) -> f64 {
    (count.max(10) as f64).log10().min(NINES_MAX)
}

/// Ticks: the number of nines, and the percentage.
fn percentiles(nines: f64) -> Vec<(f64, String)> {
    let all = [
        (0.0, "0"),
        (0.5_f64, "50"),
        (0.9, "90"),
        (0.99, "99"),
        (0.999, "99.9"),
        (0.9999, "99.99"),
        (0.99999, "99.999"),
        (0.999_999, "99.9999"),
    ];
    all.into_iter()
        .map(|(quantile, label)| ((1.0 / (1.0 - quantile)).log10(), label.to_owned()))
        .filter(|(nine, _)| *nine <= nines + 1e-9)
        .collect()
}

fn description(title: &str, rows: &[(usize, &str, &Histogram<u64>)]) -> String {
    let parts: Vec<String> = rows
        .iter()
        .map(|(_, name, histogram)| {
            let at = |quantile| number::nanos(histogram.value_at_quantile(quantile) as f64);
            format!("{name}: median {}, 99 % within {}, at most {}", at(0.5), at(0.99), at(1.0))
        })
        .collect();
    format!("{title} by percentile. {}", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_where_its_values_end() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for value in 1..=1_000_u64 {
            histogram.record(value * 1_000_000).unwrap();
        }
        let chart = percentile_curve("lag", &[(0, "Longhaul", &histogram)]);
        assert!(chart.svg.contains(">99.9<"), "{}", chart.svg);
        assert!(!chart.svg.contains(">99.99<"), "a thousand values say nothing of it");
        assert!(chart.svg.contains("Longhaul: 99 % within 990 ms"), "{}", chart.svg);
        assert_eq!(chart.legend.len(), 1);
    }

    #[test]
    fn one_value_is_a_curve_too() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        histogram.record(0).unwrap();
        let chart = percentile_curve("lag", &[(9, "a<b", &histogram)]);
        assert!(!chart.svg.contains("NaN") && !chart.svg.contains("inf"), "{}", chart.svg);
        assert!(chart.svg.contains("a&lt;b") && !chart.svg.contains("a<b"));
    }
}
