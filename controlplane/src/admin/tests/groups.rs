//! Groups and offsets through the wire, version by version, and over a restart.

use std::time::Duration;

use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;

use super::*;

fn group(id: &str) -> GroupId {
    GroupId(text(id))
}

/// A commit of partition 0 of `orders`, by a consumer that is no member.
fn commit(version: i16, group_id: &str, offset: i64, note: &str) -> OffsetCommitRequest {
    let mut partition = OffsetCommitRequestPartition::default()
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text(note)));
    if version >= 6 {
        partition.committed_leader_epoch = 3;
    }
    OffsetCommitRequest::default()
        .with_group_id(group(group_id))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(TopicName(text("orders")))
                .with_partitions(vec![partition]),
        ])
}

async fn committed(scene: &Scene, group_id: &str) -> i64 {
    let topic = OffsetFetchRequestTopic::default()
        .with_name(TopicName(text("orders")))
        .with_partition_indexes(vec![0]);
    let request =
        OffsetFetchRequest::default().with_group_id(group(group_id)).with_topics(Some(vec![topic]));
    scene.ask(5, &request).await.topics[0].partitions[0].committed_offset
}

fn join(group_id: &str, member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(group(group_id))
        .with_session_timeout_ms(60_000)
        .with_member_id(text(member_id))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![
            JoinGroupRequestProtocol::default()
                .with_name(text("range"))
                .with_metadata(Bytes::from_static(b"\0\x01\0\0\0\x01\0\x06orders\xff\xff\xff\xff")),
        ])
}

fn sync(group_id: &str, member_id: &StrBytes, generation: i32) -> SyncGroupRequest {
    SyncGroupRequest::default()
        .with_group_id(group(group_id))
        .with_generation_id(generation)
        .with_member_id(member_id.clone())
        .with_assignments(vec![
            SyncGroupRequestAssignment::default()
                .with_member_id(member_id.clone())
                .with_assignment(Bytes::from_static(b"assigned")),
        ])
}

/// A member of a stable generation: its id and the generation.
async fn stable_member(scene: &Scene, group_id: &str) -> (StrBytes, i32) {
    let joined = scene.ask(3, &join(group_id, "").with_rebalance_timeout_ms(60_000)).await;
    assert_eq!(joined.error_code, 0);
    let request = sync(group_id, &joined.member_id, joined.generation_id);
    assert_eq!(scene.ask(3, &request).await.error_code, 0);
    (joined.member_id, joined.generation_id)
}

#[tokio::test]
async fn a_member_joins_is_assigned_beats_and_leaves_in_every_version() {
    let scene = Scene::new();
    for version in 0..=9i16 {
        let group_id = format!("g {version}/ä");
        let mut request = join(&group_id, "");
        if version >= 1 {
            request.rebalance_timeout_ms = 60_000;
        }
        let mut joined = scene.ask(version, &request).await;
        if version >= 4 {
            assert_eq!(joined.error_code, 79, "the id comes first");
            request.member_id = joined.member_id;
            joined = scene.ask(version, &request).await;
        }
        assert_eq!((joined.error_code, joined.generation_id), (0, 1));
        assert_eq!(joined.leader, joined.member_id);
        assert!(joined.member_id.starts_with("client-"));
        assert_eq!(joined.protocol_name.as_deref(), Some("range"));
        assert_eq!(joined.members.len(), 1);

        let mut request = sync(&group_id, &joined.member_id, 1);
        if version >= 5 {
            request.protocol_type = Some(text("consumer"));
            request.protocol_name = Some(text("range"));
        }
        let synced = scene.ask(version.min(5), &request).await;
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"assigned"[..]));

        let beat = HeartbeatRequest::default()
            .with_group_id(group(&group_id))
            .with_generation_id(1)
            .with_member_id(joined.member_id.clone());
        assert_eq!(scene.ask(version.min(4), &beat).await.error_code, 0);
        let stale = beat.clone().with_generation_id(0);
        assert_eq!(scene.ask(version.min(4), &stale).await.error_code, 22);

        let leave = LeaveGroupRequest::default().with_group_id(group(&group_id));
        let left = if version < 3 {
            scene.ask(version, &leave.with_member_id(joined.member_id)).await.error_code
        } else {
            let member = MemberIdentity::default().with_member_id(joined.member_id);
            let leave = leave.with_members(vec![member]);
            scene.ask(version.min(5), &leave).await.members[0].error_code
        };
        assert_eq!(left, 0);
        assert_eq!(scene.ask(version.min(4), &beat).await.error_code, 25);
    }
}

