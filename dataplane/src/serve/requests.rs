//! A request frame taken apart: answered here, parked, or left to the control plane. No input or
//! output; time is an argument.

use bytes::{Bytes, BytesMut};

use super::HOT_APIS;
use super::epochs;
use super::fetch::{FetchEnvironment, FetchReady, PendingFetch};
use super::list_offsets;
use super::produce;
use crate::ring::SendPart;
use crate::wire::{
    ApiKey, FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest, ProduceRequest,
    RequestHeader, WireError,
};

/// Largest frame of a hot request other than Produce: room for 250,000 partitions. What is decoded
/// from a frame can be twenty times as large.
const HOT_REQUEST_BYTES_MAX: usize = 8 << 20;

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Handled {
    /// It is answered.
    Answer(FetchReady),
    /// It waits for records.
    Wait(Box<PendingFetch>),
    /// It is none of ours: the control plane answers.
    Cold,
    /// The connection is closed, for this reason.
    Close(CloseReason),
}

/// Why a request ends its connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CloseReason {
    /// The request cannot be read.
    #[error(transparent)]
    Malformed(#[from] WireError),
    /// Its version is outside the range of [`HOT_APIS`]: as Kafka, which has no error to answer with.
    #[error("request {api_key} version {api_version} of client {client_id:?} is not supported")]
    Version {
        /// Which API.
        api_key: i16,
        /// Which version.
        api_version: i16,
        /// Who asked.
        client_id: String,
    },
    /// It is too large for its kind.
    #[error("request {api_key} of {bytes} bytes is too large")]
    TooLarge {
        /// Which API.
        api_key: i16,
        /// Its size.
        bytes: usize,
    },
    /// A refused write that expects no answer: closing is how Kafka tells its producer.
    #[error("a write with acks 0 was refused")]
    RefusedWithoutAnswer,
}

/// Takes a request apart.
pub(super) fn handle(frame: &[u8], environment: FetchEnvironment<'_>) -> Handled {
    match handle_hot(frame, environment) {
        Ok(handled) => handled,
        Err(reason) => Handled::Close(reason),
    }
}

fn handle_hot(frame: &[u8], environment: FetchEnvironment<'_>) -> Result<Handled, CloseReason> {
    let api_key = match frame.first_chunk::<2>() {
        Some(key) => i16::from_be_bytes(*key),
        None => 0,
    };
    let hot = HOT_APIS.iter().any(|(key, ..)| *key == api_key);
    if !hot {
        return Ok(Handled::Cold);
    }
    let mut body = frame;
    let header = RequestHeader::decode(&mut body)?;
    let (version, correlation_id) = (header.api_version, header.correlation_id);
    let supported = match header.api_key {
        ApiKey::FETCH => FetchRequest::VERSION_MIN..=FetchRequest::VERSION_MAX,
        ApiKey::LIST_OFFSETS => ListOffsetsRequest::VERSION_MIN..=ListOffsetsRequest::VERSION_MAX,
        ApiKey::PRODUCE => ProduceRequest::VERSION_MIN..=ProduceRequest::VERSION_MAX,
        _ => OffsetForLeaderEpochRequest::VERSION_MIN..=OffsetForLeaderEpochRequest::VERSION_MAX,
    };
    if !supported.contains(&version) {
        let client_id = header.client_id.unwrap_or_default().to_owned();
        return Err(CloseReason::Version { api_key, api_version: version, client_id });
    }
    if header.api_key != ApiKey::PRODUCE && frame.len() > HOT_REQUEST_BYTES_MAX {
        return Err(CloseReason::TooLarge { api_key, bytes: frame.len() });
    }
    let mut out = BytesMut::new();
    match header.api_key {
        ApiKey::FETCH => return fetch(version, correlation_id, body, environment),
        ApiKey::LIST_OFFSETS => {
            let request = ListOffsetsRequest::decode(version, body)?;
            let answer = list_offsets::answer(&request, version, environment.table);
            answer.encode(version, correlation_id, &mut out);
        }
        ApiKey::PRODUCE => {
            let request = ProduceRequest::decode(version, body)?;
            if request.acks == 0 {
                return Err(CloseReason::RefusedWithoutAnswer);
            }
            let answer = produce::refuse(&request, environment.table);
            answer.encode(version, correlation_id, &mut out);
        }
        _ => {
            let request = OffsetForLeaderEpochRequest::decode(version, body)?;
            let answer = epochs::answer(&request, environment.table);
            answer.encode(version, correlation_id, &mut out);
        }
    }
    Ok(Handled::Answer(ready(out.freeze())))
}

fn fetch(
    version: i16,
    correlation_id: i32,
    body: &[u8],
    environment: FetchEnvironment<'_>,
) -> Result<Handled, CloseReason> {
    let request = FetchRequest::decode(version, body)?;
    let mut pending = PendingFetch::new(request, version, correlation_id, environment);
    Ok(match pending.look(environment) {
        Some(answer) => Handled::Answer(answer),
        None => Handled::Wait(Box::new(pending)),
    })
}

/// An answer that is all memory.
pub(super) fn ready(frame: Bytes) -> FetchReady {
    FetchReady { encoded_bytes: frame.len(), parts: vec![SendPart::Bytes(frame)] }
}
