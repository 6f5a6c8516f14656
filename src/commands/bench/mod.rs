//! `longhaul bench`: one subcommand for each question.

mod landing;
mod output;
mod path_arguments;
mod peers;
mod wan_shell;

use std::process::ExitCode;

use clap::Subcommand;

/// Measure this machine, this node, and its peers.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    Landing(landing::Landing),
    WanShell(wan_shell::WanShell),
    WanSet(wan_shell::WanSet),
    Peers(peers::Peers),
}

impl Bench {
    /// Measures.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Landing(landing) => landing.run(),
            Self::WanShell(shell) => shell.run(),
            Self::WanSet(set) => set.run(),
            Self::Peers(peers) => peers.run(),
        }
    }
}
