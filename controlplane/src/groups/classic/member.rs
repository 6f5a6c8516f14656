//! One member of a group.

use bytes::Bytes;

use super::requests::{JoinRequest, Millis, Token};

/// How a member names itself in a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemberIdentity<'a> {
    pub(crate) member_id: &'a str,
    pub(crate) instance_id: Option<&'a str>,
}

/// One member.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) protocols: Vec<(String, Bytes)>,
    pub(crate) assignment: Bytes,
    /// When the member is taken for gone, unless it is heard of before.
    pub(super) session_deadline: Millis,
    /// It has never completed a join: nothing vouches for it but this deadline, even while it waits.
    pub(super) is_new: bool,
    /// Its join waits for the others.
    pub(super) joining: Option<Token>,
    /// Its sync waits for the leader's.
    pub(super) syncing: Option<Token>,
    /// It has not asked for its assignment in this generation yet.
    pub(super) owes_sync: bool,
}

impl Member {
    pub(super) fn new(id: String, request: &JoinRequest, now: Millis) -> Self {
        let mut member = Self::bare(id);
        member.instance_id = request.instance_id.clone();
        member.take_over(request);
        member.heard_of(now);
        member
    }

    /// A member read back from the log; its session begins now.
    pub(crate) fn kept(
        id: String,
        protocol: (String, Bytes),
        timeouts_ms: (i32, i32),
        now: Millis,
    ) -> Self {
        let mut member = Self::bare(id);
        (member.session_timeout_ms, member.rebalance_timeout_ms) = timeouts_ms;
        member.protocols = vec![protocol];
        member.is_new = false;
        member.heard_of(now);
        member
    }

    fn bare(id: String) -> Self {
        Self {
            id,
            instance_id: None,
            client_id: String::new(),
            client_host: String::new(),
            session_timeout_ms: 0,
            rebalance_timeout_ms: 0,
            protocols: Vec::new(),
            assignment: Bytes::new(),
            session_deadline: 0,
            is_new: true,
            joining: None,
            syncing: None,
            owes_sync: false,
        }
    }

    /// Takes what the request says of the member.
    pub(super) fn take_over(&mut self, request: &JoinRequest) {
        self.client_id = request.client_id.clone();
        self.client_host = request.client_host.clone();
        self.session_timeout_ms = request.session_timeout_ms;
        self.rebalance_timeout_ms = request.rebalance_timeout_ms;
        // Copies: slices would keep the whole request's memory.
        let copied = request
            .protocols
            .iter()
            .map(|(name, metadata)| (name.clone(), Bytes::copy_from_slice(metadata)));
        self.protocols = copied.collect();
    }

    /// Starts the session anew.
    pub(super) fn heard_of(&mut self, now: Millis) {
        self.session_deadline = now + self.session_timeout_ms.max(0) as Millis;
    }

    pub(super) fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }

    /// Bytes kept for the member beyond a fixed size.
    pub(super) fn kept_bytes(&self) -> usize {
        protocol_bytes(&self.protocols) + self.assignment.len()
    }
}

pub(super) fn protocol_bytes(protocols: &[(String, Bytes)]) -> usize {
    protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum()
}
