//! Requests byte by byte: what a node answers is what a Kafka broker answers to the same bytes.

use std::time::Duration;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use serde_json::{Value, json};
use testkit::{Node, wait_for_equal_ends, wait_until};
use uuid::Uuid;

use crate::raw::{FOREVER_MS, Raw, decode_fetch, fetch_request, for_version, partitions};
use crate::{driver, node, shared_cluster};

/// A node that has mirrored `topics` of the shared cluster to their ends.
fn mirrored(topics: &[&str]) -> Node {
    let node = node();
    node.create_mirror("m", &shared_cluster().bootstrap(), &[]);
    node.start_topics("m", &topics.join(","));
    for topic in topics {
        wait_for_equal_ends(driver(), shared_cluster(), &node, &[(topic, 0)]);
    }
    node
}

fn topic_id(bootstrap: &str, topic: &str) -> Uuid {
    let described =
        driver().must(&json!({"do": "describe_topic", "bootstrap": bootstrap, "topic": topic}));
    let text = described["id"].as_str().expect("an id").to_owned();
    // Kafka writes its ids as URL-safe base64 without padding.
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => u128::from(byte - b'A'),
        b'a'..=b'z' => u128::from(byte - b'a') + 26,
        b'0'..=b'9' => u128::from(byte - b'0') + 52,
        b'-' => 62,
        _ => 63,
    };
    let bytes = text.as_bytes();
    let high = bytes[..21].iter().fold(0, |sum, byte| sum << 6 | digit(*byte));
    Uuid::from_u128(high << 2 | digit(bytes[21]) >> 4)
}

/// S-30: Fetch in every version, on partitions with and without records, and its errors.
#[test]
fn every_fetch_version_is_answered_with_the_brokers_bytes() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "frames", 2, &json!({}));
    driver.produce(&source, "frames", 0, 20, "lz4");
    for end in ["abort", "commit"] {
        driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "frames", "count": 5,
            "transactional_id": "frames", "transaction": end}));
    }
    let node = mirrored(&["frames"]);
    let id = topic_id(&source, "frames");
    assert_eq!(topic_id(&node.address(), "frames"), id);

    let ask = |asked: &[(i32, i64)]| fetch_request("frames", id, asked);
    let mut committed = ask(&[(0, 0), (1, 0)]);
    committed.isolation_level = 1;
    let mut of_epoch = ask(&[(0, 0)]);
    of_epoch.topics[0].partitions[0].current_leader_epoch = 5;
    let mut cut = ask(&[(0, 0)]);
    cut.topics[0].partitions[0].partition_max_bytes = 10;
    let mut diverged = ask(&[(0, 10)]);
    diverged.topics[0].partitions[0].last_fetched_epoch = 0;
    let requests = [
        ("records and none", ask(&[(0, 0), (1, 0)])),
        ("none", ask(&[(1, 0)])),
        ("at the end", ask(&[(0, 32)])),
        ("read committed", committed),
        ("a limit below the first batch", cut),
        ("with a last epoch", diverged),
        ("out of range", ask(&[(0, 1000), (1, 0)])),
        ("no such partition", ask(&[(9, 0), (1, 0)])),
        ("an epoch to come", of_epoch),
        ("no such topic", fetch_request("no-such-topic", Uuid::from_u128(5), &[(0, 0)])),
    ];
    let (mut theirs, mut ours) = (Raw::connect(&source), Raw::connect(&node.address()));
    for version in 4..=18 {
        for (what, request) in &requests {
            let request = for_version(request.clone(), version);
            let (expected, found) = (theirs.ask(version, &request), ours.ask(version, &request));
            assert_eq!(found, expected, "version {version}, {what}");
        }
    }
}

