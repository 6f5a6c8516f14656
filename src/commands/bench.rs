//! `longhaul bench`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use bench::landing;
use clap::{Args, Subcommand};

use super::complain;
use super::demo::parse_size;

/// Measure this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// What receiving and landing costs, each way next to a raw receive into scratch memory
    #[command(after_help = "\
Example:
  longhaul bench landing --size 1GiB --repeats 7 --directory /srv/longhaul

Exit code 1 when the landing that ships misses its goals: 70 % of the raw receive's GB/s, at most 1.6 times its
processor time, checksums included, on warm segments.")]
    Landing(Landing),
}

/// Receive and land.
#[derive(Debug, Args)]
pub(crate) struct Landing {
    /// Record bytes of one run
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    size: u64,
    /// Runs of each way, in turn
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeats: usize,
    /// Where the logs go, and are removed again; needs twice the size
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Bench {
    /// Measures.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Landing(landing) => landing.run(),
        }
    }
}

impl Landing {
    fn run(self) -> anyhow::Result<ExitCode> {
        let options = landing::Options {
            size_bytes: self.size,
            repeats: self.repeats,
            directory: self.directory,
        };
        let stop = Arc::new(AtomicBool::new(false));
        controlplane::node::set_on_signal(stop.clone()).context("cannot listen for signals")?;
        let report = landing::run(&options, &stop, &mut complain)?;
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &report)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{report}")?;
        }
        Ok(ExitCode::from(u8::from(!report.verdict.kept)))
    }
}
