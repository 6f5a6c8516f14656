//! Histogram logs (`.hlog`): one line for each interval and tag, as HdrHistogram's own tools write and
//! read them.
//!
//! Values are nanoseconds; a line's maximum, which is there for people, is in milliseconds. Runs of any
//! length stream through: a reader holds one histogram at a time.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogHistogram, IntervalLogIterator, IntervalLogWriterBuilder, Tag,
};

use super::encoding::{self, DecodeError};

/// Nanoseconds in a millisecond.
const NANOS_PER_MS: f64 = 1e6;
/// Largest log that is read, in bytes: a day of one-second intervals of a few measures.
pub const LOG_BYTES_MAX: u64 = 1 << 30;
/// Most intervals that are read of one log.
const INTERVALS_MAX: usize = 10_000_000;
/// Longest tag that is read.
const TAG_BYTES_MAX: usize = 200;

/// One line of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// What was measured, such as `lag` or `core-0.fetch_round_trip`; empty for a line without a tag.
    pub tag: String,
    /// When the interval began, since the log's start.
    pub from: Duration,
    /// How long it was.
    pub length: Duration,
    /// Nanoseconds.
    pub histogram: Histogram<u64>,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HlogError {
    /// Its lines are not those of a histogram log.
    #[error("not a histogram log: the line at byte {0} is neither a comment nor an interval")]
    Line(usize),
    /// A line's histogram cannot be decoded.
    #[error("interval {number} of the log: {source}")]
    Histogram {
        /// Counted from 1.
        number: usize,
        /// Why.
        source: DecodeError,
    },
    /// More than will be read.
    #[error(
        "the log has more than {INTERVALS_MAX} intervals, or a tag of more than {TAG_BYTES_MAX} bytes: split it"
    )]
    TooMuch,
}

/// Writes a log that began at `started_ms` (milliseconds since 1970).
///
/// # Errors
/// When it cannot be written.
pub fn write<'a>(
    out: &mut impl Write,
    started_ms: u64,
    comment: &str,
    intervals: impl IntoIterator<Item = &'a Interval>,
) -> io::Result<()> {
    let start = UNIX_EPOCH + Duration::from_millis(started_ms);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(&format!("[{}]", one_line(comment)))
        .add_comment("[values in nanoseconds, the maximum of a line in milliseconds]")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(NANOS_PER_MS)
        .begin_log_with(out, &mut serializer)?;
    for Interval { tag, from, length, histogram } in intervals {
        let tag = slug(tag);
        let tag = if tag.is_empty() { None } else { Tag::new(&tag) };
        log.write_histogram(histogram, *from, *length, tag)
            .map_err(|error| io::Error::other(error.to_string()))?;
    }
    Ok(())
}

/// Reads a log's intervals, in order.
pub fn read(log: &[u8]) -> impl Iterator<Item = Result<Interval, HlogError>> + '_ {
    use hdrhistogram::serialization::interval_log::{LogEntry, LogIteratorError};
    IntervalLogIterator::new(log)
        .filter_map(|entry| match entry {
            Ok(LogEntry::Interval(interval)) => Some(Ok(interval)),
            Ok(_) => None,
            Err(LogIteratorError::ParseError { offset }) => Some(Err(HlogError::Line(offset))),
        })
        .enumerate()
        .map(|(index, interval)| decode(index, &interval?))
}

/// When a log began, in milliseconds since 1970; 0 when it does not say.
#[must_use]
pub fn started_ms(log: &[u8]) -> u64 {
    use hdrhistogram::serialization::interval_log::LogEntry;
    let times = IntervalLogIterator::new(log).map_while(Result::ok).find_map(|entry| match entry {
        LogEntry::StartTime(time) | LogEntry::BaseTime(time) => Some(time),
        LogEntry::Interval(_) => None,
    });
    times.and_then(|time| u64::try_from(time.as_millis()).ok()).unwrap_or(0)
}

fn decode(index: usize, interval: &IntervalLogHistogram<'_>) -> Result<Interval, HlogError> {
    let tag = interval.tag().map_or("", |tag| tag.as_str());
    if index >= INTERVALS_MAX || tag.len() > TAG_BYTES_MAX {
        return Err(HlogError::TooMuch);
    }
    let histogram = encoding::decode(interval.encoded_histogram())
        .map_err(|source| HlogError::Histogram { number: index + 1, source })?;
    Ok(Interval {
        tag: tag.to_owned(),
        from: interval.start_timestamp(),
        length: interval.duration(),
        histogram,
    })
}

/// A name as a tag, which may have no commas, spaces and line ends.
#[must_use]
pub fn slug(name: &str) -> String {
    let mut slug = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_alphanumeric() || "._-%".contains(c) {
            slug.push(c);
        } else if !slug.ends_with('_') {
            slug.push('_');
        }
    }
    slug.trim_matches('_').to_owned()
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(tag: &str, second: u64, values: &[u64]) -> Interval {
        let mut histogram = Histogram::new_with_bounds(1, 86_400_000_000_000, 2).unwrap();
        for value in values {
            histogram.record(*value).unwrap();
        }
        let (from, length) = (Duration::from_secs(second), Duration::from_millis(1_500));
        Interval { tag: tag.to_owned(), from, length, histogram }
    }

    #[test]
    fn intervals_survive_their_writing() {
        let written = [
            interval("core-0.fetch_round_trip", 0, &[100_000, 2_000_000]),
            interval("lag", 1, &[]),
            interval("", 2, &[86_000_000_000_000]),
        ];
        let mut log = Vec::new();
        write(&mut log, 1_700_000_000_123, "a\nhostile\rcomment", &written).unwrap();
        let text = String::from_utf8(log).unwrap();
        assert!(text.contains("#[BaseTime: 1700000000.123 (seconds since epoch)]"), "{text}");
        assert!(text.contains("#[a hostile comment]"), "{text}");
        let back: Vec<_> = read(text.as_bytes()).collect::<Result<_, _>>().unwrap();
        assert_eq!(back, written);
    }

    #[test]
    fn names_become_tags_that_every_reader_takes() {
        assert_eq!(slug("1 partition, 1 Gbit/s, 0.1 % loss"), "1_partition_1_Gbit_s_0.1_%_loss");
        assert_eq!(slug("Tag=x,\r\n y"), "Tag_x_y");
        let mut log = Vec::new();
        write(&mut log, 0, "", &[interval("a, b", 0, &[1])]).unwrap();
        assert_eq!(read(&log).next().unwrap().unwrap().tag, "a_b");
    }

    #[test]
    fn a_damaged_log_says_where() {
        let mut log = Vec::new();
        write(&mut log, 0, "", &[interval("lag", 0, &[1])]).unwrap();
        log.extend_from_slice(b"Tag=lag,1.0,1.0,0.0,AAAA\n");
        let errors: Vec<_> = read(&log).filter_map(Result::err).collect();
        assert!(matches!(errors[..], [HlogError::Histogram { number: 2, .. }]), "{errors:?}");
        let errors: Vec<_> = read(b"{\"a\": 1}\n").filter_map(Result::err).collect();
        assert!(matches!(errors[..], [HlogError::Line(0)]), "{errors:?}");
        assert_eq!(read(b"").count(), 0);
    }
}
