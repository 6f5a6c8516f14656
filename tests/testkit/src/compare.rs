//! The files themselves, side by side.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use crate::{Cluster, Driver, Node};

/// All `.log` bytes of a partition folder, in order.
///
/// # Panics
/// When the folder cannot be read.
#[must_use]
pub fn log_bytes(folder: &Path) -> Vec<u8> {
    log_bytes_from(folder, 0)
}

/// The same without the first `skipped` bytes.
///
/// # Panics
/// When the folder cannot be read.
#[must_use]
pub fn log_bytes_from(folder: &Path, skipped: usize) -> Vec<u8> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    names.sort();
    let mut skip = u64::try_from(skipped).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    for name in names {
        let length = fs::metadata(&name).expect("a segment file").len();
        if skip >= length {
            skip -= length;
            continue;
        }
        let mut file = fs::File::open(&name).expect("a segment file");
        file.seek(SeekFrom::Start(skip)).expect("a position in it");
        file.read_to_end(&mut bytes).expect("a segment's bytes");
        skip = 0;
    }
    bytes
}

/// Compares all `.log` bytes of a partition on both sides; both must be stopped, or idle and flushed.
///
/// # Panics
/// When they differ, with the position.
pub fn assert_logs_equal(source: &Path, mirror: &Path) {
    let (expected, found) = (log_bytes(source), log_bytes(mirror));
    assert!(!expected.is_empty(), "{} is empty: nothing was compared", source.display());
    if expected == found {
        return;
    }
    let position = expected.iter().zip(&found).position(|(left, right)| left != right);
    panic!(
        "{} ({} bytes) and {} ({} bytes) differ from byte {:?}",
        source.display(),
        expected.len(),
        mirror.display(),
        found.len(),
        position.unwrap_or(expected.len().min(found.len())),
    );
}

/// Waits until every named partition's end at the node equals the source's.
pub fn wait_for_equal_ends(
    driver: &Driver,
    cluster: &Cluster,
    node: &Node,
    partitions: &[(&str, i32)],
) {
    for (topic, partition) in partitions {
        let (_, end) = driver.offsets(&cluster.bootstrap(), topic, *partition);
        node.wait_for_offset(topic, *partition, end);
        std::thread::sleep(Duration::from_millis(1));
    }
}
