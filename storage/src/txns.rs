//! Open transactions of one log, its last stable offset, and the index of aborted ones.
//!
//! Owned by the thread that writes the log; plain data, no I/O. Fed every batch in log order, it
//! must never let the last stable offset pass a record whose transaction is still open. Batches
//! without a producer id and batches of old formats take no part.

use std::collections::BTreeMap;

use crate::batch::{BatchInfo, ControlMarker};
use crate::{Offset, ProducerEpoch, ProducerId};

/// Most transactions open at once in one log; each costs about 100 bytes here. A source that has
/// more cannot be followed safely, for the last stable offset would be wrong.
pub const OPEN_TRANSACTIONS_MAX: usize = 100_000;

/// Bytes of one `.txnindex` entry.
pub const ABORTED_ENTRY_BYTES: usize = 34;

/// Format number of a `.txnindex` entry.
const ABORTED_VERSION: i16 = 0;
/// Format number of [`OpenTransactions::encode`].
const SNAPSHOT_VERSION: u16 = 1;
/// Version, then count.
const SNAPSHOT_HEADER_BYTES: usize = 6;
/// Producer id, producer epoch, first offset.
const SNAPSHOT_ENTRY_BYTES: usize = 18;

/// Why a batch could not be taken into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// The table of open transactions is at its bound.
    #[error(
        "more than {OPEN_TRANSACTIONS_MAX} open transactions at offset {offset}: their producers never ended them"
    )]
    TooMany {
        /// First offset of the batch that would open one more.
        offset: Offset,
    },
}

/// Why stored bytes are not what they should be. The log itself can always rebuild them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionParseError {
    /// A version this code does not know.
    #[error("transaction entry {index}: unknown version {version}")]
    Version {
        /// Entry number from 0; 0 also for a snapshot's own version.
        index: usize,
        /// The version found.
        version: i32,
    },
    /// The length is not a whole number of entries, or not what the count says.
    #[error("{len_bytes} bytes are not a whole number of transaction entries")]
    Length {
        /// The length.
        len_bytes: usize,
    },
    /// A snapshot's checksum does not hold.
    #[error("transaction snapshot: checksum does not hold")]
    Checksum,
    /// Offsets out of order, or one producer twice.
    #[error("transaction entry {index}: impossible offsets or producer")]
    Entry {
        /// Entry number from 0.
        index: usize,
    },
}

/// A transaction that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Its producer.
    pub producer_id: ProducerId,
    /// The producer's epoch in the transaction's latest batch.
    pub producer_epoch: ProducerEpoch,
    /// Its first offset in this log.
    pub first_offset: Offset,
}

/// An aborted transaction, as a `.txnindex` entry holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Its producer.
    pub producer_id: ProducerId,
    /// Its first offset.
    pub first_offset: Offset,
    /// The offset of its abort marker.
    pub last_offset: Offset,
    /// The last stable offset once the marker was written. No transaction that ends later in the
    /// log starts below it, which lets a search stop.
    pub last_stable_offset: Offset,
}

impl AbortedTxn {
    /// The entry's bytes in a `.txnindex` file.
    #[must_use]
    pub fn encode(&self) -> [u8; ABORTED_ENTRY_BYTES] {
        let mut entry = [0; ABORTED_ENTRY_BYTES];
        entry[..2].copy_from_slice(&ABORTED_VERSION.to_be_bytes());
        let fields = [
            self.producer_id.0,
            self.first_offset.0,
            self.last_offset.0,
            self.last_stable_offset.0,
        ];
        for (slot, field) in entry[2..].chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_be_bytes());
        }
        entry
    }
}

/// The entries of a `.txnindex` file's bytes, in order; ends after the first error.
pub fn aborted_entries(
    index: &[u8],
) -> impl Iterator<Item = Result<AbortedTxn, TransactionParseError>> + '_ {
    let mut previous_last = Offset(-1);
    let mut failed = false;
    index.chunks(ABORTED_ENTRY_BYTES).enumerate().map_while(move |(number, bytes)| {
        if failed {
            return None;
        }
        let entry = parse_aborted(number, bytes, index.len()).and_then(|entry| {
            // Entries follow the order of their markers in the log.
            if entry.last_offset <= previous_last {
                return Err(TransactionParseError::Entry { index: number });
            }
            Ok(entry)
        });
        match &entry {
            Ok(entry) => previous_last = entry.last_offset,
            Err(_) => failed = true,
        }
        Some(entry)
    })
}

