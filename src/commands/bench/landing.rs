//! `longhaul bench landing`.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::landing::{self, Outcome, Verdict};
use clap::Args;

use super::output::Output;
use crate::commands::complain;
use crate::commands::demo::parse_size;

/// What receiving and landing costs, each way next to a raw receive into scratch memory
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  longhaul bench landing --size 1GiB --repeats 7 --directory /srv/longhaul

Exit code 1 when the landing that ships misses its goals: 70 % of the raw receive's GB/s, at most 1.6 times its
processor time, checksums included, on warm segments.")]
pub(crate) struct Landing {
    /// Record bytes of one run
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    size: u64,
    /// Where the logs go, and are removed again; needs twice the size
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

impl Landing {
    /// Measures.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let options = landing::Options {
            size_bytes: self.size,
            repeats: self.output.repeats,
            directory: self.directory,
        };
        let session = self.output.begin("landing", landing::QUESTION)?;
        landing::run(&options, &session)?;
        let run = session.end();
        let code = self.output.finish(&run)?;
        let Some(verdict) = run.cases.first().map(Verdict::of) else { return Ok(code) };
        complain(&verdict.to_string());
        Ok(if verdict.outcome == Outcome::Missed { ExitCode::from(1) } else { code })
    }
}
