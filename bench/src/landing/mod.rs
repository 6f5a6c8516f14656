//! What it costs to receive records and land them in a log, next to a receive into scratch memory.
//!
//! One thread sends prepared answers over loopback, the calling thread receives them with the data
//! plane's ring and lands them with the storage's log, one way after the other in turn, so that a
//! noisy moment of the machine hits all of them. After each run the log is read back and compared
//! with what was sent, bit for bit.
//!
//! Not measured: making the bytes durable. The kernel writes them back later, on its own threads,
//! the same way for every landing.

mod receiver;
mod stream;
#[cfg(feature = "load-tokio-uring")]
mod tokio_peer;
mod verdict;

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dataplane::ring::RingError;
use storage::{
    AppendError, Log, LogConfig, Offset, OpenError, ReadError, Storage, StorageConfig, TopicId,
    TopicPartition,
};

pub use verdict::{Outcome, Verdict};

use crate::folder::Folder;
use crate::run::{Figure, Limit, LimitKind, ProcessCost, Sample, Session, Subject, SubjectError};
use receiver::{MAIN_BYTES, Received};
use stream::Stream;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Record bytes of one run.
    pub size_bytes: u64,
    /// Runs of each way.
    pub repeats: u32,
    /// Where the logs go: a directory made inside, and removed. Needs twice `size_bytes`.
    pub directory: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self { size_bytes: 2 << 30, repeats: 5, directory: std::env::temp_dir() }
    }
}

/// Why the benchmark could not be run, or what it found wrong.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The system refused something.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// io_uring is not available; the message says what to change.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The log could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log could not be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log could not be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Not enough room for the logs.
    #[error(
        "{directory} has {free} MB free, the benchmark needs {needed} MB: choose a smaller --size, or another --directory"
    )]
    Room {
        /// Where the logs were to go.
        directory: PathBuf,
        /// What is free, in MB of 10^6 bytes.
        free: u64,
        /// What is needed.
        needed: u64,
    },
    /// What was landed is not what was sent.
    #[error("the benchmark went wrong: {0}")]
    Wrong(String),
}

impl BenchError {
    fn io(doing: &'static str, source: std::io::Error) -> Self {
        Self::Io { doing, source }
    }
}

/// The question it answers.
pub const QUESTION: &str =
    "What does it cost to receive records, check them and land them in a log?";
/// The row that all others are compared with.
const RAW: &str = "raw receive";
/// The row of the same into memory that does not stay in a cache, as no log does.
const RAW_SPREAD: &str = "raw receive over 256 MiB";
/// The row of the landing that ships.
const SHIPPED: &str = "mapped, warm segments";
/// The figures of a row.
const THROUGHPUT: &str = "throughput";
const IN_PLACE: &str = "in place";
/// A thread busy for more than this share of the time was what bound the run.
const BUSY_MIN: f64 = 0.85;

/// Measures every way in turn; the session gets one case.
///
/// # Errors
/// When it cannot begin: no room, or no directory to write to.
pub fn run(options: &Options, session: &Session) -> Result<(), BenchError> {
    check_room(options)?;
    let stream = Arc::new(Stream::prepare(options.size_bytes));
    let directory = Folder::make(&options.directory, "landing")
        .map_err(|source| BenchError::io("make a directory for the logs", source))?;
    let bench = Bench::new(&stream, directory.path())?;
    let mut subjects: Vec<Box<dyn Subject + '_>> = Way::ALL
        .iter()
        .map(|&way| Box::new(Measured { way, bench: &bench }) as Box<dyn Subject>)
        .collect();
    let name = format!(
        "{:.2} GB of records a run over loopback; CPU of the receiving thread",
        stream.record_bytes() as f64 / 1e9
    );
    session.case(&name, &mut subjects, options.repeats);
    if !cfg!(feature = "load-tokio-uring") {
        session.leave_out("tokio-uring: this program was built without load-tokio-uring");
    }
    Ok(())
}

/// A run leaves its log behind until the next has taken its segments over: twice the size.
fn check_room(options: &Options) -> Result<(), BenchError> {
    let free = crate::run::free_bytes(&options.directory)
        .map_err(|error| BenchError::io("use the directory for the logs", error))?;
    let needed = options.size_bytes.saturating_mul(2);
    if free >= needed {
        return Ok(());
    }
    let directory = options.directory.clone();
    Err(BenchError::Room { directory, free: free / 1_000_000, needed: needed / 1_000_000 })
}

