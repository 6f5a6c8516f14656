//! From a real broker: Longhaul, and MirrorMaker 2 as shipped and tuned, into a broker of its own.
//!
//! Path, broker and its filled topic are the same for all runs of the case: filling takes longer than a run.

use std::path::PathBuf;

use super::TOPIC;
use super::case::{Case, PATH, Spent};
use super::limit::{Buffer, Flows};
use super::progress::Progress;
use crate::clock::monotonic_ns;
use crate::ends::EndOffsets;
use crate::ground::Ground;
use crate::node::{NodeProcess, NodeSetup};
use crate::peers::{
    Broker, BrokerSetup, ClassPath, CopiedRecords, Jars, MirrorMaker, MirrorMakerSetup, SendBuffer,
    TopicSetup, compare_beginning, log_bytes, mirror_maker_name,
};
use crate::run::{LimitKind, Sample, Session, Subject, SubjectError};

/// Bytes of a record's value, as the synthetic source has them.
const VALUE_BYTES: u32 = 1024;
/// Names in the costs.
const NODE: &str = "longhaul node";
const MIRROR_MAKER: &str = "MirrorMaker 2";
const BROKER: &str = "source broker";
const DESTINATION: &str = "destination broker";

pub(super) struct KafkaCase<'a> {
    pub(super) case: &'a Case<'a>,
    pub(super) kafka: &'a ClassPath,
    pub(super) jars: &'a Jars,
}

impl KafkaCase<'_> {
    /// Fills a broker and measures everybody from it. A broker that does not come up is a failure of the case,
    /// not of the benchmark.
    pub(super) fn measure(&self, session: &Session) {
        let name = self.case.name(&format!("real Kafka, {}", self.case.source.words()));
        let source = match self.start(session) {
            Err(SubjectError::Interrupted) => return,
            Err(error) => return session.case_failed(&name, "Longhaul", error.to_string()),
            Ok(source) => source,
        };
        let mut subjects: Vec<Box<dyn Subject + '_>> =
            vec![Box::new(LonghaulMirrors { case: self.case, source: &source })];
        if let Some(mirror_maker) = &self.jars.mirror_maker {
            subjects.extend([false, true].map(|tuned| {
                let jars = (self.kafka, mirror_maker);
                Box::new(MirrorMakerCopies { case: self.case, source: &source, jars, tuned })
                    as Box<dyn Subject>
            }));
        }
        session.case(&name, &mut subjects, self.case.options.repeats);
    }

    fn start(&self, session: &Session) -> Result<KafkaSource, SubjectError> {
        let case = self.case;
        let ground = case.open()?;
        let mut setup = BrokerSetup::new(self.kafka.clone(), case.bytes());
        setup.host = ground.source_host();
        setup.send_buffer = case.source.send_buffer();
        setup.make_command = ground.source_command();
        setup.directory.clone_from(&case.options.directory);
        let broker = Broker::start(setup, session)?;
        let topic = TopicSetup {
            name: TOPIC.to_owned(),
            partitions: case.partitions,
            records: (case.bytes() / u64::from(VALUE_BYTES)).max(1),
            value_bytes: VALUE_BYTES,
            compression: "none".to_owned(),
        };
        session.say(&format!(
            "filling {} partitions of a real broker with {:.2} GB",
            case.partitions,
            case.bytes() as f64 / 1e9
        ));
        broker.create(session, &topic)?;
        let records = CopiedRecords::new(&broker.data(), TOPIC).count();
        if records != topic.records {
            let wanted = topic.records;
            return Err(SubjectError::Failed(format!(
                "the broker has {records} of {wanted} records"
            )));
        }
        let bytes = log_bytes(&broker.data(), TOPIC);
        Ok(KafkaSource { broker, ground, bytes, records })
    }
}

/// A broker with its topic filled, on the source's side of a path.
struct KafkaSource {
    // Before the ground: with that, everything in its namespaces ends.
    broker: Broker,
    ground: Ground,
    bytes: u64,
    records: u64,
}

impl KafkaSource {
    /// Stored bytes of so many records.
    fn bytes_of(&self, records: i64) -> u64 {
        (records as f64 / self.records as f64 * self.bytes as f64) as u64
    }

    /// Watches a copy of the topic, whose name there is `topic`; counts what `processes` spend. The time begins with the
    /// first records, which are not counted: who copies in large steps did not copy the first one in no time. When
    /// none come for a minute it begins all the same: that too is a result.
    fn watch(
        &self,
        case: &Case<'_>,
        session: &Session,
        copy: (std::net::SocketAddr, &str),
        processes: &[(&str, u32)],
        mut alive: impl FnMut() -> Result<(), SubjectError>,
    ) -> Result<Watched, SubjectError> {
        let (address, topic) = copy;
        let lost = |error| SubjectError::failed("ask how far the copy is", error);
        let stream = self.ground.connect(address)?;
        let mut ends = EndOffsets::new(stream, topic, case.partitions).map_err(lost)?;
        let mut arrived = || -> Result<(u64, u64), SubjectError> {
            alive()?;
            let records: i64 = ends.read().map_err(lost)?.iter().sum();
            Ok((monotonic_ns(), self.bytes_of(records)))
        };
        let mut before = 0;
        let first_ns = case.wait_for_first(session, || {
            let (at_ns, bytes) = arrived()?;
            before = bytes;
            Ok((bytes > 0).then_some(at_ns))
        })?;
        let spent = Spent::begin(processes);
        let carried = self.carried()?;
        let first_ns = first_ns.unwrap_or_else(monotonic_ns);
        let progress = case.follow(session, first_ns, self.bytes.saturating_sub(before), || {
            let (at_ns, bytes) = arrived()?;
            Ok((at_ns, bytes.saturating_sub(before)))
        })?;
        let seconds = progress.time().as_secs_f64();
        let path_rate = self.carried()?.saturating_sub(carried) as f64 / seconds.max(1e-9);
        Ok(Watched { progress, spent, path_rate })
    }

