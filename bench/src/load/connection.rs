//! One connection of the synthetic source: its blocking conversation, and what it spent and waited for.
//!
//! The conversation runs on a thread of the connection's own; reports are taken from any thread.

use std::collections::VecDeque;
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Answer, FetchSession, Generator, Reply, SourceCluster};
use crate::clock::{monotonic_ns, thread_cpu_ns};
use crate::tcp_info::TcpInfo;

/// Largest request accepted, in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 20;
/// Bytes that a raw connection hands to the kernel at a time.
const RAW_WRITE_BYTES: usize = 1 << 20;
/// Wake-ups kept to tell how late they are; of more, the latest.
const WAKE_UPS_MAX: usize = 1 << 16;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The Kafka protocol.
    Kafka,
    /// The same records as a bare stream. The reader begins by saying how many bytes it wants, as eight
    /// bytes, most significant first.
    Raw,
}

/// What a connection did until now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionReport {
    /// What it is for.
    pub purpose: Purpose,
    /// Bytes of records handed to the kernel.
    pub record_bytes: u64,
    /// When the first of them were, on the clock that processes share.
    pub first_record_ns: Option<u64>,
    /// Processor time of its thread.
    pub cpu_ns: u64,
    /// How much later than due its thread woke up for a batch, 99th percentile.
    pub wake_late_p99_ns: u64,
    /// How often the source looked at it since its first record.
    pub looks: u64,
    /// How often TCP then had bytes that it had not sent yet: the reader was not what it waited for.
    pub looks_unsent: u64,
    /// What TCP knows.
    pub tcp: TcpInfo,
}

/// A connection and its meters.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    purpose: Purpose,
    record_bytes: AtomicU64,
    /// 0 for never.
    first_record_ns: AtomicU64,
    cpu_ns: AtomicU64,
    looks: AtomicU64,
    looks_unsent: AtomicU64,
    lateness: Mutex<Lateness>,
}

impl Connection {
    /// Nothing said yet.
    pub(super) fn new(stream: TcpStream, purpose: Purpose) -> Self {
        Self {
            stream,
            purpose,
            record_bytes: AtomicU64::new(0),
            first_record_ns: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            looks_unsent: AtomicU64::new(0),
            lateness: Mutex::default(),
        }
    }

    /// Converses until the other end closes, or says something that is no request.
    pub(super) fn serve(&self, cluster: &SourceCluster) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        // The default would let a batch be 50 microseconds late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let result = match self.purpose {
            Purpose::Kafka => self.serve_kafka(cluster),
            Purpose::Raw => self.serve_raw(cluster.generator()),
        };
        // The descriptor lives on for the report.
        let _ = self.stream.shutdown(Shutdown::Both);
        result
    }

    fn serve_kafka(&self, cluster: &SourceCluster) -> io::Result<()> {
        let mut requests = BufReader::new(&self.stream);
        let mut session = FetchSession::default();
        loop {
            let mut prefix = [0; 4];
            if requests.read_exact(&mut prefix).is_err() {
                return Ok(());
            }
            let mut frame = vec![0; frame_length(prefix)?];
            requests.read_exact(&mut frame)?;
            let answer = self.wait_for_answer(cluster, &mut session, &frame)?;
            self.count(answer.record_bytes() as u64);
            write_all(&self.stream, &mut answer.slices(cluster.generator()))?;
            self.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
        }
    }

    fn wait_for_answer(
        &self,
        cluster: &SourceCluster,
        session: &mut FetchSession,
        frame: &[u8],
    ) -> io::Result<Answer> {
        let mut waited = Duration::ZERO;
        loop {
            let before = monotonic_ns();
            let reply = cluster.answer(session, frame, before, waited).map_err(io::Error::other)?;
            let pause = match reply {
                Reply::Now(answer) => return Ok(answer),
                Reply::Later(pause) => pause,
            };
            std::thread::sleep(pause);
            waited += pause;
            let passed = Duration::from_nanos(monotonic_ns().saturating_sub(before));
            let mut lateness = self.lateness.lock().unwrap_or_else(PoisonError::into_inner);
            lateness.note(passed.saturating_sub(pause));
        }
    }

    fn serve_raw(&self, generator: &Generator) -> io::Result<()> {
        let mut wanted = [0; 8];
        (&self.stream).read_exact(&mut wanted)?;
        let mut rest = u64::from_be_bytes(wanted);
        let mut offset = 0;
        while rest > 0 {
            let mut slices = Vec::new();
            let mut taken = 0;
            while taken < (RAW_WRITE_BYTES as u64).min(rest) {
                let body = generator.body(0, offset);
                let part = (rest - taken).min(body.len() as u64);
                slices.push(IoSlice::new(&body[..part as usize]));
                taken += part;
                offset += i64::from(generator.workload().batch_records);
            }
            self.count(taken);
            write_all(&self.stream, &mut slices)?;
            self.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
            rest -= taken;
        }
        Ok(())
    }

    fn count(&self, record_bytes: u64) {
        if record_bytes > 0 && self.record_bytes.fetch_add(record_bytes, Ordering::Relaxed) == 0 {
            self.first_record_ns.store(monotonic_ns(), Ordering::Relaxed);
        }
    }

    /// Looks whether TCP has something to send, once there were records.
    pub(super) fn look(&self) {
        if self.first_record_ns.load(Ordering::Relaxed) == 0 {
            return;
        }
        let unsent = TcpInfo::of(&self.stream).is_ok_and(|info| info.unsent_bytes > 0);
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.looks_unsent.fetch_add(u64::from(unsent), Ordering::Relaxed);
    }

    /// What it did until now.
    pub(super) fn report(&self) -> ConnectionReport {
        let first = self.first_record_ns.load(Ordering::Relaxed);
        let lateness = self.lateness.lock().unwrap_or_else(PoisonError::into_inner);
        ConnectionReport {
            purpose: self.purpose,
            record_bytes: self.record_bytes.load(Ordering::Relaxed),
            first_record_ns: (first > 0).then_some(first),
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            wake_late_p99_ns: lateness.p99_ns(),
            looks: self.looks.load(Ordering::Relaxed),
            looks_unsent: self.looks_unsent.load(Ordering::Relaxed),
            tcp: TcpInfo::of(&self.stream).unwrap_or_default(),
        }
    }
}

/// How late the last wake-ups were.
#[derive(Debug, Default)]
struct Lateness {
    last_ns: VecDeque<u64>,
}

impl Lateness {
    fn note(&mut self, late: Duration) {
        if self.last_ns.len() == WAKE_UPS_MAX {
            self.last_ns.pop_front();
        }
        self.last_ns.push_back(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
    }

    fn p99_ns(&self) -> u64 {
        let mut sorted: Vec<u64> = self.last_ns.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(0)
    }
}

/// The length in a frame's first four bytes, if a request can have it.
pub(super) fn frame_length(prefix: [u8; 4]) -> io::Result<usize> {
    let length = usize::try_from(i32::from_be_bytes(prefix)).ok();
    length
        .filter(|length| *length <= REQUEST_BYTES_MAX)
        .ok_or_else(|| io::Error::other("impossible request length"))
}

fn write_all(mut stream: &TcpStream, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match stream.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
