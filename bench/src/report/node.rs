//! A running node's histograms: one look, or a watch for some time.
//!
//! Speaks HTTP/1.0 over one socket a look, from the calling thread. A node counts from its start on; a
//! watch subtracts the answer before, so that each interval and the whole hold what happened meanwhile.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Deserialize;

use super::encoding::{self, DecodeError};
use super::hlog::Interval;
use crate::run::{
    Case, FORMAT, Figure, Machine, NamedHistogram, ProcessCost, Row, Run, Sample, Series,
};

/// Largest answer that is read: 64 cores of a few measures take a tenth.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// A node whose answer is not there after this long is given up.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A lag from which on a record is history, not late: a day, less what two digits lose.
pub const AGED_NANOS_MIN: u64 = 85_000_000_000_000;
/// Most intervals of one watch: what is kept of them stays in memory.
const INTERVALS_MAX: usize = 100_000;

/// Why a node's histograms cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// It cannot be reached.
    #[error(
        "cannot read histograms from {node}: {source}; is a node running there, and is this its http.listen?"
    )]
    Unreachable {
        /// Whom.
        node: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// It answers something else.
    #[error("{node} does not answer as a Longhaul node does: {why}")]
    NotANode {
        /// Who.
        node: String,
        /// What is wrong.
        why: String,
    },
    /// The watch would keep too much.
    #[error(
        "{0} intervals are more than the {INTERVALS_MAX} of one report: watch for a shorter time, or with a longer --interval"
    )]
    TooLong(u128),
}

/// What a node counted since its start.
#[derive(Clone, Debug)]
pub struct Look {
    /// When the node started, in milliseconds since 1970: a look with another start is another process.
    pub started_ms: u64,
    /// When it was read.
    pub read_ms: u64,
    /// What the node's process spent since it began, when it knows.
    pub process: Option<Process>,
    /// Counters of all cores together.
    pub counts: BTreeMap<String, u64>,
    /// All cores together under the measure's name, each core under `core-N.MEASURE`.
    pub histograms: BTreeMap<String, Histogram<u64>>,
}

/// What a process spent.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Process {
    /// Outside the kernel.
    pub user_seconds: f64,
    /// In the kernel.
    pub system_seconds: f64,
    /// Largest resident memory so far.
    pub memory_bytes_max: u64,
}

#[derive(Deserialize)]
struct Document {
    started_ms: u64,
    read_ms: u64,
    process: Option<Process>,
    counts: BTreeMap<String, u64>,
    merged: BTreeMap<String, Distribution>,
    cores: Vec<Core>,
}

#[derive(Deserialize)]
struct Core {
    core: u16,
    measures: BTreeMap<String, Distribution>,
}

#[derive(Deserialize)]
struct Distribution {
    histogram: String,
}

/// Reads them once. `node` is `HOST:PORT` of its HTTP.
///
/// # Errors
/// When it cannot be reached, or answers something else.
pub fn look(node: &str) -> Result<Look, NodeError> {
    let not_a_node = |why: String| NodeError::NotANode { node: node.to_owned(), why };
    let answer =
        fetch(node).map_err(|source| NodeError::Unreachable { node: node.to_owned(), source })?;
    let body = body_of(&answer).map_err(not_a_node)?;
    let document: Document =
        serde_json::from_slice(body).map_err(|error| not_a_node(error.to_string()))?;
    Look::of(document).map_err(|error| not_a_node(error.to_string()))
}

impl Look {
    fn of(document: Document) -> Result<Self, DecodeError> {
        let mut histograms = BTreeMap::new();
        for (measure, distribution) in document.merged {
            histograms.insert(measure, encoding::decode(&distribution.histogram)?);
        }
        for Core { core, measures } in document.cores {
            for (measure, distribution) in measures {
                let histogram = encoding::decode(&distribution.histogram)?;
                histograms.insert(format!("core-{core}.{measure}"), histogram);
            }
        }
        let Document { started_ms, read_ms, process, counts, .. } = document;
        Ok(Self { started_ms, read_ms, process, counts, histograms })
    }

