//! What a path is to be like, and whether that is possible.
//!
//! Owns no state. Shares are of packets (segments of one MTU), sizes in bytes, rates in bits per second of whole IP
//! packets. Must never accept what the emulator would then do differently.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::{BackendChoice, WanError};

/// The slowest link: below it one packet takes more than a second.
pub const RATE_BITS_MIN: u64 = 16_000;
/// The fastest link; far above what the emulator reaches, so that a typing mistake is seen as one.
pub const RATE_BITS_MAX: u64 = 400_000_000_000;
/// The longest delay, jitter and lateness.
pub const DELAY_MAX: Duration = Duration::from_secs(10);
/// The smallest packet size that IPv6 allows.
pub const MTU_MIN: u32 = 1_280;
/// What fits into an IP packet.
pub const MTU_MAX: u32 = 65_535;
/// The longest mean of loss bursts, in packets.
pub const BURST_MEAN_MAX: f64 = 1_000_000.0;
/// What one direction may hold in memory: 10 Gbit/s with a second of delay and of queue takes 2.5 GB.
pub const HELD_BYTES_MAX: u64 = 3 << 30;
/// The smallest queue that is chosen unasked: TCP hands over 64 KiB at a time.
const QUEUE_BYTES_MIN: u64 = 256 << 10;
/// What a path without a rate is taken to carry, to size its memory.
const RATE_BITS_ASSUMED: u64 = 20_000_000_000;

/// A path between a source and a destination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathSettings {
    /// From one side to the other; half of the round trip.
    #[serde(rename = "delay_ms", serialize_with = "milliseconds")]
    pub delay: Duration,
    /// On top of the delay, wandering between 0 and this: half of it on average. Keeps the order of packets.
    #[serde(rename = "jitter_ms", serialize_with = "milliseconds")]
    pub jitter: Duration,
    /// Of each direction; `None` for as fast as the machine.
    pub rate_bits: Option<u64>,
    /// What waits in front of the link before packets are dropped.
    pub queue: Queue,
    /// Of packets from the source to the destination.
    pub loss: Loss,
    /// Of packets from the destination to the source.
    pub return_loss: Loss,
    /// Of packets from the source to the destination.
    pub reorder: Option<Reorder>,
    /// The link swallows every packet.
    pub down: bool,
    /// Of both devices.
    pub mtu: u32,
    /// How TCP controls congestion at both ends; `None` for the kernel's default.
    pub congestion: Option<String>,
    /// Another way for what the destination sends.
    pub destination_congestion: Option<String>,
    /// The largest TCP buffer of a connection, for receiving and for sending; `None` for what this path needs.
    pub buffer_bytes_max: Option<u64>,
    /// Of all random draws.
    pub seed: u64,
    /// What moves the packets; of an open path it stays as it was.
    pub backend: BackendChoice,
}

/// The queue in front of the link. Needs a rate; without one nothing waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// Rate times round trip: what one connection needs to keep the link busy.
    BandwidthDelay,
    /// So many bytes.
    Bytes(u64),
    /// What the link carries in that time.
    #[serde(rename = "ms", serialize_with = "milliseconds")]
    Time(Duration),
}

/// Which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// None.
    None,
    /// Each with the same chance.
    Random {
        /// Above 0, to 1.
        share: f64,
    },
    /// Several in a row (Gilbert-Elliott: all lost in its bad state, none in its good one).
    Burst {
        /// Above 0, below 1, over a long time.
        share: f64,
        /// Packets lost in a row, on average; from 1.
        mean_length: f64,
    },
}

/// Packets that come later than their turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reorder {
    /// Above 0, below 1.
    pub share: f64,
    /// By how much.
    #[serde(rename = "by_ms", serialize_with = "milliseconds")]
    pub by: Duration,
}

impl Default for PathSettings {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(50),
            jitter: Duration::ZERO,
            rate_bits: None,
            queue: Queue::BandwidthDelay,
            loss: Loss::None,
            return_loss: Loss::None,
            reorder: None,
            down: false,
            mtu: 1_500,
            congestion: None,
            destination_congestion: None,
            buffer_bytes_max: None,
            seed: 1,
            backend: BackendChoice::Relay,
        }
    }
}

impl PathSettings {
    /// There and back, without jitter and queue.
    pub fn round_trip(&self) -> Duration {
        self.delay * 2
    }

