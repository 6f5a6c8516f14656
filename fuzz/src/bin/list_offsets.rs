//! ListOffsets requests, and the answer to what was understood.
#![no_main]

use bytes::BytesMut;
use dataplane::wire::{
    ListOffsetsAnswer, ListOffsetsAnswerPartition, ListOffsetsAnswerTopic, ListOffsetsRequest,
};
use libfuzzer_sys::fuzz_target;

// The first byte chooses the version.
fuzz_target!(|input: &[u8]| {
    let Some((version, body)) = input.split_first() else { return };
    let version = 1 + i16::from(*version) % 11;
    let Ok(request) = ListOffsetsRequest::decode(version, body) else { return };
    let topics = request.topics.iter().map(|topic| ListOffsetsAnswerTopic {
        topic: topic.topic.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| ListOffsetsAnswerPartition {
                partition: partition.partition,
                error_code: 0,
                timestamp: partition.timestamp,
                offset: 1,
                leader_epoch: partition.current_leader_epoch,
            })
            .collect(),
    });
    let answer = ListOffsetsAnswer { throttle_time_ms: 0, topics: topics.collect() };
    let mut out = BytesMut::new();
    answer.encode(version, 7, &mut out);
    let (length, frame) = out.split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, frame.len());
});
