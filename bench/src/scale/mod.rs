//! What many partitions cost a node: idle, with a record now and then, and at its start.
//!
//! The partitions are the synthetic source's, with one record each before anything is measured. The node
//! lives with 20,000 open files, whatever the host allows.

mod node;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::Numbers;

use crate::load::{Generator, SourceOptions, SourceProcess, Workload, compare_copy};
use crate::node::{MakeCommand, NodeProcess, NodeSetup, check_room};
use crate::run::{
    BusyWatch, CostWatch, Figure, Limit, ProcessCost, Sample, Session, Subject, SubjectError,
};

/// The question it answers.
pub const QUESTION: &str = "What do many partitions cost, idle and with a record now and then?";
/// The topic's name.
const TOPIC: &str = "many";
/// Open files the node is allowed.
pub const OPEN_FILES: u32 = 20_000;
/// Mappings a process may have on a host as it comes.
const MAPPINGS_USUAL: u32 = 65_530;
/// Bytes of a record's value.
const VALUE_BYTES: usize = 100;
/// Room for a partition's files: a block each, and the node's own.
const BYTES_PER_PARTITION: u64 = 32 << 10;
/// Files of a partition, its folder included, and one to spare.
const FILES_PER_PARTITION: u64 = 8;
/// All partitions have this long to be mirrored, and besides some for each.
const READY_MAX: Duration = Duration::from_secs(120);
const READY_MAX_EACH: Duration = Duration::from_millis(10);
/// The node is left alone before it is looked at.
const SETTLE: Duration = Duration::from_secs(6);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `longhaul` program.
    pub program: PathBuf,
    /// Numbers of partitions, each a case.
    pub partitions: Vec<u32>,
    /// Records a second over all partitions, one after the other, while it trickles.
    pub records_per_second: u32,
    /// How long the idle node, and the trickling one, are watched.
    pub window: Duration,
    /// Runs of each case.
    pub repeats: u32,
    /// Where nodes have their folders, removed again.
    pub directory: PathBuf,
}

/// Measures; the session gets a case for each number of partitions.
///
/// # Errors
/// When there is no room for the most partitions.
pub fn run(options: &Options, session: &Session) -> Result<(), SubjectError> {
    let most = options.partitions.iter().max().copied().unwrap_or(0);
    check_files(&options.directory, most)?;
    check_room(&options.directory, bytes(most))?;
    for &partitions in &options.partitions {
        if session.stopped() {
            break;
        }
        let name = format!(
            "{partitions} partitions of one record; then {} records/s over all of them",
            options.records_per_second
        );
        let mut subjects: [Box<dyn Subject + '_>; 1] = [Box::new(Many { options, partitions })];
        session.case(&name, &mut subjects, options.repeats);
    }
    Ok(())
}

/// Room that so many partitions take.
fn bytes(partitions: u32) -> u64 {
    u64::from(partitions) * BYTES_PER_PARTITION
}

/// A full disk is not only a matter of bytes.
fn check_files(directory: &Path, partitions: u32) -> Result<(), SubjectError> {
    let room = rustix::fs::statvfs(directory)
        .map_err(|error| SubjectError::failed(&format!("use {}", directory.display()), error))?;
    let needed = u64::from(partitions) * FILES_PER_PARTITION;
    // File systems without a fixed number of files say 0 of 0.
    if room.f_files == 0 || room.f_favail >= needed {
        return Ok(());
    }
    let (place, free) = (directory.display(), room.f_favail);
    Err(SubjectError::Failed(format!(
        "{place} has room for {free} more files, {needed} are needed: give --directory on another file system, or \
         fewer --partitions"
    )))
}

struct Many<'a> {
    options: &'a Options,
    partitions: u32,
}

impl Subject for Many<'_> {
    fn name(&self) -> String {
        "Longhaul".to_owned()
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let generator = Generator::new(self.workload());
        let mut source = self.start_source()?;
        let mut node = NodeProcess::start(NodeSetup {
            directory: self.options.directory.clone(),
            make_command: limited(),
            ..NodeSetup::new(&self.options.program, bytes(self.partitions))
        })?;
        let empty = Numbers::of(node.pid())?;

        let busy = BusyWatch::start(&[("node", node.pid())]);
        let began = Instant::now();
        node.mirror("scale", &source.kafka().to_string(), TOPIC, "")?;
        self.wait_ready(session, &mut node)?;
        let ready = began.elapsed();
        let limit = self.limit(&busy);

        sleep(session, SETTLE)?;
        let idle = self.watch(session, &node, &source)?;
        generator.begin(source.begin()?);
        let trickling = self.watch(session, &node, &source)?;
        let mut timed = Sample::default();
        node.add_histograms(session, &mut timed);

        let began = Instant::now();
        node.stop()?;
        let stop = began.elapsed();
        let began = Instant::now();
        node.restart()?;
        let listening = began.elapsed();
        self.wait_ready(session, &mut node)?;
        let ready_again = began.elapsed();
        sleep(session, SETTLE)?;
        let again = Numbers::of(node.pid())?;
        node.stop()?;
        drop(source);
        let checked = self.check(&generator, &node)?;

        let each = |numbers: &Numbers| numbers.memory_above(&empty) / f64::from(self.partitions);
        let figures = vec![
            Figure::new("memory each", "B", each(&idle.numbers)),
            Figure::new("memory", "MB", idle.numbers.memory as f64 / 1e6),
            Figure::new("idle CPU", "% of one", idle.cpu_share * 100.0),
            Figure::new("trickling CPU", "% of one", trickling.cpu_share * 100.0),
            Figure::new("descriptors", "", trickling.numbers.descriptors as f64),
            Figure::new("mappings", "", trickling.numbers.mappings as f64),
            Figure::new("all mirrored", "s", ready.as_secs_f64()),
            Figure::new("clean stop", "s", stop.as_secs_f64()),
            Figure::new("start listens", "s", listening.as_secs_f64()),
            Figure::new("start mirrors", "s", ready_again.as_secs_f64()),
            Figure::new("memory each, restarted", "B", each(&again)),
        ];
        Ok(Sample {
            figures,
            processes: trickling.processes,
            softirq_seconds: trickling.softirq_seconds,
            checked: Some(checked),
            limit: Some(limit),
            ..timed
        })
    }
}

