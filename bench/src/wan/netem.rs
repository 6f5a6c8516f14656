//! The kernel's own emulator, where the kernel has it: a veth pair between the namespaces, netem and tbf on each end.
//!
//! Owns nothing that runs: the kernel moves the packets, and `tc` of iproute2 sets it up, from inside the namespaces.
//! Must never be chosen for what it does otherwise than the relay without saying so; `Backend::choose` is the one place
//! that decides. Command lines follow tc-netem(8) and tc-tbf(8).

use std::io;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::link::LinkCounts;
use super::namespace::Namespace;
use super::netlink::Netlink;
use super::report::{Carried, DirectionReport};
use super::settings::{Loss, PathSettings};
use super::{WanError, sys};

/// netem counts its queue in packets, and needs to hold what is under way: never fewer than this.
const PACKETS_MIN: u64 = 10_000;
/// tbf sends up to so much at once: two of TCP's largest packets, or what the link carries in a millisecond.
const BURST_BYTES_MIN: u64 = 128 << 10;
/// What the kernel cuts a packet into at most, unless told otherwise.
const SEGMENTS_MAX: u32 = 65_535;

/// What moves the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The emulator's own threads, over TUN devices.
    Relay,
    /// The kernel's netem.
    Netem,
}

/// Who chooses what moves the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendChoice {
    /// netem where the kernel has it and does what is asked for as exactly as the relay, else the relay.
    Auto,
    /// The relay.
    Relay,
    /// netem, or an error.
    Netem,
}

impl BackendChoice {
    /// Decides; asks whether the kernel has netem only if that matters.
    pub(super) fn choose(
        self,
        path: &PathSettings,
        kernel_has_netem: impl FnOnce() -> bool,
    ) -> Result<Backend, WanError> {
        match self {
            Self::Relay => Ok(Backend::Relay),
            Self::Auto if needs_relay(path) => Ok(Backend::Relay),
            Self::Auto => Ok(if kernel_has_netem() { Backend::Netem } else { Backend::Relay }),
            Self::Netem => {
                refuse_impossible(path)?;
                if kernel_has_netem() { Ok(Backend::Netem) } else { Err(WanError::NoNetem) }
            }
        }
    }
}

/// netem loses and delays packets as TCP hands them over, up to 64 KiB at a time, and its jitter turns their order.
fn needs_relay(path: &PathSettings) -> bool {
    let loses = path.loss != Loss::None || path.return_loss != Loss::None;
    loses || path.reorder.is_some() || !path.jitter.is_zero()
}

/// netem has no packets that are late by a given time: what it reorders comes early, by the whole delay.
fn refuse_impossible(path: &PathSettings) -> Result<(), WanError> {
    match path.reorder {
        None => Ok(()),
        Some(_) => Err(WanError::Settings(
            "netem cannot make packets late by a given time; use the relay".to_owned(),
        )),
    }
}

/// A path of the kernel's.
#[derive(Debug)]
pub(super) struct Netem {
    source: Namespace,
    destination: Namespace,
    /// What had passed each end when the counts began.
    before: Mutex<[LinkCounts; 2]>,
}

impl Netem {
    /// Tries it on the loopback device of a namespace of ours.
    pub(super) fn is_there(namespace: &Namespace) -> bool {
        let add = ["qdisc", "add", "dev", "lo", "root", "netem", "limit", "1"].map(str::to_owned);
        let remove = ["qdisc", "del", "dev", "lo", "root"].map(str::to_owned);
        let works = |arguments: &[String]| {
            tc(namespace, arguments).is_ok_and(|output| output.status.success())
        };
        works(&add) && works(&remove)
    }

    /// Makes both devices, which are still down, and their queues.
    pub(super) fn open(
        source: &Namespace,
        destination: &Namespace,
        settings: &PathSettings,
    ) -> Result<Self, WanError> {
        source
            .run(|| Netlink::open()?.add_pair(sys::DEVICE, &destination.descriptor))
            .and_then(|made| made)
            .map_err(WanError::system("make a pair of veth devices"))?;
        let netem = Self {
            source: source.clone(),
            destination: destination.clone(),
            before: Mutex::new([LinkCounts::default(); 2]),
        };
        netem.change(settings)?;
        Ok(netem)
    }

