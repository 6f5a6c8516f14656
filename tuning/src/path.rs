//! A network path as its user states it: rate, round-trip time, lanes; and what follows from them.
//!
//! Plain numbers, no I/O. Values that no path has are refused where they are read.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Slowest and fastest path that is taken for meant, bits per second.
const RATE_BITS_MIN: f64 = 1e6;
const RATE_BITS_MAX: f64 = 1e12;
/// Shortest and longest round trip that is taken for meant.
const RTT_MIN: Duration = Duration::from_micros(1);
const RTT_MAX: Duration = Duration::from_secs(10);
/// Lanes at most: beyond it a lane's share of any path is less than a segment.
pub const LANES_MAX: u32 = 4096;

/// Why a rate or a round-trip time was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Not a number with a unit of bits per second.
    #[error("\"{0}\" is not a rate: write it in bits per second, such as 800M, 10G or 10Gbit/s")]
    Rate(String),
    /// Bytes where bits are meant.
    #[error(
        "\"{0}\" counts bytes: a path's rate is given in bits per second, such as 10G or 10Gbit/s"
    )]
    Bytes(String),
    /// No path has this rate.
    #[error("no path has a rate of \"{0}\": give one between 1M and 1T bits per second")]
    RateRange(String),
    /// Not a number with a unit of time.
    #[error(
        "\"{0}\" is not a round-trip time: write it with its unit, such as 100ms, 250us or 0.1s"
    )]
    Rtt(String),
    /// No path has this round-trip time.
    #[error(
        "no path has a round-trip time of \"{0}\": give what `ping` shows, between 1us and 10s"
    )]
    RttRange(String),
}

/// Bits per second of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
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

impl FromStr for Rate {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let (number, unit) = split_number(text);
        let number: f64 = number.parse().map_err(|_| PathError::Rate(text.to_owned()))?;
        let unit = unit.strip_suffix("/s").unwrap_or(unit);
        if unit.ends_with('B') || unit.ends_with("yte") || unit.ends_with("ytes") {
            return Err(PathError::Bytes(text.to_owned()));
        }
        let unit = ["bits", "bit", "bps", "b"]
            .iter()
            .find_map(|suffix| unit.strip_suffix(suffix))
            .unwrap_or(unit);
        let factor = match unit {
            "" => 1.0,
            "k" | "K" => 1e3,
            "m" | "M" => 1e6,
            "g" | "G" => 1e9,
            "t" | "T" => 1e12,
            _ => return Err(PathError::Rate(text.to_owned())),
        };
        let bits = number * factor;
        if !(RATE_BITS_MIN..=RATE_BITS_MAX).contains(&bits) {
            return Err(PathError::RateRange(text.to_owned()));
        }
        Ok(Self(bits as u64))
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

impl FromStr for Rtt {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let (number, unit) = split_number(text);
        let number: f64 = number.parse().map_err(|_| PathError::Rtt(text.to_owned()))?;
        let factor = match unit {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            // Nothing takes no time, whatever the unit.
            "" if number == 0.0 => 1.0,
            _ => return Err(PathError::Rtt(text.to_owned())),
        };
        Duration::try_from_secs_f64(number * factor)
            .ok()
            .filter(|time| (RTT_MIN..=RTT_MAX).contains(time))
            .map(Self)
            .ok_or_else(|| PathError::RttRange(text.to_owned()))
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

/// The number at the start of a text, and the rest without the spaces between.
fn split_number(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|character: char| !character.is_ascii_digit() && !"+-.".contains(character))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
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
    fn rates_are_read_in_the_ways_people_write_them() {
        for (text, bits) in [
            ("10G", 10_000_000_000),
            ("10Gbit/s", 10_000_000_000),
            ("10 Gbit", 10_000_000_000),
            ("2.5g", 2_500_000_000),
            ("800Mbps", 800_000_000),
            ("1000000", 1_000_000),
            ("1T", 1_000_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Rate(bits)), "{text}");
        }
    }

    #[test]
    fn rates_that_no_path_has_are_refused_with_what_to_write() {
        for (text, needle) in [
            ("0", "between 1M and 1T"),
            ("-1G", "between 1M and 1T"),
            ("2T", "between 1M and 1T"),
            ("10", "between 1M and 1T"),
            ("fast", "not a rate"),
            ("", "not a rate"),
            ("10X", "not a rate"),
            ("125MB/s", "counts bytes"),
            ("1GB", "counts bytes"),
        ] {
            let told = text.parse::<Rate>().unwrap_err().to_string();
            assert!(told.contains(needle), "{text}: {told}");
        }
    }

    #[test]
    fn round_trips_need_a_unit_and_a_length() {
        for (text, micros) in
            [("100ms", 100_000), ("0.1s", 100_000), ("250us", 250), ("5 ms", 5_000)]
        {
            assert_eq!(text.parse(), Ok(Rtt::micros(micros)), "{text}");
        }
        for (text, needle) in [
            ("0", "what `ping` shows"),
            ("0ms", "what `ping` shows"),
            ("-3ms", "what `ping` shows"),
            ("11s", "what `ping` shows"),
            ("100", "with its unit"),
            ("soon", "with its unit"),
            ("1h", "with its unit"),
        ] {
            let told = text.parse::<Rtt>().unwrap_err().to_string();
            assert!(told.contains(needle), "{text}: {told}");
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
        assert_eq!("2500M".parse::<Rate>().unwrap().to_string(), "2.5 Gbit/s");
        assert_eq!("10M".parse::<Rate>().unwrap().to_string(), "10 Mbit/s");
        assert_eq!(Rtt::micros(100_000).to_string(), "100 ms");
        assert_eq!(Rtt::micros(250).to_string(), "250 us");
    }
}
