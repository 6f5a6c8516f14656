//! What all benchmarks have in common: how often, where the results go, and how Ctrl-C ends them.

use std::cell::OnceCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use bench::run::{Place, Run, Session};
use clap::Args;

use crate::commands::complain;

/// Repeats and results.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Runs of each subject, in turn; the figures are medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: u32,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the results to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// That directory, once the benchmark has begun.
    #[arg(skip)]
    place: OnceCell<Place>,
}

impl Output {
    /// Begins a benchmark that Ctrl-C ends with what was measured until then. The directory is taken now:
    /// hours of measuring are not to end at a path that cannot be written.
    pub(crate) fn begin(&self, bench: &str, question: &str) -> anyhow::Result<Session> {
        if let Some(directory) = &self.out {
            let _ = self.place.set(Place::take(directory, bench)?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        controlplane::signals::set_on_signal(stop.clone()).context("cannot listen for signals")?;
        Ok(Session::begin(bench, question, stop, complain))
    }

    /// Writes and prints the results. Exit code 0 when all that was asked for was measured.
    pub(crate) fn finish(&self, run: &Run) -> anyhow::Result<ExitCode> {
        // Printed first: the directory may have filled up meanwhile, and nothing measured is to be lost.
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, run)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{run}")?;
        }
        if let Some(directory) = &self.out {
            for file in bench::report::write(directory, run)? {
                complain(&format!("wrote {}", file.display()));
            }
        }
        Ok(ExitCode::from(u8::from(!run.complete())))
    }
}
