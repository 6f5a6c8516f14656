//! The one way into the generated Kafka codec.
//!
//! `kafka-protocol` reserves memory for as many array elements as a message claims, so a frame of
//! fifteen bytes can end the process. Nothing of a peer's is decoded with it except through here.
//! Runs on whichever thread calls it.

use bytes::Bytes;
use kafka_protocol::protocol::{Decodable, Message, Request};

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

/// Decodes a request's body, without its header; nothing may follow it.
pub fn decode_request<T: Request>(version: i16, body: Bytes) -> Result<T, GuardError> {
    decode(T::KEY, version, body)
}

/// Decodes the body of the response to a request `T`, without its header; nothing may follow it.
pub fn decode_response<T: Request>(version: i16, body: Bytes) -> Result<T::Response, GuardError> {
    decode(T::KEY, version, body)
}

fn decode<M: Message + Decodable>(
    api_key: i16,
    version: i16,
    mut body: Bytes,
) -> Result<M, GuardError> {
    if !(M::VERSIONS.min..=M::VERSIONS.max).contains(&version) {
        return Err(GuardError::Version { api_key, version });
    }
    let malformed = |reason: String| GuardError::Malformed { api_key, version, reason };
    let message = M::decode(&mut body, version).map_err(|error| malformed(error.to_string()))?;
    if !body.is_empty() {
        return Err(malformed(format!("{} bytes after its end", body.len())));
    }
    Ok(message)
}
