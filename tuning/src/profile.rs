//! Profiles: what a host is for, with the path that is assumed where none is given.

use std::fmt;
use std::str::FromStr;

use crate::path::{Path, Rate, Rtt};

/// What a host is tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A long path of about 1 Gbit/s.
    Wan1g,
    /// A long path of about 10 Gbit/s.
    Wan10g,
    /// A long path of about 40 Gbit/s.
    Wan40g,
    /// A long path of about 100 Gbit/s.
    Wan100g,
    /// Source and node in one data centre.
    Lan,
    /// The tail's delay before throughput.
    Latency,
    /// Both ends of a measured path on this host.
    Bench,
}

/// A name that differs by more is another name.
const EDITS_MAX: usize = 3;

/// No profile of this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no profile \"{asked}\"{} All: {}", suggestion(*nearest), names())]
pub struct UnknownProfile {
    asked: String,
    nearest: Option<&'static str>,
}

impl Profile {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Wan1g,
        Self::Wan10g,
        Self::Wan40g,
        Self::Wan100g,
        Self::Lan,
        Self::Latency,
        Self::Bench,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wan1g => "wan-1g",
            Self::Wan10g => "wan-10g",
            Self::Wan40g => "wan-40g",
            Self::Wan100g => "wan-100g",
            Self::Lan => "lan",
            Self::Latency => "latency",
            Self::Bench => "bench",
        }
    }

    /// What it is for, in a line.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Wan1g => "catch up over a long path of about 1 Gbit/s",
            Self::Wan10g => "catch up over a long path of about 10 Gbit/s",
            Self::Wan40g => "catch up over a long path of about 40 Gbit/s",
            Self::Wan100g => "catch up over a long path of about 100 Gbit/s",
            Self::Lan => "source and node in one data centre",
            Self::Latency => "the tail's delay before throughput and power",
            Self::Bench => "both ends of a measured path on this host",
        }
    }

    /// The path that is assumed where none is given. Lanes grow with the rate, so that a lane's window
    /// stays at a size that a source's send buffer reaches.
    #[must_use]
    pub const fn path(self) -> Path {
        let (gigabits, rtt_micros, lanes) = match self {
            Self::Wan1g => (1, 100_000, 4),
            Self::Wan10g => (10, 100_000, 16),
            Self::Wan40g => (40, 100_000, 32),
            Self::Wan100g => (100, 100_000, 64),
            Self::Lan => (10, 500, 8),
            Self::Latency => (10, 1_000, 4),
            Self::Bench => (10, 100_000, 16),
        };
        Path { rate: Rate::gigabits(gigabits), rtt: Rtt::micros(rtt_micros), lanes }
    }

    /// One of the profiles for a long path.
    #[must_use]
    pub const fn is_wan(self) -> bool {
        matches!(self, Self::Wan1g | Self::Wan10g | Self::Wan40g | Self::Wan100g)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Self, UnknownProfile> {
        if let Some(found) = Self::ALL.into_iter().find(|profile| profile.name() == text) {
            return Ok(found);
        }
        let nearest = nearest(text, Self::ALL.iter().map(|profile| profile.name()));
        Err(UnknownProfile { asked: text.to_owned(), nearest })
    }
}

fn names() -> String {
    Profile::ALL.map(Profile::name).join(", ")
}

/// The name that begins as `asked` does, or the other way round; else the one with the fewest edits from it,
/// if those are few.
pub(crate) fn nearest<'a>(asked: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // What is compared is bounded, whatever was typed.
    let asked: String = asked.to_lowercase().chars().take(64).collect();
    let letters: Vec<char> = asked.chars().collect();
    let begins =
        |name: &str| !asked.is_empty() && (name.starts_with(&asked) || asked.starts_with(name));
    let (far, edits, name) =
        names.map(|name| (!begins(name), edits(&letters, name), name)).min()?;
    (!far || edits <= (letters.len() / 3).clamp(1, EDITS_MAX)).then_some(name)
}

/// The end of the sentence that there is no such name.
pub(crate) fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(|| ".".to_owned(), |name| format!("; did you mean {name}?"))
}

/// Levenshtein's distance, one row at a time.
fn edits(asked: &[char], name: &str) -> usize {
    let mut row: Vec<usize> = (0..=asked.len()).collect();
    for (line, letter) in name.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for column in 0..asked.len() {
            let replaced = diagonal + usize::from(asked[column] != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[asked.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_is_found_by_its_name() {
        for profile in Profile::ALL {
            assert_eq!(profile.name().parse::<Profile>().unwrap(), profile);
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_answered_with_the_nearest() {
        for (asked, nearest) in [
            ("wan10g", "wan-10g"),
            ("wan-100", "wan-100g"),
            ("WAN-1G", "wan-1g"),
            ("LAN", "lan"),
            ("latancy", "latency"),
            ("benchmark", "bench"),
        ] {
            let told = asked.parse::<Profile>().unwrap_err().to_string();
            assert!(told.contains(&format!("did you mean {nearest}?")), "{asked}: {told}");
        }
    }

    #[test]
    fn what_is_like_no_name_is_answered_with_all_of_them_and_no_guess() {
        for asked in ["", "x", "nope", "somethingelse"] {
            let told = asked.parse::<Profile>().unwrap_err().to_string();
            assert!(!told.contains("did you mean") && told.contains("wan-10g"), "{told}");
        }
    }

    #[test]
    fn every_default_path_is_one_that_may_be_given() {
        for profile in Profile::ALL {
            let path = profile.path();
            assert_eq!(Rate::new(path.rate.bits()), Ok(path.rate), "{profile}");
            assert_eq!(Rtt::new(path.rtt.time()), Ok(path.rtt), "{profile}");
            assert!(path.lanes >= 1, "{profile}");
        }
    }
}
