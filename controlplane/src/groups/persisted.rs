//! A group as its record in `__consumer_offsets`, and back.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::classic::{Group, Limits, Member, Millis};
use super::offsets::{GroupRecord, MemberRecord};

/// The record's value: the generation, and each member with the chosen protocol's metadata.
pub(super) fn encode(group: &Group) -> Vec<u8> {
    let protocol = group.protocol().unwrap_or_default();
    let members = group.members().map(|member| MemberRecord {
        member_id: member.id.clone(),
        instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        session_timeout_ms: member.session_timeout_ms,
        subscription: member.metadata(protocol).to_vec(),
        assignment: member.assignment.to_vec(),
    });
    let record = GroupRecord {
        protocol_type: group.protocol_type().unwrap_or_default().to_owned(),
        generation: group.generation(),
        protocol: group.protocol().map(str::to_owned),
        leader: group.leader().map(str::to_owned),
        state_timestamp_ms: now_ms(),
        members: members.collect(),
    };
    record.encode()
}

/// The group of a record; `None` when it cannot be read. Sessions begin now.
pub(super) fn decode(value: &[u8], limits: Limits, now: Millis) -> Option<Group> {
    let record = GroupRecord::decode(value)?;
    let protocol = record.protocol.clone().unwrap_or_default();
    let members = record.members.into_iter().map(|member| Member::restored(member, &protocol, now));
    let protocol_type = Some(record.protocol_type).filter(|name| !name.is_empty());
    Some(Group::restored(
        limits,
        record.generation,
        (protocol_type, record.protocol),
        record.leader,
        members.collect(),
    ))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// What a member is restored from.
impl Member {
    fn restored(record: MemberRecord, protocol: &str, now: Millis) -> Self {
        let timeouts_ms = (record.session_timeout_ms, record.rebalance_timeout_ms);
        let metadata = (protocol.to_owned(), Bytes::from(record.subscription));
        let mut member = Self::kept(record.member_id, metadata, timeouts_ms, now);
        member.instance_id = record.instance_id;
        member.client_id = record.client_id;
        member.client_host = record.client_host;
        member.assignment = Bytes::from(record.assignment);
        member
    }
}
