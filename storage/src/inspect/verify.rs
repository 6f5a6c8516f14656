//! Whether a partition folder is right: every checksum, offset, epoch, index entry and aborted
//! transaction, recomputed from the log in one pass.

use std::io;
use std::path::{Path, PathBuf};

use super::merge::Entries;
use super::scan::{Scanned, SegmentScan};
use super::{InspectError, InspectOptions, partition_folders, segment_bases, segment_file};
use crate::batch::{BatchError, BatchInfo, RecordError, records};
use crate::epochs::{EPOCHS_MAX, EpochCache, EpochParseError};
use crate::txns::{
    ABORTED_ENTRY_BYTES, AbortedTxn, OPEN_TRANSACTIONS_MAX, OpenTransactions, TransactionError,
    TransactionParseError, aborted_entries,
};
use crate::{LeaderEpoch, Offset};

/// Findings kept per partition; more are only counted.
const FINDINGS_MAX: usize = 100;

/// Bytes of an entry in the offset index: relative offset and position, 32 bits each.
const OFFSET_ENTRY_BYTES: usize = 8;
/// Bytes of an entry in the time index: a 64-bit timestamp and a 32-bit relative offset.
const TIME_ENTRY_BYTES: usize = 12;

/// The longest `leader-epoch-checkpoint` that can be valid: two numbers a line.
const EPOCH_FILE_BYTES_MAX: u64 = 64 + EPOCHS_MAX as u64 * 32;
/// The longest snapshot of open transactions that can be valid.
const SNAPSHOT_BYTES_MAX: u64 = 64 + OPEN_TRANSACTIONS_MAX as u64 * 18;

/// One thing that is not as it should be.
#[derive(Debug)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes, if at one place.
    pub position: Option<u64>,
    /// What.
    pub damage: Damage,
}

/// What can be wrong with a partition folder.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A batch's content is damaged.
    #[error(transparent)]
    Batch(BatchError),
    /// A batch's records cannot be read, though its checksum holds: its producer wrote them so, or
    /// they use what this reader lacks.
    #[error(transparent)]
    Records(RecordError),
    /// The file goes on after its last batch.
    #[error("{len_bytes} bytes after the last batch: {}", .fault.as_ref().map_or_else(|| "a batch cut short".to_owned(), ToString::to_string))]
    Tail {
        /// How many.
        len_bytes: u64,
        /// Why they are no batch.
        fault: Option<BatchError>,
    },
    /// Offsets do not rise from batch to batch.
    #[error("batch starts at offset {found}, expected {expected} or later")]
    OffsetOrder {
        /// The least it could be.
        expected: Offset,
        /// What it is.
        found: Offset,
    },
    /// An offset is too far from the segment's base for its indexes.
    #[error("offset {found} is more than 2^31 from the segment's base {base}")]
    OffsetRange {
        /// The segment's base.
        base: Offset,
        /// The batch's last offset.
        found: Offset,
    },
    /// Leader epochs fall.
    #[error("batch at offset {offset} has leader epoch {found}, after {previous}")]
    EpochOrder {
        /// The batch.
        offset: Offset,
        /// The epoch before it.
        previous: LeaderEpoch,
        /// Its epoch.
        found: LeaderEpoch,
    },
    /// `leader-epoch-checkpoint` cannot be read.
    #[error(transparent)]
    EpochFile(EpochParseError),
    /// `leader-epoch-checkpoint` says otherwise than the log.
    #[error("offset {offset} has leader epoch {found}, the checkpoint says {}", .stored.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string()))]
    EpochEntry {
        /// The batch.
        offset: Offset,
        /// What the checkpoint says.
        stored: Option<LeaderEpoch>,
        /// The batch's epoch.
        found: LeaderEpoch,
    },
    /// `leader-epoch-checkpoint` knows an epoch that starts after the log's end.
    #[error("the checkpoint has epoch {epoch} start at {start}, the log ends at {log_end}")]
    EpochBeyondEnd {
        /// The epoch.
        epoch: LeaderEpoch,
        /// Its start.
        start: Offset,
        /// The log's end.
        log_end: Offset,
    },
    /// An entry of the offset index does not name a batch and its last offset.
    #[error("entry says the batch that ends at offset {offset} starts at byte {position}; {found}")]
    OffsetIndex {
        /// The entry's offset.
        offset: Offset,
        /// The entry's position.
        position: u64,
        /// What is there instead.
        found: String,
    },
    /// An entry of the time index does not name the first batch that reaches its timestamp.
    #[error("entry says timestamp {timestamp_ms} is first reached at offset {offset}; {found}")]
    TimeIndex {
        /// The entry's offset.
        offset: Offset,
        /// The entry's timestamp.
        timestamp_ms: i64,
        /// What it is instead.
        found: String,
    },
    /// An index does not consist of whole entries.
    #[error("{odd_bytes} bytes after the last entry")]
    OddBytes {
        /// How many.
        odd_bytes: usize,
    },
    /// An entry of the aborted index cannot be read.
    #[error(transparent)]
    AbortedFile(TransactionParseError),
    /// The aborted index says otherwise than the log's markers.
    #[error("the log has {}, the index has {}", describe(.log.as_ref()), describe(.index.as_ref()))]
    Aborted {
        /// What the log says.
        log: Option<AbortedTxn>,
        /// What the index says.
        index: Option<AbortedTxn>,
    },
    /// More transactions are open than can be followed.
    #[error(transparent)]
    Transactions(TransactionError),
    /// A snapshot of open transactions cannot be read, or says otherwise than the log.
    #[error("open transactions: {0}")]
    OpenTransactions(String),
    /// A file cannot be read.
    #[error("cannot be read: {0}")]
    Io(io::Error),
}

