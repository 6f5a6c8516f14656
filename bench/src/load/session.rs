//! The fetch session of one connection (KIP-227), as a broker keeps it: what an incremental request does
//! not name is still wanted, and what did not change is not answered.
//!
//! Looks only at partitions that may have something new, so that a hundred thousand idle ones cost the
//! source nothing.

use std::collections::BTreeSet;

use dataplane::wire::{AnswerPartition, FetchPartition, FetchRequest, TopicKey};

/// First Fetch version with sessions.
const VERSION_SESSIONS: i16 = 7;
/// The id of a connection's session: there is one at a time, and ids are looked up on no other connection.
const ID: i32 = 1;
const SESSION_ID_NOT_FOUND: i16 = 70;
const INVALID_SESSION_EPOCH: i16 = 71;

/// A connection's session, or none yet.
#[derive(Debug, Default)]
pub struct FetchSession {
    open: bool,
    /// Of the next request.
    epoch: i32,
    topic: Option<TopicKey>,
    /// By partition.
    members: Vec<Option<Member>>,
    /// Partitions that may have something to tell.
    ready: BTreeSet<u32>,
    /// Up to when partitions that have something new were made ready.
    pub(super) looked_ns: u64,
    /// How the request under way is answered.
    pub(super) answering: Answering,
}

#[derive(Debug)]
struct Member {
    asked: FetchPartition,
    /// The high watermark that was told last.
    told: i64,
}

/// How a request is to be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Answering {
    /// What it names, and no session.
    #[default]
    Named,
    /// What it names; a session was opened.
    Opened,
    /// What has something to tell.
    Incremental,
    /// With this error.
    Refused(i16),
}

impl FetchSession {
    /// Takes up a request that has just come, for a source with so many partitions of one topic.
    pub(super) fn take_up(
        &mut self,
        version: i16,
        request: &FetchRequest,
        partitions: u32,
        ours: impl Fn(&TopicKey) -> bool,
    ) {
        self.answering = match (request.session_id, request.session_epoch) {
            (0, 0) if version >= VERSION_SESSIONS => self.open(request, partitions, ours),
            (0, _) => Answering::Named,
            (ID, -1) if self.open => {
                *self = Self::default();
                Answering::Named
            }
            (ID, epoch) if self.open && epoch == self.epoch => {
                self.epoch = epoch.checked_add(1).unwrap_or(1);
                self.change(request);
                Answering::Incremental
            }
            (ID, _) if self.open => Answering::Refused(INVALID_SESSION_EPOCH),
            _ => Answering::Refused(SESSION_ID_NOT_FOUND),
        };
    }

    /// Of several topics, or ones that are not the source's, no session is kept: a broker may decline.
    fn open(
        &mut self,
        request: &FetchRequest,
        partitions: u32,
        ours: impl Fn(&TopicKey) -> bool,
    ) -> Answering {
        *self = Self::default();
        let [topic] = &request.topics[..] else { return Answering::Named };
        if !ours(&topic.topic) {
            return Answering::Named;
        }
        self.open = true;
        self.epoch = 1;
        self.topic = Some(topic.topic.clone());
        self.members.resize_with(partitions as usize, || None);
        self.change(request);
        Answering::Opened
    }

    fn change(&mut self, request: &FetchRequest) {
        let ours = self.topic.clone();
        for topic in request.forgotten.iter().filter(|topic| Some(&topic.topic) == ours.as_ref()) {
            for partition in &topic.partitions {
                let index = u32::try_from(*partition).unwrap_or(u32::MAX);
                self.ready.remove(&index);
                if let Some(slot) = self.members.get_mut(index as usize) {
                    *slot = None;
                }
            }
        }
        for topic in request.topics.iter().filter(|topic| Some(&topic.topic) == ours.as_ref()) {
            for asked in &topic.partitions {
                let index = u32::try_from(asked.partition).unwrap_or(u32::MAX);
                if let Some(slot) = self.members.get_mut(index as usize) {
                    let told = slot.as_ref().map_or(-1, |member| member.told);
                    *slot = Some(Member { asked: *asked, told });
                    self.ready.insert(index);
                }
            }
        }
    }

    /// The session's id for an answer.
    pub(super) fn id(&self) -> i32 {
        match self.answering {
            Answering::Opened | Answering::Incremental => ID,
            Answering::Named | Answering::Refused(_) => 0,
        }
    }

    /// The topic, as the session's requests name it.
    pub(super) fn topic(&self) -> Option<TopicKey> {
        self.topic.clone()
    }

    /// Something new may be there for these.
    pub(super) fn make_ready(&mut self, partitions: impl Iterator<Item = u32>) {
        for partition in partitions {
            if self.members.get(partition as usize).is_some_and(Option::is_some) {
                self.ready.insert(partition);
            }
        }
    }

    /// Reads every partition that is ready, and answers those that have something to tell.
    pub(super) fn read(
        &mut self,
        mut read: impl FnMut(&FetchPartition) -> AnswerPartition,
    ) -> Vec<AnswerPartition> {
        let mut told = Vec::new();
        let mut at_end = Vec::new();
        for index in &self.ready {
            let Some(Some(member)) = self.members.get_mut(*index as usize) else { continue };
            let answer = read(&member.asked);
            let fault = answer.error_code != 0;
            if !fault && member.asked.fetch_offset == answer.high_watermark {
                at_end.push(*index);
            }
            if fault || answer.records_bytes > 0 || answer.high_watermark != member.told {
                told.push(answer);
            }
        }
        for index in at_end {
            self.ready.remove(&index);
        }
        told
    }