/// A way of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The ring, into one 256 KiB buffer: nothing checked, nothing kept.
    Raw,
    /// The ring, into memory as large as a segment: nothing checked, nothing kept.
    RawSpread,
    /// The ring, straight into recycled segments; checksums verified, batches published.
    Warm,
    /// The same into segments that waited so long that the kernel wrote them back: the first touch of
    /// each page is a fault.
    WrittenBack,
    /// The ring, into a buffer, then written to new files; checksums verified, batches published.
    Copy,
    /// tokio-uring, into one 256 KiB buffer: nothing checked, nothing kept.
    #[cfg(feature = "load-tokio-uring")]
    TokioUring,
}

impl Way {
    const ALL: &[Self] = &[
        Self::Raw,
        Self::RawSpread,
        Self::Warm,
        Self::WrittenBack,
        Self::Copy,
        #[cfg(feature = "load-tokio-uring")]
        Self::TokioUring,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Raw => RAW,
            Self::RawSpread => RAW_SPREAD,
            Self::Warm => SHIPPED,
            Self::WrittenBack => "mapped, cold segments",
            Self::Copy => "copied into new files",
            #[cfg(feature = "load-tokio-uring")]
            Self::TokioUring => "tokio-uring raw receive",
        }
    }

    fn lands(self) -> bool {
        matches!(self, Self::Warm | Self::WrittenBack | Self::Copy)
    }
}

struct Measured<'a> {
    way: Way,
    bench: &'a Bench<'a>,
}

impl Subject for Measured<'_> {
    fn name(&self) -> String {
        self.way.name().to_owned()
    }

    fn ours(&self) -> bool {
        self.way.lands()
    }

    fn measure(&mut self, _: &Session, _: u32) -> Result<Sample, SubjectError> {
        let received = self
            .bench
            .measure(self.way)
            .map_err(|error| SubjectError::Failed(error.to_string()))?;
        let checked = self.way.lands().then(|| "the log read back, every byte".to_owned());
        Ok(Sample { checked, ..received.sample() })
    }
}

impl Received {
    fn sample(&self) -> Sample {
        let throughput = self.bytes as f64 / 1e9 / self.seconds;
        Sample {
            figures: vec![
                Figure::new(THROUGHPUT, "GB/s", throughput),
                Figure::new(IN_PLACE, "%", self.in_place_share * 100.0),
            ],
            processes: vec![ProcessCost {
                name: "receiving thread".to_owned(),
                user_seconds: (self.cpu_seconds - self.system_seconds).max(0.0),
                system_seconds: self.system_seconds,
                memory_bytes_max: 0,
            }],
            bytes: self.bytes,
            limit: Some(self.limit()),
            ..Sample::default()
        }
    }

    /// The receiver's thread full, or the sender on the other core.
    fn limit(&self) -> Limit {
        let busy = self.cpu_seconds / self.seconds;
        let evidence = format!("the receiving thread was busy {:.0} % of the time", busy * 100.0);
        let by = if busy > BUSY_MIN { LimitKind::Cpu } else { LimitKind::Source };
        Limit::new(by, evidence)
    }
}

/// Segments of a benchmark's log. A quarter of Kafka's default, so that a run takes several and a
/// small run needs little room.
const SEGMENT_BYTES: u32 = 256 << 20;

/// Bytes read back at a time for the comparison.
const COMPARE_BYTES: usize = 8 << 20;

/// The storages of the ways that land, kept from run to run: one with segments to recycle, one
/// without.
struct Bench<'a> {
    stream: &'a Arc<Stream>,
    recycling: Arc<Storage>,
    plain: Arc<Storage>,
    segments: usize,
}

impl<'a> Bench<'a> {
    fn new(stream: &'a Arc<Stream>, directory: &Path) -> Result<Self, BenchError> {
        // One more, because an answer that does not fit leaves the rest of a segment unused.
        let segments = stream.record_bytes().div_ceil(u64::from(SEGMENT_BYTES)) as usize + 1;
        let open = |name, segments: usize| {
            Storage::open(StorageConfig {
                directories: vec![directory.join(name)],
                descriptors_max: 1024,
                mappings_max: 1024,
                recycle_bytes_max: segments as u64 * u64::from(SEGMENT_BYTES),
            })
        };
        Ok(Self {
            stream,
            recycling: open("recycling", segments)?,
            plain: open("plain", 0)?,
            segments,
        })
    }

