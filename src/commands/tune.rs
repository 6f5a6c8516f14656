//! `longhaul tune`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use tuning::apply::{self, Applied, Outcome, Progress, Rollback};
use tuning::check::{self, Finding, Reading, Report, State};
use tuning::cpus::Cpus;
use tuning::host::Host;
use tuning::knobs::{self, Request};
use tuning::path::{Rate, Rtt};
use tuning::profile::Profile;
use tuning::render::{self, Format};
use tuning::source;

use super::complain;
use super::values::{parse_duration, parse_rate};
use crate::table::{wrap, write_table};

/// What fits into a terminal, a mail and a page.
const COLUMNS: usize = 100;
/// Values longer than this are cut in the table; `--json` and the lines below it have them whole.
const CELL: usize = 30;
const STATE: &str = "/var/lib/longhaul/tune.state";

/// Check and set what the host's kernel allows
#[derive(Debug, Subcommand)]
pub(crate) enum Tune {
    /// The profiles, or the knobs of one
    List {
        /// A profile
        profile: Option<Profile>,
    },
    /// What the host has and what a profile wants; needs no root
    #[command(after_help = "\
Exit code 0 when all is well, 1 when something is not, 2 when it could not be checked. What the kernel does not have
does not count.

Example:
  longhaul tune check wan-10g --rate 10G --rtt 80ms --data-dir /srv/longhaul")]
    Check {
        #[command(flatten)]
        target: Target,
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
        /// Tell of each knob why, when it harms, and where the advice comes from
        #[arg(long, short)]
        verbose: bool,
    },
    /// What apply would change, as a diff; needs no root
    Diff {
        #[command(flatten)]
        target: Target,
    },
    /// Change the host until it restarts; saves what was there first
    #[command(after_help = "\
Nothing lasts over a restart: `longhaul tune render` writes files that do. Exit code 1 when something was refused.

Examples:
  longhaul tune apply wan-10g --rate 10G --rtt 80ms
  longhaul tune apply wan-10g --only tcp_rmem,tcp_mem")]
    Apply {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        state: StateArgs,
    },
    /// Bring back exactly what was there before apply, also after a crash half way
    Rollback {
        #[command(flatten)]
        state: StateArgs,
        /// Also bring back what somebody else changed since
        #[arg(long)]
        force: bool,
        /// Leave everything as it is now and forget what was before
        #[arg(long, conflicts_with = "force")]
        forget: bool,
    },
    /// Write the wanted values as a file; needs no root
    Render {
        #[command(flatten)]
        target: Target,
        /// sysctl, systemd, udev, shell, or source: advice for the source's hosts and brokers
        #[arg(long)]
        format: String,
    },
}

/// What to tune for.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// A profile: see `longhaul tune list`
    profile: Profile,
    /// Rate of the path in bits per second, such as 10G; the profile's when not given
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<Rate>,
    /// Round-trip time of the path, such as 80ms; the profile's when not given
    #[arg(long, value_name = "TIME", value_parser = rtt)]
    rtt: Option<Rtt>,
    /// Connections that share the path; the profile's when not given
    #[arg(long, value_name = "N")]
    lanes: Option<u32>,
    /// Network interface of the path; that of the default route when not given
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// The node's data directory, for the settings of its disk
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Processors that the node's cores are pinned to, such as 0-3,8
    #[arg(long, value_name = "LIST")]
    cores: Option<Cpus>,
    /// Address whose route gets a congestion control of its own
    #[arg(long, value_name = "ADDRESS")]
    route: Option<String>,
    /// Only these knobs
    #[arg(long, value_name = "KNOB,...", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    only: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    /// Where it is kept what was there before
    #[arg(long, value_name = "FILE", default_value = STATE)]
    state: PathBuf,
}

fn rate(text: &str) -> Result<Rate, String> {
    Rate::new(parse_rate(text)?).map_err(|error| error.to_string())
}

fn rtt(text: &str) -> Result<Rtt, String> {
    Rtt::new(parse_duration(text)?).map_err(|error| error.to_string())
}