    /// Bytes that the path carried to the mirror's side.
    fn carried(&self) -> Result<u64, SubjectError> {
        let report = self.ground.report()?;
        Ok(report.map_or(0, |report| report.source_to_destination.counts.bytes))
    }

    /// The connections of a copy, and what holds each of them back: the reader's receive buffer, or else the broker's
    /// send buffer, where they are limited.
    fn flows(&self, case: &Case<'_>, count: u32, rate: f64, window: Option<usize>) -> Flows {
        let window = window.map(|bytes| (LimitKind::Window, bytes));
        let send = case.source.send_buffer_bytes().map(|bytes| (LimitKind::SendBuffer, bytes));
        let round_trip = case.path.round_trip();
        let buffer = window.or(send).map(|(by, bytes)| Buffer { by, bytes, round_trip, rate });
        Flows::Counted(count, buffer)
    }

    fn connections(&self) -> Result<u32, SubjectError> {
        self.ground.connections_to(self.broker.address())
    }
}

/// What was seen of a copy.
struct Watched {
    progress: Progress,
    spent: Spent,
    /// Bytes a second that the path carried to it, of whatever kind.
    path_rate: f64,
}

/// The node.
struct LonghaulMirrors<'a> {
    case: &'a Case<'a>,
    source: &'a KafkaSource,
}

impl Subject for LonghaulMirrors<'_> {
    fn name(&self) -> String {
        "Longhaul".to_owned()
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let (case, source) = (self.case, self.source);
        source.ground.restart_counts()?;
        let mut node = NodeProcess::start(NodeSetup {
            host: source.ground.mirror_host(),
            directory: case.options.directory.clone(),
            make_command: source.ground.mirror_command(),
            ..NodeSetup::new(&case.options.program, source.bytes)
        })?;
        let own = std::process::id();
        let watched = [(NODE, node.pid()), (BROKER, source.broker.pid()), (PATH, own)];
        node.mirror("catch-up", &source.broker.address().to_string(), TOPIC, "")?;
        let copy = (node.address(), TOPIC);
        let alive = || Ok(node.check_running()?);
        let seen = source.watch(case, session, copy, &watched, alive)?;
        if seen.progress.bytes() == 0 {
            return Err(SubjectError::Failed("the node mirrored nothing".to_owned()));
        }
        let bounds = [(NODE, LimitKind::Cpu), (BROKER, LimitKind::Source), (PATH, LimitKind::Cpu)];
        let flows = source.flows(case, source.connections()?, seen.progress.plateau(), None);
        let mut sample =
            case.sample(&bounds, &seen.progress, &seen.spent, &flows, &source.ground)?;
        node.add_histograms(session, &mut sample);
        node.stop()?;
        let compared =
            compare_beginning(&source.broker.data(), &node.data(), TOPIC).map_err(|words| {
                SubjectError::Failed(format!("the mirror is not the source's: {words}"))
            })?;
        let checked = Some(format!("all {compared} bytes of the mirror's files"));
        Ok(Sample { checked, ..sample })
    }
}

/// MirrorMaker 2.
struct MirrorMakerCopies<'a> {
    case: &'a Case<'a>,
    source: &'a KafkaSource,
    /// Kafka's and its own.
    jars: (&'a ClassPath, &'a ClassPath),
    tuned: bool,
}

impl Subject for MirrorMakerCopies<'_> {
    fn name(&self) -> String {
        mirror_maker_name(self.tuned)
    }

    fn ours(&self) -> bool {
        false
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let (case, source) = (self.case, self.source);
        let directory: &PathBuf = &case.options.directory;
        let mut setup = BrokerSetup::new(self.jars.0.clone(), source.bytes);
        setup.host = source.ground.mirror_host();
        setup.send_buffer = SendBuffer::Tuned;
        setup.make_command = source.ground.mirror_command();
        setup.directory.clone_from(directory);
        let destination = Broker::start(setup, session)?;
        source.ground.restart_counts()?;
        let (from, to) = (source.broker.address().to_string(), destination.address().to_string());
        let mut setup = MirrorMakerSetup::new(self.jars.1.clone(), &from, &to, TOPIC);
        setup.tuned = self.tuned;
        setup.make_command = source.ground.mirror_command();
        setup.directory.clone_from(directory);
        let mut copying = MirrorMaker::start(&setup)?;
        let topic = copying.copied(TOPIC);
        let watched = [
            (MIRROR_MAKER, copying.pid()),
            (DESTINATION, destination.pid()),
            (BROKER, source.broker.pid()),
            (PATH, std::process::id()),
        ];
        let alive = || Ok(copying.check_running()?);
        let copy = (destination.address(), topic.as_str());
        let seen = source.watch(case, session, copy, &watched, alive)?;
        let bounds = [
            (MIRROR_MAKER, LimitKind::Cpu),
            (DESTINATION, LimitKind::Consumer),
            (BROKER, LimitKind::Source),
            (PATH, LimitKind::Cpu),
        ];
        // Each task reads over one connection, however many others there are.
        let (tasks, window) = (copying.tasks(), copying.receive_buffer_bytes());
        let flows = source.flows(case, tasks, seen.path_rate, window);
        case.sample(&bounds, &seen.progress, &seen.spent, &flows, &source.ground)
    }
}
