use std::ops::RangeInclusive;

use kafka_protocol::messages as oracle;
use kafka_protocol::messages::fetch_response as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;
use storage::{Offset, ProducerId};

use super::*;

const VERSIONS: RangeInclusive<i16> = FetchRequest::VERSION_MIN..=FetchRequest::VERSION_MAX;

/// What a response says, gathered from the parser's events.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    head: Option<ResponseHead>,
    partitions: Vec<(String, TopicId, PartitionHead, Vec<u8>, PartitionTail)>,
    end: Option<Vec<NodeEndpoint>>,
}

/// Parses a frame (without its length) that arrives in pieces of the given sizes, over and over,
/// from a buffer that never holds more than one piece beyond what the parser left.
fn parse(version: i16, frame: &[u8], pieces: &[usize]) -> Result<Told, WireError> {
    let mut parser = FetchResponseParser::new(version, frame.len());
    let mut told = Told::default();
    let mut held: Vec<u8> = Vec::new();
    let mut arrived = 0;
    let mut pieces = pieces.iter().cycle();
    loop {
        let mut bytes = &held[..];
        let event = parser.next(&mut bytes)?;
        held = bytes.to_vec();
        match event {
            Some(FetchEvent::Records) => {
                let now = held.len().min(parser.records_remaining());
                let records = &mut told.partitions.last_mut().unwrap().3;
                records.extend(held.drain(..now));
                parser.take_records(now);
                if now > 0 {
                    continue;
                }
            }
            Some(FetchEvent::End(endpoints)) => {
                told.end = Some(endpoints);
                assert_eq!(parser.frame_remaining(), 0);
                assert_eq!((held.len(), arrived), (0, frame.len()));
                return Ok(told);
            }
            Some(event) => {
                told.note(event, &parser);
                continue;
            }
            None => {}
        }
        assert!(arrived < frame.len(), "the parser waits for bytes beyond the frame");
        let piece = *pieces.next().unwrap();
        let until = (arrived + piece).min(frame.len());
        held.extend_from_slice(&frame[arrived..until]);
        arrived = until;
    }
}

impl Told {
    fn note(&mut self, event: FetchEvent, parser: &FetchResponseParser) {
        let (name, id) = parser.topic();
        match event {
            FetchEvent::Head(head) => self.head = Some(head),
            FetchEvent::Partition(head) => {
                assert_eq!(parser.records_remaining(), head.records_bytes);
                let tail = PartitionTail::default();
                self.partitions.push((name.to_owned(), id, head, Vec::new(), tail));
            }
            FetchEvent::PartitionEnd(tail) => self.partitions.last_mut().unwrap().4 = tail,
            FetchEvent::Records | FetchEvent::End(_) => unreachable!(),
        }
    }
}

/// The oracle's id type, without naming its crate.
fn uuid<T: std::str::FromStr>(id: TopicId) -> T {
    let hex = format!("{:032x}", u128::from_be_bytes(id.0));
    hex.parse().unwrap_or_else(|_| panic!("{hex} is an id"))
}

fn topic_name(version: i16, number: u8) -> String {
    if version <= 12 { format!("topic-{number}") } else { String::new() }
}

fn topic_id(version: i16, number: u8) -> TopicId {
    if version >= 13 { TopicId([number; 16]) } else { TopicId::ZERO }
}

fn partition_of_theirs(version: i16, partition: i32, records: &[u8]) -> theirs::PartitionData {
    let mut data = theirs::PartitionData::default()
        .with_partition_index(partition)
        .with_error_code(0)
        .with_high_watermark(1000)
        .with_last_stable_offset(990)
        .with_aborted_transactions(None)
        .with_records(Some(Bytes::copy_from_slice(records)));
    if version >= 5 {
        data.log_start_offset = 10;
    }
    if version >= 11 {
        data.preferred_read_replica = 3.into();
    }
    data
}

fn aborted_of_theirs(count: i64) -> Vec<theirs::AbortedTransaction> {
    let entry = |number: i64| {
        theirs::AbortedTransaction::default()
            .with_producer_id(number.into())
            .with_first_offset(number * 10)
    };
    (0..count).map(entry).collect()
}

