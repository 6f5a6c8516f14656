//! What an operator sees.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dataplane::CoreId;

use super::{MirrorTask, now_ms};
use crate::mirror::api::{MirrorDescription, PartitionDescription};
use crate::mirror::entry::Entry;
use crate::mirror::machine::Phase;

/// The source's end is unknown when no answer spoke of the partition for this long beyond the long
/// poll: with the source cut off, no partition shows a lag.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// A broker that began no answer on a core for this long beyond the long poll is said to be quiet. A
/// core says every 5 s when it last heard of the partitions that answers do not name.
const QUIET_AFTER: Duration = Duration::from_secs(8);

/// When each broker last began an answer on each core, in Unix milliseconds.
type Answered = HashMap<(i32, CoreId), i64>;

impl MirrorTask {
    pub(super) fn describe(&self, now: Instant) -> MirrorDescription {
        let answered = self.answered();
        let entries = self.topics.values().flat_map(|topic| &topic.entries);
        let partitions =
            entries.map(|index| self.describe_entry(*index as usize, &answered, now)).collect();
        MirrorDescription {
            name: self.name.to_string(),
            source_bootstrap: self.bootstrap(),
            source_cluster_id: self.record.source_cluster_id.clone(),
            error_message: self.fault.clone().or_else(|| self.trouble.clone()),
            partitions,
        }
    }

    fn bootstrap(&self) -> String {
        self.record.config.get("bootstrap.servers").cloned().unwrap_or_default()
    }

    /// One partition may wait for its turn while others of its broker are answered: the latest counts.
    fn answered(&self) -> Answered {
        let mut answered = Answered::new();
        for entry in &self.entries {
            if let (Some(broker), Some(partition)) = (entry.broker(), entry.body.partition()) {
                let latest = answered.entry((broker, entry.core)).or_default();
                *latest = partition.progress.last_answer_ms.load(Ordering::Relaxed).max(*latest);
            }
        }
        answered
    }

    /// Says how long its broker has been quiet, when that is longer than a wait for records explains.
    /// The lane's deadline is another matter: only that ends the connection.
    fn quiet(&self, entry: &Entry, answered: &Answered, now: Instant) -> Option<String> {
        let Phase::Mirroring { since } = entry.machine.phase() else { return None };
        let broker = entry.broker()?;
        let last_ms = *answered.get(&(broker, entry.core))?;
        let ago = Duration::from_millis(u64::try_from(now_ms() - last_ms).unwrap_or(0));
        let quiet = ago.min(now.saturating_duration_since(since));
        (quiet > QUIET_AFTER + self.config.fetch_wait_max)
            .then(|| format!("broker {broker} has begun no answer for {} s", quiet.as_secs()))
    }

    fn describe_entry(
        &self,
        index: usize,
        answered: &Answered,
        now: Instant,
    ) -> PartitionDescription {
        let entry = &self.entries[index];
        let end = entry.body.end();
        let mut shown = entry.machine.shown(end, now);
        let mirroring = matches!(entry.machine.phase(), Phase::Mirroring { .. });
        if mirroring
            && let Some(broker) = entry.broker()
            && let Some(trouble) = self.lanes.trouble(broker, entry.core)
        {
            shown.state = "FAILED";
            shown.attempts = trouble.attempts;
            shown.message = Some(format!("broker {broker}: {}", trouble.cause));
        }
        if entry.machine.leader().is_none()
            && entry.machine.phase() == Phase::Align
            && let Some(trouble) = &self.trouble
        {
            shown.attempts = self.refresh.failures;
            shown.message = Some(trouble.clone());
        }
        if shown.state == "MIRRORING"
            && let Some(quiet) = self.quiet(entry, answered, now)
        {
            shown.message = Some(quiet);
        }
        if shown.message.is_none() {
            shown.message.clone_from(&entry.record.note);
        }
        let source_offset =
            if shown.state == "MIRRORING" { self.source_offset(entry) } else { None };
        let epoch = entry.body.partition().map_or(-1, |ours| ours.log.latest_epoch().0);
        PartitionDescription {
            topic: entry.id.topic.to_string(),
            partition: entry.id.partition,
            state: shown.state,
            error_message: shown.message,
            retry_attempt: shown.attempts,
            source_offset,
            destination_offset: end.0.max(0),
            last_mirror_epoch: epoch,
            last_mirror_offset: -1,
        }
    }

    fn source_offset(&self, entry: &Entry) -> Option<i64> {
        let partition = entry.body.partition()?;
        let answered = partition.progress.last_answer_ms.load(Ordering::Relaxed);
        let stale = (STALE_AFTER + self.config.fetch_wait_max).as_millis() as i64;
        let end = partition.progress.source_high_watermark.load(Ordering::Relaxed);
        // Our end was read before; it may pass the watermark of an answer that is still landing.
        (end >= 0 && now_ms() - answered <= stale).then(|| end.max(partition.log.log_end().0))
    }
}
