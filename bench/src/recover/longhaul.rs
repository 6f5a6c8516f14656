//! A node that is killed while it mirrors the synthetic source's live load.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Back, Condition, LOOK_INTERVAL, TOPIC, UNDER_LOAD, VALUE_BYTES, connect};
use crate::clock::monotonic_ns;
use crate::ends::EndOffsets;
use crate::load::{Generator, SourceOptions, SourceProcess, Workload, compare_copy};
use crate::node::{NodeProcess, NodeSetup};
use crate::run::{
    BusyWatch, CostWatch, Figure, ProcessCost, Sample, Session, Subject, SubjectError,
};

/// Records of a live batch: small, so that growing is soon seen.
const BATCH_RECORDS: u32 = 8;
/// It has this long for a GB before the kill, and again to come up to the source after it.
const GIGABYTE_MAX: Duration = Duration::from_secs(120);

pub(super) struct Recovers<'a> {
    pub(super) case: Condition<'a>,
}

impl Subject for Recovers<'_> {
    fn name(&self) -> String {
        "Longhaul".to_owned()
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let generator = Generator::new(self.workload());
        let options = &self.case.options;
        let mut source = SourceProcess::start(
            &|program: &Path| Command::new(program),
            &options.program,
            &SourceOptions {
                listen: Ipv4Addr::LOCALHOST.into(),
                workload: self.workload(),
                send_buffer_bytes: None,
                congestion: None,
            },
        )?;
        let mut node = NodeProcess::start(NodeSetup {
            directory: options.directory.clone(),
            ..NodeSetup::new(&options.program, self.case.size_bytes)
        })?;
        node.mirror("recover", &source.kafka().to_string(), TOPIC, "")?;
        self.wait_for(session, &mut node, &generator)?;
        generator.begin(source.begin()?);
        std::thread::sleep(UNDER_LOAD);

        let killed = Instant::now();
        node.kill()?;
        node.restart()?;
        let busy = BusyWatch::start(&[("node", node.pid())]);
        let (address, partitions) = (node.address(), self.case.partitions);
        let back = Back::watch(session, address, partitions, killed, || Ok(node.check_running()?))?;
        let processes = CostWatch::of_whole_lives(&[("node", node.pid())]).costs();
        let seconds = processes.first().map_or(0.0, ProcessCost::seconds);
        let limit = back.limit(seconds, &busy);

        self.wait_for(session, &mut node, &generator)?;
        let caught_up = killed.elapsed();
        let mut timed = Sample::default();
        node.add_histograms(session, &mut timed);
        node.stop()?;
        let end_ns = monotonic_ns();
        drop(source);
        let copied = compare_copy(&generator, &node.data()).map_err(SubjectError::Failed)?;
        let most = self.bytes_by(&generator, end_ns);
        if copied.bytes > most || copied.bytes < self.bytes_by(&generator, 0) {
            let held = copied.bytes;
            return Err(SubjectError::Failed(format!(
                "it holds {held} bytes, the source had {most}"
            )));
        }
        let mut figures = back.figures();
        figures.push(Figure::new("at the source's end", "s", caught_up.as_secs_f64()));
        Ok(Sample {
            figures,
            processes,
            checked: Some(format!("all {} bytes it holds, against the source's", copied.bytes)),
            limit: Some(limit),
            ..timed
        })
    }
}

impl Recovers<'_> {
    fn workload(&self) -> Workload {
        let (partitions, load) = (u64::from(self.case.partitions), self.case.options.load_bytes);
        let batch_bytes = u64::from(BATCH_RECORDS) * u64::from(VALUE_BYTES);
        let at_once = (self.case.size_bytes / partitions / batch_bytes).max(1);
        let interval = 1e9 * (batch_bytes * partitions) as f64 / load.max(1) as f64;
        Workload {
            topic: TOPIC.to_owned(),
            partitions: self.case.partitions,
            // More than any run lasts.
            records: 1 << 40,
            value_bytes: VALUE_BYTES as usize,
            batch_records: BATCH_RECORDS,
            batch_interval_ns: Some(interval.max(1.0) as u64),
            batches_at_once: at_once,
        }
    }

    /// Waits until the node has what the source has at the moment of asking.
    fn wait_for(
        &self,
        session: &Session,
        node: &mut NodeProcess,
        generator: &Generator,
    ) -> Result<(), SubjectError> {
        let now = monotonic_ns();
        let wanted: Vec<i64> = (0..self.case.partitions)
            .map(|partition| generator.end_offset_at(partition, now))
            .collect();
        let gigabytes = u32::try_from(self.case.size_bytes >> 30).unwrap_or(u32::MAX);
        let limit = GIGABYTE_MAX * gigabytes.saturating_add(1);
        let mut ends: Option<EndOffsets> = None;
        let began = Instant::now();
        loop {
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            node.check_running()?;
            if ends.is_none() {
                ends = connect(node.address())
                    .and_then(|stream| EndOffsets::new(stream, TOPIC, self.case.partitions).ok());
            }
            // A connection that is lost is made anew.
            let read = ends.take().and_then(|mut ends| Some((ends.read().ok()?, ends)));
            if let Some((there, connection)) = read {
                if there.iter().zip(&wanted).all(|(there, wanted)| there >= wanted) {
                    return Ok(());
                }
                ends = Some(connection);
            }
            if began.elapsed() > limit {
                let (seconds, log) = (limit.as_secs(), node.log_tail());
                return Err(SubjectError::Failed(format!(
                    "the node is not at the source's end after {seconds} s: lower --load; its last words:\n{log}"
                )));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Bytes the source had at that time.
    fn bytes_by(&self, generator: &Generator, monotonic_ns: u64) -> u64 {
        let ends = (0..self.case.partitions)
            .map(|partition| generator.end_offset_at(partition, monotonic_ns).unsigned_abs());
        ends.sum::<u64>() / u64::from(BATCH_RECORDS) * generator.batch_bytes() as u64
    }
}
