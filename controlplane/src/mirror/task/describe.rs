//! What an operator sees.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{MirrorTask, now_ms};
use crate::mirror::api::{MirrorDescription, PartitionDescription};
use crate::mirror::entry::Entry;
use crate::mirror::machine::Phase;

/// The source's end is unknown when no answer spoke of the partition for this long beyond the long
/// poll: with the source cut off, no partition shows a lag.
const STALE_AFTER: Duration = Duration::from_secs(15);

impl MirrorTask {
    pub(super) fn describe(&self, now: Instant) -> MirrorDescription {
        let entries = self.topics.values().flat_map(|topic| &topic.entries);
        let partitions = entries.map(|index| self.describe_entry(*index as usize, now)).collect();
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

    fn describe_entry(&self, index: usize, now: Instant) -> PartitionDescription {
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
