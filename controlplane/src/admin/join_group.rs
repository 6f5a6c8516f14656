//! JoinGroup, 0 to 9: waits until the group's next generation begins.
//!
//! Version 0 has no rebalance timeout: the session timeout stands for it. From 4 on a new dynamic
//! member is told its id and joins again (KIP-394); from 5 on members may be static (KIP-345);
//! from 9 on a leader may be told to leave the assignment as it is (KIP-814).

use std::fmt::Write;

use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::call::{Call, text};
use crate::groups::{Groups, JoinAnswer, JoinRequest};

const FIRST_VERSION_OF_REBALANCE_TIMEOUT: i16 = 1;
const FIRST_VERSION_OF_KNOWN_IDS: i16 = 4;
const FIRST_VERSION_OF_PROTOCOL_TYPE: i16 = 7;
const FIRST_VERSION_OF_SKIPPING: i16 = 9;

pub(super) async fn answer(
    groups: &Groups,
    call: &Call,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let version = call.version;
    let rebalance_timeout_ms = match version {
        ..FIRST_VERSION_OF_REBALANCE_TIMEOUT => request.session_timeout_ms,
        _ => request.rebalance_timeout_ms,
    };
    let instance_id = request.group_instance_id.as_deref();
    let join = JoinRequest {
        member_id: request.member_id.to_string(),
        fresh_member_id: fresh_member_id(instance_id.unwrap_or(&call.client_id)),
        instance_id: instance_id.map(str::to_owned),
        client_id: call.client_id.clone(),
        client_host: client_host(call),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type: request.protocol_type.to_string(),
        protocols: request
            .protocols
            .into_iter()
            .map(|protocol| (protocol.name.to_string(), protocol.metadata))
            .collect(),
        knows_member_id_required: version >= FIRST_VERSION_OF_KNOWN_IDS,
        knows_skip_assignment: version >= FIRST_VERSION_OF_SKIPPING,
    };
    response(version, groups.join(&request.group_id, join).await)
}

fn response(version: i16, answer: JoinAnswer) -> JoinGroupResponse {
    let members = answer.members.into_iter().map(|member| {
        let described = JoinGroupResponseMember::default()
            .with_member_id(text(member.member_id))
            .with_metadata(member.metadata);
        // The field is not there before static members are.
        if version >= 5 {
            described.with_group_instance_id(member.instance_id.map(text))
        } else {
            described
        }
    });
    let mut response = JoinGroupResponse::default()
        .with_error_code(answer.error.code)
        .with_generation_id(answer.generation)
        .with_leader(text(answer.leader))
        .with_skip_assignment(answer.skip_assignment)
        .with_member_id(text(answer.member_id))
        .with_members(members.collect());
    if version >= FIRST_VERSION_OF_PROTOCOL_TYPE {
        response.protocol_type = answer.protocol_type.map(text);
        response.protocol_name = answer.protocol.map(text);
    } else {
        // Before it may be null, no protocol is an empty name.
        response.protocol_name = Some(answer.protocol.map_or_else(StrBytes::default, text));
    }
    response
}

/// The part of a member id that tells whose it is; with the rest it has to fit a protocol string.
const MEMBER_ID_PREFIX_CHARACTERS_MAX: usize = 255;

/// The id of a new member: recognisable in tools, and never the same twice.
fn fresh_member_id(prefix: &str) -> String {
    let mut id: String = prefix.chars().take(MEMBER_ID_PREFIX_CHARACTERS_MAX).collect();
    // Writing to a string cannot fail.
    let _ = write!(id, "-{}", Uuid::new_v4().hyphenated());
    id
}

/// As Java prints an address: what Kafka's tools show.
fn client_host(call: &Call) -> String {
    format!("/{}", call.peer.ip().to_canonical())
}
