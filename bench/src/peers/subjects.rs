//! Who reads or copies the topic: kcat, Longhaul, and MirrorMaker 2 twice.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::foreign::pause_for;
use super::logs::{self, CopiedRecords};
use super::source::{SOURCE_LIMIT, Source, TOPIC};
use super::{Broker, BrokerSetup, ClassPath, Kcat, MirrorMaker, MirrorMakerSetup, PeerError};
use crate::node::{MakeCommand, NodeProcess, NodeSetup};
use crate::run::{
    BusyWatch, CostWatch, Figure, LimitKind, ProcessCost, Sample, Series, Session, Subject,
    SubjectError,
};

/// Nothing new for this long: it will not come any more.
const STALL_MAX: Duration = Duration::from_secs(60);
/// How often progress is looked at: the error of a duration.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// A point of the series each.
const POINT_INTERVAL: Duration = Duration::from_millis(200);
/// The name of the destination broker's costs.
const DESTINATION: &str = "destination broker";

fn plain() -> MakeCommand {
    Arc::new(|program: &Path| Command::new(program))
}

/// kcat.
pub(super) struct KcatReads<'a>(pub(super) &'a Source);

/// The node.
pub(super) struct LonghaulMirrors<'a> {
    pub(super) source: &'a Source,
    pub(super) program: &'a Path,
    pub(super) directory: &'a Path,
}

/// MirrorMaker 2 into a broker of its own.
pub(super) struct MirrorMakerCopies<'a> {
    pub(super) source: &'a Source,
    pub(super) broker: &'a ClassPath,
    pub(super) mirror_maker: &'a ClassPath,
    pub(super) directory: &'a Path,
    pub(super) tuned: bool,
}

/// What is measured from the first byte on.
struct Meter {
    began: Instant,
    costs: CostWatch,
    busy: BusyWatch,
    processes: Vec<ProcessCost>,
    point: (Instant, u64),
    series: Vec<(f64, f64)>,
}

impl Meter {
    fn start(processes: &[(&str, u32)]) -> Self {
        let began = Instant::now();
        Self {
            began,
            costs: CostWatch::start(processes),
            busy: BusyWatch::start(processes),
            processes: Vec::new(),
            point: (began, 0),
            series: Vec::new(),
        }
    }

    /// Notes that so many bytes are there by now.
    fn at(&mut self, bytes: u64) {
        let passed = self.point.0.elapsed();
        if passed < POINT_INTERVAL {
            return;
        }
        let rate = bytes.saturating_sub(self.point.1) as f64 / 1e6 / passed.as_secs_f64();
        self.series.push((self.began.elapsed().as_secs_f64(), rate));
        self.point = (Instant::now(), bytes);
        self.read_costs();
    }

    /// A process that ends loses its memory's figure first: the largest seen stays.
    fn read_costs(&mut self) {
        let mut costs = self.costs.costs();
        for cost in &mut costs {
            let before = self.processes.iter().find(|before| before.name == cost.name);
            cost.memory_bytes_max =
                cost.memory_bytes_max.max(before.map_or(0, |before| before.memory_bytes_max));
        }
        self.processes = costs;
    }

    /// The sample of a run that moved `source_bytes`, and ends now.
    fn end(mut self, source_bytes: u64, others: &[(&str, LimitKind)]) -> Sample {
        let seconds = self.began.elapsed().as_secs_f64();
        self.read_costs();
        let series = Series {
            name: "throughput".to_owned(),
            unit: "MB/s".to_owned(),
            points: std::mem::take(&mut self.series),
        };
        let rate = source_bytes as f64 / 1e6 / seconds;
        let mut figures =
            vec![Figure::new("throughput", "MB/s", rate), Figure::new("duration", "s", seconds)];
        let gigabytes = source_bytes as f64 / 1e9;
        let column = |name: &str| match name {
            "source" => Some("source CPU"),
            DESTINATION => Some("destination CPU"),
            _ => None,
        };
        for cost in self.processes.iter().skip(1) {
            if let Some(column) = column(&cost.name) {
                figures.push(Figure::new(column, "s/GB", cost.seconds() / gigabytes));
            }
        }
        let softirq_seconds = self.costs.softirq_seconds();
        figures.push(Figure::new("softirq", "s/GB", softirq_seconds / gigabytes));
        Sample {
            figures,
            softirq_seconds,
            limit: Some(self.busy.limit(others)),
            processes: self.processes,
            bytes: source_bytes,
            series: vec![series],
            ..Sample::default()
        }
    }
}

