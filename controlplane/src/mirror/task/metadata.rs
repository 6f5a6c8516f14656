//! Metadata: when to ask, and what news it brings of topics, leaders and brokers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::TopicPartition;

use super::{Message, MirrorTask, now_ms, report};
use crate::client::{
    ClientError, ClusterMetadata, PartitionMetadata, SourceClient, TopicMetadata, TopicSelection,
};
use crate::mirror::entry::{Body, Entry};
use crate::mirror::machine::{Leader, Phase};
use crate::mirror::topic::{Known, Look, look};
use crate::store::{Change, EventKind, StoredFault};

/// Refreshes that faults ask for come no closer than this, nor closer than ten times what the last
/// one took: metadata of 10,000 partitions is a megabyte on the wire.
const SPACING_MIN: Duration = Duration::from_millis(100);
const SPACING_FACTOR: u32 = 10;
/// A topic that is missing is looked at again this soon.
const SECOND_LOOK: Duration = Duration::from_secs(2);
/// An unreachable source is tried at least this often.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// When metadata is asked for.
#[derive(Debug)]
pub(super) struct Refresh {
    interval: Duration,
    running: Option<Instant>,
    wanted: bool,
    /// The next one by the clock; `None` for at once.
    next: Option<Instant>,
    /// The first moment at which a wanted one may start.
    soonest: Option<Instant>,
    pub(super) failures: i16,
}

impl Refresh {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, running: None, wanted: true, next: None, soonest: None, failures: 0 }
    }

    /// Something may have changed at the source.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// The next one comes no later than this.
    fn by(&mut self, at: Instant) {
        self.next = self.next.map(|next| next.min(at));
    }

    /// When one should start, if none runs; a running one reports by itself.
    pub(super) fn due_at(&self, now: Instant) -> Instant {
        if self.running.is_some() {
            return now + self.interval;
        }
        let next = self.next.unwrap_or(now);
        if self.wanted { next.min(self.soonest.unwrap_or(now)) } else { next }
    }

    fn starts(&mut self, now: Instant) {
        self.running = Some(now);
        self.wanted = false;
    }

    fn succeeded(&mut self, now: Instant) {
        let took = self.running.take().map_or(Duration::ZERO, |start| now.duration_since(start));
        let spacing = (took * SPACING_FACTOR).clamp(SPACING_MIN, self.interval.max(SPACING_MIN));
        self.failures = 0;
        self.soonest = Some(now + spacing);
        self.next = Some(now + self.interval);
    }

    fn failed(&mut self, now: Instant, delay: Duration) {
        self.running = None;
        self.failures = self.failures.saturating_add(1);
        let at = now + delay;
        // Wanted or not, an unreachable source is not asked sooner.
        self.soonest = Some(at);
        self.next = Some(at);
    }
}

impl MirrorTask {
    pub(super) fn start_refresh(&mut self, now: Instant) {
        if self.refresh.running.is_some() || self.refresh.due_at(now) > now {
            return;
        }
        self.refresh.starts(now);
        let names = if self.filter.discovers() {
            None
        } else {
            Some(self.topics.keys().cloned().collect::<Vec<_>>())
        };
        let (client, reports) = (self.client.clone(), self.reports.clone());
        tokio::spawn(async move {
            let result = fetch(&client, names.as_deref()).await;
            report(reports, Message::Metadata(result)).await;
        });
    }

    pub(super) async fn metadata_arrived(
        &mut self,
        result: Result<ClusterMetadata, ClientError>,
        now: Instant,
    ) {
        match result {
            Ok(metadata) => {
                self.refresh.succeeded(now);
                if let Some(was) = self.trouble.take() {
                    tracing::info!(mirror = %self.name, was, "the source answers again");
                }
                let found = metadata.cluster_id.clone();
                match found.filter(|found| *found != self.record.source_cluster_id) {
                    Some(found) => self.other_cluster(&found).await,
                    None => self.apply_metadata(metadata, now).await,
                }
            }
            Err(ClientError::OtherCluster { found, .. }) => self.other_cluster(&found).await,
            Err(error) => {
                let attempt = self.refresh.failures.saturating_add(1);
                let delay = self.backoff.delay(attempt, RETRY_MAX.min(self.refresh.interval));
                self.refresh.failed(now, delay);
                let text = error.to_string();
                if self.trouble.as_ref() != Some(&text) {
                    tracing::warn!(mirror = %self.name, %error, "the source cannot be asked");
                }
                self.trouble = Some(text);
            }
        }
    }

    /// Another cluster answers at the source's address: nothing of it may reach our logs.
    async fn other_cluster(&mut self, found: &str) {
        let message = format!(
            "the source's address leads to cluster {found}; this mirror was created for cluster {}; \
             correct the address and start the topics again",
            self.record.source_cluster_id
        );
        let mut changes = Vec::new();
        for index in 0..self.entries.len() {
            if self.entries[index].machine.phase() != Phase::Stopped {
                self.stop(index, &message, &mut changes);
            }
        }
        self.fault = Some(message);
        self.remember(changes).await;
    }

