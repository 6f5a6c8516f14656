//! ListClusterMirrors, 0 (KIP-1279): every mirror, with its topics when asked.

use super::kip1279::{
    ListClusterMirrorsRequest, ListClusterMirrorsResponse, ListedMirror, ResponseHead,
};
use crate::mirror::Mirrors;

pub(super) async fn answer(
    mirrors: &Mirrors,
    request: ListClusterMirrorsRequest,
) -> ListClusterMirrorsResponse {
    let listed = mirrors.list().await.into_iter().map(|mirror| ListedMirror {
        mirror_name: mirror.name,
        source_bootstrap: mirror.source_bootstrap,
        source_cluster_id: mirror.source_cluster_id,
        topic_count: i32::try_from(mirror.topics.len()).unwrap_or(i32::MAX),
        topic_names: if request.include_topic_names { mirror.topics } else { Vec::new() },
    });
    ListClusterMirrorsResponse { head: ResponseHead::default(), mirrors: listed.collect() }
}
