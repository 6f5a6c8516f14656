//! Who is read from: a node and the broker it mirrored, each with the whole topic.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::consumer::{Part, read_all};
use super::page_cache::arrange;
use super::{Options, PageCache, Readers};
use crate::node::{MakeCommand, NodeProcess, NodeSetup};
use crate::peers::source::{Source, TOPIC};
use crate::peers::{Kcat, PeerError, check_kcat_time, pause_for};
use crate::run::{
    BusyWatch, CostWatch, Figure, Limit, LimitKind, Sample, Session, Subject, SubjectError,
};

/// Nothing new in the mirror for this long: it will not come any more.
const STALL_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether all have read.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// A cache that held more than this share was not cold.
const HELD_MAX: f64 = 0.5;
/// What took less time tells nothing of its limit.
const SECONDS_MIN: f64 = 0.5;
/// The name of the consumers' costs.
const CONSUMERS: &str = "consumers";

/// Both with the same topic, stopped or at rest.
pub(super) struct Holders {
    source: RefCell<Source>,
    node: RefCell<NodeProcess>,
    parts: Vec<Part>,
    bytes: u64,
}

impl Holders {
    /// Mirrors the source's topic into a node, compares it byte for byte, and stops the node.
    pub(super) fn prepare(
        options: &Options,
        source: Source,
        session: &Session,
    ) -> Result<Self, PeerError> {
        let mut node = NodeProcess::start(NodeSetup {
            directory: options.directory.clone(),
            ..NodeSetup::new(&options.program, source.bytes())
        })?;
        session.say("mirroring the topic, to be read afterwards");
        node.mirror("serve", &source.address().to_string(), TOPIC, "")?;
        let mut copied = crate::peers::CopiedRecords::new(&node.data(), TOPIC);
        let (mut seen, mut moved) = (0, Instant::now());
        while copied.ends() != source.ends() {
            node.check_running()?;
            let count = copied.count();
            if count > seen {
                (seen, moved) = (count, Instant::now());
            }
            if moved.elapsed() > STALL_MAX {
                let words = node.log_tail();
                return Err(PeerError::Failed(format!("the mirror stands still: {words}")));
            }
            pause_for(session, Duration::from_millis(50))?;
        }
        node.stop()?;
        source.compare(&node.data())?;
        let ends: &BTreeMap<u32, i64> = source.ends();
        let parts = ends.iter().map(|(partition, end)| (*partition, *end)).collect();
        let bytes = source.bytes();
        Ok(Self { source: source.into(), node: node.into(), parts, bytes })
    }

    pub(super) fn has_broker(&self) -> bool {
        self.source.borrow_mut().broker().is_some()
    }

    /// Bytes of the topic's batches.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A condition.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) readers: Readers,
    pub(super) page_cache: PageCache,
    pub(super) holders: &'a Holders,
}

/// The node.
pub(super) struct ReadNode<'a> {
    pub(super) case: Case<'a>,
    pub(super) options: &'a Options,
}

/// The broker.
pub(super) struct ReadBroker<'a> {
    pub(super) case: Case<'a>,
}

impl Subject for ReadNode<'_> {
    fn name(&self) -> String {
        "Longhaul".to_owned()
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let mut node = self.case.holders.node.borrow_mut();
        node.restart()?;
        self.wait_for_rest(session, &mut node)?;
        let server = Server { name: "node", pid: node.pid(), address: node.address() };
        let mut sample = self.case.read(session, &server, &node.data());
        if let Ok(sample) = &mut sample {
            node.add_histograms(session, sample);
        }
        // Stopped also after a failure: the broker is to be read alone.
        node.stop()?;
        sample
    }
}

impl ReadNode<'_> {
    /// The node compares its logs with the source's when it starts, and is measured after that.
    fn wait_for_rest(&self, session: &Session, node: &mut NodeProcess) -> Result<(), SubjectError> {
        let began = Instant::now();
        loop {
            node.check_running()?;
            let rows = node.describe()?;
            let at_rest = rows.iter().filter(|row| row.state == "MIRRORING").count();
            if at_rest == self.options.partitions as usize {
                return Ok(());
            }
            if began.elapsed() > STALL_MAX {
                let words = node.log_tail();
                return Err(SubjectError::Failed(format!(
                    "the node does not come to rest: {words}"
                )));
            }
            pause_for(session, Duration::from_millis(50))?;
        }
    }
}

impl Subject for ReadBroker<'_> {
    fn name(&self) -> String {
        "real Kafka".to_owned()
    }

    fn ours(&self) -> bool {
        false
    }

    fn measure(&mut self, session: &Session, _: u32) -> Result<Sample, SubjectError> {
        let mut source = self.case.holders.source.borrow_mut();
        let Some(broker) = source.broker() else {
            return Err(SubjectError::Failed("there is no broker".to_owned()));
        };
        let server = Server { name: "broker", pid: broker.pid(), address: broker.address() };
        self.case.read(session, &server, &broker.data())
    }
}

