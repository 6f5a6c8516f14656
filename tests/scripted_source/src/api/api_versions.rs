//! ApiVersions: every version. Lists what the stand-in speaks, in the ranges the test left it; to a
//! version it does not know it answers in version 0 with UNSUPPORTED_VERSION and the list (KIP-511).
//!
//! A librdkafka client fetches only from a broker that lists Produce from version 0 on: call
//! `set_versions(0, 0, 9)` before one is pointed here. Produce itself closes the connection.

use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::ApiVersion;

use super::errors;
use crate::call::Call;
use crate::cluster::State;

/// API key.
pub const KEY: i16 = 18;
/// Versions spoken unless the test says otherwise.
pub(crate) const VERSIONS: (i16, i16) = (0, 4);

pub(crate) fn answer(state: &State, call: &Call) -> ApiVersionsResponse {
    let keys = state
        .versions
        .iter()
        .map(|(key, (min, max))| {
            ApiVersion::default().with_api_key(*key).with_min_version(*min).with_max_version(*max)
        })
        .collect();
    let known = state.speaks(KEY, call.version);
    ApiVersionsResponse::default()
        .with_error_code(if known { 0 } else { errors::UNSUPPORTED_VERSION })
        .with_api_keys(keys)
}
