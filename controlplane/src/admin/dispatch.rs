//! Which requests the control plane answers, and who answers each.

use bytes::Bytes;
use dataplane::serve::HOT_APIS;
use dataplane::wire::ApiKey;
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest};
use kafka_protocol::protocol::Request;

use super::api::ColdApi;
use super::call::{Call, CallError};
use super::{
    api_versions, create_cluster_mirror, describe_cluster_mirrors, find_coordinator, kip1279,
    list_cluster_mirrors, metadata, start_mirror_topics,
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
const COLD_APIS: &[ApiRange] = &[
    range::<MetadataRequest>(0, 13),
    range::<FindCoordinatorRequest>(0, 6),
    api_versions::RANGE,
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

impl ColdApi {
    pub(super) async fn dispatch(&self, call: &Call, body: Bytes) -> Result<Bytes, CallError> {
        let (key, version) = (call.key.0, call.version);
        if key == api_versions::RANGE.key {
            return api_versions::answer(call, body);
        }
        let served = COLD_APIS.iter().find(|range| range.key == key);
        if served.is_some_and(|range| (range.min..=range.max).contains(&version)) {
            if let Some(frame) = self.answer_cluster(call, &body)? {
                return Ok(frame);
            }
            if let Some(frame) = self.answer_mirrors(call, &body).await? {
                return Ok(frame);
            }
        }
        Err(CallError::Unsupported { key, version })
    }

    /// Questions about this node and its topics.
    fn answer_cluster(&self, call: &Call, body: &Bytes) -> Result<Option<Bytes>, CallError> {
        let node = &self.node;
        let frame = match call.key.0 {
            MetadataRequest::KEY => call.encode(&metadata::answer(node, call, call.decode(body)?)),
            FindCoordinatorRequest::KEY => {
                call.encode(&find_coordinator::answer(node, call, call.decode(body)?))
            }
            _ => return Ok(None),
        };
        frame.map(Some)
    }

    /// KIP-1279's requests.
    async fn answer_mirrors(&self, call: &Call, body: &[u8]) -> Result<Option<Bytes>, CallError> {
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
