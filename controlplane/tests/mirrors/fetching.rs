//! Fetching: sessions that are lost, answers that are empty, late or old-fashioned.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{FetchRequest, FetchResponse, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use scripted_source::{Batch, Call, Reply, ScriptedCluster, keys, legacy_message_set};

use crate::support::{TestNode, a_few_refreshes, wait};

const PARTITIONS: usize = 3;

/// Ten records more in each partition of `t`.
fn append(cluster: &ScriptedCluster, from: i64) {
    for partition in 0..PARTITIONS {
        cluster.append("t", partition, &Batch::filled(from, 0, 10, 30));
    }
}

/// A node that has mirrored ten records of each partition of `t`.
fn mirrored(properties: &[(&str, &str)]) -> (TestNode, ScriptedCluster) {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.number_sessions_from(7);
    cluster.create_topic("t", PARTITIONS, 1);
    append(&cluster, 0);
    node.create("m", &cluster, &[&[("fetch.wait.max.ms", "100")], properties].concat());
    node.start_topics("m", &["t"]);
    wait_ends(&node, 10);
    (node, cluster)
}

fn wait_ends(node: &TestNode, end: i64) {
    (0..PARTITIONS as i32).for_each(|partition| node.wait_end("m", "t", partition, end));
}

fn assert_equal_bytes(mut node: TestNode, cluster: &ScriptedCluster) {
    node.stop();
    for partition in 0..PARTITIONS {
        let source = cluster.change("t", partition, |log| log.bytes());
        assert!(node.segment_bytes("t", partition as i32) == source, "partition {partition}");
    }
}

/// Id and epoch of the session a Fetch belongs to.
fn session(call: &Call) -> (i32, i32) {
    (call.fetch().session_id, call.fetch().session_epoch)
}

fn listed(call: &Call) -> usize {
    call.fetch().topics.iter().map(|topic| topic.partitions.len()).sum()
}

/// S-01.
#[test]
fn a_lost_session_is_opened_again_with_every_partition() {
    for error in [71, 70] {
        let (node, cluster) = mirrored(&[]);
        let mut incremental = 0;
        let from = cluster.calls(keys::FETCH).len();
        cluster.on(keys::FETCH, move |call| {
            incremental += i32::from(session(call).1 > 0);
            match incremental {
                3 if session(call).1 > 0 => Reply::fetch_error(error),
                _ => Reply::Ordinary,
            }
        });
        let (refused, next) =
            cluster.wait_for("the next fetch", Duration::from_secs(20), keys::FETCH, |calls| {
                let refused = calls[from..].iter().filter(|call| session(call).1 > 0).nth(2)?;
                let next = calls[refused.number + 1..].iter().find(|later| {
                    later.connection == refused.connection && session(later) != (0, -1)
                })?;
                Some((refused.clone(), next.clone()))
            });
        assert_eq!(session(&next).1, 0, "after {:?}: {:?}", session(&refused), session(&next));
        assert_eq!(listed(&next), PARTITIONS);
        append(&cluster, 10);
        wait_ends(&node, 20);
        assert_equal_bytes(node, &cluster);
    }
}

/// S-08.
#[test]
fn an_empty_answer_does_not_wipe_the_remembered_epoch() {
    let (node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    cluster.append("t", 0, &Batch::filled(0, 2, 40, 30));
    cluster.append("t", 0, &Batch::filled(40, 3, 20, 30));
    node.create("m", &cluster, &[("fetch.wait.max.ms", "50")]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 60);
    // A few long polls end empty; whatever names the partition after them still says 3.
    a_few_refreshes();
    let from = cluster.calls(keys::FETCH).len();
    cluster.disconnect(1);
    let named = |calls: &[Call]| {
        let partitions = calls[from..].iter().flat_map(|call| &call.fetch().topics);
        partitions.flat_map(|topic| &topic.partitions).next().cloned()
    };
    let asked = cluster.wait_for("a fetch", Duration::from_secs(20), keys::FETCH, named);
    assert_eq!((asked.fetch_offset, asked.last_fetched_epoch), (60, 3));
    // An unclean leader, whose history left ours at 40.
    cluster.change("t", 0, |log| {
        log.truncate(40);
        log.leader_epoch = 4;
    });
    cluster.append("t", 0, &Batch::filled(40, 4, 5, 30));
    let failed = node.wait_failed("m", "t", 0, "40");
    assert_eq!((failed.destination_offset, failed.last_mirror_epoch), (60, 3));
}

/// S-06: old message sets and record batches in one log are stored and served as they are.
#[test]
fn a_log_of_several_formats_is_stored_and_served_unchanged() {
    let (mut node, cluster) = (TestNode::start(), ScriptedCluster::start(1));
    cluster.create_topic("t", 1, 1);
    let values: [&[u8]; 3] = [b"one", b"two", b"three"];
    cluster.change("t", 0, |log| {
        for (index, (magic, gzip)) in
            [(0, false), (0, true), (1, false), (1, true)].into_iter().enumerate()
        {
            let base = 3 * index as i64;
            log.append_bytes(base..base + 3, -1, legacy_message_set(magic, base, &values, gzip));
        }
        log.append(&Batch::filled(12, 0, 8, 30));
    });
    let source = cluster.change("t", 0, |log| log.bytes());
    node.create("m", &cluster, &[]);
    node.start_topics("m", &["t"]);
    node.wait_end("m", "t", 0, 20);
    let address = node.node().address();
    assert!(fetched(address, 0) == source);
    // From within the wrapped set: the whole set, as a broker gives it.
    let tail = fetched(address, 10);
    assert!(source.ends_with(&tail) && tail.len() > Batch::filled(12, 0, 8, 30).encode().len());
    node.stop();
    assert!(node.segment_bytes("t", 0) == source);
}

/// What a consumer gets of partition 0 of `t`.
fn fetched(address: std::net::SocketAddr, offset: i64) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let partition =
        FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default()
        .with_topic(StrBytes::from_static_str("t").into())
        .with_partitions(vec![partition]);
    let mut frame = BytesMut::from(&[0; 4][..]);
    let header = RequestHeader::default().with_request_api_key(1).with_request_api_version(11);
    header.encode(&mut frame, 1).unwrap();
    FetchRequest::default()
        .with_max_wait_ms(1000)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_topics(vec![topic])
        .encode(&mut frame, 11)
        .unwrap();
    let length = frame.len() as u32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&frame).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    let mut answer = Bytes::from(answer);
    ResponseHeader::decode(&mut answer, 0).unwrap();
    let response = FetchResponse::decode(&mut answer, 11).unwrap();
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    partition.records.clone().unwrap().to_vec()
}

