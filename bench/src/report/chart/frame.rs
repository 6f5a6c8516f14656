//! The frame of a chart with two axes: grid, ticks and titles.

use std::fmt::Write as _;

use super::escape;
use super::scale::Scale;

pub(super) const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// The drawing area, and what was drawn so far.
pub(super) struct Frame {
    x: Scale,
    y: Scale,
    svg: String,
}

/// An axis: its scale, and its ticks with their labels.
pub(super) struct Axis {
    pub(super) scale: Scale,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Frame {
    /// Draws the frame with `title` below it; what goes upwards is said by the chart's caption.
    /// `description` is what the chart shows, for those who do not see it.
    pub(super) fn new(x: &Axis, y: &Axis, title: &str, description: &str) -> Self {
        let mut frame = Self { x: x.scale, y: y.scale, svg: String::new() };
        let _ = write!(
            frame.svg,
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(description)
        );
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (value, label) in &y.ticks {
            let at = frame.y(*value);
            let _ = write!(
                frame.svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>\
                 <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                escape(label)
            );
        }
        for (value, label) in &x.ticks {
            let at = frame.x(*value);
            let _ = write!(
                frame.svg,
                "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/>\
                 <text class=\"tick middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 16.0,
                escape(label)
            );
        }
        let _ = write!(
            frame.svg,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text class=\"title middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 6.0,
            escape(title)
        );
        frame
    }

    /// Where a value lies on the drawing.
    pub(super) fn x(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT)
    }

    /// The same, upwards.
    pub(super) fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.share(value) * (HEIGHT - TOP - BOTTOM)
    }

    /// A line through points in values.
    pub(super) fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.x(*x), self.y(*y));
        }
        let _ = write!(self.svg, "<path class=\"line {class}\" d=\"{path}\"/>");
    }

    /// Any element.
    pub(super) fn add(&mut self, element: &str) {
        self.svg.push_str(element);
    }

    /// The finished drawing.
    pub(super) fn end(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }
}