    async fn apply_metadata(&mut self, metadata: ClusterMetadata, now: Instant) {
        self.brokers =
            metadata.brokers.into_iter().map(|broker| (broker.id, broker.address)).collect();
        let mut changes = Vec::new();
        let names: Vec<Arc<str>> = self.topics.keys().cloned().collect();
        let seen: std::collections::HashMap<&str, &TopicMetadata> =
            metadata.topics.iter().map(|topic| (&*topic.name, topic)).collect();
        for name in names {
            self.look_at_topic(&name, seen.get(&*name).copied(), now, &mut changes);
        }
        self.remember(changes).await;
        if self.filter.discovers() {
            self.discover(&metadata.topics).await;
        }
    }

    fn look_at_topic(
        &mut self,
        name: &Arc<str>,
        seen: Option<&TopicMetadata>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        let known = Known {
            source_id: topic.source_id(),
            partitions: topic.entries.len(),
            missing: topic.missing,
        };
        let verdict = look(known, seen);
        topic.missing = match verdict {
            Look::Missing | Look::Deleted => topic.missing.saturating_add(1),
            _ => 0,
        };
        match verdict {
            Look::Same => {
                if let Some(seen) = seen {
                    self.topic_is_there(name, seen, changes);
                }
            }
            Look::Missing => self.refresh.by(now + SECOND_LOOK),
            Look::Deleted => {
                let message = "the topic was deleted at the source; what was copied is kept";
                self.stop_topic(name, message.to_owned(), changes);
            }
            Look::Recreated(how) => {
                let message = format!(
                    "the topic was recreated at the source: {how}; what was copied of the old one is kept"
                );
                self.stop_topic(name, message, changes);
            }
            Look::Unclear(code) => {
                tracing::debug!(mirror = %self.name, topic = %name, %code, "no metadata");
            }
        }
    }

    fn topic_is_there(&mut self, name: &Arc<str>, seen: &TopicMetadata, changes: &mut Vec<Change>) {
        let Some(topic) = self.topics.get(name) else { return };
        if topic.fault.is_some() {
            // It was taken for deleted. With the same id it never was.
            if !topic.source_has_id || topic.id != seen.id {
                return;
            }
            self.restart_topic(name, changes);
        }
        self.grow(name, seen, changes);
        for partition in &seen.partitions {
            self.partition_has_leader(name, partition);
        }
    }

    /// Adds the partitions that the topic has grown by; they are copied from their first record.
    fn grow(&mut self, name: &Arc<str>, seen: &TopicMetadata, changes: &mut Vec<Change>) {
        let cores = self.shared.cores.fetch_cores();
        let Some(topic) = self.topics.get_mut(name) else { return };
        let known = topic.entries.len();
        for partition in &seen.partitions[known.min(seen.partitions.len())..] {
            let id = TopicPartition { topic: name.clone(), partition: partition.partition };
            topic.entries.push(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
            self.entries.push(Entry::missing(id, &cores));
        }
        if topic.entries.len() > known {
            tracing::info!(
                mirror = %self.name, topic = %name, from = known, to = topic.entries.len(),
                "more partitions"
            );
            changes.push(Change::Topic(topic.record(name, &self.name)));
        }
    }

    pub(super) fn partition_has_leader(&mut self, topic: &Arc<str>, seen: &PartitionMetadata) {
        let Some(index) = self.entry_of(topic, seen.partition) else { return };
        let leader = seen.leader.map(|broker| Leader { broker, epoch: seen.leader_epoch });
        let has_id = self.topics.get(topic).is_some_and(|topic| topic.source_has_id);
        let entry = &mut self.entries[index];
        if let (false, Some(leader)) = (has_id, leader) {
            entry.machine.epoch_fell(leader);
        }
        if entry.machine.leader_is(leader)
            && let Body::Given(partition) = &entry.body
        {
            self.shared.cores.park(entry.core, partition.clone());
        }
    }

    fn stop_topic(&mut self, name: &Arc<str>, message: String, changes: &mut Vec<Change>) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        if topic.fault.as_ref().is_some_and(|fault| fault.message == message) {
            return;
        }
        topic.fault = Some(StoredFault { message: message.clone(), since_ms: now_ms() });
        let indices = topic.entries.clone();
        changes.push(Change::Topic(topic.record(name, &self.name)));
        for index in indices {
            self.stop(index as usize, &message, changes);
        }
    }

    /// Lets the stopped partitions of a topic try again.
    pub(super) fn restart_topic(&mut self, name: &Arc<str>, changes: &mut Vec<Change>) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        topic.missing = 0;
        if topic.fault.take().is_some() {
            changes.push(Change::Topic(topic.record(name, &self.name)));
        }
        for index in topic.entries.clone() {
            let index = index as usize;
            let entry = &mut self.entries[index];
            if entry.machine.phase() == Phase::Stopped {
                entry.machine.restart();
                entry.record.fault = None;
                changes.push(Change::Partition(entry.id.clone(), entry.record.clone()));
                changes.push(self.event(index, EventKind::Restarted, String::new()));
            }
        }
        self.refresh.want();
    }
}

async fn fetch(
    client: &SourceClient,
    names: Option<&[Arc<str>]>,
) -> Result<ClusterMetadata, ClientError> {
    let selection = match names {
        None => TopicSelection::All,
        Some([]) => TopicSelection::Nothing,
        Some(names) => TopicSelection::Names(names),
    };
    client.metadata(selection).await
}
