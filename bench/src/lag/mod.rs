//! How late the tail is at a given load: open loop, from the time each record was due at the source.
//!
//! The source's log grows by a schedule that waits for nobody. A consumer at the mirror notes when it has each
//! record; what it notes is compared byte by byte with the source, and so are the mirror's files at the end.
//! Meanwhile datagrams that carry their time measure the path one way.

mod consumer;
mod kafka;
mod live;
mod longhaul;

use std::path::PathBuf;
use std::time::Duration;

use crate::catch_up::payload_rate;
use crate::ground::GroundSetup;
use crate::load::{Generator, Workload};
use crate::node::check_room;
use crate::peers::{Cache, Jars, PeerError};
use crate::run::{Session, Subject, SubjectError};
use crate::wan::{WanError, WanPath};
use kafka::{KafkaSource, MirrorMakerCopies};
use longhaul::{Longhaul, LonghaulFromKafka};

/// The question it answers.
pub const QUESTION: &str = "How late is the tail of the mirror at a given load?";
/// What is mirrored.
const TOPIC: &str = "lag";
/// A batch holds what comes to a partition in this time, as a producer with a linger of it sends, up to
/// [`BATCH_BYTES_MAX`].
const LINGER: Duration = Duration::from_millis(5);
/// Bytes of values in a batch at most.
const BATCH_BYTES_MAX: u64 = 64 << 10;
/// The least load: a record a second.
const RECORDS_PER_SECOND_MIN: f64 = 1.0;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `longhaul` program.
    pub program: PathBuf,
    /// Where.
    pub ground: GroundSetup,
    /// Record values over all partitions, in bytes a second.
    pub load_bytes: u64,
    /// Partitions.
    pub partitions: u32,
    /// Bytes of a record's value.
    pub value_bytes: usize,
    /// How long records come that count.
    pub time: Duration,
    /// How long records come before, that do not count.
    pub warm_up: Duration,
    /// Runs of each subject.
    pub repeats: u32,
    /// Where the mirrors' and brokers' folders go.
    pub directory: PathBuf,
    /// Where the jars are.
    pub cache: Cache,
    /// Measure from a real broker too.
    pub with_kafka: bool,
    /// Measure MirrorMaker 2 beside it, from the real broker.
    pub with_mirror_maker: bool,
}