#[test]
fn offsets_and_epochs_are_answered_with_the_brokers_bytes() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "positions", 2, &json!({"retention.ms": "-1"}));
    driver.must(&json!({"do": "produce", "bootstrap": source, "topic": "positions", "count": 20,
        "timestamp": 1_760_000_000_000_i64}));
    let node = mirrored(&["positions"]);
    let name = || TopicName(StrBytes::from_static_str("positions"));
    let (mut theirs, mut ours) = (Raw::connect(&source), Raw::connect(&node.address()));
    let times = [-1, -2, -3, -4, 0, 1_760_000_000_010, 1_760_000_000_100];
    for version in 1..=11 {
        for (partition, time) in [0, 1, 9].into_iter().flat_map(|p| times.map(|time| (p, time))) {
            let asked = ListOffsetsPartition::default()
                .with_partition_index(partition)
                .with_timestamp(time);
            let topic = ListOffsetsTopic::default().with_name(name()).with_partitions(vec![asked]);
            let request =
                ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
            // Version 11 has the layout of 10.
            let mut frame = crate::raw::frame(version.min(10), &request);
            frame[2..4].copy_from_slice(&version.to_be_bytes());
            let [expected, found] = [&mut theirs, &mut ours].map(|raw| raw.answer_to(&frame));
            assert_eq!(found, expected, "ListOffsets {version}, partition {partition} at {time}");
        }
    }
    for version in 2..=4 {
        for (partition, epoch) in [(0, 0), (0, 4), (1, 0), (9, 0)] {
            let asked = OffsetForLeaderPartition::default()
                .with_partition(partition)
                .with_leader_epoch(epoch);
            let topic =
                OffsetForLeaderTopic::default().with_topic(name()).with_partitions(vec![asked]);
            let mut request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
            request.replica_id = (-1).into();
            let (expected, found) = (theirs.ask(version, &request), ours.ask(version, &request));
            assert_eq!(found, expected, "epochs {version}, partition {partition} epoch {epoch}");
        }
    }
}

/// S-29: a version that nobody knows is answered in the oldest layout, and the socket goes on.
#[test]
fn negotiation_answers_any_version_and_keeps_the_socket() {
    let node = node();
    let cluster = shared_cluster();
    let asked = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("raw"))
        .with_client_software_version(StrBytes::from_static_str("1"));
    let (mut theirs, mut ours) =
        (Raw::connect(&cluster.bootstrap()), Raw::connect(&node.address()));
    for version in [4, 99, 3, 0] {
        // The layout of 99 is nobody's; a client would send its newest.
        let mut frame = crate::raw::frame(version.min(4), &asked);
        frame[2..4].copy_from_slice(&version.to_be_bytes());
        let answers = [&mut theirs, &mut ours].map(|raw| raw.answer_to(&frame));
        for mut answer in answers {
            // No tagged fields in this API's response header, ever: the error follows at once.
            assert_eq!(answer.get_i32(), 7, "the correlation id");
            assert_eq!(answer.get_i16(), if version == 99 { 35 } else { 0 }, "version {version}");
            let listed = api_versions(&mut answer, version);
            let own = listed.iter().find(|(key, _, _)| *key == 18).expect("ApiVersions itself");
            assert!(own.1 == 0 && own.2 >= 4, "{own:?}");
            assert!(version == 99 || listed.len() > 20, "{} APIs", listed.len());
        }
    }
}

fn api_versions(answer: &mut Bytes, version: i16) -> Vec<(i16, i16, i16)> {
    let flexible = (3..99).contains(&version);
    let count = if flexible { i32::from(answer.get_u8()) - 1 } else { answer.get_i32() };
    let mut listed = Vec::new();
    for _ in 0..count {
        listed.push((answer.get_i16(), answer.get_i16(), answer.get_i16()));
        if flexible {
            assert_eq!(answer.get_u8(), 0, "no tagged fields");
        }
    }
    if version == 0 || version == 99 {
        assert!(answer.is_empty(), "the oldest layout ends with the list");
    }
    listed
}

