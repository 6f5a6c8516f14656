//! Planning of fetches against real logs, read back by another codec.

use std::time::Duration;

use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::PartitionData;

use super::errors;
use super::fetch::PendingFetch;
use super::testing::{Batch, Node, decode, partition_from, request, topic_id};
use crate::wire::{
    FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, IsolationLevel, TopicKey,
};

const VERSION: i16 = 12;

fn begin(
    node: &Node,
    request: FetchRequest,
    version: i16,
) -> (PendingFetch, Option<FetchResponse>) {
    let mut fetch = PendingFetch::new(request, version, 5, node.environment());
    let answer = fetch.look(node.environment());
    let answer = answer.map(|ready| decode(&ready, version));
    (fetch, answer)
}

fn answer(node: &Node, request: FetchRequest) -> FetchResponse {
    answer_at(node, request, VERSION)
}

fn answer_at(node: &Node, request: FetchRequest, version: i16) -> FetchResponse {
    begin(node, request, version).1.expect("an answer at once")
}

fn waits(node: &Node, request: FetchRequest) -> bool {
    begin(node, request, VERSION).1.is_none()
}

/// The answer's partitions with their topics' names.
fn partitions(response: &FetchResponse) -> Vec<(String, &PartitionData)> {
    response
        .responses
        .iter()
        .flat_map(|topic| {
            topic.partitions.iter().map(|partition| (topic.topic.to_string(), partition))
        })
        .collect()
}

fn only(response: &FetchResponse) -> &PartitionData {
    let all = partitions(response);
    assert_eq!(all.len(), 1, "one partition: {response:?}");
    all[0].1
}

fn records(partition: &PartitionData) -> &[u8] {
    partition.records.as_deref().expect("records are never null")
}

fn names(response: &FetchResponse) -> Vec<String> {
    partitions(response).into_iter().map(|(name, _)| name).collect()
}

fn code(partition: FetchPartition) -> i16 {
    let node = Node::new();
    let mut local = node.add("a", 0);
    local.append(&[Batch { epoch: 3, ..Batch::at(0, 10) }]);
    only(&answer(&node, request(&[("a", partition)]))).error_code
}

#[test]
fn records_come_as_they_are_stored() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    let first = local.append(&[Batch { records: 3, ..Batch::at(0, 100) }]);
    let rest = local.append(&[Batch::at(3, 50), Batch::at(4, 60)]);
    let response = answer(&node, request(&[("a", partition_from(0, 0))]));
    let partition = only(&response);
    assert_eq!(records(partition), [first.clone(), rest.clone()].concat());
    assert_eq!(partition.high_watermark, 5);
    assert_eq!(partition.last_stable_offset, 5);
    assert_eq!(partition.log_start_offset, 0);
    assert_eq!(partition.aborted_transactions, None, "null for a read-uncommitted reader");
    assert_eq!(partition.preferred_read_replica.0, -1);
    let within = answer(&node, request(&[("a", partition_from(0, 2))]));
    assert_eq!(records(only(&within)), [first, rest.clone()].concat(), "from its batch on");
    let later = answer(&node, request(&[("a", partition_from(0, 3))]));
    assert_eq!(records(only(&later)), rest);
}

#[test]
fn a_fetch_waits_for_its_minimum_bytes_and_no_longer() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    let mut want = request(&[("a", partition_from(0, 0))]);
    assert!(waits(&node, want.clone()));
    assert!(!waits(&node, FetchRequest { min_bytes: 0, ..want.clone() }));
    assert!(!waits(&node, FetchRequest { max_wait_ms: 0, ..want.clone() }));
    assert!(!waits(&node, FetchRequest { topics: Vec::new(), ..want.clone() }));
    let bytes = local.append(&[Batch::at(0, 100), Batch::at(1, 100)]).len() as i32;
    want.min_bytes = bytes;
    assert!(!waits(&node, want.clone()));
    want.min_bytes = bytes + 1;
    assert!(waits(&node, want.clone()));
    assert!(!waits(&node, FetchRequest { max_bytes: bytes, ..want }), "no more fits");
}

