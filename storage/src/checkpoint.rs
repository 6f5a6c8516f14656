//! How far each log of a directory is known to be on the device.
//!
//! One text file per log directory, `.longhaul/checkpoint`: a line per partition, each with a
//! checksum of its own. [`Checkpoint::replace`] writes it whole (temporary file, fsync, rename, fsync
//! of the folder); [`Checkpoint::append`] adds a line that overrules earlier ones of the same partition,
//! so that an event which must not wait (a truncation, a new log start) costs one small write
//! whatever the number of partitions. A torn or damaged line counts as missing: its partition is
//! scanned from its first segment, which is slow and safe.
//!
//! Any thread that may block runs it; the table is behind a lock that is held across the write, so
//! that lines reach the file in the order the table changed. It must never claim bytes that were
//! not synced first.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::files::{read_text, sync_folder, write_atomically};
use crate::{Offset, TopicPartition};

/// Our own files in a log directory, out of the way of the partition folders.
pub(crate) const PRIVATE_FOLDER: &str = ".longhaul";

const FILE: &str = "checkpoint";
const HEADING: &str = "longhaul checkpoint 1";

/// Largest checkpoint read: a million partitions of the longest names.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// A place in a log up to which everything is on the device and was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecoveryPoint {
    /// The next offset.
    pub(crate) offset: Offset,
    /// Segment that holds the place.
    pub(crate) segment: Offset,
    /// Bytes of that segment before it.
    pub(crate) position: u64,
}

/// What is remembered of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointEntry {
    pub(crate) log_start: Offset,
    pub(crate) recovery: RecoveryPoint,
    /// Transactions open at the recovery point, as `OpenTransactions` encodes them; empty for none.
    pub(crate) open: Box<[u8]>,
}

/// The checkpoint of one log directory.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    root: Arc<Path>,
    table: Mutex<Table>,
}

#[derive(Debug)]
pub(crate) struct Table {
    entries: HashMap<TopicPartition, CheckpointEntry>,
    journal: Option<File>,
    /// The file says less than the table.
    stale: bool,
}

impl Checkpoint {
    /// Reads the directory's file. Returns the number of damaged lines beside it.
    pub(crate) fn open(root: Arc<Path>) -> io::Result<(Self, usize)> {
        let path = file_path(&root);
        let (entries, damaged) = match read_text(&path, FILE_BYTES_MAX) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (HashMap::new(), 0),
            // Not text at all: the same as every line damaged.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => (HashMap::new(), 1),
            Err(error) => return Err(error),
        };
        // A damaged line must not stand before the lines that will be appended.
        let table = Mutex::new(Table { entries, journal: None, stale: true });
        Ok((Self { root, table }, damaged))
    }

    /// The entry of `partition`.
    pub(crate) fn entry(&self, partition: &TopicPartition) -> Option<CheckpointEntry> {
        self.lock().entries.get(partition).cloned()
    }

    /// Drops entries of partitions that are not on disk (any more).
    pub(crate) fn retain(&self, keep: impl Fn(&TopicPartition) -> bool) {
        let mut table = self.lock();
        let before = table.entries.len();
        table.entries.retain(|partition, _| keep(partition));
        table.stale |= table.entries.len() != before;
    }

    /// Forgets a partition that was deleted. The file still names it until the next
    /// [`Checkpoint::replace`]; [`Checkpoint::forget_durably`] is for a name that is used again.
    pub(crate) fn forget(&self, partition: &TopicPartition) {
        let mut table = self.lock();
        if table.entries.remove(partition).is_some() {
            table.stale = true;
        }
    }

    /// Makes sure that the file names no earlier log of this partition.
    pub(crate) fn forget_durably(&self, partition: &TopicPartition) -> io::Result<()> {
        let mut table = self.lock();
        if table.entries.remove(partition).is_some() {
            table.stale = true;
        }
        if table.stale { self.write(&mut table) } else { Ok(()) }
    }

    /// Sets one entry and writes it at once. With `durable` it is on the device on return.
    pub(crate) fn append(
        &self,
        partition: &TopicPartition,
        entry: CheckpointEntry,
        durable: bool,
    ) -> io::Result<()> {
        let mut table = self.lock();
        let line = encode_line(partition, &entry);
        let unchanged = table.entries.insert(partition.clone(), entry.clone()) == Some(entry);
        if table.stale {
            return self.write(&mut table);
        }
        if unchanged && !durable {
            return Ok(());
        }
        let result = table.journal(&self.root).and_then(|journal| {
            journal.write_all(line.as_bytes())?;
            if durable { journal.sync_data() } else { Ok(()) }
        });
        if result.is_err() {
            // Half a line may be there; the next write replaces the file.
            table.stale = true;
        }
        result
    }

    /// Sets many entries, in one go with what `update` sees, and writes the file whole if anything
    /// changed or lines were appended to it: so the file stays as long as the table.
    pub(crate) fn replace(
        &self,
        update: impl FnOnce(&mut HashMap<TopicPartition, CheckpointEntry>) -> bool,
    ) -> io::Result<()> {
        let mut table = self.lock();
        table.stale |= update(&mut table.entries) || table.journal.is_some();
        if table.stale { self.write(&mut table) } else { Ok(()) }
    }

    fn write(&self, table: &mut Table) -> io::Result<()> {
        table.stale = true;
        table.journal = None;
        let mut text = String::with_capacity(64 * (table.entries.len() + 1));
        text.push_str(HEADING);
        text.push('\n');
        for (partition, entry) in &table.entries {
            text.push_str(&encode_line(partition, entry));
        }
        write_atomically(&file_path(&self.root), text.as_bytes())?;
        table.stale = false;
        self.write_for_kafka(table)
    }

    /// Kafka's own checkpoints, so that a broker started on a copy of the directory keeps the log
    /// starts and does not scan what is known to be sound.
    fn write_for_kafka(&self, table: &Table) -> io::Result<()> {
        let render = |value: fn(&CheckpointEntry) -> Offset| {
            let mut text = format!("0\n{}\n", table.entries.len());
            for (partition, entry) in &table.entries {
                let offset = value(entry);
                let _ = writeln!(text, "{} {} {offset}", partition.topic, partition.partition);
            }
            text
        };
        for (name, text) in [
            ("recovery-point-offset-checkpoint", render(|entry| entry.recovery.offset)),
            ("log-start-offset-checkpoint", render(|entry| entry.log_start)),
            ("replication-offset-checkpoint", render(|entry| entry.recovery.offset)),
        ] {
            let temporary = self.root.join(format!("{name}.tmp"));
            std::fs::write(&temporary, text)?;
            std::fs::rename(&temporary, self.root.join(name))?;
        }
        sync_folder(&self.root)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn journal(&mut self, root: &Path) -> io::Result<&mut File> {
        if self.journal.is_none() {
            self.journal = Some(OpenOptions::new().append(true).open(file_path(root))?);
        }
        self.journal.as_mut().ok_or_else(|| io::Error::other("no journal"))
    }
}

