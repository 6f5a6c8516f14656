//! The synthetic source as a process of its own: what runs in the child.
//!
//! It is told what to do by lines on standard input and answers each with a line of JSON on standard
//! output; it ends when standard input does, and so with whoever started it. See [`Command`] for the lines.

use std::io::{self, BufRead, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::connection::{Connection, ConnectionReport, Purpose};
use super::probe::Probe;
use super::producer::Producer;
use super::{Began, Generator, SourceCluster, Workload};
use crate::clock::{monotonic_ns, wall_ms};

/// Connections in the lifetime of a source: each has a thread and stays in the report.
const CONNECTIONS_MAX: usize = 4096;
/// How often the connections are looked at, to tell what they wait for.
const LOOK: Duration = Duration::from_millis(20);
/// From the order to begin a live load to its first batch.
const BEGIN_AFTER: Duration = Duration::from_millis(50);

/// How a source process is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceOptions {
    /// Where it listens, on free ports.
    pub listen: IpAddr,
    /// What its topic holds.
    pub workload: Workload,
    /// `SO_SNDBUF` of its connections; `None` leaves it to the kernel, which grows it as needed.
    pub send_buffer_bytes: Option<usize>,
    /// Congestion control of its connections; `None` for the host's.
    pub congestion: Option<String>,
}

/// What the parent may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Command {
    /// Begin the live load; answers [`Began`].
    Begin,
    /// Answers a [`SourceReport`].
    Report,
    /// Send datagrams with the time on them to this address until the process ends; answers the address.
    Probe(SocketAddr),
    /// Be a producer to the broker at this address: put the live load into its topic when it begins; answers the
    /// address.
    Produce(SocketAddr),
}

/// The first line of the child.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Where the broker listens.
    pub(super) kafka: SocketAddr,
    /// Where bare streams are to be had.
    pub(super) raw: SocketAddr,
}

/// What the source knows of its connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReport {
    /// When it was made, on the clock that processes share.
    pub at_ns: u64,
    /// Every connection there was, in order.
    pub connections: Vec<ConnectionReport>,
    /// What went wrong with its producer, if it is one.
    pub problem: Option<String>,
    /// Of its producer: from when a batch was due until a broker had confirmed it, median.
    pub confirmed_p50_ns: Option<u64>,
}

/// Serves until `input` ends.
///
/// # Errors
/// When it cannot listen, or the parent's lines are none of its commands.
pub fn serve_process(
    options: SourceOptions,
    input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    let generator = Generator::new(options.workload.clone());
    let kafka = TcpListener::bind((options.listen, 0))?;
    let raw = TcpListener::bind((options.listen, 0))?;
    let hello = Hello { kafka: kafka.local_addr()?, raw: raw.local_addr()? };
    let cluster = SourceCluster::new(generator.clone(), 0).at(hello.kafka);
    let registry = Arc::new(Registry {
        options,
        cluster,
        connections: Mutex::default(),
        producer: Mutex::default(),
    });
    for (listener, purpose) in [(kafka, Purpose::Kafka), (raw, Purpose::Raw)] {
        let registry = registry.clone();
        std::thread::Builder::new()
            .name("accept".to_owned())
            .spawn(move || registry.accept(&listener, purpose))?;
    }
    let looking = registry.clone();
    std::thread::Builder::new().name("look".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(LOOK);
            looking.for_each(|connection| connection.look());
        }
    })?;
    say(&mut output, &hello)?;
    for line in input.lines() {
        match serde_json::from_str(&line?)? {
            Command::Begin => {
                let lead = u64::try_from(BEGIN_AFTER.as_nanos()).unwrap_or(u64::MAX);
                let began = Began {
                    monotonic_ns: monotonic_ns() + lead,
                    wall_ms: wall_ms() + i64::try_from(BEGIN_AFTER.as_millis()).unwrap_or(0),
                };
                generator.begin(began);
                say(&mut output, &began)?;
            }
            Command::Report => say(&mut output, &registry.report())?,
            Command::Produce(address) => {
                registry.set_producer(Producer::start(generator.clone(), address)?);
                say(&mut output, &address)?;
            }
            Command::Probe(address) => {
                Probe::send_to(address)?;
                say(&mut output, &address)?;
            }
        }
    }
    Ok(())
}

fn say(output: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    output.write_all(b"\n")?;
    output.flush()
}

struct Registry {
    options: SourceOptions,
    cluster: SourceCluster,
    connections: Mutex<Vec<Arc<Connection>>>,
    producer: Mutex<Option<Producer>>,
}

impl Registry {
    fn accept(self: Arc<Self>, listener: &TcpListener, purpose: Purpose) {
        for stream in listener.incoming().flatten() {
            if let Err(error) = self.begin(stream, purpose) {
                tracing::warn!("the synthetic source lost a connection: {error}");
            }
        }
    }

    fn begin(&self, stream: TcpStream, purpose: Purpose) -> io::Result<()> {
        let socket = SockRef::from(&stream);
        if let Some(bytes) = self.options.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(congestion) = &self.options.congestion {
            socket.set_tcp_congestion(congestion.as_bytes())?;
        }
        let connection = Arc::new(Connection::new(stream, purpose));
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.len() == CONNECTIONS_MAX {
            return Err(io::Error::other("it has had its most connections; start another source"));
        }
        connections.push(connection.clone());
        drop(connections);
        let cluster = self.cluster.clone();
        std::thread::Builder::new().name("connection".to_owned()).spawn(move || {
            if let Err(problem) = connection.serve(&cluster) {
                tracing::debug!("synthetic source: {problem}");
            }
        })?;
        Ok(())
    }

    fn set_producer(&self, producer: Producer) {
        *self.producer.lock().unwrap_or_else(PoisonError::into_inner) = Some(producer);
    }

    fn report(&self) -> SourceReport {
        let mut connections = Vec::new();
        self.for_each(|connection| connections.push(connection.report()));
        let producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        SourceReport {
            at_ns: monotonic_ns(),
            connections,
            problem: producer.as_ref().and_then(Producer::problem),
            confirmed_p50_ns: producer.as_ref().map(Producer::confirmed_p50_ns),
        }
    }

    fn for_each(&self, look: impl FnMut(&Arc<Connection>)) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.iter().for_each(look);
    }
}
