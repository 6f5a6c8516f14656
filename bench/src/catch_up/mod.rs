//! How fast a mirror catches up over a WAN, next to raw TCP through the same path.
//!
//! Every run has a path, a source and a mirror of its own and takes the same time: the source holds more than
//! the link carries in it. A run's clock starts with the source's first byte of records. What the mirror has at
//! the end is compared with the source, byte by byte.

mod limit;
mod longhaul;
mod progress;
mod raw;
mod receiver;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use crate::ground::{Ground, GroundSetup};
use crate::load::{SourceOptions, SourceProcess, SourceReport, Workload};
use crate::run::{BusyWatch, Figure, LimitKind, Sample, Session, Subject, SubjectError};
use crate::wan::{PathSettings, WanError};
use limit::Evidence;
use longhaul::Longhaul;
use progress::Progress;
use raw::{Flows, Raw};

pub use receiver::{ReceiverOptions, receive_process};

/// The question it answers.
pub const QUESTION: &str =
    "How fast does a mirror catch up over a WAN, and how long until it is at speed?";
/// What is mirrored.
const TOPIC: &str = "catch-up";
/// `socket.send.buffer.bytes` of a broker that nobody has tuned.
const UNTOUCHED_SEND_BUFFER_BYTES: usize = 102_400;
/// More than the link carries in the time, so that no run ends before.
const SURPLUS: f64 = 1.05;
/// From the order to mirror to the first byte of records.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// How often the progress is noted.
const NOTE: Duration = Duration::from_millis(20);

/// How the source's hosts are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceTuning {
    /// The kernel sizes the send buffer.
    Tuned,
    /// The send buffer of a broker that nobody has tuned: 102,400 bytes.
    Untouched,
}

impl SourceTuning {
    fn words(self) -> &'static str {
        match self {
            Self::Tuned => "tuned source",
            Self::Untouched => "untouched source",
        }
    }

    fn send_buffer_bytes(self) -> Option<usize> {
        match self {
            Self::Tuned => None,
            Self::Untouched => Some(UNTOUCHED_SEND_BUFFER_BYTES),
        }
    }
}

/// What to measure: every combination.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `longhaul` program.
    pub program: PathBuf,
    /// The paths, each with a rate.
    pub paths: Vec<PathSettings>,
    /// Numbers of partitions.
    pub partitions: Vec<u32>,
    /// Kinds of sources.
    pub sources: Vec<SourceTuning>,
    /// How long a run takes.
    pub time: Duration,
    /// Runs of each subject.
    pub repeats: u32,
    /// Where the mirrors' folders go.
    pub directory: PathBuf,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum CatchUpError {
    /// No such path.
    #[error(transparent)]
    Path(#[from] WanError),
    /// No rate, so nothing to compare with and no size.
    #[error("a path without a rate has no full speed to reach; give --rate")]
    NoRate,
    /// Not enough room for what a run mirrors.
    #[error(
        "{directory} has {free} MB free, a run at the highest rate needs {needed} MB: choose fewer --seconds, or another \
         --directory"
    )]
    Room {
        /// Where the mirrors' folders were to go.
        directory: PathBuf,
        /// What is free, in MB of 10^6 bytes.
        free: u64,
        /// What is needed.
        needed: u64,
    },
    /// The directory cannot be used.
    #[error("cannot use {0}: {1}")]
    Directory(PathBuf, std::io::Error),
}

/// Measures; the session gets a case for each combination.
///
/// # Errors
/// When a path is impossible: before anything is measured.
pub fn run(options: &Options, session: &Session) -> Result<(), CatchUpError> {
    for path in &options.paths {
        path.check()?;
        path.rate_bits.ok_or(CatchUpError::NoRate)?;
    }
    check_room(options)?;
    // The first path is opened to learn now, and not in each row, that there can be none.
    if let Some(path) = options.paths.first() {
        drop(crate::wan::WanPath::open(path)?);
    }
    for path in &options.paths {
        for &source in &options.sources {
            for &partitions in &options.partitions {
                let case = Case { options, path, source, partitions, flows: Cell::new(None) };
                case.measure(session);
            }
        }
    }
    Ok(())
}

fn check_room(options: &Options) -> Result<(), CatchUpError> {
    let rate = options.paths.iter().filter_map(|path| path.rate_bits).max().unwrap_or(0);
    let needed = bytes(rate, options.time);
    let room = rustix::fs::statvfs(&options.directory)
        .map_err(|error| CatchUpError::Directory(options.directory.clone(), error.into()))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if free >= needed {
        return Ok(());
    }
    let directory = options.directory.clone();
    Err(CatchUpError::Room { directory, free: free / 1_000_000, needed: needed / 1_000_000 })
}

