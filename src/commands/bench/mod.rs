//! `longhaul bench`: one subcommand for each question.

mod landing;
mod output;

use std::process::ExitCode;

use clap::Subcommand;

/// Measure this machine, this node, and its peers.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    Landing(landing::Landing),
}

impl Bench {
    /// Measures.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Landing(landing) => landing.run(),
        }
    }
}