#[tokio::test]
async fn static_members_are_known_by_their_instance() {
    let scene = Scene::new();
    let request =
        join("g", "").with_rebalance_timeout_ms(60_000).with_group_instance_id(Some(text("i1")));
    let joined = scene.ask(5, &request).await;
    assert_eq!(joined.error_code, 0);
    assert!(joined.member_id.starts_with("i1-"));
    assert_eq!(joined.members[0].group_instance_id.as_deref(), Some("i1"));
    let leave = LeaveGroupRequest::default()
        .with_group_id(group("g"))
        .with_members(vec![MemberIdentity::default().with_group_instance_id(Some(text("i1")))]);
    assert_eq!(scene.ask(5, &leave).await.members[0].error_code, 0);
}

#[tokio::test]
async fn a_static_member_is_known_after_a_restart_of_the_node() {
    let scene = Scene::new();
    let request =
        join("g", "").with_rebalance_timeout_ms(60_000).with_group_instance_id(Some(text("i1")));
    let joined = scene.ask(5, &request).await;
    assert_eq!(scene.ask(3, &sync("g", &joined.member_id, 1)).await.error_code, 0);
    let scene = scene.restart();
    // Its client restarts, too: no rebalance, and the assignment as before.
    let again = scene.ask(5, &request).await;
    assert_eq!((again.error_code, again.generation_id), (0, 1));
    assert_ne!(again.member_id, joined.member_id);
    let synced = scene.ask(3, &sync("g", &again.member_id, 1)).await;
    assert_eq!(synced.assignment, "assigned");
}

#[tokio::test]
async fn two_members_share_once_both_have_joined() {
    let scene = Scene::new();
    let first = scene.ask(3, &join("g", "").with_rebalance_timeout_ms(60_000)).await;
    let second = join("g", "").with_rebalance_timeout_ms(60_000);
    let again = join("g", &first.member_id).with_rebalance_timeout_ms(60_000);
    let (second, again) = tokio::join!(scene.ask(3, &second), scene.ask(3, &again));
    assert_eq!((second.generation_id, again.generation_id), (2, 2));
    assert_eq!(second.members.len() + again.members.len(), 2);
    assert_eq!(second.leader, again.leader);
}

#[tokio::test]
async fn a_member_that_falls_silent_is_removed() {
    let scene = Scene::new();
    let request = join("g", "").with_rebalance_timeout_ms(60_000).with_session_timeout_ms(20);
    let joined = scene.ask(3, &request).await;
    let beat = HeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_generation_id(1)
        .with_member_id(joined.member_id);
    // Nothing else happens: only the timer can notice. Each look must not be a sign of life.
    for _ in 0..500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if scene.broker.groups.describe("g").members.is_empty() {
            assert_eq!(scene.ask(3, &beat).await.error_code, 25);
            return;
        }
    }
    panic!("the member is still there");
}

