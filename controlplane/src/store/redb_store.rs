//! The store of a single node: one redb file under its first data directory.

use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Change, EVENTS_MAX, EventRecord, Snapshot, Store, StoreError};

const NODE: TableDefinition<'_, &str, &str> = TableDefinition::new("node");
const MIRRORS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("mirrors");
const TOPICS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("topics");
/// Keyed by name and index apart: names may contain whatever separates them in text.
const PARTITIONS: TableDefinition<'_, (&str, i32), &[u8]> = TableDefinition::new("partitions");
const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");

const CLUSTER_ID: &str = "cluster_id";

/// Records in a redb file.
#[derive(Debug)]
pub struct RedbStore {
    path: PathBuf,
    database: Database,
}

impl RedbStore {
    /// Opens or creates the file in `directory/.longhaul/`.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let folder = directory.join(".longhaul");
        let path = folder.join("metadata.redb");
        let unusable =
            |reason: String| StoreError::Unusable { path: path.display().to_string(), reason };
        std::fs::create_dir_all(&folder).map_err(|error| unusable(error.to_string()))?;
        let database = Database::create(&path).map_err(|error| unusable(error.to_string()))?;
        let store = Self { path: path.clone(), database };
        store.write(|transaction| {
            transaction.open_table(NODE)?;
            transaction.open_table(MIRRORS)?;
            transaction.open_table(TOPICS)?;
            transaction.open_table(PARTITIONS)?;
            transaction.open_table(EVENTS)?;
            Ok(())
        })?;
        Ok(store)
    }

    fn write(
        &self,
        body: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        let run = || {
            let transaction = self.database.begin_write()?;
            body(&transaction)?;
            transaction.commit()?;
            Ok(())
        };
        run().map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &redb::Error) -> StoreError {
        StoreError::Unusable { path: self.path.display().to_string(), reason: error.to_string() }
    }

    fn parse<T: DeserializeOwned>(&self, key: &str, bytes: &[u8]) -> Result<T, StoreError> {
        serde_json::from_slice(bytes).map_err(|error| StoreError::Record {
            path: self.path.display().to_string(),
            key: key.to_owned(),
            reason: error.to_string(),
        })
    }

    /// The raw rows; parsing comes after, so that its errors can name the row.
    fn rows(&self) -> Result<Rows, redb::Error> {
        let transaction = self.database.begin_read()?;
        let mut rows = Rows {
            cluster_id: transaction
                .open_table(NODE)?
                .get(CLUSTER_ID)?
                .map(|value| value.value().to_owned()),
            ..Rows::default()
        };
        for row in transaction.open_table(MIRRORS)?.iter()? {
            let (key, value) = row?;
            rows.mirrors.push((key.value().to_owned(), value.value().to_owned()));
        }
        for row in transaction.open_table(TOPICS)?.iter()? {
            let (key, value) = row?;
            rows.topics.push((key.value().to_owned(), value.value().to_owned()));
        }
        for row in transaction.open_table(PARTITIONS)?.iter()? {
            let (key, value) = row?;
            let (topic, partition) = key.value();
            rows.partitions.push((topic.to_owned(), partition, value.value().to_owned()));
        }
        for row in transaction.open_table(EVENTS)?.iter()? {
            let (key, value) = row?;
            rows.events.push((key.value(), value.value().to_owned()));
        }
        Ok(rows)
    }
}

#[derive(Default)]
struct Rows {
    cluster_id: Option<String>,
    mirrors: Vec<(String, Vec<u8>)>,
    topics: Vec<(String, Vec<u8>)>,
    partitions: Vec<(String, i32, Vec<u8>)>,
    events: Vec<(u64, Vec<u8>)>,
}

impl Store for RedbStore {
    fn load(&self) -> Result<Snapshot, StoreError> {
        let rows = self.rows().map_err(|error| self.unusable(&error))?;
        let mut snapshot = Snapshot { cluster_id: rows.cluster_id, ..Snapshot::default() };
        for (key, bytes) in &rows.mirrors {
            snapshot.mirrors.push(self.parse(key, bytes)?);
        }
        for (key, bytes) in &rows.topics {
            snapshot.topics.push(self.parse(key, bytes)?);
        }
        for (topic, partition, bytes) in rows.partitions {
            let record = self.parse(&format!("{topic}-{partition}"), &bytes)?;
            snapshot.partitions.push((topic.into(), partition, record));
        }
        for (sequence, bytes) in &rows.events {
            snapshot.events.push(self.parse(&format!("event {sequence}"), bytes)?);
        }
        Ok(snapshot)
    }

