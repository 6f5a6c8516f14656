//! The `longhaul` command line: one file per subcommand.

mod log;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kafka mirror appliance.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Log(log::LogArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match CommandLine::parse().command {
        Command::Log(arguments) => log::run(&arguments),
    }
}