/// The result for one partition folder.
#[derive(Debug)]
pub struct PartitionReport {
    /// The folder.
    pub folder: PathBuf,
    /// Segments read.
    pub segments: usize,
    /// Batches read.
    pub batches: u64,
    /// Records, as headers count them, or as read where records were looked at.
    pub records: u64,
    /// Bytes of batches.
    pub bytes: u64,
    /// First offset; `None` in an empty log.
    pub first_offset: Option<Offset>,
    /// One past the last offset.
    pub next_offset: Offset,
    /// Offsets missing between batches: compaction and transactions leave such gaps.
    pub gap_offsets: u64,
    /// Transactions still open at the end.
    pub open_transactions: usize,
    /// What is wrong; empty if nothing is.
    pub findings: Vec<Finding>,
    /// Findings beyond those kept.
    pub findings_more: u64,
}

impl PartitionReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Verifies the partitions at `path` (a partition folder, or a directory of them) and calls
/// `visit` with each result. Returns whether all are whole.
pub fn verify(
    path: &Path,
    options: &InspectOptions,
    visit: &mut dyn FnMut(&PartitionReport),
) -> Result<bool, InspectError> {
    let mut whole = true;
    for folder in partition_folders(path)? {
        let report = verify_partition(&folder, options);
        whole &= report.is_whole();
        visit(&report);
    }
    Ok(whole)
}

/// Verifies one partition folder. What cannot be read is a finding like any other.
#[must_use]
pub fn verify_partition(folder: &Path, options: &InspectOptions) -> PartitionReport {
    let mut verifier = Verifier::new(folder, *options);
    match segment_bases(folder) {
        Ok(bases) => {
            verifier.read_epochs();
            for (number, base) in bases.iter().enumerate() {
                let last = number + 1 == bases.len();
                if let Err((file, error)) = verifier.segment(*base, number == 0, last) {
                    verifier.note(&file, None, Damage::Io(error));
                }
            }
            verifier.finish();
        }
        Err(error) => verifier.note(folder, None, Damage::Io(error)),
    }
    verifier.report
}

/// A failed read and the file it was of.
type ReadFailure = (PathBuf, io::Error);

struct Verifier {
    options: InspectOptions,
    report: PartitionReport,
    epochs: Option<EpochCache>,
    latest_epoch: LeaderEpoch,
    transactions: OpenTransactions,
    /// A stored last stable offset above the one recomputed here: right if and only if the next
    /// transaction starts at or after it. A broker that appends several batches at once computes it
    /// after all of them.
    stable_claim: Option<(PathBuf, AbortedTxn, AbortedTxn)>,
    scratch: Vec<u8>,
}

