//! How far each log of a directory is known to be on the device.
//!
//! One text file per log directory, `.longhaul/checkpoint`: a line per partition, each with a
//! checksum of its own. Now and then it is written whole (temporary file, fsync, rename, fsync of
//! the folder); in between lines are appended that overrule earlier ones of the same partition, so
//! that a checkpoint costs what has changed, and an event which must not wait (a truncation, a new
//! log start) one small write, whatever the number of partitions. A torn or damaged line counts as missing: its partition is
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
    /// Lines appended since the file was written whole.
    appended_lines: usize,
    /// Calls of [`Checkpoint::set`] since then.
    sets: u32,
    /// The last appended lines are not on the device.
    unsynced: bool,
    /// The file says less than the table.
    stale: bool,
}

/// After so many calls of [`Checkpoint::set`] the file is written whole, and Kafka's with it: their
/// cost grows with all partitions of the directory, that of a line only with those that changed.
const SETS_MAX: u32 = 16;

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
        let table = Table {
            entries,
            journal: None,
            appended_lines: 0,
            sets: 0,
            unsynced: false,
            stale: true,
        };
        let table = Mutex::new(table);
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
    /// write of the whole file; [`Checkpoint::forget_durably`] is for a name that is used again.
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
        table.append(&self.root, &line, 1, durable)
    }

    /// Sets many entries and makes them durable, together with everything set before.
    pub(crate) fn set(
        &self,
        entries: impl Iterator<Item = (TopicPartition, CheckpointEntry)>,
    ) -> io::Result<()> {
        let mut table = self.lock();
        let (mut lines, mut count) = (String::new(), 0);
        for (partition, entry) in entries {
            if table.entries.get(&partition) != Some(&entry) {
                lines.push_str(&encode_line(&partition, &entry));
                count += 1;
                table.entries.insert(partition, entry);
            }
        }
        let long = table.appended_lines + count > 2 * table.entries.len() + 16;
        if table.stale || long || (count > 0 && table.sets >= SETS_MAX) {
            return self.write(&mut table);
        }
        if count > 0 || table.unsynced {
            table.sets += 1;
            return table.append(&self.root, &lines, count, true);
        }
        Ok(())
    }

    /// Makes sure that the device has everything that the file says or should say.
    pub(crate) fn settle(&self) -> io::Result<()> {
        let mut table = self.lock();
        if table.stale {
            return self.write(&mut table);
        }
        if table.unsynced { table.append(&self.root, "", 0, true) } else { Ok(()) }
    }

    /// Writes the file whole, and Kafka's, if lines were appended since: at a clean stop.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let mut table = self.lock();
        if table.stale || table.appended_lines > 0 { self.write(&mut table) } else { Ok(()) }
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
        table.unsynced = false;
        (table.appended_lines, table.sets) = (0, 0);
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
    fn append(&mut self, root: &Path, lines: &str, count: usize, durable: bool) -> io::Result<()> {
        self.appended_lines += count;
        self.unsynced = true;
        let result = self.journal(root).and_then(|journal| {
            journal.write_all(lines.as_bytes())?;
            if durable { journal.sync_data() } else { Ok(()) }
        });
        self.unsynced &= !durable;
        // Half a line may be there: the next write replaces the file.
        self.stale |= result.is_err();
        result
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(number: i32) -> TopicPartition {
        TopicPartition { topic: Arc::from("a-topic"), partition: number }
    }

    fn entry(offset: i64) -> CheckpointEntry {
        let recovery = RecoveryPoint { offset: Offset(offset), segment: Offset(0), position: 7 };
        let open = if offset % 2 == 0 { Box::default() } else { [0, 255, 16].into() };
        CheckpointEntry { log_start: Offset(3), recovery, open }
    }

    fn opened(root: &Path) -> (Checkpoint, usize) {
        std::fs::create_dir_all(root.join(PRIVATE_FOLDER)).unwrap();
        Checkpoint::open(Arc::from(root)).unwrap()
    }

    fn entries(root: &Path) -> HashMap<TopicPartition, CheckpointEntry> {
        let (checkpoint, damaged) = opened(root);
        assert_eq!(damaged, 0);
        std::mem::take(&mut checkpoint.lock().entries)
    }

    #[test]
    fn what_was_set_is_read_back_however_often_it_changed() {
        let root = tempfile::tempdir().unwrap();
        let (checkpoint, _) = opened(root.path());
        let mut expected = HashMap::new();
        for round in 0..100 {
            let changed = (0..10).filter(|number| (round + number) % 3 == 0);
            let changed: Vec<_> =
                changed.map(|number| (partition(number), entry(i64::from(round)))).collect();
            expected.extend(changed.clone());
            if round % 7 == 0 {
                for (partition, entry) in changed {
                    checkpoint.append(&partition, entry, round % 2 == 0).unwrap();
                }
            } else {
                checkpoint.set(changed.into_iter()).unwrap();
            }
            assert_eq!(entries(root.path()), expected, "round {round}");
            let lines = std::fs::read_to_string(file_path(root.path())).unwrap().lines().count();
            assert!(lines <= 2 * 10 + 16 + 10 + 1, "{lines} lines in round {round}");
        }
        checkpoint.forget(&partition(3));
        checkpoint.forget_durably(&partition(4)).unwrap();
        expected.remove(&partition(3));
        expected.remove(&partition(4));
        assert_eq!(entries(root.path()), expected);
    }

    #[test]
    fn a_torn_last_line_leaves_the_ones_before_and_other_damage_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (checkpoint, _) = opened(root.path());
        checkpoint.set([(partition(0), entry(1)), (partition(1), entry(2))].into_iter()).unwrap();
        let whole = std::fs::read_to_string(file_path(root.path())).unwrap();
        checkpoint.append(&partition(1), entry(9), true).unwrap();
        let text = std::fs::read_to_string(file_path(root.path())).unwrap();
        assert!(text.starts_with(&whole) && text.len() > whole.len(), "a line was appended");
        for len in whole.len()..text.len() {
            let (found, damaged) = parse(&text[..len]);
            assert_eq!(damaged, usize::from(len > whole.len()), "torn at {len}");
            assert_eq!(found.get(&partition(1)), Some(&entry(2)), "torn at {len}");
        }
        for position in HEADING.len() + 1..whole.len() - 1 {
            let mut damaged = text.clone().into_bytes();
            damaged[position] ^= 1;
            let Ok(damaged) = String::from_utf8(damaged) else { continue };
            assert!(parse(&damaged).0.is_empty(), "damaged at {position}");
        }
    }
}
