//! A node as a subject: the tail of a mirror, of the synthetic source or of a real broker.

use std::time::{Duration, Instant};

use super::consumer::Copy;
use super::kafka::KafkaSource;
use super::live::{LOOK, Live, Mirror};
use super::{Options, TOPIC};
use crate::ground::Ground;
use crate::load::{Workload, compare_copy};
use crate::node::{NodeProcess, NodeSetup};
use crate::peers::compare;
use crate::run::{Sample, Session, Subject, SubjectError};

/// The mirror has this long to reach the end of its empty topic.
const TAIL_MAX: Duration = Duration::from_secs(60);
/// Names in the costs.
const NODE: &str = "longhaul node";
const SOURCE: &str = "synthetic source";
/// This process: the consumer and, if there is one, the emulated path.
pub(super) const OWN: &str = "consumer and path";

/// From the synthetic source.
pub(super) struct Longhaul<'a> {
    pub(super) options: &'a Options,
    pub(super) workload: &'a Workload,
}

/// From a real broker.
pub(super) struct LonghaulFromKafka<'a> {
    pub(super) options: &'a Options,
    pub(super) source: &'a KafkaSource,
}

impl Subject for Longhaul<'_> {
    fn name(&self) -> String {
        "Longhaul".to_owned()
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let ground = Ground::open(&self.options.ground)?;
        let mut live = Live::prepare(self.options, self.workload.clone(), &ground)?;
        let generator = live.generator().clone();
        let mut node = start_node(self.options, &ground, generator.total_bytes())?;
        node.mirror("lag", &live.source().kafka().to_string(), TOPIC, "")?;
        wait_for_tail(session, &node, self.workload.partitions)?;
        let mirror = Mirror {
            address: node.address(),
            topic: TOPIC,
            copy: Copy::Exact,
            processes: &[
                (NODE, node.pid()),
                (SOURCE, live.source().pid()),
                (OWN, std::process::id()),
            ],
        };
        let mut sample = live.run(session, &mirror, || Ok(node.check_running()?))?;
        node.add_histograms(session, &mut sample);
        node.stop()?;
        let copied = compare_copy(&generator, &node.data()).map_err(SubjectError::Failed)?;
        if copied.bytes != generator.total_bytes() || sample.bytes != copied.bytes {
            return Err(SubjectError::Failed(format!(
                "the source has {} bytes, the consumer read {}, the mirror's files hold {}",
                generator.total_bytes(),
                sample.bytes,
                copied.bytes
            )));
        }
        let checked = Some("every byte that the consumer read, and the mirror's files".to_owned());
        Ok(Sample { checked, ..sample })
    }
}

impl Subject for LonghaulFromKafka<'_> {
    fn name(&self) -> String {
        "Longhaul, from a real Kafka".to_owned()
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let (options, source) = (self.options, self.source);
        let workload = source.new_topic(session)?;
        let (topic, partitions) = (workload.topic.clone(), workload.partitions);
        let mut live = Live::prepare(options, workload, &source.ground)?;
        live.source().produce(source.broker.address())?;
        let mut node = start_node(options, &source.ground, live.generator().total_bytes())?;
        node.mirror("lag", &source.broker.address().to_string(), &topic, "")?;
        wait_for_tail(session, &node, partitions)?;
        let mirror = Mirror {
            address: node.address(),
            topic: &topic,
            copy: Copy::Exact,
            processes: &[
                (NODE, node.pid()),
                ("source broker", source.broker.pid()),
                ("producer", live.source().pid()),
                (OWN, std::process::id()),
            ],
        };
        let mut sample = live.run(session, &mirror, || Ok(node.check_running()?))?;
        node.add_histograms(session, &mut sample);
        node.stop()?;
        let bytes = compare(&source.broker.data(), &node.data(), &topic).map_err(|words| {
            SubjectError::Failed(format!("the mirror is not the source's: {words}"))
        })?;
        let checked = Some(format!("all {bytes} bytes equal the broker's .log files"));
        Ok(Sample { checked, ..sample })
    }
}

fn start_node(options: &Options, ground: &Ground, bytes: u64) -> Result<NodeProcess, SubjectError> {
    Ok(NodeProcess::start(NodeSetup {
        host: ground.mirror_host(),
        directory: options.directory.clone(),
        make_command: ground.mirror_command(),
        ..NodeSetup::new(&options.program, bytes)
    })?)
}

fn wait_for_tail(
    session: &Session,
    node: &NodeProcess,
    partitions: u32,
) -> Result<(), SubjectError> {
    let deadline = Instant::now() + TAIL_MAX;
    loop {
        if session.stopped() {
            return Err(SubjectError::Interrupted);
        }
        let rows = node.describe()?;
        let at_tail = rows.iter().filter(|row| row.state == "MIRRORING").count();
        if at_tail == partitions as usize {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(SubjectError::Failed(format!(
                "only {at_tail} of {partitions} partitions are mirrored after {} s; the node's last words:\n{}",
                TAIL_MAX.as_secs(),
                node.log_tail()
            )));
        }
        std::thread::sleep(LOOK);
    }
}
