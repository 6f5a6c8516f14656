//! The ordinary answers, one file for each API key.

pub(crate) mod api_versions;
pub(crate) mod describe_cluster;
pub(crate) mod fetch;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod offset_for_leader_epoch;
mod session;

use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;

use crate::call::{Call, Request, Response};
use crate::cluster::Shared;
use crate::log::Topic;

pub(crate) use session::Sessions;

/// Kafka's error codes, those the stand-in gives by itself.
pub(crate) mod errors {
    pub(crate) const OFFSET_OUT_OF_RANGE: i16 = 1;
    pub(crate) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub(crate) const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    pub(crate) const UNSUPPORTED_VERSION: i16 = 35;
    pub(crate) const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
    pub(crate) const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
    pub(crate) const FENCED_LEADER_EPOCH: i16 = 74;
    pub(crate) const UNKNOWN_LEADER_EPOCH: i16 = 75;
    pub(crate) const UNKNOWN_TOPIC_ID: i16 = 100;
}

/// The ordinary answer; `None` for what a broker closes the connection at.
pub(crate) fn ordinary(shared: &Shared, call: &Call) -> Option<Response> {
    let state = &shared.state;
    if call.api_key == api_versions::KEY {
        return Some(Response::ApiVersions(api_versions::answer(&state.lock(), call)));
    }
    if !state.lock().speaks(call.api_key, call.version) {
        return None;
    }
    Some(match &call.request {
        Request::Metadata(request) => {
            Response::Metadata(metadata::answer(&state.lock(), request, call.version))
        }
        Request::DescribeCluster(_) => {
            Response::DescribeCluster(describe_cluster::answer(&state.lock()))
        }
        Request::ListOffsets(request) => {
            Response::ListOffsets(list_offsets::answer(&state.lock(), call, request))
        }
        Request::OffsetForLeaderEpoch(request) => Response::OffsetForLeaderEpoch(
            offset_for_leader_epoch::answer(&state.lock(), call, request),
        ),
        Request::Fetch(request) => Response::Fetch(fetch::answer(shared, call, request)),
        Request::ApiVersions(_) | Request::Other(_) => return None,
    })
}

/// The error of a leader epoch the client believes in, 0 for none.
fn epoch_error(believed: i32, actual: i32) -> i16 {
    match believed {
        -1 => 0,
        believed if believed < actual => errors::FENCED_LEADER_EPOCH,
        believed if believed > actual => errors::UNKNOWN_LEADER_EPOCH,
        _ => 0,
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn node(id: i32) -> BrokerId {
    BrokerId(id)
}

/// The codec's id type, without naming its crate.
fn uuid<T: std::str::FromStr>(topic: &Topic) -> T {
    let hex = format!("{:032x}", u128::from_be_bytes(topic.id));
    hex.parse().unwrap_or_else(|_| panic!("{hex} is an id"))
}
