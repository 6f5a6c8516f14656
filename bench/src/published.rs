//! The published set: every benchmark one after another, each as a user would run it, with an index.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::node::MakeCommand;
use crate::peers::{Foreign, PeerError};
use crate::report;
use crate::run::{self, Run};

/// How often it is looked whether a benchmark has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `longhaul` program.
    pub program: PathBuf,
    /// Where results go.
    pub out: PathBuf,
    /// Runs of each subject.
    pub repeats: u32,
    /// Seconds instead of hours: whether everything works, not how fast.
    pub short: bool,
    /// Passed on.
    pub with_kafka: bool,
    /// Passed on.
    pub with_mirror_maker: bool,
    /// Passed on, if given.
    pub cache: Option<PathBuf>,
    /// Where the benchmarks have their files, removed again.
    pub directory: PathBuf,
}

/// How one of them ended.
#[derive(Debug)]
pub struct Entry {
    /// The subcommand.
    pub bench: &'static str,
    /// The command line.
    pub command: String,
    /// What it left, if it left results.
    pub run: Option<Run>,
    /// Whether everything was measured.
    pub complete: bool,
    /// Its last words.
    pub words: String,
}

/// A benchmark's name, and what it is told beside what all are told.
type Told = (&'static str, &'static [&'static str]);

/// As published: where nothing is told, the defaults are.
const LONG: [Told; 7] = [
    ("landing", &[]),
    ("peers", &[]),
    ("serve", &[]),
    ("recover", &[]),
    ("scale", &[]),
    ("lag", &[]),
    ("wan", &[]),
];
const SHORT: [Told; 7] = [
    ("landing", &["--size", "64MiB"]),
    ("peers", &["--size", "16MiB", "--partitions", "2"]),
    ("serve", &["--size", "16MiB", "--partitions", "2", "--consumers", "2"]),
    ("recover", &["--size", "16MiB", "--partitions", "2", "--load", "2MB"]),
    ("scale", &["--partitions", "100", "--seconds", "1"]),
    (
        "lag",
        &["--rtt", "10ms", "--rate", "50M", "--load", "1MB", "--partitions", "2", "--seconds", "2"],
    ),
    (
        "wan",
        &["--rtt", "10ms", "--rate", "50M", "--loss", "0", "--partitions", "2", "--seconds", "2"],
    ),
];
/// Those that run a real Kafka, and those that run MirrorMaker 2 too.
const WITH_KAFKA: [&str; 5] = ["peers", "serve", "recover", "lag", "wan"];
const WITH_MIRROR_MAKER: [&str; 3] = ["peers", "lag", "wan"];

/// Runs all of them until the operator ends it, and writes the index after each. `say` hears their
/// progress.
///
/// # Errors
/// When the results cannot be written. What a benchmark cannot do is noted, and the others go on.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Entry>, PeerError> {
    let _place = run::Place::take(&options.out, "all")
        .map_err(|error| PeerError::Failed(error.to_string()))?;
    let set = if options.short { &SHORT } else { &LONG };
    let mut entries = Vec::new();
    for (bench, told) in set {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let arguments = arguments(options, bench, told);
        say(&format!("longhaul {}", arguments.join(" ")));
        entries.push(measure(options, bench, &arguments, stop, say)?);
        write_index(&options.out, &entries, set)?;
    }
    Ok(entries)
}

fn arguments(options: &Options, bench: &str, told: &[&str]) -> Vec<String> {
    let mut all = vec!["bench".to_owned(), bench.to_owned()];
    all.extend(told.iter().map(|word| (*word).to_owned()));
    all.extend(["--repeats".to_owned(), options.repeats.to_string()]);
    if options.with_kafka && WITH_KAFKA.contains(&bench) {
        all.push("--with-kafka".to_owned());
    }
    if options.with_mirror_maker && WITH_MIRROR_MAKER.contains(&bench) {
        all.push("--with-mm2".to_owned());
    }
    if let Some(cache) = options.cache.as_ref().filter(|_| WITH_KAFKA.contains(&bench)) {
        all.extend(["--cache".to_owned(), cache.display().to_string()]);
    }
    if options.directory != std::env::temp_dir() {
        all.extend(["--directory".to_owned(), options.directory.display().to_string()]);
    }
    all.extend(["--out".to_owned(), options.out.display().to_string()]);
    all
}

fn measure(
    options: &Options,
    bench: &'static str,
    arguments: &[String],
    stop: &AtomicBool,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Entry, PeerError> {
    let began_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let plain: MakeCommand = Arc::new(|program: &Path| Command::new(program));
    let mut command = Foreign::command(&plain, &options.program.display().to_string());
    command.args(arguments).stderr(Stdio::piped());
    let mut child = Foreign::start(bench, command, None)?;
    let errors = child.take_errors();
    let mut words = String::new();
    std::thread::scope(|scope| {
        let listening = scope.spawn(|| {
            let mut last = String::new();
            for line in errors.into_iter().flat_map(|errors| BufReader::new(errors).lines()) {
                let Ok(line) = line else { break };
                last = line.strip_prefix("longhaul: ").unwrap_or(&line).to_owned();
                say(&last);
            }
            last
        });
        let status = wait(&mut child, stop);
        words = listening.join().unwrap_or_default();
        status
    })?;
    let file = options.out.join(format!("{bench}.json"));
    // What an earlier command left there is not this one's result.
    let run = run::read(&file).ok().filter(|run| u128::from(run.started_ms) >= began_ms);
    let command = format!("longhaul {}", arguments.join(" "));
    let complete = run.as_ref().is_some_and(Run::complete);
    Ok(Entry { bench, command, complete, run, words })
}

/// Waits for a benchmark's end. The operator's wish to end is passed on once; it then keeps what it has
/// and cleans up, which may take a while.
fn wait(child: &mut Foreign, stop: &AtomicBool) -> Result<ExitStatus, PeerError> {
    let mut told = false;
    loop {
        if let Some(status) = child.ended()? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) && !told {
            child.terminate();
            told = true;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// `index.md` for people and programs, `index.html` with everything on one page.
fn write_index(out: &Path, entries: &[Entry], set: &[Told]) -> Result<(), PeerError> {
    let mut text = "# Longhaul's benchmarks\n".to_owned();
    for entry in entries {
        text.push_str(&entry.section(out));
    }
    let missing: Vec<&str> = set.iter().skip(entries.len()).map(|(bench, _)| *bench).collect();
    if !missing.is_empty() {
        text.push_str(&format!("\nNot run: {}.\n", missing.join(", ")));
    }
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).map_err(PeerError::io(format!("write {}", path.display())))
    };
    write("index.md", &text)?;
    let runs: Vec<Run> = entries.iter().filter_map(|entry| entry.run.clone()).collect();
    if runs.is_empty() {
        return Ok(());
    }
    let page = report::html(&runs).map_err(|error| PeerError::Failed(error.to_string()))?;
    write("index.html", &page)
}

impl Entry {
    fn section(&self, out: &Path) -> String {
        let mut text = format!("\n## {}\n\n    {}\n\n", self.bench, self.command);
        let Some(run) = &self.run else {
            return format!("{text}No results: {}\n", self.words);
        };
        let state = match (run.interrupted, self.complete) {
            (true, _) => "Interrupted; what was measured until then",
            (_, true) => "Everything was measured",
            (_, false) => "Not everything is a result; the files say what is not and why",
        };
        let files = ["html", "json", "hlog"].map(|kind| format!("{}.{kind}", self.bench));
        let links: Vec<String> = files
            .iter()
            .filter(|name| out.join(name).exists())
            .map(|name| format!("[{name}]({name})"))
            .collect();
        text.push_str(&format!("{state}, in {:.0} s: {}.\n", run.seconds, links.join(", ")));
        text.push_str(&format!("{}.\n", run.bound_by()));
        for what in &run.left_out {
            text.push_str(&format!("Left out: {what}.\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(directory: &Path) -> Options {
        Options {
            program: PathBuf::from("/bin/false"),
            out: directory.join("out"),
            repeats: 3,
            short: false,
            with_kafka: true,
            with_mirror_maker: true,
            cache: Some(PathBuf::from("/cache")),
            directory: std::env::temp_dir(),
        }
    }

    #[test]
    fn each_is_told_what_it_understands() {
        let options = options(Path::new("/x"));
        let landing = arguments(&options, "landing", &[]).join(" ");
        assert_eq!(landing, "bench landing --repeats 3 --out /x/out");
        let serve = arguments(&options, "serve", &["--size", "1"]).join(" ");
        assert_eq!(
            serve,
            "bench serve --size 1 --repeats 3 --with-kafka --cache /cache --out /x/out"
        );
        let wan = arguments(&options, "wan", &[]).join(" ");
        assert!(wan.contains("--with-kafka --with-mm2 --cache /cache"), "{wan}");
    }

    #[test]
    fn one_that_fails_is_noted_and_the_others_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let entries = run(&options, &AtomicBool::new(false), &|_| {}).unwrap();
        assert_eq!(entries.len(), LONG.len());
        assert!(entries.iter().all(|entry| !entry.complete && entry.run.is_none()));
        let index = fs::read_to_string(options.out.join("index.md")).unwrap();
        assert!(index.contains("## wan") && index.contains("No results"), "{index}");
        let none = run(&options, &AtomicBool::new(true), &|_| {}).unwrap();
        assert!(none.is_empty());
    }
}
