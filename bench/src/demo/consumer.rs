//! The demo's consumer: fetches from the node and compares every batch with the one the source made.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::load::Generator;
use crate::reader::{ReadBatch, Reader};

/// Pause before asking again for a topic that is not there yet.
const NOT_THERE_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Shared {
    records: AtomicU64,
    bytes: AtomicU64,
    mirrored: AtomicU64,
    complete: AtomicU64,
    stop: AtomicBool,
    problem: Mutex<Option<String>>,
}

/// A consumer on a thread of its own.
#[derive(Debug)]
pub(super) struct Checker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Checker {
    /// Starts checking everything the node at `address` serves.
    pub(super) fn start(address: SocketAddr, generator: Generator) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            if let Err(problem) = check_all(address, &generator, &theirs) {
                *theirs.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
            }
        });
        Self { shared, thread }
    }

    /// Records and bytes found equal so far.
    pub(super) fn checked(&self) -> (u64, u64) {
        (self.shared.records.load(Ordering::Acquire), self.shared.bytes.load(Ordering::Relaxed))
    }

    /// Records the node had mirrored at its last answers.
    pub(super) fn mirrored(&self) -> u64 {
        self.shared.mirrored.load(Ordering::Relaxed)
    }

    /// Partitions checked to their end.
    pub(super) fn complete(&self) -> u64 {
        self.shared.complete.load(Ordering::Relaxed)
    }

    /// What went wrong, if anything did.
    pub(super) fn problem(&self) -> Option<String> {
        self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the thread.
    pub(super) fn stop(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

fn check_all(address: SocketAddr, generator: &Generator, shared: &Shared) -> Result<(), String> {
    let workload = generator.workload();
    let end = generator.end_offset();
    let stream = TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
    let mut reader = Reader::new(stream, &workload.topic, workload.partitions)
        .map_err(|error| error.to_string())?;
    let mut expected = Vec::new();
    while reader.next().iter().any(|next| *next < end) && !shared.stop.load(Ordering::Relaxed) {
        let known = reader
            .fetch(end, |batch| compare(generator, &batch, &mut expected, shared))
            .map_err(|error| error.to_string())?;
        if !known {
            std::thread::sleep(NOT_THERE_PAUSE);
        }
        let mirrored: i64 = reader.high_watermarks().iter().sum();
        shared.mirrored.store(mirrored.cast_unsigned(), Ordering::Relaxed);
        let complete = reader.next().iter().filter(|next| **next >= end).count();
        shared.complete.store(complete as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn compare(
    generator: &Generator,
    batch: &ReadBatch<'_>,
    expected: &mut Vec<u8>,
    shared: &Shared,
) -> Result<(), String> {
    expected.clear();
    generator.batch(batch.partition, batch.wanted, expected);
    if batch.bytes != expected.as_slice() {
        let ReadBatch { partition, wanted, .. } = batch;
        return Err(format!(
            "partition {partition}: the batch at offset {wanted} differs from the source's"
        ));
    }
    shared.bytes.fetch_add(batch.bytes.len() as u64, Ordering::Relaxed);
    let records = (batch.end - batch.first).cast_unsigned();
    shared.records.fetch_add(records, Ordering::Release);
    Ok(())
}
