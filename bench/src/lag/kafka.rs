//! A real broker as the source of a live load, and MirrorMaker 2 as a subject.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::consumer::Copy;
use super::live::{LOOK, Live, Mirror};
use super::longhaul::OWN;
use super::{Options, TOPIC};
use crate::ends::EndOffsets;
use crate::ground::Ground;
use crate::load::Workload;
use crate::peers::{
    Broker, BrokerSetup, ClassPath, MirrorMaker, MirrorMakerSetup, SendBuffer, TopicSetup,
    mirror_maker_name,
};
use crate::run::{Sample, Session, Subject, SubjectError};

/// How long a new broker is given the load before anything is measured.
const WARM_UP: Duration = Duration::from_secs(15);
/// A topic has this long to be there: the source's new one, and MirrorMaker 2's copy of it.
const TOPIC_MAX: Duration = Duration::from_secs(120);
/// And this long then, for its tasks to begin reading: they start after the topic is made.
const SETTLE: Duration = Duration::from_secs(10);

/// A broker on the source's side of a path; each sample has a topic of its own.
pub(super) struct KafkaSource {
    // Before the ground: with that, everything in its namespaces ends.
    pub(super) broker: Broker,
    pub(super) ground: Ground,
    workload: Workload,
    topics: Cell<u32>,
}

impl KafkaSource {
    /// Starts it. Its send buffer is left to the kernel, as the synthetic source's is.
    pub(super) fn start(
        options: &Options,
        workload: &Workload,
        kafka: &ClassPath,
        session: &Session,
    ) -> Result<Self, SubjectError> {
        let ground = Ground::open(&options.ground)?;
        let bytes = options.load_bytes * (options.time + options.warm_up).as_secs();
        let samples = u64::from(options.repeats) * 3 + 1;
        let mut setup = BrokerSetup::new(kafka.clone(), bytes.saturating_mul(samples));
        setup.host = ground.source_host();
        setup.send_buffer = SendBuffer::Tuned;
        setup.make_command = ground.source_command();
        setup.directory.clone_from(&options.directory);
        let broker = Broker::start(setup, session)?;
        let source = Self { broker, ground, workload: workload.clone(), topics: Cell::new(0) };
        source.warm_up(options, session)?;
        Ok(source)
    }

    /// The load into a topic that nobody mirrors: a Java program that has just started is slow, and whoever is first
    /// is not to pay for it.
    fn warm_up(&self, options: &Options, session: &Session) -> Result<(), SubjectError> {
        let workload = self.new_topic(session)?;
        let mut live = Live::prepare(options, workload, &self.ground)?;
        live.source().produce(self.broker.address())?;
        live.source().begin()?;
        let began = Instant::now();
        while began.elapsed() < WARM_UP.min(options.warm_up + options.time) {
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            std::thread::sleep(LOOK);
        }
        match live.source().report()?.problem {
            Some(problem) => Err(SubjectError::Failed(problem)),
            None => Ok(()),
        }
    }

    /// Makes a new, empty topic, and restarts the path's counts.
    pub(super) fn new_topic(&self, session: &Session) -> Result<Workload, SubjectError> {
        self.topics.set(self.topics.get() + 1);
        let name = format!("{TOPIC}-{}", self.topics.get());
        let topic = TopicSetup {
            name: name.clone(),
            partitions: self.workload.partitions,
            records: 0,
            value_bytes: 0,
            compression: "none".to_owned(),
        };
        self.broker.create(session, &topic)?;
        self.wait_for_leaders(session, &topic)?;
        self.ground.restart_counts()?;
        Ok(Workload { topic: name, ..self.workload.clone() })
    }

    /// A broker confirms a topic before it leads its partitions, and refuses records until then.
    fn wait_for_leaders(&self, session: &Session, topic: &TopicSetup) -> Result<(), SubjectError> {
        let lost = |error| SubjectError::failed("ask the broker for its new topic", error);
        let stream = self.ground.connect(self.broker.address())?;
        let mut ends = EndOffsets::new(stream, &topic.name, topic.partitions).map_err(lost)?;
        let began = Instant::now();
        while ends.known().map_err(lost)?.iter().any(Option::is_none) {
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            if began.elapsed() > TOPIC_MAX {
                let words = "the broker does not lead the partitions of its new topic";
                return Err(SubjectError::Failed(words.to_owned()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// MirrorMaker 2, into a broker of its own on the mirror's side.
pub(super) struct MirrorMakerCopies<'a> {
    pub(super) options: &'a Options,
    pub(super) source: &'a KafkaSource,
    /// Kafka's and its own.
    pub(super) jars: (&'a ClassPath, &'a ClassPath),
    pub(super) tuned: bool,
}

impl Subject for MirrorMakerCopies<'_> {
    fn name(&self) -> String {
        mirror_maker_name(self.tuned)
    }

    fn ours(&self) -> bool {
        false
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let (options, source) = (self.options, self.source);
        let workload = source.new_topic(session)?;
        let topic = workload.topic.clone();
        let mut live = Live::prepare(options, workload, &source.ground)?;
        live.source().produce(source.broker.address())?;
        let mut setup = BrokerSetup::new(self.jars.0.clone(), live.generator().total_bytes());
        setup.host = source.ground.mirror_host();
        setup.send_buffer = SendBuffer::Tuned;
        setup.make_command = source.ground.mirror_command();
        setup.directory.clone_from(&options.directory);
        let destination = Broker::start(setup, session)?;
        let (from, to) = (source.broker.address().to_string(), destination.address().to_string());
        let mut setup = MirrorMakerSetup::new(self.jars.1.clone(), &from, &to, &topic);
        setup.tuned = self.tuned;
        setup.make_command = source.ground.mirror_command();
        setup.directory.clone_from(&options.directory);
        let mut copying = MirrorMaker::start(&setup)?;
        let copied = copying.copied(&topic);
        wait_for_copy(session, &mut copying, &destination, &copied)?;
        source.ground.restart_counts()?;
        let mirror = Mirror {
            address: destination.address(),
            topic: &copied,
            copy: Copy::Rebatched,
            processes: &[
                ("MirrorMaker 2", copying.pid()),
                ("destination broker", destination.pid()),
                ("source broker", source.broker.pid()),
                ("producer", live.source().pid()),
                (OWN, std::process::id()),
            ],
        };
        let sample = live.run(session, &mirror, || Ok(copying.check_running()?))?;
        let checked = Some("offset and time of every batch that the consumer read".to_owned());
        Ok(Sample { checked, ..sample })
    }
}

fn wait_for_copy(
    session: &Session,
    copying: &mut MirrorMaker,
    destination: &Broker,
    topic: &str,
) -> Result<(), SubjectError> {
    let began = Instant::now();
    let folder = destination.data().join(format!("{topic}-0"));
    let mut there_at = None;
    loop {
        if session.stopped() {
            return Err(SubjectError::Interrupted);
        }
        copying.check_running()?;
        if there_at.is_none() && folder.is_dir() {
            there_at = Some(Instant::now());
        }
        if there_at.is_some_and(|there_at| there_at.elapsed() > SETTLE) {
            return Ok(());
        }
        if there_at.is_none() && began.elapsed() > TOPIC_MAX {
            return Err(SubjectError::Failed(format!(
                "MirrorMaker 2 made no copy of the topic within {} s: {}",
                TOPIC_MAX.as_secs(),
                copying.last_words()
            )));
        }
        std::thread::sleep(LOOK);
    }
}