    fn measure(&self, way: Way) -> Result<Received, BenchError> {
        // What the run before left to write back would be written during this one, and every page that is
        // written back costs its next receive a fault.
        rustix::fs::sync();
        match way {
            Way::Raw => {
                self.connected(|socket| receiver::receive_raw(socket, self.stream, MAIN_BYTES))
            }
            Way::RawSpread => self.connected(|socket| {
                receiver::receive_raw(socket, self.stream, SEGMENT_BYTES as usize)
            }),
            #[cfg(feature = "load-tokio-uring")]
            Way::TokioUring => {
                self.connected(|socket| tokio_peer::receive_raw(socket, self.stream))
            }
            Way::Copy => self.land(&self.plain, false),
            Way::Warm => {
                self.fill_pool()?;
                self.land(&self.recycling, true)
            }
            Way::WrittenBack => {
                self.fill_pool()?;
                rustix::fs::sync();
                self.land(&self.recycling, true)
            }
        }
    }

    /// Makes the segments of the last run ready, and new ones for those that were not worth it.
    fn fill_pool(&self) -> Result<(), BenchError> {
        self.recycling.checkpoint()?;
        self.recycling.warm(SEGMENT_BYTES, self.segments)?;
        Ok(())
    }

    fn land(&self, storage: &Arc<Storage>, in_place: bool) -> Result<Received, BenchError> {
        let partition = TopicPartition { topic: "landing".into(), partition: 0 };
        let config = LogConfig {
            segment_bytes_max: SEGMENT_BYTES,
            segment_age_max: Duration::from_secs(7 * 24 * 3600),
            index_interval_bytes: 4096,
            index_bytes_max: 10 * 1024 * 1024,
            batch_bytes_max: 16 * 1024 * 1024,
        };
        let mut log = storage.create_log(&partition, TopicId::ZERO, Offset(0), config)?;
        let run = self.connected(|socket| {
            receiver::receive_and_land(socket, self.stream, &mut log, in_place)
        })?;
        self.compare(&log)?;
        storage.delete_log(log)?;
        Ok(run)
    }

    /// Connects a sender to a receiver on this thread.
    fn connected<T>(
        &self,
        receive: impl FnOnce(TcpStream) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let failed = |source| BenchError::io("connect over loopback", source);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let sending = TcpStream::connect(address).map_err(failed)?;
        let (receiving, _) = listener.accept().map_err(failed)?;
        let sender = self.stream.send(sending);
        // The receiver's socket is closed when it returns, which ends a sender that is not done.
        let result = receive(receiving);
        if sender.join().is_err() {
            return Err(BenchError::Wrong("the sender broke down".to_owned()));
        }
        result
    }

    /// Reads the whole log back and compares it with what was sent.
    fn compare(&self, log: &Log) -> Result<(), BenchError> {
        let (reader, stream) = (log.reader(), self.stream);
        let end = Offset(stream.end_offset());
        if reader.log_end() != end {
            return Err(BenchError::Wrong(format!(
                "the log ends at {} instead of {}",
                reader.log_end(),
                end
            )));
        }
        let mut index = 0;
        loop {
            let from = Offset(index as i64 * stream.batch_records());
            let Some(slice) = reader.read(from, end, COMPARE_BYTES, true)? else { break };
            let bytes = slice.to_vec();
            let before = index;
            // The last batch may be cut: it comes whole in the next read.
            for batch in bytes.chunks_exact(stream.batch_bytes()) {
                if !stream.is_batch(index, batch) {
                    return Err(BenchError::Wrong(format!("batch {index} differs")));
                }
                index += 1;
            }
            if index == before {
                return Err(BenchError::Wrong(format!("nothing can be read at {from}")));
            }
        }
        if index as i64 * stream.batch_records() == end.0 {
            return Ok(());
        }
        Err(BenchError::Wrong(format!("only {index} batches could be read back")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn every_way_runs_and_lands_what_was_sent() {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options { size_bytes: 64 << 20, repeats: 2, directory: directory.path().to_owned() };
        let session = Session::begin("landing", QUESTION, Arc::new(AtomicBool::new(false)), |_| {});
        super::run(&options, &session).unwrap();
        let run = session.end();
        assert_eq!(run.cases[0].rows.len(), Way::ALL.len());
        for row in &run.cases[0].rows {
            assert_eq!((row.samples.len(), row.failures.len()), (2, 0), "{run}");
            for sample in &row.samples {
                assert!(sample.figures[0].value > 0.0, "{sample:?}");
                assert!(sample.cpu_seconds_per_gigabyte().unwrap() > 0.0, "{sample:?}");
            }
        }
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 0, "the logs were not removed");
    }
}
