//! The subcommands.

mod bench;
mod demo;
mod log;
mod mirror;
mod node;
mod report;
mod tune;
mod values;

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;

/// What can be asked of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    /// Run a node: mirror topics and serve them.
    Node(node::Node),
    /// Create mirrors, start topics, see how they are.
    #[command(subcommand)]
    Mirror(mirror::Mirror),
    Log(log::LogArgs),
    /// Measure this machine.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Check and set what the host's kernel allows.
    #[command(subcommand)]
    Tune(tune::Tune),
    Report(report::Report),
}

impl Command {
    /// Runs it to its end.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Demo(demo) => demo.run(),
            Self::Node(node) => node.run(),
            Self::Mirror(mirror) => mirror.run(),
            Self::Log(log) => log::run(&log),
            Self::Bench(bench) => bench.run(),
            Self::Tune(tune) => tune.run(),
            Self::Report(report) => report.run(),
        }
    }
}

/// Says on standard error what went wrong.
pub(crate) fn complain(message: &str) {
    // There is nowhere left to report a broken standard error to.
    let _ = writeln!(std::io::stderr(), "longhaul: {message}");
}