/// A response with everything a version has: two topics, aborted entries, hints, null records,
/// tagged fields nobody knows, addresses.
fn full(version: i16) -> oracle::FetchResponse {
    let mut first = partition_of_theirs(version, 0, b"records of one");
    first.aborted_transactions = Some(aborted_of_theirs(3));
    let mut second = partition_of_theirs(version, 1, b"");
    second.error_code = 6;
    second.records = None;
    let mut third = partition_of_theirs(version, 2, &[7; 300]);
    third.aborted_transactions = Some(vec![]);
    if version >= 12 {
        second.current_leader.leader_id = 2.into();
        second.current_leader.leader_epoch = 9;
        third.diverging_epoch.epoch = 4;
        third.diverging_epoch.end_offset = 400;
        third.snapshot_id.end_offset = 1;
        third.snapshot_id.epoch = 2;
        third.unknown_tagged_fields.insert(40, Bytes::from(vec![1; 200]));
        first.unknown_tagged_fields.insert(41, Bytes::new());
        if let Some(entries) = &mut first.aborted_transactions {
            entries[1].unknown_tagged_fields.insert(5, Bytes::from_static(b"later"));
        }
    }
    let topic = |number, partitions| {
        theirs::FetchableTopicResponse::default()
            .with_topic(StrBytes::from_string(topic_name(version, number)).into())
            .with_topic_id(uuid(topic_id(version, number)))
            .with_partitions(partitions)
    };
    let mut response = oracle::FetchResponse::default()
        .with_throttle_time_ms(250)
        .with_responses(vec![topic(1, vec![first, second]), topic(2, vec![third])]);
    if version >= 7 {
        response.error_code = 71;
        response.session_id = 1234;
    }
    if version >= 12 {
        response.unknown_tagged_fields.insert(9, Bytes::from_static(b"later"));
    }
    if version >= 16 {
        response.node_endpoints = vec![
            theirs::NodeEndpoint::default()
                .with_node_id(2.into())
                .with_host(StrBytes::from_static_str("broker-2.example"))
                .with_port(9093)
                .with_rack(Some(StrBytes::from_static_str("zone-b"))),
        ];
    }
    response
}

/// The frame, without its length, in which a broker sends `response`.
fn frame(version: i16, response: &oracle::FetchResponse) -> Bytes {
    let mut out = BytesMut::new();
    let mut header = oracle::ResponseHeader::default().with_correlation_id(55);
    let header_version = oracle::ApiKey::Fetch.response_header_version(version);
    if header_version >= 1 {
        header.unknown_tagged_fields.insert(3, Bytes::from_static(b"later"));
    }
    header.encode(&mut out, header_version).unwrap();
    response.encode(&mut out, version).unwrap();
    out.freeze()
}

/// What the parser must tell of [`full`].
fn full_told(version: i16) -> Told {
    let head = |partition, error_code, records_bytes| PartitionHead {
        partition,
        error_code,
        high_watermark: 1000,
        last_stable_offset: 990,
        log_start_offset: if version >= 5 { 10 } else { -1 },
        preferred_read_replica: if version >= 11 { 3 } else { -1 },
        records_bytes,
    };
    let topic = |number| (topic_name(version, number), topic_id(version, number));
    let (one, two) = (topic(1), topic(2));
    let mut partitions = vec![
        (
            one.0.clone(),
            one.1,
            head(0, 0, 14),
            b"records of one".to_vec(),
            PartitionTail::default(),
        ),
        (one.0, one.1, head(1, 6, 0), vec![], PartitionTail::default()),
        (two.0, two.1, head(2, 0, 300), vec![7; 300], PartitionTail::default()),
    ];
    if version >= 12 {
        partitions[1].4.current_leader = Some(LeaderAndEpoch { leader_id: 2, leader_epoch: 9 });
        partitions[2].4.diverging = Some((4, 400));
    }
    Told {
        head: Some(ResponseHead {
            correlation_id: 55,
            throttle_time_ms: 250,
            error_code: if version >= 7 { 71 } else { 0 },
            session_id: if version >= 7 { 1234 } else { 0 },
        }),
        partitions,
        end: Some(match version {
            16.. => {
                let host = "broker-2.example".to_owned();
                vec![NodeEndpoint { node_id: 2, host, port: 9093 }]
            }
            _ => vec![],
        }),
    }
}

#[test]
fn every_version_of_kafkas_response_is_told_in_full() {
    for version in VERSIONS {
        let frame = frame(version, &full(version));
        assert_eq!(parse(version, &frame, &[usize::MAX / 2]), Ok(full_told(version)), "{version}");
    }
}

