//! CreateClusterMirror, 0 (KIP-1279): makes a mirror after its source was checked.

use super::kip1279::{CreateClusterMirrorRequest, CreateClusterMirrorResponse, ResponseHead};
use crate::mirror::Mirrors;

pub(super) async fn answer(
    mirrors: &Mirrors,
    request: CreateClusterMirrorRequest,
) -> CreateClusterMirrorResponse {
    let config = request.configs.into_iter().map(|config| (config.name, config.value)).collect();
    let head = match mirrors.create(&request.mirror_name, config).await {
        Ok(()) => ResponseHead::default(),
        Err(error) => ResponseHead::of(&error),
    };
    CreateClusterMirrorResponse { head }
}
