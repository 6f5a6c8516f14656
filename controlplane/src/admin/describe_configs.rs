//! DescribeConfigs, 1 to 4: topics and this broker, all of it read-only.
//!
//! A topic shows how it is kept here while it is mirrored: nothing is deleted, compacted or
//! recompressed by this node. Other kinds of resources that tools ask about have nothing set.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::call::{Call, text};
use super::errors::KafkaError;
use super::node::{Node, OFFSETS_TOPIC};
use super::refusal;

/// Kafka's numbers of resource types.
pub(super) const RESOURCE_TOPIC: i8 = 2;
const RESOURCE_BROKER: i8 = 4;
const RESOURCE_CLIENT_METRICS: i8 = 16;
const RESOURCE_GROUP: i8 = 32;

/// Kafka's numbers of where a value comes from.
const SOURCE_TOPIC: i8 = 1;
const SOURCE_BROKER_FILE: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;

const FIRST_VERSION_OF_TYPES: i16 = 3;

/// Kafka's numbers of value types.
#[derive(Debug, Clone, Copy)]
enum ValueType {
    Boolean = 1,
    Text = 2,
    Integer = 3,
    Long = 5,
    List = 7,
}

struct Setting {
    name: &'static str,
    value: String,
    source: i8,
    value_type: ValueType,
    documentation: &'static str,
}

pub(super) fn answer(
    node: &Node,
    call: &Call,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let shape = Shape {
        synonyms: request.include_synonyms,
        documentation: request.include_documentation,
        types: call.version >= FIRST_VERSION_OF_TYPES,
    };
    let results =
        request.resources.into_iter().map(|resource| described(node, call, &shape, resource));
    DescribeConfigsResponse::default().with_results(results.collect())
}

/// How much of each setting is wanted.
struct Shape {
    synonyms: bool,
    documentation: bool,
    types: bool,
}

fn described(
    node: &Node,
    call: &Call,
    shape: &Shape,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult {
    let result = DescribeConfigsResult::default()
        .with_resource_type(resource.resource_type)
        .with_resource_name(resource.resource_name.clone());
    let settings = match settings(node, call, resource.resource_type, &resource.resource_name) {
        Ok(settings) => settings,
        Err((error, reason)) => {
            return result.with_error_code(error.code).with_error_message(Some(reason));
        }
    };
    let wanted = |name: &str| {
        let keys = resource.configuration_keys.as_ref();
        keys.is_none_or(|keys| keys.is_empty() || keys.iter().any(|key| **key == *name))
    };
    let configs = settings.into_iter().filter(|setting| wanted(setting.name));
    result.with_configs(configs.map(|setting| shape.apply(setting)).collect())
}

fn settings(
    node: &Node,
    call: &Call,
    resource_type: i8,
    name: &str,
) -> Result<Vec<Setting>, (KafkaError, StrBytes)> {
    match resource_type {
        RESOURCE_TOPIC => {
            let partitions = node.topic(name);
            let Some(first) = partitions.first() else { return Err(refusal::unknown(name)) };
            let mirror = first.mirror.as_ref().map(|mirror| mirror.name.to_string());
            Ok(topic_settings(name, mirror))
        }
        // An empty name asks for what all brokers have by default: nothing is set there.
        RESOURCE_BROKER if name.is_empty() => Ok(Vec::new()),
        RESOURCE_BROKER if name == node.identity.advertised.node_id.to_string() => {
            Ok(broker_settings(node, call))
        }
        RESOURCE_CLIENT_METRICS | RESOURCE_GROUP => Ok(Vec::new()),
        RESOURCE_BROKER => Err((KafkaError::INVALID_REQUEST, text("there is no such broker"))),
        _ => {
            let reason = "this node describes topics and itself";
            Err((KafkaError::INVALID_REQUEST, text(reason)))
        }
    }
}

fn topic_settings(name: &str, mirror: Option<String>) -> Vec<Setting> {
    use ValueType::{Integer, List, Long, Text};
    let kept = |name, value: &str, value_type, documentation| Setting {
        name,
        value: value.into(),
        source: SOURCE_DEFAULT,
        value_type,
        documentation,
    };
    let cleanup = if name == OFFSETS_TOPIC { "compact" } else { "delete" };
    let unlimited = i32::MAX.to_string();
    let mut settings = vec![
        kept("cleanup.policy", cleanup, List, "Deletion follows the source while mirroring."),
        kept("compression.type", "producer", Text, "Batches are kept as the source has them."),
        kept("max.message.bytes", &unlimited, Integer, "What the source accepted is accepted."),
        kept("message.timestamp.type", "CreateTime", Text, "Timestamps are the source's."),
        kept("min.insync.replicas", "1", Integer, "This node alone keeps the topic."),
        kept("retention.bytes", "-1", Long, "Nothing is deleted that the source still has."),
        kept("retention.ms", "-1", Long, "Nothing is deleted that the source still has."),
    ];
    if let Some(mirror) = mirror {
        settings.push(Setting {
            name: "mirror.name",
            value: mirror,
            source: SOURCE_TOPIC,
            value_type: Text,
            documentation: "The mirror that copies this topic.",
        });
    }
    settings
}

fn broker_settings(node: &Node, call: &Call) -> Vec<Setting> {
    use ValueType::{Boolean, Integer, Text};
    let fixed = |name, value: String, value_type, documentation| Setting {
        name,
        value,
        source: SOURCE_BROKER_FILE,
        value_type,
        documentation,
    };
    let id = node.identity.advertised.node_id.to_string();
    let listener = format!("PLAINTEXT://{}:{}", &*node.host(call), node.port(call));
    let partitions = crate::groups::OFFSETS_PARTITIONS.to_string();
    vec![
        fixed("advertised.listeners", listener, Text, "Where clients reach this node."),
        fixed("auto.create.topics.enable", "false".into(), Boolean, "Topics come from mirrors."),
        fixed("broker.id", id.clone(), Integer, "This node."),
        fixed("node.id", id, Integer, "This node."),
        fixed("offsets.topic.num.partitions", partitions, Integer, "Of group offsets."),
    ]
}

impl Shape {
    fn apply(&self, setting: Setting) -> DescribeConfigsResourceResult {
        let value = text(setting.value);
        let mut result = DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_static_str(setting.name))
            .with_read_only(true)
            .with_config_source(setting.source);
        if self.synonyms {
            result.synonyms = vec![
                DescribeConfigsSynonym::default()
                    .with_name(StrBytes::from_static_str(setting.name))
                    .with_value(Some(value.clone()))
                    .with_source(setting.source),
            ];
        }
        if self.types {
            result.config_type = setting.value_type as i8;
            result.documentation =
                self.documentation.then(|| StrBytes::from_static_str(setting.documentation));
        }
        result.with_value(Some(value))
    }
}
