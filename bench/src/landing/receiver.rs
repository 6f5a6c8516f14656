//! The receiving side: a ring on the calling thread, into scratch memory or into a log.
//!
//! The landing is the one of the data plane's fetch driver: records go by a receive of their own into
//! the segment where the log offers its memory, with a small buffer behind for the fields that
//! follow; else through a buffer.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use dataplane::ring::{
    Completion, Outcome, ReceiveInto, Ring, RingConfig, Socket, Token, TokenRole,
};
use rustix::time::{ClockId, clock_gettime};
use storage::{AppendContext, LandingTarget, LeaderEpoch, Log};

use super::BenchError;
use super::stream::{ANSWER_HEAD_BYTES, Stream};
use crate::run::{Stat, TICKS_PER_SECOND};

/// Buffer for records that are copied; as the fetch driver's.
pub(super) const MAIN_BYTES: usize = 256 * 1024;
/// Buffer behind a receive into the segment; as the fetch driver's.
const SPILL_BYTES: usize = 16 * 1024;
/// Most record bytes of one receive into the segment; as the fetch driver's.
const DIRECT_BYTES_MAX: usize = 1024 * 1024;

/// One run of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Received {
    /// Record bytes.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Of the receiving thread, in the kernel and outside.
    pub(super) cpu_seconds: f64,
    /// The part of it in the kernel, as the kernel's clock ticks sampled it.
    pub(super) system_seconds: f64,
    /// Share of the record bytes that the kernel put where they stay.
    pub(super) in_place_share: f64,
}

/// Time and CPU of the calling thread since it was made.
pub(super) struct Meter {
    started: Instant,
    cpu_seconds: f64,
    system_seconds: f64,
}

impl Meter {
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
            cpu_seconds: thread_cpu_seconds(),
            system_seconds: thread_system_seconds(),
        }
    }

    pub(super) fn stop(self, record_bytes: u64) -> Received {
        Received {
            bytes: record_bytes,
            seconds: self.started.elapsed().as_secs_f64(),
            cpu_seconds: thread_cpu_seconds() - self.cpu_seconds,
            system_seconds: thread_system_seconds() - self.system_seconds,
            in_place_share: 0.0,
        }
    }
}

fn thread_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn thread_system_seconds() -> f64 {
    let stat = Stat::read(Path::new("/proc/thread-self"));
    stat.map_or(f64::NAN, |stat| stat.system as f64 / TICKS_PER_SECOND)
}

/// One connection on a ring of its own.
struct Receiver {
    ring: Ring,
    socket: Socket,
    completions: Vec<Completion>,
}

impl Receiver {
    fn new(socket: TcpStream) -> Result<Self, BenchError> {
        let ring = Ring::new(RingConfig { entries: 64 })?;
        Ok(Self { ring, socket: Socket::from(OwnedFd::from(socket)), completions: Vec::new() })
    }

    /// Receives once; zero bytes are an error, because the stream's length is known.
    fn receive(&mut self, into: ReceiveInto) -> Result<(usize, ReceiveInto), BenchError> {
        let token = Token { role: TokenRole::Fetch, slot: 0, kind: 0 };
        self.ring.receive(&self.socket, into, false, token);
        loop {
            self.ring.wait(None, &mut self.completions)?;
            while let Some(completion) = self.completions.pop() {
                let Outcome::Received { result, into } = completion.outcome else { continue };
                let count = result.map_err(|source| BenchError::io("receive", source))?;
                if count == 0 {
                    return Err(BenchError::Wrong("the sender stopped early".to_owned()));
                }
                return Ok((count, into));
            }
        }
    }
}

/// Receives everything into `scratch_bytes` of memory, over and over: into a small buffer, that stays in the
/// processor's cache, what no landing can undercut; into a large one what bytes cost that are to stay somewhere.
pub(super) fn receive_raw(
    socket: TcpStream,
    stream: &Stream,
    scratch_bytes: usize,
) -> Result<Received, BenchError> {
    let mut receiver = Receiver::new(socket)?;
    // Written to, so that its pages are there.
    let mut buffer = vec![1; scratch_bytes.max(MAIN_BYTES)].into_boxed_slice();
    let mut from = 0;
    let meter = Meter::start();
    let mut left = stream.total_bytes();
    while left > 0 {
        let (count, back) = receiver.receive(ReceiveInto::Buffer { buffer, from })?;
        let ReceiveInto::Buffer { buffer: again, .. } = back else {
            return Err(BenchError::Wrong("a buffer came back as something else".to_owned()));
        };
        buffer = again;
        left = left.saturating_sub(count as u64);
        from = if from + count + MAIN_BYTES > buffer.len() { 0 } else { from + count };
    }
    Ok(meter.stop(stream.record_bytes()))
}

