//! How long a node, and a real broker beside, takes after kill -9 under load until it serves again and
//! its partitions grow again.

mod kafka;
mod longhaul;

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::ends::EndOffsets;
use crate::node::check_room;
use crate::peers::{Cache, PeerError};
use crate::reader::Reader;
use crate::run::{BusyWatch, Figure, Limit, LimitKind, Session, Subject, SubjectError};

/// The question it answers.
pub const QUESTION: &str =
    "How long after kill -9 under load until the partitions are served again, and grow again?";
/// The topic's name.
pub(crate) const TOPIC: &str = "recover";
/// Bytes of a record's value.
const VALUE_BYTES: u32 = 1024;
/// The load runs for this long before the kill.
const UNDER_LOAD: Duration = Duration::from_secs(3);
/// And goes on until it has come up again, which takes some seconds more: room for so many must be there.
const LOADED_FOR: Duration = Duration::from_secs(10);
/// Source, node and the check of each byte share the machine's memory: no load above this is ever reached.
const LOAD_BYTES_MAX: u64 = 5_000_000_000;
/// It has this long to serve, and then to grow.
const BACK_MAX: Duration = Duration::from_secs(300);
/// How often it is looked: the error of every figure.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// A wait of which this share was processor time was bound by it.
const BUSY_MIN: f64 = 0.85;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `longhaul` program.
    pub program: PathBuf,
    /// Record bytes before the load, each a case.
    pub sizes_bytes: Vec<u64>,
    /// Partitions, each a case.
    pub partitions: Vec<u32>,
    /// Bytes of record values a second, over all partitions, when it is killed.
    pub load_bytes: u64,
    /// Runs of each subject.
    pub repeats: u32,
    /// Where nodes and brokers have their folders, removed again.
    pub directory: PathBuf,
    /// Where the jars are.
    pub cache: Cache,
    /// Fetch and run a real Kafka beside.
    pub with_kafka: bool,
}

/// Measures; the session gets a case for each size and number of partitions.
///
/// # Errors
/// When it cannot begin.
pub fn run(options: &Options, session: &Session) -> Result<(), PeerError> {
    check(options)?;
    let class_path =
        options.with_kafka.then(|| options.cache.kafka(session, "--with-kafka")).transpose()?;
    if class_path.is_none() {
        session.leave_out("a real Kafka: give --with-kafka");
    }
    for &size_bytes in &options.sizes_bytes {
        for &partitions in &options.partitions {
            if session.stopped() {
                return Ok(());
            }
            let case = Condition { options, size_bytes, partitions };
            let mut subjects: Vec<Box<dyn Subject + '_>> =
                vec![Box::new(longhaul::Recovers { case })];
            if let Some(class_path) = &class_path {
                subjects.push(Box::new(kafka::Recovers { case, class_path }));
            }
            let plural = if partitions == 1 { "" } else { "s" };
            let name = format!(
                "{:.2} GB in {partitions} partition{plural}, {:.0} MB/s when killed",
                size_bytes as f64 / 1e9,
                options.load_bytes as f64 / 1e6
            );
            session.case(&name, &mut subjects, options.repeats);
        }
    }
    Ok(())
}

/// Refuses what no machine can do, before anything is measured.
fn check(options: &Options) -> Result<(), PeerError> {
    if options.load_bytes > LOAD_BYTES_MAX {
        return Err(PeerError::Failed(format!(
            "a load of {:.0} MB/s is more than one machine carries; lower --load to at most {} MB/s",
            options.load_bytes as f64 / 1e6,
            LOAD_BYTES_MAX / 1_000_000
        )));
    }
    let largest = options.sizes_bytes.iter().max().copied().unwrap_or(0);
    let loaded = options.load_bytes.saturating_mul(LOADED_FOR.as_secs());
    Ok(check_room(&options.directory, largest.saturating_add(loaded))?)
}

/// One case.
#[derive(Clone, Copy)]
struct Condition<'a> {
    options: &'a Options,
    size_bytes: u64,
    partitions: u32,
}

/// What was seen of a server that comes back.
struct Back {
    killed: Instant,
    partitions: u32,
    serves: Duration,
    serves_all: Duration,
    grows: Duration,
}

impl Back {
    /// Watches the server at the address from its kill on; `alive` says why it will not come.
    fn watch(
        session: &Session,
        address: SocketAddr,
        partitions: u32,
        killed: Instant,
        mut alive: impl FnMut() -> Result<(), SubjectError>,
    ) -> Result<Self, SubjectError> {
        let mut back = Self {
            killed,
            partitions,
            serves: Duration::ZERO,
            serves_all: Duration::ZERO,
            grows: Duration::ZERO,
        };
        back.serves = back.until(session, "serve", &mut alive, || first_answer(address, 1))?;
        back.serves_all = back.until(session, "serve all partitions", &mut alive, || {
            first_answer(address, partitions)
        })?;
        let ends = || EndOffsets::new(connect(address)?, TOPIC, partitions).ok()?.read().ok();
        let mut first: Option<i64> = None;
        back.grows = back.until(session, "grow", &mut alive, || {
            let end: i64 = ends()?.iter().sum();
            let before = *first.get_or_insert(end);
            (end > before).then_some(())
        })?;
        Ok(back)
    }

    fn until(
        &self,
        session: &Session,
        what: &str,
        alive: &mut impl FnMut() -> Result<(), SubjectError>,
        mut happened: impl FnMut() -> Option<()>,
    ) -> Result<Duration, SubjectError> {
        loop {
            if happened().is_some() {
                return Ok(self.killed.elapsed());
            }
            alive()?;
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            if self.killed.elapsed() > BACK_MAX {
                let (seconds, partitions) = (BACK_MAX.as_secs(), self.partitions);
                return Err(SubjectError::Failed(format!(
                    "{seconds} s after the kill its {partitions} partitions do not {what}"
                )));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn figures(&self) -> Vec<Figure> {
        vec![
            Figure::new("serves", "s", self.serves.as_secs_f64()),
            Figure::new("serves all", "s", self.serves_all.as_secs_f64()),
            Figure::new("grows", "s", self.grows.as_secs_f64()),
        ]
    }

    /// What bound the time until it grew. `seconds` is what the new process spent of processors by then.
    fn limit(&self, seconds: f64, busy: &BusyWatch) -> Limit {
        let passed = self.grows.as_secs_f64();
        let machine = busy.machine();
        let evidence = format!(
            "it used {seconds:.2} s of processors in {passed:.2} s; all processors {:.0} % busy",
            machine * 100.0
        );
        let by = if seconds / passed > BUSY_MIN || machine > BUSY_MIN {
            LimitKind::Cpu
        } else if let Some(limit) = busy.storage_limit() {
            return limit;
        } else {
            LimitKind::RoundTrips
        };
        Limit::new(by, evidence)
    }
}

fn connect(address: SocketAddr) -> Option<TcpStream> {
    TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()
}

/// Whether a fetch of so many partitions is answered without an error and with records.
fn first_answer(address: SocketAddr, partitions: u32) -> Option<()> {
    let mut reader = Reader::new(connect(address)?, TOPIC, partitions).ok()?;
    let mut records = false;
    let known = reader.fetch(i64::MAX, |_| {
        records = true;
        Ok(())
    });
    (known.is_ok_and(|known| known) && records).then_some(())
}