#[test]
fn one_byte_at_a_time_tells_the_same() {
    for version in VERSIONS {
        let frame = frame(version, &full(version));
        assert_eq!(parse(version, &frame, &[1]), Ok(full_told(version)), "{version}");
    }
}

#[test]
fn a_frame_shorter_than_its_content_is_refused() {
    for version in VERSIONS {
        let whole = frame(version, &full(version));
        for length in 0..whole.len() {
            let outcome = parse(version, &whole[..length], &[usize::MAX / 2]);
            assert!(outcome.is_err(), "version {version}, {length} bytes: {outcome:?}");
        }
    }
}

#[test]
fn a_frame_longer_than_its_content_is_refused() {
    for version in VERSIONS {
        let longer = [&frame(version, &full(version))[..], &[0]].concat();
        let outcome = parse(version, &longer, &[usize::MAX / 2]);
        let error = WireError::Invalid { message: MESSAGE, field: "bytes after the end", value: 1 };
        assert_eq!(outcome, Err(error), "{version}");
    }
}

#[test]
fn bytes_of_the_next_frame_are_left_alone() {
    let whole = frame(11, &full(11));
    let two = [&whole[..], b"next frame"].concat();
    let mut parser = FetchResponseParser::new(11, whole.len());
    let mut bytes = &two[..];
    loop {
        match parser.next(&mut bytes) {
            Ok(Some(FetchEvent::Records)) => {
                let records = parser.records_remaining();
                bytes = &bytes[records..];
                parser.take_records(records);
            }
            Ok(Some(FetchEvent::End(_))) => break,
            other => assert!(matches!(other, Ok(Some(_))), "{other:?}"),
        }
    }
    assert_eq!(bytes, b"next frame");
    assert_eq!(parser.next(&mut bytes), Ok(None));
    assert_eq!(bytes, b"next frame");
}

