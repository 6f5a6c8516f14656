//! Whole frames in, whole frames out, with kafka-protocol as the client's side and real storage.

mod clients;
mod groups;
mod hostile;
mod topics;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dataplane::wire::{ApiKey, RequestHeader, response_header_len};
use dataplane::{
    Advertised, ColdRequest, ConnectionId, CoreId, MirrorInfo, Partition, PartitionTable,
};
use kafka_protocol::protocol::{Decodable, Request, StrBytes};
use storage::{LeaderEpoch, Log, Offset, Storage, StorageConfig, TopicId, TopicPartition};

use super::api::Broker;
use super::call::{Call, CallError};
use super::node::NodeIdentity;
use crate::groups::GroupSettings;

const TOPIC_ID: TopicId = TopicId(*b"orders-topic-id!");

/// A node with a mirrored topic `orders` of two partitions, on storage that outlives it.
struct Scene {
    broker: Broker,
    logs: Vec<Log>,
    storage: Arc<Storage>,
    directory: tempfile::TempDir,
}

fn open_storage(directory: &tempfile::TempDir) -> Arc<Storage> {
    Storage::open(StorageConfig {
        directories: vec![directory.path().to_owned()],
        descriptors_max: 1_000,
        mappings_max: 1_000,
        recycle_bytes_max: 0,
    })
    .unwrap()
}

fn identity() -> NodeIdentity {
    NodeIdentity {
        cluster_id: "AAAAAAAAAAAAAAAAAAAAAQ".into(),
        advertised: Advertised { node_id: 7, host: None, port: Some(9092) },
    }
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let storage = open_storage(&directory);
        let broker = broker(Arc::new(PartitionTable::default()), storage.clone());
        let mut scene = Self { broker, logs: Vec::new(), storage, directory };
        scene.add("orders", 2, TOPIC_ID);
        scene
    }

    /// Adds a mirrored topic.
    fn add(&mut self, topic: &str, partitions: i32, topic_id: TopicId) {
        let mirror = Arc::new(MirrorInfo { name: "eu".into() });
        for partition in 0..partitions {
            let id = TopicPartition { topic: topic.into(), partition };
            let log = self.storage.create_log(&id, topic_id, Offset(0), log_config()).unwrap();
            let mirror = Some(mirror.clone());
            let epoch = LeaderEpoch(3);
            let shared = Partition::new(id, topic_id, log.reader().clone(), mirror, epoch);
            self.broker.node.table.insert(Arc::new(shared));
            self.logs.push(log);
        }
    }

    /// Stops the node cleanly and starts it again on what it left.
    fn restart(self) -> Self {
        self.restart_after(|_| {})
    }

    /// The same, after something was done to its files.
    fn restart_after(self, change: impl FnOnce(&std::path::Path)) -> Self {
        let Self { broker, logs, storage, directory } = self;
        let table = broker.node.table.clone();
        drop(broker);
        change(directory.path());
        table.remove_topic("__consumer_offsets");
        let broker = self::broker(table, storage.clone());
        Self { broker, logs, storage, directory }
    }

    async fn answer(&self, request: &ColdRequest) -> Result<Bytes, CallError> {
        let (call, body) = Call::read(request)?;
        let frame = self.broker.answer(&call, &body).await?;
        frame.ok_or(CallError::Unsupported { key: call.key.0, version: call.version })
    }

    /// Asks as a client would; panics when the connection would be closed.
    async fn ask<R: Request>(&self, version: i16, request: &R) -> R::Response {
        let frame = self.answer(&frame(version, request)).await.unwrap();
        response::<R>(version, frame)
    }
}

fn broker(table: Arc<PartitionTable>, storage: Arc<Storage>) -> Broker {
    let mut settings = GroupSettings::default();
    settings.limits.initial_rebalance_delay_ms = 0;
    settings.limits.session_timeout_min_ms = 1;
    Broker::new(identity(), table, storage, Arc::new(|_| {}), settings).unwrap()
}

fn log_config() -> storage::LogConfig {
    storage::LogConfig {
        segment_bytes_max: 1024 * 1024,
        segment_age_max: std::time::Duration::from_secs(3600),
        index_interval_bytes: 4096,
        index_bytes_max: 1024 * 1024,
        batch_bytes_max: 1024 * 1024,
    }
}

fn header(key: i16, version: i16) -> BytesMut {
    let mut frame = BytesMut::new();
    RequestHeader {
        api_key: ApiKey(key),
        api_version: version,
        correlation_id: 0x0102_0304,
        client_id: Some("client"),
    }
    .encode(&mut frame);
    frame
}

fn cold(frame: BytesMut) -> ColdRequest {
    ColdRequest {
        connection: ConnectionId { core: CoreId(0), slot: 0, generation: 0 },
        peer: "10.1.2.3:45678".parse().unwrap(),
        local: "10.0.0.1:9092".parse().unwrap(),
        frame: frame.freeze(),
    }
}

fn frame<R: Request>(version: i16, request: &R) -> ColdRequest {
    let mut frame = header(R::KEY, version);
    request.encode(&mut frame, version).unwrap();
    cold(frame)
}

fn response<R: Request>(version: i16, mut frame: Bytes) -> R::Response {
    assert_eq!(&frame[..4], &[1, 2, 3, 4], "the correlation id comes back");
    let _ = frame.split_to(response_header_len(ApiKey(R::KEY), version));
    let response = R::Response::decode(&mut frame, version).unwrap();
    assert!(frame.is_empty(), "{} bytes after the answer", frame.len());
    response
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