#[test]
fn a_fetch_does_not_wait_at_the_end_of_a_segment() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    for offset in 0..3 {
        local.append(&[Batch::at(offset, 600_000)]);
    }
    let want = FetchRequest { min_bytes: 1_000_000, ..request(&[("a", partition_from(0, 0))]) };
    let response = answer(&node, want.clone());
    assert!(records(only(&response)).len() < 1_000_000, "the rest is in the next segments");
    let committed = FetchRequest { isolation: IsolationLevel::ReadCommitted, ..want };
    assert!(!waits(&node, committed.clone()));
    let last = request(&[("a", partition_from(0, 2))]).topics;
    assert!(waits(&node, FetchRequest { topics: last, ..committed }), "nothing follows");
}

#[test]
fn after_its_wait_a_fetch_gets_what_there_is() {
    let mut node = Node::new();
    node.add("a", 0);
    let (mut fetch, early) = begin(&node, request(&[("a", partition_from(0, 0))]), VERSION);
    assert!(early.is_none());
    assert_eq!(fetch.deadline(), node.now + Duration::from_secs(60));
    node.now += Duration::from_secs(60);
    let late = decode(&fetch.look(node.environment()).expect("late"), VERSION);
    assert_eq!(only(&late).error_code, errors::NONE);
    assert_eq!(records(only(&late)), b"");
}

#[test]
fn only_the_first_batch_of_the_answer_exceeds_the_limits() {
    let node = Node::new();
    let mut locals: Vec<_> = ["empty", "a", "b"].map(|name| node.add(name, 0)).into();
    let first = locals[1].append(&[Batch::at(0, 1000), Batch::at(1, 1000)]);
    locals[2].append(&[Batch::at(0, 10)]);
    let whole = request(&[
        ("empty", partition_from(0, 0)),
        ("a", partition_from(0, 0)),
        ("b", partition_from(0, 0)),
    ]);
    let small = FetchRequest { max_bytes: 1, ..whole.clone() };
    let response = answer(&node, small);
    let sizes: Vec<usize> =
        partitions(&response).iter().map(|(_, partition)| records(partition).len()).collect();
    assert_eq!(sizes, [0, first.len() / 2, 0]);

    let mut by_partition = whole;
    for topic in &mut by_partition.topics {
        topic.partitions[0].max_bytes = 1;
    }
    let response = answer(&node, by_partition);
    let sizes: Vec<usize> =
        partitions(&response).iter().map(|(_, partition)| records(partition).len()).collect();
    assert_eq!(sizes, [0, first.len() / 2, 0], "the others' first batch does not fit");
}

#[test]
fn limits_cut_the_last_batch_as_kafka_does() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    let bytes = local.append(&[Batch::at(0, 100), Batch::at(1, 100)]);
    let mut one = partition_from(0, 0);
    one.max_bytes = bytes.len() as i32 - 1;
    let response = answer(&node, request(&[("a", one)]));
    assert_eq!(records(only(&response)), &bytes[..bytes.len() - 1]);
    let limited =
        FetchRequest { max_bytes: one.max_bytes, ..request(&[("a", partition_from(0, 0))]) };
    assert_eq!(records(only(&answer(&node, limited))), &bytes[..bytes.len() - 1]);
}

#[test]
fn the_answers_limit_counts_over_its_partitions() {
    let node = Node::new();
    let mut locals: Vec<_> = ["a", "b", "c"].map(|name| node.add(name, 0)).into();
    let bytes = locals.iter_mut().map(|local| local.append(&[Batch::at(0, 100)]).len()).sum();
    let all = request(&[
        ("a", partition_from(0, 0)),
        ("b", partition_from(0, 0)),
        ("c", partition_from(0, 0)),
    ]);
    let total = |max_bytes: usize| -> usize {
        let response = answer(&node, FetchRequest { max_bytes: max_bytes as i32, ..all.clone() });
        partitions(&response).iter().map(|(_, partition)| records(partition).len()).sum()
    };
    assert_eq!(total(bytes), bytes);
    assert_eq!(total(bytes - 1), bytes / 3 * 2, "the third batch does not fit");
    assert_eq!(total(bytes / 3), bytes / 3);
}

