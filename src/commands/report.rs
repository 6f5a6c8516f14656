//! `longhaul report`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use bench::report::hlog::{self, Interval};
use bench::report::node::{self, Plan, Watched};
use bench::report::{self, html, terminal};
use bench::run::Run;
use clap::Args;
use controlplane::client::Address;

use super::complain;
use super::values::parse_duration;

/// Show what was measured: a benchmark's results, a histogram log, or a running node.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul report results/                       every run that `longhaul bench ... --out results` left there
  longhaul report results/wan.json --html wan.html
  longhaul report --node 127.0.0.1:9190          everything since the node's start
  longhaul report --node 127.0.0.1:9190 --for 30s --interval 1s --html node.html --hlog node.hlog

Prints to the terminal; --html writes a page that needs no network, --hlog a log that HdrHistogram's tools read.
Exit code 0 when there was something to show, 1 when nothing was measured or something cannot be read.")]
pub(crate) struct Report {
    /// Directories, run files (.json) or histogram logs (.hlog)
    #[arg(value_name = "PATH", required_unless_present = "node", conflicts_with = "node")]
    paths: Vec<PathBuf>,
    /// A running node's HTTP: http.listen of its configuration
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_node)]
    node: Option<String>,
    /// How long to watch the node; without it, everything since its start
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, requires = "node", conflicts_with = "paths")]
    watch_for: Option<Duration>,
    /// How often to look meanwhile
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time, requires = "node", conflicts_with = "paths")]
    interval: Duration,
    /// Write one page with everything
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a histogram log
    #[arg(long, value_name = "FILE")]
    hlog: Option<PathBuf>,
    /// Print the runs as JSON
    #[arg(long)]
    json: bool,
}

impl Report {
    /// Reads or watches, then shows.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (runs, intervals) = match &self.node {
            Some(node) => {
                let Watched { run, intervals } = self.watch(node)?;
                (vec![run], intervals)
            }
            None => {
                let mut runs = Vec::new();
                for path in &self.paths {
                    runs.append(&mut report::load(path)?);
                }
                let intervals = runs.iter().flat_map(report::log_of).collect();
                (runs, intervals)
            }
        };
        self.write_files(&runs, &intervals)?;
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &runs)?;
            writeln!(out)?;
        } else {
            for (index, run) in runs.iter().enumerate() {
                let gap = if index > 0 { "\n\n" } else { "" };
                write!(out, "{gap}{}", terminal(run))?;
            }
        }
        if runs.iter().any(report::is_measured) {
            return Ok(ExitCode::SUCCESS);
        }
        complain("nothing was measured: there is nothing to show");
        Ok(ExitCode::FAILURE)
    }

    fn watch(&self, node: &str) -> anyhow::Result<Watched> {
        let mut command = format!("longhaul report --node {node}");
        let Some(total) = self.watch_for else {
            return Ok(node::since_start(node, &command)?);
        };
        let stop = Arc::new(AtomicBool::new(false));
        controlplane::signals::set_on_signal(stop.clone()).context("cannot listen for signals")?;
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        command.push_str(&format!(" --for {} --interval {}", ms(total), ms(self.interval)));
        let plan = Plan { interval: self.interval, total };
        let stopped = || stop.load(Ordering::Relaxed);
        Ok(node::watch(node, &command, plan, &stopped, &mut complain)?)
    }

    fn write_files(&self, runs: &[Run], intervals: &[Interval]) -> anyhow::Result<()> {
        if let Some(file) = &self.html {
            write_file(file, html(runs)?.as_bytes())?;
        }
        if let Some(file) = &self.hlog {
            let started_ms = runs.iter().map(|run| run.started_ms).min().unwrap_or(0);
            let command = runs.first().map_or("", |run| run.command.as_str());
            let mut log = Vec::new();
            hlog::write(&mut log, started_ms, command, intervals)?;
            write_file(file, &log)?;
        }
        Ok(())
    }
}

fn write_file(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    bench::run::replace(file, bytes)?;
    complain(&format!("wrote {}", file.display()));
    Ok(())
}

/// `HOST:PORT`, as it is written.
fn parse_node(text: &str) -> Result<String, String> {
    Address::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A time above 0.
fn parse_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time.is_zero() { Err("a time to wait is above 0".to_owned()) } else { Ok(time) }
}
