//! A node's log directories: what is there, what may be used, how it comes back after a crash.
//!
//! Owns the directories (each locked against a second process), the registry of logs, the budgets
//! and the checkpoints. Any thread may call it; most calls block on the disk, so none belongs on a
//! core that serves sockets, except through a [`Log`]. It must never open a log twice, and never let
//! one partition's damage keep another from opening.

use std::collections::{HashMap, hash_map};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::budget::Budget;
use crate::checkpoint::{Checkpoint, CheckpointEntry, PRIVATE_FOLDER};
use crate::files::{
    LOCK_FILE, is_partition_metadata_lost, parse_folder_name, read_partition_metadata,
    write_partition_metadata,
};
use crate::log::{AppendError, Log, LogConfig, LogParts, create_segment_files};
use crate::reader::{LogReader, ReaderParts};
use crate::recovery::{new_state, recover, remove_segment};
use crate::recycle::{ReadyFile, RecyclePool};
use crate::segment::{Ended, Segment, SegmentFile};
use crate::sync::{Pending, sync_logs};
use crate::truncation::Doomed;
use crate::{Offset, TopicId, TopicPartition};

/// Holds, below the private folder, partition folders that lost their metadata.
const ASIDE_FOLDER: &str = "set-aside";

/// Ends the name of a folder that is being deleted.
const DELETED_SUFFIX: &str = "-delete";

/// Ends the name of a folder that is being made.
const NEW_SUFFIX: &str = ".new";

/// Node-wide storage settings and budgets.
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// Log directories; a new partition goes to the one with the fewest.
    pub directories: Vec<PathBuf>,
    /// Open file descriptors that logs may hold together.
    pub descriptors_max: usize,
    /// Mappings that logs may hold together.
    pub mappings_max: usize,
    /// Bytes of recycled, mapped segments kept ready.
    pub recycle_bytes_max: u64,
}

/// Why a log directory or a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the directory.
    #[error(
        "{0} is in use by another process (its .lock file is held); stop that process or choose another --data-dir"
    )]
    Locked(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use {path}: {source}{}", remedy(.source))]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The partition is already there.
    #[error("{0} already exists")]
    Exists(TopicPartition),
    /// The partition is in two directories: which holds the right data is not ours to guess.
    #[error("{partition} is in {path} and in an earlier log directory; move one of them away")]
    Twice {
        /// The partition.
        partition: TopicPartition,
        /// The second directory.
        path: PathBuf,
    },
    /// The partition is not there.
    #[error("{0} is not on disk")]
    Missing(TopicPartition),
}

/// A partition folder found at start.
#[derive(Clone, Debug)]
pub struct PartitionOnDisk {
    /// Its name.
    pub partition: TopicPartition,
    /// Its topic's id, from `partition.metadata`.
    pub topic_id: TopicId,
}

/// What recovery did to one log.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Whether the log was closed cleanly, so that nothing had to be scanned.
    pub clean: bool,
    /// Bytes scanned.
    pub scanned_bytes: u64,
    /// Bytes cut from the tail.
    pub cut_bytes: u64,
    /// Why the tail was cut.
    pub cut_reason: Option<String>,
}

/// The storage of a node.
#[derive(Debug)]
pub struct Storage {
    directories: Vec<Directory>,
    budget: Arc<Budget>,
    logs: Mutex<HashMap<TopicPartition, Registered>>,
}

/// One log directory.
#[derive(Debug)]
struct Directory {
    root: Arc<Path>,
    checkpoint: Checkpoint,
    pool: RecyclePool,
    /// Locked as long as it is open.
    _lock: File,
}

/// A partition on disk, and its log if that is open.
#[derive(Debug)]
struct Registered {
    directory: usize,
    topic_id: TopicId,
    reader: Option<Weak<LogReader>>,
}

