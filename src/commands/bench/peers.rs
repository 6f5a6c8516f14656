//! `longhaul bench peers`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bench::peers::{self, Cache};
use clap::Args;

use super::output::Output;
use crate::commands::demo::parse_size;

/// What copying one topic costs: MirrorMaker 2 as shipped and tuned, Longhaul, and kcat merely reading it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench peers --with-kafka --with-mm2 --size 2GiB --repeats 3
  longhaul bench peers                  the synthetic source, for Longhaul and kcat only

Longhaul and kcat are timed from the command on; MirrorMaker 2 from the first byte at its destination on, so that the
start of its Java program does not count, but its warm-up does. Bytes are the source's, as stored there, for everybody.")]
pub(crate) struct Peers {
    /// Record bytes of the topic
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    size: u64,
    /// Partitions of the topic, each number a case
    #[arg(long, value_name = "N,...", default_values_t = [1, 64], value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    partitions: Vec<u32>,
    #[command(flatten)]
    beside: Beside,
    #[command(flatten)]
    output: Output,
}

/// Kafka, fetched when asked for, and where all have their files.
#[derive(Clone, Debug, Args)]
pub(crate) struct Kafka {
    /// Fetch Apache Kafka with Maven, once, and measure with it
    #[arg(long)]
    pub(crate) with_kafka: bool,
    /// Where fetched programs are kept [default: $LONGHAUL_CACHE, $XDG_CACHE_HOME/longhaul or ~/.cache/longhaul]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Where brokers and nodes have their folders, which are removed again
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub(crate) directory: PathBuf,
}

/// The same, and MirrorMaker 2.
#[derive(Clone, Debug, Args)]
pub(crate) struct Beside {
    #[command(flatten)]
    pub(crate) kafka: Kafka,
    /// Fetch MirrorMaker 2 and the Kafka it copies to, and measure beside it
    #[arg(long)]
    pub(crate) with_mm2: bool,
}

impl Kafka {
    /// The cache of fetched programs.
    pub(crate) fn cache(&self) -> anyhow::Result<Cache> {
        Ok(Cache::at(self.cache.clone())?)
    }
}

impl Peers {
    /// Measures.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        bench::run::check_writable(&self.beside.kafka.directory)?;
        let options = peers::Options {
            program: std::env::current_exe().context("cannot find this program")?,
            size_bytes: self.size,
            partitions: self.partitions,
            repeats: self.output.repeats,
            cache: self.beside.kafka.cache()?,
            directory: self.beside.kafka.directory,
            with_kafka: self.beside.kafka.with_kafka,
            with_mirror_maker: self.beside.with_mm2,
        };
        let session = self.output.begin("peers", peers::QUESTION)?;
        peers::run(&options, &session)?;
        self.output.finish(&session.end())
    }
}
