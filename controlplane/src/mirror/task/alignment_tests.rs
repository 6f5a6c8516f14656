//! What a failed store leaves behind.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dataplane::{CoreId, LaneSpec, LinkId, LinkSettings, MirrorInfo, PartitionTable};
use storage::StorageConfig;

use super::super::Beginning;
use super::*;
use crate::client::{ClientSettings, SourceClient};
use crate::config::{MirrorConfig, MirrorDefaults};
use crate::discovery::TopicFilter;
use crate::mirror::cores::{Cores, Taken};
use crate::mirror::entry::{Entry, Topic};
use crate::mirror::shared::{Owners, Shared};
use crate::store::{MirrorRecord, Snapshot, Store, StoreError, StoreWriter};

/// Cores that nothing becomes of.
#[derive(Debug)]
struct NoCores;

impl Cores for NoCores {
    fn fetch_cores(&self) -> Vec<CoreId> {
        vec![CoreId(0)]
    }
    fn set_link(&self, _: CoreId, _: LinkId, _: LinkSettings) {}
    fn add_lane(&self, _: CoreId, _: LaneSpec) {}
    fn assign(&self, _: CoreId, _: Assignment) {}
    fn resume(&self, _: CoreId, _: Arc<Partition>, _: Resume) {}
    fn park(&self, _: CoreId, _: Arc<Partition>) {}
    fn take(&self, _: CoreId, _: Arc<Partition>, _: Taken) {}
}

/// A store that is full at first.
#[derive(Debug)]
struct FullStore {
    is_full: AtomicBool,
    kept: Mutex<Vec<Change>>,
}

impl Store for FullStore {
    fn load(&self) -> Result<Snapshot, StoreError> {
        Ok(Snapshot::default())
    }

    fn apply(&self, changes: &[Change]) -> Result<(), StoreError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(StoreError::Unusable { path: "here".into(), reason: "full".into() });
        }
        self.kept.lock().unwrap().extend_from_slice(changes);
        Ok(())
    }
}

/// A task with one partition `t-0` that ends at 100, led by broker 1 in epoch 5.
fn task(store: Arc<FullStore>, storage: &Arc<Storage>) -> MirrorTask {
    let entries = [("bootstrap.servers".to_owned(), "127.0.0.1:9".to_owned())].into();
    let config = MirrorConfig::parse(&entries).unwrap();
    let log_config = LogConfig {
        segment_bytes_max: 1 << 20,
        segment_age_max: Duration::from_secs(3600),
        index_interval_bytes: 4096,
        index_bytes_max: 1 << 20,
        batch_bytes_max: 1 << 20,
    };
    let id = TopicPartition { topic: "t".into(), partition: 0 };
    let topic_id = TopicId([1; 16]);
    let log = storage.create_log(&id, topic_id, Offset(100), log_config.clone()).unwrap();
    let shared = Shared {
        cluster_id: "ours".into(),
        defaults: MirrorDefaults::default(),
        log_config,
        store: StoreWriter::start(store).unwrap(),
        storage: storage.clone(),
        table: Arc::new(PartitionTable::default()),
        cores: Arc::new(NoCores),
        owners: Owners::default(),
        lane_ids: AtomicU64::new(0),
    };
    let settings = ClientSettings {
        client_id: "longhaul-m".into(),
        connect_timeout: config.connect_timeout,
        request_timeout: config.request_timeout,
        dead_path_timeout: Duration::from_secs(1),
        security: config.security,
    };
    let record = MirrorRecord {
        name: "m".into(),
        config: entries,
        source_cluster_id: "theirs".into(),
        include: Vec::new(),
        exclude: Vec::new(),
    };
    let topic = Topic {
        id: topic_id,
        source_has_id: true,
        named: true,
        entries: vec![0],
        missing: 0,
        fault: None,
    };
    let beginning = Beginning {
        client: SourceClient::new(config.bootstrap.clone(), settings, None),
        filter: TopicFilter::new(&config, &[], &[]).unwrap(),
        record,
        config,
        link: LinkId(0),
        info: Arc::new(MirrorInfo { name: "m".into() }),
        topics: [(Arc::from("t"), topic)].into(),
        entries: vec![Entry::missing(id, &[CoreId(0)])],
    };
    let (mut task, _) = MirrorTask::new(Arc::new(shared), beginning);
    task.hold(0, log);
    task.entries[0].machine.leader_is(Some(Leader { broker: 1, epoch: LeaderEpoch(5) }));
    task
}

/// The partition's question is answered: the source's log begins at 250.
async fn meet_gap(task: &mut MirrorTask) {
    task.entries[0].machine.align_again();
    let (_, question) = task.entries[0].machine.ask().unwrap();
    let verdict = Ok(Verdict::Gap { from: Offset(100), to: Offset(250) });
    let answer = Answered { entry: (0, question), end: Some(Offset(100)), verdict };
    task.aligned(1, vec![answer], Instant::now()).await;
}

#[tokio::test]
async fn what_could_not_be_stored_is_neither_advertised_nor_counted_and_stored_the_next_time() {
    let directory = tempfile::tempdir().unwrap();
    let storage = Storage::open(StorageConfig {
        directories: vec![directory.path().to_owned()],
        descriptors_max: 100,
        mappings_max: 100,
        recycle_bytes_max: 0,
    })
    .unwrap();
    let store =
        Arc::new(FullStore { is_full: AtomicBool::new(true), kept: Mutex::new(Vec::new()) });
    let mut task = task(store.clone(), &storage);
    let advertised =
        |task: &MirrorTask| task.entries[0].body.partition().unwrap().advertised_epoch().0;
    for _ in 0..2 {
        meet_gap(&mut task).await;
        assert!(matches!(task.entries[0].machine.phase(), Phase::Waiting { .. }));
        assert_eq!(advertised(&task), 0);
    }
    store.is_full.store(false, Ordering::Relaxed);
    meet_gap(&mut task).await;
    assert!(matches!(task.entries[0].machine.phase(), Phase::Mirroring { .. }));
    assert_eq!(advertised(&task), 5);
    let kept = std::mem::take(&mut *store.kept.lock().unwrap());
    let records = kept.iter().rev().find_map(|change| match change {
        Change::Partition(_, record) => Some((record.epoch, record.gaps, record.gap_offsets)),
        _ => None,
    });
    assert_eq!(records, Some((5, 1, 150)));
    let gaps = kept.iter().filter(|change| matches!(change, Change::Event(_)));
    assert_eq!(gaps.count(), 1);

    // The core could not begin the log anew, and it is met once more.
    meet_gap(&mut task).await;
    assert!(matches!(task.entries[0].machine.phase(), Phase::Mirroring { .. }));
    assert_eq!(store.kept.lock().unwrap().len(), 0);
    assert_eq!(task.entries[0].record.gap_offsets, 150);
}
