//! InitProducerId, 0 to 5: an id for idempotent producers, none for transactional ones.
//!
//! No write is ever accepted, so why hand out ids? A plain Java producer is idempotent unless it
//! is told otherwise, and this answer has no room for a reason: refused here, Java says no more
//! than "unexpected error", and librdkafka asks again until its messages time out. With an id they
//! go on to produce, and get the refusal that names the mirror. A transactional producer is told
//! the one error that every client holds for final.

use std::sync::atomic::{AtomicI64, Ordering};

use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};

use super::errors::KafkaError;

/// Where our ids begin: far above any that a source counts up to from 0, so that none of ours can
/// be one in a mirrored log.
const FIRST_PRODUCER_ID: i64 = 1 << 62;

/// The next id. Never stored: nothing is ever written with one, so one that is given again after a
/// restart collides with nothing.
#[derive(Debug)]
pub(super) struct ProducerIds(AtomicI64);

impl Default for ProducerIds {
    fn default() -> Self {
        Self(AtomicI64::new(FIRST_PRODUCER_ID))
    }
}

pub(super) fn answer(ids: &ProducerIds, request: &InitProducerIdRequest) -> InitProducerIdResponse {
    if request.transactional_id.is_some() {
        return InitProducerIdResponse::default()
            .with_error_code(KafkaError::TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
    }
    let id = ids.0.fetch_add(1, Ordering::Relaxed);
    InitProducerIdResponse::default().with_producer_id(ProducerId(id)).with_producer_epoch(0)
}
