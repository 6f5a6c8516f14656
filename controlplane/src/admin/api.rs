//! The door: one request in, one reply out.

use std::sync::Arc;

use dataplane::{ColdRequest, Partition, PartitionTable, Reply};
use storage::Storage;
use tracing::info;

use super::call::{Call, CallError};
use super::init_producer_id::ProducerIds;
use super::node::{Node, NodeIdentity};
use crate::groups::{GroupSettings, Groups, OffsetStore};
use crate::mirror::Mirrors;

/// Told of each partition that the control plane itself appended to, to wake who waits for it.
pub type PublishedHook = Arc<dyn Fn(&Arc<Partition>) + Send + Sync>;

/// Why the cold API could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum ColdApiError {
    /// The keeper of group offsets cannot start.
    #[error("{0}")]
    Offsets(String),
    /// The groups' timer cannot start.
    #[error("cannot start the thread that times groups: {0}")]
    Timer(std::io::Error),
}

/// Answers cold requests.
#[derive(Debug)]
pub struct ColdApi {
    pub(super) broker: Broker,
    pub(super) mirrors: Mirrors,
}

/// What answers Kafka's own requests.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) node: Node,
    pub(super) groups: Groups,
    pub(super) producer_ids: ProducerIds,
}

impl ColdApi {
    /// Ready to answer; loads group offsets from `__consumer_offsets`, which blocks.
    pub fn new(
        identity: NodeIdentity,
        table: Arc<PartitionTable>,
        storage: Arc<Storage>,
        mirrors: Mirrors,
        published: PublishedHook,
    ) -> Result<Self, ColdApiError> {
        let broker = Broker::new(identity, table, storage, published, GroupSettings::default())?;
        Ok(Self { broker, mirrors })
    }

    /// Answers one request. A request that cannot be answered closes its connection, as a Kafka
    /// broker does; why is logged.
    ///
    /// Cancel safe: nothing is half done when the future is dropped, but a joined group or a
    /// written offset stays.
    pub async fn answer(&self, request: ColdRequest) -> Reply {
        match self.frame(&request).await {
            Ok(frame) => Reply::Frame(frame),
            Err(cause) => {
                info!(peer = %request.peer, %cause, "closing a client's connection");
                Reply::Close
            }
        }
    }

    async fn frame(&self, request: &ColdRequest) -> Result<bytes::Bytes, CallError> {
        let (call, body) = Call::read(request)?;
        self.dispatch(&call, body).await
    }
}

impl Broker {
    pub(super) fn new(
        identity: NodeIdentity,
        table: Arc<PartitionTable>,
        storage: Arc<Storage>,
        published: PublishedHook,
        settings: GroupSettings,
    ) -> Result<Self, ColdApiError> {
        let store = OffsetStore::open(storage, table.clone(), published)
            .map_err(|error| ColdApiError::Offsets(error.to_string()))?;
        let groups = Groups::new(store, settings).map_err(ColdApiError::Timer)?;
        let node = Node { identity, table };
        Ok(Self { node, groups, producer_ids: ProducerIds::default() })
    }
}