impl Tune {
    /// Runs it.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let host = Host::this();
        match self {
            Self::List { profile } => list(profile),
            Self::Check { target, json, verbose } => {
                let report = match target.report(&host) {
                    Ok(report) => report,
                    Err(error) => {
                        complain(&error.to_string());
                        return Ok(ExitCode::from(2));
                    }
                };
                let out = &mut io::stdout().lock();
                if json {
                    serde_json::to_writer_pretty(&mut *out, &report)?;
                    writeln!(out)?;
                } else {
                    print_report(out, &report, verbose)?;
                }
                Ok(ExitCode::from(u8::from(!report.well)))
            }
            Self::Diff { target } => diff(&target.report(&host)?),
            Self::Apply { target, state } => apply(&target, &state.state, &host),
            Self::Rollback { state, force, forget } => rollback(&state.state, force, forget, &host),
            Self::Render { target, format } => render(&target, &format, &host),
        }
    }
}

impl Target {
    fn request(&self) -> anyhow::Result<Request> {
        let mut request = Request::of(self.profile);
        request.path.rate = self.rate.unwrap_or(request.path.rate);
        request.path.rtt = self.rtt.unwrap_or(request.path.rtt);
        request.path.lanes = self.lanes.unwrap_or(request.path.lanes);
        request.interface.clone_from(&self.interface);
        request.cores.clone_from(&self.cores);
        request.route.clone_from(&self.route);
        request.only.clone_from(&self.only);
        if let Some(folder) = &self.data_dir {
            let whole = folder.canonicalize().with_context(|| {
                format!(
                    "there is no folder {}: make it, or name the node's data directory",
                    folder.display()
                )
            });
            // The context is the sentence; its cause would only repeat it.
            request.data_dir = Some(whole.map_err(|error| anyhow::anyhow!("{error}"))?);
        }
        Ok(request)
    }

    fn report(&self, host: &Host) -> anyhow::Result<Report> {
        Ok(check::check(&self.request()?, host)?)
    }
}

