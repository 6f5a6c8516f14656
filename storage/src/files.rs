//! Small file operations that have to be right: atomic replacement, folder names, metadata.
//!
//! Owns nothing; called from any thread that may block. It must never leave a half-written file
//! under its final name.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::{TopicId, TopicPartition};

/// Longest topic name Kafka allows.
const TOPIC_NAME_CHARS_MAX: usize = 249;

/// Kafka's file with the topic id, in the partition folder.
pub(crate) const PARTITION_METADATA: &str = "partition.metadata";

/// A data directory's lock file, by a broker's name.
pub(crate) const LOCK_FILE: &str = ".lock";

/// Kafka's file with the epochs of a partition, in the partition folder.
pub(crate) const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";

/// Most bytes read of a metadata file; a real one has about fifty.
const METADATA_BYTES_MAX: u64 = 4096;

/// Writes a file so that after a crash either the old or the new content is there.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a file that may be missing.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Reads a partition's name from its folder's name; `None` for any other folder.
pub(crate) fn parse_folder_name(name: &str) -> Option<TopicPartition> {
    let (topic, digits) = name.rsplit_once('-')?;
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let topic_valid = !topic.is_empty()
        && topic.len() <= TOPIC_NAME_CHARS_MAX
        && topic.bytes().all(known)
        && topic != "."
        && topic != "..";
    let digits_valid = digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    if !topic_valid || !digits_valid {
        return None;
    }
    Some(TopicPartition { topic: Arc::from(topic), partition: digits.parse().ok()? })
}

/// Writes `partition.metadata` in a folder that has not its final name yet. A topic without an id
/// has none: a broker refuses a zero id there and accepts a missing file. Synced with the first
/// records, not here: a sync for each of many thousand new partitions would take minutes.
pub(crate) fn write_partition_metadata(folder: &Path, topic_id: TopicId) -> io::Result<()> {
    if topic_id.is_zero() {
        return Ok(());
    }
    fs::write(folder.join(PARTITION_METADATA), format!("version: 0\ntopic_id: {topic_id}\n"))
}

/// Makes `partition.metadata` durable, if there is one.
pub(crate) fn sync_partition_metadata(folder: &Path) -> io::Result<()> {
    match File::open(folder.join(PARTITION_METADATA)) {
        Ok(file) => file.sync_data(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether power was lost before the content of a new `partition.metadata` reached the device: the
/// file has its name and nothing in it.
pub(crate) fn is_partition_metadata_lost(folder: &Path) -> bool {
    let read = read_text(&folder.join(PARTITION_METADATA), METADATA_BYTES_MAX);
    read.is_ok_and(|text| text.bytes().all(|byte| byte == 0))
}

/// Reads `partition.metadata`; zero when there is none.
pub(crate) fn read_partition_metadata(folder: &Path) -> io::Result<TopicId> {
    let path = folder.join(PARTITION_METADATA);
    let text = match read_text(&path, METADATA_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TopicId::ZERO),
        Err(error) => return Err(error),
    };
    let damaged = || {
        let message = format!("{} is damaged", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let mut lines = text.lines();
    if lines.next().map(str::trim) != Some("version: 0") {
        return Err(damaged());
    }
    let id = lines.next().and_then(|line| line.trim().strip_prefix("topic_id: "));
    id.and_then(TopicId::parse).ok_or_else(damaged)
}

/// Reads a text file of at most `bytes_max` bytes.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.len() > bytes_max {
        let message = format!("{} has more than {bytes_max} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    io::read_to_string(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_with_separators_in_the_topic_are_split_at_the_last() {
        for (name, topic, partition) in
            [("a-1-b-0", "a-1-b", 0), ("1-17", "1", 17), ("a.b_c-2147483647", "a.b_c", i32::MAX)]
        {
            let parsed = parse_folder_name(name).unwrap();
            assert_eq!((&*parsed.topic, parsed.partition), (topic, partition));
            assert_eq!(parsed.to_string(), name);
        }
        let long = "x".repeat(250);
        for name in ["a", "-0", "a-", "a-01", "a-2147483648", "a b-0", "a-0.17-delete", "..-0"]
            .into_iter()
            .chain([&*format!("{long}-0")])
        {
            assert_eq!(parse_folder_name(name), None, "{name}");
        }
    }

    #[test]
    fn partition_metadata_is_read_back_and_damage_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_partition_metadata(folder.path()).unwrap(), TopicId::ZERO);
        let id = TopicId([7; 16]);
        write_partition_metadata(folder.path(), id).unwrap();
        assert_eq!(read_partition_metadata(folder.path()).unwrap(), id);
        let path = folder.path().join(PARTITION_METADATA);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("version: 0\ntopic_id: {id}\n"));
        fs::write(&path, "version: 0\ntopic_id: nonsense\n").unwrap();
        assert!(read_partition_metadata(folder.path()).is_err());
        assert!(!is_partition_metadata_lost(folder.path()));
        for lost in ["", "\0\0\0\0"] {
            fs::write(&path, lost).unwrap();
            assert!(is_partition_metadata_lost(folder.path()));
        }
    }
}
