//! The one way into the generated Kafka codec.
//!
//! `kafka-protocol` reserves memory for as many array elements as a message claims, so a frame of
//! fifteen bytes can end the process. Nothing of a peer's is decoded with it except through here:
//! a message is walked first, by the table in `layouts.txt`, and refused unless everything it
//! claims is there. Owns that table; runs on whichever thread calls it, and allocates nothing
//! before the walk is done. A message that the table lacks is refused.

mod layout;
mod scan;

use bytes::Bytes;
use kafka_protocol::protocol::{Decodable, Message, Request};

use layout::Direction;

/// Why a peer's message was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// We do not speak this version: the peer may be answered with UNSUPPORTED_VERSION.
    #[error("version {version} of API {api_key} is not spoken")]
    Version {
        /// Which API.
        api_key: i16,
        /// Which version.
        version: i16,
    },
    /// The bytes are no such message: the connection cannot be trusted any further.
    #[error("a message of API {api_key}, version {version}, is malformed: {reason}")]
    Malformed {
        /// Which API.
        api_key: i16,
        /// Which version.
        version: i16,
        /// What is wrong with it.
        reason: String,
    },
}

/// Elements and tagged fields in one request, all arrays together: as many as the cores allow. Each
/// costs the decoder a few hundred bytes, so this also bounds what one request can take.
pub const REQUEST_ELEMENTS_MAX: usize = dataplane::wire::REQUEST_ELEMENTS_MAX;

/// Elements and tagged fields in one response. Metadata of 100,000 partitions has an element for each of their
/// replicas, twice; sources are clusters that the operator named.
pub const RESPONSE_ELEMENTS_MAX: usize = 4_000_000;

/// Decodes a request's body, without its header; nothing may follow it.
pub fn decode_request<T: Request>(version: i16, body: Bytes) -> Result<T, GuardError> {
    decode(T::KEY, Direction::Request, version, body)
}

/// Decodes the body of the response to a request `T`, without its header; nothing may follow it.
pub fn decode_response<T: Request>(version: i16, body: Bytes) -> Result<T::Response, GuardError> {
    decode(T::KEY, Direction::Response, version, body)
}

fn decode<M: Message + Decodable>(
    api_key: i16,
    direction: Direction,
    version: i16,
    mut body: Bytes,
) -> Result<M, GuardError> {
    let unspoken = GuardError::Version { api_key, version };
    if !(M::VERSIONS.min..=M::VERSIONS.max).contains(&version) {
        return Err(unspoken);
    }
    let layout = layout::find(api_key, direction, version).ok_or(unspoken)?;
    let malformed = |reason: String| GuardError::Malformed { api_key, version, reason };
    scan::check(&layout, &body).map_err(|error| malformed(error.to_string()))?;
    let message = M::decode(&mut body, version).map_err(|error| malformed(error.to_string()))?;
    match body.len() {
        0 => Ok(message),
        left => Err(malformed(format!("{left} bytes after its end"))),
    }
}

#[cfg(test)]
mod tests;
