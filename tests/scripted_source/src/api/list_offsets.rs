//! ListOffsets: versions 1 to 10. Earliest (-2), latest (-1, the last stable offset for read
//! committed); any other timestamp finds nothing. Checks leader and epoch.

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::{epoch_error, errors};
use crate::call::Call;
use crate::cluster::State;
use crate::log::PartitionLog;

/// API key.
pub const KEY: i16 = 2;
/// Versions spoken unless the test says otherwise.
pub(crate) const VERSIONS: (i16, i16) = (1, 10);

pub(crate) fn answer(
    state: &State,
    call: &Call,
    request: &ListOffsetsRequest,
) -> ListOffsetsResponse {
    let committed = request.isolation_level == 1;
    let topic = |asked: &ListOffsetsTopic| {
        let partition = |partition: &ListOffsetsPartition| {
            let log = state.partition(&asked.name, partition.partition_index);
            one(log, call, partition, committed)
        };
        ListOffsetsTopicResponse::default()
            .with_name(asked.name.clone())
            .with_partitions(asked.partitions.iter().map(partition).collect())
    };
    ListOffsetsResponse::default().with_topics(request.topics.iter().map(topic).collect())
}

fn one(
    log: Option<&PartitionLog>,
    call: &Call,
    asked: &ListOffsetsPartition,
    committed: bool,
) -> ListOffsetsPartitionResponse {
    let answer = ListOffsetsPartitionResponse::default()
        .with_partition_index(asked.partition_index)
        .with_timestamp(-1)
        .with_offset(-1);
    let Some(log) = log else {
        return answer.with_error_code(errors::UNKNOWN_TOPIC_OR_PARTITION);
    };
    let error = match log.error {
        0 if log.leader != call.broker => errors::NOT_LEADER_OR_FOLLOWER,
        0 => epoch_error(asked.current_leader_epoch, log.leader_epoch),
        error => error,
    };
    if error != 0 {
        return answer.with_error_code(error);
    }
    let offset = match asked.timestamp {
        -2 => log.log_start,
        -1 if committed => log.stable_end(),
        -1 => log.readable_end(),
        _ => return answer,
    };
    let answer = answer.with_offset(offset);
    if call.version >= 4 { answer.with_leader_epoch(log.leader_epoch) } else { answer }
}
