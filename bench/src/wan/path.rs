//! The path itself: two namespaces, a device in each, what moves the packets, and the keeper that tidies up.
//!
//! Owns all of them; what it owns ends with it, and with the process. Calls run on the caller's thread, work inside a
//! namespace on short threads of its own. Must never leave a namespace, a device or a process
//! behind, however it ends.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::control::Control;
use super::keeper::Keeper;
use super::namespace::{Counters, Namespace, tcp_memory_share, write_setting};
use super::netem::{Backend, Netem};
use super::netlink::Netlink;
use super::relay::Relay;
use super::report::{Evidence, PathReport};
use super::settings::PathSettings;
use super::{WanError, sys};
use crate::run::others::ProcessorTime;

/// Addresses that are set aside for benchmarks (RFC 2544 and RFC 5180), so that no real network is hidden by them.
const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const DESTINATION_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
const DESTINATION_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2);
/// Packets in the device's queue. A TUN device gives no back-pressure: what finds its queue full is dropped, and the
/// default of 500 loses packets whenever the lane is not scheduled for a millisecond.
const DEVICE_QUEUE_PACKETS: u32 = 20_000;
/// A TCP buffer's limit is at least this, so that a short path is not slower than the machine.
const BUFFER_BYTES_MIN: u64 = 8 << 20;
/// And at most this when the kernel does not say how much memory TCP has.
const BUFFER_BYTES_MAX: u64 = 256 << 20;

/// One end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where the data comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// A path between two network namespaces of this machine. Dropping it ends every process in them.
#[derive(Debug)]
pub struct WanPath {
    state: Mutex<State>,
    // In the order in which they go. First the keeper ends the processes; while it does, packets still move, so that
    // nobody waits for a packet that does not come.
    keeper: Keeper,
    carrier: Carrier,
    source: Namespace,
    destination: Namespace,
}

#[derive(Debug)]
struct State {
    settings: PathSettings,
    since: Instant,
    kernel_before: Counters,
    processors_before: Option<ProcessorTime>,
    memory_before: Option<f64>,
}

/// What moves the packets.
#[derive(Debug)]
enum Carrier {
    Relay(Relay),
    Netem(Netem),
}

impl WanPath {
    /// Builds the path. Needs root, or a user namespace of its own (`become_root_of_own_namespace`).
    pub fn open(settings: &PathSettings) -> Result<Self, WanError> {
        settings.check()?;
        let source = Namespace::create().map_err(WanError::from_namespace)?;
        let destination = Namespace::create().map_err(WanError::from_namespace)?;
        let system = WanError::system;
        let keeper = Keeper::start(
            source.descriptor.try_clone().map_err(system("copy a descriptor"))?,
            destination.descriptor.try_clone().map_err(system("copy a descriptor"))?,
        )
        .map_err(system("start /bin/sh to tidy up at the end"))?;
        let backend = settings.backend.choose(settings, || Netem::is_there(&source))?;
        let carrier = match backend {
            Backend::Relay => Carrier::Relay(Relay::open(&source, &destination, settings)?),
            Backend::Netem => Carrier::Netem(Netem::open(&source, &destination, settings)?),
        };
        configure(&source, Side::Source, settings)?;
        configure(&destination, Side::Destination, settings)?;
        let state = State {
            settings: settings.clone(),
            since: Instant::now(),
            kernel_before: Counters::default(),
            processors_before: None,
            memory_before: None,
        };
        let path = Self { state: Mutex::new(state), keeper, carrier, source, destination };
        path.restart_counts()?;
        Ok(path)
    }

    /// The side's IPv4 address.
    pub fn address(&self, side: Side) -> IpAddr {
        side.addresses()[0]
    }

    /// The side's IPv6 address. It is there unless this machine has IPv6 switched off.
    pub fn address_v6(&self, side: Side) -> IpAddr {
        side.addresses()[1]
    }

    /// A command that will run on that side. It ends with the path, as does everything that it starts there.
    pub fn command(&self, side: Side, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        sys::start_in(&mut command, self.namespace(side).descriptor.clone());
        command
    }

