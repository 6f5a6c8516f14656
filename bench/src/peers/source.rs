//! What is mirrored and read: a topic of a real broker, or the synthetic source's.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::logs::{self, CopiedRecords};
use super::{Broker, BrokerSetup, ClassPath, PeerError, TopicSetup};
use crate::load::{Generator, SourceOptions, SourceProcess, Workload, compare_copy};
use crate::run::{LimitKind, Session};

/// The topic's name at every source.
pub(crate) const TOPIC: &str = "bench";
/// Bytes of a record's value.
pub(crate) const VALUE_BYTES: u32 = 1024;

/// Who has the topic.
#[derive(Clone, Debug)]
pub(crate) enum SourceKind {
    /// A real broker from these jars.
    Kafka(ClassPath),
    /// The synthetic one, of this program.
    Synthetic(PathBuf),
}

/// A running source with the topic filled.
#[derive(Debug)]
pub(crate) struct Source {
    running: Running,
    bytes: u64,
    records: u64,
    ends: BTreeMap<u32, i64>,
}

#[derive(Debug)]
enum Running {
    Kafka(Broker),
    Synthetic { process: SourceProcess, generator: Generator },
}

impl Source {
    /// Starts one and fills its topic with about `bytes` of records.
    pub(crate) fn start(
        kind: &SourceKind,
        partitions: u32,
        compression: &str,
        bytes: u64,
        directory: &Path,
        session: &Session,
    ) -> Result<Self, PeerError> {
        match kind {
            SourceKind::Synthetic(program) => Self::synthetic(program, partitions, bytes),
            SourceKind::Kafka(class_path) => {
                let mut setup = BrokerSetup::new(class_path.clone(), bytes);
                directory.clone_into(&mut setup.directory);
                Self::kafka(setup, partitions, compression, session)
            }
        }
    }

    fn synthetic(program: &Path, partitions: u32, bytes: u64) -> Result<Self, PeerError> {
        let workload = Workload::of_size(TOPIC, bytes, partitions);
        let options = SourceOptions {
            listen: Ipv4Addr::LOCALHOST.into(),
            workload: workload.clone(),
            send_buffer_bytes: None,
            congestion: None,
        };
        let process =
            SourceProcess::start(&|program: &Path| Command::new(program), program, &options)
                .map_err(|error| PeerError::Failed(error.to_string()))?;
        let generator = Generator::new(workload);
        let workload = generator.workload();
        let records = workload.records * u64::from(workload.partitions);
        let bytes = generator.total_bytes();
        let ends = (0..workload.partitions).map(|index| (index, generator.end_offset())).collect();
        Ok(Self { running: Running::Synthetic { process, generator }, bytes, records, ends })
    }

    fn kafka(
        setup: BrokerSetup,
        partitions: u32,
        compression: &str,
        session: &Session,
    ) -> Result<Self, PeerError> {
        let bytes = setup.bytes;
        let broker = Broker::start(setup, session)?;
        let topic = TopicSetup {
            name: TOPIC.to_owned(),
            partitions,
            records: (bytes / u64::from(VALUE_BYTES)).max(1),
            value_bytes: VALUE_BYTES,
            compression: compression.to_owned(),
        };
        session.say(&format!(
            "filling {partitions} partitions of a real broker with {:.2} GB, {compression}",
            bytes as f64 / 1e9
        ));
        broker.create(session, &topic)?;
        let bytes = logs::log_bytes(&broker.data(), TOPIC);
        let mut held = CopiedRecords::new(&broker.data(), TOPIC);
        let records = held.count();
        if records != topic.records {
            let wanted = topic.records;
            return Err(PeerError::Failed(format!(
                "the broker holds {records} of the {wanted} records that were produced"
            )));
        }
        let ends = held.ends().clone();
        Ok(Self { running: Running::Kafka(broker), bytes, records, ends })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        match &self.running {
            Running::Kafka(broker) => broker.address(),
            Running::Synthetic { process, .. } => process.kafka(),
        }
    }

    /// Bytes the topic's batches have.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records over all partitions.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// The end offset of each partition that has records.
    pub(crate) fn ends(&self) -> &BTreeMap<u32, i64> {
        &self.ends
    }

    /// Whose topic it is, in words.
    pub(crate) fn title(&self) -> &'static str {
        match &self.running {
            Running::Kafka(_) => "a real broker",
            Running::Synthetic { .. } => "the synthetic source",
        }
    }

    /// Its process and the name of its costs.
    pub(crate) fn process(&self) -> (&'static str, u32) {
        match &self.running {
            Running::Kafka(broker) => (SOURCE, broker.pid()),
            Running::Synthetic { process, .. } => (SOURCE, process.pid()),
        }
    }

    /// The broker, when it is a real one.
    pub(crate) fn broker(&mut self) -> Option<&mut Broker> {
        match &mut self.running {
            Running::Kafka(broker) => Some(broker),
            Running::Synthetic { .. } => None,
        }
    }

    /// Compares a node's files with what the source holds. The node must have been stopped.
    pub(crate) fn compare(&self, mirror: &Path) -> Result<String, PeerError> {
        let (compared, with) = match &self.running {
            Running::Kafka(broker) => {
                (logs::compare(&broker.data(), mirror, TOPIC), "the broker's .log files")
            }
            Running::Synthetic { generator, .. } => {
                let copied = compare_copy(generator, mirror).map(|copied| copied.bytes);
                (copied, "the batches the source makes")
            }
        };
        let bytes = compared.map_err(|words| {
            PeerError::Failed(format!("the mirror is not the source's: {words}"))
        })?;
        if bytes != self.bytes {
            let wanted = self.bytes;
            return Err(PeerError::Failed(format!("{bytes} of {wanted} bytes are there")));
        }
        Ok(format!("all {bytes} bytes equal {with}"))
    }
}

/// The name of the source's costs.
pub(crate) const SOURCE: &str = "source";
/// A source that is full bounds everybody.
pub(crate) const SOURCE_LIMIT: (&str, LimitKind) = (SOURCE, LimitKind::Source);