/// The index files of the segment being read, and what was seen of it.
struct SegmentIndexes {
    base: Offset,
    offsets: (PathBuf, Entries<OFFSET_ENTRY_BYTES>),
    times: (PathBuf, Entries<TIME_ENTRY_BYTES>),
    aborted: (PathBuf, Entries<ABORTED_ENTRY_BYTES>),
    largest_timestamp: i64,
    /// A broker preallocates the indexes of its active segment with zeros.
    zeros_allowed: bool,
}

impl Verifier {
    fn new(folder: &Path, options: InspectOptions) -> Self {
        Self {
            options,
            report: PartitionReport {
                folder: folder.to_path_buf(),
                segments: 0,
                batches: 0,
                records: 0,
                bytes: 0,
                first_offset: None,
                next_offset: Offset(0),
                gap_offsets: 0,
                open_transactions: 0,
                findings: Vec::new(),
                findings_more: 0,
            },
            epochs: None,
            latest_epoch: LeaderEpoch::UNKNOWN,
            transactions: OpenTransactions::default(),
            stable_claim: None,
            scratch: Vec::new(),
        }
    }

    fn read_epochs(&mut self) {
        let path = self.epoch_file();
        match read_small(&path, EPOCH_FILE_BYTES_MAX) {
            Ok(None) => {}
            Ok(Some(bytes)) => match EpochCache::parse(&bytes) {
                Ok(epochs) => self.epochs = Some(epochs),
                Err(error) => self.note(&path, None, Damage::EpochFile(error)),
            },
            Err(error) => self.note(&path, None, Damage::Io(error)),
        }
    }

    fn segment(&mut self, base: Offset, first: bool, last: bool) -> Result<(), ReadFailure> {
        let log = segment_file(&self.report.folder, base, "log");
        if base < self.report.next_offset {
            let expected = self.report.next_offset;
            self.note(&log, None, Damage::OffsetOrder { expected, found: base });
        }
        self.report.segments += 1;
        self.read_open_transactions(base, first);
        let mut indexes = SegmentIndexes::open(&self.report.folder, base, last)?;
        let failed = |error| (log.clone(), error);
        let mut scan = SegmentScan::open(&log, self.options.batch_bytes_max, self.options.records)
            .map_err(failed)?;
        while let Some(scanned) = scan.next().map_err(failed)? {
            match scanned {
                Scanned::Tail { position, len_bytes, fault } => {
                    self.note(&log, Some(position), Damage::Tail { len_bytes, fault });
                }
                Scanned::Batch { position, info, fault } => {
                    let valid = fault.is_none();
                    if let Some(fault) = fault {
                        self.note(&log, Some(position), Damage::Batch(fault));
                    }
                    self.batch(&log, base, position, &info);
                    let bytes = if valid { scan.batch_bytes() } else { &[] };
                    self.records(&log, position, &info, bytes);
                    let aborted = self.transaction(&log, position, &info);
                    self.indexes(&mut indexes, position, &info, aborted)?;
                }
            }
        }
        self.leftovers(&mut indexes, scan.file_bytes())
    }

    /// Offsets and epochs.
    fn batch(&mut self, log: &Path, base: Offset, position: u64, info: &BatchInfo) {
        let at = Some(position);
        let report = &mut self.report;
        report.batches += 1;
        report.bytes += u64::from(info.size_bytes);
        let expected = report.next_offset.max(base);
        let found = info.base_offset;
        if report.first_offset.is_some() {
            report.gap_offsets += (found.0 - report.next_offset.0).max(0).cast_unsigned();
        }
        report.first_offset.get_or_insert(found);
        report.next_offset = info.next_offset().max(report.next_offset);
        if found < expected {
            self.note(log, at, Damage::OffsetOrder { expected, found });
        }
        if info.last_offset.0 - base.0 > i64::from(i32::MAX) {
            self.note(log, at, Damage::OffsetRange { base, found: info.last_offset });
        }
        if info.leader_epoch.0 < 0 {
            return;
        }
        let (offset, found) = (info.base_offset, info.leader_epoch);
        if found < self.latest_epoch {
            let previous = self.latest_epoch;
            self.note(log, at, Damage::EpochOrder { offset, previous, found });
        }
        self.latest_epoch = self.latest_epoch.max(found);
        self.epoch(info);
    }

