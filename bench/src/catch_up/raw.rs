//! Raw TCP as a subject: the same source sends the same records as bare streams, and a receiver drops them.

use super::case::{Case, PATH, SOURCE, Spent};
use super::limit::Flows as FlowsSeen;
use super::receiver::{Receiver, ReceiverOptions};
use crate::run::{LimitKind, Sample, Session, Subject, SubjectError};

/// The receiver's name in the costs.
const RECEIVER: &str = "raw receiver";

/// How many connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flows {
    /// One.
    One,
    /// As many as Longhaul used in its last run.
    AsLonghaul,
}

pub(super) struct Raw<'a> {
    pub(super) case: &'a Case<'a>,
    pub(super) flows: Flows,
}

impl Subject for Raw<'_> {
    fn name(&self) -> String {
        match self.flows {
            Flows::One => "raw TCP, 1 flow".to_owned(),
            Flows::AsLonghaul => "raw TCP, flows as Longhaul".to_owned(),
        }
    }

    fn ours(&self) -> bool {
        false
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let case = self.case;
        let flows = match (self.flows, case.flows.get()) {
            (Flows::One, _) => 1,
            (Flows::AsLonghaul, Some(flows @ 2..)) => flows,
            (Flows::AsLonghaul, Some(_)) => {
                return Err(SubjectError::Skipped(
                    "Longhaul used one flow, see that row".to_owned(),
                ));
            }
            (Flows::AsLonghaul, None) => {
                return Err(SubjectError::Skipped(
                    "how many Longhaul uses is not known".to_owned(),
                ));
            }
        };
        let ground = case.open()?;
        let mut source = case.start_source(&ground, case.workload())?;
        let options = ReceiverOptions { from: source.raw(), flows, bytes: case.bytes() };
        let mut receiver =
            Receiver::start(&*ground.mirror_command(), &case.options.program, &options)?;
        let watched =
            [(RECEIVER, receiver.pid()), (SOURCE, source.pid()), (PATH, std::process::id())];
        let first_ns = case.wait_for_source(session, &mut source)?;
        let spent = Spent::begin(&watched);
        let progress = case.follow(session, first_ns, case.bytes(), || {
            let received = receiver.received()?;
            Ok((received.at_ns, received.bytes))
        })?;
        let report = source.report()?;
        let bounds =
            [(RECEIVER, LimitKind::Cpu), (SOURCE, LimitKind::Source), (PATH, LimitKind::Cpu)];
        let flows = FlowsSeen::of(&report);
        case.sample(&bounds, &progress, &spent, &flows, &ground)
    }
}
