//! What bound a transfer, from what the sender's kernel, the processors and the link say.
//!
//! Pure: everything it needs is an argument.

use std::time::Duration;

use crate::load::{ConnectionReport, SourceReport};
use crate::run::{BusyWatch, Limit, LimitKind};

/// A transfer that settles at this share of what the link can carry has nothing left to gain.
const LINK_FULL: f64 = 0.9;
/// A connection held back for this share of its time was bound by that. BBR spreads what it sends over the round trip,
/// so that even a sender whose buffer is always full is only counted as held back for about a quarter of the time;
/// one that is not has next to none.
const HELD_BACK: f64 = 0.1;
/// A connection that seldom has unsent bytes waits for its reader to ask.
const UNSENT_MIN: f64 = 0.5;
/// With more segments resent than this, losses are what congestion control answers to.
const RESENT_MIN: f64 = 1e-5;
/// A connection that carried less than this share of the bytes is none of the flows.
const FLOW_SHARE_MIN: f64 = 0.01;
/// With this multiple of a buffer under way in each connection, the buffer is what bounds it: not every connection is
/// always in use.
const BUFFER_FULL: std::ops::Range<f64> = 0.25..3.0;
/// IPv4 and TCP header, with the timestamps that Linux sends.
const HEADER_BYTES: f64 = 52.0;

/// What is known of a transfer.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    /// What it settled at, in bytes a second.
    pub(super) plateau: f64,
    /// The link's bits a second and largest packet.
    pub(super) link: Option<(u64, u32)>,
    /// A thread that was full: the subject's, the source's or the emulator's.
    pub(super) thread: Option<Limit>,
    /// What all processors together and the storage bound, or [`LimitKind::Unknown`].
    pub(super) machine: Limit,
    /// The connections that carried it.
    pub(super) flows: &'a Flows,
}

/// The connections that carried the records, as far as they are known.
#[derive(Debug)]
pub(super) enum Flows {
    /// The source's own report of them, and when it was made.
    Reported(Vec<ConnectionReport>, u64),
    /// Connections to a real broker, counted, and the buffer that holds each of them back, if one may.
    Counted(u32, Option<Buffer>),
}

/// A buffer of a fixed size at one end of each connection: no more than it holds is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    /// [`LimitKind::SendBuffer`] of the source, or the reader's [`LimitKind::Window`].
    pub(super) by: LimitKind,
    /// What was asked for; the kernel doubles it, and takes about half of that for its own structures.
    pub(super) bytes: usize,
    pub(super) round_trip: Duration,
    /// What came over all connections, in bytes a second.
    pub(super) rate: f64,
}

impl Flows {
    /// Of the synthetic source: without connections that carried next to nothing.
    pub(super) fn of(report: &SourceReport) -> Self {
        let all: u64 = report.connections.iter().map(|connection| connection.record_bytes).sum();
        let least = (all as f64 * FLOW_SHARE_MIN).max(1.0);
        let connections = report.connections.iter();
        let flows = connections.filter(|one| one.record_bytes as f64 >= least);
        Self::Reported(flows.cloned().collect(), report.at_ns)
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Reported(flows, _) => flows.len(),
            Self::Counted(count, _) => *count as usize,
        }
    }
}

/// What a link can carry of TCP's payload, in bytes a second.
pub(super) fn payload_rate(rate_bits: u64, mtu: u32) -> f64 {
    let mtu = f64::from(mtu);
    rate_bits as f64 / 8.0 * ((mtu - HEADER_BYTES) / mtu)
}

/// A thread busy for more than this share of the time was full.
const THREAD_FULL: f64 = 0.85;

/// The first of the processes with a thread that was full. What bounds whom: a full source is not a processor
/// that is too slow for the subject.
pub(super) fn full_thread(busy: &BusyWatch, processes: &[(&str, LimitKind)]) -> Option<Limit> {
    processes.iter().find_map(|(process, by)| {
        let thread = busy.busiest(process).filter(|thread| thread.share > THREAD_FULL)?;
        let share = thread.share * 100.0;
        Some(Limit::new(*by, format!("{process}'s thread {:?} {share:.0} % busy", thread.thread)))
    })
}