    /// What the link carries in a round trip; `None` without a rate.
    pub fn bandwidth_delay_bytes(&self) -> Option<u64> {
        Some(bytes_in(self.rate_bits?, self.round_trip() + self.jitter))
    }

    /// How much waits at most; `None` without a rate.
    pub fn queue_bytes(&self) -> Option<u64> {
        let rate = self.rate_bits?;
        Some(match self.queue {
            Queue::BandwidthDelay => {
                bytes_in(rate, self.round_trip() + self.jitter).max(QUEUE_BYTES_MIN)
            }
            Queue::Bytes(bytes) => bytes,
            Queue::Time(time) => bytes_in(rate, time),
        })
    }

    /// Memory for what one direction holds: half more than what is under way and waiting.
    pub(super) fn held_bytes(&self) -> u64 {
        let late = self.reorder.map_or(Duration::ZERO, |reorder| reorder.by);
        let way = self.delay + self.jitter + late;
        let under_way = bytes_in(self.rate_bits.unwrap_or(RATE_BITS_ASSUMED), way);
        let most = under_way.saturating_add(self.queue_bytes().unwrap_or(0));
        // The fixed part is for a burst at a time when the lane is not running.
        (most.saturating_add(most / 2)).saturating_add(16 << 20)
    }

    /// The first thing that is wrong, in a sentence.
    pub fn check(&self) -> Result<(), WanError> {
        let refuse = |sentence: String| Err(WanError::Settings(sentence));
        for (name, time) in [("delay", self.delay), ("jitter", self.jitter)] {
            if time > DELAY_MAX {
                return refuse(format!(
                    "a {name} of {time:?} is above {DELAY_MAX:?}, the most that is emulated"
                ));
            }
        }
        if let Some(rate) = self.rate_bits
            && !(RATE_BITS_MIN..=RATE_BITS_MAX).contains(&rate)
        {
            return refuse(format!(
                "a rate of {rate} bits per second is outside of {RATE_BITS_MIN} to {RATE_BITS_MAX}; leave it out for as \
                 fast as this machine"
            ));
        }
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return refuse(format!("an MTU of {} is outside of {MTU_MIN} to {MTU_MAX}", self.mtu));
        }
        if self.queue_bytes().is_some_and(|bytes| bytes < u64::from(self.mtu)) {
            return refuse(format!(
                "the queue does not hold one packet of {} bytes; make it larger",
                self.mtu
            ));
        }
        self.loss.check()?;
        self.return_loss.check()?;
        if let Some(reorder) = self.reorder {
            check_share("share of late packets", reorder.share, false)?;
            if reorder.by > DELAY_MAX || reorder.by.is_zero() {
                return refuse(format!(
                    "packets are late by more than nothing, and by at most {DELAY_MAX:?}"
                ));
            }
        }
        let held = self.held_bytes();
        // Without a rate the memory is a guess anyway, and is cut to the most there is.
        if self.rate_bits.is_some() && held > HELD_BYTES_MAX {
            return refuse(format!(
                "this path holds {} MiB in each direction, and at most {} MiB are emulated; lower the rate, the delay \
                 or the queue",
                held >> 20,
                HELD_BYTES_MAX >> 20
            ));
        }
        Ok(())
    }

    /// The same for a path that something is to be measured over.
    pub fn check_carries(&self) -> Result<(), WanError> {
        self.check()?;
        let all = |loss| matches!(loss, Loss::Random { share } if share >= 1.0);
        if !self.down && !all(self.loss) && !all(self.return_loss) {
            return Ok(());
        }
        Err(WanError::Settings(
            "nothing comes through a path that is down or loses every packet; lower --loss (or --return-loss), and \
             leave --down out"
                .to_owned(),
        ))
    }
}

impl Loss {
    fn check(&self) -> Result<(), WanError> {
        match *self {
            Self::None => Ok(()),
            Self::Random { share } => check_share("loss", share, true),
            Self::Burst { share, mean_length } => {
                check_share("loss", share, false)?;
                if (1.0..=BURST_MEAN_MAX).contains(&mean_length) {
                    return Ok(());
                }
                let sentence = format!(
                    "a burst of {mean_length} packets is outside of 1 to {BURST_MEAN_MAX} on average"
                );
                Err(WanError::Settings(sentence))
            }
        }
    }
}

