//! A live load under way: the source's schedule, the path's own delay, and the consumer at the mirror.
//!
//! The same for everybody who mirrors. Runs on the caller's thread; consumer, probe and source have their own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Options;
use super::consumer::{Consumer, Copy, Lags};
use crate::ground::Ground;
use crate::load::{Generator, Probe, SourceOptions, SourceProcess, SourceReport, Workload};
use crate::reader::Reader;
use crate::run::{
    CostWatch, Figure, Limit, LimitKind, NamedHistogram, Sample, Series, Session, SubjectError,
};

/// After the load's end the last record has this long to arrive.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// A source whose thread wakes up later than this for a hundredth of the batches is on a busy machine.
const WAKE_LATE_MAX: Duration = Duration::from_millis(2);
/// How often is looked whether it is over.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// How often the source is asked whether it has a problem.
const ASK: Duration = Duration::from_secs(1);
/// A load that is carried to this share has been kept up with.
const KEPT_UP_MIN: f64 = 0.95;

/// Where the copy is read, and how it is compared.
pub(super) struct Mirror<'a> {
    pub(super) address: SocketAddr,
    pub(super) topic: &'a str,
    pub(super) copy: Copy,
    /// What is counted, the subject's own first.
    pub(super) processes: &'a [(&'a str, u32)],
}

/// A load that has not begun.
pub(super) struct Live<'a> {
    options: &'a Options,
    ground: &'a Ground,
    generator: Generator,
    source: SourceProcess,
    probe: Probe,
}

impl<'a> Live<'a> {
    /// Starts the source, and the datagrams that measure the path.
    pub(super) fn prepare(
        options: &'a Options,
        workload: Workload,
        ground: &'a Ground,
    ) -> Result<Self, SubjectError> {
        let source = SourceOptions {
            listen: ground.source_host(),
            workload: workload.clone(),
            send_buffer_bytes: None,
            congestion: None,
        };
        let mut source =
            SourceProcess::start(&*ground.source_command(), &options.program, &source)?;
        let socket = ground.bind_datagrams()?;
        let here =
            socket.local_addr().map_err(|error| SubjectError::failed("name a socket", error))?;
        let probe = Probe::receive(socket)
            .map_err(|error| SubjectError::failed("receive datagrams", error))?;
        source.probe(here)?;
        Ok(Self { options, ground, generator: Generator::new(workload), source, probe })
    }

    /// What is due when.
    pub(super) fn generator(&self) -> &Generator {
        &self.generator
    }

    /// The source's process.
    pub(super) fn source(&mut self) -> &mut SourceProcess {
        &mut self.source
    }

    /// Runs the load to its end and reads it at the mirror. `alive` says whether the mirror still is.
    pub(super) fn run(
        mut self,
        session: &Session,
        mirror: &Mirror<'_>,
        mut alive: impl FnMut() -> Result<(), SubjectError>,
    ) -> Result<Sample, SubjectError> {
        let stream = self.ground.connect(mirror.address)?;
        let partitions = self.generator.workload().partitions;
        let reader = Reader::new(stream, mirror.topic, partitions)
            .map_err(|error| SubjectError::failed("read from the mirror", error))?;
        let watch = CostWatch::start(mirror.processes);
        self.generator.begin(self.source.begin()?);
        let warm_up_ns = u64::try_from(self.options.warm_up.as_nanos()).unwrap_or(u64::MAX);
        let generator = self.generator.clone();
        let consumer = Consumer::start(reader, generator, mirror.copy, warm_up_ns)?;
        self.wait_for_end(session, &consumer, &mut alive)?;
        let (processes, softirq_seconds) = (watch.costs(), watch.softirq_seconds());
        let lags = consumer.end()?;
        let report = self.source.report()?;
        let invalid = match self.ground.spoilt()? {
            Some(why) => Some(why),
            None => busy(&report),
        };
        drop(self.source);
        let path = self.probe.end().ok_or_else(|| {
            SubjectError::Failed("the receiver of the path's datagrams broke down".to_owned())
        })?;
        let mut sample = sample(&self.generator, lags, path)?;
        if let Some(confirmed_ns) = report.confirmed_p50_ns {
            let ms = confirmed_ns as f64 / 1e6;
            sample.figures.push(Figure::new("into the source p50", "ms", ms));
        }
        Ok(Sample { processes, softirq_seconds, invalid, ..sample })
    }

