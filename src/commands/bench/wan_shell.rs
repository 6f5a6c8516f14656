//! `longhaul bench wan-shell` and `wan-set`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bench::wan::{self, PathSettings, Side, WanPath};
use clap::{Args, Parser, ValueEnum};

use super::path_arguments::PathArguments;
use crate::commands::complain;

/// How long a server of `--with` may take until it listens: a Kafka takes half a minute on a busy machine.
const LISTENS_WITHIN: Duration = Duration::from_secs(120);
const LISTENS_POLL: Duration = Duration::from_millis(20);
/// Where `wan-set` finds the path.
const CONTROL: &str = "LONGHAUL_WAN_CONTROL";

/// Run any program over an emulated WAN: a shell, or a command, on either side of it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench wan-shell --rtt 100ms --rate 1G --loss 0.1%
  longhaul bench wan-shell --rtt 100ms --rate 1G --with 'iperf3 -s' --with-port 5201 -- \\
      sh -c 'iperf3 -c $LONGHAUL_WAN_DESTINATION -t 10'
  longhaul bench wan-set --loss 1%      in that shell, or with --control elsewhere: another loss from now on
  longhaul bench wan-set --down         the link swallows everything, until --up

The two sides are network namespaces that nothing else is in: servers that the command is to reach must run there too,
on the same side or, with --with, on the other. Files are the same as outside. The environment has the addresses of the
sides in LONGHAUL_WAN_SOURCE and LONGHAUL_WAN_DESTINATION (IPv6: with _V6 behind). Everything that runs on either side
ends with this command. Needs root, or unprivileged user namespaces and a /dev/net/tun that all may use.

The report at the end goes to standard error, with --json to standard output. It says whether the machine kept up; if
not, what was measured is no result. Exit code: the command's; 128 and the signal's number if a signal ended it; 127
if there is no such command, 126 if it cannot be run.")]
pub(crate) struct WanShell {
    /// Where the command runs
    #[arg(long, value_enum, default_value = "source")]
    side: SideArgument,
    /// A shell line that runs on the other side, in the background; what it prints goes to standard error
    #[arg(long, value_name = "LINE")]
    with: Option<String>,
    /// Begin when it listens on this TCP port
    #[arg(long, value_name = "PORT", requires = "with")]
    with_port: Option<u16>,
    /// Print the report as JSON, to standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    path: PathArguments,
    /// The command and its arguments; without one, a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Change a path while something runs on it, or see its numbers
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longhaul bench wan-set --loss 1% --rtt 200ms
  longhaul bench wan-set --down ; sleep 3 ; longhaul bench wan-set --up
  longhaul bench wan-set                prints the path and its report so far")]
pub(crate) struct WanSet {
    /// The path's control socket; in a wan-shell it is known from the environment
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    #[command(flatten)]
    path: PathArguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SideArgument {
    Source,
    Destination,
}

/// A request to the control socket: the options of `wan-set`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Request {
    #[arg(long, hide = true)]
    control: Option<PathBuf>,
    #[command(flatten)]
    path: PathArguments,
}

impl WanShell {
    /// Runs the command to its end.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut settings = PathSettings::default();
        self.path.apply(&mut settings)?;
        wan::become_root_of_own_namespace()?;
        let path = Arc::new(WanPath::open(&settings)?);
        let control = path.control(answer)?;
        wan::leave_interrupts_to_children().context("cannot leave Ctrl-C to the command")?;
        let side = match self.side {
            SideArgument::Source => Side::Source,
            SideArgument::Destination => Side::Destination,
        };
        let mut server = match &self.with {
            Some(line) => Some(self.start_server(&path, side.other(), line, control.socket())?),
            None => None,
        };
        if let (Some(server), Some(port)) = (&mut server, self.with_port) {
            wait_until_listening(&path, side.other(), port, server)?;
        }
        path.restart_counts()?;
        let mut command = self.command(&path, side, control.socket());
        // A shell takes no notice of SIGTERM; without a command that signal ends this program, and all with it.
        let passes = !self.command.is_empty();
        if passes {
            wan::pass_signals_to(None)?;
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(not_run(command.get_program(), &error)),
        };
        if passes {
            wan::pass_signals_to(Some(child.id()))?;
        }
        let status = child.wait()?;
        if passes {
            wan::pass_signals_to(None)?;
        }
        let report = path.report()?;
        if self.json {
            let mut out = io::stdout().lock();
            serde_json::to_writer_pretty(&mut out, &report)?;
            writeln!(out)?;
        } else {
            writeln!(io::stderr(), "{report}")?;
        }
        drop(control);
        Ok(exit_code(status))
    }