/// Receives everything into a log, checked and published.
pub(super) fn receive_and_land(
    socket: TcpStream,
    stream: &Stream,
    log: &mut Log,
    in_place: bool,
) -> Result<Received, BenchError> {
    let mut receiver = Receiver::new(socket)?;
    let mut main = Some(vec![0; MAIN_BYTES].into_boxed_slice());
    let mut spill = Some(vec![0; SPILL_BYTES].into_boxed_slice());
    let meter = Meter::start();
    let mut answers = Answers::new(log, stream.answers());
    while answers.left > 0 {
        let into = match answers.target(in_place)? {
            Some((tail, tail_bytes)) => {
                ReceiveInto::Tail { tail, tail_bytes, buffer: spill.take().unwrap_or_default() }
            }
            None => ReceiveInto::Buffer { buffer: main.take().unwrap_or_default(), from: 0 },
        };
        let (count, into) = receiver.receive(into)?;
        match into {
            ReceiveInto::Buffer { buffer, .. } => {
                answers.take(&buffer[..count])?;
                main = Some(buffer);
            }
            ReceiveInto::Tail { tail_bytes, buffer, .. } => {
                answers.landed(count.min(tail_bytes))?;
                answers.take(&buffer[..count.saturating_sub(tail_bytes)])?;
                spill = Some(buffer);
            }
        }
    }
    let in_place_share = answers.in_place_bytes as f64 / stream.record_bytes() as f64;
    Ok(Received { in_place_share, ..meter.stop(stream.record_bytes()) })
}

/// Takes the stream apart into answers and lands their records.
struct Answers<'a> {
    log: &'a mut Log,
    context: AppendContext,
    head: Vec<u8>,
    /// Record bytes of the current answer still to come.
    records: usize,
    /// Answers not yet landed whole.
    left: usize,
    in_place_bytes: u64,
}

impl<'a> Answers<'a> {
    fn new(log: &'a mut Log, answers: usize) -> Self {
        Self {
            log,
            context: AppendContext { leader_epoch_max: LeaderEpoch(0) },
            head: Vec::with_capacity(ANSWER_HEAD_BYTES),
            records: 0,
            left: answers,
            in_place_bytes: 0,
        }
    }

    /// Segment memory for the next records, and how many bytes of it to fill.
    fn target(
        &mut self,
        in_place: bool,
    ) -> Result<Option<(storage::MappedTail, usize)>, BenchError> {
        if self.records == 0 || !in_place {
            return Ok(None);
        }
        match self.log.prepare_landing(self.records as u32)? {
            LandingTarget::Mapped(tail) => {
                let tail_bytes = self.records.min(DIRECT_BYTES_MAX).min(tail.len_bytes());
                Ok(Some((tail, tail_bytes)))
            }
            LandingTarget::Copy => Ok(None),
        }
    }

    fn landed(&mut self, count: usize) -> Result<(), BenchError> {
        self.log.landed_in_place(count, &self.context)?;
        self.in_place_bytes += count as u64;
        self.account(count)
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), BenchError> {
        while !bytes.is_empty() {
            if self.records == 0 {
                let missing = (ANSWER_HEAD_BYTES - self.head.len()).min(bytes.len());
                let (front, rest) = bytes.split_at(missing);
                self.head.extend_from_slice(front);
                bytes = rest;
                if self.head.len() == ANSWER_HEAD_BYTES {
                    let length = self.head.first_chunk().map_or(0, |at| u32::from_be_bytes(*at));
                    self.records = length as usize;
                    self.head.clear();
                    self.log.prepare_landing(length)?;
                }
                continue;
            }
            let (front, rest) = bytes.split_at(self.records.min(bytes.len()));
            self.log.land(front, &self.context)?;
            bytes = rest;
            self.account(front.len())?;
        }
        Ok(())
    }

    fn account(&mut self, count: usize) -> Result<(), BenchError> {
        self.records -= count;
        if self.records == 0 && count > 0 {
            self.log.finish_landing()?;
            self.left -= 1;
        }
        Ok(())
    }
}