    /// The answer goes out with these.
    pub(super) fn told(&mut self, answers: &[AnswerPartition]) {
        for answer in answers {
            let index = usize::try_from(answer.partition).unwrap_or(usize::MAX);
            if let Some(Some(member)) = self.members.get_mut(index) {
                member.told = answer.high_watermark;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dataplane::wire::{FetchTopic, IsolationLevel};

    use super::*;

    fn request(session_epoch: i32, offsets: &[(i32, i64)]) -> FetchRequest {
        let partitions = offsets.iter().map(|&(partition, fetch_offset)| FetchPartition {
            partition,
            current_leader_epoch: -1,
            fetch_offset,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            max_bytes: 1 << 20,
        });
        FetchRequest {
            replica_id: -1,
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 1 << 20,
            isolation: IsolationLevel::ReadCommitted,
            session_id: i32::from(session_epoch > 0),
            session_epoch,
            topics: if offsets.is_empty() {
                Vec::new()
            } else {
                vec![FetchTopic {
                    topic: TopicKey::Name("t".into()),
                    partitions: partitions.collect(),
                }]
            },
            forgotten: Vec::new(),
            rack_id: String::new(),
        }
    }

    fn answer(partition: i32, high_watermark: i64, records_bytes: usize) -> AnswerPartition {
        AnswerPartition {
            partition,
            error_code: 0,
            high_watermark,
            last_stable_offset: high_watermark,
            log_start_offset: 0,
            aborted: None,
            records_bytes,
            diverging: None,
            current_leader: None,
        }
    }

    fn read(session: &mut FetchSession, ends: &[i64]) -> Vec<(i32, usize)> {
        let answers = session.read(|asked| {
            let end = ends[asked.partition as usize];
            answer(asked.partition, end, usize::from(asked.fetch_offset < end))
        });
        session.told(&answers);
        answers.iter().map(|answer| (answer.partition, answer.records_bytes)).collect()
    }

    #[test]
    fn what_is_at_its_end_is_not_read_again_until_something_is_new() {
        let mut session = FetchSession::default();
        session.take_up(12, &request(0, &[(0, 5), (1, 0), (2, 0)]), 3, |_| true);
        assert_eq!((session.answering, session.id()), (Answering::Opened, ID));
        session.take_up(12, &request(1, &[]), 3, |_| true);
        assert_eq!(session.answering, Answering::Incremental);
        assert_eq!(read(&mut session, &[5, 4, 0]), [(0, 0), (1, 1), (2, 0)]);
        session.take_up(12, &request(2, &[(1, 4)]), 3, |_| true);
        assert_eq!(read(&mut session, &[6, 4, 0]), [], "nobody said that 0 has something new");
        session.make_ready([0, 9].into_iter());
        assert_eq!(read(&mut session, &[6, 4, 0]), [(0, 1)]);
        assert_eq!(read(&mut session, &[6, 4, 0]), [(0, 1)], "it was not fetched yet");
    }

    #[test]
    fn a_session_of_another_connection_or_epoch_is_refused() {
        let mut session = FetchSession::default();
        session.take_up(12, &request(1, &[]), 3, |_| true);
        assert_eq!(session.answering, Answering::Refused(SESSION_ID_NOT_FOUND));
        session.take_up(12, &request(0, &[(0, 0)]), 3, |_| true);
        session.take_up(12, &request(7, &[]), 3, |_| true);
        assert_eq!(session.answering, Answering::Refused(INVALID_SESSION_EPOCH));
        session.take_up(12, &request(0, &[(0, 0)]), 3, |_| false);
        assert_eq!(session.answering, Answering::Named, "of topics that are not the source's");
        session.take_up(6, &request(0, &[(0, 0)]), 3, |_| true);
        assert_eq!(session.answering, Answering::Named, "before sessions");
    }

    #[test]
    fn an_incremental_request_is_answered_as_soon_as_a_batch_is_due() {
        use bytes::{Buf, BytesMut};
        use dataplane::wire::{ApiKey, RequestHeader};

        use crate::load::{Began, Generator, Reply, SourceCluster, Workload};

        let workload = Workload {
            batch_interval_ns: Some(1_000_000),
            ..Workload::of_size("t", 64 << 20, 1_000)
        };
        let generator = Generator::new(workload);
        let cluster = SourceCluster::new(generator.clone(), 9);
        let mut session = FetchSession::default();
        let mut ask = |epoch: i32, offsets: &[(i32, i64)], now_ns: u64, waited: u64| {
            let mut body = BytesMut::new();
            let (api_key, correlation_id) = (ApiKey::FETCH, 1);
            RequestHeader { api_key, api_version: 12, correlation_id, client_id: None }
                .encode(&mut body);
            request(epoch, offsets).encode(12, &mut body);
            cluster.answer(&mut session, body.chunk(), now_ns, Duration::from_millis(waited))
        };
        let everything: Vec<_> = (0..1_000).map(|partition| (partition, 0)).collect();
        let opened = ask(0, &everything, 0, 0).unwrap();
        assert!(matches!(opened, Reply::Later(_)), "nothing is there yet");
        assert!(
            matches!(ask(0, &everything, 0, 500), Ok(Reply::Now(answer)) if answer.record_bytes() == 0)
        );
        generator.begin(Began { monotonic_ns: 10_000, wall_ms: 0 });
        let Ok(Reply::Later(pause)) = ask(1, &[], 9_000, 0) else { panic!("nothing is due") };
        assert!(pause <= Duration::from_millis(1));
        let Ok(Reply::Now(first)) = ask(1, &[], 10_000, 1) else { panic!("one is due") };
        assert_eq!(first.record_bytes(), generator.batch_bytes());
        let Ok(Reply::Now(next)) = ask(2, &[(0, 64)], 12_500, 0) else { panic!("two are due") };
        assert_eq!(next.record_bytes(), 2 * generator.batch_bytes());
    }
}
