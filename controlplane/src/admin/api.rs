//! The door: one request in, one reply out.

use std::sync::Arc;

use dataplane::{ColdRequest, Partition, PartitionTable, Reply};
use storage::Storage;
use tracing::info;

use super::call::{Call, CallError};
use super::node::{Node, NodeIdentity};
use crate::mirror::Mirrors;

/// Told of each partition that the control plane itself appended to, to wake who waits for it.
pub type PublishedHook = Arc<dyn Fn(&Arc<Partition>) + Send + Sync>;

/// Why the cold API could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum ColdApiError {
    /// The log of group offsets cannot be opened or read.
    #[error("cannot load group offsets: {0}")]
    Offsets(#[from] storage::OpenError),
}

/// Answers cold requests.
#[derive(Debug)]
pub struct ColdApi {
    pub(super) node: Node,
    pub(super) mirrors: Mirrors,
}

impl ColdApi {
    /// Ready to answer; loads group offsets from `__consumer_offsets`, which blocks.
    pub fn new(
        identity: NodeIdentity,
        table: Arc<PartitionTable>,
        _storage: Arc<Storage>,
        mirrors: Mirrors,
        _published: PublishedHook,
    ) -> Result<Self, ColdApiError> {
        Ok(Self { node: Node { identity, table }, mirrors })
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
