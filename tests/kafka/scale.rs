//! Many consumers, many partitions, many bytes asked for at once: bounded, and nobody left behind.

use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench::run::CostWatch;
use kafka_protocol::messages::fetch_request::FetchTopic;
use scripted_source::{Batch, ScriptedCluster};
use serde_json::json;
use testkit::{Node, wait_until};
use uuid::Uuid;

use crate::raw::{Raw, decode_fetch, fetch_request, for_version, frame, partitions};
use crate::{driver, node, node_with, shared_cluster};

const LIMIT: Duration = Duration::from_secs(120);

/// Figures for the log of a run, past the harness, which shows them only when a test fails.
fn report(text: &str) {
    let _ = writeln!(std::io::stderr(), "measured: {text}");
}

/// A line of `/proc/PID/status` in bytes.
fn memory(node: &Node, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a known line");
    let kib: u64 = line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number");
    kib * 1024
}

/// Processor time used so far.
fn cpu_time(node: &Node) -> Duration {
    let costs = CostWatch::of_whole_lives(&[("node", node.pid())]).costs();
    Duration::from_secs_f64(costs.first().expect("a running node").seconds())
}

const IDLE_TOPICS: usize = 40;
const CONSUMERS: u64 = 200;
const WAIT: Duration = Duration::from_millis(500);

/// One fetch over all idle topics, as a consumer with a session sends it.
fn idle_fetch(session_id: i32, epoch: i32) -> kafka_protocol::messages::FetchRequest {
    let mut request = fetch_request("", Uuid::nil(), &[]);
    request.topics.clear();
    if epoch == 0 {
        for index in 0..IDLE_TOPICS {
            let one = fetch_request(&format!("idle-{index}"), Uuid::nil(), &[(0, 0)]);
            request.topics.extend::<Vec<FetchTopic>>(one.topics);
        }
    }
    request.session_id = session_id;
    request.session_epoch = epoch;
    request.max_wait_ms = WAIT.as_millis() as i32;
    request
}

/// Reads until a record comes; the topic it is of.
fn idle_consumer(address: &str, requests: &AtomicU64) -> String {
    let mut raw = Raw::connect(address);
    let (mut session_id, mut epoch) = (0, 0);
    loop {
        let response = raw.fetch(12, &idle_fetch(session_id, epoch));
        requests.fetch_add(1, Ordering::Relaxed);
        assert_eq!(response.error_code, 0);
        for topic in &response.responses {
            for partition in &topic.partitions {
                assert_eq!(partition.error_code, 0);
                if partition.records.as_ref().is_some_and(|records| !records.is_empty()) {
                    return topic.topic.to_string();
                }
            }
        }
        session_id = response.session_id;
        assert_ne!(session_id, 0, "a session for everyone");
        epoch += 1;
    }
}

/// S-35.
#[test]
fn idle_consumers_ask_twice_a_second_and_all_hear_of_a_record() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    for index in 0..IDLE_TOPICS {
        driver.create_topic(&source, &format!("idle-{index}"), 1, &json!({}));
    }
    let node = node();
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "idle-.*");
    wait_until("all idle topics", LIMIT, || {
        let rows = node.describe();
        let mirrored = rows.iter().filter(|row| row.state == "MIRRORING").count();
        (mirrored == IDLE_TOPICS).then_some(())
    });
    let requests = AtomicU64::new(0);
    let address = node.address();
    let heard: Vec<String> = std::thread::scope(|scope| {
        let consumers: Vec<_> =
            (0..CONSUMERS).map(|_| scope.spawn(|| idle_consumer(&address, &requests))).collect();
        wait_until("every consumer to have asked", LIMIT, || {
            (requests.load(Ordering::Relaxed) >= 2 * CONSUMERS).then_some(())
        });
        let (count, cpu, began) =
            (requests.load(Ordering::Relaxed), cpu_time(&node), Instant::now());
        std::thread::sleep(Duration::from_secs(4));
        let asked = requests.load(Ordering::Relaxed) - count;
        let (cpu, elapsed) = (cpu_time(&node) - cpu, began.elapsed());
        let per_consumer = asked as f64 / CONSUMERS as f64 / elapsed.as_secs_f64();
        report(&format!(
            "{per_consumer:.2} requests/s of each of {CONSUMERS} idle consumers, {:.2} cores",
            cpu.as_secs_f64() / elapsed.as_secs_f64()
        ));
        // A wait is never cut short; how much longer it takes is the machine's affair.
        let most = CONSUMERS * (elapsed.as_millis() / WAIT.as_millis() + 2) as u64;
        assert!(asked <= most, "{asked} requests in {elapsed:?}");
        assert!(asked > 0, "the waits end");
        assert!(cpu < elapsed / 2, "{cpu:?} of processor time in {elapsed:?}: it spins");
        driver.produce(&source, "idle-17", 0, 1, "none");
        consumers.into_iter().map(|one| one.join().expect("a consumer")).collect()
    });
    assert!(heard.iter().all(|topic| topic == "idle-17"), "{heard:?}");
}

const WIDE: usize = 1000;
const GREEDY: usize = 64;
const MEMORY_MAX: u64 = 32 << 20;
const FETCH_LIMIT: i32 = 50 << 20;