/// Decides: the link; a full thread; what the sender was held back by; the machine; what the sender lacked.
///
/// What holds a sender back comes before the processors, because a machine can be busy with something else; only
/// the window comes after them, because a receiver without processor or disk closes its window.
pub(super) fn decide(evidence: &Evidence<'_>) -> Limit {
    if let Some((rate, mtu)) = evidence.link {
        let share = evidence.plateau / payload_rate(rate, mtu);
        if share >= LINK_FULL {
            let words = format!("settled at {:.0} % of what the link carries", share * 100.0);
            return Limit::new(LimitKind::Link, words);
        }
    }
    if let Some(thread) = &evidence.thread {
        return thread.clone();
    }
    let held_back = evidence.flows.buffer();
    if held_back.by != LimitKind::Unknown {
        return held_back;
    }
    let machine = &evidence.machine;
    if machine.by == LimitKind::Cpu {
        return machine.clone();
    }
    match evidence.flows {
        Flows::Reported(flows, at_ns) => match Waits::of(flows, *at_ns) {
            Some(waits) => waits.decide(flows.len(), machine),
            None => Limit::new(LimitKind::Unknown, "no connection carried records"),
        },
        Flows::Counted(..) if machine.by != LimitKind::Unknown => machine.clone(),
        Flows::Counted(..) => held_back,
    }
}

impl Flows {
    /// Whether a buffer held them back: by the kernel's count, or, of a real broker, because each connection has about
    /// as much under way as the buffer holds.
    fn buffer(&self) -> Limit {
        match self {
            Self::Reported(flows, at_ns) => {
                let waits = Waits::of(flows, *at_ns);
                match waits.filter(|waits| waits.send_buffer >= HELD_BACK) {
                    Some(waits) => Limit::new(LimitKind::SendBuffer, waits.words(flows.len())),
                    None => Limit::new(LimitKind::Unknown, ""),
                }
            }
            Self::Counted(count, None) => {
                Limit::new(LimitKind::Unknown, format!("{count} connections to a real broker"))
            }
            Self::Counted(count, Some(buffer)) => buffer.decide(*count),
        }
    }
}

impl Buffer {
    fn decide(&self, connections: u32) -> Limit {
        let bytes = self.bytes as f64;
        let under_way = self.rate * self.round_trip.as_secs_f64() / f64::from(connections).max(1.0);
        let whose = if self.by == LimitKind::Window { "its reader's receive" } else { "its send" };
        let words = format!(
            "connections to a real broker: {connections}, with {:.0} kB under way in each; {whose} buffer is {:.0} kB",
            under_way / 1e3,
            bytes / 1e3
        );
        let full = BUFFER_FULL.contains(&(under_way / bytes));
        Limit::new(if full { self.by } else { LimitKind::Unknown }, words)
    }
}

/// What the sender's connections waited for, as shares of their time.
#[derive(Debug)]
struct Waits {
    window: f64,
    send_buffer: f64,
    /// Of the looks at the connections, those with bytes that TCP had not sent yet.
    unsent: f64,
    resent: f64,
    round_trip_ms: f64,
}

impl Waits {
    fn of(flows: &[ConnectionReport], at_ns: u64) -> Option<Self> {
        let sum = |value: fn(&ConnectionReport) -> u64| -> f64 {
            flows.iter().map(|flow| value(flow) as f64).sum()
        };
        let lives = flows
            .iter()
            .filter_map(|flow| Some(at_ns.saturating_sub(flow.first_record_ns?) as f64 / 1e3));
        let life_us: f64 = lives.sum();
        (life_us > 0.0).then(|| Self {
            window: sum(|flow| flow.tcp.receiver_limited_us) / life_us,
            send_buffer: sum(|flow| flow.tcp.send_buffer_limited_us) / life_us,
            unsent: sum(|flow| flow.looks_unsent) / sum(|flow| flow.looks).max(1.0),
            resent: sum(|flow| u64::from(flow.tcp.segments_resent))
                / sum(|flow| u64::from(flow.tcp.segments_sent)).max(1.0),
            round_trip_ms: sum(|flow| u64::from(flow.tcp.round_trip_us)) / flows.len() as f64 / 1e3,
        })
    }

    /// A receiver that waits for its storage closes its window. One that was not asked in time did not wait for it,
    /// whatever the kernel writes back meanwhile.
    fn decide(&self, flows: usize, machine: &Limit) -> Limit {
        let words = self.words(flows);
        match (self.limit(), machine.by) {
            (LimitKind::Window | LimitKind::Unknown, LimitKind::Disk) => machine.clone(),
            (by, LimitKind::Disk) => Limit::new(by, format!("{words}; {}", machine.evidence)),
            (by, _) => Limit::new(by, words),
        }
    }

    fn limit(&self) -> LimitKind {
        if self.window >= HELD_BACK {
            LimitKind::Window
        } else if self.unsent < UNSENT_MIN {
            LimitKind::RoundTrips
        } else if self.resent > RESENT_MIN {
            LimitKind::Loss
        } else {
            LimitKind::Unknown
        }
    }