/// What a node did while it was watched.
struct Watched {
    numbers: Numbers,
    cpu_share: f64,
    processes: Vec<ProcessCost>,
    softirq_seconds: f64,
}

impl Many<'_> {
    /// One record each at once, then one after the other.
    fn workload(&self) -> Workload {
        let interval = 1_000_000_000 * u64::from(self.partitions)
            / u64::from(self.options.records_per_second.max(1));
        Workload {
            topic: TOPIC.to_owned(),
            partitions: self.partitions,
            // More than any run lasts.
            records: 1 << 32,
            value_bytes: VALUE_BYTES,
            batch_records: 1,
            batch_interval_ns: Some(interval.max(1)),
            batches_at_once: 1,
        }
    }

    fn start_source(&self) -> Result<SourceProcess, SubjectError> {
        let options = SourceOptions {
            listen: std::net::Ipv4Addr::LOCALHOST.into(),
            workload: self.workload(),
            send_buffer_bytes: None,
            congestion: None,
        };
        let make: MakeCommand = Arc::new(|program| Command::new(program));
        Ok(SourceProcess::start(&*make, &self.options.program, &options)?)
    }

    /// Waits until every partition is mirrored and holds its first record. Asking costs the node something,
    /// so it is asked again only after a while.
    fn wait_ready(&self, session: &Session, node: &mut NodeProcess) -> Result<(), SubjectError> {
        let limit = READY_MAX + READY_MAX_EACH * self.partitions;
        let began = Instant::now();
        loop {
            node.check_running()?;
            let asked = Instant::now();
            let rows = node.describe()?;
            let ready = |row: &&crate::node::PartitionRow| {
                row.state == "MIRRORING" && row.destination_offset > 0
            };
            let count = rows.iter().filter(ready).count();
            if count == self.partitions as usize {
                return Ok(());
            }
            if began.elapsed() > limit {
                let wrong = rows.iter().find_map(|row| row.error_message.clone());
                return Err(SubjectError::Failed(format!(
                    "only {count} of {} partitions are mirrored after {} s: {}\n{}",
                    self.partitions,
                    limit.as_secs(),
                    wrong.unwrap_or_else(|| "no partition has a fault".to_owned()),
                    node.log_tail()
                )));
            }
            sleep(session, (4 * asked.elapsed()).max(Duration::from_millis(50)))?;
        }
    }

    fn watch(
        &self,
        session: &Session,
        node: &NodeProcess,
        source: &SourceProcess,
    ) -> Result<Watched, SubjectError> {
        let costs = CostWatch::start(&[("node", node.pid()), ("source", source.pid())]);
        let began = Instant::now();
        sleep(session, self.options.window)?;
        let (processes, seconds) = (costs.costs(), began.elapsed().as_secs_f64());
        let numbers = Numbers::of(node.pid())?;
        if numbers.mappings > MAPPINGS_USUAL as usize {
            let mappings = numbers.mappings;
            return Err(SubjectError::Failed(format!(
                "the node has {mappings} mappings, and a host as it comes allows {MAPPINGS_USUAL}"
            )));
        }
        let cpu_share = processes.first().map_or(0.0, ProcessCost::seconds) / seconds;
        Ok(Watched { numbers, cpu_share, processes, softirq_seconds: costs.softirq_seconds() })
    }

    /// Compares what the node holds, to the last byte.
    fn check(&self, generator: &Generator, node: &NodeProcess) -> Result<String, SubjectError> {
        let copied = compare_copy(generator, &node.data()).map_err(SubjectError::Failed)?;
        let batch = generator.batch_bytes() as u64;
        let records = copied.bytes / batch;
        // While it trickled, and not beyond: those of the last moments may still have been on their way.
        let trickled = self.options.window.as_secs() * u64::from(self.options.records_per_second);
        let least = u64::from(self.partitions) + trickled / 2;
        if records < least {
            return Err(SubjectError::Failed(format!(
                "the node holds {records} records, and {least} at least came"
            )));
        }
        Ok(format!("all {records} records it holds, every byte, in {} partitions", self.partitions))
    }

    /// What bound the time until all were mirrored.
    fn limit(&self, busy: &BusyWatch) -> Limit {
        let limit = busy.limit(&[]);
        Limit::new(limit.by, format!("until all were mirrored: {}", limit.evidence))
    }
}

/// Starts a program with few open files, as a host gives them that was not asked for more.
fn limited() -> MakeCommand {
    Arc::new(|program| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={OPEN_FILES}:{OPEN_FILES}")).arg("--").arg(program);
        command
    })
}

/// Sleeps, unless the operator ends the benchmark.
fn sleep(session: &Session, time: Duration) -> Result<(), SubjectError> {
    let until = Instant::now() + time;
    while let Some(rest) = until.checked_duration_since(Instant::now()) {
        if session.stopped() {
            return Err(SubjectError::Interrupted);
        }
        std::thread::sleep(rest.min(Duration::from_millis(100)));
    }
    Ok(())
}
