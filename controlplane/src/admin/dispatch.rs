//! Which requests the control plane answers, and who answers each.

use bytes::Bytes;
use dataplane::serve::HOT_APIS;
use dataplane::wire::ApiKey;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterPartitionReassignmentsRequest, CreatePartitionsRequest,
    CreateTopicsRequest, DeleteGroupsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeAclsRequest, DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest,
    DescribeLogDirsRequest, DescribeTopicPartitionsRequest, ElectLeadersRequest,
    FindCoordinatorRequest, HeartbeatRequest, IncrementalAlterConfigsRequest,
    InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest,
    ListPartitionReassignmentsRequest, MetadataRequest, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::Request;

use super::api::{Broker, ColdApi};
use super::call::{Call, CallError};
use super::{
    alter_configs, alter_partition_reassignments, api_versions, create_cluster_mirror,
    create_partitions, create_topics, delete_groups, delete_records, delete_topics, describe_acls,
    describe_cluster, describe_cluster_mirrors, describe_configs, describe_groups,
    describe_log_dirs, describe_topic_partitions, elect_leaders, find_coordinator, heartbeat,
    incremental_alter_configs, init_producer_id, join_group, kip1279, leave_group,
    list_cluster_mirrors, list_groups, list_partition_reassignments, metadata, offset_commit,
    offset_delete, offset_fetch, start_mirror_topics, sync_group,
};

/// An API and the versions of it that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ApiRange {
    pub(super) key: i16,
    pub(super) min: i16,
    pub(super) max: i16,
}

const fn range<R: Request>(min: i16, max: i16) -> ApiRange {
    ApiRange { key: R::KEY, min, max }
}

const fn mirror_range(key: ApiKey) -> ApiRange {
    ApiRange { key: key.0, min: kip1279::VERSION, max: kip1279::VERSION }
}

/// What the control plane answers.
pub(super) const COLD_APIS: &[ApiRange] = &[
    range::<MetadataRequest>(0, 13),
    range::<OffsetCommitRequest>(2, 9),
    range::<OffsetFetchRequest>(1, 9),
    range::<FindCoordinatorRequest>(0, 6),
    range::<JoinGroupRequest>(0, 9),
    range::<HeartbeatRequest>(0, 4),
    range::<LeaveGroupRequest>(0, 5),
    range::<SyncGroupRequest>(0, 5),
    range::<DescribeGroupsRequest>(0, 6),
    range::<ListGroupsRequest>(0, 5),
    api_versions::RANGE,
    range::<CreateTopicsRequest>(2, 7),
    range::<DeleteTopicsRequest>(1, 6),
    range::<DeleteRecordsRequest>(0, 2),
    range::<InitProducerIdRequest>(0, 5),
    range::<DescribeAclsRequest>(1, 3),
    range::<DescribeConfigsRequest>(1, 4),
    range::<AlterConfigsRequest>(0, 2),
    range::<DescribeLogDirsRequest>(1, 4),
    range::<CreatePartitionsRequest>(0, 3),
    range::<DeleteGroupsRequest>(0, 2),
    range::<ElectLeadersRequest>(0, 2),
    range::<IncrementalAlterConfigsRequest>(0, 1),
    range::<AlterPartitionReassignmentsRequest>(0, 1),
    range::<ListPartitionReassignmentsRequest>(0, 0),
    range::<OffsetDeleteRequest>(0, 0),
    range::<DescribeClusterRequest>(0, 2),
    range::<DescribeTopicPartitionsRequest>(0, 0),
    mirror_range(kip1279::CREATE_CLUSTER_MIRROR),
    mirror_range(kip1279::START_MIRROR_TOPICS),
    mirror_range(kip1279::LIST_CLUSTER_MIRRORS),
    mirror_range(kip1279::DESCRIBE_CLUSTER_MIRRORS),
];

/// What this node answers, on the cores and here, by API key.
pub(super) fn served_apis() -> impl Iterator<Item = ApiRange> {
    let hot = HOT_APIS.iter().map(|&(key, min, max)| ApiRange { key, min, max });
    let mut served: Vec<_> = hot.chain(COLD_APIS.iter().copied()).collect();
    served.sort_by_key(|range| range.key);
    served.into_iter()
}

fn is_served(call: &Call) -> bool {
    let range = COLD_APIS.iter().find(|range| range.key == call.key.0);
    range.is_some_and(|range| (range.min..=range.max).contains(&call.version))
}

/// An answer, or `None` from a family of requests that this one is not of.
type Answered = Result<Option<Bytes>, CallError>;

impl ColdApi {
    pub(super) async fn dispatch(&self, call: &Call, body: Bytes) -> Result<Bytes, CallError> {
        if let Some(frame) = self.broker.answer(call, &body).await? {
            return Ok(frame);
        }
        if let Some(frame) = self.answer_mirrors(call, &body).await? {
            return Ok(frame);
        }
        Err(CallError::Unsupported { key: call.key.0, version: call.version })
    }

    /// KIP-1279's requests.
    async fn answer_mirrors(&self, call: &Call, body: &[u8]) -> Answered {
        if !is_served(call) {
            return Ok(None);
        }
        let mirrors = &self.mirrors;
        let frame = match call.key {
            kip1279::CREATE_CLUSTER_MIRROR => {
                let request = call.decode_mirror(body)?;
                call.encode_mirror(&create_cluster_mirror::answer(mirrors, request).await)
            }
            kip1279::START_MIRROR_TOPICS => {
                let request = call.decode_mirror(body)?;
                call.encode_mirror(&start_mirror_topics::answer(mirrors, request).await)
            }
            kip1279::LIST_CLUSTER_MIRRORS => {
                let request = call.decode_mirror(body)?;
                call.encode_mirror(&list_cluster_mirrors::answer(mirrors, request).await)
            }
            kip1279::DESCRIBE_CLUSTER_MIRRORS => {
                let request = call.decode_mirror(body)?;
                call.encode_mirror(&describe_cluster_mirrors::answer(mirrors, request).await)
            }
            _ => return Ok(None),
        };
        Ok(Some(frame))
    }
}

