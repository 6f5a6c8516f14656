//! What the cores counted, as JSON and as a log that HdrHistogram's own tools read.
//!
//! Functions of a snapshot. Both forms hold everything since the node started, each core apart
//! and all together; a reader that wants the last second subtracts the answer of a second ago.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dataplane::counters::{Counts, Measure, Snapshot, Timings};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use serde::Serialize;
use serde_json::{Value, json};

use super::process::Process;

/// Nanoseconds in a millisecond: the log's human-readable maximum is in milliseconds, as Java's is.
const NANOS_PER_MS: f64 = 1e6;

/// When counting began, and when it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) from: SystemTime,
    pub(super) to: SystemTime,
}

impl Interval {
    fn length(&self) -> Duration {
        self.to.duration_since(self.from).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Document {
    /// Unix milliseconds.
    started_ms: u64,
    /// Unix milliseconds.
    read_ms: u64,
    /// Between the two.
    interval_ms: u64,
    unit: &'static str,
    /// What the whole process spent, since it began.
    process: Option<Process>,
    merged: BTreeMap<&'static str, Distribution>,
    counts: Value,
    cores: Vec<Core>,
}

#[derive(Serialize)]
struct Core {
    core: u16,
    measures: BTreeMap<&'static str, Distribution>,
    counts: Value,
}

/// One histogram, in nanoseconds.
#[derive(Serialize)]
struct Distribution {
    count: u64,
    min: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    #[serde(rename = "p99.9")]
    p99_9: u64,
    #[serde(rename = "p99.99")]
    p99_99: u64,
    max: u64,
    /// HdrHistogram's compressed V2 encoding, in base64.
    histogram: String,
}

impl Distribution {
    fn of(histogram: &Histogram<u64>, serializer: &mut V2DeflateSerializer) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        let mut encoded = Vec::new();
        if let Err(error) = serializer.serialize(histogram, &mut encoded) {
            // Constant bounds and memory to write to: nothing is left that could fail.
            tracing::error!(%error, "a histogram was not encoded");
        }
        Self {
            count: histogram.len(),
            min: histogram.min(),
            mean: histogram.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: histogram.max(),
            histogram: STANDARD.encode(encoded),
        }
    }

    fn all(timings: &Timings) -> BTreeMap<&'static str, Self> {
        let mut serializer = V2DeflateSerializer::new();
        Measure::ALL
            .into_iter()
            .map(|measure| (measure.name(), Self::of(timings.of(measure), &mut serializer)))
            .collect()
    }
}

/// A JSON document.
pub(super) fn json(snapshot: &Snapshot, interval: &Interval) -> Vec<u8> {
    let cores = snapshot.cores.iter().zip(&snapshot.core_timings);
    let document = Document {
        started_ms: unix_ms(interval.from),
        read_ms: unix_ms(interval.to),
        interval_ms: interval.length().as_millis() as u64,
        unit: "nanoseconds",
        process: Process::read(),
        merged: Distribution::all(&snapshot.timings),
        counts: counts(&snapshot.total),
        cores: cores
            .map(|((core, counted), timings)| Core {
                core: core.0,
                measures: Distribution::all(timings),
                counts: counts(counted),
            })
            .collect(),
    };
    let mut body = serde_json::to_vec_pretty(&document).unwrap_or_default();
    body.push(b'\n');
    body
}

fn counts(counts: &Counts) -> Value {
    json!({
        "landed_bytes": counts.landed_bytes,
        "landed_batches": counts.landed_batches,
        "landed_in_place_bytes": counts.landed_in_place_bytes,
        "skipped_bytes": counts.skipped_bytes,
        "fetch_requests": counts.fetch_requests,
        "fetch_answers": counts.fetch_answers,
        "requests": counts.requests,
        "answers": counts.answers,
        "answer_bytes": counts.answer_bytes,
        "connections_opened": counts.connections_opened,
        "connections_closed": counts.connections_closed,
        "connections_refused": counts.connections_refused,
        "stalls": counts.stalls,
        "turns": counts.turns,
        "lags_negative": counts.lags_negative,
        "lags_unknown": counts.lags_unknown,
    })
}

/// A histogram log with one interval a line: all cores under the measure's name, and each core under
/// `core-N.MEASURE`.
pub(super) fn hlog(snapshot: &Snapshot, interval: &Interval) -> Vec<u8> {
    let mut body = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let begun = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(
            "[Longhaul node; values in nanoseconds, the maximum of a line in milliseconds]",
        )
        .with_start_time(interval.from)
        .with_base_time(interval.from)
        .with_max_value_divisor(NANOS_PER_MS)
        .begin_log_with(&mut body, &mut serializer);
    let written = begun.map_err(|error| error.to_string()).and_then(|mut log| {
        let named = snapshot.cores.iter().zip(&snapshot.core_timings);
        let named = named.map(|((core, _), timings)| (format!("core-{}.", core.0), timings));
        for (prefix, timings) in std::iter::once((String::new(), &snapshot.timings)).chain(named) {
            for measure in Measure::ALL {
                let tag = format!("{prefix}{}", measure.name());
                let histogram = timings.of(measure);
                log.write_histogram(histogram, Duration::ZERO, interval.length(), Tag::new(&tag))
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    });
    if let Err(error) = written {
        tracing::error!(error, "the histogram log is not complete");
    }
    body
}

fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
