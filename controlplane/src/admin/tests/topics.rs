//! What clients learn of the node and its topics.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::*;
use uuid::Uuid;

use super::*;

fn by_name(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(TopicName(text(name))))
}

fn by_id(id: TopicId) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(None).with_topic_id(Uuid::from_bytes(id.0))
}

#[tokio::test]
async fn metadata_names_this_node_in_every_version() {
    let scene = Scene::new();
    for version in 0..=13 {
        let mut request =
            MetadataRequest::default().with_topics(Some(vec![by_name("orders"), by_name("nope")]));
        if version >= 4 {
            request.allow_auto_topic_creation = true;
        }
        let answer = scene.ask(version, &request).await;
        assert_eq!((answer.brokers[0].node_id.0, answer.brokers[0].port), (7, 9092));
        // No host is configured: the client is told the address it reached.
        assert_eq!(&*answer.brokers[0].host, "10.0.0.1");
        let orders = &answer.topics[0];
        assert_eq!((orders.error_code, orders.partitions.len()), (0, 2));
        let partition = &orders.partitions[1];
        assert_eq!((partition.partition_index, partition.leader_id.0), (1, 7));
        assert_eq!(partition.replica_nodes, [BrokerId(7)]);
        if version >= 7 {
            assert_eq!(partition.leader_epoch, 3);
        }
        if version >= 10 {
            assert_eq!(orders.topic_id.as_bytes(), &TOPIC_ID.0);
        }
        assert_eq!(answer.topics[1].error_code, 3);
    }
    // Nothing was created by asking, whatever the client allows.
    assert!(scene.broker.node.table.topic("nope").is_empty());
}

#[tokio::test]
async fn a_partition_that_is_not_here_keeps_its_place_between_the_others() {
    let mut scene = Scene::new();
    scene.add("holey", 3, TopicId([8; 16]));
    let all = scene.broker.node.table.topic("holey");
    scene.broker.node.table.remove_topic("holey");
    for index in [0, 2] {
        scene.broker.node.table.insert(all[index].clone());
    }
    for version in 0..=13 {
        let request = MetadataRequest::default().with_topics(Some(vec![by_name("holey")]));
        let answer = scene.ask(version, &request).await;
        assert_eq!(answer.topics[0].error_code, 0);
        let partitions = answer.topics[0].partitions.iter();
        let told: Vec<_> = partitions
            .map(|partition| {
                (partition.partition_index, partition.error_code, partition.leader_id.0)
            })
            .collect();
        assert_eq!(told, [(0, 0, 7), (1, 5, -1), (2, 0, 7)], "version {version}");
    }
    let topic = describe_topic_partitions_request::TopicRequest::default()
        .with_name(TopicName(text("holey")));
    let request = DescribeTopicPartitionsRequest::default()
        .with_topics(vec![topic])
        .with_response_partition_limit(10);
    let answer = scene.ask(0, &request).await;
    let codes: Vec<_> =
        answer.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!(codes, [0, 5, 0]);
}

#[tokio::test]
async fn metadata_without_a_list_means_all_and_with_an_empty_one_depends() {
    let scene = Scene::new();
    let empty = MetadataRequest::default().with_topics(Some(Vec::new()));
    assert_eq!(scene.ask(0, &empty).await.topics.len(), 1);
    assert_eq!(scene.ask(1, &empty).await.topics.len(), 0);
    let all = MetadataRequest::default().with_topics(None);
    for version in [1, 8, 9, 12, 13] {
        assert_eq!(scene.ask(version, &all).await.topics.len(), 1);
    }
}

#[tokio::test]
async fn metadata_by_id_finds_the_topic_or_says_the_id_is_unknown() {
    let scene = Scene::new();
    let topics = vec![by_id(TOPIC_ID), by_id(TopicId([9; 16]))];
    let request = MetadataRequest::default().with_topics(Some(topics));
    for version in [12, 13] {
        let answer = scene.ask(version, &request).await;
        assert_eq!(answer.topics[0].name.as_ref().unwrap().as_str(), "orders");
        assert_eq!((answer.topics[1].error_code, &answer.topics[1].name), (100, &None));
    }
    // Versions that have ids but no way to answer without a name.
    assert_eq!(scene.ask(10, &request).await.topics[0].error_code, 42);
}

