//! Frames and headers: a four-byte length, then a request or response header.

use bytes::BytesMut;

use super::WireError;

/// Number of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApiKey(pub i16);

impl ApiKey {
    /// Produce.
    pub const PRODUCE: Self = Self(0);
    /// Fetch.
    pub const FETCH: Self = Self(1);
    /// ListOffsets.
    pub const LIST_OFFSETS: Self = Self(2);
    /// OffsetForLeaderEpoch.
    pub const OFFSET_FOR_LEADER_EPOCH: Self = Self(23);
    /// ApiVersions.
    pub const API_VERSIONS: Self = Self(18);
}

/// A request's header (versions 1 and 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// Which API.
    pub api_key: ApiKey,
    /// Which version of it.
    pub api_version: i16,
    /// Echoed in the response.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// Reads a header from the front of `frame` (without the length), leaving the body.
    /// `flexible` says, by key and version, whether header version 2 applies.
    pub fn decode(_frame: &mut &'a [u8]) -> Result<Self, WireError> {
        todo!()
    }

    /// Writes the header (without the length).
    pub fn encode(&self, _out: &mut BytesMut) {
        todo!()
    }
}

/// Bytes of a response header before the body: 4, or 5 and more with tagged fields, by key and version.
#[must_use]
pub fn response_header_len(_api_key: ApiKey, _api_version: i16) -> usize {
    todo!()
}
