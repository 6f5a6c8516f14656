use bytes::Bytes;
use kafka_protocol::messages as oracle;
use kafka_protocol::messages::fetch_request as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;

use super::*;

const VERSIONS: std::ops::RangeInclusive<i16> =
    FetchRequest::VERSION_MIN..=FetchRequest::VERSION_MAX;

fn key(version: i16, number: u8) -> TopicKey {
    match version {
        13.. => TopicKey::Id(TopicId([number; 16])),
        _ => TopicKey::Name(format!("topic-{number}").into()),
    }
}

/// A request with every field set that the version has, the others at their defaults.
fn full(version: i16) -> FetchRequest {
    let partition = |partition: i32| FetchPartition {
        partition,
        current_leader_epoch: if version >= 9 { 12 } else { -1 },
        fetch_offset: 1 << 40,
        last_fetched_epoch: if version >= 12 { 11 } else { -1 },
        log_start_offset: if version >= 5 { 5 } else { -1 },
        max_bytes: 1 << 20,
    };
    FetchRequest {
        replica_id: 1004,
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 50 << 20,
        isolation: IsolationLevel::ReadCommitted,
        session_id: if version >= 7 { 77 } else { 0 },
        session_epoch: if version >= 7 { 3 } else { -1 },
        topics: vec![
            FetchTopic { topic: key(version, 1), partitions: vec![partition(0), partition(7)] },
            FetchTopic { topic: key(version, 2), partitions: vec![] },
        ],
        forgotten: match version {
            7.. => vec![ForgottenTopic { topic: key(version, 3), partitions: vec![1, 2] }],
            _ => vec![],
        },
        rack_id: if version >= 11 { "zone-a".to_owned() } else { String::new() },
    }
}

fn encoded(request: &FetchRequest, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    request.encode(version, &mut out);
    out.freeze()
}

fn name_and_id(topic: &TopicKey) -> (oracle::TopicName, TopicId) {
    match topic {
        TopicKey::Name(name) => (StrBytes::from_string(name.to_string()).into(), TopicId::ZERO),
        TopicKey::Id(id) => (StrBytes::default().into(), *id),
    }
}

fn to_theirs(request: &FetchRequest, version: i16) -> oracle::FetchRequest {
    let partition = |ours: &FetchPartition| {
        theirs::FetchPartition::default()
            .with_partition(ours.partition)
            .with_current_leader_epoch(ours.current_leader_epoch)
            .with_fetch_offset(ours.fetch_offset)
            .with_last_fetched_epoch(ours.last_fetched_epoch)
            .with_log_start_offset(ours.log_start_offset)
            .with_partition_max_bytes(ours.max_bytes)
    };
    let topic = |ours: &FetchTopic| {
        let (name, id) = name_and_id(&ours.topic);
        theirs::FetchTopic::default()
            .with_topic(name)
            .with_topic_id(uuid(id))
            .with_partitions(ours.partitions.iter().map(partition).collect())
    };
    let forgotten = |ours: &ForgottenTopic| {
        let (name, id) = name_and_id(&ours.topic);
        theirs::ForgottenTopic::default()
            .with_topic(name)
            .with_topic_id(uuid(id))
            .with_partitions(ours.partitions.clone())
    };
    let mut request_of_theirs = oracle::FetchRequest::default()
        .with_max_wait_ms(request.max_wait_ms)
        .with_min_bytes(request.min_bytes)
        .with_max_bytes(request.max_bytes)
        .with_isolation_level(request.isolation.code())
        .with_session_id(request.session_id)
        .with_session_epoch(request.session_epoch)
        .with_topics(request.topics.iter().map(topic).collect())
        .with_forgotten_topics_data(request.forgotten.iter().map(forgotten).collect())
        .with_rack_id(StrBytes::from_string(request.rack_id.clone()));
    if version <= 14 {
        request_of_theirs.replica_id = request.replica_id.into();
    } else if request.replica_id != -1 {
        request_of_theirs.replica_state.replica_id = request.replica_id.into();
    }
    request_of_theirs
}

