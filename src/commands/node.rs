//! `longhaul node`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use controlplane::config::NodeConfig;

/// Run a node: mirror topics and serve them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul node
      on defaults: data in ./longhaul-data, clients at 127.0.0.1:9092
  longhaul node --data-dir /srv/longhaul --listen 0.0.0.0:9092
  longhaul node --config /etc/longhaul/node.toml

SIGTERM or SIGINT stops the node cleanly (exit code 0); a second signal ends it at once (exit code 1), and the
next start recovers by itself.")]
pub struct Node {
    /// TOML file; every key is optional, and flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where partition folders and the metadata store lie; may be given several times, the first holds
    /// the metadata store
    #[arg(long, value_name = "DIR")]
    data_dir: Vec<PathBuf>,
    /// Where clients connect; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
}

impl Node {
    /// Runs it until a signal.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut config = match &self.config {
            Some(path) => NodeConfig::read(path)?,
            None => NodeConfig::default(),
        };
        if !self.data_dir.is_empty() {
            config.data_dirs = self.data_dir;
        }
        if let Some(listen) = self.listen {
            config.listen = listen;
        }
        controlplane::node::run(&config)?;
        Ok(ExitCode::SUCCESS)
    }
}
