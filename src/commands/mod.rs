//! The subcommands.

mod log;
mod mirror;
mod node;

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;

/// What can be asked of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node: mirror topics and serve them.
    Node(node::Node),
    /// Create mirrors, start topics, see how they are.
    #[command(subcommand)]
    Mirror(mirror::Mirror),
    Log(log::LogArgs),
}

impl Command {
    /// Runs it to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Node(node) => node.run(),
            Self::Mirror(mirror) => mirror.run(),
            Self::Log(log) => log::run(&log),
        }
    }
}

/// Says on standard error what went wrong.
pub fn complain(message: &str) {
    // There is nowhere left to report a broken standard error to.
    let _ = writeln!(std::io::stderr(), "longhaul: {message}");
}