/// The oracle's id type, without naming its crate.
fn uuid<T: std::str::FromStr>(id: TopicId) -> T {
    let hex = format!("{:032x}", u128::from_be_bytes(id.0));
    hex.parse().unwrap_or_else(|_| panic!("{hex} is an id"))
}

#[test]
fn requests_equal_kafkas_bytes_and_come_back_as_written() {
    for version in VERSIONS {
        for replica_id in [-1, 1004] {
            let request = FetchRequest { replica_id, ..full(version) };
            let ours = encoded(&request, version);
            let mut expected = BytesMut::new();
            to_theirs(&request, version).encode(&mut expected, version).unwrap();
            assert_eq!(ours, expected, "version {version}");
            let mut rest = ours.clone();
            let read = oracle::FetchRequest::decode(&mut rest, version).unwrap();
            assert!(rest.is_empty());
            assert_eq!(read, to_theirs(&request, version));
            assert_eq!(FetchRequest::decode(version, &ours), Ok(request));
        }
    }
}

#[test]
fn tagged_fields_of_followers_and_of_later_versions_are_read_past() {
    let mut request = to_theirs(&full(18), 18);
    request.cluster_id = Some(StrBytes::from_static_str("a cluster"));
    request.unknown_tagged_fields.insert(90, Bytes::from_static(b"later"));
    for topic in &mut request.topics {
        topic.unknown_tagged_fields.insert(3, Bytes::from_static(b"later"));
        for partition in &mut topic.partitions {
            partition.high_watermark = 99;
            partition.replica_directory_id = uuid(TopicId([9; 16]));
        }
    }
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes, 18).unwrap();
    assert_eq!(FetchRequest::decode(18, &bytes), Ok(full(18)));
}

#[test]
fn a_request_cut_anywhere_or_too_long_is_refused() {
    for version in VERSIONS {
        let whole = encoded(&full(version), version);
        for length in 0..whole.len() {
            assert!(FetchRequest::decode(version, &whole[..length]).is_err(), "{version} {length}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(FetchRequest::decode(version, &longer).is_err(), "{version}");
    }
}

#[test]
fn versions_outside_the_supported_are_refused() {
    for version in [i16::MIN, -1, 0, 3, 19, i16::MAX] {
        let outcome = FetchRequest::decode(version, &[0; 64]);
        assert!(
            matches!(outcome, Err(WireError::Invalid { field: "api version", .. })),
            "{version}: {outcome:?}"
        );
    }
}

#[test]
fn four_thousand_million_topics_are_refused_before_any_is_read() {
    // Every field before the topics, which v18 has from the longest wait on, then their count.
    let mut body = vec![0u8; 4 + 4 + 4 + 1 + 4 + 4];
    body.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    body.extend_from_slice(&[0; 15]);
    assert_eq!(
        FetchRequest::decode(18, &body),
        Err(WireError::Invalid { message: MESSAGE, field: "topics", value: 4_294_967_294 })
    );
    let mut body = vec![0u8; 4 + 4 + 4 + 4 + 1];
    body.extend_from_slice(&i32::MAX.to_be_bytes());
    assert_eq!(
        FetchRequest::decode(4, &body),
        Err(WireError::Invalid { message: MESSAGE, field: "topics", value: 2_147_483_647 })
    );
}

#[test]
fn an_unknown_isolation_level_is_refused() {
    let mut bytes = encoded(&full(11), 11).to_vec();
    bytes[16] = 2;
    assert_eq!(
        FetchRequest::decode(11, &bytes),
        Err(WireError::Invalid { message: MESSAGE, field: "isolation level", value: 2 })
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        version in VERSIONS,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = FetchRequest::decode(version, &bytes);
    }

    #[test]
    fn a_damaged_request_is_read_or_refused(
        version in VERSIONS,
        position in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = encoded(&full(version), version).to_vec();
        let position = position.index(bytes.len());
        bytes[position] = value;
        if let Ok(request) = FetchRequest::decode(version, &bytes) {
            // What was understood can be said again.
            prop_assert_eq!(FetchRequest::decode(version, &encoded(&request, version)), Ok(request));
        }
    }
}