    fn start_server(
        &self,
        path: &WanPath,
        side: Side,
        line: &str,
        control: &Path,
    ) -> anyhow::Result<Child> {
        let mut command = path.command(side, "/bin/sh");
        command
            .args(["-c", line])
            .envs(environment(path, control))
            .stdin(Stdio::null())
            .stdout(io::stderr());
        command.spawn().context("cannot start the command of --with")
    }

    /// The command to run, or a shell.
    fn command(&self, path: &WanPath, side: Side, control: &Path) -> Command {
        let shell = || {
            std::env::var_os("SHELL")
                .filter(|shell| !shell.is_empty())
                .unwrap_or_else(|| "/bin/sh".into())
        };
        let (program, arguments) = match self.command.split_first() {
            Some((program, arguments)) => (program.clone(), arguments),
            None => {
                let (here, there) = (path.address(side), path.address(side.other()));
                complain(&format!(
                    "a shell at {here}; the other side is {there}; exit ends the path"
                ));
                (shell(), &[][..])
            }
        };
        let mut command = path.command(side, &program);
        command.args(arguments).envs(environment(path, control));
        command
    }
}

impl WanSet {
    /// Sends the options to the path.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(control) = self.control.or_else(|| std::env::var_os(CONTROL).map(PathBuf::from))
        else {
            bail!(
                "this is not a wan-shell ({CONTROL} is not set); name the path's socket with --control"
            );
        };
        // The words as they were given: what they mean depends on how the path is now, which it knows.
        let words: Vec<String> =
            std::env::args().skip_while(|word| word != "wan-set").skip(1).collect();
        match wan::ask(&control, &words)? {
            Ok(text) => writeln!(io::stdout(), "{text}")?,
            Err(sentence) => bail!(sentence),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Changes the path as asked, and tells how it is.
fn answer(path: &WanPath, words: Vec<String>) -> Result<String, String> {
    let sentence = |error: &dyn std::fmt::Display| error.to_string();
    let request = Request::try_parse_from(&words).map_err(|error| sentence(&error))?;
    let before = path.settings();
    let mut settings = before.clone();
    request.path.apply(&mut settings).map_err(|error| sentence(&error))?;
    if settings == before {
        return path.report().map(|report| report.to_string()).map_err(|error| sentence(&error));
    }
    path.change(&settings).map_err(|error| sentence(&error))?;
    Ok(format!("path      {settings}"))
}

fn environment(path: &WanPath, control: &Path) -> [(&'static str, OsString); 5] {
    let text = |address: std::net::IpAddr| OsString::from(address.to_string());
    [
        ("LONGHAUL_WAN_SOURCE", text(path.address(Side::Source))),
        ("LONGHAUL_WAN_SOURCE_V6", text(path.address_v6(Side::Source))),
        ("LONGHAUL_WAN_DESTINATION", text(path.address(Side::Destination))),
        ("LONGHAUL_WAN_DESTINATION_V6", text(path.address_v6(Side::Destination))),
        (CONTROL, control.into()),
    ]
}

/// Asks the kernel, not the server: a connection to try would be its first client.
fn wait_until_listening(
    path: &WanPath,
    side: Side,
    port: u16,
    server: &mut Child,
) -> anyhow::Result<()> {
    let give_up = Instant::now() + LISTENS_WITHIN;
    while !path.is_listening(side, port)? {
        if let Some(status) = server.try_wait()? {
            bail!("the command of --with ended ({status}) before it listened on port {port}");
        }
        if Instant::now() > give_up {
            bail!("the command of --with does not listen on port {port} after {LISTENS_WITHIN:?}");
        }
        thread::sleep(LISTENS_POLL);
    }
    Ok(())
}

/// Says why a command cannot be run; the exit code is the one that a shell has for it.
fn not_run(program: &OsStr, error: &io::Error) -> ExitCode {
    let is_there = error.kind() != io::ErrorKind::NotFound;
    let remedy = if is_there {
        "name a program that this user may run"
    } else {
        "name a program by its path, or one that is in PATH"
    };
    complain(&format!("cannot run {}: {error}; {remedy}", program.display()));
    ExitCode::from(if is_there { 126 } else { 127 })
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
