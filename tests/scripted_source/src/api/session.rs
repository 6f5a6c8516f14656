//! Fetch sessions (KIP-227) as a broker keeps them.

use std::collections::BTreeMap;

use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::FetchPartition;

use super::errors;

/// A topic as the request names it, so that an answer can name it the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Name(String),
    Id([u8; 16]),
}

/// A partition that a request asks for, itself or through its session.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) topic: Key,
    pub(super) partition: FetchPartition,
    /// High watermark and log start last told; what did not change need not be told again.
    pub(super) told: Option<(i64, i64)>,
}

/// All sessions of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: BTreeMap<i32, Session>,
    last_id: i32,
}

#[derive(Debug, Default)]
struct Session {
    next_epoch: i32,
    wanted: Vec<Wanted>,
}

/// What a request comes to.
pub(super) struct Resolved {
    pub(super) wanted: Vec<Wanted>,
    pub(super) session_id: i32,
    pub(super) incremental: bool,
}

impl Sessions {
    /// The id the next session gets.
    pub(crate) fn number_from(&mut self, id: i32) {
        self.last_id = id - 1;
    }

    /// Forgets every session, as a restarted broker does.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }

    /// Opens, goes on with or closes a session as the request says.
    pub(super) fn resolve(
        &mut self,
        request: &FetchRequest,
        version: i16,
    ) -> Result<Resolved, i16> {
        let wanted = wanted(request, version);
        if version < 7 || request.session_epoch == -1 {
            self.open.remove(&request.session_id);
            return Ok(Resolved { wanted, session_id: 0, incremental: false });
        }
        if request.session_epoch == 0 {
            self.open.remove(&request.session_id);
            self.last_id += 1;
            let session = Session { next_epoch: 1, wanted: wanted.clone() };
            self.open.insert(self.last_id, session);
            return Ok(Resolved { wanted, session_id: self.last_id, incremental: false });
        }
        let session_id = request.session_id;
        let session = self.open.get_mut(&session_id).ok_or(errors::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.next_epoch != request.session_epoch {
            return Err(errors::INVALID_FETCH_SESSION_EPOCH);
        }
        session.next_epoch += 1;
        session.forget(request, version);
        session.merge(wanted);
        Ok(Resolved { wanted: session.wanted.clone(), session_id, incremental: true })
    }

    /// Notes what an answer told of a partition.
    pub(super) fn note(&mut self, session_id: i32, told: &Wanted, what: (i64, i64)) {
        let Some(session) = self.open.get_mut(&session_id) else { return };
        if let Some(wanted) = session.find(told) {
            wanted.told = Some(what);
        }
    }
}

impl Session {
    fn find(&mut self, like: &Wanted) -> Option<&mut Wanted> {
        self.wanted.iter_mut().find(|wanted| {
            wanted.topic == like.topic && wanted.partition.partition == like.partition.partition
        })
    }

    fn merge(&mut self, news: Vec<Wanted>) {
        for new in news {
            match self.find(&new) {
                Some(wanted) => wanted.partition = new.partition,
                None => self.wanted.push(new),
            }
        }
    }

    fn forget(&mut self, request: &FetchRequest, version: i16) {
        for topic in &request.forgotten_topics_data {
            let gone = key(&topic.topic, *topic.topic_id.as_bytes(), version);
            self.wanted.retain(|wanted| {
                wanted.topic != gone || !topic.partitions.contains(&wanted.partition.partition)
            });
        }
    }
}

fn wanted(request: &FetchRequest, version: i16) -> Vec<Wanted> {
    let topic = |topic: &kafka_protocol::messages::fetch_request::FetchTopic| {
        let key = key(&topic.topic, *topic.topic_id.as_bytes(), version);
        let wanted = move |partition: &FetchPartition| Wanted {
            topic: key.clone(),
            partition: partition.clone(),
            told: None,
        };
        topic.partitions.iter().map(wanted).collect::<Vec<_>>()
    };
    request.topics.iter().flat_map(topic).collect()
}

fn key(name: &str, id: [u8; 16], version: i16) -> Key {
    if version >= 13 { Key::Id(id) } else { Key::Name(name.to_owned()) }
}