fn file_path(root: &Path) -> PathBuf {
    root.join(PRIVATE_FOLDER).join(FILE)
}

/// `CRC TOPIC PARTITION LOG-START RECOVERY-OFFSET SEGMENT POSITION OPEN`, where OPEN is `-` or
/// bytes in hexadecimal digits. Topic names have no spaces.
fn encode_line(partition: &TopicPartition, entry: &CheckpointEntry) -> String {
    let RecoveryPoint { offset, segment, position } = entry.recovery;
    let mut content = format!(
        "{} {} {} {offset} {segment} {position} ",
        partition.topic, partition.partition, entry.log_start
    );
    if entry.open.is_empty() {
        content.push('-');
    }
    for byte in &entry.open {
        let _ = write!(content, "{byte:02x}");
    }
    format!("{:08x} {content}\n", crc32c::crc32c(content.as_bytes()))
}

/// Reads a checkpoint file's text: the last sound line of each partition, and how many lines are
/// damaged. A damaged line makes earlier ones of the same partition untrustworthy, but its name
/// cannot be trusted either; so as soon as one line before the last is damaged nothing counts.
pub(crate) fn parse(text: &str) -> (HashMap<TopicPartition, CheckpointEntry>, usize) {
    let mut entries = HashMap::new();
    let Some(body) = text.strip_prefix(HEADING).and_then(|rest| rest.strip_prefix('\n')) else {
        return (entries, usize::from(!text.is_empty()));
    };
    let mut damaged = 0;
    for line in body.split_inclusive('\n') {
        if damaged > 0 {
            return (HashMap::new(), damaged + 1);
        }
        match line.strip_suffix('\n').and_then(parse_line) {
            Some((partition, entry)) => {
                entries.insert(partition, entry);
            }
            None => damaged += 1,
        }
    }
    (entries, damaged)
}

fn parse_line(line: &str) -> Option<(TopicPartition, CheckpointEntry)> {
    let (checksum, content) = line.split_once(' ')?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32c::crc32c(content.as_bytes()) {
        return None;
    }
    let mut fields = content.split(' ');
    let topic = Arc::from(fields.next()?);
    let partition = TopicPartition { topic, partition: fields.next()?.parse().ok()? };
    let mut offset = || fields.next()?.parse().ok().filter(|value| *value >= 0).map(Offset);
    let (log_start, recovery_offset, segment) = (offset()?, offset()?, offset()?);
    let position = fields.next()?.parse().ok()?;
    let open = match fields.next()? {
        "-" => Box::default(),
        digits => parse_hexadecimal(digits)?,
    };
    let recovery = RecoveryPoint { offset: recovery_offset, segment, position };
    Some((partition, CheckpointEntry { log_start, recovery, open }))
}

fn parse_hexadecimal(digits: &str) -> Option<Box<[u8]>> {
    let digit = |symbol: u8| char::from(symbol).to_digit(16);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(*pair.get(1)?)?).ok()).collect()
}
