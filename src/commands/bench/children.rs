//! What benchmarks start as processes of their own, so that each one's costs can be told apart. They end
//! when standard input does.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use bench::catch_up::{ReceiverOptions, receive_process};
use bench::load::{SourceOptions, serve_process};
use clap::Args;

/// `longhaul bench source`.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// `SourceOptions` as JSON
    options: String,
}

impl Source {
    /// Serves.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let options: SourceOptions =
            serde_json::from_str(&self.options).context("the source's options cannot be read")?;
        let listen = options.listen;
        serve_process(options, io::stdin().lock(), io::stdout().lock())
            .map_err(|error| anyhow::anyhow!("the synthetic source at {listen}: {error}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// `longhaul bench receive`.
#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// `ReceiverOptions` as JSON
    options: String,
}

impl Receive {
    /// Receives.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let options: ReceiverOptions =
            serde_json::from_str(&self.options).context("the receiver's options cannot be read")?;
        let from = options.from;
        receive_process(&options, io::stdin().lock(), io::stdout().lock())
            .map_err(|error| anyhow::anyhow!("the raw TCP receiver of {from}: {error}"))?;
        Ok(ExitCode::SUCCESS)
    }
}