impl Storage {
    /// Locks and reads the directories; creates them if missing.
    pub fn open(config: StorageConfig) -> Result<Arc<Self>, OpenError> {
        if config.directories.is_empty() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "no log directory is given");
            return Err(OpenError::Io { path: PathBuf::new(), source });
        }
        let budget = Budget::new(config.descriptors_max, config.mappings_max);
        let recycle_bytes_max =
            config.recycle_bytes_max / u64::try_from(config.directories.len().max(1)).unwrap_or(1);
        let mut directories = Vec::new();
        let mut logs = HashMap::new();
        for (number, path) in config.directories.iter().enumerate() {
            let directory = open_directory(path, &budget, recycle_bytes_max)?;
            set_unmade_aside(&directory).map_err(|error| at(path, error))?;
            let found = find_partitions(path).map_err(|error| at(path, error))?;
            directory.checkpoint.retain(|partition| found.contains_key(partition));
            for (partition, topic_id) in found {
                let registered = Registered { directory: number, topic_id, reader: None };
                match logs.entry(partition) {
                    hash_map::Entry::Vacant(vacant) => {
                        vacant.insert(registered);
                    }
                    hash_map::Entry::Occupied(first) => {
                        return Err(OpenError::Twice {
                            partition: first.key().clone(),
                            path: path.clone(),
                        });
                    }
                }
            }
            directories.push(directory);
        }
        Ok(Arc::new(Self { directories, budget, logs: Mutex::new(logs) }))
    }

    /// The partition folders found.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionOnDisk> {
        let logs = self.lock();
        let found = logs.iter().map(|(partition, registered)| PartitionOnDisk {
            partition: partition.clone(),
            topic_id: registered.topic_id,
        });
        found.collect()
    }

    /// A new, empty log whose first record will be at or after `log_start`.
    pub fn create_log(
        self: &Arc<Self>,
        partition: &TopicPartition,
        topic_id: TopicId,
        log_start: Offset,
        config: LogConfig,
    ) -> Result<Log, OpenError> {
        let number = {
            let mut logs = self.lock();
            if logs.contains_key(partition) {
                return Err(OpenError::Exists(partition.clone()));
            }
            let number = self.emptiest(&logs);
            // Taken before the folder is made, so that a second call finds it.
            let registered = Registered { directory: number, topic_id, reader: Some(Weak::new()) };
            logs.insert(partition.clone(), registered);
            number
        };
        let directory = &self.directories[number];
        let made = directory
            .checkpoint
            .forget_durably(partition)
            .and_then(|()| make_folder(&directory.root, partition, topic_id, log_start));
        if let Err(error) = made {
            self.lock().remove(partition);
            return Err(at(&directory.root.join(partition.to_string()), error));
        }
        let reader = self.reader_of(
            number,
            partition,
            topic_id,
            &config,
            ReaderStart {
                log_start,
                log_end: log_start,
                state: new_state(Segment::new(log_start, 0)),
            },
        );
        self.set_reader(partition, &reader);
        Ok(Log::assemble(LogParts {
            reader,
            storage: Arc::clone(self),
            directory: number,
            config,
            last_batch: None,
            since_index_bytes: 0,
        }))
    }

    /// Opens and recovers a log.
    pub fn open_log(
        self: &Arc<Self>,
        partition: &TopicPartition,
        config: LogConfig,
    ) -> Result<(Log, RecoveryReport), OpenError> {
        let (number, topic_id) = {
            let mut logs = self.lock();
            let registered =
                logs.get_mut(partition).ok_or_else(|| OpenError::Missing(partition.clone()))?;
            if registered.reader.is_some() {
                return Err(OpenError::Exists(partition.clone()));
            }
            registered.reader = Some(Weak::new());
            (registered.directory, registered.topic_id)
        };
        let directory = &self.directories[number];
        let folder = directory.root.join(partition.to_string());
        let entry = directory.checkpoint.entry(partition);
        let settle = || directory.checkpoint.settle();
        let interval = config.index_interval_bytes;
        let recovered = match recover(&folder, entry.as_ref(), interval, &settle) {
            Ok(recovered) => recovered,
            Err(error) => {
                self.log_closed(partition);
                return Err(at(&folder, error));
            }
        };
        let reader = self.reader_of(
            number,
            partition,
            topic_id,
            &config,
            ReaderStart {
                log_start: recovered.log_start,
                log_end: recovered.log_end,
                state: recovered.state,
            },
        );
        self.set_reader(partition, &reader);
        let log = Log::assemble(LogParts {
            reader,
            storage: Arc::clone(self),
            directory: number,
            config,
            last_batch: recovered.last_batch,
            since_index_bytes: recovered.since_index_bytes,
        });
        Ok((log, recovered.report))
    }

    /// Deletes a log's folder; its segments may be recycled.
    pub fn delete_log(&self, log: Log) -> Result<(), AppendError> {
        let directory = &self.directories[log.directory];
        let partition = log.partition();
        let folder = log.reader().folder();
        let segments = log.reader().read_state().segments.clone();
        let ended: Vec<_> = segments.iter().map(|segment| segment.end()).collect();
        let doomed = directory.root.join(deleted_name(&partition));
        fs::rename(&folder, &doomed).map_err(|error| log.io_error(error))?;
        directory.checkpoint.forget(&partition);
        for (segment, ended) in segments.iter().zip(ended) {
            let path = SegmentFile::Log.path(&doomed, segment.base());
            let capacity = u64::from(log.config.segment_bytes_max);
            if let Err(error) = directory.pool.retire(&path, ended, segment.len_bytes(), capacity) {
                tracing::warn!(%partition, %error, "a segment cannot be recycled");
            }
        }
        drop(log);
        self.lock().remove(&partition);
        let removed = fs::remove_dir_all(&doomed);
        removed.map_err(|source| AppendError::Io { partition, source })
    }

    /// Makes recovery points and log starts durable, so that a restart scans only what came later.
    /// Call it every few seconds from a thread that may block.
    ///
    /// A log that cannot be synced keeps its old recovery point and takes no more writes; the
    /// others go on.
    pub fn checkpoint(&self) -> Result<(), OpenError> {
        for (number, directory) in self.directories.iter().enumerate() {
            let mut pending = Vec::new();
            for reader in self.open_readers(number) {
                let known = directory.checkpoint.entry(reader.partition());
                pending.extend(Pending::of(&reader, known));
            }
            let synced = sync_logs(&directory.root, pending);
            // What was truncated meanwhile has written its own, lower point. Looked at one by one
            // while the checkpoint is locked, which a truncation has to wait for.
            let entries = synced.into_iter().filter_map(|log| {
                let holds = log.reader.read_state().generation == log.generation;
                holds.then(|| (log.reader.partition().clone(), log.entry))
            });
            let written = directory.checkpoint.set(entries);
            written.map_err(|error| at(&directory.root, error))?;
            for reader in self.open_readers(number) {
                let known = directory.checkpoint.entry(reader.partition());
                if let Some(log_start) = known.map(|known| known.log_start) {
                    self.remove_doomed(number, &reader, Some(log_start));
                }
            }
            directory.pool.make_ready();
        }
        Ok(())
    }

    /// Makes up to `count` mapped segment files of zeros ready in each directory, as far as
    /// `recycle_bytes_max` allows, so that landings need not wait for deleted segments to come
    /// back. Takes long: it writes every byte.
    pub fn warm(&self, segment_bytes: u32, count: usize) -> Result<(), OpenError> {
        for directory in &self.directories {
            let filled = directory.pool.fill(u64::from(segment_bytes), count);
            filled.map_err(|error| at(&directory.root, error))?;
        }
        Ok(())
    }

    /// Descriptors and mappings held now.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        self.budget.held()
    }

    /// Syncs one log and notes its recovery point.
    pub(crate) fn sync_log(&self, number: usize, reader: &Arc<LogReader>) -> io::Result<()> {
        let directory = &self.directories[number];
        let known = directory.checkpoint.entry(reader.partition());
        let Some(pending) = Pending::of(reader, known) else { return Ok(()) };
        if pending.sync(&directory.root)? {
            directory.checkpoint.append(reader.partition(), pending.entry, false)?;
        }
        Ok(())
    }

    /// What the checkpoint says of a log.
    pub(crate) fn checkpoint_entry(
        &self,
        number: usize,
        reader: &LogReader,
    ) -> Option<CheckpointEntry> {
        self.directories[number].checkpoint.entry(reader.partition())
    }

    /// Makes a change of the log's bounds durable before it happens: after a crash nothing beyond
    /// `entry` is taken without being verified.
    pub(crate) fn note_bounds(
        &self,
        number: usize,
        reader: &LogReader,
        entry: CheckpointEntry,
    ) -> io::Result<()> {
        self.directories[number].checkpoint.append(reader.partition(), entry, true)
    }

    /// Removes the files of segments below a log start that is durable; with none, of all that wait.
    pub(crate) fn remove_doomed(
        &self,
        number: usize,
        reader: &LogReader,
        log_start: Option<Offset>,
    ) {
        let mut doomed = reader.lock_doomed();
        if doomed.is_empty() {
            return;
        }
        let folder = reader.folder();
        let may_go = |first: &Doomed| log_start.is_none_or(|log_start| first.end <= log_start);
        while doomed.front().is_some_and(may_go)
            && let Some(first) = doomed.pop_front()
        {
            let (base, len_bytes) = (first.segment.base(), first.segment.len_bytes());
            let path = SegmentFile::Log.path(&folder, base);
            let freed = (first.ended, len_bytes);
            let removed = self
                .retire(number, &path, freed, first.capacity_bytes)
                .and_then(|()| remove_segment(&folder, base));
            if let Err(error) = removed {
                // Found and removed when the log is opened the next time.
                let partition = reader.partition();
                tracing::warn!(%partition, segment = %base, %error, "segment not deleted");
            }
        }
        let oldest = doomed.front().map(|first| first.segment.base());
        drop(doomed);
        // Only now: a crash may bring an earlier log start back, and then its records need them.
        reader.update(|state| {
            let oldest = oldest.unwrap_or(state.segments[0].base());
            state.epochs_changed |= state.epochs.truncate_from_start(oldest);
        });
    }

    /// A recycled file with room for `len_bytes`.
    pub(crate) fn take_recycled(
        &self,
        number: usize,
        len_bytes: u64,
        segment_bytes: u64,
    ) -> Option<ReadyFile> {
        self.directories[number].pool.take(len_bytes, segment_bytes)
    }

    /// Gives a deleted segment's log file up for reuse.
    pub(crate) fn retire(
        &self,
        number: usize,
        path: &Path,
        (ended, len_bytes): (Ended, u64),
        capacity_bytes: u64,
    ) -> io::Result<()> {
        self.directories[number].pool.retire(path, ended, len_bytes, capacity_bytes)
    }

    /// Takes a log off the registry of open ones.
    pub(crate) fn log_closed(&self, partition: &TopicPartition) {
        if let Some(registered) = self.lock().get_mut(partition) {
            registered.reader = None;
        }
    }

    fn open_readers(&self, number: usize) -> Vec<Arc<LogReader>> {
        let logs = self.lock();
        let here = logs.values().filter(|registered| registered.directory == number);
        here.filter_map(|registered| registered.reader.as_ref()?.upgrade()).collect()
    }

    fn emptiest(&self, logs: &HashMap<TopicPartition, Registered>) -> usize {
        let mut counts = vec![0usize; self.directories.len()];
        for registered in logs.values() {
            counts[registered.directory] += 1;
        }
        (0..counts.len()).min_by_key(|number| counts[*number]).unwrap_or(0)
    }

    fn reader_of(
        &self,
        number: usize,
        partition: &TopicPartition,
        topic_id: TopicId,
        config: &LogConfig,
        start: ReaderStart,
    ) -> Arc<LogReader> {
        LogReader::new(ReaderParts {
            partition: partition.clone(),
            topic_id,
            root: Arc::clone(&self.directories[number].root),
            budget: Arc::clone(&self.budget),
            map_bytes: u64::from(config.segment_bytes_max),
            log_start: start.log_start,
            log_end: start.log_end,
            state: start.state,
        })
    }

    fn set_reader(&self, partition: &TopicPartition, reader: &Arc<LogReader>) {
        if let Some(registered) = self.lock().get_mut(partition) {
            registered.reader = Some(Arc::downgrade(reader));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TopicPartition, Registered>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Storage {
    /// A clean stop: every log is closed, since each holds the storage.
    fn drop(&mut self) {
        for directory in &self.directories {
            if let Err(error) = directory.checkpoint.finish() {
                let path = directory.root.display();
                tracing::warn!(%path, %error, "last checkpoint not written; the one before holds");
            }
        }
    }
}

/// Where a reader starts.
struct ReaderStart {
    log_start: Offset,
    log_end: Offset,
    state: crate::reader::State,
}

/// What to change, where that is not plain from the system's words.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; this user needs write permission there, or another --data-dir"
        }
        _ => "",
    }
}

