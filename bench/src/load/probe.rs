//! How long a path takes one way: datagrams that carry the time they were sent at.
//!
//! Sender and receiver are on one machine, so that they share a clock. Each has a thread of its own.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::monotonic_ns;

/// From one datagram to the next: 200 a second, too few to load a path.
const INTERVAL: Duration = Duration::from_millis(5);
/// The longest delay told apart.
const DELAY_NS_MAX: u64 = 60_000_000_000;
/// How often the receiver looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// A receiver at work.
#[derive(Debug)]
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Histogram<u64>>,
}

impl Probe {
    /// Sends to `address` until the process ends.
    pub(super) fn send_to(address: SocketAddr) -> io::Result<()> {
        let any: SocketAddr =
            if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        std::thread::Builder::new().name("probe".to_owned()).spawn(move || {
            loop {
                // A full device or a receiver that is gone is a lost datagram.
                let _ = socket.send(&monotonic_ns().to_be_bytes());
                std::thread::sleep(INTERVAL);
            }
        })?;
        Ok(())
    }

    /// Receives on the socket.
    ///
    /// # Errors
    /// When no thread is to be had.
    pub fn receive(socket: UdpSocket) -> io::Result<Self> {
        socket.set_read_timeout(Some(LOOK))?;
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let mut delays =
            Histogram::new_with_bounds(1, DELAY_NS_MAX, 3).map_err(io::Error::other)?;
        let thread = std::thread::Builder::new().name("probe".to_owned()).spawn(move || {
            let mut sent = [0; 8];
            while !theirs.load(Ordering::Relaxed) {
                if socket.recv(&mut sent).is_ok_and(|count| count == sent.len()) {
                    let delay = monotonic_ns().saturating_sub(u64::from_be_bytes(sent));
                    delays.saturating_record(delay.max(1));
                }
            }
            delays
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends it; answers the delays in nanoseconds.
    #[must_use]
    pub fn end(self) -> Option<Histogram<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok()
    }
}
