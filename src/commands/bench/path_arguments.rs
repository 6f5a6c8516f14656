//! The options that describe a path, for every command that builds or changes one.

use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use bench::wan::{BackendChoice, Loss, PathSettings, Queue, Reorder};
use clap::{Args, ValueEnum};

use crate::commands::demo::parse_size;
use crate::commands::values::{parse_duration, parse_rate, parse_share};

/// A path's properties; what is not given stays as it is.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The path")]
pub(crate) struct PathArguments {
    /// Round trip; half of it each way [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    rtt: Option<Duration>,
    /// Delay that wanders between 0 and this on top, each way, without turning the order of packets
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    jitter: Option<Duration>,
    /// Bits per second each way, IP headers included, such as 1G or 100M; `none` for as fast as this machine
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// What waits in front of the link: a size or a time, such as 1MiB or 10ms; `bdp` for rate times round trip
    #[arg(long, value_name = "SIZE|TIME")]
    queue: Option<QueueArgument>,
    /// Share of packets lost from source to destination, such as 0.1%; 0 for none
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    loss: Option<f64>,
    /// Lose them in bursts of so many on average; 1 for each by itself
    #[arg(long, value_name = "PACKETS")]
    burst: Option<f64>,
    /// Share of packets lost from destination to source
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    return_loss: Option<f64>,
    /// Share of packets from source to destination that come late, and by how much, such as 1%,3ms; 0 for none
    #[arg(long, value_name = "SHARE,TIME")]
    reorder: Option<ReorderArgument>,
    /// Largest packet [default: 1500]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// How TCP controls congestion at both ends, such as bbr or cubic [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// How it does so at the destination, if not as at the source
    #[arg(long, value_name = "NAME")]
    destination_congestion: Option<String>,
    /// Seed of all that is drawn at random [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// What moves the packets: the relay loses single packets and tells how late it was; netem is the kernel's, if it
    /// has it; auto takes netem where only delay and rate are asked for. Only when the path is made [default: relay]
    #[arg(long, value_enum, value_name = "NAME")]
    backend: Option<BackendArgument>,
    /// The link swallows every packet
    #[arg(long, conflicts_with = "up")]
    down: bool,
    /// The link is there again
    #[arg(long)]
    up: bool,
}

impl PathArguments {
    /// Puts what is given into the settings. Whether they make a path is for the emulator to say.
    pub(crate) fn apply(&self, path: &mut PathSettings) -> anyhow::Result<()> {
        let set = |value: &mut Duration, given: Option<Duration>| *value = given.unwrap_or(*value);
        set(&mut path.delay, self.rtt.map(|rtt| rtt / 2));
        set(&mut path.jitter, self.jitter);
        if let Some(Rate(rate)) = self.rate {
            path.rate_bits = rate;
        }
        if let Some(QueueArgument(queue)) = self.queue {
            path.queue = queue;
        }
        path.loss = self.loss(path.loss);
        if self.burst.is_some() && path.loss == Loss::None {
            bail!("--burst says how packets are lost, and none are; give --loss with it");
        }
        if let Some(share) = self.return_loss {
            path.return_loss = if share == 0.0 { Loss::None } else { Loss::Random { share } };
        }
        if let Some(ReorderArgument(reorder)) = self.reorder {
            path.reorder = reorder;
        }
        path.mtu = self.mtu.unwrap_or(path.mtu);
        path.congestion = self.congestion.clone().or(path.congestion.take());
        path.destination_congestion =
            self.destination_congestion.clone().or(path.destination_congestion.take());
        path.seed = self.seed.unwrap_or(path.seed);
        if let Some(backend) = self.backend {
            path.backend = match backend {
                BackendArgument::Auto => BackendChoice::Auto,
                BackendArgument::Relay => BackendChoice::Relay,
                BackendArgument::Netem => BackendChoice::Netem,
            };
        }
        path.down = (path.down || self.down) && !self.up;
        Ok(())
    }

