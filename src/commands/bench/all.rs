//! `longhaul bench all`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use bench::published::{self, Options};
use clap::Args;

use super::peers::Beside;
use crate::commands::complain;

/// The published set: every benchmark one after another, with an index of the results
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench all --out results --with-kafka --with-mm2
  longhaul bench all --out results --short        whether everything works here, in a few minutes

Each runs as if it had been typed. Ctrl-C ends the one that runs, with what it measured, and begins no other. The
directory gets each one's files, index.md, and index.html with everything on one page. Exit code 0 when everything was
measured.")]
pub(crate) struct All {
    /// Where the results go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Runs of each subject, in turn [default: 3, or 1 with --short]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Tiny sizes: to see that everything works, not how fast
    #[arg(long)]
    short: bool,
    #[command(flatten)]
    beside: Beside,
}

impl All {
    /// Runs them.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let stop = Arc::new(AtomicBool::new(false));
        controlplane::signals::set_on_signal(stop.clone()).context("cannot listen for signals")?;
        let options = Options {
            program: std::env::current_exe().context("cannot find this program")?,
            out: std::path::absolute(&self.out).context("cannot find the directory")?,
            repeats: self.repeats.unwrap_or(if self.short { 1 } else { 3 }),
            short: self.short,
            with_kafka: self.beside.kafka.with_kafka,
            with_mirror_maker: self.beside.with_mm2,
            cache: self.beside.kafka.cache,
            directory: self.beside.kafka.directory,
        };
        let entries = published::run(&options, &stop, &complain)?;
        complain(&format!("the index is {}", options.out.join("index.md").display()));
        let complete = !entries.is_empty() && entries.iter().all(|entry| entry.complete);
        let stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
        Ok(ExitCode::from(u8::from(!complete || stopped)))
    }
}