#[test]
fn an_error_answers_at_once_and_harms_no_other_partition() {
    let node = Node::new();
    node.add("idle", 0);
    let response = answer(
        &node,
        request(&[("unknown", partition_from(0, 0)), ("idle", partition_from(0, 0))]),
    );
    let all = partitions(&response);
    assert_eq!(all[0].0, "idle");
    assert_eq!(all[0].1.error_code, errors::NONE);
    assert_eq!((all[1].0.as_str(), all[1].1.error_code), ("unknown", 3));
    assert_eq!(all[1].1.high_watermark, -1);
    assert_eq!(records(all[1].1), b"");
    let beyond = answer(&node, request(&[("idle", partition_from(1, 0))]));
    assert_eq!(only(&beyond).error_code, errors::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn offsets_outside_the_log_are_out_of_range() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    local.append(&[Batch::at(0, 10), Batch::at(1, 10), Batch::at(2, 10)]);
    local.log.advance_log_start(storage::Offset(2)).expect("within the log");
    let at = |offset| only(&answer(&node, request(&[("a", partition_from(0, offset))]))).error_code;
    assert_eq!([at(-1), at(1), at(4)], [errors::OFFSET_OUT_OF_RANGE; 3]);
    assert_eq!(at(2), errors::NONE);
    assert!(waits(&node, request(&[("a", partition_from(0, 3))])), "the end is in range");
}

#[test]
fn leader_epochs_fence_readers_with_another_view() {
    let at = |epoch| FetchPartition { current_leader_epoch: epoch, ..partition_from(0, 0) };
    assert_eq!(code(at(-1)), errors::NONE);
    assert_eq!(code(at(3)), errors::NONE);
    assert_eq!(code(at(2)), errors::FENCED_LEADER_EPOCH);
    assert_eq!(code(at(4)), errors::UNKNOWN_LEADER_EPOCH);
}

#[test]
fn a_reader_of_another_history_is_told_where_it_diverges() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    local.append(&[Batch { epoch: 1, records: 10, ..Batch::at(0, 10) }]);
    local.append(&[Batch { epoch: 3, records: 10, ..Batch::at(10, 10) }]);
    let at = |fetch_offset, last_fetched_epoch| {
        let partition = FetchPartition { last_fetched_epoch, ..partition_from(0, fetch_offset) };
        let response = answer(&node, request(&[("a", partition)]));
        let found = only(&response);
        let diverging = (found.diverging_epoch.epoch, found.diverging_epoch.end_offset);
        (found.error_code, diverging, records(found).is_empty())
    };
    assert_eq!(at(10, 1), (0, (-1, -1), false), "the same history");
    assert_eq!(at(12, 1), (0, (1, 10), true), "its epoch 1 went on beyond ours");
    assert_eq!(at(15, 2), (0, (1, 10), true), "its epoch 2 never was here");
    assert_eq!(at(15, 3), (0, (-1, -1), false));
    assert_eq!(at(15, 4).0, errors::OFFSET_OUT_OF_RANGE, "an epoch not known yet");
}

#[test]
fn a_read_committed_reader_stops_at_open_transactions_and_hears_of_aborted_ones() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    let visible = local.append(&[
        Batch::of_transaction(0, 7),
        Batch::of_transaction(1, 8),
        Batch::end_of_transaction(2, 7, false),
        Batch::end_of_transaction(3, 8, true),
        Batch::at(4, 10),
    ]);
    let open = local.append(&[Batch::of_transaction(5, 9), Batch::at(6, 10)]);
    let want = request(&[("a", partition_from(0, 0))]);
    let all = answer(&node, want.clone());
    assert_eq!(records(only(&all)).len(), visible.len() + open.len());
    let committed = FetchRequest { isolation: IsolationLevel::ReadCommitted, ..want };
    let response = answer(&node, committed.clone());
    let partition = only(&response);
    assert_eq!(records(partition), visible);
    assert_eq!((partition.high_watermark, partition.last_stable_offset), (7, 5));
    let aborted = partition.aborted_transactions.as_ref().expect("a list");
    let aborted: Vec<_> = aborted.iter().map(|one| (one.producer_id.0, one.first_offset)).collect();
    assert_eq!(aborted, [(7, 0)]);

    let behind = FetchRequest {
        topics: request(&[("a", partition_from(0, 5))]).topics,
        max_wait_ms: 0,
        ..committed
    };
    let response = answer(&node, behind);
    assert_eq!(records(only(&response)), b"");
    assert_eq!(only(&response).aborted_transactions, Some(Vec::new()), "empty, not null");
}

