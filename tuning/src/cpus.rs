//! Sets of processors, in the two ways the kernel writes them: lists (`0-3,8`) and masks (`f,00000001`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// One more than the highest number that is believed: the kernel's own largest configuration.
const CPUS_MAX: u32 = 8192;
const GROUP_BITS: u32 = 32;

/// A set of processors, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(BTreeSet<u32>);

/// Why a list of processors was not taken.
#[derive(Debug, thiserror::Error)]
#[error("\"{0}\" is not a list of processors: write it as 0-3,8, with numbers below {CPUS_MAX}")]
pub struct CpusError(String);

impl Cpus {
    /// Whether none is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one is in it.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The one at a place, counted round and round; none from an empty set.
    #[must_use]
    pub fn nth_round(&self, place: usize) -> Option<u32> {
        self.0.iter().nth(place.checked_rem(self.0.len())?).copied()
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Those that are not in `others`.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        Self(self.0.difference(&others.0).copied().collect())
    }

    /// Those that are also in `others`.
    #[must_use]
    pub fn within(&self, others: &Self) -> Self {
        Self(self.0.intersection(&others.0).copied().collect())
    }

    /// Reads a mask: groups of up to 32 bits in hexadecimal, the highest first.
    #[must_use]
    pub fn from_mask(text: &str) -> Option<Self> {
        let groups: Vec<&str> = text.trim().split(',').collect();
        if groups.len() > (CPUS_MAX / GROUP_BITS) as usize {
            return None;
        }
        let mut cpus = BTreeSet::new();
        for (group, digits) in groups.iter().rev().enumerate() {
            if digits.starts_with('+') {
                return None;
            }
            let bits = u32::from_str_radix(digits, 16).ok()?;
            let first = u32::try_from(group).ok()? * GROUP_BITS;
            cpus.extend((0..GROUP_BITS).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
        }
        Some(Self(cpus))
    }

    /// Writes a mask without leading zeros.
    #[must_use]
    pub fn mask(&self) -> String {
        let highest = self.0.last().copied().unwrap_or(0) / GROUP_BITS;
        let group = |number: u32| {
            (0..GROUP_BITS)
                .filter(|bit| self.0.contains(&(number * GROUP_BITS + bit)))
                .fold(0_u32, |bits, bit| bits | 1 << bit)
        };
        let mut mask = format!("{:x}", group(highest));
        for number in (0..highest).rev() {
            mask.push_str(&format!(",{:08x}", group(number)));
        }
        mask
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Self, CpusError> {
        let wrong = || CpusError(text.trim().to_owned());
        let number = |text: &str| {
            text.trim().parse::<u32>().ok().filter(|cpu| *cpu < CPUS_MAX).ok_or_else(wrong)
        };
        let mut cpus = BTreeSet::new();
        for range in text.trim().split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let texts: Vec<String> = ranges
            .into_iter()
            .map(|(first, last)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            })
            .collect();
        formatter.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_in_the_kernels_way() {
        for (text, written) in
            [("0", "0"), ("0-3\n", "0-3"), ("0,1,2,8", "0-2,8"), ("63-64", "63-64")]
        {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), written, "{text}");
        }
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        for text in ["", "a", "3-1", "-1", "1-", "0,,1", "8192", "0-4294967295"] {
            let told = text.parse::<Cpus>().unwrap_err().to_string();
            assert!(told.contains("0-3,8"), "{text}: {told}");
        }
    }

    #[test]
    fn masks_are_read_and_written_in_the_kernels_way() {
        for (mask, list, written) in [
            ("3\n", "0-1", "3"),
            ("00000000,00000003", "0-1", "3"),
            ("1,00000000", "32", "1,00000000"),
            ("ff,80000001", "0,31-39", "ff,80000001"),
            ("0", "", "0"),
        ] {
            let cpus = Cpus::from_mask(mask).unwrap();
            assert_eq!(
                (cpus.to_string().as_str(), cpus.mask().as_str()),
                (list, written),
                "{mask}"
            );
        }
    }

    #[test]
    fn masks_that_are_none_are_refused() {
        for mask in ["", "g", "1,", "+1", "111111111", &"0,".repeat(300)] {
            assert_eq!(Cpus::from_mask(mask), None, "{mask}");
        }
    }

    #[test]
    fn places_are_counted_round_and_round() {
        let cpus: Cpus = "2,5,9".parse().unwrap();
        assert_eq!(
            (0..4).map(|place| cpus.nth_round(place)).collect::<Vec<_>>(),
            [2, 5, 9, 2].map(Some)
        );
        assert_eq!(Cpus::default().nth_round(0), None);
    }
}