    /// What happened between an earlier look and this one.
    fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (name, count) in &mut since.counts {
            *count = count.saturating_sub(earlier.counts.get(name).copied().unwrap_or(0));
        }
        for (name, histogram) in &mut since.histograms {
            if let Some(before) = earlier.histograms.get(name)
                && histogram.subtract(before).is_err()
            {
                // A count that fell within one process: the difference means nothing.
                histogram.reset();
            }
        }
        if let (Some(process), Some(before)) = (&mut since.process, earlier.process) {
            process.user_seconds -= before.user_seconds;
            process.system_seconds -= before.system_seconds;
        }
        since
    }

    /// The process in a run's terms.
    fn cost(&self) -> Option<ProcessCost> {
        self.process.map(|process| ProcessCost {
            name: "longhaul node".to_owned(),
            user_seconds: process.user_seconds,
            system_seconds: process.system_seconds,
            memory_bytes_max: process.memory_bytes_max,
        })
    }

    /// Whether most lags are longer than what is told apart.
    fn is_aged(&self) -> bool {
        let lag = self.histograms.get("lag").filter(|lag| !lag.is_empty());
        lag.is_some_and(|lag| lag.value_at_quantile(0.5) >= AGED_NANOS_MIN)
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

fn fetch(node: &str) -> std::io::Result<Vec<u8>> {
    let mut last = std::io::Error::other("the name has no address");
    for address in node.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER_MAX) {
            Ok(socket) => return exchange(socket, address, ANSWER_MAX),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Within `limit` altogether: a node that says a little now and then is slow too.
fn exchange(
    mut socket: TcpStream,
    address: SocketAddr,
    limit: Duration,
) -> std::io::Result<Vec<u8>> {
    let deadline = Instant::now() + limit;
    let slow = || {
        let words = format!("no answer within {} s", limit.as_secs_f64());
        std::io::Error::new(ErrorKind::TimedOut, words)
    };
    socket.set_write_timeout(Some(limit))?;
    // 1.0: the answer comes whole and ends with the connection. A node takes no names but its own.
    let request = format!("GET /histograms HTTP/1.0\r\nHost: {address}\r\n\r\n");
    socket.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    while answer.len() < ANSWER_BYTES_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(slow());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The time limit's error, which names a resource and no time.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(slow());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

fn body_of(answer: &[u8]) -> Result<&[u8], String> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.ok_or("no HTTP")?);
    let status = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or(head));
    if status.starts_with("HTTP/1.") && status.contains(" 200") {
        Ok(&body[4..])
    } else {
        Err(format!("{:.100}", status))
    }
}

/// What a watch saw.
#[derive(Clone, Debug)]
pub struct Watched {
    /// As a run of one case and one row.
    pub run: Run,
    /// Every interval, for a histogram log.
    pub intervals: Vec<Interval>,
}

/// How long to watch, and how often to look.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From one look to the next.
    pub interval: Duration,
    /// Altogether.
    pub total: Duration,
}

/// Everything since the node's start, by one look.
///
/// # Errors
/// When the node cannot be read.
pub fn since_start(node: &str, command: &str) -> Result<Watched, NodeError> {
    let look = look(node)?;
    let length = Duration::from_millis(look.read_ms.saturating_sub(look.started_ms));
    let mut watch = Watch::new(&look);
    watch.add(&look, Duration::ZERO, length);
    watch.origin_ms = look.started_ms;
    watch.series.clear();
    Ok(watch.end(node, command, &look, "since its start"))
}

