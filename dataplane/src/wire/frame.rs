//! Frames and headers: a four-byte length, then a request or response header.
//!
//! Owns nothing, runs on whichever thread calls it. Must never refuse a header only because its
//! API is unknown: cold requests are answered elsewhere, and some deserve an error of their own.

use bytes::BytesMut;

use super::WireError;
use super::primitives::{Reader, Writer};

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

    /// Whether this version is flexible (KIP-482): its request has header version 2.
    #[must_use]
    pub fn is_flexible(self, api_version: i16) -> bool {
        first_flexible_version(self.0).is_some_and(|first| api_version >= first)
    }
}

/// The first flexible version of each API, `None` where no version is.
///
/// Every API numbered 55 and above is flexible from its first version, and so will new ones be: a
/// number beyond the table is taken for flexible.
fn first_flexible_version(api_key: i16) -> Option<i16> {
    match api_key {
        0 => Some(9),                           // Produce
        1 => Some(12),                          // Fetch
        2 | 6 | 9 | 11 => Some(6), // ListOffsets, UpdateMetadata, OffsetFetch, JoinGroup
        3 => Some(9),              // Metadata
        4 | 12 | 13 | 14 => Some(4), // LeaderAndIsr, Heartbeat, LeaveGroup, SyncGroup
        5 => Some(2),              // StopReplica
        7 | 10 | 16 | 18 => Some(3), // ControlledShutdown, FindCoordinator, ListGroups, ApiVersions
        8 => Some(8),              // OffsetCommit
        15 | 19 => Some(5),        // DescribeGroups, CreateTopics
        17 | 47 => None,           // SaslHandshake, OffsetDelete
        20 | 23 | 32 => Some(4),   // DeleteTopics, OffsetForLeaderEpoch, DescribeConfigs
        21 | 22 => Some(2),        // DeleteRecords, InitProducerId
        24..=26 | 28 => Some(3),   // the transaction APIs
        27 | 44 | 48 | 49 | 53 | 54 => Some(1), // WriteTxnMarkers, configs, quotas, quorum epochs
        29..=31 | 33..=43 => Some(2), // ACLs, log directories, tokens, DeleteGroups, ElectLeaders
        negative if negative < 0 => None,
        _ => Some(0),
    }
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
    /// The API's key and version say whether header version 1 or 2 applies.
    pub fn decode(frame: &mut &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("request header", false, frame);
        let api_key = ApiKey(reader.i16("api key")?);
        let api_version = reader.i16("api version")?;
        let correlation_id = reader.i32("correlation id")?;
        let client_id = reader.classic_nullable_string("client id")?;
        let flexible = api_key.is_flexible(api_version);
        let mut reader = Reader::new("request header", flexible, reader.rest());
        reader.skip_tagged()?;
        *frame = reader.rest();
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    /// Writes the header (without the length).
    pub fn encode(&self, out: &mut BytesMut) {
        let mut writer = Writer::new(self.api_key.is_flexible(self.api_version), out);
        writer.i16(self.api_key.0);
        writer.i16(self.api_version);
        writer.i32(self.correlation_id);
        writer.classic_nullable_string(self.client_id);
        writer.no_tagged();
    }
}

/// Bytes of a response header before the body: 4, or 5 and more with tagged fields, by key and version.
#[must_use]
pub fn response_header_len(api_key: ApiKey, api_version: i16) -> usize {
    if response_header_is_flexible(api_key, api_version) { 5 } else { 4 }
}

/// ApiVersions answers with the old header in every version: the client does not yet know what
/// the broker speaks (KIP-511).
pub(crate) fn response_header_is_flexible(api_key: ApiKey, api_version: i16) -> bool {
    api_key != ApiKey::API_VERSIONS && api_key.is_flexible(api_version)
}

/// Starts a response frame at the end of `out`: room for its length, then the header.
pub(crate) fn begin_response(
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    out: &mut BytesMut,
) -> usize {
    let start = out.len();
    let flexible = response_header_is_flexible(api_key, api_version);
    let mut writer = Writer::new(flexible, out);
    writer.i32(0);
    writer.i32(correlation_id);
    writer.no_tagged();
    start
}

/// Writes the length of a frame begun at `start`, of which `apart_bytes` are not in `out`.
///
/// # Panics
/// When the frame would be longer than a frame can be: answers are bounded far below.
pub(crate) fn end_frame(start: usize, apart_bytes: usize, out: &mut BytesMut) {
    let length = out.len() - start - 4 + apart_bytes;
    assert!(length <= i32::MAX as usize, "a frame of {length} bytes");
    out[start..start + 4].copy_from_slice(&(length as i32).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages as oracle;
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

    use super::*;

    #[test]
    fn headers_are_flexible_where_kafka_says() {
        let mut compared = 0;
        for key in 0..=92 {
            let Ok(known) = oracle::ApiKey::try_from(key) else { continue };
            for version in known.valid_versions().min..=known.valid_versions().max {
                let flexible = known.request_header_version(version) == 2;
                assert_eq!(ApiKey(key).is_flexible(version), flexible, "{known:?} {version}");
                let answer = 4 + known.response_header_version(version) as usize;
                assert_eq!(
                    response_header_len(ApiKey(key), version),
                    answer,
                    "{known:?} {version}"
                );
                compared += 1;
            }
        }
        assert!(compared > 250, "{compared}");
    }

    #[test]
    fn headers_equal_kafkas_bytes() {
        for (key, version) in [(1, 11), (1, 12), (3, 8), (3, 9), (18, 2), (18, 4), (17, 1)] {
            for client_id in [None, Some("a client")] {
                let header = RequestHeader {
                    api_key: ApiKey(key),
                    api_version: version,
                    correlation_id: 77,
                    client_id,
                };
                let mut ours = BytesMut::new();
                header.encode(&mut ours);
                let mut theirs = BytesMut::new();
                let oracle_version =
                    oracle::ApiKey::try_from(key).unwrap().request_header_version(version);
                oracle::RequestHeader::default()
                    .with_request_api_key(key)
                    .with_request_api_version(version)
                    .with_correlation_id(77)
                    .with_client_id(client_id.map(StrBytes::from_static_str))
                    .encode(&mut theirs, oracle_version)
                    .unwrap();
                assert_eq!(ours, theirs);
                let mut rest = &ours[..];
                assert_eq!(RequestHeader::decode(&mut rest), Ok(header));
                assert!(rest.is_empty());
                oracle::RequestHeader::decode(&mut ours.freeze(), oracle_version).unwrap();
            }
        }
    }

    #[test]
    fn any_key_and_version_is_read_without_panic() {
        for key in i16::MIN..=i16::MAX {
            let mut frame = key.to_be_bytes().to_vec();
            frame.extend_from_slice(&[0, 3, 0, 0, 0, 9, 0xff, 0xff, 0, 1, 2]);
            let mut rest = &frame[..];
            let header = RequestHeader::decode(&mut rest).unwrap();
            assert_eq!((header.api_key.0, header.correlation_id), (key, 9));
        }
    }

    #[test]
    fn a_header_cut_anywhere_is_an_error() {
        let mut whole = BytesMut::new();
        let header = RequestHeader {
            api_key: ApiKey::FETCH,
            api_version: 12,
            correlation_id: 1,
            client_id: Some("c"),
        };
        header.encode(&mut whole);
        for length in 0..whole.len() {
            assert!(RequestHeader::decode(&mut &whole[..length]).is_err(), "{length}");
        }
    }
}
