//! Leader epochs: fencing of clients with an old view, and the ends of epochs
//! (OffsetForLeaderEpoch, KIP-101, KIP-320).

use storage::{LeaderEpoch, Offset};

use super::errors;
use crate::partition::{Partition, PartitionTable};
use crate::wire::{
    OffsetForLeaderEpochAnswer, OffsetForLeaderEpochAnswerPartition,
    OffsetForLeaderEpochAnswerTopic, OffsetForLeaderEpochPartition, OffsetForLeaderEpochRequest,
};

/// Compares the epoch a client believes in, -1 for none, with ours.
pub(super) fn check_current(partition: &Partition, current_leader_epoch: i32) -> Result<(), i16> {
    if current_leader_epoch < 0 {
        return Ok(());
    }
    match current_leader_epoch.cmp(&partition.advertised_epoch().0) {
        std::cmp::Ordering::Less => Err(errors::FENCED_LEADER_EPOCH),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(errors::UNKNOWN_LEADER_EPOCH),
    }
}

/// Where `epoch` ended, as Kafka answers it: the largest epoch not above it and that one's end.
/// `None` for an epoch that is not known yet.
///
/// The advertised epoch may be above every batch's: it began at the log end, and nothing was
/// written in it. An epoch below all known ones ended where the first of those begins.
pub(super) fn end_of_epoch(partition: &Partition, epoch: i32) -> Option<(i32, i64)> {
    let advertised = partition.advertised_epoch().0;
    if epoch < 0 || epoch > advertised {
        return None;
    }
    let log = &partition.log;
    let latest = log.latest_epoch().0;
    let Offset(log_end) = log.log_end();
    if epoch == advertised {
        return Some((epoch, log_end));
    }
    if epoch >= latest {
        let known = if latest >= 0 { latest } else { epoch };
        return Some((known, log_end));
    }
    match log.epoch_end(LeaderEpoch(epoch)) {
        Some(end) => Some((end.epoch.0, end.end_offset.0)),
        None => Some((epoch, log.log_start().0)),
    }
}

/// The epoch of the log start. Where nothing was ever written it is the advertised one, which
/// begins there, as on a leader that begins its epoch in an empty log.
pub(super) fn of_log_start(partition: &Partition, start: Offset) -> i32 {
    let known = partition.log.epoch_at(start).0;
    if known < 0 && start >= partition.log.log_end() {
        return partition.advertised_epoch().0;
    }
    known
}

/// Answers OffsetForLeaderEpoch.
pub(super) fn answer(
    request: &OffsetForLeaderEpochRequest,
    table: &PartitionTable,
) -> OffsetForLeaderEpochAnswer {
    let topics = request
        .topics
        .iter()
        .map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let found = look_up(table, &topic.topic, asked);
                let (leader_epoch, end_offset) = found.ok().flatten().unwrap_or((-1, -1));
                OffsetForLeaderEpochAnswerPartition {
                    partition: asked.partition,
                    error_code: found.err().unwrap_or(errors::NONE),
                    leader_epoch,
                    end_offset,
                }
            });
            let partitions = partitions.collect();
            OffsetForLeaderEpochAnswerTopic { topic: topic.topic.clone(), partitions }
        })
        .collect();
    OffsetForLeaderEpochAnswer { throttle_time_ms: 0, topics }
}

fn look_up(
    table: &PartitionTable,
    topic: &str,
    asked: &OffsetForLeaderEpochPartition,
) -> Result<Option<(i32, i64)>, i16> {
    let partition =
        table.by_name(topic, asked.partition).ok_or(errors::UNKNOWN_TOPIC_OR_PARTITION)?;
    check_current(&partition, asked.current_leader_epoch)?;
    Ok(end_of_epoch(&partition, asked.leader_epoch))
}
