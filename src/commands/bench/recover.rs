//! `longhaul bench recover`.

use std::process::ExitCode;

use anyhow::Context;
use bench::recover;
use clap::Args;

use super::output::Output;
use super::peers::Kafka;
use crate::commands::demo::parse_size;

/// How long after kill -9 under load until a node serves and mirrors again, and a real Kafka beside
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench recover --with-kafka --size 1GiB,4GiB --partitions 1,64,1000 --repeats 3
  longhaul bench recover --size 64MiB --partitions 8 --repeats 1

Counted from the kill, the start of the program included. `serves`: the first fetch is answered with records; `serves
all`: one for all partitions is; `grows`: an end offset moves. The node is killed while it mirrors the synthetic
source, the broker while its producer writes to it.")]
pub(crate) struct Recover {
    /// Record bytes before the load begins, each a case
    #[arg(long, value_name = "SIZE,...", default_values = ["1GiB", "4GiB"], value_delimiter = ',', value_parser = parse_size)]
    size: Vec<u64>,
    /// Partitions, each a case
    #[arg(long, value_name = "N,...", default_values_t = [1, 64, 1_000], value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    partitions: Vec<u32>,
    /// Bytes of record values a second when it is killed
    #[arg(long, value_name = "SIZE", default_value = "20MB", value_parser = parse_size)]
    load: u64,
    #[command(flatten)]
    kafka: Kafka,
    #[command(flatten)]
    output: Output,
}

impl Recover {
    /// Measures.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        bench::run::check_writable(&self.kafka.directory)?;
        let options = recover::Options {
            program: std::env::current_exe().context("cannot find this program")?,
            sizes_bytes: self.size,
            partitions: self.partitions,
            load_bytes: self.load,
            repeats: self.output.repeats,
            cache: self.kafka.cache()?,
            directory: self.kafka.directory,
            with_kafka: self.kafka.with_kafka,
        };
        let session = self.output.begin("recover", recover::QUESTION)?;
        recover::run(&options, &session)?;
        self.output.finish(&session.end())
    }
}
