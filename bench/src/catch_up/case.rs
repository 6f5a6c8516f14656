//! One combination of path, source and partitions: what all who are measured under it have in common.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::limit::{self, Evidence, Flows as FlowsSeen};
use super::longhaul::Longhaul;
use super::progress::Progress;
use super::raw::{Flows, Raw};
use super::{Options, SourceTuning, TOPIC, bytes};
use crate::ground::{Ground, GroundSetup};
use crate::load::{SourceOptions, SourceProcess, SourceReport, Workload};
use crate::run::{BusyWatch, CostWatch, Figure, LimitKind, Sample, Session, Subject, SubjectError};
use crate::wan::PathSettings;

/// From the order to mirror to the first byte of records.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// How often the progress is noted.
const NOTE: Duration = Duration::from_millis(20);
/// The emulator's name in the costs: it is this process.
pub(super) const PATH: &str = "emulated path";
/// The synthetic source's.
pub(super) const SOURCE: &str = "synthetic source";

/// One combination.
pub(super) struct Case<'a> {
    pub(super) options: &'a Options,
    pub(super) path: &'a PathSettings,
    pub(super) source: SourceTuning,
    pub(super) partitions: u32,
    /// Connections that Longhaul used in its last run.
    pub(super) flows: Cell<Option<u32>>,
}

impl<'a> Case<'a> {
    /// Of those options.
    pub(super) fn new(
        options: &'a Options,
        path: &'a PathSettings,
        source: SourceTuning,
        partitions: u32,
    ) -> Self {
        Self { options, path, source, partitions, flows: Cell::new(None) }
    }

    /// Measures everybody from the synthetic source.
    pub(super) fn measure(&self, session: &Session) {
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![
            Box::new(Longhaul { case: self }),
            Box::new(Raw { case: self, flows: Flows::One }),
            Box::new(Raw { case: self, flows: Flows::AsLonghaul }),
        ];
        session.case(&self.name(self.source.words()), &mut subjects, self.options.repeats);
    }

    /// Its name, with that of the source.
    pub(super) fn name(&self, source: &str) -> String {
        let plural = if self.partitions == 1 { "" } else { "s" };
        let path = GroundSetup::Path(Box::new(self.path.clone()));
        format!("{} partition{plural}, {path}, {source}", self.partitions)
    }

    pub(super) fn open(&self) -> Result<Ground, SubjectError> {
        Ground::open(&GroundSetup::Path(Box::new(self.path.clone())))
    }

    /// What the topic holds.
    pub(super) fn workload(&self) -> Workload {
        Workload::of_size(TOPIC, self.bytes(), self.partitions)
    }

    pub(super) fn bytes(&self) -> u64 {
        bytes(self.path.rate_bits.unwrap_or(0), self.options.time)
    }

    pub(super) fn start_source(
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

    /// Waits until `first` knows when the first record left the source, or came; `None` when a minute was not enough.
    pub(super) fn wait_for_first(
        &self,
        session: &Session,
        mut first: impl FnMut() -> Result<Option<u64>, SubjectError>,
    ) -> Result<Option<u64>, SubjectError> {
        let deadline = Instant::now() + BEGIN_MAX;
        loop {
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            let first_ns = first()?;
            if first_ns.is_some() || Instant::now() > deadline {
                return Ok(first_ns);
            }
            std::thread::sleep(NOTE);
        }
    }

    /// Waits for the first record to leave the synthetic source. The time is on the clock that processes share.
    pub(super) fn wait_for_source(
        &self,
        session: &Session,
        source: &mut SourceProcess,
    ) -> Result<u64, SubjectError> {
        let first_ns = self.wait_for_first(session, || {
            let SourceReport { connections, .. } = source.report()?;
            Ok(connections.iter().filter_map(|connection| connection.first_record_ns).min())
        })?;
        first_ns.ok_or_else(|| {
            SubjectError::Failed(format!(
                "not a record came within {} s; is the path's loss too high?",
                BEGIN_MAX.as_secs()
            ))
        })
    }

    /// Notes what `arrived` says, a time and bytes, until the time is over or all is there.
    pub(super) fn follow(
        &self,
        session: &Session,
        first_ns: u64,
        all: u64,
        mut arrived: impl FnMut() -> Result<(u64, u64), SubjectError>,
    ) -> Result<Progress, SubjectError> {
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

    /// The part of a sample that is the same for everybody. `processes` are those that may have bound it, the
    /// subject's own first.
    pub(super) fn sample(
        &self,
        processes: &[(&str, LimitKind)],
        progress: &Progress,
        spent: &Spent,
        flows: &FlowsSeen,
        ground: &Ground,
    ) -> Result<Sample, SubjectError> {
        let rate = self.path.rate_bits.unwrap_or(0);
        let evidence = Evidence {
            plateau: progress.plateau(),
            link: Some((rate, self.path.mtu)),
            thread: limit::full_thread(&spent.busy, processes),
            machine: spent.busy.limit(&[]),
            flows,
        };
        let share = progress.mean() / limit::payload_rate(rate, self.path.mtu);
        Ok(Sample {
            figures: vec![
                Figure::new("goodput", "MB/s", progress.mean() / 1e6),
                Figure::new("of the link", "%", share * 100.0),
                Figure::new("at speed after", "s", progress.time_to_speed().as_secs_f64()),
                Figure::new("plateau", "MB/s", progress.plateau() / 1e6),
                Figure::new("flows", "", flows.count() as f64),
            ],
            processes: spent.costs.costs(),
            softirq_seconds: spent.costs.softirq_seconds(),
            bytes: progress.bytes(),
            limit: Some(limit::decide(&evidence)),
            invalid: ground.spoilt()?,
            series: vec![progress.series()],
            ..Sample::default()
        })
    }
}

/// What processes spend from the first record on: a Java program spends more on its start than on a run.
pub(super) struct Spent {
    costs: CostWatch,
    busy: BusyWatch,
}

impl Spent {
    /// Begins to count.
    pub(super) fn begin(processes: &[(&str, u32)]) -> Self {
        Self { costs: CostWatch::start(processes), busy: BusyWatch::start(processes) }
    }
}
