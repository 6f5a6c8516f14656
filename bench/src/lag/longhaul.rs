//! A node as a subject: the tail of a mirror of the synthetic source.

use std::time::{Duration, Instant};

use super::consumer::{Consumer, Lags};
use super::{Options, TOPIC};
use crate::ground::Ground;
use crate::load::{Copied, Generator, Probe, SourceOptions, SourceProcess, Workload, compare_copy};
use crate::node::{NodeProcess, NodeSetup};
use crate::reader::Reader;
use crate::run::{
    CostWatch, Figure, Limit, LimitKind, NamedHistogram, Sample, Series, Session, Subject,
    SubjectError,
};

/// The mirror has this long to reach the end of its empty topic.
const TAIL_MAX: Duration = Duration::from_secs(60);
/// After the load's end the last record has this long to arrive.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// A source whose thread wakes up later than this for a hundredth of the batches is on a busy machine.
const WAKE_LATE_MAX: Duration = Duration::from_millis(2);
/// How often is looked whether it is over.
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct Longhaul<'a> {
    pub(super) options: &'a Options,
    pub(super) workload: &'a Workload,
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
        let generator = Generator::new(self.workload.clone());
        let mut source = self.start_source(&ground)?;
        let mut node = self.start_node(&ground, &generator)?;
        let socket = ground.bind_datagrams()?;
        let here = socket.local_addr().map_err(|e| SubjectError::failed("name a socket", e))?;
        let probe =
            Probe::receive(socket).map_err(|e| SubjectError::failed("receive datagrams", e))?;
        source.probe(here)?;
        node.mirror("lag", &source.kafka().to_string(), TOPIC, "")?;
        self.wait_for_tail(session, &node)?;

        let stream = ground.connect(node.address())?;
        let reader = Reader::new(stream, TOPIC, self.workload.partitions)
            .map_err(|error| SubjectError::failed("read from the node", error))?;
        let own = std::process::id();
        let watch = CostWatch::start(&[
            ("longhaul node", node.pid()),
            ("synthetic source", source.pid()),
            ("consumer and path", own),
        ]);
        generator.begin(source.begin()?);
        let warm_up_ns = u64::try_from(self.options.warm_up.as_nanos()).unwrap_or(u64::MAX);
        let consumer = Consumer::start(reader, generator.clone(), warm_up_ns)?;
        self.wait_for_end(session, &mut node, &consumer)?;
        let mut sample = Sample {
            processes: watch.costs(),
            softirq_seconds: watch.softirq_seconds(),
            ..Sample::default()
        };
        let lags = consumer.end()?;
        let report = source.report()?;
        sample.invalid = match ground.spoilt()? {
            Some(why) => Some(why),
            None => busy(&report),
        };
        drop(source);
        let path = probe.end().ok_or_else(|| {
            SubjectError::Failed("the receiver of the path's datagrams broke down".to_owned())
        })?;
        node.stop()?;
        let copied = compare_copy(&generator, &node.data()).map_err(SubjectError::Failed)?;
        self.fill(&mut sample, &generator, lags, path, copied)?;
        Ok(sample)
    }
}

