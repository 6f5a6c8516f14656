//! Fetch: versions 4 to 18. Sessions, long poll, both size limits (the last batch is cut where the
//! limit falls, a first one is whole), leader and epoch checks with hints at the leader, diverging
//! epochs from version 12. Never tells aborted transactions, never throttles; a hook may.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::fetch_response::{
    FetchableTopicResponse, NodeEndpoint, PartitionData,
};
use kafka_protocol::messages::{FetchRequest, FetchResponse};

use super::session::{Key, Resolved, Wanted};
use super::{epoch_error, errors, node, text, uuid};
use crate::call::Call;
use crate::cluster::{Shared, State};
use crate::log::{PartitionLog, Topic};

/// API key.
pub const KEY: i16 = 1;
/// Versions spoken unless the test says otherwise.
pub(crate) const VERSIONS: (i16, i16) = (4, 18);

pub(crate) fn answer(shared: &Shared, call: &Call, request: &FetchRequest) -> FetchResponse {
    let until = Instant::now() + Duration::from_millis(request.max_wait_ms.max(0) as u64);
    let mut state = shared.state.lock();
    let resolved = match state.sessions.resolve(request, call.version) {
        Ok(resolved) => resolved,
        Err(error) => return FetchResponse::default().with_error_code(error),
    };
    loop {
        let answer = Answer::gather(&state, call, request, &resolved);
        if answer.due
            || answer.bytes >= request.min_bytes.max(0) as usize
            || Instant::now() >= until
            || state.ended
        {
            return answer.finish(&mut state, call, &resolved);
        }
        state = shared.state.wait_until(state, until);
    }
}

/// An answer as it would be now.
struct Answer {
    partitions: Vec<(Wanted, PartitionData)>,
    bytes: usize,
    /// Something is told that must not wait.
    due: bool,
}

impl Answer {
    fn gather(state: &State, call: &Call, request: &FetchRequest, resolved: &Resolved) -> Self {
        let mut answer = Self { partitions: Vec::new(), bytes: 0, due: resolved.wanted.is_empty() };
        for wanted in &resolved.wanted {
            let room = (request.max_bytes.max(0) as usize).saturating_sub(answer.bytes);
            let data = partition(state, call, wanted, room, answer.bytes == 0);
            answer.bytes += data.records.as_ref().map_or(0, Bytes::len);
            answer.due |= data.error_code != 0 || data.diverging_epoch.epoch != -1;
            answer.partitions.push((wanted.clone(), data));
        }
        answer
    }

    fn finish(mut self, state: &mut State, call: &Call, resolved: &Resolved) -> FetchResponse {
        if resolved.incremental {
            self.partitions.retain(|(wanted, data)| {
                wanted.told != Some((data.high_watermark, data.log_start_offset))
                    || data.error_code != 0
                    || data.diverging_epoch.epoch != -1
                    || data.records.as_ref().is_some_and(|records| !records.is_empty())
            });
        }
        let mut response = FetchResponse::default();
        if call.version >= 7 {
            response.session_id = resolved.session_id;
        }
        for (wanted, data) in self.partitions {
            let told = (data.high_watermark, data.log_start_offset);
            state.sessions.note(resolved.session_id, &wanted, told);
            if call.version >= 16 && data.current_leader.leader_id.0 != -1 {
                response.node_endpoints.extend(endpoint(state, data.current_leader.leader_id.0));
            }
            topic_of(&mut response, state, &wanted).partitions.push(data);
        }
        response
    }
}

/// The response's entry for the partition's topic, which is the last one or a new one.
fn topic_of<'a>(
    response: &'a mut FetchResponse,
    state: &State,
    wanted: &Wanted,
) -> &'a mut FetchableTopicResponse {
    let mut entry = FetchableTopicResponse::default();
    match &wanted.topic {
        Key::Name(name) => entry.topic = text(name).into(),
        Key::Id(id) => {
            let unknown = Topic { name: String::new(), id: *id, partitions: Vec::new() };
            entry.topic_id = uuid(find(state, &wanted.topic).unwrap_or(&unknown));
        }
    }
    let last = response.responses.last();
    if last.is_none_or(|last| last.topic != entry.topic || last.topic_id != entry.topic_id) {
        response.responses.push(entry);
    }
    response.responses.last_mut().expect("there is one now")
}

fn find<'a>(state: &'a State, key: &Key) -> Option<&'a Topic> {
    state.topics.iter().find(|topic| match key {
        Key::Name(name) => topic.name == *name,
        Key::Id(id) => topic.id == *id,
    })
}

fn endpoint(state: &State, id: i32) -> Option<NodeEndpoint> {
    let address = state.brokers.get(&id)?;
    Some(
        NodeEndpoint::default()
            .with_node_id(node(id))
            .with_host(text(&address.ip().to_string()))
            .with_port(i32::from(address.port())),
    )
}

fn partition(
    state: &State,
    call: &Call,
    wanted: &Wanted,
    room: usize,
    whole_first: bool,
) -> PartitionData {
    let asked = &wanted.partition;
    let data = PartitionData::default()
        .with_partition_index(asked.partition)
        .with_high_watermark(-1)
        .with_records(Some(Bytes::new()));
    let topic = find(state, &wanted.topic);
    let Some(log) = topic.and_then(|topic| topic.partitions.get(asked.partition as usize)) else {
        return data.with_error_code(match wanted.topic {
            Key::Id(_) if topic.is_none() => errors::UNKNOWN_TOPIC_ID,
            _ => errors::UNKNOWN_TOPIC_OR_PARTITION,
        });
    };
    let error = match log.error {
        0 if log.leader != call.broker => errors::NOT_LEADER_OR_FOLLOWER,
        0 => epoch_error(asked.current_leader_epoch, log.leader_epoch),
        error => error,
    };
    if error != 0 {
        return with_leader(data.with_error_code(error), log, call.version);
    }
    readable(data, log, wanted, call.version, room, whole_first)
}

fn with_leader(mut data: PartitionData, log: &PartitionLog, version: i16) -> PartitionData {
    let moved = [errors::NOT_LEADER_OR_FOLLOWER, errors::FENCED_LEADER_EPOCH];
    if version >= 12 && moved.contains(&data.error_code) {
        data.current_leader.leader_id = node(log.leader);
        data.current_leader.leader_epoch = log.leader_epoch;
    }
    data
}

fn readable(
    mut data: PartitionData,
    log: &PartitionLog,
    wanted: &Wanted,
    version: i16,
    room: usize,
    whole_first: bool,
) -> PartitionData {
    let asked = &wanted.partition;
    if version >= 12 && asked.last_fetched_epoch != -1 {
        let Some((epoch, end_offset)) = log.end_of_epoch(asked.last_fetched_epoch) else {
            return data.with_error_code(errors::OFFSET_OUT_OF_RANGE);
        };
        if epoch < asked.last_fetched_epoch || end_offset < asked.fetch_offset {
            data.diverging_epoch.epoch = epoch;
            data.diverging_epoch.end_offset = end_offset;
        }
    }
    let diverging = data.diverging_epoch.epoch != -1;
    if !diverging && !(log.log_start..=log.end_offset()).contains(&asked.fetch_offset) {
        return data.with_error_code(errors::OFFSET_OUT_OF_RANGE);
    }
    data.high_watermark = log.readable_end();
    data.last_stable_offset = log.stable_end();
    if version >= 5 {
        data.log_start_offset = log.log_start;
    }
    if !diverging {
        let limit = room.min(asked.partition_max_bytes.max(0) as usize);
        data.records = Some(log.read(asked.fetch_offset, limit, whole_first).into());
    }
    data
}
