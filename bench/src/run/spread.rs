//! Median and range of a few repeats.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Median, smallest and largest of all repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of the finite ones among `values`; nothing when there is none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let median = f64::midpoint(values[last / 2], values[last.div_ceil(2)]);
        Some(Self { median, min: values[0], max: values[last] })
    }
}

impl fmt::Display for Spread {
    /// `median (min to max)`, with as many digits after the point as the precision says (2 without).
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = formatter.precision().unwrap_or(2);
        write!(
            formatter,
            "{:.digits$} ({:.digits$} to {:.digits$})",
            self.median, self.min, self.max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 100.0, f64::NAN]).unwrap();
        assert_eq!(spread, Spread { median: 3.5, min: 1.0, max: 100.0 });
        assert_eq!(format!("{spread:.1}"), "3.5 (1.0 to 100.0)");
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
    }
}
