//! Produce requests, and the refusal of what was understood.
#![no_main]

use bytes::BytesMut;
use dataplane::wire::{
    ProduceRefusal, ProduceRefusalPartition, ProduceRefusalTopic, ProduceRequest,
};
use libfuzzer_sys::fuzz_target;

// The first byte chooses the version.
fuzz_target!(|input: &[u8]| {
    let Some((version, body)) = input.split_first() else { return };
    let versions = ProduceRequest::VERSION_MAX - ProduceRequest::VERSION_MIN + 1;
    let version = ProduceRequest::VERSION_MIN + i16::from(*version) % versions;
    let Ok(request) = ProduceRequest::decode(version, body) else { return };
    let topics = request.topics.into_iter().map(|topic| ProduceRefusalTopic {
        topic: topic.topic,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| ProduceRefusalPartition {
                partition,
                error_code: 44,
                error_message: Some("refused".into()),
            })
            .collect(),
    });
    let refusal = ProduceRefusal { throttle_time_ms: 0, topics: topics.collect() };
    let mut out = BytesMut::new();
    refusal.encode(version, 7, &mut out);
    let (length, frame) = out.split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, frame.len());
});
