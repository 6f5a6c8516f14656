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
mod report;
mod stream;
#[cfg(feature = "load-tokio-uring")]
mod tokio_peer;

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dataplane::ring::RingError;
use storage::{
    AppendError, Log, LogConfig, Offset, OpenError, ReadError, Storage, StorageConfig, TopicId,
    TopicPartition,
};

pub use report::{Report, Spread, Verdict, WayReport};

use report::{Run, WayRuns};
use stream::Stream;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Record bytes of one run.
    pub size_bytes: u64,
    /// Runs of each way.
    pub repeats: usize,
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
    /// The operator ended it.
    #[error("interrupted")]
    Interrupted,
    /// What was landed is not what was sent.
    #[error("the benchmark went wrong: {0}")]
    Wrong(String),
}

impl BenchError {
    fn io(doing: &'static str, source: std::io::Error) -> Self {
        Self::Io { doing, source }
    }
}

/// Runs the benchmark; `progress` hears a line for each run. `stop` ends it after the run under way.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    check_room(options)?;
    let stream = Arc::new(Stream::prepare(options.size_bytes));
    let directory = tempfile::Builder::new()
        .prefix("longhaul-landing-")
        .tempdir_in(&options.directory)
        .map_err(|source| BenchError::io("make a directory for the logs", source))?;
    let mut ways = ways();
    let mut bench = Bench::new(&stream, directory.path())?;
    for repeat in 0..options.repeats.max(1) {
        for way in &mut ways {
            if stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            let run = bench.measure(way.way)?;
            progress(&format!(
                "run {} of {}: {:<14} {:.2} GB/s, {:.3} CPU s/GB",
                repeat + 1,
                options.repeats,
                way.runs.name,
                run.gigabytes / run.seconds,
                run.cpu_seconds / run.gigabytes
            ));
            way.runs.runs.push(run);
        }
    }
    let runs: Vec<WayRuns> = ways.into_iter().map(|way| way.runs).collect();
    Ok(Report::new(stream.record_bytes(), options.repeats, &runs))
}

/// A run leaves its log behind until the next has taken its segments over: twice the size.
fn check_room(options: &Options) -> Result<(), BenchError> {
    let room = rustix::fs::statvfs(&options.directory)
        .map_err(|error| BenchError::io("use the directory for the logs", error.into()))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
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
    Raw,
    Warm,
    WrittenBack,
    Copy,
    #[cfg(feature = "load-tokio-uring")]
    TokioUring,
}

struct MeasuredWay {
    way: Way,
    runs: WayRuns,
}

/// All ways; the raw receive first.
fn ways() -> Vec<MeasuredWay> {
    let way = |way, name, description, shipped| MeasuredWay {
        way,
        runs: WayRuns { name, description, shipped, runs: Vec::new() },
    };
    vec![
        way(
            Way::Raw,
            "raw receive",
            "ring, into one 256 KiB buffer: nothing checked, nothing kept",
            false,
        ),
        way(
            Way::Warm,
            "mapped warm",
            "ring, straight into recycled segments; checksums verified, batches published",
            true,
        ),
        way(
            Way::WrittenBack,
            "mapped cold",
            "the same into segments that waited so long that the kernel wrote them back: the first \
             touch of each page is a fault",
            false,
        ),
        way(
            Way::Copy,
            "copy cold",
            "ring, into a buffer, then written to new files; checksums verified, batches published",
            false,
        ),
        #[cfg(feature = "load-tokio-uring")]
        way(
            Way::TokioUring,
            "tokio-uring",
            "tokio-uring, into one 256 KiB buffer: nothing checked, nothing kept",
            false,
        ),
    ]
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

    fn measure(&mut self, way: Way) -> Result<Run, BenchError> {
        match way {
            Way::Raw => self.connected(|socket| receiver::receive_raw(socket, self.stream)),
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

    fn land(&self, storage: &Arc<Storage>, in_place: bool) -> Result<Run, BenchError> {
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
    use super::*;

    #[test]
    fn every_way_runs_and_lands_what_was_sent() {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options { size_bytes: 64 << 20, repeats: 2, directory: directory.path().to_owned() };
        let mut lines = 0;
        let report = run(&options, &AtomicBool::new(false), &mut |_| lines += 1).unwrap();
        assert_eq!(lines, report.ways.len() * 2);
        for way in &report.ways {
            assert!(way.gigabytes_per_second.min > 0.0, "{way:?}");
            assert!(way.cpu_seconds_per_gigabyte.min > 0.0, "{way:?}");
        }
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 0, "the logs were not removed");
        serde_json::to_string(&report).unwrap();
    }
}
