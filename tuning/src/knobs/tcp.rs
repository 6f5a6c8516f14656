//! TCP's buffers, its memory, and how it starts, probes and remembers.

use super::{Knob, Place, Scene, Setting, Severity, human};
use crate::profile::Profile;
use crate::value::{Form, Wish};

/// The kernel takes three sixty-fourths of the memory for `tcp_mem[0]` when it starts.
const KERNEL_SHARE: (u64, u64) = (3, 64);
/// Of a host's memory, `tcp_mem[0]` gets at most an eighth, so that `tcp_mem[2]`, twice as much, leaves
/// three quarters to the page cache, which is what a mirror lives on.
const MEMORY_SHARE: u64 = 8;
/// Lanes may take three quarters of `tcp_mem[0]`; consumers and everybody else have the rest.
const LANES_SHARE: (u64, u64) = (3, 4);
const MIB: u64 = 1 << 20;
const AVAILABLE: &str = "proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "proc/sys/net/ipv4/tcp_allowed_congestion_control";
const TCP_MEM: &str = "proc/sys/net/ipv4/tcp_mem";

pub(super) const RMEM: Knob = Knob {
    name: "tcp_rmem",
    what: "the largest receive buffer that TCP gives a connection by itself",
    why: "a connection never has more bytes under way than its window, and the window is about half \
          of this buffer; below the path's bandwidth-delay product the path cannot be filled",
    harms: "many slow readers can hold that much memory each; the sum is bounded by tcp_mem",
    source: "Documentation/networking/ip-sysctl.rst (tcp_rmem); ESnet fasterdata, Linux host tuning",
    severity: Severity::Critical,
    profiles: |_| true,
    settings: |scene| scene.buffer("proc/sys/net/ipv4/tcp_rmem"),
};

pub(super) const WMEM: Knob = Knob {
    name: "tcp_wmem",
    what: "the largest send buffer that TCP gives a connection by itself",
    why: "what is sent stays in this buffer until it is acknowledged a round trip later; it bounds what \
          a far consumer, or the other end of a benchmark, gets from one connection",
    harms: "as tcp_rmem; data already written to a far consumer waits in the buffer",
    source: "Documentation/networking/ip-sysctl.rst (tcp_wmem); ESnet fasterdata, Linux host tuning",
    severity: Severity::Warning,
    profiles: |_| true,
    settings: |scene| scene.buffer("proc/sys/net/ipv4/tcp_wmem"),
};

pub(super) const MEM: Knob = Knob {
    name: "tcp_mem",
    what: "pages that all TCP connections of the host may hold together: no care, pressure, limit",
    why: "above the second number windows of all connections are cut; the lanes' buffers together must \
          stay below the first",
    harms: "memory in sockets is not in the page cache; above a quarter of the memory other work suffers",
    source: "Documentation/networking/ip-sysctl.rst (tcp_mem)",
    severity: Severity::Warning,
    profiles: |_| true,
    settings: |scene| {
        let plan = scene.socket_memory()?;
        let page = scene.host.page_bytes();
        let low = plan.wanted_low_bytes / page;
        Ok(vec![
            Setting::file(
                TCP_MEM,
                Form::Numbers(3),
                // The kernel's own proportions: 3, 4 and 6.
                Wish::AtLeast(vec![low, low * 4 / 3, low * 2]),
            )
            .formula(format!(
                "{} for {} lanes are three quarters of the first; at most an eighth of {} of memory",
                human(scene.all_buffers_bytes()),
                scene.request.path.lanes,
                human(plan.memory_bytes),
            )),
        ])
    },
};

