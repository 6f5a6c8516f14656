//! The `longhaul` command line.
//!
//! Reads arguments, calls the crates, prints what they say. No logic of its own: one file for each
//! subcommand under `commands`. Results go to standard output, logs and errors to standard error.

mod commands;
mod table;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use commands::Command;

/// A Kafka mirror appliance: pulls topics over a WAN, keeps them byte for byte, serves them read-only.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, about, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused or failed; the reason is on standard error
  2  the command line is not understood

Logs go to standard error; LONGHAUL_LOG filters them, e.g. LONGHAUL_LOG=info,longhaul_controlplane=debug";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_logging();
    match arguments.command.run() {
        Ok(code) => code,
        Err(error) => {
            // A message names its cause already; a backtrace helps nobody at a terminal.
            commands::complain(&error.to_string());
            ExitCode::from(1)
        }
    }
}

fn start_logging() {
    let filter = EnvFilter::try_from_env("LONGHAUL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
}