fn at(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { path: path.to_path_buf(), source }
}

/// Takes the directory's lock file twice: the whole-file lock keeps a second node out, also one in
/// this process; the record lock is the one a Kafka broker takes and looks for.
fn lock_directory(path: &Path) -> Result<File, OpenError> {
    let lock_path = path.join(LOCK_FILE);
    let lock = File::options().write(true).create(true).truncate(false).open(&lock_path);
    let lock = lock.map_err(|error| at(&lock_path, error))?;
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    let taken =
        rustix::fs::flock(&lock, exclusive).and_then(|()| rustix::fs::fcntl_lock(&lock, exclusive));
    match taken {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::ACCESS) => {
            Err(OpenError::Locked(path.to_path_buf()))
        }
        Err(error) => Err(at(&lock_path, error.into())),
    }
}

fn open_directory(
    path: &Path,
    budget: &Arc<Budget>,
    recycle_bytes_max: u64,
) -> Result<Directory, OpenError> {
    let private = path.join(PRIVATE_FOLDER);
    fs::create_dir_all(&private).map_err(|error| at(path, error))?;
    let lock = lock_directory(path)?;
    remove_leftovers(path).map_err(|error| at(path, error))?;
    let root: Arc<Path> = Arc::from(path);
    let opened = Checkpoint::open(Arc::clone(&root)).map_err(|error| at(path, error))?;
    let (checkpoint, damaged) = opened;
    if damaged > 0 {
        tracing::warn!(path = %path.display(), damaged, "checkpoint damaged: logs are scanned");
    }
    let pool =
        RecyclePool::open(path, budget, recycle_bytes_max).map_err(|error| at(path, error))?;
    Ok(Directory { root, checkpoint, pool, _lock: lock })
}

