//! Scales of an axis and their round ticks.

/// From values to a share of the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// Even steps, between these.
    Linear(f64, f64),
    /// Even factors, between these powers of ten.
    Log(f64, f64),
}

/// Ratio of the largest to the smallest value from which factors read better than steps.
const LOG_RATIO_MIN: f64 = 20.0;
/// Ticks that a short axis has room for, about.
const TICKS: f64 = 5.0;

impl Scale {
    /// From 0 to a round number that holds `max`.
    pub(super) fn from_zero(max: f64) -> Self {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        let step = round_step(max / TICKS);
        Self::Linear(0.0, (max / step).ceil() * step)
    }

    /// Factors for values that spread widely, else steps from 0.
    pub(super) fn fitting(min: f64, max: f64) -> Self {
        if min > 0.0 && max / min >= LOG_RATIO_MIN {
            let low = round_below(min);
            Self::Log(low.log10(), round_above(max).log10())
        } else {
            Self::from_zero(max)
        }
    }

    /// Where a value lies, from 0 to 1.
    pub(super) fn share(self, value: f64) -> f64 {
        let share = match self {
            Self::Linear(from, to) => (value - from) / (to - from),
            Self::Log(from, to) => (value.max(f64::MIN_POSITIVE).log10() - from) / (to - from),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Round values along it.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear(from, to) => {
                let step = round_step((to - from) / TICKS);
                let count = ((to - from) / step).round().clamp(1.0, 20.0) as usize;
                (0..=count).map(|index| from + step * index as f64).collect()
            }
            Self::Log(from, to) => {
                let decades = from.floor() as i32..=to.ceil() as i32;
                // Few decades have room for steps between them.
                let within: &[f64] = if to - from <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                decades
                    .flat_map(|decade| within.iter().map(move |one| one * 10_f64.powi(decade)))
                    .filter(|tick| (from - 1e-9..=to + 1e-9).contains(&tick.log10()))
                    .collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|one| one * power)
        .find(|one| *one >= step * 0.999)
        .unwrap_or(step)
}

fn round_above(value: f64) -> f64 {
    round_step(value)
}

fn round_below(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [5.0, 2.0, 1.0].into_iter().map(|one| one * power);
    steps.into_iter().find(|one| *one <= value * 1.001).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_hold_the_values() {
        let scale = Scale::from_zero(93.0);
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((scale.share(0.0), scale.share(100.0), scale.share(1e9)), (0.0, 1.0, 1.0));
        let scale = Scale::fitting(30_000.0, 40_000_000.0);
        assert_eq!(scale, Scale::Log(20_000_f64.log10(), 50_000_000_f64.log10()));
        assert_eq!(scale.ticks(), [1e5, 1e6, 1e7]);
        let near = Scale::fitting(1_000.0, 30_000.0).ticks();
        assert_eq!(near, [1e3, 2e3, 5e3, 1e4, 2e4, 5e4]);
    }

    #[test]
    fn values_that_are_none_have_a_scale_all_the_same() {
        for max in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            let scale = Scale::fitting(max, max);
            assert!(scale.ticks().len() > 1 && scale.share(max).is_finite(), "{max}");
        }
    }
}
