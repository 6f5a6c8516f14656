//! `longhaul bench wan`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench::catch_up::{self, SourceTuning};
use bench::wan::{self, Loss, PathSettings};
use clap::{Args, ValueEnum};

use super::output::Output;
use super::peers::Beside;
use crate::commands::values::{parse_duration, parse_rate, parse_share};

/// How fast a mirror catches up over a WAN, next to raw TCP through the same path
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench wan
      100 ms; 1 and 5 Gbit/s; no and 0.1 % loss; 1 and 64 partitions; a tuned and an untouched source
  longhaul bench wan --rtt 200ms --rate 1G --loss 0 --partitions 64 --source tuned --repeats 3

Every combination is a case; in each, Longhaul, one flow of raw TCP and as many as Longhaul used run in turn, each over
a new path. A run ends after --seconds, whatever was reached by then. An untouched source has the send buffer of a
broker that nobody tuned (102,400 bytes), a tuned one leaves it to the kernel. Needs root, or unprivileged user
namespaces and a /dev/net/tun that all may use; and room for a run: --rate times --seconds.

With --with-kafka each case comes again with a real broker as the source, with --with-mm2 MirrorMaker 2 beside it, as
shipped and tuned, into a broker on the mirror's side; there a run's clock starts with the first records at the mirror.

Exit code 0 when everything was measured, every byte was right, and the machine was not too busy.")]
pub(crate) struct Wan {
    /// Round trips
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_value = "100ms", value_parser = parse_duration)]
    rtt: Vec<Duration>,
    /// Bits per second each way, IP headers included
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_value = "1G,5G", value_parser = parse_rate)]
    rate: Vec<u64>,
    /// Shares of packets lost from source to mirror
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "0,0.1%", value_parser = parse_share)]
    loss: Vec<f64>,
    /// Partitions of the topic
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,64", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    partitions: Vec<u32>,
    /// How the source's hosts are set up
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', default_value = "tuned,untouched")]
    source: Vec<SourceArgument>,
    /// How TCP controls congestion at both ends, such as bbr or cubic [default: the kernel's]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    congestion: Vec<String>,
    /// How long a run takes
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    #[command(flatten)]
    beside: Beside,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SourceArgument {
    /// The kernel sizes the send buffer
    Tuned,
    /// The send buffer of a broker that nobody tuned
    Untouched,
}

impl Wan {
    /// Measures.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        wan::become_root_of_own_namespace()?;
        let options = catch_up::Options {
            program: std::env::current_exe().context("cannot find this program")?,
            paths: self.paths(),
            partitions: self.partitions,
            sources: self
                .source
                .into_iter()
                .map(|source| match source {
                    SourceArgument::Tuned => SourceTuning::Tuned,
                    SourceArgument::Untouched => SourceTuning::Untouched,
                })
                .collect(),
            time: Duration::from_secs(self.seconds),
            repeats: self.output.repeats,
            cache: self.beside.kafka.cache()?,
            with_kafka: self.beside.kafka.with_kafka,
            with_mirror_maker: self.beside.with_mm2,
            directory: self.beside.kafka.directory,
        };
        let session = self.output.begin("wan", catch_up::QUESTION)?;
        catch_up::run(&options, &session)?;
        self.output.finish(&session.end())
    }

    fn paths(&self) -> Vec<PathSettings> {
        let congestions: Vec<Option<String>> = if self.congestion.is_empty() {
            vec![None]
        } else {
            self.congestion.iter().cloned().map(Some).collect()
        };
        let mut paths = Vec::new();
        for &rtt in &self.rtt {
            for &rate in &self.rate {
                for &share in &self.loss {
                    for congestion in &congestions {
                        paths.push(PathSettings {
                            delay: rtt / 2,
                            rate_bits: Some(rate),
                            loss: if share == 0.0 { Loss::None } else { Loss::Random { share } },
                            congestion: congestion.clone(),
                            ..PathSettings::default()
                        });
                    }
                }
            }
        }
        paths
    }
}