#[tokio::test]
async fn offsets_are_committed_and_fetched_in_every_version() {
    let scene = Scene::new();
    for version in 2..=9i16 {
        let group_id = format!("g{version}");
        let answer =
            scene.ask(version, &commit(version, &group_id, 40 + i64::from(version), "n")).await;
        assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    }
    for version in 1..=9i16 {
        for written in 2..=9i16 {
            let group_id = group(&format!("g{written}"));
            let expected_epoch = if written >= 6 { 3 } else { -1 };
            if version >= 8 {
                let topic = OffsetFetchRequestTopics::default()
                    .with_name(TopicName(text("orders")))
                    .with_partition_indexes(vec![0, 1]);
                let asked = OffsetFetchRequestGroup::default()
                    .with_group_id(group_id)
                    .with_topics(Some(vec![topic]));
                let request = OffsetFetchRequest::default().with_groups(vec![asked]);
                let answer = scene.ask(version, &request).await;
                let partitions = &answer.groups[0].topics[0].partitions;
                assert_eq!(partitions[0].committed_offset, 40 + i64::from(written));
                assert_eq!(partitions[0].committed_leader_epoch, expected_epoch);
                assert_eq!(partitions[0].metadata.as_deref(), Some("n"));
                assert_eq!((partitions[1].committed_offset, partitions[1].error_code), (-1, 0));
                continue;
            }
            let topic = OffsetFetchRequestTopic::default()
                .with_name(TopicName(text("orders")))
                .with_partition_indexes(vec![0, 1]);
            let request = OffsetFetchRequest::default()
                .with_group_id(group_id)
                .with_topics(Some(vec![topic]));
            let answer = scene.ask(version, &request).await;
            let partitions = &answer.topics[0].partitions;
            assert_eq!(partitions[0].committed_offset, 40 + i64::from(written));
            if version >= 5 {
                assert_eq!(partitions[0].committed_leader_epoch, expected_epoch);
            }
            assert_eq!((partitions[1].committed_offset, partitions[1].error_code), (-1, 0));
        }
    }
}

#[tokio::test]
async fn all_offsets_of_several_groups_are_fetched_and_an_unknown_group_has_none() {
    let scene = Scene::new();
    for group_id in ["a", "b"] {
        let _ = scene.ask(8, &commit(8, group_id, 5, "")).await;
    }
    for version in 2..=7 {
        let request = OffsetFetchRequest::default().with_group_id(group("a")).with_topics(None);
        assert_eq!(scene.ask(version, &request).await.topics[0].partitions.len(), 1);
        let request = OffsetFetchRequest::default().with_group_id(group("no")).with_topics(None);
        let answer = scene.ask(version, &request).await;
        assert_eq!((answer.error_code, answer.topics.len()), (0, 0));
    }
    for version in 8..=9 {
        let asked = ["a", "no", "b"].map(|group_id| {
            OffsetFetchRequestGroup::default().with_group_id(group(group_id)).with_topics(None)
        });
        let request = OffsetFetchRequest::default().with_groups(asked.to_vec());
        let answer = scene.ask(version, &request).await;
        let counts: Vec<_> = answer.groups.iter().map(|group| group.topics.len()).collect();
        assert_eq!(counts, [1, 0, 1]);
        assert!(answer.groups.iter().all(|group| group.error_code == 0));
    }
    assert_eq!(committed(&scene, "no").await, -1);
}

#[tokio::test]
async fn only_members_of_the_generation_commit_while_there_are_members() {
    let scene = Scene::new();
    let (member_id, generation) = stable_member(&scene, "g").await;
    let by = |member_id: &StrBytes, generation| {
        commit(7, "g", 9, "")
            .with_member_id(member_id.clone())
            .with_generation_id_or_member_epoch(generation)
    };
    let code = |answer: OffsetCommitResponse| answer.topics[0].partitions[0].error_code;
    assert_eq!(code(scene.ask(7, &by(&member_id, generation)).await), 0);
    assert_eq!(code(scene.ask(7, &by(&member_id, generation + 1)).await), 22);
    assert_eq!(code(scene.ask(7, &by(&text("other"), generation)).await), 25);
    assert_eq!(code(scene.ask(7, &commit(7, "g", 9, "")).await), 25);
    // A generation of a group that nobody knows.
    let unknown = by(&member_id, generation).with_group_id(group("none"));
    assert_eq!(code(scene.ask(7, &unknown).await), 22);
}

