//! Every served API and version answers something a client can read; writes are refused for good.

use bytes::BufMut;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::*;

use super::super::dispatch::{COLD_APIS, served_apis};
use super::*;

#[tokio::test]
async fn every_version_that_is_told_is_answered() {
    let scene = Scene::new();
    macro_rules! check {
        ($($request:ty),*) => {
            let mut checked = vec![18, 94, 95, 98, 99];
            $(
                let range = COLD_APIS.iter().find(|range| range.key == <$request>::KEY).unwrap();
                for version in range.min..=range.max {
                    let _ = scene.ask(version, &<$request>::default()).await;
                }
                checked.push(<$request>::KEY);
            )*
            checked.sort();
            let told: Vec<_> = COLD_APIS.iter().map(|range| range.key).collect();
            assert_eq!(checked, told, "the table is in order, and all of it is checked");
        };
    }
    check!(
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        FindCoordinatorRequest,
        JoinGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
        DescribeGroupsRequest,
        ListGroupsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        DeleteRecordsRequest,
        InitProducerIdRequest,
        DescribeAclsRequest,
        DescribeConfigsRequest,
        AlterConfigsRequest,
        DescribeLogDirsRequest,
        CreatePartitionsRequest,
        DeleteGroupsRequest,
        ElectLeadersRequest,
        IncrementalAlterConfigsRequest,
        AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest,
        OffsetDeleteRequest,
        DescribeClusterRequest,
        DescribeTopicPartitionsRequest
    );
}

#[tokio::test]
async fn versions_are_told_in_every_version() {
    let scene = Scene::new();
    for version in 0..=4 {
        let answer = scene.ask(version, &ApiVersionsRequest::default()).await;
        assert_eq!(answer.error_code, 0);
        let told: Vec<_> = answer
            .api_keys
            .iter()
            .map(|api| (api.api_key, api.min_version, api.max_version))
            .collect();
        let served: Vec<_> = served_apis().map(|range| (range.key, range.min, range.max)).collect();
        assert_eq!(told, served);
        assert!(told.contains(&(1, 4, 18)) && told.contains(&(94, 0, 0)));
        // Not spoken: SASL, quotas, transactions.
        assert!(!told.iter().any(|(key, ..)| [17, 24, 48].contains(key)));
    }
}

#[tokio::test]
async fn an_unknown_version_of_api_versions_is_answered_in_the_oldest_layout() {
    let scene = Scene::new();
    for version in [5, 99] {
        // A body in a layout of the future.
        let mut request = header(18, version);
        request.put_slice(b"\xff\xff\xff\xff\xff\xff");
        let answer = scene.answer(&cold(request)).await.unwrap();
        assert_eq!(
            &answer[..],
            b"\x01\x02\x03\x04\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x04",
            "no tagged fields in the header, error 35, one range"
        );
    }
}

#[tokio::test]
async fn idempotent_producers_get_an_id_no_source_has_and_transactional_ones_a_final_error() {
    let scene = Scene::new();
    for version in 0..=5 {
        let plain = InitProducerIdRequest::default().with_transactional_id(None);
        let (first, second) = (scene.ask(version, &plain).await, scene.ask(version, &plain).await);
        assert_eq!(first.error_code, 0);
        assert!(first.producer_id.0 >= 1 << 62);
        assert_ne!(first.producer_id, second.producer_id);
        let transactional = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text("tx"))));
        assert_eq!(scene.ask(version, &transactional).await.error_code, 53);
    }
}

#[tokio::test]
async fn changes_are_refused_with_a_reason_that_names_the_mirror() {
    let scene = Scene::new();
    let orders = || TopicName(text("orders"));

    let request = CreateTopicsRequest::default().with_topics(vec![
        CreatableTopic::default().with_name(orders()),
        CreatableTopic::default().with_name(TopicName(text("new"))),
        CreatableTopic::default().with_name(TopicName(text("no good"))),
    ]);
    let answer = scene.ask(7, &request).await;
    let codes: Vec<_> = answer.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [36, 44, 17]);
    assert!(answer.topics[1].error_message.as_ref().unwrap().contains("longhaul mirror start"));

    let request = DeleteTopicsRequest::default().with_topics(vec![
        delete_topics_request::DeleteTopicState::default().with_name(Some(orders())),
        delete_topics_request::DeleteTopicState::default()
            .with_name(None)
            .with_topic_id(uuid::Uuid::from_bytes(TOPIC_ID.0)),
    ]);
    let answer = scene.ask(6, &request).await;
    for refused in &answer.responses {
        assert_eq!(refused.error_code, 44);
        assert!(refused.error_message.as_ref().unwrap().contains("mirror eu copies it"));
    }

    let request = CreatePartitionsRequest::default().with_topics(vec![
        create_partitions_request::CreatePartitionsTopic::default()
            .with_name(orders())
            .with_count(9),
    ]);
    assert_eq!(scene.ask(3, &request).await.results[0].error_code, 44);

    let request = DeleteRecordsRequest::default().with_topics(vec![
        delete_records_request::DeleteRecordsTopic::default().with_name(orders()).with_partitions(
            vec![delete_records_request::DeleteRecordsPartition::default().with_offset(5)],
        ),
    ]);
    assert_eq!(scene.ask(2, &request).await.topics[0].partitions[0].error_code, 44);

    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![
        incremental_alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("orders")),
        incremental_alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(4)
            .with_resource_name(text("7")),
    ]);
    let answer = scene.ask(1, &request).await;
    assert!(answer.responses.iter().all(|refused| refused.error_code == 44));
}

#[test]
fn the_documented_table_is_what_clients_are_told() {
    let page = include_str!("../../../../docs/protocol.md");
    let documented: Vec<_> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let key: i16 = cells.next()?.parse().ok()?;
            let (_name, versions) = (cells.next()?, cells.next()?);
            let (min, max) = versions.split_once('-')?;
            Some((key, min.parse().ok()?, max.parse().ok()?))
        })
        .collect();
    let told: Vec<(i16, i16, i16)> =
        served_apis().map(|range| (range.key, range.min, range.max)).collect();
    assert_eq!(documented, told);
}
