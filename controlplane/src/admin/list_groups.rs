//! ListGroups, 0 to 5: every group, by state (from 4) and type (from 5), both whatever their case.

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::call::{Call, text};
use crate::groups::Groups;

/// The only kind of group there is here.
const GROUP_TYPE: &str = "classic";

const FIRST_VERSION_OF_STATES: i16 = 4;
const FIRST_VERSION_OF_TYPES: i16 = 5;

pub(super) fn answer(
    groups: &Groups,
    call: &Call,
    request: &ListGroupsRequest,
) -> ListGroupsResponse {
    if !passes(&request.types_filter, GROUP_TYPE) {
        return ListGroupsResponse::default();
    }
    let listed = groups.list().into_iter();
    let listed = listed.filter(|group| passes(&request.states_filter, group.state)).map(|group| {
        let mut listed = ListedGroup::default()
            .with_group_id(GroupId(text(&*group.group_id)))
            .with_protocol_type(text(group.protocol_type));
        if call.version >= FIRST_VERSION_OF_STATES {
            listed.group_state = text(group.state);
        }
        if call.version >= FIRST_VERSION_OF_TYPES {
            listed.group_type = text(GROUP_TYPE);
        }
        listed
    });
    ListGroupsResponse::default().with_groups(listed.collect())
}

fn passes(filter: &[StrBytes], word: &str) -> bool {
    filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(word))
}