impl Broker {
    /// Kafka's own requests.
    pub(super) async fn answer(&self, call: &Call, body: &Bytes) -> Answered {
        if call.key.0 == api_versions::RANGE.key {
            return api_versions::answer(call, body).map(Some);
        }
        if !is_served(call) {
            return Ok(None);
        }
        if let Some(frame) = self.answer_questions(call, body)? {
            return Ok(Some(frame));
        }
        if let Some(frame) = self.answer_members(call, body).await? {
            return Ok(Some(frame));
        }
        if let Some(frame) = self.answer_offsets(call, body).await? {
            return Ok(Some(frame));
        }
        self.answer_changes(call, body)
    }

    /// Questions about this node, its topics and its groups.
    fn answer_questions(&self, call: &Call, body: &Bytes) -> Answered {
        let (node, groups) = (&self.node, &self.groups);
        let frame = match call.key.0 {
            MetadataRequest::KEY => call.encode(&metadata::answer(node, call, call.decode(body)?)),
            FindCoordinatorRequest::KEY => {
                call.encode(&find_coordinator::answer(node, call, call.decode(body)?))
            }
            DescribeClusterRequest::KEY => {
                call.encode(&describe_cluster::answer(node, call, &call.decode(body)?))
            }
            DescribeTopicPartitionsRequest::KEY => {
                call.encode(&describe_topic_partitions::answer(node, call.decode(body)?))
            }
            DescribeConfigsRequest::KEY => {
                call.encode(&describe_configs::answer(node, call, call.decode(body)?))
            }
            DescribeLogDirsRequest::KEY => {
                call.encode(&describe_log_dirs::answer(node, call.decode(body)?))
            }
            DescribeAclsRequest::KEY => call.encode(&describe_acls::answer(call.decode(body)?)),
            ListPartitionReassignmentsRequest::KEY => {
                call.encode(&list_partition_reassignments::answer(call.decode(body)?))
            }
            ListGroupsRequest::KEY => {
                call.encode(&list_groups::answer(groups, call, &call.decode(body)?))
            }
            DescribeGroupsRequest::KEY => {
                call.encode(&describe_groups::answer(groups, call, call.decode(body)?))
            }
            OffsetFetchRequest::KEY => {
                call.encode(&offset_fetch::answer(groups, call, call.decode(body)?))
            }
            _ => return Ok(None),
        };
        frame.map(Some)
    }

    /// What members of groups say.
    async fn answer_members(&self, call: &Call, body: &Bytes) -> Answered {
        let groups = &self.groups;
        let frame = match call.key.0 {
            JoinGroupRequest::KEY => {
                call.encode(&join_group::answer(groups, call, call.decode(body)?).await)
            }
            SyncGroupRequest::KEY => {
                call.encode(&sync_group::answer(groups, call, call.decode(body)?).await)
            }
            HeartbeatRequest::KEY => call.encode(&heartbeat::answer(groups, &call.decode(body)?)),
            LeaveGroupRequest::KEY => {
                call.encode(&leave_group::answer(groups, call, call.decode(body)?))
            }
            _ => return Ok(None),
        };
        frame.map(Some)
    }

    /// Changes to groups and their offsets: what this node does keep for its clients.
    async fn answer_offsets(&self, call: &Call, body: &Bytes) -> Answered {
        let (node, groups) = (&self.node, &self.groups);
        let frame = match call.key.0 {
            OffsetCommitRequest::KEY => {
                call.encode(&offset_commit::answer(groups, node, call.decode(body)?).await)
            }
            OffsetDeleteRequest::KEY => {
                call.encode(&offset_delete::answer(groups, call.decode(body)?).await)
            }
            DeleteGroupsRequest::KEY => {
                call.encode(&delete_groups::answer(groups, call.decode(body)?).await)
            }
            InitProducerIdRequest::KEY => {
                call.encode(&init_producer_id::answer(&self.producer_ids, &call.decode(body)?))
            }
            _ => return Ok(None),
        };
        frame.map(Some)
    }

    /// Changes to topics and settings: refused, each in its own layout.
    fn answer_changes(&self, call: &Call, body: &Bytes) -> Answered {
        let node = &self.node;
        let frame = match call.key.0 {
            CreateTopicsRequest::KEY => {
                call.encode(&create_topics::answer(node, call, call.decode(body)?))
            }
            DeleteTopicsRequest::KEY => {
                call.encode(&delete_topics::answer(node, call, call.decode(body)?))
            }
            CreatePartitionsRequest::KEY => {
                call.encode(&create_partitions::answer(node, call.decode(body)?))
            }
            DeleteRecordsRequest::KEY => {
                call.encode(&delete_records::answer(node, call.decode(body)?))
            }
            AlterConfigsRequest::KEY => {
                call.encode(&alter_configs::answer(node, call.decode(body)?))
            }
            IncrementalAlterConfigsRequest::KEY => {
                call.encode(&incremental_alter_configs::answer(node, call.decode(body)?))
            }
            AlterPartitionReassignmentsRequest::KEY => {
                call.encode(&alter_partition_reassignments::answer(node, call.decode(body)?))
            }
            ElectLeadersRequest::KEY => {
                call.encode(&elect_leaders::answer(node, call.decode(body)?))
            }
            _ => return Ok(None),
        };
        frame.map(Some)
    }
}