#[tokio::test]
async fn each_partition_of_a_commit_has_its_own_outcome() {
    let scene = Scene::new();
    let mut request = commit(7, "g", 5, &"x".repeat(4097));
    let template = request.topics[0].partitions[0].clone().with_committed_metadata(None);
    request.topics[0].partitions.push(template.clone().with_partition_index(1));
    request.topics[0].partitions.push(template.with_partition_index(2));
    let answer = scene.ask(7, &request).await;
    let outcomes: Vec<_> = answer.topics[0]
        .partitions
        .iter()
        .map(|partition| (partition.partition_index, partition.error_code))
        .collect();
    assert_eq!(outcomes, [(0, 12), (1, 0), (2, 3)]);
}

#[tokio::test]
async fn offsets_and_members_survive_a_restart() {
    let scene = Scene::new();
    let (member_id, generation) = stable_member(&scene, "kept").await;
    for offset in 0..20 {
        let _ = scene.ask(7, &commit(7, "alone", offset, "note")).await;
    }
    let _ = scene.ask(7, &commit(7, "deleted", 1, "")).await;
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group("deleted")]);
    assert_eq!(scene.ask(2, &request).await.results[0].error_code, 0);

    let scene = scene.restart();
    assert_eq!(committed(&scene, "alone").await, 19);
    assert_eq!(committed(&scene, "deleted").await, -1);
    let beat = HeartbeatRequest::default()
        .with_group_id(group("kept"))
        .with_generation_id(generation)
        .with_member_id(member_id);
    assert_eq!(scene.ask(4, &beat).await.error_code, 0);
    let listed = scene.ask(4, &ListGroupsRequest::default()).await;
    let listed: Vec<_> = listed
        .groups
        .iter()
        .map(|group| (group.group_id.as_str(), group.group_state.as_str()))
        .collect();
    assert_eq!(listed, [("alone", "Empty"), ("kept", "Stable")]);
}

#[tokio::test]
async fn the_offsets_topic_can_be_read_by_clients() {
    let scene = Scene::new();
    assert!(scene.broker.node.table.topic("__consumer_offsets").is_empty());
    let _ = scene.ask(7, &commit(7, "g", 5, "")).await;
    let partitions = scene.broker.node.table.topic("__consumer_offsets");
    assert_eq!(partitions.len(), 50);
    assert!(!partitions[0].topic_id.is_zero());
    let written: Vec<_> =
        partitions.iter().filter(|partition| partition.log.log_end() > Offset(0)).collect();
    // "g" is 103 in Java's hash.
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].id.partition, 103 % 50);
    let all = MetadataRequest::default().with_topics(None);
    let answer = scene.ask(9, &all).await;
    let offsets = answer.topics.iter().find(|topic| topic.is_internal).unwrap();
    assert_eq!(offsets.partitions.len(), 50);
}

#[tokio::test]
async fn groups_are_described_and_deleted_when_nobody_is_in_them() {
    let scene = Scene::new();
    let (member_id, _) = stable_member(&scene, "g").await;
    for version in 0..=6 {
        let request = DescribeGroupsRequest::default().with_groups(vec![group("g"), group("none")]);
        let answer = scene.ask(version, &request).await;
        let found = &answer.groups[0];
        assert_eq!((&*found.group_state, &*found.protocol_data), ("Stable", "range"));
        assert_eq!(found.members[0].member_id, member_id);
        assert_eq!(&*found.members[0].client_host, "/10.1.2.3");
        assert_eq!(found.members[0].member_assignment, "assigned");
        assert_eq!(&*answer.groups[1].group_state, "Dead");
        assert_eq!(answer.groups[1].error_code, if version >= 6 { 69 } else { 0 });
    }
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group("g"), group("none")]);
    let answer = scene.ask(2, &request).await;
    let codes: Vec<_> = answer.results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [68, 69]);
}