/// S-42: connections that a middlebox forgot are noticed and made again.
#[test]
fn connections_that_fell_silent_are_given_up() {
    let (node, cluster) = mirrored(&[("socket.timeout.ms", "1000")]);
    let before = cluster.calls(keys::FETCH).iter().map(|call| call.connection).max();
    cluster.silence(1);
    append(&cluster, 10);
    wait_ends(&node, 20);
    let after = cluster.calls(keys::FETCH).iter().map(|call| call.connection).max();
    assert!(after > before, "{before:?} {after:?}");
    assert_equal_bytes(node, &cluster);
}

/// S-43, the source's half: a throttled, empty answer is no error, and the wait is kept.
#[test]
fn a_throttled_empty_answer_is_waited_out_in_the_same_session() {
    const THROTTLE: Duration = Duration::from_millis(300);
    let (node, cluster) = mirrored(&[]);
    let from = cluster.calls(keys::FETCH).len();
    let mut throttled = 0;
    cluster.on(keys::FETCH, move |call| {
        if throttled == 4 || session(call).1 <= 0 {
            return Reply::Ordinary;
        }
        throttled += 1;
        Reply::edited_fetch(|response| {
            response.throttle_time_ms = THROTTLE.as_millis() as i32;
            response.responses.clear();
        })
    });
    let calls = cluster.wait_for("fetches", Duration::from_secs(20), keys::FETCH, |calls| {
        let incremental: Vec<Call> =
            calls[from..].iter().filter(|call| session(call).1 > 0).cloned().collect();
        (incremental.len() >= 5).then_some(incremental)
    });
    for pair in calls[..5].windows(2) {
        let (first, next) = (session(&pair[0]), session(&pair[1]));
        assert_eq!(next, (first.0, first.1 + 1));
        assert!(pair[1].at - pair[0].at >= THROTTLE, "{:?}", pair[1].at - pair[0].at);
    }
    for partition in 0..PARTITIONS as i32 {
        let row = node.row("m", "t", partition).unwrap();
        assert_eq!((row.state, row.error_message), ("MIRRORING", None));
    }
    append(&cluster, 10);
    wait_ends(&node, 20);
    assert_equal_bytes(node, &cluster);
}

/// S-47: after a restart on an idle topic the source's end is unknown, then right; never less than
/// ours.
#[test]
fn lag_is_unknown_until_it_is_known_and_never_negative() {
    let (mut node, cluster) = mirrored(&[]);
    node.stop();
    // Until told otherwise the source names no partition at all in its answers.
    cluster.on(keys::FETCH, |_| Reply::edited_fetch(|response| response.responses.clear()));
    node.restart();
    let mut ends = Vec::new();
    let known = wait(|| {
        let row = node.row("m", "t", 0)?;
        ends.push(row.source_offset);
        assert_eq!(row.destination_offset, 10);
        (ends.len() > 20).then_some(())
    });
    assert!(known.is_some());
    assert!(ends.iter().flatten().all(|end| *end == 10), "{ends:?}");
    cluster.on(keys::FETCH, |_| Reply::Ordinary);
    cluster.disconnect(1);
    wait_ends(&node, 10);
    a_few_refreshes();
    assert_eq!(node.row("m", "t", 0).unwrap().source_offset, Some(10));
}
