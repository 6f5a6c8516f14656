//! The `longhaul` command line: one file per subcommand.

mod log;

use std::io::Write;
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

fn main() -> ExitCode {
    let result = match CommandLine::parse().command {
        Command::Log(arguments) => log::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        // A message names its cause already; a backtrace helps nobody at a terminal.
        let _ = writeln!(std::io::stderr(), "longhaul: {error}");
        ExitCode::FAILURE
    })
}