/// Looks again and again. `stopped` is asked often and ends it early, with what there is by then.
///
/// # Errors
/// When the node cannot be read at the beginning, or the plan is too long. A node that goes away later
/// ends the watch.
pub fn watch(
    node: &str,
    command: &str,
    plan: Plan,
    stopped: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Watched, NodeError> {
    let looks = plan.total.as_nanos().div_ceil(plan.interval.as_nanos().max(1)).max(1);
    if looks > INTERVALS_MAX as u128 {
        return Err(NodeError::TooLong(looks));
    }
    let first = look(node)?;
    let began = Instant::now();
    let mut before = first.clone();
    let mut watch = Watch::new(&first);
    for number in 1..=looks {
        let at = plan.interval.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
        if !sleep_until(began + at.min(plan.total), stopped) {
            watch.interrupted = true;
            break;
        }
        match look(node) {
            Ok(now) if now.started_ms == first.started_ms => {
                let from = Duration::from_millis(before.read_ms.saturating_sub(first.read_ms));
                let length = Duration::from_millis(now.read_ms.saturating_sub(before.read_ms));
                let part = now.since(&before);
                progress(&words(&part, from + length, length));
                watch.add(&part, from, length);
                before = now;
            }
            Ok(_) => {
                watch.left_out.push("what came after the node was started anew".to_owned());
                break;
            }
            Err(error) => {
                watch.left_out.push(format!("what came after the node was lost: {error}"));
                break;
            }
        }
    }
    Ok(watch.end(node, command, &before.since(&first), "while watched"))
}

/// Sleeps in small steps; false when asked to stop.
fn sleep_until(at: Instant, stopped: &dyn Fn() -> bool) -> bool {
    loop {
        if stopped() {
            return false;
        }
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// A line for the operator while a watch goes on.
fn words(part: &Look, at: Duration, length: Duration) -> String {
    let lag = match part.histograms.get("lag").filter(|lag| !lag.is_empty()) {
        None => "nothing published".to_owned(),
        Some(_) if part.is_aged() => "records a day old or older".to_owned(),
        Some(lag) => format!("lag p99 {:.1} ms", lag.value_at_quantile(0.99) as f64 / 1e6),
    };
    let rate = megabytes_per_second(part.count("landed_bytes"), length);
    format!("{:.1} s: {rate:.1} MB/s landed, {lag}", at.as_secs_f64())
}

fn megabytes_per_second(bytes: u64, length: Duration) -> f64 {
    let seconds = length.as_secs_f64();
    if seconds > 0.0 { bytes as f64 / 1e6 / seconds } else { 0.0 }
}

/// What a watch gathers.
struct Watch {
    origin_ms: u64,
    intervals: Vec<Interval>,
    series: Vec<Series>,
    left_out: Vec<String>,
    interrupted: bool,
    length: Duration,
}

/// Measures shown over time, and at which quantiles.
const OVER_TIME: [(&str, &[(&str, f64)]); 3] = [
    ("lag", &[("p50", 0.5), ("p99", 0.99), ("max", 1.0)]),
    ("fetch_round_trip", &[("p50", 0.5), ("p99", 0.99)]),
    ("serve", &[("p50", 0.5), ("p99", 0.99)]),
];

impl Watch {
    fn new(first: &Look) -> Self {
        Self {
            origin_ms: first.read_ms,
            intervals: Vec::new(),
            series: Vec::new(),
            left_out: Vec::new(),
            interrupted: false,
            length: Duration::ZERO,
        }
    }

    fn add(&mut self, part: &Look, from: Duration, length: Duration) {
        let at = (from + length).as_secs_f64();
        for (name, counter) in
            [("landed", "landed_bytes"), ("answered to consumers", "answer_bytes")]
        {
            let rate = megabytes_per_second(part.count(counter), length);
            self.point(name, "MB/s", at, rate);
        }
        for (measure, quantiles) in OVER_TIME {
            let Some(histogram) = part.histograms.get(measure).filter(|h| !h.is_empty()) else {
                continue;
            };
            if measure == "lag" && part.is_aged() {
                continue;
            }
            for (word, quantile) in quantiles {
                let ms = histogram.value_at_quantile(*quantile) as f64 / 1e6;
                self.point(&format!("{} {word}", measure.replace('_', " ")), "ms", at, ms);
            }
        }
        self.length = from + length;
        for (tag, histogram) in &part.histograms {
            let (tag, histogram) = (tag.clone(), histogram.clone());
            self.intervals.push(Interval { tag, from, length, histogram });
        }
    }

    fn point(&mut self, name: &str, unit: &str, at: f64, value: f64) {
        let known = self.series.iter().position(|series| series.name == name);
        let index = known.unwrap_or_else(|| {
            let (name, unit) = (name.to_owned(), unit.to_owned());
            self.series.push(Series { name, unit, points: Vec::new() });
            self.series.len() - 1
        });
        self.series[index].points.push((at, value));
    }

    fn end(self, node: &str, command: &str, whole: &Look, when: &str) -> Watched {
        let local = node.to_socket_addrs().is_ok_and(|mut all| all.all(|a| a.ip().is_loopback()));
        let mut left_out = self.left_out;
        if !local {
            left_out.push("the node's machine: the one named here is the reader's".to_owned());
        }
        if whole.process.is_none() {
            left_out.push("CPU: the node does not say".to_owned());
        }
        if whole.is_aged() {
            left_out.push(
                "lag in figures and over time: most records were a day old or older when they came, \
                 as they are while a mirror catches up"
                    .to_owned(),
            );
        }
        let sample = Sample {
            figures: figures(whole, self.length),
            processes: whole.cost().into_iter().collect(),
            bytes: whole.count("landed_bytes"),
            series: self.series,
            histograms: whole
                .histograms
                .iter()
                .map(|(name, histogram)| NamedHistogram {
                    name: name.clone(),
                    histogram: histogram.clone(),
                })
                .collect(),
            ..Sample::default()
        };
        let row = Row {
            subject: "Longhaul".to_owned(),
            ours: true,
            samples: vec![sample],
            failures: Vec::new(),
        };
        let run = Run {
            format: FORMAT,
            bench: "node".to_owned(),
            question: format!("How does the node at {node} do?"),
            command: command.to_owned(),
            started_ms: self.origin_ms,
            seconds: self.length.as_secs_f64(),
            machine: Machine::read(),
            cases: vec![Case { name: format!("{node}, {when}"), rows: vec![row] }],
            left_out,
            interrupted: self.interrupted,
        };
        Watched { run, intervals: self.intervals }
    }
}

fn figures(whole: &Look, length: Duration) -> Vec<Figure> {
    let rate = |counter| megabytes_per_second(whole.count(counter), length);
    let mut figures = vec![
        Figure::new("landed", "MB/s", rate("landed_bytes")),
        Figure::new("answered to consumers", "MB/s", rate("answer_bytes")),
    ];
    let lag = whole.histograms.get("lag").filter(|lag| !lag.is_empty() && !whole.is_aged());
    if let Some(lag) = lag {
        for (word, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let ms = lag.value_at_quantile(quantile) as f64 / 1e6;
            figures.push(Figure::new(&format!("lag {word}"), "ms", ms));
        }
    }
    let behind = whole.count("lags_negative");
    if behind > 0 {
        figures.push(Figure::new("lags below 0 (clock behind)", "", behind as f64));
    }
    figures
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
