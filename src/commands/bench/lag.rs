//! `longhaul bench lag`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench::ground::GroundSetup;
use bench::lag;
use bench::wan::{self, PathSettings};
use clap::Args;

use super::output::Output;
use super::path_arguments::PathArguments;
use super::peers::Beside;
use crate::commands::demo::parse_size;

/// How late the tail is at a given load: open loop, from the time each record was due at the source
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench lag
      at half of what a 1 Gbit/s link of 100 ms carries
  longhaul bench lag --rtt 40ms --rate 100M --load 1MB --record-size 100 --seconds 60
  longhaul bench lag --loopback --load 60MB

Exit code 0 when everything was measured, every byte was right, and the machine was not too busy.")]
pub(crate) struct Lag {
    /// Bytes of record values a second, over all partitions [default: half of the link's rate]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    load: Option<u64>,
    /// No path: source and mirror on the loopback interface; needs --load
    #[arg(long, requires = "load", conflicts_with = "PathArguments")]
    loopback: bool,
    /// Partitions of the topic
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    partitions: u32,
    /// Bytes of a record's value
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = parse_size)]
    record_size: u64,
    /// How long records come that count
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How long records come before, that do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    warm_up: u64,
    #[command(flatten)]
    beside: Beside,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    path: PathArguments,
}

/// The rate of a path for which none is given.
const RATE_BITS: u64 = 1_000_000_000;

impl Lag {
    /// Measures.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut path = PathSettings { rate_bits: Some(RATE_BITS), ..PathSettings::default() };
        self.path.apply(&mut path)?;
        let half_the_link = path.rate_bits.map(|rate| rate / 8 / 2);
        let load_bytes =
            self.load.or(half_the_link).context("a path without a rate needs --load")?;
        if !self.loopback {
            wan::become_root_of_own_namespace()?;
        }
        let options = lag::Options {
            program: std::env::current_exe().context("cannot find this program")?,
            ground: if self.loopback {
                GroundSetup::Loopback
            } else {
                GroundSetup::Path(Box::new(path))
            },
            load_bytes,
            partitions: self.partitions,
            value_bytes: usize::try_from(self.record_size).unwrap_or(usize::MAX),
            time: Duration::from_secs(self.seconds),
            warm_up: Duration::from_secs(self.warm_up),
            repeats: self.output.repeats,
            cache: self.beside.kafka.cache()?,
            with_kafka: self.beside.kafka.with_kafka,
            with_mirror_maker: self.beside.with_mm2,
            directory: self.beside.kafka.directory,
        };
        let session = self.output.begin("lag", lag::QUESTION)?;
        lag::run(&options, &session)?;
        self.output.finish(&session.end())
    }
}
