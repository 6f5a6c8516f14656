//! ListOffsets: the special timestamps, and searches by time. No input or output of its own.

use std::collections::HashSet;

use storage::{Offset, TimestampOffset};

use super::epochs;
use super::errors;
use crate::partition::{Partition, PartitionTable};
use crate::wire::{
    IsolationLevel, ListOffsetsAnswer, ListOffsetsAnswerPartition, ListOffsetsAnswerTopic,
    ListOffsetsPartition, ListOffsetsRequest,
};

/// The end of what the reader may see.
const LATEST: i64 = -1;
/// The log start.
const EARLIEST: i64 = -2;
/// The record with the largest timestamp (KIP-734).
const MAX_TIMESTAMP: i64 = -3;
/// The start of what is on local disks (KIP-405): the log start, as nothing is elsewhere.
const EARLIEST_LOCAL: i64 = -4;
/// The end of what is in remote storage (KIP-1005): there is none.
const LATEST_TIERED: i64 = -5;
/// The start of what is still to be uploaded (KIP-1023): there is nothing.
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// Answers a request.
pub(super) fn answer(
    request: &ListOffsetsRequest,
    version: i16,
    table: &PartitionTable,
) -> ListOffsetsAnswer {
    let duplicates = duplicates(request);
    let topics = request
        .topics
        .iter()
        .map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let found = if duplicates.contains(&(&*topic.topic, asked.partition)) {
                    Err(errors::INVALID_REQUEST)
                } else {
                    look_up(table, &topic.topic, asked, request.isolation, version)
                };
                answer_partition(asked.partition, found)
            });
            let partitions = partitions.collect();
            ListOffsetsAnswerTopic { topic: topic.topic.clone(), partitions }
        })
        .collect();
    ListOffsetsAnswer { throttle_time_ms: 0, topics }
}

/// What is answered for a partition: timestamp, offset and epoch, each -1 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    timestamp: i64,
    offset: i64,
    leader_epoch: i32,
}

const NOTHING: Found = Found { timestamp: -1, offset: -1, leader_epoch: -1 };

fn answer_partition(partition: i32, found: Result<Found, i16>) -> ListOffsetsAnswerPartition {
    let error_code = found.err().unwrap_or(errors::NONE);
    let Found { timestamp, offset, leader_epoch } = found.unwrap_or(NOTHING);
    ListOffsetsAnswerPartition { partition, error_code, timestamp, offset, leader_epoch }
}

fn duplicates(request: &ListOffsetsRequest) -> HashSet<(&str, i32)> {
    let mut seen = HashSet::new();
    let all = request
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|asked| (&*topic.topic, asked.partition)));
    all.filter(|partition| !seen.insert(*partition)).collect()
}

/// Whether a version knows a special timestamp. Numbers below all known ones are reserved.
fn is_supported(timestamp: i64, version: i16) -> bool {
    match timestamp {
        0.. | LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        EARLIEST_PENDING_UPLOAD => version >= 11,
        _ => false,
    }
}

fn look_up(
    table: &PartitionTable,
    topic: &str,
    asked: &ListOffsetsPartition,
    isolation: IsolationLevel,
    version: i16,
) -> Result<Found, i16> {
    if !is_supported(asked.timestamp, version) {
        return Err(errors::UNSUPPORTED_VERSION);
    }
    let partition =
        table.by_name(topic, asked.partition).ok_or(errors::UNKNOWN_TOPIC_OR_PARTITION)?;
    epochs::check_current(&partition, asked.current_leader_epoch)?;
    let log = &partition.log;
    let searched = match asked.timestamp {
        LATEST => {
            let leader_epoch = partition.advertised_epoch().0;
            return Ok(Found {
                offset: readable_end(&partition, isolation).0,
                leader_epoch,
                ..NOTHING
            });
        }
        EARLIEST | EARLIEST_LOCAL => {
            let start = log.log_start();
            return Ok(Found {
                offset: start.0,
                leader_epoch: epochs::of_log_start(&partition, start),
                ..NOTHING
            });
        }
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => return Ok(NOTHING),
        MAX_TIMESTAMP => log.offset_of_max_timestamp(),
        timestamp => log.offset_for_timestamp(timestamp),
    };
    let found = searched.map_err(|error| {
        partition.read_failed(&error);
        errors::STORAGE
    })?;
    Ok(visible(found, readable_end(&partition, isolation)))
}

/// What was found, unless the reader may not see it yet.
fn visible(found: Option<TimestampOffset>, readable_end: Offset) -> Found {
    match found {
        Some(record) if record.offset < readable_end => Found {
            timestamp: record.timestamp_ms,
            offset: record.offset.0,
            leader_epoch: record.leader_epoch.0,
        },
        _ => NOTHING,
    }
}

fn readable_end(partition: &Partition, isolation: IsolationLevel) -> Offset {
    match isolation {
        IsolationLevel::ReadCommitted => partition.log.last_stable_offset(),
        IsolationLevel::ReadUncommitted => partition.log.log_end(),
    }
}
