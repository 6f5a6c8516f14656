use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Encodable;

use super::layout::{Field, Kind, Layout, find};
use super::*;

/// Runs `$run::<T>()` for the request type of every API in the table.
macro_rules! for_each_api {
    ($run:ident, $($argument:expr),*) => {
        for_each_api!(@list $run, ($($argument),*),
            ListOffsetsRequest, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest,
            FindCoordinatorRequest, JoinGroupRequest, HeartbeatRequest, LeaveGroupRequest,
            SyncGroupRequest, DescribeGroupsRequest, ListGroupsRequest, SaslHandshakeRequest,
            ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DeleteRecordsRequest,
            InitProducerIdRequest, OffsetForLeaderEpochRequest, AddPartitionsToTxnRequest,
            AddOffsetsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest, DescribeAclsRequest,
            CreateAclsRequest, DeleteAclsRequest, DescribeConfigsRequest, AlterConfigsRequest,
            DescribeLogDirsRequest, SaslAuthenticateRequest, CreatePartitionsRequest,
            DeleteGroupsRequest, ElectLeadersRequest, IncrementalAlterConfigsRequest,
            AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest, OffsetDeleteRequest, DescribeQuorumRequest,
            DescribeClusterRequest, DescribeProducersRequest, DescribeTransactionsRequest,
            ListTransactionsRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupDescribeRequest,
            GetTelemetrySubscriptionsRequest, PushTelemetryRequest, ListConfigResourcesRequest,
            DescribeTopicPartitionsRequest)
    };
    (@list $run:ident, $arguments:tt, $($request:ty),*) => {
        $(for_each_api!(@call $run, $request, $arguments);)*
    };
    (@call $run:ident, $request:ty, ($($argument:expr),*)) => {
        $run::<$request>($($argument),*)
    };
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        // The mixing step of SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A message of a layout with everything in it: no array empty, every tagged field present.
fn sample(layout: &Layout, numbers: &mut Numbers) -> Bytes {
    let mut out = BytesMut::new();
    put_structure(layout, layout.fields, numbers, &mut out);
    out.freeze()
}

fn put_structure(
    layout: &Layout,
    fields: &'static [Field],
    numbers: &mut Numbers,
    out: &mut BytesMut,
) {
    let present = |field: &&Field| field.versions.contains(&layout.version);
    for field in fields.iter().filter(present).filter(|field| field.tag.is_none()) {
        put_value(layout, &field.kind, numbers, out);
    }
    if !layout.flexible {
        return;
    }
    let mut tagged = BTreeMap::new();
    for field in fields.iter().filter(present) {
        if let Some(tag) = field.tag {
            let mut value = BytesMut::new();
            put_value(layout, &field.kind, numbers, &mut value);
            tagged.insert(tag, value);
        }
    }
    // Every other low tag too: were one of them known to the decoder and not to the table, the
    // decoder would make something else of these bytes.
    for tag in 0..8 {
        if fields.iter().all(|field| field.tag != Some(tag)) {
            tagged.insert(tag, BytesMut::from(&[0xff, 0xff, 0x03][..]));
        }
    }
    put_uvarint(tagged.len(), out);
    for (tag, value) in tagged {
        put_uvarint(tag as usize, out);
        put_uvarint(value.len(), out);
        out.put_slice(&value);
    }
}

fn put_value(layout: &Layout, kind: &'static Kind, numbers: &mut Numbers, out: &mut BytesMut) {
    match kind {
        // Zeros and ones: valid as a number, a flag and an id. Odd, because a tagged field that
        // has its default, which is zero for some, is not written again.
        Kind::Fixed(bytes) => {
            (1..*bytes).for_each(|_| out.put_u8(numbers.below(2) as u8));
            out.put_u8(1);
        }
        Kind::Text | Kind::Blob => {
            let text = &"some text of a length"[..numbers.below(20) as usize];
            match (kind, layout.flexible) {
                (_, true) => put_uvarint(text.len() + 1, out),
                (Kind::Text, false) => out.put_i16(text.len() as i16),
                (_, false) => out.put_i32(text.len() as i32),
            }
            out.put_slice(text.as_bytes());
        }
        Kind::List(element) => {
            put_count(layout, 3, out);
            (0..3).for_each(|_| put_value(layout, element, numbers, out));
        }
        Kind::Structs(fields) => {
            put_count(layout, 2, out);
            (0..2).for_each(|_| put_structure(layout, fields, numbers, out));
        }
        Kind::Struct(fields) => put_structure(layout, fields, numbers, out),
        Kind::OptionalStruct(fields) => {
            out.put_i8(1);
            put_structure(layout, fields, numbers, out);
        }
    }
}

fn put_count(layout: &Layout, count: usize, out: &mut BytesMut) {
    if layout.flexible { put_uvarint(count + 1, out) } else { out.put_i32(count as i32) }
}

fn put_uvarint(mut value: usize, out: &mut BytesMut) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Calls `run` with every version the table has of `T`, in both directions.
fn for_each_layout<T: Request>(mut run: impl FnMut(Layout, Direction)) {
    for direction in [Direction::Request, Direction::Response] {
        let versions = match direction {
            Direction::Request => T::VERSIONS,
            Direction::Response => T::Response::VERSIONS,
        };
        for version in versions.min.max(T::VERSIONS.min)..=versions.max.min(T::VERSIONS.max) {
            let layout = find(T::KEY, direction, version);
            run(
                layout.unwrap_or_else(|| panic!("API {} v{version} is missing", T::KEY)),
                direction,
            );
        }
    }
}

/// Decodes behind the guard and writes what was understood.
fn recoded<T: Request>(
    layout: &Layout,
    direction: Direction,
    body: Bytes,
) -> Result<Bytes, GuardError> {
    let mut out = BytesMut::new();
    match direction {
        Direction::Request => {
            decode_request::<T>(layout.version, body)?.encode(&mut out, layout.version)
        }
        Direction::Response => {
            decode_response::<T>(layout.version, body)?.encode(&mut out, layout.version)
        }
    }
    .unwrap();
    Ok(out.freeze())
}

fn full_samples_pass<T: Request>(seen: &mut usize) {
    for_each_layout::<T>(|layout, direction| {
        for seed in 0..4 {
            let body = sample(&layout, &mut Numbers(seed));
            let again = recoded::<T>(&layout, direction, body.clone());
            assert_eq!(again, Ok(body), "{} v{} {direction:?}", layout.name, layout.version);
            *seen += 1;
        }
    });
}

#[test]
fn the_table_and_the_decoder_agree_on_every_byte_of_every_version() {
    let mut seen = 0;
    for_each_api!(full_samples_pass, &mut seen);
    assert!(seen > 1000, "{seen}");
}

fn cut_samples_fail<T: Request>() {
    for_each_layout::<T>(|layout, direction| {
        let body = sample(&layout, &mut Numbers(9));
        for length in 0..body.len() {
            let outcome = scan::check(&layout, &body[..length]);
            assert!(outcome.is_err(), "{} v{} {direction:?}", layout.name, layout.version);
        }
        let longer = [&body[..], &[0]].concat();
        assert!(scan::check(&layout, &longer).is_err());
    });
}

#[test]
fn a_message_cut_anywhere_or_too_long_is_refused() {
    for_each_api!(cut_samples_fail,);
}

fn damaged_samples_are_safe<T: Request>(numbers: &mut Numbers) {
    for_each_layout::<T>(|layout, direction| {
        let whole = sample(&layout, numbers);
        for _ in 0..if whole.is_empty() { 0 } else { 60 } {
            let mut body = whole.to_vec();
            for _ in 0..=numbers.below(3) {
                let position = numbers.below(body.len() as u64) as usize;
                body[position] = [0, 1, 2, 0x7f, 0x80, 0xff][numbers.below(6) as usize];
            }
            // Whatever passes must be decoded within reason: a decoder that reserves what an
            // impossible count claims would end this process.
            let _ = recoded::<T>(&layout, direction, Bytes::from(body));
        }
    });
}

#[test]
fn damaged_messages_never_reach_the_decoder_with_an_impossible_count() {
    for_each_api!(damaged_samples_are_safe, &mut Numbers(1));
}

#[test]
fn fifteen_bytes_that_claim_four_thousand_million_topics_are_refused() {
    let body = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let reason = "Metadata: field topics is 4294967294".to_owned();
    assert_eq!(
        decode_request::<MetadataRequest>(12, body),
        Err(GuardError::Malformed { api_key: 3, version: 12, reason })
    );
}

#[test]
fn unspoken_versions_and_messages_without_layout_are_refused() {
    for version in [-1, 14, i16::MAX] {
        assert_eq!(
            decode_request::<MetadataRequest>(version, Bytes::new()),
            Err(GuardError::Version { api_key: 3, version })
        );
    }
    assert_eq!(
        decode_request::<VoteRequest>(0, Bytes::new()),
        Err(GuardError::Version { api_key: 52, version: 0 })
    );
}

#[test]
fn more_elements_than_a_request_may_have_are_refused() {
    let request = |groups: usize| {
        let mut body = BytesMut::new();
        body.put_i32(groups as i32);
        body.put_bytes(0, 2 * groups);
        decode_request::<DescribeGroupsRequest>(0, body.freeze())
    };
    assert!(request(REQUEST_ELEMENTS_MAX).is_ok());
    assert!(matches!(request(REQUEST_ELEMENTS_MAX + 1), Err(GuardError::Malformed { .. })));
}

#[test]
fn an_optional_structure_is_there_or_null_and_nothing_between() {
    let body = |present: u8| Bytes::copy_from_slice(&[1, 0, 0, 0, 9, present, 0]);
    assert!(decode_request::<DescribeTopicPartitionsRequest>(0, body(0xff)).is_ok());
    for present in [0, 2, 0xfe] {
        let outcome = decode_request::<DescribeTopicPartitionsRequest>(0, body(present));
        assert!(matches!(outcome, Err(GuardError::Malformed { .. })), "{present}");
    }
}
