//! The `.log` files of a topic, of a broker's or of a node's: how long they are, how many records they
//! hold, whether those of both sides are the same.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes compared at a time.
const COMPARE_BYTES: usize = 1 << 20;
/// Bytes of a batch header up to its number of records.
const HEADER_BYTES: usize = 61;
/// Where a batch's length field ends.
const LENGTH_END: u64 = 12;

/// The partition folders of a topic, by partition.
fn partitions(data: &Path, topic: &str) -> BTreeMap<u32, PathBuf> {
    let entries = fs::read_dir(data).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let (of, partition) = name.to_str()?.rsplit_once('-')?;
            (of == topic).then_some(())?;
            Some((partition.parse().ok()?, entry.path()))
        })
        .collect()
}

/// A partition's `.log` files in the order of their offsets.
fn log_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "log"))
        .collect();
    files.sort();
    files
}

/// All `.log` files of the topic, partition by partition.
#[must_use]
pub fn log_paths(data: &Path, topic: &str) -> Vec<PathBuf> {
    partitions(data, topic).into_values().flat_map(|folder| log_files(&folder)).collect()
}

/// Lengths of all `.log` files of the topic together.
#[must_use]
pub fn log_bytes(data: &Path, topic: &str) -> u64 {
    let files = log_paths(data, topic).into_iter();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Compares the topic's `.log` files of both sides, partition by partition, wherever segments begin.
/// Both must be stopped, or idle. Answers the bytes compared.
///
/// # Errors
/// Where they differ, in words.
pub fn compare(source: &Path, mirror: &Path, topic: &str) -> Result<u64, String> {
    let folders = (partitions(source, topic), partitions(mirror, topic));
    if folders.0.is_empty() || folders.0.len() != folders.1.len() {
        let counts = (folders.1.len(), folders.0.len());
        return Err(format!("{} of {} partitions of {topic} are there", counts.0, counts.1));
    }
    let mut bytes = 0;
    for (partition, folder) in &folders.0 {
        let ours = folders.1.get(partition).ok_or(format!("{topic}-{partition} is missing"))?;
        let (mut left, mut right) = (Chained::new(folder), Chained::new(ours));
        let (mut expected, mut found) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
        let mut position: u64 = 0;
        loop {
            let read = left.fill(&mut expected).and_then(|l| Ok((l, right.fill(&mut found)?)));
            let (wanted, got) =
                read.map_err(|error| format!("{topic}-{partition} cannot be read: {error}"))?;
            if expected[..wanted] != found[..got] {
                let same = expected.iter().zip(&found).take(wanted.min(got));
                let at = position + same.take_while(|(l, r)| l == r).count() as u64;
                return Err(format!("{topic}-{partition} differs from the source's at byte {at}"));
            }
            position += wanted as u64;
            if wanted < COMPARE_BYTES {
                break;
            }
        }
        bytes += position;
    }
    Ok(bytes)
}

/// As [`compare`], of a mirror that is not complete: each of its partitions must be the beginning of the source's.
/// Answers the bytes compared.
///
/// # Errors
/// Where they differ, in words.
pub fn compare_beginning(source: &Path, mirror: &Path, topic: &str) -> Result<u64, String> {
    let (theirs, ours) = (partitions(source, topic), partitions(mirror, topic));
    let (mut expected, mut found) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    let mut bytes = 0;
    for (partition, folder) in &ours {
        let from = theirs.get(partition).ok_or(format!("{topic}-{partition} is not there"))?;
        let (mut left, mut right) = (Chained::new(from), Chained::new(folder));
        loop {
            let read = right
                .fill(&mut found)
                .and_then(|got| left.fill(&mut expected[..got]).map(|wanted| (wanted, got)));
            let (wanted, got) =
                read.map_err(|error| format!("{topic}-{partition} cannot be read: {error}"))?;
            if expected[..wanted] != found[..got] {
                return Err(format!("{topic}-{partition} differs from the source's"));
            }
            bytes += got as u64;
            if got < COMPARE_BYTES {
                break;
            }
        }
    }
    Ok(bytes)
}

/// Several files read as one.
struct Chained {
    files: std::vec::IntoIter<PathBuf>,
    current: Option<File>,
}

impl Chained {
    fn new(folder: &Path) -> Self {
        Self { files: log_files(folder).into_iter(), current: None }
    }

    /// Fills the buffer unless the last file ends before.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.current.is_none() {
                let Some(next) = self.files.next() else { break };
                self.current = Some(File::open(next)?);
            }
            let Some(file) = &mut self.current else { break };
            match file.read(&mut buffer[filled..])? {
                0 => self.current = None,
                count => filled += count,
            }
        }
        Ok(filled)
    }
}

/// Counts a topic's records by its batch headers, each time on from where it was.
#[derive(Debug)]
pub struct CopiedRecords {
    data: PathBuf,
    topic: String,
    /// Where the next batch of a file begins.
    next: BTreeMap<PathBuf, u64>,
    records: u64,
    /// Each partition's end offset.
    ends: BTreeMap<u32, i64>,
}