#[test]
fn counts_beyond_the_frame_are_refused_at_once() {
    // The frame that makes a decoder which trusts the count ask for 400 GB.
    let body = [0, 0, 0, 55, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let error = WireError::Invalid { message: MESSAGE, field: "topics", value: 4_294_967_294 };
    assert_eq!(parse(18, &body, &[100]), Err(error));
    let mut body = vec![0; 4 + 4];
    body.extend_from_slice(&i32::MAX.to_be_bytes());
    let error = WireError::Invalid { message: MESSAGE, field: "topics", value: 2_147_483_647 };
    assert_eq!(parse(4, &body, &[100]), Err(error));
}

#[test]
fn records_beyond_the_frame_are_refused() {
    let mut response = full(4);
    response.responses.truncate(1);
    response.responses[0].partitions.truncate(1);
    let mut bytes = frame(4, &response).to_vec();
    let length = bytes.len() - 14 - 4;
    bytes[length + 3] = 15;
    let error = WireError::Invalid { message: MESSAGE, field: "records length", value: 15 };
    assert_eq!(parse(4, &bytes, &[100]), Err(error));
}

#[test]
fn long_lists_and_tagged_fields_pass_through_a_small_buffer() {
    let mut response = full(16);
    let partition = &mut response.responses[0].partitions[0];
    partition.aborted_transactions = Some(aborted_of_theirs(20_000));
    partition.unknown_tagged_fields.insert(50, Bytes::from(vec![3; 1 << 20]));
    let endpoint = response.node_endpoints[0].clone();
    response.node_endpoints = vec![endpoint; 3000];
    let frame = frame(16, &response);
    let told = parse(16, &frame, &[4096]).unwrap();
    assert_eq!(told.partitions, full_told(16).partitions);
    assert_eq!(told.end, Some(vec![]), "addresses beyond the buffer are left out");
}

#[test]
fn an_empty_answer_of_a_session_is_just_a_head() {
    for version in VERSIONS {
        let frame = frame(version, &oracle::FetchResponse::default());
        let told = parse(version, &frame, &[100]).unwrap();
        assert_eq!((told.partitions.len(), told.end), (0, Some(vec![])));
    }
}

fn answer_of_ours(version: i16) -> (AnswerHead, Vec<(TopicKey, Vec<AnswerPartition>)>) {
    let partition = |partition, records_bytes| AnswerPartition {
        partition,
        error_code: 0,
        high_watermark: 1000,
        last_stable_offset: 990,
        log_start_offset: if version >= 5 { 10 } else { -1 },
        aborted: None,
        records_bytes,
        diverging: None,
        current_leader: None,
    };
    let key = |number| match version {
        13.. => TopicKey::Id(topic_id(version, number)),
        _ => TopicKey::Name(topic_name(version, number).into()),
    };
    let mut first = partition(0, 14);
    first.aborted = Some(
        (0..3)
            .map(|number| AbortedTransaction {
                producer_id: ProducerId(number),
                first_offset: Offset(number * 10),
            })
            .collect(),
    );
    let mut second = partition(1, 0);
    second.error_code = 6;
    let mut third = partition(2, 300);
    third.aborted = Some(vec![]);
    if version >= 12 {
        second.current_leader = Some(LeaderAndEpoch { leader_id: 2, leader_epoch: 9 });
        third.diverging = Some((4, 400));
    }
    let head = AnswerHead {
        correlation_id: 55,
        throttle_time_ms: 250,
        error_code: if version >= 7 { 71 } else { 0 },
        session_id: if version >= 7 { 1234 } else { 0 },
    };
    (head, vec![(key(1), vec![first, second]), (key(2), vec![third])])
}

/// [`full`] without what we never send.
fn full_as_we_send_it(version: i16) -> oracle::FetchResponse {
    let mut response = full(version);
    response.unknown_tagged_fields.clear();
    for endpoint in &mut response.node_endpoints {
        endpoint.rack = None;
    }
    for topic in &mut response.responses {
        for partition in &mut topic.partitions {
            partition.unknown_tagged_fields.clear();
            partition.snapshot_id = theirs::SnapshotId::default();
            partition.preferred_read_replica = (-1).into();
            partition.records.get_or_insert_default();
            for aborted in partition.aborted_transactions.iter_mut().flatten() {
                aborted.unknown_tagged_fields.clear();
            }
        }
    }
    response
}

#[test]
fn answers_equal_kafkas_bytes_around_the_records() {
    for version in VERSIONS {
        let (head, topics) = answer_of_ours(version);
        let endpoint = NodeEndpoint { node_id: 2, host: "broker-2.example".into(), port: 9093 };
        let answer = FetchAnswer::encode(version, &head, &topics, &[endpoint]);
        assert_eq!(answer.pieces.len(), 3, "two partitions have records");
        let whole = [
            &answer.pieces[0][..],
            b"records of one",
            &answer.pieces[1],
            &[7; 300],
            &answer.pieces[2],
        ]
        .concat();
        let (length, body) = whole.split_at(4);
        assert_eq!(i32::from_be_bytes(length.try_into().unwrap()) as usize, body.len());
        let mut expected = BytesMut::new();
        let header_version = oracle::ApiKey::Fetch.response_header_version(version);
        oracle::ResponseHeader::default()
            .with_correlation_id(55)
            .encode(&mut expected, header_version)
            .unwrap();
        full_as_we_send_it(version).encode(&mut expected, version).unwrap();
        assert_eq!(body, expected, "version {version}");
        let mut rest = Bytes::copy_from_slice(body);
        oracle::ResponseHeader::decode(&mut rest, header_version).unwrap();
        let read = oracle::FetchResponse::decode(&mut rest, version).unwrap();
        assert_eq!(read, full_as_we_send_it(version));
    }
}

proptest! {
    #[test]
    fn any_chunking_tells_the_same(
        version in VERSIONS,
        pieces in prop::collection::vec(1usize..120, 1..20),
    ) {
        let frame = frame(version, &full(version));
        prop_assert_eq!(parse(version, &frame, &pieces), Ok(full_told(version)));
    }

    #[test]
    fn damage_is_refused_or_told_the_same_in_any_chunking(
        version in VERSIONS,
        position in any::<prop::sample::Index>(),
        value in any::<u8>(),
        pieces in prop::collection::vec(1usize..120, 1..20),
    ) {
        let mut bytes = frame(version, &full(version)).to_vec();
        let position = position.index(bytes.len());
        bytes[position] = value;
        let whole = parse(version, &bytes, &[usize::MAX / 2]);
        let cut = parse(version, &bytes, &pieces);
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn any_bytes_are_told_or_refused(
        version in VERSIONS,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = parse(version, &bytes, &[7]);
    }
}
