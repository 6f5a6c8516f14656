//! `longhaul demo`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use bench::demo;
use clap::Args;

/// See it work, without a Kafka: a synthetic source, a node that mirrors it, and a consumer that checks every record.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul demo
  longhaul demo --size 500MiB --partitions 4
  longhaul demo --keep        leaves everything running until Ctrl-C, with the addresses printed

Exit code 0 when every record was checked and right.")]
pub(crate) struct Demo {
    /// About how much to mirror: a number with B, KiB, MiB or GiB
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    size: u64,
    /// Partitions of the topic
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    partitions: u32,
    /// Leave it running at the end, for kcat and other tools
    #[arg(long)]
    keep: bool,
}

impl Demo {
    /// Runs it to its end, or to Ctrl-C.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let stop = Arc::new(AtomicBool::new(false));
        controlplane::signals::set_on_signal(stop.clone()).context("cannot listen for signals")?;
        let mut out = io::stdout().lock();
        let options = demo::Options {
            size_bytes: self.size,
            partitions: self.partitions,
            keep: self.keep,
            program: std::env::current_exe().context("cannot find this program")?,
            redraw: out.is_terminal(),
        };
        let summary = demo::run(&options, &stop, &mut out)?;
        // An interrupted demo has not checked everything, unless that was how it was to end.
        let failed = summary.interrupted && !self.keep;
        Ok(ExitCode::from(u8::from(failed)))
    }
}

/// Bytes, with or without a unit.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(format!("{unit:?} is not a unit; use B, KiB, MiB or GiB")),
    };
    let number: u64 = number.parse().map_err(|_| "a size begins with a whole number".to_owned())?;
    let bytes = number.checked_mul(factor).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "a size is above 0 and fits into 64 bits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("100"), Ok(100));
        assert_eq!(parse_size("5mb"), Ok(5_000_000));
        for wrong in ["", "GiB", "0", "-1", "3 apples", "99999999999GiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
