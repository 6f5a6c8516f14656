//! Processors: clock and sleep.

use super::{Knob, Scene, Setting, Severity};
use crate::profile::Profile;
use crate::value::{Form, Wish};

const FOLDER: &str = "sys/devices/system/cpu";
/// The longest wake-up that a state may take, microseconds: a tenth of a LAN round trip, and the value of
/// the tuned profile for throughput with low latency.
const WAKE_MICROS_LATENCY: u64 = 10;
const WAKE_MICROS: u64 = 100;

pub(super) const GOVERNOR: Knob = Knob {
    name: "governor",
    what: "how the processors choose their clock",
    why: "a core that waits for packets looks idle, is clocked down, and is slow when they come",
    harms: "more power and heat; on laptops and shared hosts for nothing",
    source: "Documentation/admin-guide/pm/cpufreq.rst; ESnet fasterdata, 100G tuning",
    severity: Severity::Warning,
    profiles: |_| true,
    settings: |scene| {
        let settings: Vec<Setting> = scene
            .cpus()
            .into_iter()
            .map(|cpu| format!("{FOLDER}/cpu{cpu}/cpufreq/scaling_governor"))
            .filter(|path| scene.host.exists(path))
            .map(|path| Setting::file(path, Form::Word, Wish::OneOf(vec!["performance"])))
            .collect();
        if settings.is_empty() {
            return Err("no cpufreq here: firmware or the hypervisor rules the clock".to_owned());
        }
        Ok(settings)
    },
};

pub(super) const IDLE_STATES: Knob = Knob {
    name: "cstates",
    what: "sleep states of the processors that take long to wake from",
    why: "a packet that wakes a sleeping core waits for it; /dev/cpu_dma_latency does the same only while a \
          program keeps it open, so the states are switched off one by one",
    harms: "more power and heat, and less room for other cores to run fast",
    source: "Documentation/admin-guide/pm/cpuidle.rst; the tuned profiles latency-performance and throughput",
    severity: Severity::Advice,
    profiles: |profile| {
        matches!(profile, Profile::Latency | Profile::Wan40g | Profile::Wan100g | Profile::Bench)
    },
    settings: |scene| {
        let most = match scene.request.profile {
            Profile::Latency => WAKE_MICROS_LATENCY,
            _ => WAKE_MICROS,
        };
        let mut has_states = false;
        let mut settings = Vec::new();
        for cpu in scene.cpus() {
            let folder = format!("{FOLDER}/cpu{cpu}/cpuidle");
            for state in scene.host.names(&folder) {
                has_states = true;
                let wake =
                    scene.host.read(&format!("{folder}/{state}/latency")).unwrap_or_default();
                let is_deep = wake.trim().parse::<u64>().is_ok_and(|wake| wake > most);
                if is_deep {
                    settings.push(
                        Setting::file(
                            format!("{folder}/{state}/disable"),
                            Form::Numbers(1),
                            Wish::Exactly(1),
                        )
                        .formula(format!("wakes in {} us, more than {most}", wake.trim())),
                    );
                }
            }
        }
        if !has_states {
            return Err("no cpuidle here: firmware or the hypervisor rules sleep".to_owned());
        }
        Ok(settings)
    },
};

impl Scene<'_> {
    /// The node's processors, or all.
    fn cpus(&self) -> Vec<u32> {
        self.request.cores.clone().unwrap_or_else(|| self.host.online()).iter().collect()
    }
}