pub(super) const CONGESTION: Knob = Knob {
    name: "tcp_congestion_control",
    what: "how fast the host sends: the congestion control of new connections",
    why: "BBR keeps a long path full through losses that make CUBIC halve; what the node receives is \
          governed by the source's choice, so this is for consumers and benchmarks (see `render --format source`)",
    harms: "BBR may take more than its share beside CUBIC, and retransmits more where buffers are shallow",
    source: "Documentation/networking/ip-sysctl.rst (tcp_congestion_control); ESnet fasterdata, BBR; RFC 9438",
    severity: Severity::Advice,
    profiles: |_| true,
    settings: |scene| {
        let wanted = scene.congestion_controls()?;
        let mut setting = Setting::file(
            "proc/sys/net/ipv4/tcp_congestion_control",
            Form::Word,
            Wish::OneOf(wanted.clone()),
        );
        // Making one the default also puts it on the allowed list, where it stays.
        setting.beside = vec![(ALLOWED.to_owned(), Form::Words)];
        let allowed = scene.host.read(ALLOWED).unwrap_or_default();
        if scene.host.is_child_namespace()
            && !allowed.split_whitespace().any(|name| name == wanted[0])
        {
            setting.obstacle = Some(format!(
                "this network namespace takes only what the host allows ({}): give --route DEST, which \
                 sets it for one route, or add {} to {} on the host",
                allowed.trim(),
                wanted[0],
                "net.ipv4.tcp_allowed_congestion_control",
            ));
        }
        Ok(vec![setting])
    },
};

pub(super) const CONGESTION_ROUTE: Knob = Knob {
    name: "congctl_route",
    what: "the congestion control of connections along one route",
    why: "the path to the source or to far consumers gets what suits it, and the host's default stays",
    harms: "as tcp_congestion_control, for this route only; lost when the route is made anew",
    source: "ip-route(8), congctl",
    severity: Severity::Advice,
    profiles: |_| true,
    settings: |scene| {
        let destination =
            scene.request.route.clone().ok_or("name a destination with --route ADDRESS")?;
        let wanted = scene.congestion_controls()?;
        let wish = Wish::Congestion(wanted[0]);
        Ok(vec![Setting::at(Place::Route(destination), Form::Route, wish)])
    },
};

pub(super) const SLOW_START_AFTER_IDLE: Knob = Knob {
    name: "tcp_slow_start_after_idle",
    what: "whether a connection that was silent for a while starts slowly again",
    why: "a lane that waited, or a consumer that caught up, would need many round trips to be at speed again",
    harms: "a burst at the old speed may meet a path that has become narrower",
    source: "Documentation/networking/ip-sysctl.rst (tcp_slow_start_after_idle); RFC 2861",
    severity: Severity::Warning,
    profiles: |profile| profile != Profile::Lan,
    settings: |_| {
        Ok(vec![Setting::file(
            "proc/sys/net/ipv4/tcp_slow_start_after_idle",
            Form::Numbers(1),
            Wish::Exactly(0),
        )])
    },
};

pub(super) const MTU_PROBING: Knob = Knob {
    name: "tcp_mtu_probing",
    what: "whether TCP finds the path's packet size by itself when routers do not say it",
    why: "a tunnel or VPN that drops large packets in silence makes a connection hang after its first bytes",
    harms: "a lossy path may be taken for one with small packets",
    source: "Documentation/networking/ip-sysctl.rst (tcp_mtu_probing); RFC 4821; ESnet fasterdata, MTU issues",
    severity: Severity::Warning,
    profiles: |profile| profile.is_wan() || profile == Profile::Bench,
    settings: |_| {
        Ok(vec![
            Setting::file(
                "proc/sys/net/ipv4/tcp_mtu_probing",
                Form::Numbers(1),
                Wish::AtLeast(vec![1]),
            )
            .formula("1: when a black hole is suspected; 2: always"),
        ])
    },
};

pub(super) const NO_METRICS_SAVE: Knob = Knob {
    name: "tcp_no_metrics_save",
    what: "whether what a connection learned about a path is forgotten when it closes",
    why: "one bad hour, or one benchmark's run, would set the start of all later connections",
    harms: "short connections start from the defaults each time",
    source: "Documentation/networking/ip-sysctl.rst (tcp_no_metrics_save); ESnet fasterdata, Linux host tuning",
    severity: Severity::Advice,
    profiles: |profile| profile.is_wan() || profile == Profile::Bench,
    settings: |_| {
        Ok(vec![Setting::file(
            "proc/sys/net/ipv4/tcp_no_metrics_save",
            Form::Numbers(1),
            Wish::Exactly(1),
        )])
    },
};

/// What the host's sockets may hold, and a lane of them.
struct SocketMemory {
    memory_bytes: u64,
    wanted_low_bytes: u64,
    lane_bytes: u64,
}