    fn apply(&self, changes: &[Change]) -> Result<(), StoreError> {
        self.write(|transaction| {
            let mut node = transaction.open_table(NODE)?;
            let mut mirrors = transaction.open_table(MIRRORS)?;
            let mut topics = transaction.open_table(TOPICS)?;
            let mut partitions = transaction.open_table(PARTITIONS)?;
            for change in changes {
                match change {
                    Change::ClusterId(id) => drop(node.insert(CLUSTER_ID, id.as_str())?),
                    Change::Mirror(record) => {
                        drop(mirrors.insert(record.name.as_str(), json(record).as_slice())?);
                    }
                    Change::Topic(record) => {
                        drop(topics.insert(record.name.as_str(), json(record).as_slice())?);
                    }
                    Change::Partition(id, record) => {
                        let key = (&*id.topic, id.partition);
                        drop(partitions.insert(key, json(record).as_slice())?);
                    }
                    Change::Event(_) => {}
                }
            }
            let events = changes.iter().filter_map(|change| match change {
                Change::Event(event) => Some(event),
                _ => None,
            });
            append_events(transaction, events)
        })
    }
}

fn append_events<'a>(
    transaction: &WriteTransaction,
    new: impl Iterator<Item = &'a EventRecord>,
) -> Result<(), redb::Error> {
    let mut events = transaction.open_table(EVENTS)?;
    let mut next = events.last()?.map_or(0, |(key, _)| key.value() + 1);
    for event in new {
        events.insert(next, json(event).as_slice())?;
        next += 1;
    }
    if let Some(keep_from) = next.checked_sub(EVENTS_MAX) {
        events.retain_in(..keep_from, |_, _| false)?;
    }
    Ok(())
}

/// Our records have only string keys and plain values, which always have a JSON form.
fn json<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use storage::TopicPartition;

    use super::*;
    use crate::store::{EventKind, MirrorRecord, PartitionRecord, StoredFault, TopicRecord};

    fn event(at_ms: i64) -> Change {
        Change::Event(EventRecord {
            at_ms,
            kind: EventKind::Gap,
            mirror: "m".into(),
            topic: "t".into(),
            partition: 0,
            text: String::new(),
        })
    }

    #[test]
    fn everything_comes_back_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let mirror = MirrorRecord {
            name: "m".into(),
            config: [("bootstrap.servers".to_owned(), "a:1".to_owned())].into(),
            source_cluster_id: "c".into(),
            include: vec!["x.*".into()],
            exclude: Vec::new(),
        };
        let topic = TopicRecord {
            name: "a-1".into(),
            mirror: "m".into(),
            id: "AAAAAAAAAAAAAAAAAAAAAQ".into(),
            source_has_id: false,
            named: true,
            partitions: 2,
            fault: Some(StoredFault { message: "gone".into(), since_ms: 5 }),
        };
        // The two names give the same text with a dash between name and index.
        let partitions = [("a-1", 1, 7), ("a", 1, 8), ("a-1", 11, 9), ("a-1-1", 1, 10)];
        let store = RedbStore::open(directory.path()).unwrap();
        let mut changes =
            vec![Change::ClusterId("us".into()), Change::Mirror(mirror.clone()), event(1)];
        changes.push(Change::Topic(topic.clone()));
        for (name, partition, epoch) in partitions {
            let id = TopicPartition { topic: name.into(), partition };
            let record = PartitionRecord { epoch, ..PartitionRecord::default() };
            changes.push(Change::Partition(id, record));
        }
        store.apply(&changes).unwrap();
        drop(store);
        let snapshot = RedbStore::open(directory.path()).unwrap().load().unwrap();
        assert_eq!(snapshot.cluster_id.as_deref(), Some("us"));
        assert_eq!((snapshot.mirrors, snapshot.topics), (vec![mirror], vec![topic]));
        assert_eq!(snapshot.events.len(), 1);
        for (name, partition, epoch) in partitions {
            let found =
                snapshot.partitions.iter().find(|(t, p, _)| &**t == name && *p == partition);
            assert_eq!(found.unwrap().2.epoch, epoch);
        }
    }

    #[test]
    fn history_is_bounded_and_keeps_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        let store = RedbStore::open(directory.path()).unwrap();
        let many: Vec<_> = (0..EVENTS_MAX as i64 + 10).map(event).collect();
        store.apply(&many).unwrap();
        store.apply(&[event(-1)]).unwrap();
        let events = store.load().unwrap().events;
        assert_eq!(events.len() as u64, EVENTS_MAX);
        assert_eq!((events[0].at_ms, events[events.len() - 1].at_ms), (11, -1));
    }

    #[test]
    fn a_second_owner_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _store = RedbStore::open(directory.path()).unwrap();
        assert!(RedbStore::open(directory.path()).is_err());
    }
}
