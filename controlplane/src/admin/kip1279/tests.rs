use std::fmt::Debug;

use super::*;

fn round_trips<M: Message + Debug + PartialEq>(message: &M) -> BytesMut {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes);
    assert_eq!(&M::decode(&bytes).unwrap(), message);
    for len in 0..bytes.len() {
        assert!(M::decode(&bytes[..len]).is_err(), "accepted when cut at {len}");
    }
    let mut longer = bytes.clone();
    longer.extend_from_slice(b"x");
    assert!(M::decode(&longer).is_err(), "accepted with a byte too many");
    bytes
}

fn full_description() -> DescribeClusterMirrorsResponse {
    let partition = DescribedPartition {
        partition_index: 3,
        state_value: "MIRRORING".into(),
        error_message: Some("waits for a leader".into()),
        retry_attempt: 2,
        source_offset: -1,
        destination_offset: 1 << 40,
        last_mirror_epoch: 7,
        last_mirror_offset: -1,
    };
    DescribeClusterMirrorsResponse {
        head: ResponseHead { throttle_time_ms: 1, error_code: 2, error_message: Some("x".into()) },
        mirrors: vec![DescribedMirror {
            error_code: 0,
            error_message: None,
            mirror_name: "eu".into(),
            source_bootstrap: "k1:9092,k2:9092".into(),
            source_cluster_id: "abc".into(),
            authorized_operations: i32::MIN,
            topics: vec![DescribedTopic {
                topic_name: "orders".into(),
                partitions: vec![partition.clone(), partition],
            }],
        }],
    }
}

#[test]
fn every_message_comes_back_as_it_was_and_no_shorter_or_longer() {
    round_trips(&CreateClusterMirrorRequest {
        mirror_name: "eu".into(),
        configs: vec![
            MirrorConfig { name: "bootstrap.servers".into(), value: Some("k1:9092".into()) },
            MirrorConfig { name: "client.rack".into(), value: None },
        ],
    });
    round_trips(&CreateClusterMirrorResponse {
        head: ResponseHead {
            throttle_time_ms: 0,
            error_code: 136,
            error_message: Some("é".into()),
        },
    });
    round_trips(&StartMirrorTopicsRequest {
        mirror_name: "eu".into(),
        include_patterns: vec!["orders".into(), "p.*".into()],
        exclude_patterns: vec!["p.x".into()],
        timeout_ms: 30_000,
    });
    round_trips(&StartMirrorTopicsResponse {
        head: ResponseHead::default(),
        topics: vec![StartedTopic {
            name: "orders".into(),
            error_code: 36,
            error_message: Some("exists".into()),
        }],
    });
    round_trips(&ListClusterMirrorsRequest { include_topic_names: true });
    round_trips(&ListClusterMirrorsResponse {
        head: ResponseHead::default(),
        mirrors: vec![ListedMirror { topic_names: vec!["a".into()], ..Default::default() }],
    });
    round_trips(&DescribeClusterMirrorsRequest {
        mirror_names: vec!["eu".into()],
        include_authorized_operations: true,
        cluster_id: Some("abc".into()),
    });
    round_trips(&full_description());
}

#[test]
fn layout_of_start_is_the_documented_one() {
    let bytes = round_trips(&StartMirrorTopicsRequest {
        mirror_name: "m".into(),
        include_patterns: vec!["a".into()],
        exclude_patterns: vec!["b".into()],
        timeout_ms: 258,
    });
    // name, one pattern, timeout, one tag: number 0, 3 bytes: one pattern.
    assert_eq!(&bytes[..], b"\x02m\x02\x02a\x00\x00\x01\x02\x01\x00\x03\x02\x02b");
}

#[test]
fn unknown_tagged_fields_are_skipped() {
    // A newer client: no names, no operations, two tags: ours with "ab", and number 1 with "zz".
    let bytes = b"\x01\x00\x02\x00\x03\x03ab\x01\x02zz";
    let request = DescribeClusterMirrorsRequest::decode(bytes).unwrap();
    assert_eq!(request.cluster_id.as_deref(), Some("ab"));
}

#[test]
fn counts_that_the_bytes_cannot_back_are_refused_before_anything_is_allocated() {
    // Four billion mirror names in six bytes.
    let lie = b"\xff\xff\xff\xff\x0f\x00";
    assert!(matches!(
        DescribeClusterMirrorsRequest::decode(lie),
        Err(WireError::Invalid { field: "mirror_names", .. })
    ));
    // A varint of more than 32 bits.
    assert!(DescribeClusterMirrorsRequest::decode(b"\xff\xff\xff\xff\xff\x01").is_err());
    // More tagged fields than any message has.
    assert!(ListClusterMirrorsRequest::decode(b"\x00\xff\xff\x03").is_err());
}

proptest::proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = CreateClusterMirrorRequest::decode(&bytes);
        let _ = StartMirrorTopicsRequest::decode(&bytes);
        let _ = ListClusterMirrorsRequest::decode(&bytes);
        let _ = DescribeClusterMirrorsRequest::decode(&bytes);
        let _ = DescribeClusterMirrorsResponse::decode(&bytes);
    }
}