    /// Runs `work` on a thread of that side, and waits for it. Sockets that it makes stay on that side, wherever they are
    /// used later; threads that it starts are there too.
    pub fn enter<T: Send>(
        &self,
        side: Side,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, WanError> {
        self.namespace(side).run(work).map_err(WanError::system("enter a namespace"))
    }

    /// Whether something on that side listens on a TCP port.
    pub fn is_listening(&self, side: Side, port: u16) -> Result<bool, WanError> {
        self.namespace(side)
            .is_listening(port)
            .map_err(WanError::system("read the kernel's table of sockets"))
    }

    /// Makes it another path, for packets that come from now on. A congestion control is for connections from now on;
    /// the limit of TCP's buffers stays as it was.
    pub fn change(&self, settings: &PathSettings) -> Result<(), WanError> {
        settings.check()?;
        let mut state = self.state();
        let before = &state.settings;
        if before.backend != settings.backend {
            return Err(WanError::Settings(
                "what moves the packets cannot be changed on an open path".to_owned(),
            ));
        }
        let of_device = |path: &PathSettings| {
            (path.mtu, path.congestion.clone(), path.destination_congestion.clone())
        };
        if of_device(before) != of_device(settings) {
            configure_device(&self.source, Side::Source, settings)?;
            configure_device(&self.destination, Side::Destination, settings)?;
        }
        match &self.carrier {
            Carrier::Relay(relay) => relay.change(settings)?,
            Carrier::Netem(netem) => netem.change(settings)?,
        }
        state.settings = settings.clone();
        Ok(())
    }

    /// What the path is set to.
    pub fn settings(&self) -> PathSettings {
        self.state().settings.clone()
    }

    /// Counts from here on: for several measurements over one path.
    pub fn restart_counts(&self) -> Result<(), WanError> {
        let now = self.kernel_counters()?;
        let mut state = self.state();
        state.kernel_before = now;
        state.processors_before = self.processor_time();
        state.memory_before = tcp_memory_share();
        state.since = Instant::now();
        match &self.carrier {
            Carrier::Relay(relay) => relay.restart_counts(),
            Carrier::Netem(netem) => netem.restart_counts()?,
        }
        Ok(())
    }

    /// What it did since the counts began.
    pub fn report(&self) -> Result<PathReport, WanError> {
        let now = self.kernel_counters()?;
        let state = self.state();
        let before = state.kernel_before;
        let carried = match &self.carrier {
            Carrier::Relay(relay) => relay.carried(),
            Carrier::Netem(netem) => netem.carried()?,
        };
        let elapsed = state.since.elapsed();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let others_share = self
            .processor_time()
            .zip(state.processors_before)
            .and_then(|(now, before)| now.others_share(&before, elapsed, processors));
        Ok(PathReport::new(Evidence {
            settings: state.settings.clone(),
            elapsed,
            others_share,
            memory_before: state.memory_before,
            carried,
            kernel: Counters {
                device_dropped: now.device_dropped - before.device_dropped,
                memory_pressures: now.memory_pressures - before.memory_pressures,
                pruned: now.pruned - before.pruned,
            },
        }))
    }

    /// Answers requests for the path over a socket, until the control is dropped. The words of a request mean what `answer`
    /// takes them for.
    pub fn control<F>(self: &Arc<Self>, answer: F) -> Result<Control, WanError>
    where
        F: Fn(&Self, Vec<String>) -> Result<String, String> + Send + 'static,
    {
        // The answering thread is not to keep the path open.
        let path = Arc::downgrade(self);
        let answer = move |words| match path.upgrade() {
            Some(path) => answer(&path, words),
            None => Err("the path is closed".to_owned()),
        };
        let listen = || Control::listen(self.keeper.make_folder()?, answer);
        listen().map_err(WanError::system("listen on the control socket"))
    }

    fn kernel_counters(&self) -> Result<Counters, WanError> {
        let read = |namespace: &Namespace| {
            namespace.counters().map_err(WanError::system("read the kernel's counters"))
        };
        let (source, destination) = (read(&self.source)?, read(&self.destination)?);
        Ok(Counters {
            device_dropped: source.device_dropped + destination.device_dropped,
            memory_pressures: source.memory_pressures + destination.memory_pressures,
            pruned: source.pruned + destination.pruned,
        })
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        let namespaces = [&self.source, &self.destination].map(Namespace::link);
        ProcessorTime::read(&namespaces.into_iter().collect::<io::Result<Vec<_>>>().ok()?)
    }

    fn namespace(&self, side: Side) -> &Namespace {
        match side {
            Side::Source => &self.source,
            Side::Destination => &self.destination,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }

    fn addresses(self) -> [IpAddr; 2] {
        match self {
            Self::Source => [SOURCE_V4.into(), SOURCE_V6.into()],
            Self::Destination => [DESTINATION_V4.into(), DESTINATION_V6.into()],
        }
    }
}

fn configure(namespace: &Namespace, side: Side, settings: &PathSettings) -> Result<(), WanError> {
    let buffer = buffer_bytes_max(settings);
    namespace
        .run(|| {
            write_setting("ipv4/tcp_rmem", &format!("4096 131072 {buffer}"))?;
            write_setting("ipv4/tcp_wmem", &format!("4096 16384 {buffer}"))?;
            // What one run learned about the path is not for the next.
            write_setting("ipv4/tcp_no_metrics_save", "1")?;
            // What a killed program had not sent yet would be sent again and again for minutes, and hold
            // its part of TCP's memory, which the next path's connections then lack.
            write_setting("ipv4/tcp_orphan_retries", "1")?;
            // No address that nobody asked for, and no packets to find neighbours; absent where IPv6 is.
            let _ = write_setting(&format!("ipv6/conf/{}/addr_gen_mode", sys::DEVICE), "1");
            Ok(())
        })
        .and_then(|done: io::Result<()>| done)
        .map_err(WanError::system("write the kernel's TCP settings"))?;
    configure_device(namespace, side, settings)
}

/// Up, addressed, and with a route to the other side. Can be repeated with other settings.
fn configure_device(
    namespace: &Namespace,
    side: Side,
    settings: &PathSettings,
) -> Result<(), WanError> {
    let congestion = match side {
        Side::Source => settings.congestion.as_deref(),
        Side::Destination => {
            settings.destination_congestion.as_deref().or(settings.congestion.as_deref())
        }
    };
    namespace
        .run(|| {
            let netlink = Netlink::open().map_err(WanError::system("open a routing socket"))?;
            let loopback = netlink.device("lo").and_then(|device| netlink.up(device, None, None));
            loopback.map_err(WanError::system("switch the loopback device on"))?;
            let device =
                netlink.device(sys::DEVICE).map_err(WanError::system("find the device"))?;
            netlink
                .up(device, Some(settings.mtu), Some(DEVICE_QUEUE_PACKETS))
                .map_err(WanError::system("switch the device on"))?;
            for (own, peer) in side.addresses().into_iter().zip(side.other().addresses()) {
                let added = netlink.add_address(device, own);
                if own.is_ipv6() && added.is_err() {
                    // A machine without IPv6: the path is one for IPv4.
                    continue;
                }
                added.map_err(WanError::system("give the device its address"))?;
                netlink.set_route(device, peer, congestion).map_err(|error| match congestion {
                    Some(name) if error.raw_os_error() == Some(libc::EINVAL) => {
                        WanError::no_such_congestion(name)
                    }
                    _ => WanError::System { what: "set the route", error },
                })?;
            }
            Ok(())
        })
        .map_err(WanError::system("enter a namespace"))?
}

/// Three times what is under way and waiting: the kernel counts its own overhead too, and half of a receive buffer is
/// not offered as window. At most a quarter of what all TCP connections of this machine may take before the kernel
/// begins to save, so that a path does not throttle itself.
fn buffer_bytes_max(settings: &PathSettings) -> u64 {
    if let Some(bytes) = settings.buffer_bytes_max {
        return bytes;
    }
    let quarter =
        tcp_memory_bytes().map_or(BUFFER_BYTES_MAX, |bytes| bytes / 4).max(BUFFER_BYTES_MIN);
    let needed = settings.bandwidth_delay_bytes().map_or(u64::MAX, |under_way| {
        under_way.saturating_add(settings.queue_bytes().unwrap_or(0)).saturating_mul(3)
    });
    needed.clamp(BUFFER_BYTES_MIN, quarter)
}

/// The first of three numbers, in pages (of at least 4 KiB); only to be read outside of network namespaces of one's own.
fn tcp_memory_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok()?;
    let pages: u64 = pages.split_whitespace().next()?.parse().ok()?;
    pages.checked_mul(4096)
}
