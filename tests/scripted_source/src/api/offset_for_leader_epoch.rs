//! OffsetForLeaderEpoch: versions 2 to 4. The end of the largest epoch at or below the one asked,
//! from the batches' own epochs. Checks leader and epoch.

use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::{epoch_error, errors};
use crate::call::Call;
use crate::cluster::State;

/// API key.
pub const KEY: i16 = 23;
/// Versions spoken unless the test says otherwise.
pub(crate) const VERSIONS: (i16, i16) = (2, 4);

pub(crate) fn answer(
    state: &State,
    call: &Call,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topic = |asked: &OffsetForLeaderTopic| {
        let partition = |partition: &OffsetForLeaderPartition| {
            let answer = EpochEndOffset::default()
                .with_partition(partition.partition)
                .with_leader_epoch(-1)
                .with_end_offset(-1);
            let Some(log) = state.partition(&asked.topic, partition.partition) else {
                return answer.with_error_code(errors::UNKNOWN_TOPIC_OR_PARTITION);
            };
            let error = match log.error {
                0 if log.leader != call.broker => errors::NOT_LEADER_OR_FOLLOWER,
                0 => epoch_error(partition.current_leader_epoch, log.leader_epoch),
                error => error,
            };
            if error != 0 {
                return answer.with_error_code(error);
            }
            let (epoch, end_offset) = log.end_of_epoch(partition.leader_epoch).unwrap_or((-1, -1));
            answer.with_leader_epoch(epoch).with_end_offset(end_offset)
        };
        OffsetForLeaderTopicResult::default()
            .with_topic(asked.topic.clone())
            .with_partitions(asked.partitions.iter().map(partition).collect())
    };
    OffsetForLeaderEpochResponse::default().with_topics(request.topics.iter().map(topic).collect())
}