    fn epoch(&mut self, info: &BatchInfo) {
        let stored = match &self.epochs {
            // Moving the log start drops what is known of batches wholly below it.
            Some(epochs) => match epochs.earliest() {
                Some(first) if info.last_offset < first.start_offset => return,
                first => {
                    let start = first.map_or(Offset(0), |first| first.start_offset);
                    epochs.epoch_for_offset(info.base_offset.max(start))
                }
            },
            None => None,
        };
        if stored != Some(info.leader_epoch) {
            let path = self.epoch_file();
            let (offset, found) = (info.base_offset, info.leader_epoch);
            self.note(&path, None, Damage::EpochEntry { offset, stored, found });
        }
    }

    fn records(&mut self, log: &Path, position: u64, info: &BatchInfo, bytes: &[u8]) {
        if bytes.is_empty() {
            self.report.records += u64::from(info.record_count.cast_unsigned());
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = records(bytes, self.options.inflated_bytes_max, &mut scratch)
            .and_then(|records| records.map(|record| record.map(|_| 1)).sum::<Result<u64, _>>());
        self.scratch = scratch;
        match result {
            Ok(count) => self.report.records += count,
            Err(error) => self.note(log, Some(position), Damage::Records(error)),
        }
    }

    /// Follows transactions; gives the entry that an abort marker calls for.
    fn transaction(&mut self, log: &Path, position: u64, info: &BatchInfo) -> Option<AbortedTxn> {
        let open = self.transactions.len();
        let aborted = match self.transactions.append(info) {
            Ok(aborted) => aborted,
            Err(error) => {
                self.note(log, Some(position), Damage::Transactions(error));
                None
            }
        };
        if self.transactions.len() > open
            && let Some((path, log, index)) = self.stable_claim.take()
            && info.base_offset < index.last_stable_offset
        {
            self.note(&path, None, Damage::Aborted { log: Some(log), index: Some(index) });
        }
        aborted
    }

    fn indexes(
        &mut self,
        indexes: &mut SegmentIndexes,
        position: u64,
        info: &BatchInfo,
        aborted: Option<AbortedTxn>,
    ) -> Result<(), ReadFailure> {
        while let Some((offset, claimed)) = indexes.offset_entry_through(position)? {
            if claimed != position || offset != info.last_offset {
                let found = format!(
                    "the batch at byte {position} holds offsets {} to {}",
                    info.base_offset, info.last_offset
                );
                let damage = Damage::OffsetIndex { offset, position: claimed, found };
                self.note(&indexes.offsets.0, None, damage);
            }
        }
        while let Some((offset, timestamp_ms)) = indexes.time_entry_through(info.last_offset)? {
            // A search starts at the entry's batch, so that must be the first to reach the time.
            let before = indexes.largest_timestamp;
            if timestamp_ms != info.max_timestamp || timestamp_ms <= before {
                let found =
                    format!("its batch has {} at most, those before {before}", info.max_timestamp);
                let damage = Damage::TimeIndex { offset, timestamp_ms, found };
                self.note(&indexes.times.0, None, damage);
            }
        }
        indexes.largest_timestamp = indexes.largest_timestamp.max(info.max_timestamp);
        match aborted {
            Some(log) => self.aborted(indexes, log),
            None => Ok(()),
        }
    }

    /// Compares an abort marker with the index's next entry.
    fn aborted(
        &mut self,
        indexes: &mut SegmentIndexes,
        log: AbortedTxn,
    ) -> Result<(), ReadFailure> {
        let path = indexes.aborted.0.clone();
        loop {
            let index = match indexes.aborted_entry_through(log.last_offset)? {
                Some(Ok(entry)) => Some(entry),
                Some(Err(error)) => {
                    self.note(&path, None, Damage::AbortedFile(error));
                    continue;
                }
                None => None,
            };
            let same = index.is_some_and(|index| {
                AbortedTxn { last_stable_offset: log.last_stable_offset, ..index } == log
            });
            match index {
                Some(index) if same && index.last_stable_offset == log.last_stable_offset => {}
                Some(index) if same && self.may_be_stable(&log, &index) => {
                    self.stable_claim = Some((path, log, index));
                }
                Some(index) if index.last_offset < log.last_offset => {
                    self.note(&path, None, Damage::Aborted { log: None, index: Some(index) });
                    continue;
                }
                index => self.note(&path, None, Damage::Aborted { log: Some(log), index }),
            }
            return Ok(());
        }
    }

    fn may_be_stable(&self, log: &AbortedTxn, index: &AbortedTxn) -> bool {
        index.last_stable_offset > log.last_stable_offset && self.transactions.is_empty()
    }

    /// What the indexes hold beyond the segment's end.
    fn leftovers(
        &mut self,
        indexes: &mut SegmentIndexes,
        file_bytes: u64,
    ) -> Result<(), ReadFailure> {
        while let Some((offset, position)) = indexes.offset_entry_through(u64::MAX)? {
            let found = format!("no batch starts there; the file has {file_bytes} bytes");
            let damage = Damage::OffsetIndex { offset, position, found };
            self.note(&indexes.offsets.0, None, damage);
        }
        while let Some((offset, timestamp_ms)) = indexes.time_entry_through(Offset(i64::MAX))? {
            let found = "the segment ends before it".to_owned();
            let damage = Damage::TimeIndex { offset, timestamp_ms, found };
            self.note(&indexes.times.0, None, damage);
        }
        while let Some(entry) = indexes.aborted_entry_through(Offset(i64::MAX))? {
            let damage = match entry {
                Ok(entry) => Damage::Aborted { log: None, index: Some(entry) },
                Err(error) => Damage::AbortedFile(error),
            };
            self.note(&indexes.aborted.0, None, damage);
        }
        for (path, odd_bytes) in [
            (&indexes.offsets.0, indexes.offsets.1.odd_bytes()),
            (&indexes.times.0, indexes.times.1.odd_bytes()),
            (&indexes.aborted.0, indexes.aborted.1.odd_bytes()),
        ] {
            if odd_bytes > 0 {
                self.note(path, None, Damage::OddBytes { odd_bytes });
            }
        }
        Ok(())
    }

    /// The first segment's snapshot is where following starts, for the log's earlier part may be
    /// gone; a later one must say what was found.
    fn read_open_transactions(&mut self, base: Offset, first: bool) {
        let path = segment_file(&self.report.folder, base, "opentxns");
        let found = match read_small(&path, SNAPSHOT_BYTES_MAX) {
            Ok(None) => return,
            Ok(Some(bytes)) => OpenTransactions::parse(&bytes).map_err(|error| error.to_string()),
            Err(error) => return self.note(&path, None, Damage::Io(error)),
        };
        match found {
            Ok(stored) if first => self.transactions = stored,
            Ok(stored) if stored == self.transactions => {}
            Ok(stored) => {
                let (stored, found) = (stored.len(), self.transactions.len());
                let message = format!("{stored} in the snapshot, {found} in the log, or others");
                self.note(&path, None, Damage::OpenTransactions(message));
            }
            Err(message) => self.note(&path, None, Damage::OpenTransactions(message)),
        }
    }

    fn finish(&mut self) {
        self.report.open_transactions = self.transactions.len();
        let log_end = self.report.next_offset;
        let beyond = self
            .epochs
            .as_ref()
            .and_then(EpochCache::latest)
            .filter(|latest| latest.start_offset > log_end && self.report.batches > 0);
        if let Some(latest) = beyond {
            let (epoch, start) = (latest.epoch, latest.start_offset);
            let path = self.epoch_file();
            self.note(&path, None, Damage::EpochBeyondEnd { epoch, start, log_end });
        }
    }

    fn epoch_file(&self) -> PathBuf {
        self.report.folder.join("leader-epoch-checkpoint")
    }

    fn note(&mut self, file: &Path, position: Option<u64>, damage: Damage) {
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(Finding { file: file.to_path_buf(), position, damage });
        } else {
            self.report.findings_more += 1;
        }
    }
}