/// Removes folders whose deletion or creation was cut short.
fn remove_leftovers(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.ends_with(DELETED_SUFFIX))
            && entry.file_type()?.is_dir()
        {
            fs::remove_dir_all(entry.path())?;
        }
    }
    for entry in fs::read_dir(root.join(PRIVATE_FOLDER))? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.ends_with(NEW_SUFFIX)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Sets folders aside that were made just before power was lost: neither their metadata nor a
/// checkpoint reached the disk, so nothing in them was ever called durable, and whoever wanted the
/// partition makes it again. They are moved, not removed: that both were lost may also be damage.
fn set_unmade_aside(directory: &Directory) -> io::Result<()> {
    let aside = directory.root.join(PRIVATE_FOLDER).join(ASIDE_FOLDER);
    for entry in fs::read_dir(&directory.root)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(partition) = name.to_str().and_then(parse_folder_name) else { continue };
        if directory.checkpoint.entry(&partition).is_none()
            && is_partition_metadata_lost(&entry.path())
        {
            fs::create_dir_all(&aside)?;
            let free = (0..).map(|number| aside.join(format!("{partition}.{number}")));
            let target = free.take(usize::from(u16::MAX)).find(|path| !path.exists());
            let target = target.ok_or_else(|| io::Error::other("too many folders set aside"))?;
            tracing::warn!(%partition, moved_to = %target.display(), "made just before power was lost");
            fs::rename(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The partition folders of a directory. One whose metadata cannot be read is found all the same,
/// without a topic id, so that it is missed by name and not by absence.
fn find_partitions(root: &Path) -> io::Result<HashMap<TopicPartition, TopicId>> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(partition) = name.to_str().and_then(parse_folder_name) else { continue };
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let topic_id = read_partition_metadata(&entry.path()).unwrap_or_else(|error| {
            tracing::error!(%partition, %error, "partition.metadata cannot be read");
            TopicId::ZERO
        });
        found.insert(partition, topic_id);
    }
    Ok(found)
}

/// Makes a partition folder whole before it gets its name. The name itself is made durable with
/// the first records: whoever wanted the partition finds it missing after a power loss and makes it
/// again.
fn make_folder(
    root: &Path,
    partition: &TopicPartition,
    topic_id: TopicId,
    log_start: Offset,
) -> io::Result<()> {
    // Not the partition's name with something added: that may be too long for a file.
    let new = root.join(PRIVATE_FOLDER).join(format!("{:016x}{NEW_SUFFIX}", random()));
    fs::create_dir(&new)?;
    let made = write_partition_metadata(&new, topic_id)
        .and_then(|()| create_segment_files(&new, log_start, &[]))
        .and_then(|()| fs::rename(&new, root.join(partition.to_string())));
    if made.is_err() {
        // Left behind it would only be removed at the next start.
        let _ = fs::remove_dir_all(&new);
    }
    made
}

/// As a broker names a folder it deletes; names longer than a file name can be are shortened.
fn deleted_name(partition: &TopicPartition) -> String {
    let folder: String = partition.to_string().chars().take(200).collect();
    format!("{folder}.{:032x}{DELETED_SUFFIX}", random())
}

/// A number no other folder is named by.
fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
