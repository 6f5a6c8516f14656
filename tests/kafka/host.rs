//! The host gives out: full disks, no inodes, a volume that turned read-only, no io_uring.

use std::fs;
use std::time::Duration;

use serde_json::json;
use testkit::{
    Driver, Node, NodeOptions, assert_logs_equal, dump_log_segments, wait_for_equal_ends,
    wait_until,
};

use crate::mount::Mount;
use crate::{driver, options, shared_cluster};

const LIMIT: Duration = Duration::from_secs(60);

fn node_on(mount: &Mount, config: &str) -> Node {
    let options = NodeOptions { data: vec![mount.join("data")], ..options(config) };
    Node::start(env!("CARGO_BIN_EXE_longhaul"), &options)
}

fn produce(topic: &str, partitions: i32, first: u64, count: u64) {
    for partition in 0..partitions {
        driver().must(
            &json!({"do": "produce", "bootstrap": shared_cluster().bootstrap(), "topic": topic,
            "partition": partition, "first": first, "count": count, "size": 1000}),
        );
    }
}

fn wait_cause(node: &Node, topic: &str, partition: i32, part: &str) {
    let mut last = None;
    wait_until(&format!("{topic}-{partition} to name {part:?}"), LIMIT, || {
        last = node.row(topic, partition);
        last.as_ref()?.error_message.as_ref().filter(|cause| cause.contains(part)).map(drop)
    });
}

fn commit(node: &Node, topic: &str, offset: i64) -> Result<(), testkit::DriverError> {
    let command = json!({"do": "commit", "bootstrap": node.address(), "group": "on-full-disk",
        "topic": topic, "offset": offset});
    driver().call(&command).map(drop)
}

/// S-37.
#[test]
fn on_a_full_disk_reads_go_on_and_mirroring_resumes_by_itself_when_there_is_room() {
    let Some(mount) = Mount::in_memory("size=64m") else { return };
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "full", 2, &json!({}));
    produce("full", 2, 0, 2000);
    let mut node = node_on(&mount, "[storage]\nsegment_bytes_max = 3000000\n");
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "full");
    wait_for_equal_ends(driver, cluster, &node, &[("full", 0), ("full", 1)]);
    commit(&node, "full", 7).expect("a commit");

    let ballast = mount.fill(2 << 20);
    produce("full", 2, 2000, 8000);
    for partition in 0..2 {
        wait_cause(&node, "full", partition, "disk full");
    }
    let ends: Vec<_> = node.describe().iter().map(|row| row.destination_offset).collect();
    assert!(ends.iter().all(|end| (2000..10_000).contains(end)), "{ends:?}");
    reads_go_on(driver, &node);
    // A crash on a full disk is no reason to stay away.
    node.kill();
    node.restart();
    reads_go_on(driver, &node);
    for partition in 0..2 {
        wait_cause(&node, "full", partition, "disk full");
    }

    fs::remove_file(ballast).expect("the ballast");
    wait_for_equal_ends(driver, cluster, &node, &[("full", 0), ("full", 1)]);
    wait_until("the causes to be gone", LIMIT, || {
        node.describe().iter().all(|row| row.error_message.is_none()).then_some(())
    });
    wait_until("a commit", LIMIT, || commit(&node, "full", 8).ok());
    let expected = driver.consume_all(&source, "full", 20_000, "read_uncommitted");
    let found = driver.consume_all(&node.address(), "full", 20_000, "read_uncommitted");
    assert_eq!((found.count, found.digest), (20_000, expected.digest));
    node.stop();
    for folder in ["full-0", "full-1"] {
        assert_logs_equal(&cluster.data(0).join(folder), &node.data().join(folder));
        dump_log_segments(&node.data().join(folder));
    }
}

fn reads_go_on(driver: &Driver, node: &Node) {
    let read = driver.consume_all(&node.address(), "full", 4000, "read_uncommitted");
    assert_eq!(read.count, 4000);
}

/// S-37 with inodes: what cannot be created is named, waits, and is created when it can be.
#[test]
fn without_inodes_a_new_partition_waits_by_name_and_is_copied_from_its_first_record_later() {
    let Some(mount) = Mount::in_memory("size=64m,nr_inodes=2000") else { return };
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "inodes-old", 1, &json!({}));
    let mut node = node_on(&mount, "");
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "inodes-.*");
    produce("inodes-old", 1, 0, 100);
    node.wait_for_offset("inodes-old", 0, 100);

    let taken = mount.take_inodes();
    driver.create_topic(&source, "inodes-new", 2, &json!({}));
    produce("inodes-new", 2, 0, 100);
    produce("inodes-old", 1, 100, 100);
    wait_cause(&node, "inodes-new", 1, "No space left");
    node.wait_for_offset("inodes-old", 0, 200);

    fs::remove_dir_all(taken).expect("the inodes");
    let partitions = [("inodes-new", 0), ("inodes-new", 1), ("inodes-old", 0)];
    wait_for_equal_ends(driver, cluster, &node, &partitions);
    node.stop();
    for folder in ["inodes-new-0", "inodes-new-1", "inodes-old-0"] {
        assert_logs_equal(&cluster.data(0).join(folder), &node.data().join(folder));
    }
}

