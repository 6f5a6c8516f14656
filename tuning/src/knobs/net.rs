//! The network below TCP: what sockets may ask for, queues, and polling.

use super::{Knob, Scene, Setting, Severity};
use crate::profile::Profile;
use crate::value::{Form, Wish};

/// What a softirq may take before it yields (`net.core.netdev_budget_usecs`), microseconds.
const ROUND_MICROS: u64 = 8_000;
const PACKET_BYTES: u64 = 1_500;
/// The kernel's default, and a bound above which a queue is only delay.
const BACKLOG_PACKETS: (u64, u64) = (1_000, 100_000);
/// The kernel's default since 5.4; older defaults drop consumers that come back all at once.
const LISTEN_BACKLOG: u64 = 4_096;
/// For several sockets, says the kernel; for hundreds it says 100.
const BUSY_MICROS: u64 = 50;

pub(super) const RMEM_MAX: Knob = Knob {
    name: "rmem_max",
    what: "the largest receive buffer that a program may ask for itself",
    why: "the node never asks, because a fixed size loses TCP's own sizing; Java clients, MirrorMaker 2 and \
          iperf3 beside it do, and are cut to this in silence",
    harms: "a program that asks for too much gets it",
    source: "Documentation/admin-guide/sysctl/net.rst (rmem_max); ESnet fasterdata, Linux host tuning",
    severity: Severity::Advice,
    profiles: |_| true,
    settings: |scene| scene.ceiling("proc/sys/net/core/rmem_max"),
};

pub(super) const WMEM_MAX: Knob = Knob {
    name: "wmem_max",
    what: "the largest send buffer that a program may ask for itself",
    why: "as rmem_max: for the programs beside the node, not for the node",
    harms: "a program that asks for too much gets it",
    source: "Documentation/admin-guide/sysctl/net.rst (wmem_max); ESnet fasterdata, Linux host tuning",
    severity: Severity::Advice,
    profiles: |_| true,
    settings: |scene| scene.ceiling("proc/sys/net/core/wmem_max"),
};

const BACKLOG_PATH: &str = "proc/sys/net/core/netdev_max_backlog";

pub(super) const BACKLOG: Knob = Knob {
    name: "netdev_max_backlog",
    what: "packets that may wait for each processor behind RPS, loopback, veth and TUN devices",
    why: "what arrives while a processor does other work for one round would be dropped, and TCP takes that \
          for congestion; network cards with queues of their own do not use it without RPS",
    harms: "a longer queue is more delay under overload",
    source: "Documentation/admin-guide/sysctl/net.rst (netdev_max_backlog); Documentation/networking/scaling.rst",
    severity: Severity::Advice,
    profiles: |_| true,
    settings: |scene| {
        let rate = scene.request.path.rate;
        let bytes = rate.bytes_in(std::time::Duration::from_micros(ROUND_MICROS));
        let packets = (bytes / PACKET_BYTES).clamp(BACKLOG_PACKETS.0, BACKLOG_PACKETS.1);
        Ok(vec![
            Setting::file(BACKLOG_PATH, Form::Numbers(1), Wish::AtLeast(vec![packets])).formula(
                format!("packets of 1500 bytes in one round of 8 ms at {rate}, 1000 to 100000"),
            ),
        ])
    },
};

pub(super) const QDISC: Knob = Knob {
    name: "default_qdisc",
    what: "the queue of network interfaces that come up from now on",
    why: "fq sends each connection's packets at its own pace, so that a burst at 100 ms does not overrun a \
          shallow buffer on the way",
    harms: "one more step for each packet; an interface that is up keeps its queue until \
            `tc qdisc replace dev IF root fq`",
    source: "tc-fq(8); Documentation/admin-guide/sysctl/net.rst (default_qdisc); ESnet fasterdata, packet pacing",
    severity: Severity::Advice,
    profiles: |profile| profile.is_wan() || profile == Profile::Bench,
    settings: |scene| {
        if !scene.host.has_module("sch_fq", "fq_enqueue") {
            return Err(
                "this kernel has no fq (CONFIG_NET_SCH_FQ); TCP then paces by its own timers"
                    .to_owned(),
            );
        }
        Ok(vec![Setting::file(
            "proc/sys/net/core/default_qdisc",
            Form::Word,
            Wish::OneOf(vec!["fq"]),
        )])
    },
};

pub(super) const SOMAXCONN: Knob = Knob {
    name: "somaxconn",
    what: "connections that may wait to be accepted",
    why: "after a restart thousands of consumers come back at once; those beyond it wait a second or more",
    harms: "none known at this size",
    source: "Documentation/networking/ip-sysctl.rst (somaxconn)",
    severity: Severity::Warning,
    profiles: |_| true,
    settings: |_| {
        Ok(vec![
            Setting::file(
                "proc/sys/net/core/somaxconn",
                Form::Numbers(1),
                Wish::AtLeast(vec![LISTEN_BACKLOG]),
            )
            .formula("the kernel's default since 5.4"),
        ])
    },
};

pub(super) const BUSY_READ: Knob = Knob {
    name: "busy_read",
    what: "microseconds for which a blocking read polls the network card before it sleeps",
    why: "saves the interrupt's delay for consumers and tools on this host; the node's own cores wait in \
          io_uring, which this does not reach",
    harms: "a processor that polls does nothing else and never saves power",
    source: "Documentation/networking/napi.rst (busy polling); Documentation/admin-guide/sysctl/net.rst (busy_read)",
    severity: Severity::Advice,
    profiles: |profile| profile == Profile::Latency,
    settings: |_| busy("proc/sys/net/core/busy_read"),
};

pub(super) const BUSY_POLL: Knob = Knob {
    name: "busy_poll",
    what: "microseconds for which poll and epoll look at the network card before they sleep",
    why: "as busy_read, for programs that wait on many sockets: the control plane's requests among them",
    harms: "as busy_read, and more so with hundreds of sockets",
    source: "Documentation/networking/napi.rst (busy polling); Documentation/admin-guide/sysctl/net.rst (busy_poll)",
    severity: Severity::Advice,
    profiles: |profile| profile == Profile::Latency,
    settings: |_| busy("proc/sys/net/core/busy_poll"),
};

fn busy(path: &str) -> Result<Vec<Setting>, String> {
    Ok(vec![
        Setting::file(path, Form::Numbers(1), Wish::AtLeast(vec![BUSY_MICROS]))
            .formula("the kernel's advice for several sockets; 100 for hundreds"),
    ])
}

impl Scene<'_> {
    fn ceiling(&self, path: &str) -> Result<Vec<Setting>, String> {
        let (bytes, _) = self.lane_buffer()?;
        let formula = "as much as TCP may take by itself";
        Ok(vec![Setting::file(path, Form::Numbers(1), Wish::AtLeast(vec![bytes])).formula(formula)])
    }
}