    /// Sets the queues anew; packets under way are dropped.
    pub(super) fn change(&self, settings: &PathSettings) -> Result<(), WanError> {
        refuse_impossible(settings)?;
        for (namespace, loss) in
            [(&self.source, settings.loss), (&self.destination, settings.return_loss)]
        {
            // Each packet by itself where some are lost; else as large as TCP makes them.
            let segments = if loss == Loss::None { SEGMENTS_MAX } else { 1 };
            namespace
                .run(|| {
                    let netlink = Netlink::open()?;
                    netlink.set_segments_max(netlink.device(sys::DEVICE)?, segments)
                })
                .and_then(|done| done)
                .map_err(WanError::system("limit the size of packets"))?;
            // Fails if there is none yet.
            let _ = tc(namespace, &["qdisc", "del", "dev", sys::DEVICE, "root"].map(str::to_owned));
            for arguments in queues(settings, loss) {
                let output = tc(namespace, &arguments).map_err(WanError::system("run tc"))?;
                if !output.status.success() {
                    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                    return Err(WanError::Tc { command: arguments.join(" "), said });
                }
            }
        }
        Ok(())
    }

    pub(super) fn restart_counts(&self) -> Result<(), WanError> {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = self.counts()?;
        Ok(())
    }

    /// What passed each end since the counts began. The kernel tells neither how late it was nor what it took.
    pub(super) fn carried(&self) -> Result<Carried, WanError> {
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.counts()?;
        let [outward, homeward] =
            [0, 1].map(|end| DirectionReport::of_kernel(now[end].since(&before[end])));
        Ok(Carried { outward, homeward, lateness: None, failure: None })
    }

    fn counts(&self) -> Result<[LinkCounts; 2], WanError> {
        let of = |namespace: &Namespace| -> io::Result<LinkCounts> {
            let (bytes, packets) = namespace.sent()?;
            let show = ["-s", "-j", "qdisc", "show", "dev", sys::DEVICE].map(str::to_owned);
            let (lost, queue_dropped) = drops(&tc(namespace, &show)?.stdout);
            let packets = packets + lost + queue_dropped;
            Ok(LinkCounts { packets, bytes, lost, queue_dropped, ..LinkCounts::default() })
        };
        let read = |namespace| of(namespace).map_err(WanError::system("read netem's counters"));
        Ok([read(&self.source)?, read(&self.destination)?])
    }
}

/// The queues of one end as `tc` takes them: what is lost and delayed first, then the rate and its queue.
fn queues(path: &PathSettings, loss: Loss) -> Vec<Vec<String>> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let packets = (path.held_bytes() / u64::from(path.mtu)).max(PACKETS_MIN);
    let device = sys::DEVICE;
    let mut netem = format!("qdisc add dev {device} root handle 1: netem limit {packets}");
    // Around its middle, since netem's jitter goes both ways: from the delay to the delay and all the jitter.
    netem += &format!(" delay {}", microseconds(path.delay + path.jitter / 2));
    if !path.jitter.is_zero() {
        netem += &format!(" {}", microseconds(path.jitter / 2));
    }
    netem += &match (path.down, loss) {
        (true, _) => " loss 100%".to_owned(),
        (false, Loss::None) => String::new(),
        (false, Loss::Random { share }) => format!(" loss {}", percent(share)),
        (false, Loss::Burst { share, mean_length }) => {
            let end = 1.0 / mean_length;
            // Chance of a burst's start and of its end, loss within a burst, loss outside.
            format!(
                " loss gemodel {} {} 100% 0%",
                percent(end * share / (1.0 - share)),
                percent(end)
            )
        }
    };
    let mut queues = vec![words(netem)];
    if let (Some(rate), Some(queue)) = (path.rate_bits, path.queue_bytes()) {
        let burst = (rate / 8_000).max(BURST_BYTES_MIN);
        let tbf = format!(
            "qdisc add dev {device} parent 1:1 handle 10: tbf rate {rate}bit burst {burst} limit {queue}"
        );
        queues.push(words(tbf));
    }
    queues
}

fn microseconds(time: Duration) -> String {
    format!("{}us", time.as_micros())
}

fn percent(share: f64) -> String {
    format!("{:.6}%", share * 100.0)
}

/// Dropped by netem, and by tbf.
fn drops(json: &[u8]) -> (u64, u64) {
    let queues: serde_json::Value = serde_json::from_slice(json).unwrap_or_default();
    let of = |kind: &str| {
        let queues = queues.as_array().into_iter().flatten();
        queues
            .filter(|queue| queue["kind"] == kind)
            .filter_map(|queue| queue["drops"].as_u64())
            .sum()
    };
    (of("netem"), of("tbf"))
}

