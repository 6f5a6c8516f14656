//! Makes the lanes that the partitions need and hands them to the cores.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dataplane::{BrokerId, LaneClosed, LaneSpec, Resume};

use super::{Message, MirrorTask, next_lane, now_ms, report};
use crate::client::{ClientError, LaneConnection};
use crate::mirror::entry::Body;
use crate::mirror::lanes::Place;
use crate::mirror::machine::Phase;

impl MirrorTask {
    pub(super) fn start_lanes(&mut self, now: Instant) {
        let mut needed = BTreeSet::new();
        for entry in &self.entries {
            if let Some(broker) = entry.broker()
                && entry.machine.phase() != Phase::Stopped
            {
                needed.insert((broker, entry.core));
            }
        }
        self.prove_lanes();
        for place in self.lanes.want(&needed, now) {
            let Some(address) = self.brokers.get(&place.broker).cloned() else {
                let cause = format!("the source names no address for broker {}", place.broker);
                self.lanes.failed(place, cause, now, &mut self.backoff);
                self.refresh.want();
                continue;
            };
            let topic_ids = self.topics.values().all(|topic| topic.source_has_id);
            let settings = self.client.settings().clone();
            let cluster_id = self.record.source_cluster_id.clone();
            let reports = self.reports.clone();
            tokio::spawn(async move {
                let opened =
                    LaneConnection::open(&address, &settings, &cluster_id, topic_ids).await;
                report(reports, Message::Lane(place, opened)).await;
            });
        }
    }

    pub(super) fn lane_connected(
        &mut self,
        place: Place,
        result: Result<LaneConnection, ClientError>,
        now: Instant,
    ) {
        let connection = match result {
            Ok(connection) => connection,
            Err(error) => {
                // Tried again for as long as it lasts: said once.
                if self.lanes.trouble(place.broker, place.core).is_none() {
                    tracing::info!(mirror = %self.name, broker = place.broker, %error, "no lane");
                }
                self.lanes.failed(place, error.to_string(), now, &mut self.backoff);
                self.refresh.want();
                self.leave_replica(place.broker);
                return;
            }
        };
        let lane = next_lane(&self.shared);
        self.lanes.connected(place, lane);
        self.shared.cores.add_lane(
            place.core,
            LaneSpec {
                lane,
                link: self.link,
                broker: BrokerId(place.broker),
                kind: place.kind(),
                socket: connection.socket,
                fetch_version: connection.fetch_version,
            },
        );
        for entry in &mut self.entries {
            entry.machine.reached(place.broker);
        }
    }

    pub(super) fn lane_closed(&mut self, closed: &LaneClosed, now: Instant) {
        let place = self.lanes.closed(closed.lane, &closed.cause, now, &mut self.backoff);
        if let Some(place) = place {
            tracing::info!(
                mirror = %self.name, broker = place.broker, core = place.core.0,
                cause = closed.cause, "lane closed"
            );
            // The broker may be gone, and its partitions led by others.
            self.refresh.want();
            self.leave_replica(place.broker);
        }
    }

    /// Sends the cursors that read from a replica back to their leaders.
    fn leave_replica(&mut self, broker: i32) {
        for entry in &mut self.entries {
            if entry.read_from != Some(broker) {
                continue;
            }
            entry.read_from = None;
            if let (Body::Given(partition), Some(leader)) = (&entry.body, entry.machine.leader())
                && matches!(entry.machine.phase(), Phase::Mirroring { .. })
            {
                let resume = Resume {
                    broker: BrokerId(leader.broker),
                    leader_epoch: leader.epoch,
                    repair: None,
                };
                self.shared.cores.resume(entry.core, partition.clone(), resume);
            }
        }
    }

    /// A leader sends a cursor to a nearer replica. One that we cannot reach is not waited for.
    /// Returns whether the cursor went.
    pub(super) fn read_from(&mut self, index: usize, replica: BrokerId) -> bool {
        let entry = &mut self.entries[index];
        let (Some(leader), Body::Given(partition)) = (entry.machine.leader(), &entry.body) else {
            return false;
        };
        if self.lanes.trouble(replica.0, entry.core).is_some()
            || !self.brokers.contains_key(&replica.0)
        {
            return false;
        }
        entry.read_from = Some(replica.0);
        let resume = Resume { broker: replica, leader_epoch: leader.epoch, repair: None };
        self.shared.cores.resume(entry.core, partition.clone(), resume);
        true
    }

    /// A lane that came back has proved itself when one of its partitions was answered.
    fn prove_lanes(&mut self) {
        let unproven = self.lanes.unproven();
        if unproven.is_empty() {
            return;
        }
        let recent = now_ms() - 2 * super::TURN_MAX.as_millis() as i64;
        for entry in &self.entries {
            let Some(broker) = entry.broker() else { continue };
            if unproven.contains(&(broker, entry.core))
                && let Some(partition) = entry.body.partition()
                && partition.progress.last_answer_ms.load(Ordering::Relaxed) >= recent
            {
                self.lanes.answered(broker, entry.core);
            }
        }
    }
}