    fn words(&self, flows: usize) -> String {
        format!(
            "{flows} {}: held back by the window {:.0} % of the time, by the send buffer {:.0} %; nothing to send {:.0} \
             %; {:.3} % resent; round trip {:.1} ms",
            if flows == 1 { "flow" } else { "flows" },
            self.window * 100.0,
            self.send_buffer * 100.0,
            (1.0 - self.unsent) * 100.0,
            self.resent * 100.0,
            self.round_trip_ms,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Purpose;
    use crate::tcp_info::TcpInfo;

    /// Ten seconds of a connection.
    fn flow(change: impl Fn(&mut ConnectionReport)) -> Vec<ConnectionReport> {
        let mut flow = ConnectionReport {
            purpose: Purpose::Kafka,
            record_bytes: 1_000_000_000,
            first_record_ns: Some(0),
            cpu_ns: 0,
            wake_late_p99_ns: 0,
            looks: 100,
            looks_unsent: 90,
            tcp: TcpInfo { segments_sent: 1_000_000, ..TcpInfo::default() },
        };
        change(&mut flow);
        vec![flow]
    }

    fn decided(flows: &[ConnectionReport], plateau: f64, machine: LimitKind) -> LimitKind {
        let evidence = Evidence {
            plateau,
            link: Some((1_000_000_000, 1_500)),
            thread: None,
            machine: Limit::new(machine, "seen"),
            flows: &Flows::Reported(flows.to_vec(), 10_000_000_000),
        };
        decide(&evidence).by
    }

    #[test]
    fn each_limit_is_told_from_the_others() {
        let unknown = LimitKind::Unknown;
        let plain = flow(|_| {});
        assert_eq!(decided(&plain, 115e6, LimitKind::Cpu), LimitKind::Link);
        assert_eq!(decided(&plain, 50e6, LimitKind::Disk), LimitKind::Disk);
        assert_eq!(decided(&plain, 50e6, unknown), LimitKind::Unknown);
        let lossy = flow(|flow| flow.tcp.segments_resent = 1_000);
        assert_eq!(decided(&lossy, 50e6, unknown), LimitKind::Loss);
        let waiting = flow(|flow| flow.looks_unsent = 10);
        assert_eq!(decided(&waiting, 50e6, unknown), LimitKind::RoundTrips);
        assert_eq!(decided(&waiting, 50e6, LimitKind::Disk), LimitKind::RoundTrips);
        let window = flow(|flow| flow.tcp.receiver_limited_us = 6_000_000);
        assert_eq!(decided(&window, 50e6, unknown), LimitKind::Window);
        let buffer = flow(|flow| {
            flow.tcp.send_buffer_limited_us = 9_000_000;
            flow.looks_unsent = 0;
        });
        assert_eq!(decided(&buffer, 2e6, unknown), LimitKind::SendBuffer);
        assert_eq!(decided(&buffer, 2e6, LimitKind::Cpu), LimitKind::SendBuffer);
        assert_eq!(decided(&window, 2e6, LimitKind::Disk), LimitKind::Disk);
        assert_eq!(decided(&[], 2e6, unknown), LimitKind::Unknown);
    }

    #[test]
    fn connections_that_carried_next_to_nothing_are_no_flows() {
        let mut connections = flow(|_| {});
        connections.extend(flow(|flow| flow.record_bytes = 1_000));
        connections.extend(flow(|flow| flow.record_bytes = 0));
        let report = SourceReport { at_ns: 1, connections, problem: None, confirmed_p50_ns: None };
        assert_eq!(Flows::of(&report).count(), 1);
    }

    #[test]
    fn a_fixed_buffer_shows_by_what_is_under_way() {
        let by = |by, bytes, count, rate| {
            let round_trip = Duration::from_millis(100);
            Flows::Counted(count, Some(Buffer { by, bytes, round_trip, rate })).buffer().by
        };
        let (send, window) = (LimitKind::SendBuffer, LimitKind::Window);
        assert_eq!(by(send, 102_400, 1, 2.5e6), send);
        assert_eq!(by(send, 102_400, 4, 10e6), send);
        assert_eq!(by(send, 102_400, 1, 40e6), LimitKind::Unknown);
        assert_eq!(by(send, 102_400, 4, 0.1e6), LimitKind::Unknown);
        assert_eq!(by(window, 65_536, 1, 0.65e6), window);
        assert_eq!(Flows::Counted(1, None).buffer().by, LimitKind::Unknown);
    }
}
