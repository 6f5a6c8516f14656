//! What members ask and are told.

use bytes::Bytes;

use crate::admin::KafkaError;

/// Milliseconds of a clock that never goes back; only differences matter.
pub(crate) type Millis = u64;

/// Where an answer goes. The caller's to choose, and to keep apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Token(pub(in crate::groups) u64);

/// Bounds on one group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Smallest session timeout a member may ask (Kafka `group.min.session.timeout.ms`).
    pub(crate) session_timeout_min_ms: i32,
    /// Largest one (Kafka `group.max.session.timeout.ms`).
    pub(crate) session_timeout_max_ms: i32,
    /// How long an empty group waits for more members after the first
    /// (Kafka `group.initial.rebalance.delay.ms`).
    pub(crate) initial_rebalance_delay_ms: i32,
    /// Members of one group, those included that have only asked for an id.
    pub(crate) members_max: usize,
    /// Metadata and assignments of one group, in bytes.
    pub(crate) group_bytes_max: usize,
}

/// A request to join.
#[derive(Debug, Clone)]
pub(crate) struct JoinRequest {
    /// Empty for a new member.
    pub(crate) member_id: String,
    /// The id a new member gets.
    pub(crate) fresh_member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) protocol_type: String,
    /// Name and metadata, most wanted first.
    pub(crate) protocols: Vec<(String, Bytes)>,
    /// The client joins twice when it is new (KIP-394, JoinGroup 4 and later).
    pub(crate) knows_member_id_required: bool,
    /// The client can lead without assigning (KIP-814, JoinGroup 9 and later).
    pub(crate) knows_skip_assignment: bool,
}

/// The answer to a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinAnswer {
    pub(crate) error: KafkaError,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: String,
    pub(crate) skip_assignment: bool,
    pub(crate) member_id: String,
    /// For the leader alone: everybody's metadata of the chosen protocol.
    pub(crate) members: Vec<JoinedMember>,
}

impl JoinAnswer {
    /// A refusal.
    pub(crate) fn refusal(error: KafkaError, member_id: &str) -> Self {
        Self {
            error,
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: String::new(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }
}

/// A member as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinedMember {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) metadata: Bytes,
}

/// A request for one's assignment; the leader's brings everybody's.
#[derive(Debug, Clone)]
pub(crate) struct SyncRequest {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) assignments: Vec<(String, Bytes)>,
}

/// The answer to a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyncAnswer {
    pub(crate) error: KafkaError,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) assignment: Bytes,
}

impl SyncAnswer {
    /// A refusal.
    pub(crate) fn refusal(error: KafkaError) -> Self {
        Self { error, protocol_type: None, protocol: None, assignment: Bytes::new() }
    }
}

/// An answer that became due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Join(Token, JoinAnswer),
    Sync(Token, SyncAnswer),
}