/// S-31: ids are the source's, outlive a restart, and one that is not ours is told at once.
#[test]
fn topic_ids_are_stable_and_an_id_of_another_generation_is_unknown_at_once() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "generations", 1, &json!({}));
    driver.produce(&source, "generations", 0, 5, "none");
    let mut node = mirrored(&["generations"]);
    let old = topic_id(&source, "generations");
    assert!(!old.is_nil());
    assert_eq!(topic_id(&node.address(), "generations"), old);
    node.stop();
    node.restart();
    assert_eq!(topic_id(&node.address(), "generations"), old);

    driver.must(&json!({"do": "delete_topic", "bootstrap": source, "topic": "generations"}));
    let described = json!({"do": "describe_topic", "bootstrap": source, "topic": "generations"});
    wait_until("the topic to be gone", std::time::Duration::from_secs(20), || {
        driver.call(&described).err()
    });
    driver.create_topic(&source, "generations", 1, &json!({}));
    let new = wait_until("the new topic to be known", std::time::Duration::from_secs(20), || {
        driver.call(&described).ok()?;
        Some(topic_id(&source, "generations")).filter(|id| *id != old)
    });
    wait_until("the recreation to be noticed", std::time::Duration::from_secs(30), || {
        node.row("generations", 0).filter(|row| row.state == "FAILED")
    });

    let mut raw = Raw::connect(&node.address());
    let mut ask = |id: Uuid, epoch: i32| {
        let mut request = for_version(fetch_request("generations", id, &[(0, 5)]), 13);
        request.session_epoch = epoch;
        request.max_wait_ms = if id == old { 0 } else { FOREVER_MS };
        let response = raw.fetch(13, &request);
        assert_eq!(response.error_code, 0);
        partitions(&response).iter().map(|partition| partition.error_code).collect::<Vec<_>>()
    };
    assert_eq!(ask(old, -1), [0], "the old generation stays readable");
    assert_eq!(ask(new, -1), [100], "the new one is not here");
    assert_eq!(ask(new, 0), [100], "nor in a session");
    assert_eq!(topic_id(&node.address(), "generations"), old, "names keep their first id");
}

/// S-32: batches of zstd go out unchanged in every version.
#[test]
fn zstd_leaves_as_it_is_stored_whatever_the_version() {
    let (cluster, driver) = (shared_cluster(), driver());
    let source = cluster.bootstrap();
    driver.create_topic(&source, "zstd-set", 1, &json!({"compression.type": "zstd"}));
    driver.create_topic(&source, "zstd-sent", 1, &json!({"compression.type": "producer"}));
    for topic in ["zstd-set", "zstd-sent"] {
        driver.produce(&source, topic, 0, 50, "zstd");
    }
    let node = mirrored(&["zstd-set", "zstd-sent"]);
    let (mut theirs, mut ours) = (Raw::connect(&source), Raw::connect(&node.address()));
    for version in [4, 9, 10, 11, 12] {
        for topic in ["zstd-set", "zstd-sent"] {
            let request = for_version(fetch_request(topic, Uuid::nil(), &[(0, 0)]), version);
            let (expected, found) = (theirs.ask(version, &request), ours.ask(version, &request));
            assert_eq!(found, expected, "version {version} of {topic}");
            let records = decode_fetch(version, found);
            assert!(!partitions(&records)[0].records.as_ref().expect("records").is_empty());
        }
    }
}

/// A request that a broker answers with an error for one partition is not held back by the others.
#[test]
fn a_fetch_with_an_error_or_nothing_to_wait_for_is_answered_at_once() {
    let (cluster, driver) = (shared_cluster(), driver());
    driver.create_topic(&cluster.bootstrap(), "impatient", 2, &json!({}));
    let node = mirrored(&["impatient"]);
    let mut raw = Raw::connect(&node.address());
    let mut answer = |asked: &[(i32, i64)], min_bytes: i32| {
        let mut request = for_version(fetch_request("impatient", Uuid::nil(), asked), 11);
        request.max_wait_ms = FOREVER_MS;
        request.min_bytes = min_bytes;
        let response = raw.fetch(11, &request);
        partitions(&response).iter().map(|partition| partition.error_code).collect::<Vec<_>>()
    };
    // The topic is there to be read a moment after it is described.
    wait_until("the topic to be served", Duration::from_secs(30), || {
        (answer(&[(0, 0)], 0) == [0]).then_some(())
    });
    assert_eq!(answer(&[(0, 0), (7, 0)], 1), [0, 3]);
    assert_eq!(answer(&[(0, 99), (1, 0)], 1), [1, 0]);
    assert_eq!(answer(&[(0, 0), (1, 0)], 0), [0, 0]);
    let _: Value = driver.must(&json!({"do": "produce", "bootstrap": cluster.bootstrap(),
        "topic": "impatient", "partition": 1, "count": 1}));
    assert_eq!(answer(&[(0, 0), (1, 0)], 1), [0, 0], "a record ends the wait");
}
