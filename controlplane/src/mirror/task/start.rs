//! Starting topics, named by an operator or discovered.

use std::sync::Arc;

use storage::{TopicId, TopicPartition};

use super::{MirrorTask, StartRequest};
use crate::client::{KafkaCode, TopicMetadata};
use crate::discovery::{TopicFilter, is_internal_topic, is_valid_topic_name};
use crate::identity::random_id;
use crate::mirror::api::{AdminError, TopicResult, codes};
use crate::mirror::entry::{Entry, Topic};
use crate::mirror::machine::Phase;
use crate::store::Change;

impl MirrorTask {
    pub(super) async fn start(
        &mut self,
        request: StartRequest,
    ) -> Result<Vec<TopicResult>, AdminError> {
        let mut record = self.record.clone();
        for (list, new) in
            [(&mut record.include, request.include), (&mut record.exclude, request.exclude)]
        {
            for item in new {
                if !list.contains(&item) {
                    list.push(item);
                }
            }
        }
        let filter = TopicFilter::new(&self.config, &record.include, &record.exclude)
            .map_err(|error| AdminError::new(codes::INVALID_REQUEST, error.to_string()))?;
        let mut results = Vec::new();
        let mut starting = Vec::new();
        let mut changes = vec![Change::Mirror(record.clone())];
        for (name, seen) in &request.named {
            let error = match self.check_named(name, seen.as_ref(), &filter) {
                Err(error) => Some(error),
                Ok(seen) => {
                    if self.topics.contains_key(name) {
                        self.start_again(name, seen, &mut changes).err()
                    } else {
                        starting.push((seen.clone(), true));
                        None
                    }
                }
            };
            results.push(TopicResult { topic: name.to_string(), error });
        }
        for seen in request.matched.iter().filter(|seen| self.is_discovery(seen, &filter)) {
            if starting.iter().all(|(known, _)| known.name != seen.name) {
                starting.push((seen.clone(), false));
            }
        }
        let added = self.add_topics(starting, changes).await?;
        self.record = record;
        self.filter = filter;
        self.fault = None;
        self.refresh.want();
        merge_results(&mut results, added);
        Ok(results)
    }

    /// Takes up the topics that the patterns match and nobody has yet.
    pub(super) async fn discover(&mut self, seen: &[TopicMetadata]) {
        let found: Vec<_> = seen
            .iter()
            .filter(|topic| self.is_discovery(topic, &self.filter))
            .map(|topic| (topic.clone(), false))
            .collect();
        if found.is_empty() {
            return;
        }
        match self.add_topics(found, Vec::new()).await {
            Ok(results) => {
                for result in results {
                    match result.error {
                        None => {
                            tracing::info!(mirror = %self.name, topic = result.topic, "discovered");
                        }
                        // Looked at again with every refresh; not news each time.
                        Some(error) => tracing::debug!(
                            mirror = %self.name, topic = result.topic, %error, "not taken up"
                        ),
                    }
                }
            }
            Err(error) => {
                tracing::error!(mirror = %self.name, %error, "discovered topics not taken up");
            }
        }
    }

    fn is_discovery(&self, seen: &TopicMetadata, filter: &TopicFilter) -> bool {
        !seen.code.is_error()
            && !seen.is_internal
            && filter.takes(&seen.name)
            && !self.topics.contains_key(&seen.name)
    }

