//! DescribeGroups, 0 to 6: a group's state and members.
//!
//! A group that does not exist is "Dead", without an error before version 6.

use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use super::call::{Call, text};
use super::errors::KafkaError;
use super::node::{GROUP_OPERATIONS, OPERATIONS_NOT_ASKED};
use crate::groups::Groups;

const FIRST_VERSION_OF_INSTANCES: i16 = 4;
const FIRST_VERSION_OF_NOT_FOUND: i16 = 6;

pub(super) fn answer(
    groups: &Groups,
    call: &Call,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let operations =
        if request.include_authorized_operations { GROUP_OPERATIONS } else { OPERATIONS_NOT_ASKED };
    let described = request.groups.into_iter().map(|id| described(groups, call, id, operations));
    DescribeGroupsResponse::default().with_groups(described.collect())
}

fn described(groups: &Groups, call: &Call, group_id: GroupId, operations: i32) -> DescribedGroup {
    let group = groups.describe(&group_id);
    let is_missing = group.error == KafkaError::GROUP_ID_NOT_FOUND;
    let error = match call.version < FIRST_VERSION_OF_NOT_FOUND && is_missing {
        true => KafkaError::NONE,
        false => group.error,
    };
    let members = group.members.into_iter().map(|member| {
        let mut described = DescribedGroupMember::default()
            .with_member_id(text(member.member_id))
            .with_client_id(text(member.client_id))
            .with_client_host(text(member.client_host))
            .with_member_metadata(member.metadata)
            .with_member_assignment(member.assignment);
        if call.version >= FIRST_VERSION_OF_INSTANCES {
            described.group_instance_id = member.instance_id.map(text);
        }
        described
    });
    let mut described = DescribedGroup::default()
        .with_error_code(error.code)
        .with_group_state(text(group.state))
        .with_protocol_type(text(group.protocol_type))
        .with_protocol_data(text(group.protocol))
        .with_members(members.collect())
        .with_authorized_operations(operations);
    if error == KafkaError::GROUP_ID_NOT_FOUND {
        described.error_message = Some(text(format!("Group {} not found.", &*group_id)));
    }
    described.with_group_id(group_id)
}
