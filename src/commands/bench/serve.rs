//! `longhaul bench serve`.

use std::process::ExitCode;

use anyhow::Context;
use bench::serve;
use clap::Args;

use super::output::Output;
use super::peers::Kafka;
use crate::commands::demo::parse_size;

/// How fast consumers read from a node, and the same consumers from a real Kafka
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench serve --with-kafka --size 4GiB --repeats 3
  longhaul bench serve --size 64MiB --partitions 8 --consumers 1,8 --repeats 1

Consumers share the partitions, as a group does, ask for as much as a Java consumer by default, and check every batch;
kcat reads everything alone. CPU is the node's or the broker's. `cached before` is the share of the topic's files in
the page cache when the reading began.")]
pub(crate) struct Serve {
    /// Record bytes of the topic
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    size: u64,
    /// Partitions of the topic
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    partitions: u32,
    /// Numbers of consumers at a time, each a case
    #[arg(long, value_name = "N,...", default_values_t = [1, 8, 64], value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000))]
    consumers: Vec<u32>,
    #[command(flatten)]
    kafka: Kafka,
    #[command(flatten)]
    output: Output,
}

impl Serve {
    /// Measures.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        bench::run::check_writable(&self.kafka.directory)?;
        let options = serve::Options {
            program: std::env::current_exe().context("cannot find this program")?,
            size_bytes: self.size,
            partitions: self.partitions,
            consumers: self.consumers,
            repeats: self.output.repeats,
            cache: self.kafka.cache()?,
            directory: self.kafka.directory,
            with_kafka: self.kafka.with_kafka,
        };
        let session = self.output.begin("serve", serve::QUESTION)?;
        serve::run(&options, &session)?;
        self.output.finish(&session.end())
    }
}
