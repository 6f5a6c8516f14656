//! OffsetForLeaderEpoch requests, and the answer to what was understood.
#![no_main]

use bytes::BytesMut;
use dataplane::wire::{
    OffsetForLeaderEpochAnswer, OffsetForLeaderEpochAnswerPartition,
    OffsetForLeaderEpochAnswerTopic, OffsetForLeaderEpochRequest,
};
use libfuzzer_sys::fuzz_target;

// The first byte chooses the version.
fuzz_target!(|input: &[u8]| {
    let Some((version, body)) = input.split_first() else { return };
    let version = 2 + i16::from(*version) % 3;
    let Ok(request) = OffsetForLeaderEpochRequest::decode(version, body) else { return };
    let topics = request.topics.iter().map(|topic| OffsetForLeaderEpochAnswerTopic {
        topic: topic.topic.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| OffsetForLeaderEpochAnswerPartition {
                partition: partition.partition,
                error_code: 0,
                leader_epoch: partition.leader_epoch,
                end_offset: 1,
            })
            .collect(),
    });
    let answer = OffsetForLeaderEpochAnswer { throttle_time_ms: 0, topics: topics.collect() };
    let mut out = BytesMut::new();
    answer.encode(version, 7, &mut out);
    let (length, frame) = out.split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, frame.len());
});