#[test]
fn a_publish_between_the_look_and_the_wait_is_noticed() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    node.add("b", 0);
    let both = request(&[("a", partition_from(0, 0)), ("b", partition_from(0, 0))]);
    let (mut fetch, early) = begin(&node, both, VERSION);
    assert!(early.is_none());
    assert!(!fetch.changed_since_look());
    local.append(&[Batch::at(0, 10)]);
    assert!(fetch.changed_since_look());
    assert!(fetch.look(node.environment()).is_some());
}

#[test]
fn a_waiting_fetch_counts_bytes_over_its_partitions() {
    let node = Node::new();
    let mut locals: Vec<_> = ["a", "b"].map(|name| node.add(name, 0)).into();
    let batch_bytes = Batch::at(0, 100).encode().len() as i32;
    let mut want = request(&[("a", partition_from(0, 0)), ("b", partition_from(0, 0))]);
    want.min_bytes = batch_bytes * 3;
    let (mut fetch, early) = begin(&node, want, VERSION);
    assert!(early.is_none());
    let mut watches = fetch.watches();
    let mut publish = |which: usize, offset: i64| {
        locals[which].append(&[Batch::at(offset, 100)]);
        let partition = locals[which].partition.clone();
        fetch.partition_changed(&mut watches[which], &partition, &node.table)
    };
    assert!(!publish(0, 0));
    assert!(!publish(1, 0));
    assert!(publish(0, 1), "two batches of one and one of the other");
}

#[test]
fn a_waiting_fetch_is_answered_when_its_partition_is_deleted_or_cut() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    local.append(&[Batch::at(0, 10), Batch::at(1, 10)]);
    let (mut fetch, early) = begin(&node, request(&[("a", partition_from(0, 2))]), VERSION);
    assert!(early.is_none());
    let mut watches = fetch.watches();
    local.log.truncate_to(storage::Offset(1)).expect("within the log");
    assert!(fetch.changed_since_look());
    assert!(fetch.partition_changed(&mut watches[0], &local.partition, &node.table));
    let ready = fetch.answer(node.environment());
    assert_eq!(only(&decode(&ready, VERSION)).error_code, errors::OFFSET_OUT_OF_RANGE);

    let (mut fetch, early) = begin(&node, request(&[("a", partition_from(0, 1))]), VERSION);
    assert!(early.is_none());
    let mut watches = fetch.watches();
    node.table.remove_topic("a");
    assert!(fetch.changed_since_look());
    assert!(fetch.partition_changed(&mut watches[0], &local.partition, &node.table));
    let ready = fetch.answer(node.environment());
    assert_eq!(only(&decode(&ready, VERSION)).error_code, errors::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn a_partition_named_twice_counts_once_with_its_last_values() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    let bytes = local.append(&[Batch::at(0, 10), Batch::at(1, 10)]);
    let twice = request(&[("a", partition_from(0, 0)), ("a", partition_from(0, 1))]);
    assert_eq!(records(only(&answer(&node, twice))), &bytes[bytes.len() / 2..]);
}

// Sessions.

fn incremental(id: i32, epoch: i32, partitions: &[(&str, FetchPartition)]) -> FetchRequest {
    FetchRequest { session_id: id, session_epoch: epoch, max_wait_ms: 0, ..request(partitions) }
}

