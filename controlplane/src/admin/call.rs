//! One request as the handlers see it, and the way from bytes to structs and back.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use dataplane::ColdRequest;
use dataplane::wire::{ApiKey, RequestHeader, WireError, response_header_len};
use kafka_protocol::protocol::{Encodable, Request, StrBytes};

use super::kip1279::Message;
use crate::guard;

/// A client's name for itself is kept in groups and logs; what is longer is cut.
const CLIENT_ID_CHARACTERS_MAX: usize = 255;

/// Why a request gets no answer: its connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The header cannot be read.
    #[error("unreadable request header: {0}")]
    Header(#[from] WireError),
    /// Not one of ours: a Kafka broker closes the connection, too.
    #[error("API {key} version {version} is not served here")]
    Unsupported {
        /// API key.
        key: i16,
        /// Version asked.
        version: i16,
    },
    /// The body is not the message it claims to be.
    #[error("malformed request of API {key} version {version}: {cause}")]
    Malformed {
        /// API key.
        key: i16,
        /// Its version.
        version: i16,
        /// What is wrong.
        cause: String,
    },
    /// The answer cannot be written at this version: a fault of ours.
    #[error("cannot write the answer of API {key} version {version}: {cause}")]
    Unwritable {
        /// API key.
        key: i16,
        /// Its version.
        version: i16,
        /// What is wrong.
        cause: String,
    },
}

/// Who asks, and for what.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) key: ApiKey,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) client_id: String,
    /// The client's address.
    pub(super) peer: SocketAddr,
    /// The address it reached us at.
    pub(super) local: SocketAddr,
}

impl Call {
    /// Reads the header; the body comes back beside it.
    pub(super) fn read(request: &ColdRequest) -> Result<(Self, Bytes), CallError> {
        let mut rest = &request.frame[..];
        let header = RequestHeader::decode(&mut rest)?;
        let client_id = header.client_id.unwrap_or_default();
        let call = Self {
            key: header.api_key,
            version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: client_id.chars().take(CLIENT_ID_CHARACTERS_MAX).collect(),
            peer: request.peer,
            local: request.local,
        };
        Ok((call, request.frame.slice_ref(rest)))
    }

    /// Reads the body of a request of Kafka's.
    pub(super) fn decode<R: Request>(&self, body: &Bytes) -> Result<R, CallError> {
        guard::decode_request(self.version, body.clone())
            .map_err(|error| self.malformed(error.to_string()))
    }

    /// Reads the body of a request of KIP-1279's.
    pub(super) fn decode_mirror<M: Message>(&self, body: &[u8]) -> Result<M, CallError> {
        M::decode(body).map_err(|error| self.malformed(error.to_string()))
    }

    /// Writes the whole answer frame of a response of KIP-1279's.
    pub(super) fn encode_mirror<M: Message>(&self, response: &M) -> Bytes {
        let mut frame = self.begin();
        response.encode(&mut frame);
        frame.freeze()
    }

    /// Writes the whole answer frame.
    pub(super) fn encode<M: Encodable>(&self, response: &M) -> Result<Bytes, CallError> {
        let mut frame = self.begin();
        response.encode(&mut frame, self.version).map_err(|error| CallError::Unwritable {
            key: self.key.0,
            version: self.version,
            cause: error.to_string(),
        })?;
        Ok(frame.freeze())
    }

    /// A frame that holds the response header.
    pub(super) fn begin(&self) -> BytesMut {
        let mut frame = BytesMut::new();
        frame.extend_from_slice(&self.correlation_id.to_be_bytes());
        // Tagged fields, none, where the header is flexible.
        frame.resize(response_header_len(self.key, self.version), 0);
        frame
    }

    pub(super) fn malformed(&self, cause: String) -> CallError {
        CallError::Malformed { key: self.key.0, version: self.version, cause }
    }
}

/// A string as the codec holds it.
pub(super) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}