#[tokio::test]
async fn a_configured_host_is_what_clients_are_told() {
    let mut scene = Scene::new();
    scene.broker.node.identity.advertised.host = Some("kafka.example".into());
    let answer = scene.ask(12, &MetadataRequest::default().with_topics(None)).await;
    assert_eq!(&*answer.brokers[0].host, "kafka.example");
    let answer = scene.ask(1, &DescribeClusterRequest::default()).await;
    assert_eq!(&*answer.brokers[0].host, "kafka.example");
}

#[tokio::test]
async fn coordinators_of_groups_are_found_and_of_transactions_finally_refused() {
    let scene = Scene::new();
    for version in 0..=6 {
        for (key_type, error) in [(0, 0), (1, 53), (2, 42)] {
            if version == 0 && key_type != 0 {
                continue;
            }
            let mut request = FindCoordinatorRequest::default().with_key_type(key_type);
            if version >= 4 {
                request.coordinator_keys = vec![text("a"), text("b")];
            } else {
                request.key = text("a");
            }
            let answer = scene.ask(version, &request).await;
            if version >= 4 {
                assert_eq!(answer.coordinators.len(), 2);
                assert!(answer.coordinators.iter().all(|found| found.error_code == error));
                assert_eq!(&*answer.coordinators[1].key, "b");
            } else {
                assert_eq!(answer.error_code, error);
                assert_eq!(answer.node_id.0, if error == 0 { 7 } else { -1 });
            }
        }
    }
}

#[tokio::test]
async fn topics_are_described_page_by_page() {
    let scene = Scene::new();
    let mut request = DescribeTopicPartitionsRequest::default().with_response_partition_limit(1);
    let first = scene.ask(0, &request).await;
    assert_eq!(first.topics[0].partitions.len(), 1);
    let cursor = first.next_cursor.unwrap();
    assert_eq!((cursor.topic_name.as_str(), cursor.partition_index), ("orders", 1));
    request.cursor = Some(
        describe_topic_partitions_request::Cursor::default()
            .with_topic_name(cursor.topic_name)
            .with_partition_index(cursor.partition_index),
    );
    let second = scene.ask(0, &request).await;
    assert_eq!(second.topics[0].partitions[0].partition_index, 1);
    assert!(second.next_cursor.is_none());
}

#[tokio::test]
async fn a_page_that_ends_with_a_topic_points_at_the_next_one() {
    let mut scene = Scene::new();
    scene.add("zebra", 1, TopicId([8; 16]));
    let mut request = DescribeTopicPartitionsRequest::default().with_response_partition_limit(2);
    let first = scene.ask(0, &request).await;
    assert_eq!((first.topics.len(), first.topics[0].partitions.len()), (1, 2));
    let cursor = first.next_cursor.unwrap();
    assert_eq!((cursor.topic_name.as_str(), cursor.partition_index), ("zebra", 0));
    request.cursor = Some(
        describe_topic_partitions_request::Cursor::default().with_topic_name(cursor.topic_name),
    );
    let second = scene.ask(0, &request).await;
    assert_eq!(second.topics[0].name.as_ref().unwrap().as_str(), "zebra");
    assert!(second.next_cursor.is_none());
}

#[tokio::test]
async fn configurations_name_the_mirror_and_are_read_only() {
    let scene = Scene::new();
    for version in 1..=4 {
        let resource = |resource_type, name| {
            DescribeConfigsResource::default()
                .with_resource_type(resource_type)
                .with_resource_name(text(name))
                .with_configuration_keys(None)
        };
        let resources = vec![resource(2, "orders"), resource(2, "nope"), resource(4, "7")];
        let mut request =
            DescribeConfigsRequest::default().with_resources(resources).with_include_synonyms(true);
        request.include_documentation = version >= 3;
        let answer = scene.ask(version, &request).await;
        let configs = &answer.results[0].configs;
        let mirror = configs.iter().find(|config| &*config.name == "mirror.name").unwrap();
        assert_eq!(mirror.value.as_deref(), Some("eu"));
        assert!(configs.iter().all(|config| config.read_only && config.synonyms.len() == 1));
        assert_eq!(answer.results[1].error_code, 3);
        assert!(answer.results[2].configs.iter().any(|config| &*config.name == "node.id"));
    }
}
