//! Numbers as people read them: three significant digits, units that fit.

/// A duration in nanoseconds.
#[must_use]
pub(super) fn nanos(nanos: f64) -> String {
    if nanos == 0.0 {
        return "0".to_owned();
    }
    let units = [(3.6e12, "h"), (6e10, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    // Seconds and minutes read well beyond what is one of the next.
    let units = units.map(|(size, unit)| (if size > 1e9 { size * 2.0 } else { size }, size, unit));
    let fits = units.into_iter().find(|(from, ..)| nanos.abs() >= *from);
    let (_, size, unit) = fits.unwrap_or((1.0, 1.0, "ns"));
    format!("{} {unit}", short(nanos / size))
}

/// Bytes, in powers of 1024.
#[must_use]
pub(super) fn bytes(bytes: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let (size, unit) = units.into_iter().find(|(size, _)| bytes >= *size).unwrap_or((1, "B"));
    format!("{} {unit}", short(bytes as f64 / size as f64))
}

/// Three significant digits, more only before the point; `-` for what is no number.
#[must_use]
pub(super) fn short(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let digits = match value.abs() {
        large if large >= 99.95 => 0,
        middle if middle >= 9.995 => 1,
        small if small >= 0.9995 || small == 0.0 => 2,
        tiny if tiny >= 0.0995 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A count with its thousands apart.
#[must_use]
pub(super) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            // A narrow space that no line breaks at.
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Seconds as minutes and hours where that reads better.
#[must_use]
pub(super) fn seconds(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..100 => format!("{} s", short(seconds)),
        100..7_200 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3_600, whole % 3_600 / 60),
    }
}

/// Milliseconds since 1970 as a date and time, UTC.
#[must_use]
pub(super) fn utc(unix_ms: u64) -> String {
    let (days, second) = (unix_ms / 86_400_000, unix_ms / 1_000 % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second % 3_600 / 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The Gregorian date of a day since 1970. Counts from March on, so that leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    // Days from 1 March of year 0 to 1970-01-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_fits() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7 ns"),
            (12_345.0, "12.3 µs"),
            (1_000_000.0, "1 ms"),
            (99_960_000.0, "100 ms"),
            (90_000_000_000.0, "90 s"),
            (123_456_000_000.0, "2.06 min"),
            (86_380_000_000_000.0, "24 h"),
            (f64::NAN, "- ns"),
        ] {
            assert_eq!(nanos(value), text);
        }
        assert_eq!(
            (bytes(0), bytes(1536), bytes(25 << 30)),
            ("0 B".into(), "1.5 KiB".into(), "25 GiB".into())
        );
    }

    #[test]
    fn values_keep_three_digits() {
        let texts = [1234.5, 123.4, 12.34, 1.234, 0.1234, 0.01234, -5.0].map(short);
        assert_eq!(texts, ["1234", "123", "12.3", "1.23", "0.123", "0.0123", "-5"]);
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(
            (seconds(1.5), seconds(135.0), seconds(7_300.0)),
            ("1.5 s".into(), "2 min 15 s".into(), "2 h 01 min".into())
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_796_000_000_000, "2026-11-30 00:53:20 UTC"),
            (4_107_542_399_000, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }
}
