//! A network path as its user states it: rate, round-trip time, lanes; and what follows from them.
//!
//! Plain numbers, no I/O. Values that no path has are refused where they are read.

use std::fmt;
use std::time::Duration;

/// Slowest and fastest path that is taken for meant, bits per second.
const RATE_BITS_MIN: u64 = 1_000_000;
const RATE_BITS_MAX: u64 = 1_000_000_000_000;
/// Shortest and longest round trip that is taken for meant.
const RTT_MIN: Duration = Duration::from_micros(1);
const RTT_MAX: Duration = Duration::from_secs(10);
/// Lanes at most: beyond it a lane's share of any path is less than a segment.
pub const LANES_MAX: u32 = 4096;

/// Why a rate or a round-trip time was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No path has this rate.
    #[error("no path has a rate of {0} bits per second: give one between 1M and 1T")]
    Rate(u64),
    /// No path has this round-trip time.
    #[error("no path has a round-trip time of {0:?}: give what `ping` shows, between 1us and 10s")]
    Rtt(Duration),
}

/// Bits per second of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// A rate that a path can have.
    pub fn new(bits: u64) -> Result<Self, PathError> {
        let is_possible = (RATE_BITS_MIN..=RATE_BITS_MAX).contains(&bits);
        if is_possible { Ok(Self(bits)) } else { Err(PathError::Rate(bits)) }
    }

    /// A rate of so many whole gigabits per second.
    #[must_use]
    pub const fn gigabits(count: u64) -> Self {
        Self(count * 1_000_000_000)
    }

    /// Bits per second.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Bytes that pass within a time.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.0) * time.as_nanos() / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64;
        match self.0 {
            1_000_000_000.. => write!(formatter, "{} Gbit/s", bits / 1e9),
            _ => write!(formatter, "{} Mbit/s", bits / 1e6),
        }
    }
}

/// Round-trip time of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rtt(Duration);

impl Rtt {
    /// A round trip that a path can have.
    pub fn new(time: Duration) -> Result<Self, PathError> {
        let is_possible = (RTT_MIN..=RTT_MAX).contains(&time);
        if is_possible { Ok(Self(time)) } else { Err(PathError::Rtt(time)) }
    }

    /// A round trip of so many microseconds.
    #[must_use]
    pub const fn micros(count: u64) -> Self {
        Self(Duration::from_micros(count))
    }

    /// The time.
    #[must_use]
    pub const fn time(self) -> Duration {
        self.0
    }
}

impl fmt::Display for Rtt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_nanos() as f64 / 1e3;
        if micros < 1e3 {
            write!(formatter, "{micros} us")
        } else {
            write!(formatter, "{} ms", micros / 1e3)
        }
    }
}

/// A path: its rate, its round-trip time, and the lanes (connections) that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// What the path carries.
    pub rate: Rate,
    /// How long there and back takes.
    pub rtt: Rtt,
    /// Connections that share it; at least 1.
    pub lanes: u32,
}

/// A buffer is charged for whole pages and headers and is read late: about half of it is window. What
/// is sent stays buffered until it is acknowledged, one round trip later, and loss recovery takes one
/// more. Three times the bytes under way covers both.
const BUFFER_FACTOR: u64 = 3;
/// A lane may take up to twice its even share while another recovers from a loss.
const UNEVEN_SHARE: u64 = 2;
/// The kernel keeps these sizes in a signed 32-bit number.
const BUFFER_BYTES_MAX: u64 = i32::MAX as u64;
const MIB: u64 = 1 << 20;

impl Path {
    /// Bytes under way when the path is full: the bandwidth-delay product.
    #[must_use]
    pub fn bdp_bytes(&self) -> u64 {
        self.rate.bytes_in(self.rtt.time())
    }

    /// Bytes of socket buffer that one lane should be able to have: three times its share of the path
    /// and of a bottleneck queue as long as the path, twice when it shares the path.
    #[must_use]
    pub fn lane_buffer_bytes(&self) -> u64 {
        let lanes = u64::from(self.lanes.max(1));
        let whole = self.bdp_bytes().saturating_mul(2).saturating_mul(BUFFER_FACTOR);
        let share =
            if lanes <= UNEVEN_SHARE { whole } else { whole.saturating_mul(UNEVEN_SHARE) / lanes };
        share.div_ceil(MIB).saturating_mul(MIB).clamp(MIB, BUFFER_BYTES_MAX)
    }

    /// Bytes that all lanes may hold together.
    #[must_use]
    pub fn lanes_bytes(&self) -> u64 {
        self.lane_buffer_bytes().saturating_mul(u64::from(self.lanes.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_path_has_is_refused_with_what_to_give() {
        assert!(Rate::new(1_000_000).is_ok() && Rate::new(1_000_000_000_000).is_ok());
        for bits in [0, 999_999, 1_000_000_000_001] {
            let told = Rate::new(bits).unwrap_err().to_string();
            assert!(
                told.contains("between 1M and 1T") && told.contains(&bits.to_string()),
                "{told}"
            );
        }
        assert!(Rtt::new(Duration::from_micros(1)).is_ok() && Rtt::new(RTT_MAX).is_ok());
        for time in [Duration::ZERO, Duration::from_nanos(999), Duration::from_secs(11)] {
            let told = Rtt::new(time).unwrap_err().to_string();
            assert!(told.contains("what `ping` shows"), "{told}");
        }
    }

    #[test]
    fn one_lane_gets_six_times_the_product_and_many_share_twice_that() {
        let path = |lanes| Path { rate: Rate::gigabits(1), rtt: Rtt::micros(80_000), lanes };
        assert_eq!(path(1).bdp_bytes(), 10_000_000);
        let one = path(1).lane_buffer_bytes();
        assert!((60_000_000..60_000_000 + MIB).contains(&one), "{one}");
        assert_eq!(path(2).lane_buffer_bytes(), one);
        let tenth = path(10).lane_buffer_bytes();
        assert!((12_000_000..12_000_000 + MIB).contains(&tenth), "{tenth}");
        assert_eq!(path(10).lanes_bytes(), 10 * tenth);
    }

    #[test]
    fn a_buffer_stays_within_what_the_kernel_can_hold() {
        let path = Path { rate: Rate::gigabits(400), rtt: Rtt::micros(300_000), lanes: 1 };
        assert_eq!(path.lane_buffer_bytes(), i32::MAX as u64);
        let tiny = Path { rate: Rate::gigabits(1), rtt: Rtt::micros(1), lanes: LANES_MAX };
        assert_eq!(tiny.lane_buffer_bytes(), MIB);
    }

    #[test]
    fn paths_are_shown_in_their_own_units() {
        assert_eq!(Rate::gigabits(10).to_string(), "10 Gbit/s");
        assert_eq!(Rate::new(2_500_000_000).unwrap().to_string(), "2.5 Gbit/s");
        assert_eq!(Rate::new(10_000_000).unwrap().to_string(), "10 Mbit/s");
        assert_eq!(Rtt::micros(100_000).to_string(), "100 ms");
        assert_eq!(Rtt::micros(250).to_string(), "250 us");
    }
}
