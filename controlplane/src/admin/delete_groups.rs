//! DeleteGroups, 0 to 2: groups without members, with their offsets.

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use crate::groups::Groups;

pub(super) async fn answer(groups: &Groups, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let mut results = Vec::new();
    for group_id in request.groups_names {
        let error = groups.delete(&group_id).await;
        results.push(
            DeletableGroupResult::default().with_group_id(group_id).with_error_code(error.code),
        );
    }
    DeleteGroupsResponse::default().with_results(results)
}
