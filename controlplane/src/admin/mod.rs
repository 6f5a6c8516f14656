//! The cold API: every request that the cores pass on, one file for each API key.

pub mod kip1279;

use std::sync::Arc;

use dataplane::{ColdRequest, PartitionTable, Reply};
use storage::Storage;

use crate::mirror::Mirrors;

/// Who this node is to clients.
#[derive(Debug, Clone)]
pub struct NodeIdentity {
    /// Our own cluster id (22 characters), made once and kept.
    pub cluster_id: String,
    /// Our node id.
    pub node_id: i32,
    /// The host that clients are told, when it is configured; else the address they reached.
    pub advertised_host: Option<String>,
    /// The port that clients are told.
    pub advertised_port: u16,
}

/// Answers cold requests.
#[derive(Debug)]
pub struct ColdApi {}

impl ColdApi {
    /// Ready to answer; loads group offsets from `__consumer_offsets`.
    pub fn new(
        _identity: NodeIdentity,
        _table: Arc<PartitionTable>,
        _storage: Arc<Storage>,
        _mirrors: Mirrors,
    ) -> anyhow_free::Result<Self> {
        todo!()
    }

    /// Answers one request.
    pub async fn answer(&self, _request: ColdRequest) -> Reply {
        todo!()
    }
}

/// Placeholder error until the groups' own error type exists.
pub mod anyhow_free {
    /// A result with a storage error.
    pub type Result<T> = std::result::Result<T, storage::OpenError>;
}