impl fmt::Display for PathSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round trip {:?}", self.round_trip())?;
        if !self.jitter.is_zero() {
            write!(f, ", jitter {:?}", self.jitter)?;
        }
        match (self.rate_bits, self.queue_bytes()) {
            (Some(rate), Some(queue)) => {
                write!(f, ", {} Mbit/s, queue {} kB", rate as f64 / 1e6, queue / 1000)?
            }
            _ => write!(f, ", no rate limit")?,
        }
        write!(f, ", {}", self.loss)?;
        if self.return_loss != Loss::None {
            write!(f, " (on the way back {})", self.return_loss)?;
        }
        if let Some(reorder) = self.reorder {
            write!(f, ", {} % late by {:?}", reorder.share * 100.0, reorder.by)?;
        }
        write!(f, ", MTU {}", self.mtu)?;
        if let Some(name) = &self.congestion {
            write!(f, ", {name}")?;
        }
        if let Some(name) = &self.destination_congestion {
            write!(f, " (destination {name})")?;
        }
        write!(f, ", seed {}{}", self.seed, if self.down { ", DOWN" } else { "" })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "no loss"),
            Self::Random { share } => write!(f, "loss {} %", share * 100.0),
            Self::Burst { share, mean_length } => {
                write!(f, "loss {} % in bursts of {mean_length}", share * 100.0)
            }
        }
    }
}

fn check_share(name: &str, share: f64, all: bool) -> Result<(), WanError> {
    let most = if all { share <= 1.0 } else { share < 1.0 };
    if share > 0.0 && most {
        return Ok(());
    }
    let bound = if all { "to 100 %" } else { "below 100 %" };
    Err(WanError::Settings(format!("a {name} of {} % is not above 0 and {bound}", share * 100.0)))
}

fn bytes_in(rate_bits: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate_bits) * time.as_nanos() / 8_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn milliseconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_one_bandwidth_delay_product_unless_asked_otherwise() {
        let mut path = PathSettings { rate_bits: Some(1_000_000_000), ..PathSettings::default() };
        assert_eq!(path.queue_bytes(), Some(12_500_000));
        path.queue = Queue::Time(Duration::from_millis(10));
        assert_eq!(path.queue_bytes(), Some(1_250_000));
        path.queue = Queue::Bytes(50_000);
        assert_eq!(path.queue_bytes(), Some(50_000));
        path.rate_bits = None;
        assert_eq!(path.queue_bytes(), None);
    }

    #[test]
    fn what_cannot_be_emulated_is_refused_with_a_sentence() {
        let good = PathSettings { rate_bits: Some(1_000_000_000), ..PathSettings::default() };
        assert!(good.check().is_ok());
        type Spoil = fn(&mut PathSettings);
        let bad: [(&str, Spoil); 10] = [
            ("rate of 0", |path| path.rate_bits = Some(0)),
            ("rate of", |path| path.rate_bits = Some(u64::MAX)),
            ("delay", |path| path.delay = Duration::from_secs(11)),
            ("jitter", |path| path.jitter = Duration::from_secs(11)),
            ("MTU", |path| path.mtu = 500),
            ("queue", |path| path.queue = Queue::Bytes(1)),
            ("loss", |path| path.loss = Loss::Random { share: 1.1 }),
            ("loss", |path| path.return_loss = Loss::Burst { share: 1.0, mean_length: 2.0 }),
            ("burst", |path| path.loss = Loss::Burst { share: 0.1, mean_length: f64::NAN }),
            ("holds", |path| path.queue = Queue::Bytes(4 << 30)),
        ];
        for (word, spoil) in bad {
            let mut path = good.clone();
            spoil(&mut path);
            let message = path.check().unwrap_err().to_string();
            assert!(message.contains(word), "{word}: {message}");
        }
    }

    #[test]
    fn a_path_through_which_nothing_comes_is_a_path_but_not_one_to_measure() {
        let all = Loss::Random { share: 1.0 };
        let spoils: [fn(&mut PathSettings, Loss); 3] = [
            |path, all| path.loss = all,
            |path, all| path.return_loss = all,
            |path, _| path.down = true,
        ];
        for spoil in spoils {
            let mut path = PathSettings::default();
            assert!(path.check_carries().is_ok());
            spoil(&mut path, all);
            assert!(path.check().is_ok());
            assert!(path.check_carries().unwrap_err().to_string().contains("lower --loss"));
        }
    }
}