    fn wait_for_end(
        &mut self,
        session: &Session,
        consumer: &Consumer,
        alive: &mut impl FnMut() -> Result<(), SubjectError>,
    ) -> Result<(), SubjectError> {
        let workload = self.generator.workload();
        let wanted = workload.records * u64::from(workload.partitions);
        let deadline = Instant::now() + self.options.warm_up + self.options.time + DRAIN_MAX;
        let mut asked = Instant::now();
        while consumer.records() < wanted {
            if session.stopped() {
                return Err(SubjectError::Interrupted);
            }
            alive()?;
            if asked.elapsed() > ASK {
                asked = Instant::now();
                if let Some(problem) = self.source.report()?.problem {
                    return Err(SubjectError::Failed(problem));
                }
            }
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
}

/// What the consumer and the path say.
fn sample(generator: &Generator, lags: Lags, path: Histogram<u64>) -> Result<Sample, SubjectError> {
    if lags.histogram.is_empty() {
        let words =
            "no record came after the warm-up: choose more --seconds or a shorter --warm-up";
        return Err(SubjectError::Failed(words.to_owned()));
    }
    let ms = |ns: u64| ns as f64 / 1e6;
    let lag = &lags.histogram;
    let began = generator.began().map_or(0, |began| began.monotonic_ns);
    let seconds = lags.last_ns.saturating_sub(began) as f64 / 1e9;
    let carried = lags.bytes as f64 / 1e6 / seconds.max(1e-9);
    let points = lags.worst.iter().map(|(at, lag)| (*at, ms(*lag))).collect();
    Ok(Sample {
        figures: vec![
            Figure::new("lag p50", "ms", ms(lag.value_at_quantile(0.5))),
            Figure::new("lag p99", "ms", ms(lag.value_at_quantile(0.99))),
            Figure::new("lag p99.9", "ms", ms(lag.value_at_quantile(0.999))),
            Figure::new("lag max", "ms", ms(lag.max())),
            Figure::new("path one way p50", "ms", ms(path.value_at_quantile(0.5))),
            Figure::new("path one way p99", "ms", ms(path.value_at_quantile(0.99))),
            Figure::new("carried", "MB/s", carried),
        ],
        bytes: lags.bytes,
        limit: Some(limit(generator, lag, &path, seconds)),
        series: vec![Series { name: "worst lag".to_owned(), unit: "ms".to_owned(), points }],
        histograms: vec![
            NamedHistogram { name: "lag".to_owned(), histogram: lags.histogram },
            NamedHistogram { name: "path one way".to_owned(), histogram: path },
        ],
        ..Sample::default()
    })
}

/// A tail that keeps up waits for the path: a record due just after an answer left waits for the next request.
/// One that does not is bound by something that `bench wan` can tell.
fn limit(
    generator: &Generator,
    lag: &Histogram<u64>,
    path: &Histogram<u64>,
    seconds: f64,
) -> Limit {
    let workload = generator.workload();
    let last = workload.due_ns(workload.partitions.saturating_sub(1), workload.batches() - 1);
    let kept_up = (last as f64 / 1e9) / seconds.max(1e-9);
    let (half, one_way) =
        (lag.value_at_quantile(0.5) as f64 / 1e6, path.value_at_quantile(0.5) as f64 / 1e6);
    let words = format!(
        "half of the records came within {half:.2} ms, the path takes {one_way:.2} ms one way; {:.0} % of the load was \
         kept up with",
        (kept_up * 100.0).min(100.0)
    );
    let by = if kept_up >= KEPT_UP_MIN { LimitKind::RoundTrips } else { LimitKind::Unknown };
    Limit::new(by, words)
}

/// Whether the machine had no time for the source's schedule.
fn busy(report: &SourceReport) -> Option<String> {
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