/// More than a link carries in that time.
fn bytes(rate_bits: u64, time: Duration) -> u64 {
    (rate_bits as f64 / 8.0 * time.as_secs_f64() * SURPLUS) as u64
}

/// One combination.
struct Case<'a> {
    options: &'a Options,
    path: &'a PathSettings,
    source: SourceTuning,
    partitions: u32,
    /// Connections that Longhaul used in its last run.
    flows: Cell<Option<u32>>,
}

impl Case<'_> {
    fn measure(&self, session: &Session) {
        let name = format!(
            "{} {}, {}, {}",
            self.partitions,
            if self.partitions == 1 { "partition" } else { "partitions" },
            GroundSetup::Path(Box::new(self.path.clone())),
            self.source.words(),
        );
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![
            Box::new(Longhaul { case: self }),
            Box::new(Raw { case: self, flows: Flows::One }),
            Box::new(Raw { case: self, flows: Flows::AsLonghaul }),
        ];
        session.case(&name, &mut subjects, self.options.repeats);
    }

    fn open(&self) -> Result<Ground, SubjectError> {
        Ground::open(&GroundSetup::Path(Box::new(self.path.clone())))
    }

    /// What the topic holds.
    fn workload(&self) -> Workload {
        Workload::of_size(TOPIC, self.bytes(), self.partitions)
    }

    fn bytes(&self) -> u64 {
        bytes(self.path.rate_bits.unwrap_or(0), self.options.time)
    }

    fn start_source(
        &self,
        ground: &Ground,
        workload: Workload,
    ) -> Result<SourceProcess, SubjectError> {
        let options = SourceOptions {
            listen: ground.source_host(),
            workload,
            send_buffer_bytes: self.source.send_buffer_bytes(),
            congestion: None,
        };
        Ok(SourceProcess::start(&*ground.source_command(), &self.options.program, &options)?)
    }

    /// Notes what `arrived` says until the time is over or all is there.
    fn watch(
        &self,
        session: &Session,
        source: &mut SourceProcess,
        all: u64,
        mut arrived: impl FnMut() -> Result<(u64, u64), SubjectError>,
    ) -> Result<Progress, SubjectError> {
        let deadline = std::time::Instant::now() + BEGIN_MAX;
        let first_ns = loop {
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            if let Some(first) = first_record_ns(&source.report()?) {
                break first;
            }
            arrived()?;
            if std::time::Instant::now() > deadline {
                let seconds = BEGIN_MAX.as_secs();
                return Err(SubjectError::Failed(format!(
                    "not a record left the source within {seconds} s; is the path's loss too high?"
                )));
            }
            std::thread::sleep(NOTE);
        };
        let mut progress = Progress::begin(first_ns);
        while progress.time() < self.options.time && progress.bytes() < all {
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            std::thread::sleep(NOTE);
            let (at_ns, bytes) = arrived()?;
            progress.note(at_ns, bytes);
        }
        Ok(progress)
    }

    /// The part of a sample that is the same for everybody.
    fn sample(
        &self,
        own: &str,
        progress: &Progress,
        busy: &BusyWatch,
        report: &SourceReport,
        ground: &Ground,
    ) -> Result<Sample, SubjectError> {
        let flows = limit::flows(report);
        let rate = self.path.rate_bits.unwrap_or(0);
        let evidence = Evidence {
            plateau: progress.plateau(),
            link: Some((rate, self.path.mtu)),
            thread: limit::full_thread(
                busy,
                &[(own, LimitKind::Cpu), (SOURCE, LimitKind::Source), (PATH, LimitKind::Cpu)],
            ),
            machine: busy.limit(&[]),
            flows: &flows,
            at_ns: report.at_ns,
        };
        let share = progress.mean() / limit::payload_rate(rate, self.path.mtu);
        Ok(Sample {
            figures: vec![
                Figure::new("goodput", "MB/s", progress.mean() / 1e6),
                Figure::new("of the link", "%", share * 100.0),
                Figure::new("at speed after", "s", progress.time_to_speed().as_secs_f64()),
                Figure::new("plateau", "MB/s", progress.plateau() / 1e6),
                Figure::new("flows", "", flows.len() as f64),
            ],
            bytes: progress.bytes(),
            limit: Some(limit::decide(&evidence)),
            invalid: ground.spoilt()?,
            series: vec![progress.series()],
            ..Sample::default()
        })
    }
}

/// Names of processes in the costs.
const SOURCE: &str = "synthetic source";
const PATH: &str = "emulated path";

fn first_record_ns(report: &SourceReport) -> Option<u64> {
    report.connections.iter().filter_map(|connection| connection.first_record_ns).min()
}
