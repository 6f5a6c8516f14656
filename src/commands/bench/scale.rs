//! `longhaul bench scale`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench::scale;
use clap::Args;

use super::output::Output;

/// What thousands of partitions cost: memory, CPU, descriptors, mappings, start-up
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench scale --partitions 1000,10000,100000 --repeats 3
  longhaul bench scale --partitions 1000 --seconds 3 --repeats 1

The partitions are the synthetic source's. Memory is the node's own (pages of files do not count), for each partition
beyond that of a node without any. The node is started with 20,000 open files. `start listens` and `start mirrors` are
counted from the start of a node that has them all in its store.")]
pub(crate) struct Scale {
    /// Numbers of partitions, each a case
    #[arg(long, value_name = "N,...", default_values_t = [1_000, 10_000, 100_000], value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=200_000))]
    partitions: Vec<u32>,
    /// Records a second over all partitions while it trickles
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trickle: u32,
    /// How long the idle node is watched, and the trickling one
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Where nodes have their folders, which are removed again
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

impl Scale {
    /// Measures.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        bench::run::check_writable(&self.directory)?;
        let options = scale::Options {
            program: std::env::current_exe().context("cannot find this program")?,
            partitions: self.partitions,
            records_per_second: self.trickle,
            window: Duration::from_secs(self.seconds),
            repeats: self.output.repeats,
            directory: self.directory,
        };
        let session = self.output.begin("scale", scale::QUESTION)?;
        scale::run(&options, &session)?;
        self.output.finish(&session.end())
    }
}
