//! Every message of the control plane, through its guard into the generated decoder: what the
//! guard lets pass may not make the decoder ask for much memory, and can be written again.
#![no_main]

use bytes::{Bytes, BytesMut};
use controlplane::guard::{decode_request, decode_response};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Encodable, Request};
use libfuzzer_sys::fuzz_target;

macro_rules! apis {
    ($($request:ident),* $(,)?) => {
        const APIS: &[fn(i16, bool, Bytes)] = &[$(decode::<$request>),*];
    };
}

apis! {
    ListOffsetsRequest, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest,
    FindCoordinatorRequest, JoinGroupRequest, HeartbeatRequest, LeaveGroupRequest,
    SyncGroupRequest, DescribeGroupsRequest, ListGroupsRequest, SaslHandshakeRequest,
    ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DeleteRecordsRequest,
    InitProducerIdRequest, OffsetForLeaderEpochRequest, AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest, DescribeAclsRequest,
    CreateAclsRequest, DeleteAclsRequest, DescribeConfigsRequest, AlterConfigsRequest,
    DescribeLogDirsRequest, SaslAuthenticateRequest, CreatePartitionsRequest,
    DeleteGroupsRequest, IncrementalAlterConfigsRequest, ListPartitionReassignmentsRequest,
    OffsetDeleteRequest, DescribeQuorumRequest, DescribeClusterRequest, DescribeProducersRequest,
    DescribeTransactionsRequest, ListTransactionsRequest, ConsumerGroupHeartbeatRequest,
    ConsumerGroupDescribeRequest, GetTelemetrySubscriptionsRequest, PushTelemetryRequest,
    ListConfigResourcesRequest, DescribeTopicPartitionsRequest, ElectLeadersRequest,
    AlterPartitionReassignmentsRequest,
}

// The first byte chooses the API by its place above, the second the version, and its highest bit
// the direction.
fuzz_target!(|input: &[u8]| {
    let Some((&[api, version], body)) = input.split_first_chunk() else { return };
    let decode = APIS[usize::from(api) % APIS.len()];
    decode(i16::from(version & 0x7f), version & 0x80 != 0, Bytes::copy_from_slice(body));
});

fn decode<T: Request>(version: i16, response: bool, body: Bytes) {
    let mut out = BytesMut::new();
    // A message in a version without some field must have that field's default, which the encoder
    // checks; nothing else can go wrong with what was decoded.
    if response {
        if let Ok(message) = decode_response::<T>(version, body) {
            message.encode(&mut out, version).unwrap();
        }
    } else if let Ok(message) = decode_request::<T>(version, body) {
        message.encode(&mut out, version).unwrap();
    }
}
