//! A node as a subject: it mirrors the synthetic source from the beginning.

use super::TOPIC;
use super::case::{Case, PATH, SOURCE, Spent};
use super::limit::Flows;
use crate::clock::monotonic_ns;
use crate::ends::EndOffsets;
use crate::load::{Generator, compare_copy};
use crate::node::{NodeProcess, NodeSetup};
use crate::run::{LimitKind, Sample, Session, Subject, SubjectError};

/// The node's name in the costs.
const NODE: &str = "longhaul node";

pub(super) struct Longhaul<'a> {
    pub(super) case: &'a Case<'a>,
}

impl Subject for Longhaul<'_> {
    fn name(&self) -> String {
        "Longhaul".to_owned()
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let case = self.case;
        let ground = case.open()?;
        let generator = Generator::new(case.workload());
        let mut source = case.start_source(&ground, case.workload())?;
        let mut node = NodeProcess::start(NodeSetup {
            host: ground.mirror_host(),
            directory: case.options.directory.clone(),
            make_command: ground.mirror_command(),
            ..NodeSetup::new(&case.options.program, generator.total_bytes())
        })?;
        let lost = |error| SubjectError::failed("ask the node how far it is", error);
        let stream = ground.connect(node.address())?;
        let mut ends = EndOffsets::new(stream, TOPIC, case.partitions).map_err(lost)?;
        let watched = [(NODE, node.pid()), (SOURCE, source.pid()), (PATH, std::process::id())];
        node.mirror("catch-up", &source.kafka().to_string(), TOPIC, "")?;

        let batch_records = i64::from(generator.workload().batch_records);
        let batch_bytes = generator.batch_bytes() as u64;
        let first_ns = case.wait_for_source(session, &mut source)?;
        let spent = Spent::begin(&watched);
        let progress = case.follow(session, first_ns, generator.total_bytes(), || {
            node.check_running()?;
            let ends = ends.read().map_err(lost)?;
            let batches: i64 = ends.iter().map(|end| end / batch_records).sum();
            Ok((monotonic_ns(), batches.cast_unsigned() * batch_bytes))
        })?;

        let report = source.report()?;
        let flows = Flows::of(&report);
        let bounds = [(NODE, LimitKind::Cpu), (SOURCE, LimitKind::Source), (PATH, LimitKind::Cpu)];
        let mut sample = case.sample(&bounds, &progress, &spent, &flows, &ground)?;
        case.flows.set(u32::try_from(flows.count()).ok());
        node.add_histograms(session, &mut sample);
        node.stop()?;
        let copied = compare_copy(&generator, &node.data()).map_err(SubjectError::Failed)?;
        if copied.bytes < progress.bytes() {
            return Err(SubjectError::Failed(format!(
                "the node showed {} bytes and has {} in its files after a clean stop",
                progress.bytes(),
                copied.bytes
            )));
        }
        sample.checked = Some(format!("all {} bytes of the mirror's files", copied.bytes));
        Ok(sample)
    }
}
