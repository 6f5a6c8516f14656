//! The command line's side: asks a node about its mirrors over its Kafka port.

use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::{Address, AddressError, ClientError, ClientSettings, Connection, Security};
use crate::admin::kip1279::{
    CreateClusterMirrorRequest, CreateClusterMirrorResponse, DescribeClusterMirrorsRequest,
    DescribeClusterMirrorsResponse, DescribedMirror, ListClusterMirrorsRequest,
    ListClusterMirrorsResponse, Message, MirrorConfig, ResponseHead, StartMirrorTopicsRequest,
    StartMirrorTopicsResponse, VERSION,
};
use crate::config::{CommandConfig, MirrorConfigError};

/// For one answer of the node, which may have to ask the source first.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the node did not do it.
#[derive(Debug, thiserror::Error)]
pub enum AdminClientError {
    /// The address on the command line.
    #[error("--bootstrap-server: {0}")]
    Address(#[from] AddressError),
    /// The file on the command line.
    #[error("--command-config: {0}")]
    Config(#[from] MirrorConfigError),
    /// The node cannot be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The node refused.
    #[error("{message} (error {code})")]
    Refused {
        /// Kafka's or KIP-1279's code.
        code: i16,
        /// The node's words.
        message: String,
    },
    /// Nobody listens there.
    #[error("{0}; is a node running there? --bootstrap-server names it")]
    NoNode(ClientError),
    /// Somebody else's broker.
    #[error(
        "{0} speaks Kafka's protocol but is no Longhaul node; --bootstrap-server names the node, not the source"
    )]
    OtherBroker(Address),
    /// No thread for the connection.
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
}

/// One mirror of the list.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MirrorSummary {
    /// Name.
    pub mirror: String,
    /// Its topics.
    pub topics: Vec<String>,
    /// The source.
    pub source_cluster_id: String,
    /// Its addresses.
    pub source_bootstrap: String,
}

/// One partition, as `describe --json` prints it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MirrorRow {
    /// Mirror.
    pub mirror: String,
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// The source's end; null while unknown.
    pub source_offset: Option<i64>,
    /// Our end.
    pub destination_offset: i64,
    /// Their difference; null while unknown.
    pub lag: Option<i64>,
    /// KIP-1279's word.
    pub state: String,
    /// Attempts since the last success; -1 for a fault that is not retried.
    pub retry_attempt: i16,
    /// Cause.
    pub error_message: Option<String>,
    /// Epoch of our last batch, -1 for none.
    pub last_mirror_epoch: i32,
    /// The source.
    pub source_cluster_id: String,
}

/// A topic that was not started.
#[derive(Debug, Clone)]
pub struct RefusedTopic {
    /// Its name.
    pub topic: String,
    /// Why.
    pub message: String,
}

/// What a start did.
#[derive(Debug, Clone, Default)]
pub struct StartedTopics {
    /// Topics that are mirrored now.
    pub topics: Vec<String>,
    /// Topics that are not.
    pub refused: Vec<RefusedTopic>,
}

/// What a description found.
#[derive(Debug, Clone, Default)]
pub struct Described {
    /// All partitions.
    pub rows: Vec<MirrorRow>,
    /// Faults of mirrors as a whole.
    pub faults: Vec<String>,
    /// Whether a mirror that was named could not be described.
    pub refused: bool,
}

/// A connection to a node. Blocking: for the command line only.
#[derive(Debug)]
pub struct AdminClient {
    runtime: Runtime,
    connection: Connection,
}

