//! LeaveGroup, 0 to 5: members leave; from 3 on several, also by instance id alone.

use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use super::call::Call;
use super::errors::KafkaError;
use crate::groups::{Groups, MemberIdentity};

const FIRST_VERSION_OF_LISTS: i16 = 3;

pub(super) fn answer(
    groups: &Groups,
    call: &Call,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    if call.version < FIRST_VERSION_OF_LISTS {
        let identity = MemberIdentity { member_id: &request.member_id, instance_id: None };
        let outcomes = groups.leave(&request.group_id, &[identity]);
        let error = outcomes.first().copied().unwrap_or(KafkaError::UNKNOWN_MEMBER_ID);
        return LeaveGroupResponse::default().with_error_code(error.code);
    }
    let identities: Vec<_> = request
        .members
        .iter()
        .map(|member| MemberIdentity {
            member_id: &member.member_id,
            instance_id: member.group_instance_id.as_deref(),
        })
        .collect();
    let outcomes = groups.leave(&request.group_id, &identities);
    let members = request.members.iter().zip(outcomes).map(|(member, error)| {
        MemberResponse::default()
            .with_member_id(member.member_id.clone())
            .with_group_instance_id(member.group_instance_id.clone())
            .with_error_code(error.code)
    });
    LeaveGroupResponse::default().with_members(members.collect())
}