/// S-39: readers that ask for 3 GB together and take nothing.
#[test]
fn readers_that_take_nothing_cost_no_more_than_the_budget() {
    let cluster = ScriptedCluster::start(1);
    cluster.create_topic("greedy", WIDE, 1);
    let batch = Batch::filled(0, 0, 100, 1000);
    let batch_bytes = batch.encode().len();
    (0..WIDE).for_each(|partition| cluster.append("greedy", partition, &batch));
    let node = node_with(&format!(
        "[serve]\nmemory_max = {MEMORY_MAX}\nsend_timeout_ms = 4000\n\
         [storage]\nsegment_bytes_max = 1048576\n"
    ));
    node.create_mirror("m", &cluster.bootstrap(), &[]);
    node.start_topics("m", "greedy");
    wait_until("all partitions", LIMIT, || {
        (node.describe().iter().filter(|row| row.destination_offset == 100).count() == WIDE)
            .then_some(())
    });

    let all: Vec<_> = (0..WIDE as i32).map(|partition| (partition, 0)).collect();
    let mut request = for_version(fetch_request("greedy", Uuid::nil(), &all), 11);
    request.max_bytes = FETCH_LIMIT;
    for partition in &mut request.topics[0].partitions {
        partition.partition_max_bytes = 10 << 20;
    }
    // One that reads gets what it asked for, up to the limit.
    let answer = decode_fetch(11, Raw::connect(&node.address()).ask(11, &request));
    let sizes = partitions(&answer);
    let total: usize = sizes.iter().map(|one| one.records.as_ref().map_or(0, |r| r.len())).sum();
    assert!(total <= FETCH_LIMIT as usize + batch_bytes, "{total} bytes");
    assert!(total > FETCH_LIMIT as usize / 2, "{total} bytes: the limit was the bound");

    let before = memory(&node, "RssAnon:");
    let asked = frame(11, &request);
    let mut greedy: Vec<_> = (0..GREEDY).map(|_| Raw::connect(&node.address())).collect();
    greedy.iter_mut().for_each(|raw| raw.send(&asked));
    let mut peak = before;
    // Long enough for the slow ones to be seen, and disconnected.
    let until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < until {
        peak = peak.max(memory(&node, "RssAnon:"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let grown = peak - before;
    report(&format!("{GREEDY} greedy readers: {} KiB more memory at most", grown >> 10));
    // What the allocator keeps of the earlier answers, and the connections' own buffers.
    assert!(grown <= MEMORY_MAX + (16 << 20), "{grown} bytes");
    // They hold nobody up for good.
    let one = for_version(fetch_request("greedy", Uuid::nil(), &[(7, 0)]), 11);
    let answer = Raw::connect(&node.address()).fetch(11, &one);
    assert_eq!(partitions(&answer)[0].records.as_ref().map(|r| r.len()), Some(batch_bytes));
}

const IDLE_PARTITIONS: usize = 10_000;
const PARTITION_BYTES_MAX: u64 = 8 << 10;
/// What a node keeps open for those written to last, to be closed when others need the room.
const DESCRIPTORS_MAX: usize = 512;

/// Ten thousand partitions at rest: what is kept open has a bound, and is not needed at all.
#[test]
fn idle_partitions_hold_little_memory_and_nothing_open() {
    let cluster = ScriptedCluster::start(1);
    cluster.create_topic("first", 1, 1);
    cluster.create_topic("at-rest", IDLE_PARTITIONS, 1);
    let batch = Batch::filled(0, 0, 3, 100);
    (0..IDLE_PARTITIONS).for_each(|partition| cluster.append("at-rest", partition, &batch));
    let mut node = node_with(&format!("[storage]\ndescriptors_max = {DESCRIPTORS_MAX}\n"));
    node.create_mirror("m", &cluster.bootstrap(), &[]);
    node.start_topics("m", "first");
    wait_until("the first topic", LIMIT, || node.row("first", 0));
    let before = memory(&node, "VmRSS:");
    node.start_topics("m", "at-rest");
    let settled = |node: &Node| {
        wait_until("all partitions", LIMIT, || {
            let rows = node.describe();
            let there =
                |row: &&testkit::Row| row.state == "MIRRORING" && row.destination_offset == 3;
            (rows.iter().filter(there).count() == IDLE_PARTITIONS).then_some(())
        });
    };
    settled(&node);
    check_at_rest(&node, before, DESCRIPTORS_MAX, "after they were copied");
    node.stop();
    node.restart();
    settled(&node);
    check_at_rest(&node, before, 0, "after a restart");
}

fn check_at_rest(node: &Node, before: u64, held_max: usize, when: &str) {
    let data = node.data().join("at-rest-").display().to_string();
    let open = fs::read_dir(format!("/proc/{}/fd", node.pid()))
        .expect("the node's descriptors")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.display().to_string().starts_with(&data))
        .count();
    let maps = fs::read_to_string(format!("/proc/{}/maps", node.pid())).expect("its mappings");
    let mapped = maps.lines().filter(|line| line.contains(&data)).count();
    let each = memory(node, "VmRSS:").saturating_sub(before) / IDLE_PARTITIONS as u64;
    report(&format!(
        "{each} bytes of memory for each of {IDLE_PARTITIONS} partitions {when}, {open} descriptors, \
         {mapped} mappings"
    ));
    assert!(open <= held_max && mapped <= held_max, "{open} and {mapped} {when}");
    assert!(each <= PARTITION_BYTES_MAX, "{each} bytes {when}");
}
