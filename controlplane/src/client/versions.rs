//! Which versions of each request a broker speaks.

use std::collections::HashMap;
use std::fmt;

/// Versions from `min` to `max`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionSpan {
    /// Lowest.
    pub min: i16,
    /// Highest.
    pub max: i16,
}

impl VersionSpan {
    /// The highest version in both.
    #[must_use]
    pub fn highest_common(self, other: Self) -> Option<i16> {
        let highest = self.max.min(other.max);
        (highest >= self.min.max(other.min)).then_some(highest)
    }
}

impl fmt::Display for VersionSpan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "versions {} to {}", self.min, self.max)
    }
}

/// A broker's answer to ApiVersions.
#[derive(Clone, Debug, Default)]
pub struct NegotiatedVersions {
    spans: HashMap<i16, VersionSpan>,
}

impl NegotiatedVersions {
    /// From (key, lowest, highest) triples.
    pub(super) fn new(entries: impl Iterator<Item = (i16, i16, i16)>) -> Self {
        let spans = entries.map(|(key, min, max)| (key, VersionSpan { min, max })).collect();
        Self { spans }
    }

    /// The versions of one request; `None` when the broker does not have it.
    #[must_use]
    pub fn span(&self, api_key: i16) -> Option<VersionSpan> {
        self.spans.get(&api_key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_version_is_in_both_spans() {
        let ours = VersionSpan { min: 4, max: 18 };
        assert_eq!(ours.highest_common(VersionSpan { min: 0, max: 11 }), Some(11));
        assert_eq!(ours.highest_common(VersionSpan { min: 0, max: 30 }), Some(18));
        assert_eq!(ours.highest_common(VersionSpan { min: 0, max: 3 }), None);
    }
}