#[test]
fn a_session_answers_only_what_changed() {
    let node = Node::new();
    let mut locals: Vec<_> = ["a", "b", "c"].map(|name| node.add(name, 0)).into();
    let all: Vec<_> = ["a", "b", "c"].map(|name| (name, partition_from(0, 0))).into();
    let full = answer(&node, incremental(0, 0, &all));
    assert_eq!(names(&full), ["a", "b", "c"]);
    let id = full.session_id;
    assert_ne!(id, 0);
    let nothing = answer(&node, incremental(id, 1, &[]));
    assert_eq!((nothing.session_id, names(&nothing).len()), (id, 0));
    locals[1].append(&[Batch::at(0, 10)]);
    assert_eq!(names(&answer(&node, incremental(id, 2, &[]))), ["b"]);
    assert_eq!(names(&answer(&node, incremental(id, 3, &[]))), ["b"], "not fetched beyond yet");
    let after = incremental(id, 4, &[("b", partition_from(0, 1))]);
    assert_eq!(names(&answer(&node, after)), [""; 0]);
}

#[test]
fn partitions_that_gave_records_go_behind_the_others() {
    let node = Node::new();
    for name in ["a", "b", "c"] {
        node.add(name, 0).append(&[Batch::at(0, 1000)]);
    }
    let all: Vec<_> = ["a", "b", "c"].map(|name| (name, partition_from(0, 0))).into();
    let full = FetchRequest { max_bytes: 1, ..incremental(0, 0, &all) };
    let id = answer(&node, full).session_id;
    let served: Vec<String> = (1..=4)
        .map(|epoch| {
            let next = FetchRequest { max_bytes: 1, ..incremental(id, epoch, &[]) };
            let response = answer(&node, next);
            let with_records = partitions(&response)
                .into_iter()
                .filter(|(_, partition)| !records(partition).is_empty());
            with_records.map(|(name, _)| name).collect::<String>()
        })
        .collect();
    assert_eq!(served, ["a", "b", "c", "a"]);
}

#[test]
fn a_changed_log_start_is_told_without_records() {
    let node = Node::new();
    let mut local = node.add("a", 0);
    local.append(&[Batch::at(0, 10), Batch::at(1, 10)]);
    let id = answer(&node, incremental(0, 0, &[("a", partition_from(0, 2))])).session_id;
    assert_eq!(names(&answer(&node, incremental(id, 1, &[]))).len(), 0);
    local.log.advance_log_start(storage::Offset(1)).expect("within the log");
    let told = answer(&node, incremental(id, 2, &[]));
    assert_eq!(only(&told).log_start_offset, 1);
    assert_eq!(names(&answer(&node, incremental(id, 3, &[]))).len(), 0);
}

#[test]
fn forgotten_partitions_are_gone_and_an_empty_session_ends() {
    let node = Node::new();
    let locals: Vec<_> = ["a", "b"].map(|name| node.add(name, 0)).into();
    let all: Vec<_> = ["a", "b"].map(|name| (name, partition_from(0, 0))).into();
    let id = answer(&node, incremental(0, 0, &all)).session_id;
    let forget = |epoch, name: &str| FetchRequest {
        forgotten: vec![ForgottenTopic { topic: TopicKey::Name(name.into()), partitions: vec![0] }],
        ..incremental(id, epoch, &[])
    };
    answer(&node, forget(1, "a"));
    for mut local in locals {
        local.append(&[Batch::at(0, 10)]);
    }
    assert_eq!(names(&answer(&node, incremental(id, 2, &[]))), ["b"]);
    let closed = answer(&node, forget(3, "b"));
    assert_eq!((closed.session_id, closed.error_code), (0, errors::NONE));
    assert_eq!(node.sessions.len(), 0);
}

#[test]
fn sessions_refuse_wrong_epochs_unknown_ids_and_the_other_naming() {
    let node = Node::new();
    node.add("a", 0);
    let id = answer(&node, incremental(0, 0, &[("a", partition_from(0, 0))])).session_id;
    let wrong = answer(&node, incremental(id, 2, &[]));
    assert_eq!((wrong.error_code, wrong.responses.len()), (errors::INVALID_FETCH_SESSION_EPOCH, 0));
    let unknown = answer(&node, incremental(id ^ 1, 1, &[]));
    assert_eq!(unknown.error_code, errors::FETCH_SESSION_ID_NOT_FOUND);
    let by_id = answer_at(&node, incremental(id, 1, &[]), 13);
    assert_eq!(by_id.error_code, errors::FETCH_SESSION_TOPIC_ID_ERROR);
    assert_eq!(answer(&node, incremental(id, 1, &[])).error_code, errors::NONE, "still there");
    let last = answer(&node, incremental(id, -1, &[]));
    assert_eq!((last.error_code, last.session_id), (errors::NONE, 0));
    assert_eq!(node.sessions.len(), 0, "a final epoch closes it");
}