    fn check_named<'a>(
        &self,
        name: &str,
        seen: Option<&'a TopicMetadata>,
        filter: &TopicFilter,
    ) -> Result<&'a TopicMetadata, AdminError> {
        if !is_valid_topic_name(name) {
            let message = format!("{name:?} is not a topic name");
            return Err(AdminError::new(codes::INVALID_TOPIC, message));
        }
        if is_internal_topic(name) || seen.is_some_and(|seen| seen.is_internal) {
            let message = format!("{name} is internal to the source and is not mirrored");
            return Err(AdminError::new(codes::INVALID_TOPIC, message));
        }
        if filter.excludes(name) {
            let message = format!("{name} is excluded, and exclusion wins");
            return Err(AdminError::new(codes::INVALID_REQUEST, message));
        }
        let unknown = || {
            let message = format!("the source has no topic {name}, or does not show it to us");
            AdminError::new(KafkaCode::UNKNOWN_TOPIC_OR_PARTITION.0, message)
        };
        let seen = seen.ok_or_else(unknown)?;
        match seen.code {
            // A topic that was made a moment ago: its leaders come with the next refresh.
            KafkaCode::NONE | KafkaCode::LEADER_NOT_AVAILABLE => Ok(seen),
            KafkaCode::UNKNOWN_TOPIC_OR_PARTITION => Err(unknown()),
            code => Err(AdminError::new(
                code.0,
                format!("the source refused metadata of {name}: {code}"),
            )),
        }
    }

    /// A topic that is mirrored already: its stopped partitions try again.
    fn start_again(
        &mut self,
        name: &Arc<str>,
        seen: &TopicMetadata,
        changes: &mut Vec<Change>,
    ) -> Result<(), AdminError> {
        let Some(topic) = self.topics.get(name) else { return Ok(()) };
        if topic.source_has_id && !seen.id.is_zero() && topic.id != seen.id {
            let message = format!(
                "{name} at the source has topic id {}, our copy is of {}: it was recreated, and the \
                 two must not share a log",
                seen.id, topic.id
            );
            return Err(AdminError::new(codes::INCONSISTENT_TOPIC_ID, message));
        }
        let entries = topic.entries.clone();
        for index in entries {
            let entry = &mut self.entries[index as usize];
            entry.gap_accepted = entry.machine.phase() == Phase::Stopped;
        }
        self.restart_topic(name, changes);
        Ok(())
    }

    /// Claims, stores, and only then adds topics.
    async fn add_topics(
        &mut self,
        wanted: Vec<(TopicMetadata, bool)>,
        mut changes: Vec<Change>,
    ) -> Result<Vec<TopicResult>, AdminError> {
        let mut results = Vec::new();
        let mut claimed = Vec::new();
        for (seen, named) in wanted {
            let result = self.claim(&seen, named);
            let error = match result {
                Ok(topic) => {
                    changes.push(Change::Topic(topic.record(&seen.name, &self.name)));
                    let name = seen.name.to_string();
                    claimed.push((seen, topic));
                    results.push(TopicResult { topic: name, error: None });
                    continue;
                }
                Err(error) => error,
            };
            results.push(TopicResult { topic: seen.name.to_string(), error: Some(error) });
        }
        if let Err(error) = self.shared.store.write(changes).await {
            for (seen, _) in &claimed {
                self.shared.owners.release(&seen.name);
            }
            return Err(AdminError::new(codes::KAFKA_STORAGE_ERROR, error.to_string()));
        }
        for (seen, topic) in claimed {
            self.add_topic(&seen, topic);
        }
        Ok(results)
    }

    /// Takes a topic for this mirror. Its record names the partitions it is about to have.
    fn claim(&self, seen: &TopicMetadata, named: bool) -> Result<Topic, AdminError> {
        let name = &seen.name;
        let in_order = seen.partitions.iter().zip(0..).all(|(seen, index)| seen.partition == index);
        if !in_order {
            let message = format!("the source's partitions of {name} are not numbered from 0");
            return Err(AdminError::new(codes::INVALID_REQUEST, message));
        }
        self.shared.owners.claim(name, &self.name).map_err(|owner| {
            let message = format!("{name} is mirrored by {owner}");
            AdminError::new(codes::TOPIC_ALREADY_IN_CLUSTER_MIRROR, message)
        })?;
        if !self.shared.table.topic(name).is_empty() {
            self.shared.owners.release(name);
            let message = format!("this node has a topic {name} of its own");
            return Err(AdminError::new(codes::TOPIC_ALREADY_EXISTS, message));
        }
        let source_has_id = !seen.id.is_zero();
        let id = if source_has_id { Ok(seen.id) } else { random_id() };
        let id: TopicId = id.map_err(|error| {
            self.shared.owners.release(name);
            AdminError::new(codes::UNKNOWN_SERVER_ERROR, format!("no random numbers: {error}"))
        })?;
        let first = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let entries = (0..seen.partitions.len() as u32).map(|index| first + index).collect();
        Ok(Topic { id, source_has_id, named, entries, missing: 0, fault: None })
    }

    fn add_topic(&mut self, seen: &TopicMetadata, mut topic: Topic) {
        let cores = self.shared.cores.fetch_cores();
        topic.entries.clear();
        for partition in &seen.partitions {
            let id = TopicPartition { topic: seen.name.clone(), partition: partition.partition };
            topic.entries.push(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
            self.entries.push(Entry::missing(id, &cores));
        }
        self.topics.insert(seen.name.clone(), topic);
        for partition in &seen.partitions {
            self.partition_has_leader(&seen.name, partition);
        }
    }
}

/// Named topics have a line already; discovered ones get theirs.
fn merge_results(results: &mut Vec<TopicResult>, added: Vec<TopicResult>) {
    for result in added {
        match results.iter_mut().find(|known| known.topic == result.topic) {
            Some(known) => known.error = result.error,
            None => results.push(result),
        }
    }
}