#[tokio::test]
async fn a_commit_under_way_outlives_the_group_that_its_last_member_leaves() {
    let scene = Scene::new();
    let (member_id, generation) = stable_member(&scene, "g").await;
    let commit_of_member = commit(7, "g", 5, "")
        .with_member_id(member_id.clone())
        .with_generation_id_or_member_epoch(generation);
    // What it waits behind: megabytes.
    let mut slow = commit(7, "other", 1, &"x".repeat(4_000));
    let partition = slow.topics[0].partitions[0].clone();
    slow.topics[0].partitions = vec![partition; 2_000];
    // An operator removes the member while its commit is on its way to the disk.
    let leave = LeaveGroupRequest::default().with_group_id(group("g")).with_member_id(member_id);
    let (_, accepted, left) =
        tokio::join!(scene.ask(7, &slow), scene.ask(7, &commit_of_member), scene.ask(0, &leave));
    assert_eq!((accepted.topics[0].partitions[0].error_code, left.error_code), (0, 0));
    // Written behind everything that was queued before.
    let _ = scene.ask(7, &commit(7, "other", 1, "")).await;
    assert_eq!(committed(&scene, "g").await, 5);
    assert_eq!(committed(&scene.restart(), "g").await, 5);
}

#[tokio::test]
async fn offsets_of_topics_that_members_subscribe_to_are_not_deleted() {
    let scene = Scene::new();
    let delete = |group_id: &str| {
        OffsetDeleteRequest::default().with_group_id(group(group_id)).with_topics(vec![
            OffsetDeleteRequestTopic::default()
                .with_name(TopicName(text("orders")))
                .with_partitions(vec![OffsetDeleteRequestPartition::default()]),
        ])
    };
    let _ = scene.ask(7, &commit(7, "g", 5, "")).await;
    let (member_id, _) = stable_member(&scene, "g").await;
    let answer = scene.ask(0, &delete("g")).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 86);
    let leave = LeaveGroupRequest::default().with_group_id(group("g")).with_member_id(member_id);
    assert_eq!(scene.ask(0, &leave).await.error_code, 0);
    let answer = scene.ask(0, &delete("g")).await;
    assert_eq!((answer.error_code, answer.topics[0].partitions[0].error_code), (0, 0));
    assert_eq!(committed(&scene, "g").await, -1);
    assert_eq!(scene.ask(0, &delete("none")).await.error_code, 69);
}

#[tokio::test]
async fn what_a_group_committed_is_an_error_and_not_nothing_when_it_cannot_be_read() {
    let scene = Scene::new();
    let _ = scene.ask(7, &commit(7, "damaged", 5, "")).await;
    let scene = scene.restart_after(|directory| {
        // Partition 11 is that of the group. A folder where its segment should be.
        let segment = directory.join("__consumer_offsets-11/00000000000000000000.log");
        std::fs::remove_file(&segment).unwrap();
        std::fs::create_dir(&segment).unwrap();
    });
    for version in 1..=7 {
        let topic = OffsetFetchRequestTopic::default()
            .with_name(TopicName(text("orders")))
            .with_partition_indexes(vec![0]);
        let request = OffsetFetchRequest::default()
            .with_group_id(group("damaged"))
            .with_topics(Some(vec![topic]));
        let answer = scene.ask(version, &request).await;
        let on_partition = answer.topics[0].partitions[0].error_code;
        // Only the oldest version has no other place for it.
        let expected = if version == 1 { (15, 0) } else { (0, 15) };
        assert_eq!((on_partition, answer.error_code), expected, "version {version}");
    }
    for version in 8..=9 {
        let asked = ["damaged", "other"].map(|group_id| {
            OffsetFetchRequestGroup::default().with_group_id(group(group_id)).with_topics(None)
        });
        let request = OffsetFetchRequest::default().with_groups(asked.to_vec());
        let answer = scene.ask(version, &request).await;
        let codes: Vec<_> = answer.groups.iter().map(|group| group.error_code).collect();
        assert_eq!(codes, [15, 0]);
    }
    let answer = scene.ask(7, &commit(7, "damaged", 9, "")).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 15);
    let joined = scene.ask(3, &join("damaged", "").with_rebalance_timeout_ms(60_000)).await;
    assert_eq!(joined.error_code, 15);
    assert_eq!(committed(&scene, "other").await, -1);
}