/// S-37 with a volume that turned read-only: its partitions stop with the cause, all are readable,
/// and those of the other volume go on.
#[test]
fn a_volume_that_turned_read_only_stops_its_own_partitions_only() {
    let Some(mount) = Mount::ext4(96 << 20) else { return };
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "volumes", 4, &json!({}));
    produce("volumes", 4, 0, 500);
    let sound = tempfile::tempdir().expect("a folder");
    let data = vec![sound.path().join("data"), mount.join("data")];
    let node = Node::start(
        env!("CARGO_BIN_EXE_longhaul"),
        &NodeOptions { data: data.clone(), ..options("") },
    );
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "volumes");
    let partitions: Vec<_> = (0..4).map(|index| ("volumes", index)).collect();
    wait_for_equal_ends(driver, cluster, &node, &partitions);
    let on_failing = |partition: i32| data[1].join(format!("volumes-{partition}")).exists();
    assert_eq!((0..4).filter(|partition| on_failing(*partition)).count(), 2);

    mount.fail();
    produce("volumes", 4, 500, 500);
    for partition in 0..4 {
        if on_failing(partition) {
            wait_cause(&node, "volumes", partition, "ead-only");
        } else {
            node.wait_for_offset("volumes", partition, 1000);
        }
    }
    let read = driver.consume_all(&node.address(), "volumes", 3000, "read_uncommitted");
    assert_eq!(read.count, 3000, "{:?} {:?}\n{}", read.next, node.describe(), node.log());
}

/// S-38: too little lockable memory is told at the start, with the limit's name; where the node has
/// started it works.
#[test]
fn the_limit_of_locked_memory_is_named_at_the_start_or_is_enough() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data").display().to_string();
    let binary = env!("CARGO_BIN_EXE_longhaul");
    // Without the capability that lifts the limit.
    let under = |limit: &str| -> Vec<String> {
        let limit = format!("--memlock={limit}:{limit}");
        let without = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"];
        let mut all = vec!["prlimit".to_owned(), limit];
        all.extend(without.map(str::to_owned));
        all
    };
    let mut command = under("65536");
    command.extend(
        [binary, "node", "--listen", "127.0.0.1:0", "--data-dir", &data].map(str::to_owned),
    );
    let arguments: Vec<_> = command[1..].iter().map(String::as_str).collect();
    let ended = testkit::run(&command[0], &arguments, LIMIT);
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("64 KiB"), "{}", ended.stderr);
    assert!(ended.stderr.contains("ulimit -l"), "{}", ended.stderr);

    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "locked", 2, &json!({}));
    produce("locked", 2, 0, 3000);
    // The default of systemd and of most distributions.
    let options = NodeOptions { under: under("8388608"), ..options("") };
    let node = Node::start(binary, &options);
    node.create_mirror("m", &source, &[]);
    node.start_topics("m", "locked");
    wait_for_equal_ends(driver, cluster, &node, &[("locked", 0), ("locked", 1)]);
    let read = driver.consume_all(&node.address(), "locked", 6000, "read_uncommitted");
    assert_eq!(read.count, 6000);
    node.assert_quiet_log(&[]);
}

/// Makes `io_uring_setup` fail as container runtimes and `kernel.io_uring_disabled` do, for the
/// program it is followed by.
const WITHOUT_IO_URING: &str = "
import ctypes, os, struct, sys
IO_URING_SETUP, EPERM, ALLOW, ERRNO = 425, 1, 0x7fff0000, 0x00050000
filters = [(0x20, 0, 0, 0), (0x15, 0, 1, IO_URING_SETUP), (0x06, 0, 0, ERRNO | EPERM), (0x06, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *one) for one in filters))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(filters), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
";

/// S-38: where io_uring is forbidden the node ends with one sentence that says what to change.
#[test]
fn without_io_uring_the_node_ends_with_the_cause_and_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data").display().to_string();
    let node =
        [env!("CARGO_BIN_EXE_longhaul"), "node", "--listen", "127.0.0.1:0", "--data-dir", &data];
    let ended = testkit::python(WITHOUT_IO_URING, &node);
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    let sentences: Vec<_> =
        ended.stderr.lines().filter(|line| line.contains("io_uring_setup")).collect();
    assert_eq!(sentences.len(), 1, "{}", ended.stderr);
    assert!(sentences[0].contains("seccomp"), "{}", ended.stderr);
}