struct Server {
    name: &'static str,
    pid: u32,
    address: SocketAddr,
}

impl Case<'_> {
    fn read(
        &self,
        session: &Session,
        server: &Server,
        data: &Path,
    ) -> Result<Sample, SubjectError> {
        let held = arrange(data, TOPIC, self.page_cache)
            .map_err(|error| SubjectError::failed("arrange the page cache", error))?;
        let began = Instant::now();
        let (sample, busy) = match self.readers {
            Readers::Kcat => self.read_with_kcat(session, server)?,
            Readers::Ours(count) => self.read_ourselves(session, server, count)?,
        };
        let seconds = began.elapsed().as_secs_f64();
        let bytes = self.holders.bytes;
        let figures = vec![
            Figure::new("throughput", "MB/s", bytes as f64 / 1e6 / seconds),
            Figure::new("cached before", "%", held * 100.0),
            Figure::new("consumers' CPU", "s/GB", {
                let consumers = sample.processes.get(1);
                consumers.map_or(0.0, |cost| cost.seconds()) / (bytes as f64 / 1e9)
            }),
        ];
        Ok(Sample { figures, bytes, limit: Some(self.limit(&busy, held, seconds)), ..sample })
    }

    /// Who reads from the disk, and is not bound by a thread, is bound by the disk.
    fn limit(&self, busy: &Limit, held: f64, seconds: f64) -> Limit {
        let from_disk = self.page_cache == PageCache::Cold && held < HELD_MAX;
        if from_disk && seconds > SECONDS_MIN && busy.by == LimitKind::Unknown {
            return Limit::new(LimitKind::Disk, format!("no thread was full; {}", busy.evidence));
        }
        busy.clone()
    }

    fn read_with_kcat(
        &self,
        session: &Session,
        server: &Server,
    ) -> Result<(Sample, Limit), SubjectError> {
        let plain: MakeCommand = Arc::new(|program: &Path| Command::new(program));
        let began = Instant::now();
        let mut kcat = Kcat::read(&plain, &server.address.to_string(), TOPIC)?;
        let processes = [(server.name, server.pid), (CONSUMERS, kcat.pid())];
        let (costs, busy) = (CostWatch::start(&processes), BusyWatch::start(&processes));
        // Threads of a process that ended are not seen any more: the last look before counts.
        let mut limit = busy.limit(&[(CONSUMERS, LimitKind::Consumer)]);
        while !kcat.exited() {
            limit = busy.limit(&[(CONSUMERS, LimitKind::Consumer)]);
            check_kcat_time(began, self.holders.bytes)?;
            pause_for(session, LOOK_INTERVAL * 5)?;
        }
        let sample = Sample {
            processes: costs.costs(),
            softirq_seconds: costs.softirq_seconds(),
            ..Sample::default()
        };
        kcat.finished_well()?;
        Ok((sample, limit))
    }

    fn read_ourselves(
        &self,
        session: &Session,
        server: &Server,
        count: u32,
    ) -> Result<(Sample, Limit), SubjectError> {
        let processes = [(server.name, server.pid), (CONSUMERS, std::process::id())];
        let (costs, busy) = (CostWatch::start(&processes), BusyWatch::start(&processes));
        let stop = AtomicBool::new(false);
        let shares: Vec<Vec<Part>> = (0..count)
            .map(|own| {
                let parts = self.holders.parts.iter().enumerate();
                let own = parts.filter(|(index, _)| *index % count as usize == own as usize);
                own.map(|(_, part)| *part).collect()
            })
            .collect();
        let (bytes, limit) = std::thread::scope(|scope| {
            let consumers: Vec<_> = shares
                .iter()
                .map(|share| scope.spawn(|| read_all(server.address, TOPIC, share, &stop)))
                .collect();
            let mut limit = busy.limit(&[(CONSUMERS, LimitKind::Consumer)]);
            while !consumers.iter().all(|consumer| consumer.is_finished()) {
                stop.fetch_or(session.stopped(), Ordering::Relaxed);
                limit = busy.limit(&[(CONSUMERS, LimitKind::Consumer)]);
                std::thread::sleep(LOOK_INTERVAL * 5);
            }
            let read = consumers.into_iter().map(|consumer| {
                let broken = |_| Err("a consumer broke down".to_owned());
                consumer.join().unwrap_or_else(broken)
            });
            (read.sum::<Result<u64, String>>(), limit)
        });
        if session.stopped() {
            return Err(SubjectError::Interrupted);
        }
        let bytes = bytes.map_err(SubjectError::Failed)?;
        if bytes != self.holders.bytes {
            let wanted = self.holders.bytes;
            return Err(SubjectError::Failed(format!("{bytes} of {wanted} bytes were served")));
        }
        let checked = "every batch's checksum and place, and the number of bytes".to_owned();
        let sample = Sample {
            processes: costs.costs(),
            softirq_seconds: costs.softirq_seconds(),
            checked: Some(checked),
            ..Sample::default()
        };
        Ok((sample, limit))
    }
}
