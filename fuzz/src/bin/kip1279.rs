//! KIP-1279's messages: what is understood can be said again.
#![no_main]

use bytes::BytesMut;
use controlplane::admin::kip1279::{
    CreateClusterMirrorRequest, CreateClusterMirrorResponse, DescribeClusterMirrorsRequest,
    DescribeClusterMirrorsResponse, ListClusterMirrorsRequest, ListClusterMirrorsResponse, Message,
    StartMirrorTopicsRequest, StartMirrorTopicsResponse,
};
use libfuzzer_sys::fuzz_target;

const MESSAGES: &[fn(&[u8])] = &[
    decode::<CreateClusterMirrorRequest>,
    decode::<CreateClusterMirrorResponse>,
    decode::<StartMirrorTopicsRequest>,
    decode::<StartMirrorTopicsResponse>,
    decode::<ListClusterMirrorsRequest>,
    decode::<ListClusterMirrorsResponse>,
    decode::<DescribeClusterMirrorsRequest>,
    decode::<DescribeClusterMirrorsResponse>,
];

// The first byte chooses the message by its place above.
fuzz_target!(|input: &[u8]| {
    if let Some((message, body)) = input.split_first() {
        MESSAGES[usize::from(*message) % MESSAGES.len()](body);
    }
});

fn decode<M: Message + PartialEq + std::fmt::Debug>(body: &[u8]) {
    let Ok(message) = M::decode(body) else { return };
    let mut again = BytesMut::new();
    message.encode(&mut again);
    assert_eq!(M::decode(&again).as_ref(), Ok(&message));
}