fn list(profile: Option<Profile>) -> anyhow::Result<ExitCode> {
    let out = &mut io::stdout().lock();
    let Some(profile) = profile else {
        let rows: Vec<Vec<String>> = Profile::ALL
            .iter()
            .map(|profile| {
                let path = profile.path();
                let knobs = knobs::ALL.iter().filter(|knob| knob.is_in(*profile)).count();
                vec![
                    profile.to_string(),
                    path.rate.to_string(),
                    path.rtt.to_string(),
                    path.lanes.to_string(),
                    knobs.to_string(),
                    profile.purpose().to_owned(),
                ]
            })
            .collect();
        write_table(out, &["PROFILE", "RATE", "RTT", "LANES", "KNOBS", "FOR"], &rows)?;
        writeln!(
            out,
            "\nRate, round trip and lanes are defaults: --rate, --rtt and --lanes replace them."
        )?;
        writeln!(
            out,
            "`longhaul tune list PROFILE` shows its knobs, docs/tuning.md explains each."
        )?;
        return Ok(ExitCode::SUCCESS);
    };
    writeln!(out, "{profile}: {}\n", profile.purpose())?;
    for knob in knobs::ALL.iter().filter(|knob| knob.is_in(profile)) {
        writeln!(out, "{} ({})", knob.name, knob.severity)?;
        wrap(out, "    ", knob.what, COLUMNS)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_report(out: &mut dyn Write, report: &Report, verbose: bool) -> anyhow::Result<()> {
    writeln!(out, "{}\n", heading(report))?;
    let rows: Vec<Vec<String>> = report.findings.iter().flat_map(rows).collect();
    write_table(out, &["STATE", "KNOB", "VALUE", "WANTED", "SEVERITY"], &rows)?;
    writeln!(out)?;
    for finding in &report.findings {
        let told = verbose || !matches!(finding.state, State::Good | State::Absent(_));
        if told {
            explain(out, finding, verbose)?;
        }
    }
    if !verbose {
        let absent = |finding: &&Finding| matches!(finding.state, State::Absent(_));
        for finding in report.findings.iter().filter(absent) {
            let reason = finding.state.reason().unwrap_or_default();
            wrap(out, "", &format!("{}, absent: {reason}", finding.knob), COLUMNS)?;
        }
    }
    if verbose || report.findings.iter().any(|finding| finding.state != State::Good) {
        writeln!(out)?;
    }
    writeln!(out, "{}", verdict(report))?;
    Ok(())
}

fn heading(report: &Report) -> String {
    let rate = report.rate_bits as f64 / 1e9;
    let rtt = report.rtt_us as f64 / 1e3;
    format!(
        "{}: {rate} Gbit/s, {rtt} ms, {} lanes; {} under way when the path is full",
        report.profile,
        report.lanes,
        knobs::human(report.bdp_bytes)
    )
}

fn verdict(report: &Report) -> String {
    let count =
        |word: &str| report.findings.iter().filter(|finding| finding.state.word() == word).count();
    if report.well {
        return format!(
            "All is well ({} knobs, {} absent).",
            report.findings.len(),
            count("absent")
        );
    }
    let mut text = format!(
        "{} wrong, {} wrong but not to be set here, {} unclear.",
        count("wrong"),
        count("fixed"),
        count("unclear")
    );
    if count("wrong") > 0 {
        text.push_str(&format!(
            "\n`longhaul tune diff {0}` shows what `longhaul tune apply {0}` would change.",
            report.profile
        ));
    }
    text
}

/// A row for each value of a knob; queues and processors that are alike share one.
fn rows(finding: &Finding) -> Vec<Vec<String>> {
    let row = |state: &State, value: &str, wanted: &str| {
        vec![
            state.word().to_owned(),
            finding.knob.to_owned(),
            cut(value),
            cut(wanted),
            finding.severity.to_string(),
        ]
    };
    if finding.readings.is_empty() {
        return vec![row(&finding.state, "-", "-")];
    }
    alike(&finding.readings)
        .into_iter()
        .map(|(reading, count)| {
            let value = reading.value.as_deref().unwrap_or("-");
            let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
            row(&reading.state, &format!("{value}{times}"), &reading.wanted)
        })
        .collect()
}

/// Readings that show the same, with their number.
fn alike(readings: &[Reading]) -> Vec<(&Reading, usize)> {
    let mut groups: Vec<(&Reading, usize)> = Vec::new();
    for reading in readings {
        let same = |(other, _): &&mut (&Reading, usize)| {
            other.value == reading.value
                && other.wanted == reading.wanted
                && other.state == reading.state
        };
        match groups.iter_mut().find(same) {
            Some((_, count)) => *count += 1,
            None => groups.push((reading, 1)),
        }
    }
    groups
}

fn cut(text: &str) -> String {
    if text.chars().count() <= CELL {
        return text.to_owned();
    }
    text.chars().take(CELL - 3).chain("...".chars()).collect()
}

fn explain(out: &mut dyn Write, finding: &Finding, verbose: bool) -> anyhow::Result<()> {
    writeln!(out, "{}: {}", finding.knob, finding.state.word())?;
    let mut line = |name: &str, text: &str| {
        if text.is_empty() {
            Ok(())
        } else {
            wrap(out, "    ", &format!("{name}: {text}"), COLUMNS)
        }
    };
    for (reading, _) in alike(&finding.readings) {
        if verbose || reading.state != State::Good {
            let value = reading.value.as_deref().unwrap_or("-");
            line(&reading.place, &format!("{value}, wanted {}", reading.wanted))?;
            line("computed", &reading.formula)?;
            line("here", reading.state.reason().unwrap_or_default())?;
        }
    }
    if finding.readings.is_empty() {
        line("here", finding.state.reason().unwrap_or_default())?;
    }
    if verbose {
        line("does", finding.what)?;
    }
    line("why", finding.why)?;
    if verbose {
        line("harms", finding.harms)?;
        line("source", finding.source)?;
    }
    Ok(())
}

fn diff(report: &Report) -> anyhow::Result<ExitCode> {
    let out = &mut io::stdout().lock();
    let mut any = false;
    for (finding, reading) in wrong(report) {
        let Some((before, after)) = reading.change() else { continue };
        if !any {
            writeln!(out, "--- this host\n+++ {}", report.profile)?;
        }
        any = true;
        writeln!(out, "@@ {} @@", finding.knob)?;
        writeln!(out, "-{} = {before}\n+{} = {after}", reading.place, reading.place)?;
    }
    if !any {
        writeln!(out, "apply {} would change nothing", report.profile)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn wrong(report: &Report) -> impl Iterator<Item = (&Finding, &Reading)> {
    report.findings.iter().flat_map(|finding| {
        let wrong = |reading: &&Reading| reading.state == State::Wrong;
        finding.readings.iter().filter(wrong).map(move |reading| (finding, reading))
    })
}

fn apply(target: &Target, state: &Path, host: &Host) -> anyhow::Result<ExitCode> {
    let report = target.report(host)?;
    let count = wrong(&report).count();
    if count == 0 {
        writeln!(io::stdout(), "nothing to change")?;
        return Ok(ExitCode::SUCCESS);
    }
    must_be_root("apply")?;
    match apply::apply(&report, host, state, &mut say)? {
        Applied::All => {}
        Applied::Part => {
            complain("not everything was taken; `longhaul tune rollback` takes back what was");
            return Ok(ExitCode::from(1));
        }
        Applied::Nothing => {
            complain("nothing was taken, everything is as it was");
            return Ok(ExitCode::from(1));
        }
    }
    writeln!(
        io::stdout(),
        "\n{count} changed, until the host restarts. What was before is in {}: `longhaul tune rollback`\n\
         brings it back; `longhaul tune render` writes files that last.",
        state.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

fn rollback(state: &Path, force: bool, forget: bool, host: &Host) -> anyhow::Result<ExitCode> {
    let out = &mut io::stdout();
    if !state.exists() {
        writeln!(out, "nothing is applied: there is no {}", state.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    must_be_root("rollback")?;
    if forget {
        apply::forget(host, state)?;
        writeln!(out, "forgotten: everything stays as it is now")?;
        return Ok(ExitCode::SUCCESS);
    }
    match apply::rollback(host, state, force, &mut say)? {
        Rollback::Nothing { restarted: true } => {
            writeln!(out, "the host has restarted since: what was applied is gone with that")?;
        }
        Rollback::Nothing { restarted: false } => writeln!(out, "nothing is applied")?,
        Rollback::Complete => writeln!(out, "\nall is as it was before")?,
        Rollback::Partial => {
            complain(
                "not everything is as before. --force also brings back what somebody else changed, \
                 --forget keeps it all as it is",
            );
            return Ok(ExitCode::from(1));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn must_be_root(verb: &str) -> anyhow::Result<()> {
    if !tuning::host::is_root() {
        bail!(
            "{verb} changes the host and needs root: run it with sudo. `longhaul tune diff` shows what it would \
             change, `longhaul tune render --format shell` writes it down for somebody who may"
        );
    }
    Ok(())
}

/// Tells of a change once it is made. A reader that is gone does not stop the work half way.
fn say(progress: Progress) {
    let Progress { knob, place, outcome } = progress;
    let text = match outcome {
        Outcome::Done { before, after } => format!("{place}: {before} -> {after}"),
        Outcome::Already => format!("{place}: is as before"),
        Outcome::Refused(reason) => format!("{place}: {reason}"),
        Outcome::Changed { left, now, before } => {
            format!(
                "{place}: left alone, somebody changed it from {left} to {now} (before: {before})"
            )
        }
    };
    let _ = writeln!(io::stdout(), "{knob}  {text}");
}

fn render(target: &Target, format: &str, host: &Host) -> anyhow::Result<ExitCode> {
    let text = if format == "source" {
        source::advice(&target.request()?.path)
    } else {
        let format: Format = format.parse()?;
        let path = target.request()?.path;
        let command = format!(
            "longhaul tune render {} --rate {} --rtt {} --lanes {} --format {format}",
            target.profile,
            path.rate.to_string().replace(' ', ""),
            path.rtt.to_string().replace(' ', ""),
            path.lanes
        );
        render::render(&target.report(host)?, format, &command)
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