impl SegmentIndexes {
    fn open(folder: &Path, base: Offset, last: bool) -> Result<Self, ReadFailure> {
        Ok(Self {
            base,
            offsets: open_entries(segment_file(folder, base, "index"))?,
            times: open_entries(segment_file(folder, base, "timeindex"))?,
            aborted: open_entries(segment_file(folder, base, "txnindex"))?,
            largest_timestamp: -1,
            zeros_allowed: last,
        })
    }

    /// The next offset entry whose position is at or before `position`, as offset and position.
    fn offset_entry_through(
        &mut self,
        position: u64,
    ) -> Result<Option<(Offset, u64)>, ReadFailure> {
        let (path, entries) = &mut self.offsets;
        let zeros_allowed = self.zeros_allowed;
        let entry = entries
            .next_if(|entry| {
                u64::from(u32_of(entry, 4)) <= position && !(zeros_allowed && is_zero(entry))
            })
            .map_err(|error| (path.clone(), error))?;
        Ok(entry.map(|entry| {
            let offset = self.base.plus(i64::from(u32_of(&entry, 0)));
            (offset, u64::from(u32_of(&entry, 4)))
        }))
    }

    /// The next time entry whose offset is at or before `offset`, as offset and timestamp.
    fn time_entry_through(&mut self, offset: Offset) -> Result<Option<(Offset, i64)>, ReadFailure> {
        let (path, entries) = &mut self.times;
        let (base, zeros_allowed) = (self.base, self.zeros_allowed);
        let offset_of = |entry: &[u8; TIME_ENTRY_BYTES]| base.plus(i64::from(u32_of(entry, 8)));
        let entry = entries
            .next_if(|entry| offset_of(entry) <= offset && !(zeros_allowed && is_zero(entry)))
            .map_err(|error| (path.clone(), error))?;
        Ok(entry.map(|entry| (offset_of(&entry), i64_of(&entry, 0))))
    }

