//! A seeded simulator of crashes: random work on a log, then a kill or a loss of power, then what
//! came back is compared with what was published. Prints its seed when a promise is broken.
//!
//! A kill leaves every file as it is. A loss of power leaves of each file any mixture of pages as
//! they were when last synced and as they are now, any length in between, new files perhaps missing,
//! removed and renamed ones perhaps back. What the storage said was durable must be there all the
//! same.
//!
//! `LONGHAUL_SEED=n` runs one seed and tells its steps, `LONGHAUL_SEEDS=n` runs n of them,
//! `LONGHAUL_FIRST_SEED=n` starts elsewhere.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
#![expect(
    clippy::print_stderr,
    reason = "the seed of a broken run is for the person who repeats it"
)]

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{ANY_EPOCH, batch_of, config, folder, partition, receive, topic_id};
use longhaul_storage::batch::{
    BatchBuilder, BatchInfo, BatchLimits, BatchValidator, ControlMarker,
};
use longhaul_storage::txns::OpenTransactions;
use longhaul_storage::{
    LandingTarget, LeaderEpoch, Log, LogConfig, Offset, ProducerEpoch, ProducerId, Storage,
    StorageConfig,
};

const PAGE: usize = 4096;
const STEPS: usize = 60;
const SEEDS: u64 = 40;

#[test]
fn what_was_published_and_synced_survives_every_crash() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds = match number("LONGHAUL_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("LONGHAUL_FIRST_SEED").unwrap_or(0);
            first..first + number("LONGHAUL_SEEDS").unwrap_or(SEEDS)
        }
    };
    for seed in seeds {
        let told = TellSeed(seed);
        Simulation::new(seed).run();
        drop(told);
    }
}

struct TellSeed(u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: LONGHAUL_SEED={} repeats this run", self.0, self.0);
        }
    }
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// A published batch as the model remembers it.
#[derive(Clone)]
struct Published {
    bytes: Vec<u8>,
    info: BatchInfo,
}

/// An inode, and when it was made: a file system uses the numbers of removed files again.
type FileId = (u64, std::time::SystemTime);

fn id_of(found: &std::fs::Metadata) -> FileId {
    (found.ino(), found.created().unwrap())
}

/// A directory as it is on the device: file content by inode, and names.
#[derive(Default)]
struct Durable {
    names: BTreeMap<PathBuf, FileId>,
    content: BTreeMap<FileId, Vec<u8>>,
}

struct Simulation {
    random: Random,
    root: tempfile::TempDir,
    storage: Option<Arc<Storage>>,
    log: Option<Log>,
    /// Everything since the log was made or reset, also what lies below the log start.
    history: Vec<Published>,
    log_start: i64,
    log_end: i64,
    epoch: i32,
    open: Vec<i64>,
    /// Received in place and not yet looked at.
    in_flight: Vec<u8>,
    durable: Durable,
    durable_end: i64,
    durable_start: i64,
}

fn settings() -> LogConfig {
    LogConfig { segment_bytes_max: 1 << 20, index_interval_bytes: 2000, ..config() }
}

fn open_storage(root: &Path) -> Arc<Storage> {
    Storage::open(StorageConfig {
        directories: vec![root.to_path_buf()],
        descriptors_max: 8,
        mappings_max: 4,
        recycle_bytes_max: 6 << 20,
    })
    .unwrap()
}

