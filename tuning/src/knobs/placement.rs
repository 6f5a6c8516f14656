//! Which processors do the network's work, beside those that the node is pinned to.
//!
//! Rule: interrupts and packet work go to processors near the card that are not the node's; when the
//! node has all of them, the work is spread over them evenly.

use super::{Knob, Scene, Setting, Severity};
use crate::cpus::Cpus;
use crate::profile::Profile;
use crate::value::{Form, Wish};

/// Interrupts of a card that carry no packets.
const NOT_QUEUES: [&str; 7] = ["config", "event", "async", "ctrl", "control", "cmd", "mgmt"];

pub(super) const IRQ: Knob = Knob {
    name: "irq_affinity",
    what: "which processor answers each of the network card's interrupts",
    why: "a core that lands data should not be stopped for interrupts, and one processor should not answer \
          all queues",
    harms: "irqbalance moves them back: stop it, or ban these interrupts in its configuration",
    source: "Documentation/core-api/irq/irq-affinity.rst; Documentation/networking/scaling.rst; ESnet fasterdata, \
             interrupt binding",
    severity: Severity::Warning,
    profiles: |_| true,
    settings: |scene| {
        let interface = scene.interface()?;
        let pool = scene.pool(&interface)?;
        let queues = scene.queue_interrupts(&interface);
        if queues.is_empty() {
            return Err(format!("{interface} has no interrupts of its own: it is virtual"));
        }
        let numbers: Cpus = queues.iter().map(|(_, queue)| *queue).collect();
        let several = numbers.len() > 1;
        Ok(queues
            .iter()
            .map(|(irq, queue)| {
                // A queue each on its own processor; one queue alone may be anywhere in the pool.
                let own = pool.nth_round(*queue as usize).into_iter().collect();
                let wish = if several { Wish::Cpus(own) } else { Wish::CpusWithin(pool.clone()) };
                let path = format!("proc/irq/{irq}/smp_affinity_list");
                Setting::file(path, Form::CpuList, wish)
                    .formula(format!("queue {queue} of {interface}, processors {pool}"))
            })
            .collect())
    },
};

pub(super) const RPS: Knob = Knob {
    name: "rps",
    what: "processors that share the work of each receive queue",
    why: "one queue's processor is full at some 5 to 10 Gbit/s; with fewer queues than processors others can \
          help; with a queue each it is only a detour",
    harms: "an interrupt between processors for each batch of packets: not for low delay",
    source: "Documentation/networking/scaling.rst (RPS)",
    severity: Severity::Advice,
    profiles: |profile| !matches!(profile, Profile::Wan1g | Profile::Lan),
    settings: |scene| {
        let interface = scene.interface()?;
        let queues = scene.queues(&interface, "rx-");
        let pool = scene.pool(&interface)?;
        if queues.is_empty() {
            return Err(format!("{interface} has no receive queues to share"));
        }
        let enough = queues.len() >= scene.host.online().len();
        let off = enough || pool.len() < 2 || scene.request.profile == Profile::Latency;
        let cpus = if off { Cpus::default() } else { pool.clone() };
        let why = match (enough, off) {
            (true, _) => format!(
                "{} queues are enough for {} processors",
                queues.len(),
                scene.host.online().len()
            ),
            (_, true) => "off: for low delay, or no second processor to help".to_owned(),
            _ => format!("{} queues, processors {pool}", queues.len()),
        };
        Ok(queues
            .iter()
            .map(|queue| {
                let path = format!("sys/class/net/{interface}/queues/{queue}/rps_cpus");
                Setting::file(path, Form::CpuMask, Wish::Cpus(cpus.clone())).formula(why.clone())
            })
            .collect())
    },
};

pub(super) const XPS: Knob = Knob {
    name: "xps",
    what: "processors that send through each transmit queue",
    why: "a processor that always uses the same queue shares its lock and its cache lines with few others",
    harms: "none known when every processor has a queue",
    source: "Documentation/networking/scaling.rst (XPS)",
    severity: Severity::Advice,
    profiles: |profile| profile != Profile::Wan1g,
    settings: |scene| {
        let interface = scene.interface()?;
        let queues = scene.queues(&interface, "tx-");
        if queues.len() < 2 {
            return Err(format!("{interface} has one transmit queue only"));
        }
        let online = scene.host.online();
        Ok(queues
            .iter()
            .enumerate()
            .filter(|(place, _)| *place < online.len())
            .map(|(place, queue)| {
                let of = |(index, _): &(usize, u32)| index % queues.len() == place;
                let cpus = online.iter().enumerate().filter(of).map(|(_, cpu)| cpu).collect();
                let path = format!("sys/class/net/{interface}/queues/{queue}/xps_cpus");
                Setting::file(path, Form::CpuMask, Wish::Cpus(cpus)).formula(format!(
                    "{} queues, {} processors",
                    queues.len(),
                    online.len()
                ))
            })
            .collect())
    },
};

impl Scene<'_> {
    fn interface(&self) -> Result<String, String> {
        self.request.interface.clone().or_else(|| self.host.default_interface()).ok_or_else(|| {
            "there is no default route: name the interface with --interface IF".to_owned()
        })
    }

    /// Processors near the card that are not the node's; the node's near ones when there are no others.
    fn pool(&self, interface: &str) -> Result<Cpus, String> {
        let online = self.host.online();
        if online.is_empty() {
            return Err("the running processors are not known".to_owned());
        }
        let near = ["device", "device/.."].iter().find_map(|folder| {
            let path = format!("sys/class/net/{interface}/{folder}/local_cpulist");
            let near: Cpus = self.host.read(&path).ok()?.parse().ok()?;
            Some(near.within(&online)).filter(|near| !near.is_empty())
        });
        let near = near.unwrap_or_else(|| online.clone());
        let ours = self.request.cores.clone().unwrap_or_default();
        let free = [near.without(&ours), online.without(&ours)];
        Ok(free.into_iter().find(|cpus| !cpus.is_empty()).unwrap_or(near))
    }

    fn queues(&self, interface: &str, prefix: &str) -> Vec<String> {
        let names = self.host.names(&format!("sys/class/net/{interface}/queues"));
        names.into_iter().filter(|name| name.starts_with(prefix)).collect()
    }

    /// Interrupts that carry packets, each with the number of its queue.
    fn queue_interrupts(&self, interface: &str) -> Vec<(u32, u32)> {
        let text = self.host.read("proc/interrupts").unwrap_or_default();
        let listed = ["device/msi_irqs", "device/../msi_irqs"]
            .iter()
            .map(|folder| self.host.names(&format!("sys/class/net/{interface}/{folder}")))
            .find(|names| !names.is_empty());
        let mut found = Vec::new();
        for line in text.lines() {
            let Some((number, rest)) = line.trim_start().split_once(':') else { continue };
            let Ok(irq) = number.parse::<u32>() else { continue };
            let name = rest.split_whitespace().last().unwrap_or_default();
            let is_ours = match &listed {
                Some(irqs) => irqs.iter().any(|listed| listed == number),
                None => name.split(['-', '@', ':', '.']).any(|part| part == interface),
            };
            if is_ours && !NOT_QUEUES.iter().any(|word| name.contains(word)) {
                let digits = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
                let place = u32::try_from(found.len()).unwrap_or(0);
                found.push((irq, name[digits..].parse().unwrap_or(place)));
            }
        }
        found
    }
}