fn tc(namespace: &Namespace, arguments: &[String]) -> io::Result<Output> {
    let mut command = Command::new("tc");
    sys::start_in(&mut command, namespace.descriptor.clone());
    command.args(arguments).output()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::settings::{Queue, Reorder};

    fn path() -> PathSettings {
        PathSettings {
            delay: Duration::from_millis(50),
            rate_bits: Some(1_000_000_000),
            ..PathSettings::default()
        }
    }

    #[test]
    fn the_backend_is_chosen_by_wish_path_and_kernel() {
        let lossy = PathSettings { loss: Loss::Random { share: 0.1 }, ..path() };
        let shaky = PathSettings { jitter: Duration::from_millis(1), ..path() };
        let mixed = PathSettings {
            reorder: Some(Reorder { share: 0.1, by: Duration::from_millis(1) }),
            ..path()
        };
        use Backend::{Netem, Relay};
        for (choice, path, kernel_has_netem, chosen) in [
            (BackendChoice::Auto, path(), true, Some(Netem)),
            (BackendChoice::Auto, path(), false, Some(Relay)),
            (BackendChoice::Auto, lossy.clone(), true, Some(Relay)),
            (BackendChoice::Auto, shaky.clone(), true, Some(Relay)),
            (BackendChoice::Auto, mixed.clone(), true, Some(Relay)),
            (BackendChoice::Relay, path(), true, Some(Relay)),
            (BackendChoice::Netem, path(), true, Some(Netem)),
            (BackendChoice::Netem, lossy, true, Some(Netem)),
            (BackendChoice::Netem, shaky, true, Some(Netem)),
            (BackendChoice::Netem, mixed, true, None),
            (BackendChoice::Netem, path(), false, None),
        ] {
            let found = choice.choose(&path, || kernel_has_netem).ok();
            assert_eq!(found, chosen, "{choice:?} on {path}, netem: {kernel_has_netem}");
        }
    }

    #[test]
    fn the_kernel_is_not_asked_when_its_answer_does_not_matter() {
        let asked = || panic!("asked");
        assert!(BackendChoice::Relay.choose(&path(), asked).is_ok());
    }

    #[test]
    fn command_lines_say_what_the_path_is() {
        let lines = |path: &PathSettings| -> Vec<String> {
            queues(path, path.loss).into_iter().map(|words| words.join(" ")).collect()
        };
        let tbf = "qdisc add dev wan0 parent 1:1 handle 10: tbf rate 1000000000bit burst 131072 limit 12500000";
        let netem = |rest: &str| {
            format!("qdisc add dev wan0 root handle 1: netem limit 29934 delay {rest}")
        };
        assert_eq!(lines(&path()), [netem("50000us"), tbf.to_owned()]);
        let lossy = PathSettings { loss: Loss::Random { share: 0.001 }, ..path() };
        assert_eq!(lines(&lossy)[0], netem("50000us loss 0.100000%"));
        let bursts =
            PathSettings { loss: Loss::Burst { share: 0.02, mean_length: 10.0 }, ..path() };
        assert_eq!(lines(&bursts)[0], netem("50000us loss gemodel 0.204082% 10.000000% 100% 0%"));
        let down = PathSettings { down: true, ..bursts };
        assert_eq!(lines(&down)[0], netem("50000us loss 100%"));
        let free = PathSettings { rate_bits: None, jitter: Duration::from_millis(4), ..path() };
        let free_lines = lines(&free);
        assert_eq!(free_lines.len(), 1, "no rate, no tbf");
        assert!(free_lines[0].ends_with("delay 52000us 2000us"), "{free_lines:?}");
        let short =
            PathSettings { queue: Queue::Bytes(50_000), rate_bits: Some(40_000_000_000), ..path() };
        assert!(lines(&short)[1].ends_with("tbf rate 40000000000bit burst 5000000 limit 50000"));
    }

    #[test]
    fn drops_are_read_from_what_tc_prints() {
        let json = br#"[{"kind":"netem","handle":"1:","root":true,"bytes":9,"packets":8,"drops":7},
                        {"kind":"tbf","handle":"10:","parent":"1:1","drops":5}]"#;
        assert_eq!(drops(json), (7, 5));
        assert_eq!(drops(b"no json"), (0, 0));
    }
}
