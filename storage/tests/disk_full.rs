//! A full disk: the log stays as it is, tells why, and goes on when there is room.
//!
//! Needs a small file system of its own, so the right to mount one; says so where that is missing.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::path::Path;
use std::process::Command;

use common::{
    ANY_EPOCH, batch_of, config, create, files_of, folder, log_bytes, open, read_all, storage,
};
use longhaul_storage::{AppendError, LogConfig, Offset};

/// A file system in memory, mounted as long as this lives.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(folder)),
            refused => {
                eprintln!("not tried: no right to mount a file system here ({refused:?})");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_log_on_a_full_disk_keeps_what_it_has_and_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount("size=2m") else { return };
    let filler = disk.path().join("filler");
    std::fs::write(&filler, vec![1; 1 << 20]).unwrap();
    let storage = storage(disk.path());
    let small = LogConfig { segment_bytes_max: 100_000, ..config() };
    let mut log = create(&storage, small.clone());
    let mut given = Vec::new();
    let mut refused = 0;
    let mut next = 0;
    while refused < 5 {
        let bytes = batch_of(next, 1, 0, 7_000);
        log.prepare_landing(bytes.len() as u32).ok();
        let result =
            bytes.chunks(3000).try_for_each(|piece| log.land(piece, &ANY_EPOCH).map(|_| ()));
        log.finish_landing().unwrap();
        match result {
            Ok(()) if log.reader().log_end() == Offset(next + 1) => {
                given.extend(bytes);
                next += 1;
            }
            Ok(()) => refused += 1,
            Err(error) => {
                assert!(matches!(error, AppendError::DiskFull { .. }), "{error}");
                assert!(error.to_string().contains("orders-3"), "{error}");
                refused += 1;
            }
        }
        assert_eq!(log.reader().log_end(), Offset(next));
        // A checkpoint that cannot be written is an error, and nothing worse.
        let _ = storage.checkpoint();
    }
    assert!(next > 50, "{next}");
    assert!(read_all(log.reader(), 1000) == given, "reads go on");
    std::fs::remove_file(&filler).unwrap();
    for _ in 0..50 {
        let bytes = batch_of(next, 1, 0, 7_000);
        log.append(&bytes, &ANY_EPOCH).unwrap();
        given.extend(bytes);
        next += 1;
    }
    storage.checkpoint().unwrap();
    assert!(log_bytes(disk.path()) == given, "no torn batch between");
    log.close().unwrap();
    let (log, report) = open(&storage, small);
    assert!(report.clean, "{report:?}");
    assert!(read_all(log.reader(), 1) == given);
}

#[test]
fn a_log_without_inodes_for_a_new_segment_goes_on_when_there_are_some() {
    let Some(disk) = SmallDisk::mount("size=4m,nr_inodes=40") else { return };
    let storage = storage(disk.path());
    let small = LogConfig { segment_bytes_max: 10_000, ..config() };
    let mut log = create(&storage, small);
    let mut fillers = Vec::new();
    loop {
        let path = disk.path().join(format!("filler{}", fillers.len()));
        if std::fs::File::create(&path).is_err() {
            break;
        }
        fillers.push(path);
    }
    let mut given = Vec::new();
    let mut next = 0;
    let error = loop {
        let bytes = batch_of(next, 1, 0, 3_000);
        match log.append(&bytes, &ANY_EPOCH) {
            Ok(_) => {
                given.extend(bytes);
                next += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::DiskFull { .. }), "{error}");
    assert!(read_all(log.reader(), 1) == given);
    fillers.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    for _ in 0..10 {
        let bytes = batch_of(next, 1, 0, 3_000);
        log.append(&bytes, &ANY_EPOCH).unwrap();
        given.extend(bytes);
        next += 1;
    }
    assert!(log_bytes(disk.path()) == given);
    assert!(files_of(disk.path(), ".log").len() > 1);
}

/// A crash leaves indexes to be written, for which there is no room.
#[test]
fn after_a_crash_on_a_full_disk_a_log_is_opened_and_read_as_it_was() {
    let Some(disk) = SmallDisk::mount("size=2m") else { return };
    let small = LogConfig { segment_bytes_max: 100_000, ..config() };
    let mut given = Vec::new();
    {
        let storage = storage(disk.path());
        let mut log = create(&storage, small.clone());
        for next in 0..60 {
            let bytes = batch_of(next, 1, 0, 7_000);
            log.append(&bytes, &ANY_EPOCH).unwrap();
            given.extend(bytes);
        }
        // Dropped without being closed, as a crash leaves it.
    }
    for index in [".index", ".timeindex"].iter().flat_map(|kind| files_of(disk.path(), kind)) {
        std::fs::write(folder(disk.path()).join(index), []).unwrap();
    }
    let filler = disk.path().join("filler");
    fill(&filler);

    let storage = storage(disk.path());
    let (mut log, _) = open(&storage, small.clone());
    assert_eq!(log.reader().log_end(), Offset(60));
    assert!(read_all(log.reader(), 1000) == given, "reads go on");
    std::fs::remove_file(&filler).unwrap();
    let bytes = batch_of(60, 1, 0, 7_000);
    log.append(&bytes, &ANY_EPOCH).unwrap();
    given.extend(bytes);
    log.close().unwrap();
    let (log, report) = open(&storage, small);
    assert!(report.clean, "{report:?}");
    assert!(read_all(log.reader(), 1) == given);
}

/// Writes until nothing more fits.
fn fill(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    while file.write_all(&[1]).is_ok() {}
}