#[test]
fn a_full_fetch_replaces_its_session_and_a_late_answer_of_the_old_is_refused() {
    let node = Node::new();
    node.add("a", 0);
    let id = answer(&node, incremental(0, 0, &[("a", partition_from(0, 0))])).session_id;
    let waiting = FetchRequest { max_wait_ms: 60_000, ..incremental(id, 1, &[]) };
    let (mut first, early) = begin(&node, waiting.clone(), VERSION);
    assert!(early.is_none());
    answer(&node, incremental(id, 2, &[]));
    let late = decode(&first.look(node.environment()).expect("the session went on"), VERSION);
    assert_eq!(late.error_code, errors::INVALID_FETCH_SESSION_EPOCH);
    let new = answer(&node, incremental(id, 0, &[("a", partition_from(0, 0))])).session_id;
    assert_ne!(new, id);
    assert_eq!(node.sessions.len(), 1);
}

#[test]
fn a_full_cache_keeps_sessions_in_use_and_drops_stale_ones() {
    let mut node = Node::new();
    node.add("a", 0);
    let full = || incremental(0, 0, &[("a", partition_from(0, 0))]);
    let ids: Vec<i32> = (0..10).map(|_| answer(&node, full()).session_id).collect();
    assert!(ids.iter().all(|id| *id > 0));
    assert_eq!(answer(&node, full()).session_id, 0, "full, and nobody is stale");
    node.now += Duration::from_secs(119);
    answer(&node, incremental(ids[0], 1, &[]));
    node.now += Duration::from_secs(2);
    assert_ne!(answer(&node, full()).session_id, 0, "in place of one unused");
    assert_eq!(answer(&node, incremental(ids[0], 2, &[])).error_code, errors::NONE);
    assert_eq!(node.sessions.len(), 10);
}

// Topic ids.

fn by_id(topic: &str, session: (i32, i32)) -> FetchRequest {
    FetchRequest {
        topics: vec![FetchTopic {
            topic: TopicKey::Id(topic_id(topic)),
            partitions: vec![partition_from(0, 0)],
        }],
        session_id: session.0,
        session_epoch: session.1,
        ..request(&[])
    }
}

#[test]
fn a_recreated_topic_is_inconsistent_in_a_session_and_unknown_in_a_full_fetch() {
    let node = Node::new();
    node.add("a", 0).append(&[Batch::at(0, 10)]);
    let full = answer_at(&node, by_id("a", (0, 0)), 17);
    assert_eq!(full.responses[0].topic_id.as_bytes(), &topic_id("a").0);
    let id = full.session_id;
    node.table.remove_topic("a");
    let gone = answer_at(&node, FetchRequest { topics: Vec::new(), ..by_id("a", (id, 1)) }, 17);
    assert_eq!(only(&gone).error_code, errors::UNKNOWN_TOPIC_OR_PARTITION);
    let _again = recreate(&node);
    let other = answer_at(&node, FetchRequest { topics: Vec::new(), ..by_id("a", (id, 2)) }, 17);
    assert_eq!(only(&other).error_code, errors::INCONSISTENT_TOPIC_ID);
    let unknown = answer_at(&node, by_id("a", (0, -1)), 17);
    assert_eq!(only(&unknown).error_code, errors::UNKNOWN_TOPIC_ID);
}

/// The topic `a` again, with another id.
fn recreate(node: &Node) -> super::testing::Local {
    let other = Node::new();
    let local = other.add_with_id("a", 0, topic_id("other"));
    node.table.insert(local.partition.clone());
    local
}
