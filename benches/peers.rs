//! What mirroring a real topic costs, next to kcat merely reading it: `cargo bench --bench peers`.
//!
//! One broker, 2 GB of 1 KiB records (`LONGHAUL_BENCH_BYTES` for another size), 1 and 64 partitions,
//! uncompressed and zstd. The node stores and checks every byte; kcat, as a user runs it, writes it to `/dev/null`. Runs are
//! interleaved; the figures are medians with their range. Needs `tests/setup`.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops on a fault"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{Cluster, ClusterOptions, Driver, Node, NodeOptions, kafka_tool_within};

const REPEATS: usize = 3;
const RECORD_BYTES: u64 = 1024;

struct Sample {
    seconds: f64,
    cpu: f64,
    source_cpu: f64,
}

fn main() {
    let bytes: u64 = std::env::var("LONGHAUL_BENCH_BYTES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000_000_000);
    let cluster = Cluster::start(ClusterOptions::default());
    let driver = Driver::start();
    println!("{} GB a topic, {REPEATS} interleaved runs; medians (range)", bytes as f64 / 1e9);
    println!("{:<26}{:>16}{:>20}{:>22}", "", "MB/s", "CPU s per GB", "source CPU s per GB");
    for (partitions, codec) in [(1, "none"), (64, "none"), (1, "zstd"), (64, "zstd")] {
        let topic = format!("peers-{partitions}-{codec}");
        let stored = fill(&cluster, &driver, &topic, partitions, codec, bytes);
        let (mut kcat, mut node) = (Vec::new(), Vec::new());
        for _ in 0..REPEATS {
            kcat.push(read_with_kcat(&cluster, &topic));
            node.push(mirror(&cluster, &topic, stored));
        }
        row(&format!("{topic}: kcat"), &kcat, stored);
        row(&format!("{topic}: longhaul"), &node, stored);
        let ratio = |pick: fn(&Sample) -> f64| median(&node, pick) / median(&kcat, pick);
        println!(
            "{:<26}{:>16}{:>20}",
            "  longhaul / kcat",
            format!("{:.2}", 1.0 / ratio(|sample| sample.seconds)),
            format!("{:.2}", ratio(|sample| sample.cpu))
        );
    }
}

/// Produces the topic and answers the bytes the source stores for it.
fn fill(
    cluster: &Cluster,
    driver: &Driver,
    topic: &str,
    partitions: u32,
    codec: &str,
    bytes: u64,
) -> u64 {
    driver.create_topic(&cluster.bootstrap(), topic, partitions, &json!({}));
    let records = (bytes / RECORD_BYTES).to_string();
    let bootstrap = format!("bootstrap.servers={}", cluster.bootstrap());
    let compression = format!("compression.type={codec}");
    let arguments = [
        "--topic",
        topic,
        "--num-records",
        &records,
        "--record-size",
        "1024",
        "--throughput",
        "-1",
        "--producer-props",
        &bootstrap,
        &compression,
        "batch.size=65536",
        "linger.ms=5",
    ];
    let finished = kafka_tool_within("ProducerPerformance", &arguments, Duration::from_secs(600));
    assert_eq!(finished.code, 0, "{}{}", finished.stdout, finished.stderr);
    log_sizes(&cluster.data(0), topic)
}

fn read_with_kcat(cluster: &Cluster, topic: &str) -> Sample {
    let source = cluster.pid(0).expect("a running broker");
    let source_before = processor_seconds(source);
    let began = Instant::now();
    let mut child = std::process::Command::new("kcat")
        .args(["-b", &cluster.bootstrap(), "-C", "-t", topic, "-o", "beginning", "-e", "-q"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("kcat starts");
    let mut cpu = 0.0;
    // The last reading before the exit: the child's own accounting, to 10 ms.
    while child.try_wait().expect("kcat can be waited for").is_none() {
        cpu = processor_seconds(child.id()).max(cpu);
        std::thread::sleep(Duration::from_millis(5));
    }
    Sample {
        seconds: began.elapsed().as_secs_f64(),
        cpu,
        source_cpu: processor_seconds(source) - source_before,
    }
}

fn mirror(cluster: &Cluster, topic: &str, stored: u64) -> Sample {
    let node = Node::start(env!("CARGO_BIN_EXE_longhaul"), &NodeOptions::default());
    node.create_mirror("m", &cluster.bootstrap(), &[]);
    let source = cluster.pid(0).expect("a running broker");
    let (source_before, before) = (processor_seconds(source), processor_seconds(node.pid()));
    let began = Instant::now();
    node.start_topics("m", topic);
    while log_sizes(&node.data(), topic) < stored {
        assert!(
            began.elapsed() < Duration::from_secs(300),
            "the mirror does not finish: {}",
            node.log()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Sample {
        seconds: began.elapsed().as_secs_f64(),
        cpu: processor_seconds(node.pid()) - before,
        source_cpu: processor_seconds(source) - source_before,
    }
}

fn row(name: &str, samples: &[Sample], bytes: u64) {
    let gigabytes = bytes as f64 / 1e9;
    let rate = spread(samples, |sample| gigabytes * 1000.0 / sample.seconds, 0);
    let cpu = spread(samples, |sample| sample.cpu / gigabytes, 2);
    let source = spread(samples, |sample| sample.source_cpu / gigabytes, 2);
    println!("{name:<26}{rate:>16}{cpu:>20}{source:>22}");
}

fn spread(samples: &[Sample], pick: impl Fn(&Sample) -> f64, digits: usize) -> String {
    let mut values: Vec<f64> = samples.iter().map(pick).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[0], values[values.len() - 1]);
    format!("{:.digits$} ({low:.digits$}-{high:.digits$})", values[values.len() / 2])
}

fn median(samples: &[Sample], pick: fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(pick).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// User and system time so far, from `/proc/PID/stat` in ticks of 10 ms.
fn processor_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks as f64 / 100.0
}

/// Lengths of all `.log` files of a topic's partitions.
fn log_sizes(data: &Path, topic: &str) -> u64 {
    let Ok(folders) = fs::read_dir(data) else { return 0 };
    let of_topic = folders.flatten().filter(|entry| {
        entry
            .file_name()
            .to_str()
            .and_then(|name| name.rsplit_once('-'))
            .is_some_and(|(name, _)| name == topic)
    });
    of_topic
        .filter_map(|folder| fs::read_dir(folder.path()).ok())
        .flat_map(|files| files.flatten())
        .filter(|file| file.path().extension().is_some_and(|kind| kind == "log"))
        .filter_map(|file| file.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}