impl AdminClient {
    /// Connects to `HOST:PORT`, with a Kafka client's properties if there are any.
    pub fn connect(
        bootstrap: &str,
        command_config: Option<&Path>,
    ) -> Result<Self, AdminClientError> {
        let addresses = Address::parse_list(bootstrap)?;
        let config = command_config.map(CommandConfig::read).transpose()?.unwrap_or_default();
        let settings = ClientSettings {
            client_id: config.client_id.unwrap_or_else(|| "longhaul-cli".to_owned()).into(),
            connect_timeout: CONNECT_TIMEOUT,
            request_timeout: config.request_timeout.unwrap_or(REQUEST_TIMEOUT),
            dead_path_timeout: REQUEST_TIMEOUT,
            security: Security::Plaintext,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut failed = None;
        for address in &addresses {
            match runtime.block_on(Connection::open(address, &settings)) {
                Ok(connection) if is_node(&connection) => return Ok(Self { runtime, connection }),
                Ok(_) => failed = Some(AdminClientError::OtherBroker(address.clone())),
                Err(error @ ClientError::Connect { .. }) => {
                    failed = Some(AdminClientError::NoNode(error));
                }
                Err(error) => failed = Some(error.into()),
            }
        }
        // A list is never empty.
        Err(failed.unwrap_or_else(|| ClientError::NoBroker(bootstrap.to_owned()).into()))
    }

    /// CreateClusterMirror.
    pub fn create_mirror(
        &mut self,
        mirror: &str,
        properties: Vec<(String, String)>,
    ) -> Result<(), AdminClientError> {
        let configs = properties
            .into_iter()
            .map(|(name, value)| MirrorConfig { name, value: Some(value) })
            .collect();
        let request = CreateClusterMirrorRequest { mirror_name: mirror.to_owned(), configs };
        let response: CreateClusterMirrorResponse = self.call("CreateClusterMirror", &request)?;
        accepted(response.head)
    }

    /// StartMirrorTopics.
    pub fn start_topics(
        &mut self,
        mirror: &str,
        include: Vec<String>,
        exclude: Vec<String>,
    ) -> Result<StartedTopics, AdminClientError> {
        let request = StartMirrorTopicsRequest {
            mirror_name: mirror.to_owned(),
            include_patterns: include,
            exclude_patterns: exclude,
            timeout_ms: i32::try_from(REQUEST_TIMEOUT.as_millis()).unwrap_or(i32::MAX),
        };
        let response: StartMirrorTopicsResponse = self.call("StartMirrorTopics", &request)?;
        accepted(response.head)?;
        let mut started = StartedTopics::default();
        for topic in response.topics {
            if topic.error_code == 0 {
                started.topics.push(topic.name);
                continue;
            }
            let code = topic.error_code;
            let message = topic.error_message.unwrap_or_else(|| format!("error {code}"));
            started.refused.push(RefusedTopic { topic: topic.name, message });
        }
        Ok(started)
    }

    /// ListClusterMirrors.
    pub fn list_mirrors(&mut self) -> Result<Vec<MirrorSummary>, AdminClientError> {
        let request = ListClusterMirrorsRequest { include_topic_names: true };
        let response: ListClusterMirrorsResponse = self.call("ListClusterMirrors", &request)?;
        accepted(response.head)?;
        let mirrors = response.mirrors.into_iter().map(|mirror| MirrorSummary {
            mirror: mirror.mirror_name,
            topics: mirror.topic_names,
            source_cluster_id: mirror.source_cluster_id,
            source_bootstrap: mirror.source_bootstrap,
        });
        Ok(mirrors.collect())
    }

    /// DescribeClusterMirrors; no name means all.
    pub fn describe_mirrors(&mut self, names: &[String]) -> Result<Described, AdminClientError> {
        let request = DescribeClusterMirrorsRequest {
            mirror_names: names.to_vec(),
            ..DescribeClusterMirrorsRequest::default()
        };
        let response: DescribeClusterMirrorsResponse =
            self.call("DescribeClusterMirrors", &request)?;
        accepted(response.head)?;
        let mut described = Described::default();
        for mirror in response.mirrors {
            describe_one(mirror, &mut described);
        }
        Ok(described)
    }

    fn call<Q: Message, A: Message>(
        &mut self,
        what: &'static str,
        request: &Q,
    ) -> Result<A, AdminClientError> {
        let mut body = BytesMut::new();
        request.encode(&mut body);
        let asked = self.connection.call_raw(what, Q::API_KEY.0, VERSION, &body);
        let answer = self.runtime.block_on(asked)?;
        A::decode(&answer).map_err(|error| self.connection.malformed(what, error).into())
    }
}

/// Whether the peer speaks KIP-1279's requests: a broker that does not would only hang up on them.
fn is_node(connection: &Connection) -> bool {
    connection.versions().span(ListClusterMirrorsRequest::API_KEY.0).is_some()
}

fn accepted(head: ResponseHead) -> Result<(), AdminClientError> {
    if head.error_code == 0 {
        return Ok(());
    }
    let message = head.error_message.unwrap_or_else(|| "the node refused".to_owned());
    Err(AdminClientError::Refused { code: head.error_code, message })
}

fn describe_one(mirror: DescribedMirror, described: &mut Described) {
    let name = mirror.mirror_name;
    if let Some(fault) = mirror.error_message {
        described.faults.push(format!("mirror {name}: {fault}"));
    }
    described.refused |= mirror.error_code != 0;
    for topic in mirror.topics {
        for partition in topic.partitions {
            let source_offset = (partition.source_offset >= 0).then_some(partition.source_offset);
            described.rows.push(MirrorRow {
                mirror: name.clone(),
                topic: topic.topic_name.clone(),
                partition: partition.partition_index,
                source_offset,
                destination_offset: partition.destination_offset,
                lag: source_offset.map(|end| (end - partition.destination_offset).max(0)),
                state: partition.state_value,
                retry_attempt: partition.retry_attempt,
                error_message: partition.error_message,
                last_mirror_epoch: partition.last_mirror_epoch,
                source_cluster_id: mirror.source_cluster_id.clone(),
            });
        }
    }
}
