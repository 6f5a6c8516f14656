//! A network namespace without a name: it is there for as long as its descriptor, or a process in it, is.
//!
//! Owns the descriptor. Work inside runs on a short thread of its own, since a thread that has moved into a namespace
//! stays in it. Must never move a thread of the caller.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::sys;

const SENT_BYTES: usize = 8;
const SENT_PACKETS: usize = 9;
const SENT_DROPPED: usize = 11;

/// One end of the path.
#[derive(Debug, Clone)]
pub(super) struct Namespace {
    pub(super) descriptor: Arc<OwnedFd>,
}

/// Counts that the kernel keeps for a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Packets that the device's ring had no room for.
    pub(super) device_dropped: u64,
    /// How often TCP's memory of the whole machine ran short.
    pub(super) memory_pressures: u64,
    /// How often a receive queue was trimmed for it.
    pub(super) pruned: u64,
}

impl Namespace {
    /// A new one.
    pub(super) fn create() -> io::Result<Self> {
        on_own_thread(|| {
            sys::leave_for_new_network()?;
            let descriptor = File::open("/proc/thread-self/ns/net")?;
            Ok(Self { descriptor: Arc::new(descriptor.into()) })
        })
    }

    /// Runs `work` on a thread that is in the namespace, and waits for it.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_own_thread(|| {
            move_into_link_name_space(self.descriptor.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })
    }

    /// How the links of `/proc/PID/ns/net` name it.
    pub(super) fn link(&self) -> io::Result<PathBuf> {
        fs::read_link(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()))
    }

    /// What the kernel has counted so far.
    pub(super) fn counters(&self) -> io::Result<Counters> {
        self.run(|| {
            let device = fs::read_to_string("/proc/thread-self/net/dev")?;
            let tcp = fs::read_to_string("/proc/thread-self/net/netstat")?;
            Ok(Counters {
                device_dropped: device_number(&device, sys::DEVICE, SENT_DROPPED).unwrap_or(0),
                memory_pressures: tcp_count(&tcp, "TCPMemoryPressures").unwrap_or(0),
                pruned: tcp_count(&tcp, "PruneCalled").unwrap_or(0),
            })
        })?
    }

    /// Bytes and packets that the device has sent.
    pub(super) fn sent(&self) -> io::Result<(u64, u64)> {
        let table = self.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let number = |place| device_number(&table, sys::DEVICE, place).unwrap_or(0);
        Ok((number(SENT_BYTES), number(SENT_PACKETS)))
    }

    /// Whether a TCP socket listens on the port, at any address.
    pub(super) fn is_listening(&self, port: u16) -> io::Result<bool> {
        self.run(|| {
            let v4 = fs::read_to_string("/proc/thread-self/net/tcp")?;
            // Absent where IPv6 is.
            let v6 = fs::read_to_string("/proc/thread-self/net/tcp6").unwrap_or_default();
            Ok(has_listener(&v4, port) || has_listener(&v6, port))
        })?
    }
}

/// How much of the memory that TCP may use without a thought, on the whole machine, is in use: above 1 the kernel
/// may hold all buffers small until it is below again. `None` where the machine does not show it.
pub(super) fn tcp_memory_share() -> Option<f64> {
    let used = fs::read_to_string("/proc/net/sockstat").ok()?;
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok()?;
    memory_share(&used, &allowed)
}

fn memory_share(used: &str, allowed: &str) -> Option<f64> {
    let tcp = used.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let (_, used) = tcp.split_once(" mem ")?;
    let used: f64 = used.split_whitespace().next()?.parse().ok()?;
    let allowed: f64 = allowed.split_whitespace().next()?.parse().ok()?;
    Some(used / allowed)
}

/// Writes a kernel setting of the calling thread's namespace.
pub(super) fn write_setting(name: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new("/proc/sys/net").join(name), value)
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let started =
            thread::Builder::new().name("wan-namespace".to_owned()).spawn_scoped(scope, work)?;
        started.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// A number of the device's line: `name: 8 numbers received, bytes packets errs drop ... sent`.
fn device_number(table: &str, device: &str, place: usize) -> Option<u64> {
    let numbers =
        table.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

/// Lines of `number: address:port peer:port state ...`, all in hexadecimal.
fn has_listener(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    table.lines().any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().and_then(|address| address.rsplit_once(':'));
        local.is_some_and(|(_, local)| u16::from_str_radix(local, 16) == Ok(port))
            && columns.nth(1) == Some(LISTEN)
    })
}

/// Two lines for each protocol: names, then numbers.
fn tcp_count(table: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let place = lines.next()?.split_whitespace().position(|column| column == name)?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_kernels_tables() {
        let device = "Inter-|   Receive | Transmit\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  \
                      wan0:11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26\n";
        assert_eq!(device_number(device, "wan0", SENT_DROPPED), Some(22));
        assert_eq!(device_number(device, "wan0", SENT_BYTES), Some(19));
        assert_eq!(device_number(device, "wan1", SENT_DROPPED), None);
        let tcp = "TcpExt: SyncookiesSent PruneCalled TCPMemoryPressures\nTcpExt: 0 7 9\nIpExt: A B\nIpExt: 1 2\n";
        assert_eq!(tcp_count(tcp, "PruneCalled"), Some(7));
        assert_eq!(tcp_count(tcp, "TCPMemoryPressures"), Some(9));
        assert_eq!(tcp_count(tcp, "Absent"), None);
    }

    #[test]
    fn only_a_listening_socket_listens() {
        let table = "  sl  local_address rem_address   st tx_queue\n   \
                     0: 00000000:1451 00000000:0000 0A 00000000:00000000\n   \
                     1: 0100007F:1452 0100007F:9000 01 00000000:00000000\n";
        assert!(has_listener(table, 5201));
        assert!(!has_listener(table, 5202));
    }

    #[test]
    fn the_share_of_tcps_memory_is_read() {
        let used = "sockets: used 70\nTCP: inuse 1 orphan 32 tw 17 alloc 42 mem 1190\nUDP: inuse 0 mem 7\n";
        assert_eq!(memory_share(used, "595\t383869\t575802\n"), Some(2.0));
        assert_eq!(memory_share("UDP: inuse 0 mem 7\n", "595 1 2"), None);
    }
}