/// Collects from one segment's index the aborted transactions that overlap `from` to `upper`
/// (exclusive). Returns whether the search is complete: if not, later segments may hold more.
///
/// Start at the segment that holds `from`: a transaction's entry lies in the segment of its
/// marker, so none that overlaps can lie earlier.
pub fn collect_aborted(
    index: &[u8],
    from: Offset,
    upper: Offset,
    found: &mut Vec<AbortedTxn>,
) -> Result<bool, TransactionParseError> {
    for entry in aborted_entries(index) {
        let entry = entry?;
        if entry.last_offset >= from && entry.first_offset < upper {
            found.push(entry);
        }
        if entry.last_stable_offset >= upper {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The transactions open at the end of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenTransactions {
    by_producer: BTreeMap<ProducerId, OpenTransaction>,
    /// First offsets are distinct: each is the first offset of a batch of its own.
    by_first_offset: BTreeMap<Offset, ProducerId>,
}

impl OpenTransactions {
    /// Takes the next batch of the log into account. A batch that ends a transaction by aborting
    /// it gives the entry for the index of the batch's segment.
    pub fn append(&mut self, batch: &BatchInfo) -> Result<Option<AbortedTxn>, TransactionError> {
        if batch.producer_id.0 < 0 || batch.magic < 2 {
            return Ok(None);
        }
        if batch.attributes.is_control() {
            return Ok(self.end(batch));
        }
        if batch.attributes.is_transactional() {
            self.begin_or_go_on(batch)?;
        }
        Ok(None)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.by_producer.clear();
        self.by_first_offset.clear();
    }

    /// First offset of the earliest open transaction, else `log_end`.
    #[must_use]
    pub fn last_stable_offset(&self, log_end: Offset) -> Offset {
        self.by_first_offset.first_key_value().map_or(log_end, |(first, _)| *first)
    }

    /// The open transactions, earliest first.
    pub fn iter(&self) -> impl Iterator<Item = &OpenTransaction> {
        self.by_first_offset.values().filter_map(|producer| self.by_producer.get(producer))
    }

    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_producer.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_producer.is_empty()
    }

    /// The table as bytes for a checkpoint, with a checksum of its own.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = SNAPSHOT_VERSION.to_be_bytes().to_vec();
        bytes.extend_from_slice(&(self.len() as u32).to_be_bytes());
        for open in self.iter() {
            bytes.extend_from_slice(&open.producer_id.0.to_be_bytes());
            bytes.extend_from_slice(&open.producer_epoch.0.to_be_bytes());
            bytes.extend_from_slice(&open.first_offset.0.to_be_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_be_bytes());
        bytes
    }

    /// Reads what [`OpenTransactions::encode`] wrote.
    pub fn parse(bytes: &[u8]) -> Result<Self, TransactionParseError> {
        let length_error = TransactionParseError::Length { len_bytes: bytes.len() };
        let (body, stored) = bytes.split_last_chunk::<4>().ok_or(length_error)?;
        if body.len() < SNAPSHOT_HEADER_BYTES {
            return Err(length_error);
        }
        if crc32c::crc32c(body) != u32::from_be_bytes(*stored) {
            return Err(TransactionParseError::Checksum);
        }
        let (header, entries) = body.split_at(SNAPSHOT_HEADER_BYTES);
        let version = u16::from_be_bytes(array(header, 0));
        if version != SNAPSHOT_VERSION {
            return Err(TransactionParseError::Version { index: 0, version: version.into() });
        }
        let count = u32::from_be_bytes(array(header, 2)) as usize;
        if count > OPEN_TRANSACTIONS_MAX || entries.len() != count * SNAPSHOT_ENTRY_BYTES {
            return Err(length_error);
        }
        let mut table = Self::default();
        for (index, entry) in entries.chunks_exact(SNAPSHOT_ENTRY_BYTES).enumerate() {
            let open = OpenTransaction {
                producer_id: ProducerId(i64::from_be_bytes(array(entry, 0))),
                producer_epoch: ProducerEpoch(i16::from_be_bytes(array(entry, 8))),
                first_offset: Offset(i64::from_be_bytes(array(entry, 10))),
            };
            let known = table.by_producer.insert(open.producer_id, open).is_some()
                || table.by_first_offset.insert(open.first_offset, open.producer_id).is_some();
            if known || open.producer_id.0 < 0 || open.first_offset.0 < 0 {
                return Err(TransactionParseError::Entry { index });
            }
        }
        Ok(table)
    }

    fn begin_or_go_on(&mut self, batch: &BatchInfo) -> Result<(), TransactionError> {
        if let Some(open) = self.by_producer.get_mut(&batch.producer_id) {
            open.producer_epoch = batch.producer_epoch;
            return Ok(());
        }
        if self.len() >= OPEN_TRANSACTIONS_MAX {
            return Err(TransactionError::TooMany { offset: batch.base_offset });
        }
        let open = OpenTransaction {
            producer_id: batch.producer_id,
            producer_epoch: batch.producer_epoch,
            first_offset: batch.base_offset,
        };
        self.by_producer.insert(open.producer_id, open);
        self.by_first_offset.insert(open.first_offset, open.producer_id);
        Ok(())
    }

    /// A marker without an open transaction is ordinary: its data was compacted away, lies below
    /// the log start, or never reached this partition.
    fn end(&mut self, batch: &BatchInfo) -> Option<AbortedTxn> {
        let aborted = match batch.control? {
            ControlMarker::Abort => true,
            ControlMarker::Commit => false,
            ControlMarker::Other(_) => return None,
        };
        let open = self.by_producer.remove(&batch.producer_id)?;
        self.by_first_offset.remove(&open.first_offset);
        aborted.then(|| AbortedTxn {
            producer_id: open.producer_id,
            first_offset: open.first_offset,
            last_offset: batch.last_offset,
            last_stable_offset: self.last_stable_offset(batch.last_offset.plus(1)),
        })
    }
}

fn parse_aborted(
    index: usize,
    bytes: &[u8],
    len_bytes: usize,
) -> Result<AbortedTxn, TransactionParseError> {
    if bytes.len() < ABORTED_ENTRY_BYTES {
        return Err(TransactionParseError::Length { len_bytes });
    }
    let version = i16::from_be_bytes(array(bytes, 0));
    if version != ABORTED_VERSION {
        return Err(TransactionParseError::Version { index, version: version.into() });
    }
    let field = |at: usize| i64::from_be_bytes(array(bytes, at));
    let entry = AbortedTxn {
        producer_id: ProducerId(field(2)),
        first_offset: Offset(field(10)),
        last_offset: Offset(field(18)),
        last_stable_offset: Offset(field(26)),
    };
    // The marker follows the data, and what stays open may be older than both.
    if entry.first_offset.0 < 0
        || entry.last_offset < entry.first_offset
        || entry.last_stable_offset.0 < 0
    {
        return Err(TransactionParseError::Entry { index });
    }
    Ok(entry)
}

/// The `N` bytes at `at`; the caller has checked that they are there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
#[path = "txns_tests.rs"]
mod tests;
