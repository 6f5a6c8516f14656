//! Heartbeat, 0 to 4: a member is alive, and learns whether it has to join again.

use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use crate::groups::{Groups, MemberIdentity};

pub(super) fn answer(groups: &Groups, request: &HeartbeatRequest) -> HeartbeatResponse {
    let identity = MemberIdentity {
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
    };
    let error = groups.heartbeat(&request.group_id, identity, request.generation_id);
    HeartbeatResponse::default().with_error_code(error.code)
}