impl Subject for KcatReads<'_> {
    fn name(&self) -> String {
        "kcat, to /dev/null".to_owned()
    }

    fn ours(&self) -> bool {
        false
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let mut kcat = Kcat::read(&plain(), &self.0.address().to_string(), TOPIC)?;
        let mut meter = Meter::start(&[("kcat", kcat.pid()), self.0.process()]);
        while !kcat.exited() {
            // Its progress is not seen from outside.
            meter.at(0);
            super::check_kcat_time(meter.began, self.0.bytes())?;
            pause_for(session, LOOK_INTERVAL)?;
        }
        meter.series.clear();
        let sample = meter.end(self.0.bytes(), &[SOURCE_LIMIT]);
        kcat.finished_well()?;
        Ok(sample)
    }
}

impl Subject for LonghaulMirrors<'_> {
    fn name(&self) -> String {
        "Longhaul".to_owned()
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let mut setup = NodeSetup::new(self.program, self.source.bytes());
        self.directory.clone_into(&mut setup.directory);
        let mut node = NodeProcess::start(setup).map_err(PeerError::from)?;
        let meter = Meter::start(&[("node", node.pid()), self.source.process()]);
        node.mirror("bench", &self.source.address().to_string(), TOPIC, "")
            .map_err(PeerError::from)?;
        let watched = Watched { data: node.data(), topic: TOPIC.to_owned(), source: self.source };
        let meter = watched.wait(session, meter, || Ok(node.check_running()?))?;
        let mut sample = meter.end(self.source.bytes(), &[SOURCE_LIMIT]);
        node.add_histograms(session, &mut sample);
        node.stop().map_err(PeerError::from)?;
        let checked = Some(self.source.compare(&node.data())?);
        Ok(Sample { checked, ..sample })
    }
}

/// The name of its row, in every benchmark.
pub(crate) fn mirror_maker_name(tuned: bool) -> String {
    format!("MirrorMaker 2, {}", if tuned { "tuned" } else { "as shipped" })
}

impl Subject for MirrorMakerCopies<'_> {
    fn name(&self) -> String {
        mirror_maker_name(self.tuned)
    }

    fn ours(&self) -> bool {
        false
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let records = self.source.records();
        let room = records.saturating_mul(u64::from(super::source::VALUE_BYTES));
        let mut setup = BrokerSetup::new(self.broker.clone(), room);
        self.directory.clone_into(&mut setup.directory);
        let destination = Broker::start(setup, session)?;
        let (from, to) = (self.source.address().to_string(), destination.address().to_string());
        let mut setup = MirrorMakerSetup::new(self.mirror_maker.clone(), &from, &to, TOPIC);
        setup.tuned = self.tuned;
        self.directory.clone_into(&mut setup.directory);
        let mut copying = MirrorMaker::start(&setup)?;
        let topic = copying.copied(TOPIC);
        let began = Instant::now();
        while logs::log_bytes(&destination.data(), &topic) == 0 {
            copying.check_running()?;
            if began.elapsed() > STALL_MAX {
                let words = copying.last_words();
                let words = format!("MirrorMaker 2 copied nothing within a minute: {words}");
                return Err(SubjectError::Failed(words));
            }
            pause_for(session, LOOK_INTERVAL)?;
        }
        let processes = [
            ("MirrorMaker 2", copying.pid()),
            (DESTINATION, destination.pid()),
            self.source.process(),
        ];
        let meter = Meter::start(&processes);
        let watched = Watched { data: destination.data(), topic, source: self.source };
        let meter = watched.wait(session, meter, || copying.check_running())?;
        let others = [SOURCE_LIMIT, (DESTINATION, LimitKind::Consumer)];
        let checked = format!("{records} records, each partition's end offset the source's");
        Ok(Sample { checked: Some(checked), ..meter.end(self.source.bytes(), &others) })
    }
}

/// A copy in the making, seen by its files.
struct Watched<'a> {
    data: std::path::PathBuf,
    topic: String,
    source: &'a Source,
}

impl Watched<'_> {
    /// Waits until every partition ends where the source's does.
    fn wait(
        self,
        session: &Session,
        mut meter: Meter,
        mut alive: impl FnMut() -> Result<(), PeerError>,
    ) -> Result<Meter, PeerError> {
        let mut copied = CopiedRecords::new(&self.data, &self.topic);
        let (mut seen, mut moved) = (0, Instant::now());
        loop {
            let count = copied.count();
            meter
                .at((self.source.bytes() as f64 * count as f64 / self.source.records() as f64)
                    as u64);
            if copied.ends() == self.source.ends() {
                break;
            }
            alive()?;
            if count > seen {
                (seen, moved) = (count, Instant::now());
            }
            if moved.elapsed() > STALL_MAX {
                let (seconds, records) = (STALL_MAX.as_secs(), self.source.records());
                return Err(PeerError::Failed(format!(
                    "no new record for {seconds} s at {count} of {records}"
                )));
            }
            pause_for(session, LOOK_INTERVAL)?;
        }
        if copied.count() != self.source.records() {
            let (count, records) = (copied.count(), self.source.records());
            return Err(PeerError::Failed(format!("{count} records instead of {records}")));
        }
        Ok(meter)
    }
}