/// Why it cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum LagError {
    /// The load is no load.
    #[error(
        "a load of {0} bytes a second is less than a record of {1} bytes a second; raise --load, or choose a smaller \
         --record-size"
    )]
    Load(u64, usize),
    /// The path does not carry the load.
    #[error(
        "the load is {load:.1} MB/s with the batches' own bytes, and the path carries {most:.1} MB/s; lower --load, or raise \
         --rate"
    )]
    Carries {
        /// In MB of 10^6 bytes a second.
        load: f64,
        /// At full speed.
        most: f64,
    },
    /// No such path.
    #[error(transparent)]
    Path(#[from] WanError),
    /// Kafka or MirrorMaker 2 cannot be had.
    #[error(transparent)]
    Peer(#[from] PeerError),
}

/// Measures; the session gets one case.
///
/// # Errors
/// When the load makes no sense.
pub fn run(options: &Options, session: &Session) -> Result<(), LagError> {
    let workload = workload(options)?;
    check(options, &workload)?;
    // Opened to learn now, and not in each row, that there can be none.
    if let GroundSetup::Path(path) = &options.ground {
        drop(WanPath::open(path)?);
    }
    let name = format!(
        "{} partition{}, {:.1} MB/s in {} B records, {}",
        options.partitions,
        if options.partitions == 1 { "" } else { "s" },
        options.load_bytes as f64 / 1e6,
        options.value_bytes,
        options.ground,
    );
    let jars = Jars::fetch(&options.cache, options.with_kafka, options.with_mirror_maker, session)?;
    let source = match &jars.kafka {
        Some(kafka) => match KafkaSource::start(options, &workload, kafka, session) {
            Err(SubjectError::Interrupted) => return Ok(()),
            Err(error) => return Err(PeerError::Failed(error.to_string()).into()),
            Ok(source) => Some(source),
        },
        None => None,
    };
    let mut subjects: Vec<Box<dyn Subject + '_>> =
        vec![Box::new(Longhaul { options, workload: &workload })];
    if let Some(source) = &source {
        subjects.push(Box::new(LonghaulFromKafka { options, source }));
        if let Some(jars) = jars.both() {
            subjects.extend([false, true].map(|tuned| {
                Box::new(MirrorMakerCopies { options, source, jars, tuned }) as Box<dyn Subject>
            }));
        }
    }
    session.case(&name, &mut subjects, options.repeats);
    Ok(())
}

/// Refuses what cannot come to a good end, before anything is measured.
fn check(options: &Options, workload: &Workload) -> Result<(), LagError> {
    let generator = Generator::new(workload.clone());
    if let GroundSetup::Path(path) = &options.ground {
        path.check_carries()?;
        let interval_ns = workload.batch_interval_ns.unwrap_or(1) as f64;
        let batches = f64::from(workload.partitions) / interval_ns * 1e9;
        let load = generator.batch_bytes() as f64 * batches;
        let most = path.rate_bits.map_or(f64::INFINITY, |rate| payload_rate(rate, path.mtu));
        if load > most {
            return Err(LagError::Carries { load: load / 1e6, most: most / 1e6 });
        }
    }
    // A real broker has the records too, and MirrorMaker 2 writes them to a third place.
    let copies = 1 + u64::from(options.with_kafka) + 2 * u64::from(options.with_mirror_maker);
    Ok(check_room(&options.directory, generator.total_bytes().saturating_mul(copies))
        .map_err(PeerError::from)?)
}

/// The schedule of a load.
fn workload(options: &Options) -> Result<Workload, LagError> {
    let partitions = f64::from(options.partitions.max(1));
    let records_per_second = options.load_bytes as f64 / options.value_bytes.max(1) as f64;
    if records_per_second < RECORDS_PER_SECOND_MIN {
        return Err(LagError::Load(options.load_bytes, options.value_bytes));
    }
    let in_linger = (records_per_second / partitions * LINGER.as_secs_f64()) as u64;
    let room = BATCH_BYTES_MAX / options.value_bytes.max(1) as u64;
    let batch_records = in_linger.min(room).clamp(1, u64::from(u32::MAX));
    let interval_ns = batch_records as f64 * partitions / records_per_second * 1e9;
    let time_ns = (options.time + options.warm_up).as_secs_f64() * 1e9;
    let batches = (time_ns / interval_ns).ceil().max(1.0) as u64;
    Ok(Workload {
        topic: TOPIC.to_owned(),
        partitions: options.partitions.max(1),
        records: batches * batch_records,
        value_bytes: options.value_bytes,
        batch_records: batch_records as u32,
        batches_at_once: 0,
        batch_interval_ns: Some(interval_ns.max(1.0) as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::PathSettings;

    fn options(load_bytes: u64, partitions: u32, value_bytes: usize) -> Options {
        Options {
            program: PathBuf::new(),
            ground: GroundSetup::Loopback,
            load_bytes,
            partitions,
            value_bytes,
            time: Duration::from_secs(8),
            warm_up: Duration::from_secs(2),
            repeats: 1,
            directory: PathBuf::new(),
            cache: Cache::at(Some(PathBuf::from("/nowhere"))).unwrap(),
            with_kafka: false,
            with_mirror_maker: false,
        }
    }

    #[test]
    fn a_schedule_carries_the_load_that_was_asked_for() {
        for (load, partitions, value) in
            [(60_000_000, 1, 1024), (60_000_000, 64, 1024), (1_000_000, 1_000, 100), (200, 3, 100)]
        {
            let workload = workload(&options(load, partitions, value)).unwrap();
            let interval = workload.batch_interval_ns.unwrap() as f64 / 1e9;
            let batch = f64::from(workload.batch_records) * value as f64;
            let rate = batch / interval * f64::from(partitions);
            assert!((rate / load as f64 - 1.0).abs() < 0.001, "{load}: {workload:?}");
            let seconds = workload.batches() as f64 * interval;
            assert!(seconds >= 9.99, "{load}: {seconds} s");
            assert!(batch <= BATCH_BYTES_MAX as f64 || workload.batch_records == 1);
        }
        assert!(workload(&options(99, 1, 100)).unwrap_err().to_string().contains("--load"));
    }

    #[test]
    fn a_load_that_the_path_does_not_carry_is_refused() {
        let path = PathSettings { rate_bits: Some(1_000_000_000), ..PathSettings::default() };
        let checked = |load| {
            let options = Options {
                ground: GroundSetup::Path(Box::new(path.clone())),
                directory: std::env::temp_dir(),
                ..options(load, 4, 1024)
            };
            check(&options, &workload(&options).unwrap())
        };
        // 125 MB/s of packets, of which headers and the batches' own bytes are a part.
        let error = checked(124_000_000).unwrap_err();
        assert!(matches!(error, LagError::Carries { .. }), "{error}");
        assert!(error.to_string().contains("lower --load"), "{error}");
        assert!(!matches!(checked(100_000_000), Err(LagError::Carries { .. })));
    }
}
