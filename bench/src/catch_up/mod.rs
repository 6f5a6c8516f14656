//! How fast a mirror catches up over a WAN, next to raw TCP through the same path.
//!
//! Every run has a path, a source and a mirror of its own and takes the same time: the source holds more than
//! the link carries in it. A run's clock starts with the source's first byte of records. What the mirror has at
//! the end is compared with the source, byte by byte.

mod case;
mod kafka;
mod limit;
mod longhaul;
mod progress;
mod raw;
mod receiver;

use std::path::PathBuf;
use std::time::Duration;

use crate::peers::{Cache, Jars, PeerError, SendBuffer};
use crate::run::Session;
use crate::wan::{PathSettings, WanError, WanPath};
use case::Case;
use kafka::KafkaCase;

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

    /// Of a real broker.
    fn send_buffer(self) -> SendBuffer {
        match self {
            Self::Tuned => SendBuffer::Tuned,
            Self::Untouched => SendBuffer::Untouched,
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
    /// Where the mirrors' and brokers' folders go.
    pub directory: PathBuf,
    /// Where the jars are.
    pub cache: Cache,
    /// Measure from a real broker too.
    pub with_kafka: bool,
    /// Measure MirrorMaker 2 beside it, from the real broker.
    pub with_mirror_maker: bool,
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
    /// Kafka or MirrorMaker 2 cannot be had.
    #[error(transparent)]
    Peer(#[from] PeerError),
}

/// Measures; the session gets a case for each combination.
///
/// # Errors
/// When a path is impossible: before anything is measured.
pub fn run(options: &Options, session: &Session) -> Result<(), CatchUpError> {
    for path in &options.paths {
        path.check_carries()?;
        path.rate_bits.ok_or(CatchUpError::NoRate)?;
    }
    check_room(options)?;
    // The first path is opened to learn now, and not in each row, that there can be none.
    if let Some(path) = options.paths.first() {
        drop(WanPath::open(path)?);
    }
    let jars = Jars::fetch(&options.cache, options.with_kafka, options.with_mirror_maker, session)?;
    for path in &options.paths {
        for &source in &options.sources {
            for &partitions in &options.partitions {
                let case = Case::new(options, path, source, partitions);
                case.measure(session);
                if let Some(kafka) = &jars.kafka
                    && !session.stopped()
                {
                    KafkaCase { case: &case, kafka, jars: &jars }.measure(session);
                }
            }
        }
    }
    Ok(())
}

fn check_room(options: &Options) -> Result<(), CatchUpError> {
    let rate = options.paths.iter().filter_map(|path| path.rate_bits).max().unwrap_or(0);
    // A real broker has the records too, and MirrorMaker 2 writes them to a third place.
    let copies = 1 + u64::from(options.with_kafka) + 2 * u64::from(options.with_mirror_maker);
    let needed = bytes(rate, options.time).saturating_mul(copies);
    let free = crate::run::free_bytes(&options.directory)
        .map_err(|error| CatchUpError::Directory(options.directory.clone(), error))?;
    if free >= needed {
        return Ok(());
    }
    let directory = options.directory.clone();
    Err(CatchUpError::Room { directory, free: free / 1_000_000, needed: needed / 1_000_000 })
}

/// What TCP carries over a link, in bytes a second.
pub(crate) fn payload_rate(rate_bits: u64, mtu: u32) -> f64 {
    limit::payload_rate(rate_bits, mtu)
}

/// More than a link carries in that time.
fn bytes(rate_bits: u64, time: Duration) -> u64 {
    (rate_bits as f64 / 8.0 * time.as_secs_f64() * SURPLUS) as u64
}
