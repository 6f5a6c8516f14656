//! Whether a partition folder is right: every checksum, offset, epoch, index entry and aborted
//! transaction, recomputed from the log in one pass.

use std::io;
use std::path::{Path, PathBuf};

use super::indexes::{ReadFailure, SegmentIndexes};
use super::report::{Damage, Finding, PartitionReport};
use super::scan::{Scanned, SegmentScan};
use super::{InspectError, InspectOptions, partition_folders, segment_bases};
use crate::batch::{BatchInfo, records};
use crate::epochs::{EPOCHS_MAX, EpochCache};
use crate::files::{LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, read_partition_metadata};
use crate::segment::SegmentFile;
use crate::txns::{AbortedTxn, OPEN_TRANSACTIONS_MAX, OpenTransactions};
use crate::{LeaderEpoch, Offset};

/// Findings kept per partition; more are only counted.
const FINDINGS_MAX: usize = 100;

/// The longest `leader-epoch-checkpoint` that can be valid: two numbers a line.
const EPOCH_FILE_BYTES_MAX: u64 = 64 + EPOCHS_MAX as u64 * 32;
/// The longest snapshot of open transactions that can be valid.
const SNAPSHOT_BYTES_MAX: u64 = 64 + OPEN_TRANSACTIONS_MAX as u64 * 18;

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
            if let Err(error) = read_partition_metadata(folder) {
                let path = folder.join(PARTITION_METADATA);
                verifier.note(&path, None, Damage::Io(error));
            }
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
        let log = SegmentFile::Log.path(&self.report.folder, base);
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
                self.note(&indexes.offsets.path, None, damage);
            }
        }
        while let Some((offset, timestamp_ms)) = indexes.time_entry_through(info.last_offset)? {
            // A search starts at the entry's batch, so that must be the first to reach the time.
            let before = indexes.largest_timestamp;
            if timestamp_ms != info.max_timestamp || timestamp_ms <= before {
                let found =
                    format!("its batch has {} at most, those before {before}", info.max_timestamp);
                let damage = Damage::TimeIndex { offset, timestamp_ms, found };
                self.note(&indexes.times.path, None, damage);
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
        let path = indexes.aborted.path.clone();
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
            self.note(&indexes.offsets.path, None, damage);
        }
        while let Some((offset, timestamp_ms)) = indexes.time_entry_through(Offset(i64::MAX))? {
            let found = "the segment ends before it".to_owned();
            let damage = Damage::TimeIndex { offset, timestamp_ms, found };
            self.note(&indexes.times.path, None, damage);
        }
        while let Some(entry) = indexes.aborted_entry_through(Offset(i64::MAX))? {
            let damage = match entry {
                Ok(entry) => Damage::Aborted { log: None, index: Some(entry) },
                Err(error) => Damage::AbortedFile(error),
            };
            self.note(&indexes.aborted.path, None, damage);
        }
        for (path, odd_bytes) in indexes.odd_bytes() {
            if odd_bytes > 0 {
                self.note(path, None, Damage::OddBytes { odd_bytes });
            }
        }
        Ok(())
    }

    /// The first segment's snapshot is where following starts, for the log's earlier part may be
    /// gone; a later one must say what was found.
    fn read_open_transactions(&mut self, base: Offset, first: bool) {
        let path = SegmentFile::OpenTransactions.path(&self.report.folder, base);
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
        self.report.folder.join(LEADER_EPOCH_CHECKPOINT)
    }

    fn note(&mut self, file: &Path, position: Option<u64>, damage: Damage) {
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(Finding { file: file.to_path_buf(), position, damage });
        } else {
            self.report.findings_more += 1;
        }
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