    fn loss(&self, before: Loss) -> Loss {
        let (share_before, burst_before) = match before {
            Loss::None => (0.0, 1.0),
            Loss::Random { share } => (share, 1.0),
            Loss::Burst { share, mean_length } => (share, mean_length),
        };
        let (share, mean_length) =
            (self.loss.unwrap_or(share_before), self.burst.unwrap_or(burst_before));
        if share == 0.0 {
            Loss::None
        } else if mean_length == 1.0 {
            Loss::Random { share }
        } else {
            Loss::Burst { share, mean_length }
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BackendArgument {
    Auto,
    Relay,
    Netem,
}

#[derive(Debug, Clone, Copy)]
struct Rate(Option<u64>);

#[derive(Debug, Clone, Copy)]
struct QueueArgument(Queue);

#[derive(Debug, Clone, Copy)]
struct ReorderArgument(Option<Reorder>);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { parse_rate(text).map(|rate| Self(Some(rate))) }
    }
}

impl FromStr for QueueArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "bdp" {
            return Ok(Self(Queue::BandwidthDelay));
        }
        // A time ends in s; no size does.
        if text.ends_with('s') {
            return parse_duration(text).map(|time| Self(Queue::Time(time)));
        }
        parse_size(text).map(|bytes| Self(Queue::Bytes(bytes)))
    }
}

impl FromStr for ReorderArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(None));
        }
        let (share, by) = text
            .split_once(',')
            .ok_or_else(|| format!("{text:?} is not SHARE,TIME such as 1%,3ms"))?;
        Ok(Self(Some(Reorder { share: parse_share(share)?, by: parse_duration(by)? })))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        path: PathArguments,
    }

    fn try_apply(path: &mut PathSettings, words: &str) -> anyhow::Result<()> {
        let words = std::iter::once("test").chain(words.split_whitespace());
        Command::try_parse_from(words)?.path.apply(path)
    }

    fn apply(path: &mut PathSettings, words: &str) {
        try_apply(path, words).unwrap();
    }

    #[test]
    fn bursts_of_nothing_are_refused() {
        for words in ["--burst 3", "--burst 1", "--loss 0 --burst 3", "--return-loss 1% --burst 3"]
        {
            let error = try_apply(&mut PathSettings::default(), words).unwrap_err().to_string();
            assert!(error.contains("give --loss"), "{words}: {error}");
        }
        let lossy = Loss::Random { share: 0.01 };
        let mut path = PathSettings { loss: lossy, ..PathSettings::default() };
        assert!(try_apply(&mut path, "--loss 0 --burst 3").is_err());
    }

    #[test]
    fn what_is_given_is_set_and_the_rest_stays() {
        let mut path = PathSettings::default();
        apply(
            &mut path,
            "--rtt 40ms --rate 1G --queue 10ms --loss 0.1% --burst 10 --reorder 1%,3ms --down",
        );
        let expected = PathSettings {
            delay: Duration::from_millis(20),
            rate_bits: Some(1_000_000_000),
            queue: Queue::Time(Duration::from_millis(10)),
            loss: Loss::Burst { share: 0.001, mean_length: 10.0 },
            reorder: Some(Reorder { share: 0.01, by: Duration::from_millis(3) }),
            down: true,
            ..PathSettings::default()
        };
        assert_eq!(path, expected);
        apply(&mut path, "");
        assert_eq!(path, expected);
        apply(&mut path, "--burst 1 --up --queue 1MiB --congestion cubic --reorder 0 --rate none");
        let expected = PathSettings {
            rate_bits: None,
            queue: Queue::Bytes(1 << 20),
            loss: Loss::Random { share: 0.001 },
            reorder: None,
            down: false,
            congestion: Some("cubic".to_owned()),
            ..expected
        };
        assert_eq!(path, expected);
        apply(&mut path, "--loss 0");
        assert_eq!(path.loss, Loss::None);
    }
}
