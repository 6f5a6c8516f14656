//! Values of the command line: rates, durations and shares, with their units.
//!
//! Each refuses what it does not understand with a sentence that shows what is right. A number without a unit is
//! accepted where it can mean one thing only.

use std::time::Duration;

/// Bits per second: `1G`, `100M`, `2.5Gbit/s`, `64k`, or a number of bits.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    let hint = || {
        format!("{text:?} is not a rate; write for example 1G, 100M or 2.5Gbit/s (bits per second)")
    };
    let (number, unit) = number_and_unit(text).ok_or_else(hint)?;
    // Kilobytes and kilobits are too easily mixed up to guess.
    if unit.contains('B') {
        return Err(format!(
            "{text:?} counts bytes; a rate is in bits per second, for example 800M for 100 MB/s"
        ));
    }
    let unit = unit.to_ascii_lowercase();
    let scale = unit
        .strip_suffix("bit/s")
        .or(unit.strip_suffix("bps"))
        .or(unit.strip_suffix("bit"))
        .unwrap_or(&unit);
    let factor = match scale {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        _ => return Err(hint()),
    };
    let bits = (number * factor).round();
    if !(1.0..=1e15).contains(&bits) {
        Err(format!("{text:?} is not a rate above 0 that a link has"))
    } else {
        Ok(bits as u64)
    }
}

/// A time: `100ms`, `1.5s`, `250us`, `2min`, or `0`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let hint =
        || format!("{text:?} is not a duration; write for example 100ms, 250us, 1.5s or 2min");
    let (number, unit) = number_and_unit(text).ok_or_else(hint)?;
    let seconds = match unit {
        "" if number == 0.0 => 0.0,
        "" => return Err(format!("{text:?} has no unit; write for example {text}ms or {text}s")),
        "ns" => number * 1e-9,
        "us" | "µs" => number * 1e-6,
        "ms" => number * 1e-3,
        "s" => number,
        "min" | "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(hint()),
    };
    // Through nanoseconds: 0.1 ms is to be 100,000 of them.
    let nanoseconds = (seconds * 1e9).round();
    if nanoseconds > 1e18 {
        Err(format!("{text:?} is longer than anything measured here"))
    } else {
        Ok(Duration::from_nanos(nanoseconds as u64))
    }
}

/// A part of the whole: `0.1%`, `1e-4` or `0`. A number above 1 without a per cent sign is refused.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let hint = || format!("{text:?} is not a share; write for example 0.1%");
    let (digits, scale) = match text.strip_suffix('%') {
        Some(digits) => (digits.trim_end(), 0.01),
        None => (text, 1.0),
    };
    let share = digits.parse::<f64>().map_err(|_| hint())? * scale;
    if !(0.0..=1.0).contains(&share) {
        return Err(format!("{text:?} is not between 0% and 100%"));
    }
    Ok(share)
}

/// A decimal number, without an exponent, and what follows it.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_bits() {
        for (text, bits) in [
            ("1G", 1_000_000_000),
            ("100M", 100_000_000),
            ("2.5Gbit/s", 2_500_000_000),
            ("10 gbit", 10_000_000_000),
            ("64k", 64_000),
            ("1.5Mbps", 1_500_000),
            ("9600", 9600),
        ] {
            assert_eq!(parse_rate(text), Ok(bits), "{text}");
        }
        for wrong in
            ["", "G", "-1G", "1e9", "1 GB/s", "0", "1.2.3G", "10X", "inf", "99999999999999T"]
        {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        assert!(parse_rate("10MB/s").unwrap_err().contains("bits"));
    }

    #[test]
    fn durations_have_units() {
        for (text, nanoseconds) in [
            ("100ms", 100_000_000),
            ("0.1ms", 100_000),
            ("250us", 250_000),
            ("1.5s", 1_500_000_000),
            ("2min", 120_000_000_000),
            ("0", 0),
            ("7 ns", 7),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for wrong in ["", "ms", "-1ms", "5 apples", "1e3ms", "99999999999999999h", "NaNs"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert!(parse_duration("100").unwrap_err().contains("100ms"));
    }

    #[test]
    fn shares_are_parts_of_the_whole() {
        for (text, share) in [
            ("0.1%", 0.001),
            ("100%", 1.0),
            ("0", 0.0),
            ("0.25", 0.25),
            ("1e-4", 1e-4),
            ("1 %", 0.01),
        ] {
            assert!((parse_share(text).unwrap() - share).abs() < 1e-12, "{text}");
        }
        for wrong in ["", "%", "101%", "-1%", "2", "NaN", "NaN%", "one"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
    }
}
