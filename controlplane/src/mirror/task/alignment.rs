//! From "to be aligned" to "mirroring": questions by broker, verdicts, new logs, leave to fetch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use dataplane::{Assignment, BrokerId, LogRepair, Partition, Resume};
use storage::{LeaderEpoch, Log, LogConfig, Offset, OpenError, Storage, TopicId, TopicPartition};

use super::{Created, MadeLog, Message, MirrorTask, distance, report};
use crate::config::GapPolicy;
use crate::mirror::align::{Answered, Question, align};
use crate::mirror::entry::Body;
use crate::mirror::fault::Failure;
use crate::mirror::machine::{FaultClass, Leader, Phase};
use crate::mirror::verdict::{CommonPoint, Verdict};
use crate::store::{Change, EventKind, PartitionRecord};

/// Partitions of one batch of questions: bounds the time until the first of them mirror.
const QUESTIONS_MAX: usize = 4_000;

/// Leave to fetch for one partition, once what must be stored before is stored.
struct Go {
    entry: usize,
    repair: Option<LogRepair>,
    /// Its record as it is stored, once that is about to change.
    before: Option<PartitionRecord>,
}

impl Go {
    /// Goes on with the log as it is.
    fn on(entry: usize) -> Self {
        Self { entry, repair: None, before: None }
    }
}

/// A log to make.
struct ToCreate {
    entry: u32,
    leader: Leader,
    id: TopicPartition,
    topic_id: TopicId,
    log_start: Offset,
}

