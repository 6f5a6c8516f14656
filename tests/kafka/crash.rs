//! kill -9 at random points under load: always a valid prefix, no gap, no doubled batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use testkit::{Cluster, Driver, log_bytes, log_bytes_from, wait_for_equal_ends};

use crate::{node_with, shared_cluster};

/// Kills in the test suite; `LONGHAUL_KILLS=500` for the long run.
const KILLS: u64 = 50;
const TOPIC: &str = "killed";
const PARTITIONS: i32 = 4;

#[test]
fn killed_at_random_points_the_mirror_is_always_a_prefix() {
    let kills =
        std::env::var("LONGHAUL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let cluster = shared_cluster();
    let source = cluster.bootstrap();
    let writer = Driver::start();
    writer.create_topic(&source, TOPIC, PARTITIONS as u32, &json!({"segment.bytes": "4194304"}));

    let mut node =
        node_with("[storage]\nsegment_bytes_max = 1000000\ncheckpoint_interval_ms = 200\n");
    node.create_mirror("m", &source, &[]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| load(&writer, &source, &done));
        node.start_topics("m", TOPIC);
        let seed = std::process::id();
        let mut random = u64::from(seed) | 1;
        let mut checked = [0; PARTITIONS as usize];
        for round in 0..kills {
            // xorshift: when within a write, a roll or a checkpoint the kill strikes is left to chance.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            std::thread::sleep(Duration::from_millis(20 + random % 400));
            node.kill();
            check_prefixes(cluster, &node, &mut checked, seed, round);
            node.restart();
        }
        done.store(true, Ordering::Relaxed);
    });

    let partitions: Vec<_> = (0..PARTITIONS).map(|index| (TOPIC, index)).collect();
    wait_for_equal_ends(&writer, cluster, &node, &partitions);
    node.stop();
    for (topic, partition) in partitions {
        let folder = format!("{topic}-{partition}");
        let (theirs, ours) =
            (log_bytes(&cluster.data(0).join(&folder)), log_bytes(&node.data().join(&folder)));
        assert!(theirs.len() > 100_000, "the load reached {folder}");
        assert!(theirs == ours, "{folder}: {} and {} bytes", theirs.len(), ours.len());
    }
}

fn load(writer: &Driver, source: &str, done: &AtomicBool) {
    let mut first = 0;
    while !done.load(Ordering::Relaxed) {
        for partition in 0..PARTITIONS {
            writer.must(&json!({"do": "produce", "bootstrap": source, "topic": TOPIC, "partition": partition,
                "first": first, "count": 200, "size": 500, "producer": "load", "compression": "lz4"}));
        }
        first += 200;
        // A steady trickle: hundreds of kills must not mean gigabytes.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whatever valid batches a killed node has on disk are the source's, from its first byte on.
/// `checked` bytes of each partition were compared at earlier kills; at the end all are again.
fn check_prefixes(
    cluster: &Cluster,
    node: &testkit::Node,
    checked: &mut [usize],
    seed: u32,
    round: u64,
) {
    for (partition, checked) in checked.iter_mut().enumerate() {
        let folder = format!("{TOPIC}-{partition}");
        if !node.data().join(&folder).exists() {
            continue;
        }
        let ours = valid_prefix(&log_bytes_from(&node.data().join(&folder), *checked));
        let theirs = log_bytes_from(&cluster.data(0).join(&folder), *checked);
        assert!(
            theirs.starts_with(&ours),
            "seed {seed}, kill {round}: {folder} is no prefix of the source from byte {checked} on ({} of {} bytes)",
            ours.len(),
            theirs.len()
        );
        *checked += ours.len();
    }
}

/// The bytes up to the first batch that is not whole: what was landing when the kill struck.
fn valid_prefix(bytes: &[u8]) -> Vec<u8> {
    let mut end = 0;
    while let Some(header) = bytes.get(end..end + 12) {
        let length = i32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let whole = end + 12 + usize::try_from(length).unwrap_or(0);
        if length <= 0 || whole > bytes.len() {
            break;
        }
        end = whole;
    }
    // The last one may have its header and not its bytes.
    let mut kept = 0;
    let mut walk = 0;
    while walk < end {
        kept = walk;
        let length = i32::from_be_bytes([
            bytes[walk + 8],
            bytes[walk + 9],
            bytes[walk + 10],
            bytes[walk + 11],
        ]);
        walk += 12 + usize::try_from(length).unwrap_or(0);
    }
    bytes[..kept].to_vec()
}
