//! FindCoordinator, 0 to 6: this node coordinates every group.
//!
//! Transactions are not coordinated here: every client holds the error for final, and it comes
//! with a reason. Share groups likewise.

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::call::{Call, text};
use super::errors::KafkaError;
use super::node::Node;

const KEY_TYPE_GROUP: i8 = 0;
const KEY_TYPE_TRANSACTION: i8 = 1;

/// From here on several keys are asked at once.
const FIRST_VERSION_OF_LISTS: i16 = 4;

pub(super) fn answer(
    node: &Node,
    call: &Call,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let key_type = request.key_type;
    if call.version >= FIRST_VERSION_OF_LISTS {
        let keys = request.coordinator_keys.into_iter();
        return FindCoordinatorResponse::default()
            .with_coordinators(keys.map(|key| coordinator(node, call, key_type, key)).collect());
    }
    let found = coordinator(node, call, key_type, request.key);
    let message = if call.version >= 1 { found.error_message } else { None };
    FindCoordinatorResponse::default()
        .with_error_code(found.error_code)
        .with_error_message(message)
        .with_node_id(found.node_id)
        .with_host(found.host)
        .with_port(found.port)
}

fn coordinator(node: &Node, call: &Call, key_type: i8, key: StrBytes) -> Coordinator {
    let refusal = match key_type {
        KEY_TYPE_GROUP if key.is_empty() => {
            Some((KafkaError::INVALID_GROUP_ID, "the group id is empty"))
        }
        KEY_TYPE_GROUP => None,
        KEY_TYPE_TRANSACTION => Some((
            KafkaError::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "this node holds mirrored topics, which are read-only: it takes no transactions",
        )),
        _ => Some((KafkaError::INVALID_REQUEST, "this node coordinates consumer groups only")),
    };
    let found = Coordinator::default().with_key(key);
    match refusal {
        None => found.with_node_id(node.id()).with_host(node.host(call)).with_port(node.port(call)),
        Some((error, reason)) => found
            .with_error_code(error.code)
            .with_error_message(Some(text(reason)))
            .with_node_id(BrokerId(-1))
            .with_port(-1),
    }
}