impl MirrorTask {
    pub(super) fn start_alignments(&mut self, now: Instant) {
        let mut batches: BTreeMap<i32, Vec<Question>> = BTreeMap::new();
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            let Some(leader) = entry.machine.leader() else { continue };
            if self.aligning.contains(&leader.broker) {
                continue;
            }
            let batch = batches.entry(leader.broker).or_default();
            if batch.len() >= QUESTIONS_MAX {
                continue;
            }
            if let Some((leader, question)) = entry.machine.ask() {
                batch.push(Question {
                    entry: (index as u32, question),
                    topic: entry.id.topic.clone(),
                    partition: entry.id.partition,
                    leader_epoch: leader.epoch,
                    has_id: self
                        .topics
                        .get(&entry.id.topic)
                        .is_some_and(|topic| topic.source_has_id),
                    log: entry.body.partition().map(|partition| partition.log.clone()),
                });
            }
        }
        for (broker, questions) in batches {
            if !questions.is_empty() {
                self.ask_broker(broker, questions, now);
            }
        }
    }

    fn ask_broker(&mut self, broker: i32, questions: Vec<Question>, now: Instant) {
        if self.brokers.is_empty() {
            // The first metadata is still on its way: a topic was started right after its mirror was made.
            for question in questions {
                self.entries[question.entry.0 as usize].machine.align_again();
            }
            self.refresh.want();
            return;
        }
        let Some(address) = self.brokers.get(&broker).cloned() else {
            let failure = Failure {
                class: FaultClass::Leader,
                ..Failure::retry(format!(
                    "the source names broker {broker} as leader, and no address for it"
                ))
            };
            for question in questions {
                self.fail(question.entry.0 as usize, &failure, now);
            }
            return;
        };
        self.aligning.insert(broker);
        let (client, reports) = (self.client.clone(), self.reports.clone());
        tokio::spawn(async move {
            let answers = align(client, address, questions).await;
            report(reports, Message::Aligned(broker, answers)).await;
        });
    }

    pub(super) async fn aligned(&mut self, broker: i32, answers: Vec<Answered>, now: Instant) {
        self.aligning.remove(&broker);
        let mut going = Vec::new();
        let mut creating = Vec::new();
        let mut changes = Vec::new();
        for answer in answers {
            let index = answer.entry.0 as usize;
            if !self.entries[index].machine.expects(answer.entry.1) {
                continue;
            }
            let verdict = match answer.verdict {
                Ok(verdict) => verdict,
                Err(failure) => {
                    self.fail(index, &failure, now);
                    continue;
                }
            };
            let entry = &mut self.entries[index];
            // A late answer was still landing when we asked, before the park reached its core.
            if answer.end.is_some_and(|end| end != entry.body.end()) {
                entry.machine.align_again();
                continue;
            }
            match verdict {
                Verdict::Begin(start) => creating.extend(self.plan_log(index, start)),
                verdict => going.extend(self.judged(index, verdict, now, &mut changes)),
            }
        }
        self.create_logs(creating);
        self.send_on(going, changes, now).await;
    }

    /// What a verdict about an existing log means for the partition.
    fn judged(
        &mut self,
        index: usize,
        verdict: Verdict,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> Option<Go> {
        match verdict {
            Verdict::GoOn | Verdict::Begin(_) => Some(Go::on(index)),
            Verdict::Replaced(offset) => {
                let message = format!(
                    "the topic was recreated at the source: at offset {offset} it has another batch \
                     than we have; what was copied of the old one is kept"
                );
                self.stop(index, &message, changes);
                None
            }
            Verdict::Gap { from, to } => self.gap(index, from, to, changes),
            Verdict::Diverged { common, end, source_start } => {
                self.diverged(index, common, end, source_start, changes)
            }
            Verdict::Beyond { end, source_end } => {
                let failure = Failure::retry(format!(
                    "our log ends at {end}, the source's at {source_end}: it lost records, or its \
                     high watermark has not caught up"
                ));
                self.fail(index, &failure, now);
                None
            }
        }
    }

    fn gap(
        &mut self,
        index: usize,
        from: Offset,
        to: Offset,
        changes: &mut Vec<Change>,
    ) -> Option<Go> {
        let text = format!(
            "the source's log begins at {to} now: it deleted offsets {from} to {} ({}) before they \
             were copied",
            to.0 - 1,
            distance(from, to)
        );
        if self.config.gap_policy == GapPolicy::Halt && !self.entries[index].gap_accepted {
            let message = format!(
                "{text}; mirror.gap.policy is halt: start the topic again to go on behind the gap"
            );
            self.stop(index, &message, changes);
            return None;
        }
        let repair = Some(LogRepair::ResetTo(to));
        let entry = &mut self.entries[index];
        let before = entry.record.clone();
        if !entry.record.count_gap(entry.body.epoch(), from, to) {
            return Some(Go { repair, ..Go::on(index) });
        }
        entry.record.note = Some(format!(
            "{text}; {} gap(s), {} offsets in all",
            entry.record.gaps, entry.record.gap_offsets
        ));
        tracing::warn!(mirror = %self.name, partition = %entry.id, "gap: {text}");
        changes.push(Change::Partition(entry.id.clone(), entry.record.clone()));
        changes.push(self.event(index, EventKind::Gap, text));
        Some(Go { entry: index, repair, before: Some(before) })
    }

    fn diverged(
        &mut self,
        index: usize,
        common: CommonPoint,
        end: Offset,
        source_start: Offset,
        changes: &mut Vec<Change>,
    ) -> Option<Go> {
        let dropped = distance(common.offset, end);
        let how = if common.source_epoch == LeaderEpoch::UNKNOWN {
            "the source's history has none of our leader epochs".to_owned()
        } else {
            format!("the source's epoch {} ends there", common.source_epoch)
        };
        if !self.config.accept_divergence {
            let message = format!(
                "diverged at offset {} ({how}), {dropped} records beyond would have to be dropped; \
                 only a mirror \
                 created with mirror.support.unclean.leader.election=true accepts that",
                common.offset
            );
            self.stop(index, &message, changes);
            return None;
        }
        let our_start = self.entries[index].body.partition().map(|ours| ours.log.log_start());
        // Nothing in common that either side still has: the log begins anew.
        let nothing_left = our_start.is_none_or(|start| common.offset < start);
        let repair = if nothing_left || common.offset < source_start {
            LogRepair::ResetTo(source_start)
        } else {
            LogRepair::TruncateTo(common.offset)
        };
        let repair = Some(repair);
        let entry = &mut self.entries[index];
        let before = entry.record.clone();
        if !entry.record.count_divergence(entry.body.epoch(), common.offset, end) {
            return Some(Go { repair, ..Go::on(index) });
        }
        let text =
            format!("diverged at offset {} ({how}); {dropped} records dropped", common.offset);
        tracing::warn!(mirror = %self.name, partition = %entry.id, "{text}");
        entry.record.note = Some(text.clone());
        changes.push(Change::Partition(entry.id.clone(), entry.record.clone()));
        changes.push(self.event(index, EventKind::Truncated, text));
        Some(Go { entry: index, repair, before: Some(before) })
    }

    /// Stores what must be stored, then lets the cursors go. The leader's epoch is stored before any
    /// batch of it can arrive, so what is advertised never falls, whatever a crash takes away.
    async fn send_on(&mut self, mut going: Vec<Go>, mut changes: Vec<Change>, now: Instant) {
        for go in &mut going {
            let entry = &mut self.entries[go.entry];
            let epoch = entry.machine.leader().map_or(-1, |leader| leader.epoch.0);
            if epoch > entry.record.epoch {
                go.before.get_or_insert_with(|| entry.record.clone());
                entry.record.epoch = epoch;
                changes.push(Change::Partition(entry.id.clone(), entry.record.clone()));
            }
        }
        if let Err(error) = self.shared.store.write(changes).await {
            let failure = Failure::retry(error.to_string());
            for go in going {
                // What is not stored is stored the next time, and not taken for stored till then.
                if let Some(before) = go.before {
                    self.entries[go.entry].record = before;
                }
                self.fail(go.entry, &failure, now);
            }
            return;
        }
        for go in going {
            self.let_go(&go, now);
        }
    }

    fn let_go(&mut self, go: &Go, now: Instant) {
        let entry = &mut self.entries[go.entry];
        let Some(leader) = entry.machine.leader() else {
            entry.machine.align_again();
            return;
        };
        let resume = Resume {
            broker: BrokerId(leader.broker),
            leader_epoch: leader.epoch,
            repair: go.repair,
        };
        let cores = &self.shared.cores;
        entry.read_from = None;
        entry.gap_accepted = false;
        match std::mem::replace(&mut entry.body, Body::Moving) {
            Body::Held(partition, log) => {
                partition.raise_advertised_epoch(leader.epoch);
                let given = partition.clone();
                let assignment = Assignment { partition, log: *log, link: self.link, resume };
                cores.assign(entry.core, assignment);
                entry.body = Body::Given(given);
                entry.machine.runs(now);
            }
            Body::Given(partition) => {
                partition.raise_advertised_epoch(leader.epoch);
                cores.resume(entry.core, partition.clone(), resume);
                entry.body = Body::Given(partition);
                entry.machine.runs(now);
            }
            other @ (Body::Missing | Body::Moving) => {
                entry.body = other;
                entry.machine.align_again();
            }
        }
    }

    fn plan_log(&mut self, index: usize, log_start: Offset) -> Option<ToCreate> {
        let entry = &mut self.entries[index];
        let leader = entry.machine.leader()?;
        let topic = self.topics.get(&entry.id.topic)?;
        entry.machine.prepares();
        Some(ToCreate {
            entry: index as u32,
            leader,
            id: entry.id.clone(),
            topic_id: topic.id,
            log_start,
        })
    }

    fn create_logs(&self, wanted: Vec<ToCreate>) {
        if wanted.is_empty() {
            return;
        }
        let storage = self.shared.storage.clone();
        let config = self.shared.log_config.clone();
        let reports = self.reports.clone();
        tokio::task::spawn_blocking(move || {
            let create = |want: ToCreate| Created {
                entry: want.entry,
                leader: want.leader,
                result: create_log(&storage, &want, &config),
            };
            let created = wanted.into_iter().map(create).collect();
            // A task that is gone needs no logs; they are closed cleanly when it is.
            let _ = reports.blocking_send(Message::Created(created));
        });
    }

    pub(super) async fn created(&mut self, created: Vec<Created>, now: Instant) {
        let mut going = Vec::new();
        for Created { entry: index, leader, result } in created {
            let index = index as usize;
            let MadeLog { log, existed } = match result {
                Ok(made) => made,
                Err(cause) => {
                    self.fail(index, &Failure::retry(cause), now);
                    continue;
                }
            };
            self.hold(index, *log);
            let entry = &mut self.entries[index];
            if entry.machine.phase() != Phase::Preparing {
                continue;
            }
            // One that was there already has a history to compare; one whose leader changed
            // meanwhile has a start to ask again.
            if existed || entry.machine.leader() != Some(leader) {
                entry.machine.align_again();
            } else {
                going.push(Go::on(index));
            }
        }
        self.send_on(going, Vec::new(), now).await;
    }

    /// Opens the logs anew whose disk had failed, once they are to be tried again. What a recovery
    /// leaves of them is aligned like any other log.
    pub(super) fn reopen_logs(&mut self) {
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if !entry.reopen || entry.machine.phase() != Phase::Align {
                continue;
            }
            entry.reopen = false;
            let Body::Given(partition) = std::mem::replace(&mut entry.body, Body::Missing) else {
                continue;
            };
            let Some(leader) = entry.machine.leader() else {
                entry.reopen = true;
                entry.body = Body::Given(partition);
                continue;
            };
            entry.machine.prepares();
            let (taken, log) = tokio::sync::oneshot::channel();
            let core = entry.core;
            self.shared.cores.take(core, partition, Box::new(|log| drop(taken.send(log))));
            let want = Reopen { entry: index as u32, leader, id: entry.id.clone() };
            let storage = self.shared.storage.clone();
            let config = self.shared.log_config.clone();
            let reports = self.reports.clone();
            tokio::spawn(async move {
                // A core that is stopping gives nothing back, and nobody waits for the answer.
                let log = log.await.unwrap_or_default();
                let reopened = move || reopen_log(&storage, &want, log, &config);
                if let Ok(created) = tokio::task::spawn_blocking(reopened).await {
                    report(reports, Message::Created(vec![created])).await;
                }
            });
        }
    }

    /// Takes a log in and shows it to everybody.
    fn hold(&mut self, index: usize, log: Log) {
        let entry = &mut self.entries[index];
        let epoch = LeaderEpoch(entry.record.epoch);
        let partition = Arc::new(Partition::new(
            entry.id.clone(),
            log.topic_id(),
            log.reader().clone(),
            Some(self.info.clone()),
            epoch,
        ));
        self.shared.table.insert(partition.clone());
        entry.body = Body::Held(partition, Box::new(log));
    }
}

