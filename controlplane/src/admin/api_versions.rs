//! ApiVersions, 0 to 4: what this node speaks.
//!
//! A version beyond ours is answered in the layout of version 0 with UNSUPPORTED_VERSION and the
//! range of ApiVersions itself, so that the client can ask again on the same connection (KIP-511).
//! The response header is never flexible. No features are offered.

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::call::{Call, CallError};
use super::dispatch::{ApiRange, served_apis};
use super::errors::KafkaError;

/// The versions of ApiVersions itself.
pub(super) const RANGE: ApiRange = ApiRange { key: 18, min: 0, max: 4 };

pub(super) fn answer(call: &Call, body: &Bytes) -> Result<Bytes, CallError> {
    if call.version < RANGE.min || call.version > RANGE.max {
        return Ok(unsupported(call));
    }
    call.decode::<ApiVersionsRequest>(body)?;
    let api_keys = served_apis()
        .map(|range| {
            ApiVersion::default()
                .with_api_key(range.key)
                .with_min_version(range.min)
                .with_max_version(range.max)
        })
        .collect();
    call.encode(&ApiVersionsResponse::default().with_api_keys(api_keys))
}

fn unsupported(call: &Call) -> Bytes {
    let mut frame = call.begin();
    frame.put_i16(KafkaError::UNSUPPORTED_VERSION.code);
    frame.put_i32(1);
    frame.put_i16(RANGE.key);
    frame.put_i16(RANGE.min);
    frame.put_i16(RANGE.max);
    frame.freeze()
}
