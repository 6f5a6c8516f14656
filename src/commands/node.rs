//! `longhaul node`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use controlplane::config::NodeConfig;
use tuning::limits::{self, Budgets};

/// Files besides logs and consumers: lanes to the sources, rings, the store, and a reserve.
const OPEN_FILES_BESIDES: u64 = 1_024;

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
pub(crate) struct Node {
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
    /// Where histograms are read over HTTP; port 0 takes a free one, "off" none
    #[arg(long, value_name = "HOST:PORT")]
    http_listen: Option<String>,
    /// End when the process of this id, which started this one, ends: for tests and the demo
    #[arg(long, hide = true, value_name = "PID")]
    end_with_parent: Option<u32>,
}

impl Node {
    /// Runs it until a signal.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(parent) = self.end_with_parent {
            controlplane::signals::end_with_parent(parent)
                .context("cannot follow the parent's end")?;
        }
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
        if self.http_listen.is_some() {
            config.http.listen = self.http_listen;
        }
        check_host(&config);
        controlplane::node::run(&config)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Raises what may be raised without privilege, and says which budgets the host does not allow.
fn check_host(config: &NodeConfig) {
    limits::raise_open_files();
    let budgets = Budgets {
        open_files: (config.storage.descriptors_max + config.serve.connections_max) as u64
            + OPEN_FILES_BESIDES,
        mappings: config.storage.mappings_max as u64,
        locked_bytes: 0,
    };
    match limits::check(Path::new("/"), &budgets) {
        Ok(shortfalls) => {
            for shortfall in shortfalls {
                tracing::warn!("{shortfall}");
            }
        }
        Err(error) => tracing::warn!(%error, "the host's limits are not known"),
    }
}