    /// The next aborted entry whose marker is at or before `offset`, or one that is unreadable.
    fn aborted_entry_through(
        &mut self,
        offset: Offset,
    ) -> Result<Option<Result<AbortedTxn, TransactionParseError>>, ReadFailure> {
        let (path, entries) = &mut self.aborted;
        let parse = |entry: &[u8]| aborted_entries(entry).next();
        let entry = entries
            .next_if(|entry| match parse(entry) {
                Some(Ok(entry)) => entry.last_offset <= offset,
                _ => true,
            })
            .map_err(|error| (path.clone(), error))?;
        Ok(entry.and_then(|entry| parse(&entry)))
    }
}

fn open_entries<const N: usize>(path: PathBuf) -> Result<(PathBuf, Entries<N>), ReadFailure> {
    match Entries::open(&path) {
        Ok(entries) => Ok((path, entries)),
        Err(error) => Err((path, error)),
    }
}

/// A small file whole; `None` if it is missing.
fn read_small(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read;
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("larger than {bytes_max} bytes")));
    }
    Ok(Some(bytes))
}

fn is_zero(entry: &[u8]) -> bool {
    entry.iter().all(|byte| *byte == 0)
}

fn u32_of(entry: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&entry[at..at + 4]);
    u32::from_be_bytes(field)
}

fn i64_of(entry: &[u8], at: usize) -> i64 {
    let mut field = [0; 8];
    field.copy_from_slice(&entry[at..at + 8]);
    i64::from_be_bytes(field)
}

fn describe(aborted: Option<&AbortedTxn>) -> String {
    match aborted {
        None => "no aborted transaction".to_owned(),
        Some(entry) => format!(
            "an aborted transaction of producer {} from {} to {} (stable to {})",
            entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
        ),
    }
}
