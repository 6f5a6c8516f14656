//! A broker that is killed while a producer writes to it.

use std::time::Instant;

use super::{Back, Condition, TOPIC, UNDER_LOAD, VALUE_BYTES};
use crate::peers::{Broker, BrokerSetup, ClassPath, TopicSetup};
use crate::run::{BusyWatch, CostWatch, ProcessCost, Sample, Session, Subject, SubjectError};

pub(super) struct Recovers<'a> {
    pub(super) case: Condition<'a>,
    pub(super) class_path: &'a ClassPath,
}

impl Subject for Recovers<'_> {
    fn name(&self) -> String {
        "real Kafka, written to by its producer".to_owned()
    }

    fn ours(&self) -> bool {
        false
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let mut setup = BrokerSetup::new(self.class_path.clone(), self.case.size_bytes);
        self.case.options.directory.clone_into(&mut setup.directory);
        let mut broker = Broker::start(setup, session)?;
        let topic = TopicSetup {
            name: TOPIC.to_owned(),
            partitions: self.case.partitions,
            records: (self.case.size_bytes / u64::from(VALUE_BYTES))
                .max(u64::from(self.case.partitions)),
            value_bytes: VALUE_BYTES,
            compression: "none".to_owned(),
        };
        broker.create(session, &topic)?;
        let rate = (self.case.options.load_bytes / u64::from(VALUE_BYTES)).max(1);
        let mut producer = broker.produce(&topic, rate)?;
        wait(session, UNDER_LOAD)?;
        producer.check_running()?;

        let killed = Instant::now();
        broker.kill();
        broker.start_again()?;
        let busy = BusyWatch::start(&[("broker", broker.pid())]);
        let (address, partitions) = (broker.address(), self.case.partitions);
        let back =
            Back::watch(session, address, partitions, killed, || Ok(broker.check_running()?))?;
        let processes = CostWatch::of_whole_lives(&[("broker", broker.pid())]).costs();
        let seconds = processes.first().map_or(0.0, ProcessCost::seconds);
        let limit = Some(back.limit(seconds, &busy));
        producer.kill();
        Ok(Sample { figures: back.figures(), processes, limit, ..Sample::default() })
    }
}

fn wait(session: &Session, time: std::time::Duration) -> Result<(), SubjectError> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if session.stopped() {
            return Err(SubjectError::Interrupted);
        }
        std::thread::sleep(super::LOOK_INTERVAL);
    }
    Ok(())
}