fn info_of(bytes: &[u8]) -> BatchInfo {
    let mut validator = BatchValidator::new(BatchLimits { batch_bytes_max: u32::MAX });
    validator.feed(&mut &bytes[..]).unwrap().unwrap()
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let root = new_root();
        let storage = open_storage(root.path());
        let log = storage.create_log(&partition(), topic_id(), Offset(0), settings()).unwrap();
        let mut simulation = Self {
            random: Random(seed),
            root,
            storage: Some(storage),
            log: Some(log),
            history: Vec::new(),
            log_start: 0,
            log_end: 0,
            epoch: 0,
            open: Vec::new(),
            in_flight: Vec::new(),
            durable: Durable::default(),
            durable_end: 0,
            durable_start: 0,
        };
        simulation.checkpoint();
        simulation
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            let step = self.random.below(20);
            if std::env::var("LONGHAUL_SEED").is_ok() {
                let held = self.log().reader();
                eprintln!(
                    "step {step}: {} to {} epoch {} model {}",
                    held.log_start(),
                    held.log_end(),
                    held.latest_epoch(),
                    self.epoch
                );
            }
            match step {
                0..9 => self.land(),
                9 => self.checkpoint(),
                10 => self.flush(),
                11 => self.log().maintain(1_000).unwrap(),
                12 => self.truncate(),
                13 | 14 => self.advance(),
                15 if self.random.one_in(4) => self.reset(),
                16 => self.close_and_open(),
                17 => self.crash(false),
                18 => self.crash(true),
                _ => self.check_log(),
            }
        }
        self.crash(true);
        self.crash(false);
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    fn storage(&self) -> &Arc<Storage> {
        self.storage.as_ref().unwrap()
    }

    /// One batch that continues the log: plain, of a transaction, or a marker; perhaps after a gap.
    fn next_batch(&mut self, base: i64) -> Vec<u8> {
        let gap = if self.random.one_in(10) { self.random.below(50) as i64 } else { 0 };
        self.epoch += i32::from(self.random.one_in(12));
        let (base, epoch) = (base + gap, LeaderEpoch(self.epoch));
        let producer = ProducerId(self.random.below(4) as i64);
        match self.random.below(10) {
            0 | 1 if !self.open.contains(&producer.0) => self.open.push(producer.0),
            2 if self.open.contains(&producer.0) => {
                self.open.retain(|open| *open != producer.0);
                let marker = if self.random.one_in(2) {
                    ControlMarker::Abort
                } else {
                    ControlMarker::Commit
                };
                let producer = (producer, ProducerEpoch(0));
                let time = (1000 + base, 0);
                return BatchBuilder::end_of_transaction(
                    Offset(base),
                    epoch,
                    producer,
                    marker,
                    time,
                );
            }
            _ => {
                let records = 1 + self.random.below(10) as i32;
                let value = 20 + self.random.below(9000);
                return batch_of(base, records, self.epoch, value);
            }
        }
        let mut builder = BatchBuilder::new(Offset(base), epoch)
            .producer(producer, ProducerEpoch(0), 0)
            .transactional();
        builder.push(1000 + base, None, Some(b"in a transaction"), &[]);
        builder.finish()
    }

    /// A response of some batches, the last one perhaps cut, landed in pieces; perhaps not ended.
    fn land(&mut self) {
        let (epoch, open) = (self.epoch, self.open.clone());
        let mut batches = Vec::new();
        let mut next = self.log_end;
        for _ in 0..=self.random.below(12) {
            let before = (self.epoch, self.open.clone());
            let bytes = self.next_batch(next);
            let info = info_of(&bytes);
            next = info.last_offset.0 + 1;
            batches.push((Published { bytes, info }, before));
        }
        let mut response: Vec<u8> = batches.iter().flat_map(|(b, _)| b.bytes.clone()).collect();
        if self.random.one_in(3) {
            response.truncate(response.len() - self.random.below(response.len()));
        }
        (self.epoch, self.open) = (epoch, open);
        let announced = response.len() as u32 + if self.random.one_in(2) { 100_000 } else { 0 };
        let mut target = self.log().prepare_landing(announced).unwrap();
        let mut rest = &response[..];
        let mut stored = self.active_bytes();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + self.random.below(rest.len()));
            rest = after;
            if matches!(target, LandingTarget::Mapped(_)) && !self.random.one_in(5) {
                receive(self.root.path(), stored, piece);
                self.in_flight = piece.to_vec();
                if self.random.one_in(8) {
                    let all: Vec<_> = batches.iter().map(|(batch, _)| batch.clone()).collect();
                    let received = response.len() - rest.len();
                    return self.crash_in_flight(&all, received);
                }
                self.log().landed_in_place(piece.len(), &ANY_EPOCH).unwrap();
                self.in_flight.clear();
            } else {
                self.log().land(piece, &ANY_EPOCH).unwrap();
            }
            stored += piece.len() as u64;
            target = self.log().prepare_landing(rest.len() as u32).unwrap();
        }
        let log_end = self.log().reader().log_end().0;
        for (batch, _) in batches {
            if batch.info.last_offset.0 < log_end {
                self.publish(batch);
            }
        }
        assert_eq!(self.log_end, log_end);
        if self.random.one_in(6) {
            return self.crash(self.random.0.is_multiple_of(2));
        }
        self.log().finish_landing().unwrap();
    }

    fn publish(&mut self, batch: Published) {
        self.log_end = batch.info.last_offset.0 + 1;
        self.epoch = batch.info.leader_epoch.0;
        self.history.push(batch);
        self.follow_history();
    }

    /// Producers with an open transaction at the end of the history.
    fn follow_history(&mut self) {
        let open = self.open_at(self.log_end);
        self.open = open.iter().map(|open| open.producer_id.0).collect();
    }

    fn open_at(&self, end: i64) -> OpenTransactions {
        let mut open = OpenTransactions::default();
        for batch in self.history.iter().filter(|batch| batch.info.last_offset.0 < end) {
            open.append(&batch.info).unwrap();
        }
        open
    }

    fn active_bytes(&mut self) -> u64 {
        let newest = common::files_of(self.root.path(), ".log").pop().unwrap();
        let base: i64 = newest[..20].parse().unwrap();
        let inside = self.history.iter().filter(|batch| batch.info.base_offset.0 >= base);
        inside.map(|batch| batch.bytes.len() as u64).sum()
    }

    fn checkpoint(&mut self) {
        self.storage().checkpoint().unwrap();
        self.now_durable();
    }

    fn flush(&mut self) {
        self.log().flush().unwrap();
        self.flushed();
    }

    fn flushed(&mut self) {
        // The line in the checkpoint is not synced, what it vouches for is.
        let start = self.durable_start;
        let checkpoint = PathBuf::from(".longhaul/checkpoint");
        let before = self.durable.names.get(&checkpoint).copied();
        let content = before.and_then(|inode| self.durable.content.get(&inode).cloned());
        self.now_durable();
        self.durable_start = start;
        let last = self.history.last().map_or(0, |batch| batch.info.last_offset.0 + 1);
        self.durable_end = self.durable_end.min(last);
        if let (Some(inode), Some(content)) = (before, content) {
            self.durable.names.insert(checkpoint, inode);
            self.durable.content.insert(inode, content);
        }
    }

    fn truncate(&mut self) {
        let span = (self.log_end - self.log_start).max(1) as usize;
        let back = self.random.below(span.min(200)) as i64;
        let offset = self.log_end - back;
        if offset <= self.log_start {
            return;
        }
        self.log().truncate_to(Offset(offset)).unwrap();
        self.history.retain(|batch| batch.info.last_offset.0 < offset);
        let end = self.log().reader().log_end().0;
        let last = self.history.last().map_or(0, |batch| batch.info.last_offset.0 + 1);
        assert!(end <= offset && end >= last.min(offset), "{last} {end} {offset}");
        if end == self.log_start {
            // Emptied: begun anew, without what was open below the log start.
            self.history.clear();
        }
        self.after_cut(end);
    }

    fn reset(&mut self) {
        let offset = self.log_end + self.random.below(100) as i64;
        self.log().reset_to(Offset(offset)).unwrap();
        self.history.clear();
        self.log_start = offset;
        self.epoch = 0;
        self.after_cut(offset);
    }

    fn after_cut(&mut self, end: i64) {
        self.log_end = end;
        self.log_start = self.log().reader().log_start().0;
        self.epoch = self.history.last().map_or(0, |batch| batch.info.leader_epoch.0);
        self.follow_history();
        let (durable_start, durable_end) = (self.durable_start, self.durable_end);
        self.now_durable();
        // Synced were the cut and the note of it, not records that had not been before.
        self.durable_start = durable_start.min(self.log_start);
        let last = self.history.last().map_or(end, |batch| batch.info.last_offset.0 + 1);
        self.durable_end = durable_end.min(end).min(last);
    }

    fn advance(&mut self) {
        let offset =
            self.log_start + self.random.below((self.log_end - self.log_start) as usize + 1) as i64;
        self.log().advance_log_start(Offset(offset)).unwrap();
        self.log_start = offset;
    }

    fn close_and_open(&mut self) {
        self.log.take().unwrap().close().unwrap();
        self.flushed();
        let storage = Arc::clone(self.storage());
        let second = common::files_of(self.root.path(), ".log").into_iter().nth(1);
        let (log, report) = storage.open_log(&partition(), settings()).unwrap();
        assert!(report.clean, "{report:?}");
        self.log = Some(log);
        self.check_log();
        // Segments below the log start are removed at the open: what says that they are not needed
        // must be on the device before.
        if second.is_some_and(|name| name[..20].parse::<i64>().unwrap() <= self.log_start) {
            self.checkpoint_durable();
        }
    }

    /// The checkpoint's file as it is now would survive.
    fn checkpoint_durable(&mut self) {
        let name = PathBuf::from(".longhaul/checkpoint");
        let (before, start) = (std::mem::take(&mut self.durable), self.log_start);
        let end = self.durable_end;
        self.now_durable();
        let now = std::mem::replace(&mut self.durable, before);
        let inode = now.names[&name];
        self.durable.content.insert(inode, now.content[&inode].clone());
        self.durable.names.insert(name, inode);
        (self.durable_start, self.durable_end) = (start, end);
    }

    /// The published log is what the model says.
    fn check_log(&mut self) {
        let (start, end) = (self.log_start, self.log_end);
        let reader = Arc::clone(self.log().reader());
        assert_eq!((reader.log_start().0, reader.log_end().0), (start, end));
        let first = reader_start(&self.history, start);
        let expected: Vec<u8> =
            self.history[first..].iter().flat_map(|batch| batch.bytes.clone()).collect();
        assert!(common::read_all(&reader, 20_000) == expected, "read back");
        let stable = self.open_at(end).last_stable_offset(Offset(end)).max(Offset(start));
        assert_eq!(reader.last_stable_offset(), stable);
        // An emptied log knows its last epoch and batch only until a crash.
        if let Some(last) =
            self.history.last().filter(|last| last.info.last_offset.0 >= start).cloned()
        {
            assert_eq!(reader.latest_epoch(), last.info.leader_epoch);
            assert_eq!(
                self.log().last_batch().map(|batch| batch.last_offset),
                Some(last.info.last_offset)
            );
        }
    }

    fn crash_in_flight(&mut self, batches: &[Published], received: usize) {
        // Recovery may take what was received although no one had looked at it; also a batch of
        // which the last bytes are missing, if those that lay there before are the same.
        let log_end = self.log().reader().log_end().0;
        let mut start = 0;
        for batch in batches {
            if batch.info.last_offset.0 < log_end || start < received {
                self.publish(batch.clone());
            }
            start += batch.bytes.len();
        }
        self.crash_to(false, log_end);
    }

    fn crash(&mut self, power: bool) {
        let floor = if power { self.durable_end } else { self.log_end };
        self.crash_to(power, floor);
    }

    /// Crashes, comes back, and compares: a prefix of the history that ends at `floor` or later.
    fn crash_to(&mut self, power: bool, floor: i64) {
        self.in_flight.clear();
        // A truncation into a gap ends the log beyond its last batch, which is all a scan finds.
        let last = self.history.last().map_or(0, |batch| batch.info.last_offset.0 + 1);
        let floor = floor.min(last);
        let after = new_root();
        if power {
            self.lose_power(after.path());
        } else {
            common::copy_directory(self.root.path(), after.path());
        }
        (self.log, self.storage) = (None, None);
        self.root = after;
        let storage = open_storage(self.root.path());
        let (log, report) = storage.open_log(&partition(), settings()).unwrap();
        let reader = log.reader();
        let (start, end) = (reader.log_start().0, reader.log_end().0);
        assert!(
            end >= floor && end <= self.log_end,
            "{floor} <= {end} <= {}: {report:?}",
            self.log_end
        );
        assert!(
            start >= self.durable_start && start <= self.log_start.max(end),
            "{} <= {start} <= {}",
            self.durable_start,
            self.log_start
        );
        self.history.retain(|batch| batch.info.last_offset.0 < end);
        let (log_end, log_start) = (end, start);
        self.log = Some(log);
        self.storage = Some(storage);
        (self.log_start, self.log_end) = (log_start, log_end);
        self.epoch = self.history.last().map_or(0, |batch| batch.info.leader_epoch.0);
        self.follow_history();
        self.check_log();
        self.durable = Durable::default();
        self.checkpoint();
    }

    /// Takes everything there is now as being on the device.
    fn now_durable(&mut self) {
        self.durable = Durable::default();
        let mut files = Vec::new();
        list(self.root.path(), Path::new(""), &mut files);
        for (name, inode) in files {
            let content = std::fs::read(self.root.path().join(&name)).unwrap();
            self.durable.content.insert(inode, content);
            self.durable.names.insert(name, inode);
        }
        self.durable_end = self.log_end;
        self.durable_start = self.log_start;
    }

    fn lose_power(&mut self, to: &Path) {
        let mut now = Vec::new();
        list(self.root.path(), Path::new(""), &mut now);
        let mut names: BTreeMap<PathBuf, FileId> = now.into_iter().collect();
        for (name, inode) in self.durable.names.clone() {
            // A name that is gone or stands for another file may be what it was.
            if names.get(&name) != Some(&inode) && !is_ours(&name) && self.random.one_in(2) {
                let renamed = names.iter().find(|(_, other)| **other == inode);
                if let Some(renamed) = renamed.map(|(name, _)| name.clone()) {
                    names.remove(&renamed);
                }
                names.insert(name, inode);
            }
        }
        for (name, inode) in names {
            let path = to.join(&name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let old = self.durable.content.get(&inode).cloned();
            let was_named = self.durable.names.contains_key(&name);
            let current = std::fs::read(self.root.path().join(&name)).ok();
            let current = if self.inode_of(&name) == Some(inode) { current } else { old.clone() };
            if !was_named && old.is_none() && self.random.one_in(4) && !is_ours(&name) {
                continue;
            }
            let (old, current) = (old.unwrap_or_default(), current.unwrap_or_default());
            std::fs::write(path, self.mix(&old, &current)).unwrap();
        }
        std::fs::create_dir_all(to.join(".longhaul")).unwrap();
        std::fs::create_dir_all(folder(to)).unwrap();
    }

    fn inode_of(&self, name: &Path) -> Option<FileId> {
        std::fs::metadata(self.root.path().join(name)).ok().map(|found| id_of(&found))
    }

    /// Any pages of either, any length in between.
    fn mix(&mut self, old: &[u8], current: &[u8]) -> Vec<u8> {
        if old == current {
            return current.to_vec();
        }
        let (short, long) = (old.len().min(current.len()), old.len().max(current.len()));
        let len = match self.random.below(3) {
            0 => old.len(),
            1 => current.len(),
            _ => short + self.random.below(long - short + 1),
        };
        let mut mixed = vec![0; len];
        for (number, page) in mixed.chunks_mut(PAGE).enumerate() {
            let from = if self.random.one_in(3) { old } else { current };
            let source = from.get(number * PAGE..).unwrap_or_default();
            let count = source.len().min(page.len());
            page[..count].copy_from_slice(&source[..count]);
        }
        mixed
    }
}

/// In memory where that is possible: the simulator syncs thousands of times.
fn new_root() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Our own files are replaced with a sync of the folder: a name stands for the newest.
fn is_ours(name: &Path) -> bool {
    name.starts_with(".longhaul") || name.to_string_lossy().ends_with("checkpoint")
}

/// The first batch a reader gets.
fn reader_start(history: &[Published], log_start: i64) -> usize {
    history.partition_point(|batch| batch.info.last_offset.0 < log_start)
}

fn list(root: &Path, inside: &Path, files: &mut Vec<(PathBuf, FileId)>) {
    for entry in std::fs::read_dir(root.join(inside)).unwrap() {
        let entry = entry.unwrap();
        let name = inside.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            list(root, &name, files);
        } else {
            files.push((name, id_of(&entry.metadata().unwrap())));
        }
    }
}