impl Scene<'_> {
    /// A benchmark has the sending and the receiving buffers on one host.
    fn ends(&self) -> u64 {
        if self.request.profile == Profile::Bench { 2 } else { 1 }
    }

    fn all_buffers_bytes(&self) -> u64 {
        self.request.path.lanes_bytes().saturating_mul(self.ends())
    }

    fn socket_memory(&self) -> Result<SocketMemory, String> {
        let memory_bytes = self
            .host
            .memory_bytes()
            .ok_or("the machine's memory is not known: /proc/meminfo has no MemTotal")?;
        let (over, under) = LANES_SHARE;
        let wanted_low_bytes = self
            .all_buffers_bytes()
            .div_ceil(over)
            .saturating_mul(under)
            .min(memory_bytes / MEMORY_SHARE);
        let only = &self.request.only;
        let is_raised = only.is_empty() || only.iter().any(|name| name == MEM.name);
        // A child namespace shares the host's tcp_mem but does not show it: the kernel's default then.
        let low_bytes =
            match self.host.read(TCP_MEM).ok().and_then(|text| Form::Numbers(3).parse(&text)) {
                Some(text) => {
                    let pages =
                        text.split(' ').next().and_then(|low| low.parse().ok()).unwrap_or(0_u64);
                    let now = pages.saturating_mul(self.host.page_bytes());
                    if is_raised { now.max(wanted_low_bytes) } else { now }
                }
                None => memory_bytes / KERNEL_SHARE.1 * KERNEL_SHARE.0,
            };
        let lanes = u64::from(self.request.path.lanes) * self.ends();
        let bound = low_bytes / under * over / lanes;
        let wanted = self.request.path.lane_buffer_bytes();
        let lane_bytes = if wanted <= bound { wanted } else { (bound / MIB * MIB).max(MIB) };
        Ok(SocketMemory { memory_bytes, wanted_low_bytes, lane_bytes })
    }

    /// The largest size of a connection's buffer.
    pub(super) fn lane_buffer(&self) -> Result<(u64, String), String> {
        let path = &self.request.path;
        let plan = self.socket_memory()?;
        let bdp = human(path.bdp_bytes());
        let share = match path.lanes {
            ..=2 => String::new(),
            lanes => format!(", 2 of {lanes} shares"),
        };
        let mut formula = format!("3 x ({bdp} under way + {bdp} queued){share}");
        let unbounded = path.lane_buffer_bytes();
        if plan.lane_bytes < unbounded {
            formula.push_str(&format!(
                " = {}, cut to {} so that {} of these stay below tcp_mem",
                human(unbounded),
                human(plan.lane_bytes),
                u64::from(path.lanes) * self.ends(),
            ));
        }
        // Half of a buffer is window.
        let window = plan.lane_bytes / 2 * u64::from(path.lanes);
        if window < path.bdp_bytes() {
            let percent = u128::from(window) * 100 / u128::from(path.bdp_bytes().max(1));
            formula.push_str(&format!(
                "; this fills {percent} % of the path: {}",
                if plan.lane_bytes < unbounded {
                    "the host needs more memory"
                } else {
                    "use more lanes"
                }
            ));
        }
        Ok((plan.lane_bytes, formula))
    }

    fn buffer(&self, path: &str) -> Result<Vec<Setting>, String> {
        let (bytes, formula) = self.lane_buffer()?;
        Ok(vec![
            Setting::file(path, Form::Numbers(3), Wish::AtLeast(vec![0, 0, bytes]))
                .formula(formula),
        ])
    }

    /// Those that suit the profile, the best first; none that the kernel does not have.
    fn congestion_controls(&self) -> Result<Vec<&'static str>, String> {
        let available = self
            .host
            .read(AVAILABLE)
            .map_err(|_| format!("the kernel does not say which there are (no /{AVAILABLE})"))?;
        let has = |name: &str, function: &str| {
            available.split_whitespace().any(|word| word == name)
                || self.host.has_module(&format!("tcp_{name}"), function)
        };
        let (bbr, cubic) = (has("bbr", "bbr_init"), has("cubic", "cubictcp_init"));
        match self.request.profile {
            Profile::Lan | Profile::Latency if cubic && bbr => Ok(vec!["cubic", "bbr"]),
            _ if bbr => Ok(vec!["bbr"]),
            _ if cubic => Ok(vec!["cubic"]),
            _ => Err(format!("this kernel has neither bbr nor cubic, only {}", available.trim())),
        }
    }
}