impl CopiedRecords {
    /// Of a topic whose partition folders lie in `data`.
    #[must_use]
    pub fn new(data: &Path, topic: &str) -> Self {
        Self {
            data: data.to_owned(),
            topic: topic.to_owned(),
            next: BTreeMap::new(),
            records: 0,
            ends: BTreeMap::new(),
        }
    }

    /// Records there by now.
    pub fn count(&mut self) -> u64 {
        for (partition, folder) in partitions(&self.data, &self.topic) {
            for path in log_files(&folder) {
                // A file that cannot be opened now is counted the next time.
                let Ok(file) = File::open(&path) else { continue };
                let position = self.next.entry(path).or_default();
                let mut header = [0; HEADER_BYTES];
                while file.read_exact_at(&mut header, *position).is_ok() {
                    let Some(batch) = Header::parse(&header) else { break };
                    let end = *position + batch.bytes;
                    if file.metadata().map_or(0, |metadata| metadata.len()) < end {
                        break;
                    }
                    *position = end;
                    self.records += batch.records;
                    self.ends.insert(partition, batch.end_offset);
                }
            }
        }
        self.records
    }

    /// The end offset of each partition that has records, as of the last count.
    #[must_use]
    pub fn ends(&self) -> &BTreeMap<u32, i64> {
        &self.ends
    }
}

struct Header {
    bytes: u64,
    records: u64,
    end_offset: i64,
}

impl Header {
    /// Of format 2; nothing when it cannot be one.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let number = |from: usize| {
            i32::from_be_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]])
        };
        let mut base = [0; 8];
        base.copy_from_slice(&bytes[..8]);
        let length = u64::try_from(number(8)).ok()?;
        let records = u64::try_from(number(57)).ok()?;
        let last_delta = i64::from(number(23));
        (bytes[16] == 2 && length >= HEADER_BYTES as u64 - LENGTH_END && last_delta >= 0)
            .then_some(())?;
        let end_offset = i64::from_be_bytes(base).checked_add(last_delta + 1)?;
        Some(Self { bytes: LENGTH_END + length, records, end_offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Generator, Workload};

    fn folder(root: &Path, name: &str, files: &[(&str, &[u8])]) -> PathBuf {
        let folder = root.join(name);
        fs::create_dir_all(&folder).unwrap();
        for (file, bytes) in files {
            fs::write(folder.join(file), bytes).unwrap();
        }
        folder
    }

    #[test]
    fn segments_may_begin_anywhere_and_a_flipped_byte_is_found() {
        let root = tempfile::tempdir().unwrap();
        let (source, mirror) = (root.path().join("source"), root.path().join("mirror"));
        let bytes: Vec<u8> = (0..3 * COMPARE_BYTES + 5).map(|index| (index % 251) as u8).collect();
        folder(
            &source,
            "t-0",
            &[("0.log", &bytes[..10]), ("1.log", &bytes[10..]), ("0.index", b"x")],
        );
        folder(&mirror, "t-0", &[("0.log", &bytes)]);
        folder(&source, "other-t-0", &[("0.log", b"y")]);
        assert_eq!(compare(&source, &mirror, "t"), Ok(bytes.len() as u64));
        let mut flipped = bytes.clone();
        flipped[COMPARE_BYTES + 7] ^= 1;
        folder(&mirror, "t-0", &[("0.log", &flipped)]);
        let words = compare(&source, &mirror, "t").unwrap_err();
        assert!(words.contains(&format!("at byte {}", COMPARE_BYTES + 7)), "{words}");
        folder(&mirror, "t-0", &[("0.log", &bytes[..bytes.len() - 1])]);
        let words = compare(&source, &mirror, "t").unwrap_err();
        assert!(words.contains(&format!("at byte {}", bytes.len() - 1)), "{words}");
        assert_eq!(compare_beginning(&source, &mirror, "t"), Ok(bytes.len() as u64 - 1));
        folder(&mirror, "t-0", &[("0.log", &flipped)]);
        assert!(compare_beginning(&source, &mirror, "t").unwrap_err().contains("differs"));
        folder(&source, "t-1", &[]);
        assert!(compare(&source, &mirror, "t").unwrap_err().contains("1 of 2"));
    }

    #[test]
    fn records_are_counted_as_they_come() {
        let root = tempfile::tempdir().unwrap();
        let generator = Generator::new(Workload::of_size("t", 1 << 20, 1));
        let mut bytes = Vec::new();
        generator.batch(0, 0, &mut bytes);
        generator.batch(0, 64, &mut bytes);
        let cut = bytes.len() - 1;
        let folder = folder(root.path(), "t-0", &[("0.log", &bytes[..cut])]);
        let mut records = CopiedRecords::new(root.path(), "t");
        assert_eq!(records.count(), 64, "half a batch is none");
        fs::write(folder.join("0.log"), &bytes).unwrap();
        assert_eq!(records.count(), 128);
        assert_eq!(records.count(), 128, "nothing is counted twice");
        assert_eq!(records.ends()[&0], 128);
    }
}