/// A log to open anew.
struct Reopen {
    entry: u32,
    leader: Leader,
    id: TopicPartition,
}

fn reopen_log(
    storage: &Arc<Storage>,
    want: &Reopen,
    failed: Option<Log>,
    config: &LogConfig,
) -> Created {
    // Closing would write, and fail as before: what was not durable is for the recovery to find.
    drop(failed);
    let result = match storage.open_log(&want.id, config.clone()) {
        Ok((log, recovery)) => {
            tracing::info!(partition = %want.id, ?recovery, "opened again");
            Ok(MadeLog { log: Box::new(log), existed: true })
        }
        Err(error) => Err(error.to_string()),
    };
    Created { entry: want.entry, leader: want.leader, result }
}

fn create_log(
    storage: &Arc<Storage>,
    want: &ToCreate,
    config: &LogConfig,
) -> Result<MadeLog, String> {
    match storage.create_log(&want.id, want.topic_id, want.log_start, config.clone()) {
        Ok(log) => Ok(MadeLog { log: Box::new(log), existed: false }),
        Err(OpenError::Exists(_)) => {
            let (log, recovery) =
                storage.open_log(&want.id, config.clone()).map_err(|error| error.to_string())?;
            if log.topic_id() != want.topic_id {
                return Err(format!(
                    "the data directory has a {} of another topic (id {}); move it away",
                    want.id,
                    log.topic_id()
                ));
            }
            tracing::info!(partition = %want.id, ?recovery, "found on disk");
            Ok(MadeLog { log: Box::new(log), existed: true })
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
#[path = "alignment_tests.rs"]
mod tests;
