//! The demo: a synthetic source, a node that mirrors it, and a consumer that checks every record.
//!
//! The node is a child process with a data directory of its own, driven by the same commands a
//! user types. Everything is removed at the end unless it is kept.

mod consumer;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::load::{Generator, SourceCluster, SourceServer, Workload};
use crate::node::{NodeError, NodeProcess, NodeSetup};
use crate::run::CostWatch;
use consumer::Checker;

/// What the demo mirrors.
const TOPIC: &str = "demo";
/// How the mirror is called.
const MIRROR: &str = "demo";
/// Without a single new record for this long the demo gives up.
const STALL_MAX: Duration = Duration::from_secs(30);

/// How the demo runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes to mirror, about.
    pub size_bytes: u64,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Leave everything running at the end, until the operator interrupts.
    pub keep: bool,
    /// The `longhaul` program, to run the node with.
    pub program: PathBuf,
    /// Redraw one line (a terminal) instead of writing a line a second.
    pub redraw: bool,
}

/// What the demo found.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Records checked.
    pub records: u64,
    /// Bytes mirrored and checked.
    pub bytes: u64,
    /// From the first request to the last record checked.
    pub elapsed: Duration,
    /// Processor time of the node, user and system.
    pub node_cpu_seconds: f64,
    /// Whether the operator interrupted it.
    pub interrupted: bool,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The synthetic source did not start.
    #[error(transparent)]
    Source(#[from] crate::load::ServerError),
    /// The node or one of its commands failed.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// What the node served is not what the source holds.
    #[error("record check failed: {0}")]
    Mismatch(String),
    /// Nothing moved.
    #[error("no new record for {} s at {checked} of {expected} records; the node's last words:\n{log}", STALL_MAX.as_secs())]
    Stalled {
        /// Records checked so far.
        checked: u64,
        /// Records expected.
        expected: u64,
        /// End of the node's log.
        log: String,
    },
    /// The demo's own files or streams.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
}

/// Runs the demo, writing progress and the summary to `out`. `stop` ends it early.
///
/// # Errors
/// When the node fails, stalls, or serves a byte that differs.
pub fn run(
    options: &Options,
    stop: &Arc<AtomicBool>,
    out: &mut dyn Write,
) -> Result<Summary, DemoError> {
    let generator =
        Generator::new(Workload::of_size(TOPIC, options.size_bytes, options.partitions));
    let source = SourceServer::start(SourceCluster::new(generator.clone(), 0))?;
    let setup = NodeSetup::new(&options.program, generator.total_bytes());
    let mut node = NodeProcess::start(setup)?;
    let costs = CostWatch::start(&[("node", node.pid())]);
    say(
        out,
        &format!(
            "source {} (synthetic, {} in {} partitions), node {}",
            source.address(),
            size(generator.total_bytes()),
            options.partitions,
            node.address()
        ),
    )?;
    node.mirror(MIRROR, &source.address().to_string(), TOPIC, "")?;

    let began = Instant::now();
    let checker = Checker::start(node.address(), generator.clone());
    let outcome = watch(options, stop, out, &generator, &checker, &node, began);
    let elapsed = began.elapsed();
    let (records, bytes) = checker.checked();
    checker.stop();
    let interrupted = outcome?;
    if options.keep && !interrupted {
        keep(out, &source, &mut node, stop)?;
    }
    let node_cpu_seconds = costs.costs().first().map_or(0.0, crate::run::ProcessCost::seconds);
    node.stop()?;
    let summary = Summary { records, bytes, elapsed, node_cpu_seconds, interrupted };
    report(out, &summary)?;
    Ok(summary)
}

/// Shows progress until every record is checked (`false`) or the operator interrupts (`true`).
fn watch(
    options: &Options,
    stop: &AtomicBool,
    out: &mut dyn Write,
    generator: &Generator,
    checker: &Checker,
    node: &NodeProcess,
    began: Instant,
) -> Result<bool, DemoError> {
    let expected = generator.workload().records * u64::from(generator.workload().partitions);
    let mut progress =
        Progress { last: began, last_bytes: 0, moved: began, redraw: options.redraw };
    loop {
        let (records, bytes) = checker.checked();
        if let Some(problem) = checker.problem() {
            return Err(DemoError::Mismatch(problem));
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(true);
        }
        progress.show(out, generator, checker, records, bytes, expected)?;
        if records >= expected {
            return Ok(false);
        }
        if progress.moved.elapsed() > STALL_MAX {
            return Err(DemoError::Stalled { checked: records, expected, log: node.log_tail() });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct Progress {
    last: Instant,
    last_bytes: u64,
    moved: Instant,
    redraw: bool,
}

impl Progress {
    fn show(
        &mut self,
        out: &mut dyn Write,
        generator: &Generator,
        checker: &Checker,
        records: u64,
        bytes: u64,
        expected: u64,
    ) -> Result<(), DemoError> {
        let interval = Duration::from_millis(if self.redraw { 250 } else { 1000 });
        let passed = self.last.elapsed();
        let done = records >= expected;
        if passed < interval && !done {
            return Ok(());
        }
        if bytes > self.last_bytes {
            self.moved = Instant::now();
        }
        let rate = (bytes - self.last_bytes) as f64 / passed.as_secs_f64().max(0.001) / 1e6;
        let lag = expected.saturating_sub(checker.mirrored());
        let line = format!(
            "checked {:>5.1} %  {:>7.1} MB/s  lag {lag} records  {}/{} partitions complete",
            records as f64 * 100.0 / expected as f64,
            rate,
            checker.complete(),
            generator.workload().partitions,
        );
        self.last = Instant::now();
        self.last_bytes = bytes;
        if self.redraw {
            write!(out, "\r{line:<78}{}", if done { "\n" } else { "" })
                .and_then(|()| out.flush())
                .map_err(|error| DemoError::Io("cannot write progress".to_owned(), error))
        } else {
            say(out, &line)
        }
    }
}

fn keep(
    out: &mut dyn Write,
    source: &SourceServer,
    node: &mut NodeProcess,
    stop: &AtomicBool,
) -> Result<(), DemoError> {
    say(
        out,
        &format!(
            "kept running; stop with Ctrl-C\n  node    {node}   e.g. kcat -b {node} -C -t {TOPIC} -c 5 -f '%p %o %S\\n'\n  \
             source  {}\n  data    {}\n  state   longhaul mirror describe --bootstrap-server {node}",
            source.address(),
            node.data().display(),
            node = node.address(),
        ),
    )?;
    while !stop.load(Ordering::Relaxed) {
        node.check_running()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn report(out: &mut dyn Write, summary: &Summary) -> Result<(), DemoError> {
    let seconds = summary.elapsed.as_secs_f64();
    let gigabytes = summary.bytes as f64 / 1e9;
    let verdict =
        if summary.interrupted { "interrupted" } else { "every record equals the source's" };
    say(
        out,
        &format!(
            "{verdict}: {} records, {} in {seconds:.1} s ({:.0} MB/s); the node used {:.2} CPU seconds per GB, \
             serving the consumer included",
            summary.records,
            size(summary.bytes),
            gigabytes * 1000.0 / seconds.max(0.001),
            summary.node_cpu_seconds / gigabytes.max(0.001),
        ),
    )
}

fn say(out: &mut dyn Write, line: &str) -> Result<(), DemoError> {
    writeln!(out, "{line}")
        .map_err(|error| DemoError::Io("cannot write progress".to_owned(), error))
}

/// Bytes in the unit a person reads.
fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    if bytes >= 1e9 { format!("{:.2} GB", bytes / 1e9) } else { format!("{:.1} MB", bytes / 1e6) }
}
