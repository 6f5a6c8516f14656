//! Runs for the reports' tests.

use hdrhistogram::Histogram;

use crate::run::{
    Case, FORMAT, Figure, Limit, LimitKind, Machine, NamedHistogram, ProcessCost, Row, Run, Sample,
    Series,
};

/// Values in each histogram.
pub(super) const VALUES: u64 = 5_000;

/// A run with nothing in it.
pub(super) fn empty() -> Run {
    Run {
        format: FORMAT,
        bench: "lag".to_owned(),
        question: "How late is the tail at a given load?".to_owned(),
        command: "longhaul bench lag --rate 100MiB --out 'my runs'".to_owned(),
        started_ms: 1_796_000_000_000,
        seconds: 135.0,
        machine: Machine {
            kernel: "6.18.5".to_owned(),
            processor: "Some Processor @ 2.6 GHz".to_owned(),
            processors: 2,
            memory_bytes: 24 << 30,
            congestion_control: "cubic".to_owned(),
            load_average: 0.31,
        },
        cases: Vec::new(),
        left_out: Vec::new(),
        interrupted: false,
    }
}

/// Two cases of two rows: a spoilt repeat of ours, a failed one of the peer's.
pub(super) fn run() -> Run {
    let case = |name: &str, slower: f64| Case {
        name: name.to_owned(),
        rows: vec![
            Row {
                subject: "Longhaul".to_owned(),
                ours: true,
                samples: (0..3).map(|repeat| sample(repeat, slower)).collect(),
                failures: Vec::new(),
            },
            Row {
                subject: "MirrorMaker 2 as shipped".to_owned(),
                ours: false,
                samples: vec![peer(0, slower * 30.0), peer(1, slower * 34.0)],
                failures: vec!["no Java: install a JRE".to_owned()],
            },
        ],
    };
    Run {
        cases: vec![
            case("1 partition, 1 Gbit/s, 100 ms", 1.0),
            case("64 partitions, 0.1 % loss", 1.6),
        ],
        left_out: vec!["kcat: not installed; apt-get install kcat".to_owned()],
        ..empty()
    }
}

/// Durations like those of a real tail: most near the median, some far out.
fn histogram(scale: f64, repeat: u32) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 86_400_000_000_000, 2).unwrap();
    for index in 0..VALUES {
        let quantile = (index as f64 + 0.5) / VALUES as f64;
        let tail = (1.0 / (1.0 - quantile)).ln();
        let ms = scale * (50.0 + 2.0 * tail.powf(1.7) + f64::from(repeat));
        histogram.record((ms * 1e6) as u64).unwrap();
    }
    histogram
}

fn peer(repeat: u32, slower: f64) -> Sample {
    let mut sample = sample(repeat, slower);
    sample.processes[0].name = "connect worker".to_owned();
    sample.histograms.retain(|named| !named.name.starts_with("core-"));
    sample
}

fn sample(repeat: u32, slower: f64) -> Sample {
    let named = |name: &str, scale: f64| NamedHistogram {
        name: name.to_owned(),
        histogram: histogram(scale, repeat),
    };
    let line = |name: &str, unit: &str, scale: f64| Series {
        name: name.to_owned(),
        unit: unit.to_owned(),
        points: (0..60)
            .map(|second| {
                let at = f64::from(second);
                let ramp = 1.0 - (-at / 6.0).exp();
                (at, scale * ramp * (1.0 + 0.05 * (at * 1.7 + f64::from(repeat)).sin()))
            })
            .collect(),
    };
    Sample {
        figures: vec![
            Figure::new("throughput", "MB/s", 110.0 / slower + f64::from(repeat)),
            Figure::new("lag p99", "ms", 64.0 * slower),
        ],
        processes: vec![
            ProcessCost {
                name: "longhaul node".to_owned(),
                user_seconds: 0.4 * slower,
                system_seconds: 1.1 * slower,
                memory_bytes_max: 180 << 20,
            },
            ProcessCost {
                name: "source broker".to_owned(),
                user_seconds: 2.0,
                system_seconds: 0.7,
                memory_bytes_max: 900 << 20,
            },
        ],
        bytes: 6_000_000_000,
        softirq_seconds: 0.3,
        checked: Some("64 partitions byte for byte".to_owned()),
        limit: Some(Limit::new(LimitKind::SendBuffer, "never more than 2.5 MB in flight")),
        invalid: (repeat == 2).then(|| "busy machine: the relay was up to 14 ms late".to_owned()),
        series: vec![
            line("throughput", "MB/s", 110.0 / slower),
            line("lag p50", "ms", 52.0 * slower),
            line("lag p99", "ms", 64.0 * slower),
        ],
        histograms: vec![
            named("lag", slower),
            named("fetch_round_trip", 2.0 * slower),
            named("core-0.lag", slower),
            named("core-1.lag", slower),
        ],
    }
}
