//! SyncGroup, 0 to 5: a member's assignment, once the leader has given it.

use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::call::{Call, text};
use crate::groups::{Groups, SyncRequest};

const FIRST_VERSION_OF_PROTOCOL_TYPE: i16 = 5;

pub(super) async fn answer(
    groups: &Groups,
    call: &Call,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let sync = SyncRequest {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        generation: request.generation_id,
        protocol_type: request.protocol_type.map(|name| name.to_string()),
        protocol: request.protocol_name.map(|name| name.to_string()),
        assignments: request
            .assignments
            .into_iter()
            .map(|assignment| (assignment.member_id.to_string(), assignment.assignment))
            .collect(),
    };
    let answer = groups.sync(&request.group_id, sync).await;
    let mut response = SyncGroupResponse::default()
        .with_error_code(answer.error.code)
        .with_assignment(answer.assignment);
    if call.version >= FIRST_VERSION_OF_PROTOCOL_TYPE {
        response.protocol_type = answer.protocol_type.map(text);
        response.protocol_name = answer.protocol.map(text);
    }
    response
}