impl Longhaul<'_> {
    fn start_source(&self, ground: &Ground) -> Result<SourceProcess, SubjectError> {
        let options = SourceOptions {
            listen: ground.source_host(),
            workload: self.workload.clone(),
            send_buffer_bytes: None,
            congestion: None,
        };
        Ok(SourceProcess::start(&*ground.source_command(), &self.options.program, &options)?)
    }

    fn start_node(
        &self,
        ground: &Ground,
        generator: &Generator,
    ) -> Result<NodeProcess, SubjectError> {
        Ok(NodeProcess::start(NodeSetup {
            host: ground.mirror_host(),
            directory: self.options.directory.clone(),
            make_command: ground.mirror_command(),
            ..NodeSetup::new(&self.options.program, generator.total_bytes())
        })?)
    }

    fn wait_for_tail(&self, session: &Session, node: &NodeProcess) -> Result<(), SubjectError> {
        let deadline = Instant::now() + TAIL_MAX;
        loop {
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            let rows = node.describe()?;
            let at_tail = rows.iter().filter(|row| row.state == "MIRRORING").count();
            if at_tail == self.workload.partitions as usize {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(SubjectError::Failed(format!(
                    "only {at_tail} of {} partitions are mirrored after {} s; the node's last words:\n{}",
                    self.workload.partitions,
                    TAIL_MAX.as_secs(),
                    node.log_tail()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn wait_for_end(
        &self,
        session: &Session,
        node: &mut NodeProcess,
        consumer: &Consumer,
    ) -> Result<(), SubjectError> {
        let wanted = self.workload.records * u64::from(self.workload.partitions);
        let deadline = Instant::now() + self.options.warm_up + self.options.time + DRAIN_MAX;
        while consumer.records() < wanted {
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            node.check_running()?;
            if let Some(problem) = consumer.problem() {
                return Err(SubjectError::Failed(format!("the consumer at the mirror: {problem}")));
            }
            if Instant::now() > deadline {
                return Err(SubjectError::Failed(format!(
                    "{} of {wanted} records came until {} s after the load's end: it is more than this mirror \
                     carries; lower --load",
                    consumer.records(),
                    DRAIN_MAX.as_secs()
                )));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn fill(
        &self,
        sample: &mut Sample,
        generator: &Generator,
        lags: Lags,
        path: hdrhistogram::Histogram<u64>,
        copied: Copied,
    ) -> Result<(), SubjectError> {
        if copied.bytes != generator.total_bytes() || lags.bytes != copied.bytes {
            return Err(SubjectError::Failed(format!(
                "the source has {} bytes, the consumer read {}, the mirror's files hold {}",
                generator.total_bytes(),
                lags.bytes,
                copied.bytes
            )));
        }
        let began = generator.began().map_or(0, |began| began.monotonic_ns);
        let seconds = lags.last_ns.saturating_sub(began) as f64 / 1e9;
        let ms = |ns: u64| ns as f64 / 1e6;
        let (lag, one_way) = (&lags.histogram, ms(path.value_at_quantile(0.5)));
        let half = ms(lag.value_at_quantile(0.5));
        sample.figures = vec![
            Figure::new("lag p50", "ms", half),
            Figure::new("lag p99", "ms", ms(lag.value_at_quantile(0.99))),
            Figure::new("lag p99.9", "ms", ms(lag.value_at_quantile(0.999))),
            Figure::new("lag max", "ms", ms(lag.max())),
            Figure::new("path one way p50", "ms", one_way),
            Figure::new("path one way p99", "ms", ms(path.value_at_quantile(0.99))),
            Figure::new("carried", "MB/s", copied.bytes as f64 / 1e6 / seconds.max(1e-9)),
        ];
        let evidence = format!(
            "half of the records came within {half:.2} ms, the path takes {one_way:.2} ms one way"
        );
        sample.bytes = copied.bytes;
        sample.limit = Some(Limit::new(LimitKind::RoundTrips, evidence));
        sample.checked =
            Some("every byte that the consumer read, and the mirror's files".to_owned());
        let points = lags.worst.iter().map(|(at, lag)| (*at, ms(*lag))).collect();
        sample.series =
            vec![Series { name: "worst lag".to_owned(), unit: "ms".to_owned(), points }];
        sample.histograms = vec![
            NamedHistogram { name: "lag".to_owned(), histogram: lags.histogram },
            NamedHistogram { name: "path one way".to_owned(), histogram: path },
        ];
        Ok(())
    }
}

/// Whether the machine had no time for the source's schedule.
fn busy(report: &crate::load::SourceReport) -> Option<String> {
    let late = report.connections.iter().map(|connection| connection.wake_late_p99_ns).max()?;
    let late = Duration::from_nanos(late);
    (late > WAKE_LATE_MAX).then(|| {
        format!(
            "the machine was busy: one batch in a hundred was {:.1} ms late at the source already, and {:.1} ms are \
             allowed; run it again with nothing else running",
            late.as_secs_f64() * 1e3,
            WAKE_LATE_MAX.as_secs_f64() * 1e3
        )
    })
}
