//! `longhaul bench`: one subcommand for each question.

mod all;
mod children;
mod lag;
mod landing;
mod output;
mod path_arguments;
mod peers;
mod recover;
mod scale;
mod serve;
mod wan;
mod wan_shell;

use std::process::ExitCode;

use clap::Subcommand;

/// Measure this machine, this node, and its peers.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    All(all::All),
    Landing(landing::Landing),
    WanShell(wan_shell::WanShell),
    WanSet(wan_shell::WanSet),
    Peers(peers::Peers),
    Wan(wan::Wan),
    Recover(recover::Recover),
    Scale(scale::Scale),
    Serve(serve::Serve),
    Lag(lag::Lag),
    /// The synthetic source, which a benchmark starts.
    #[command(hide = true)]
    Source(children::Source),
    /// The raw TCP receiver, which a benchmark starts.
    #[command(hide = true)]
    Receive(children::Receive),
}

impl Bench {
    /// Measures.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::All(all) => all.run(),
            Self::Landing(landing) => landing.run(),
            Self::WanShell(shell) => shell.run(),
            Self::WanSet(set) => set.run(),
            Self::Peers(peers) => peers.run(),
            Self::Wan(wan) => wan.run(),
            Self::Recover(recover) => recover.run(),
            Self::Scale(scale) => scale.run(),
            Self::Serve(serve) => serve.run(),
            Self::Lag(lag) => lag.run(),
            Self::Source(source) => source.run(),
            Self::Receive(receive) => receive.run(),
        }
    }
}
