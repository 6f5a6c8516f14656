//! Which lanes a mirror wants, has, and waits to make again.
//!
//! Pure: the task connects and hands over. A lane cannot be closed from here; one that nobody needs
//! any more is left to the source, which closes idle connections, and is then not made again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dataplane::{CoreId, LaneId, LaneKind};

use super::backoff::Backoff;

/// Connections being made at once: a source that comes back is not met by thousands.
const CONNECTING_MAX: usize = 64;
/// A broker's return is announced by nobody: try at least this often.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Where a lane belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Source broker.
    pub(super) broker: i32,
    /// Our core.
    pub(super) core: CoreId,
    /// 0 is the tail lane, the others catch up.
    pub(super) number: u8,
}

impl Place {
    /// What its lane is for.
    pub(super) fn kind(self) -> LaneKind {
        if self.number == 0 { LaneKind::Tail } else { LaneKind::CatchUp }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Connecting,
    Up(LaneId),
    Down { until: Instant },
}

#[derive(Debug)]
struct Slot {
    status: Status,
    attempts: i16,
    cause: Option<String>,
}

/// Why a partition's lane is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneTrouble {
    /// In words.
    pub(super) cause: String,
    /// Failed attempts to connect.
    pub(super) attempts: i16,
}

/// All lanes of one mirror.
#[derive(Debug)]
pub(super) struct LaneTable {
    slots: BTreeMap<Place, Slot>,
    catch_up_lanes: u8,
}

impl LaneTable {
    /// No lanes yet; `catch_up_lanes` beside each tail lane.
    pub(super) fn new(catch_up_lanes: usize) -> Self {
        let catch_up_lanes = u8::try_from(catch_up_lanes).unwrap_or(u8::MAX - 1).min(u8::MAX - 1);
        Self { slots: BTreeMap::new(), catch_up_lanes }
    }

    /// Says which brokers are needed on which cores; returns the lanes to connect now.
    pub(super) fn want(&mut self, needed: &BTreeSet<(i32, CoreId)>, now: Instant) -> Vec<Place> {
        self.slots.retain(|place, slot| {
            needed.contains(&(place.broker, place.core))
                || !matches!(slot.status, Status::Down { .. })
        });
        for &(broker, core) in needed {
            for number in 0..=self.catch_up_lanes {
                let fresh =
                    || Slot { status: Status::Down { until: now }, attempts: 0, cause: None };
                self.slots.entry(Place { broker, core, number }).or_insert_with(fresh);
            }
        }
        let connecting =
            self.slots.values().filter(|slot| slot.status == Status::Connecting).count();
        let mut start = Vec::new();
        for (place, slot) in &mut self.slots {
            if connecting + start.len() >= CONNECTING_MAX {
                break;
            }
            if matches!(slot.status, Status::Down { until } if until <= now) {
                slot.status = Status::Connecting;
                start.push(*place);
            }
        }
        start
    }

    /// A connection was made.
    pub(super) fn connected(&mut self, place: Place, lane: LaneId) {
        if let Some(slot) = self.slots.get_mut(&place) {
            slot.status = Status::Up(lane);
        }
    }

    /// A connection could not be made.
    pub(super) fn failed(
        &mut self,
        place: Place,
        cause: String,
        now: Instant,
        backoff: &mut Backoff,
    ) {
        if let Some(slot) = self.slots.get_mut(&place) {
            slot.attempts = slot.attempts.saturating_add(1);
            slot.cause = Some(cause);
            slot.status = Status::Down { until: now + backoff.delay(slot.attempts, RETRY_MAX) };
        }
    }

    /// A core says that a lane ended. Returns its place, unless it is not one of ours.
    pub(super) fn closed(
        &mut self,
        lane: LaneId,
        cause: &str,
        now: Instant,
        backoff: &mut Backoff,
    ) -> Option<Place> {
        let place = self.slots.iter().find(|(_, slot)| slot.status == Status::Up(lane))?.0;
        let place = *place;
        self.failed(place, cause.to_owned(), now, backoff);
        Some(place)
    }

    /// The broker answered on a lane of this core: earlier trouble is over. A lane that only
    /// connects, and ends before it brings an answer, keeps counting.
    pub(super) fn answered(&mut self, broker: i32, core: CoreId) {
        for number in 0..=self.catch_up_lanes {
            if let Some(slot) = self.slots.get_mut(&Place { broker, core, number })
                && matches!(slot.status, Status::Up(_))
            {
                slot.attempts = 0;
                slot.cause = None;
            }
        }
    }

    /// Why a partition of this broker and core cannot be fetched now, if that is so.
    pub(super) fn trouble(&self, broker: i32, core: CoreId) -> Option<LaneTrouble> {
        let slot = self.slots.get(&Place { broker, core, number: 0 })?;
        match (&slot.status, &slot.cause) {
            (Status::Up(_), _) | (_, None) => None,
            (_, Some(cause)) => Some(LaneTrouble { cause: cause.clone(), attempts: slot.attempts }),
        }
    }

    /// Brokers and cores whose trouble has not been seen to end.
    pub(super) fn unproven(&self) -> BTreeSet<(i32, CoreId)> {
        let unproven = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.cause.is_some() && matches!(slot.status, Status::Up(_)));
        unproven.map(|(place, _)| (place.broker, place.core)).collect()
    }

    /// When [`LaneTable::want`] has something to start.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let due = self.slots.values().filter_map(|slot| match slot.status {
            Status::Down { until } => Some(until),
            _ => None,
        });
        due.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: CoreId = CoreId(0);

    fn backoff() -> Backoff {
        Backoff::new(Duration::from_millis(100), Duration::from_secs(300), 1)
    }

    fn need(brokers: &[i32]) -> BTreeSet<(i32, CoreId)> {
        brokers.iter().map(|broker| (*broker, CORE)).collect()
    }

    #[test]
    fn each_needed_broker_gets_one_tail_lane_and_the_catch_up_lanes_once() {
        let now = Instant::now();
        let mut lanes = LaneTable::new(2);
        let start = lanes.want(&need(&[1]), now);
        let kinds: Vec<_> = start.iter().map(|place| place.kind()).collect();
        assert_eq!(kinds, [LaneKind::Tail, LaneKind::CatchUp, LaneKind::CatchUp]);
        assert!(lanes.want(&need(&[1]), now).is_empty());
        lanes.connected(start[0], LaneId(7));
        assert!(lanes.want(&need(&[1]), now).is_empty());
    }

    #[test]
    fn a_lost_lane_is_made_again_after_a_growing_wait_and_its_cause_is_shown_until_then() {
        let now = Instant::now();
        let mut lanes = LaneTable::new(0);
        let place = lanes.want(&need(&[1]), now)[0];
        assert_eq!(lanes.trouble(1, CORE), None, "nothing failed yet");
        lanes.connected(place, LaneId(7));
        assert_eq!(lanes.closed(LaneId(8), "x", now, &mut backoff()), None);
        assert_eq!(lanes.closed(LaneId(7), "reset", now, &mut backoff()), Some(place));
        let trouble = lanes.trouble(1, CORE).unwrap();
        assert_eq!((trouble.cause.as_str(), trouble.attempts), ("reset", 1));
        assert!(lanes.want(&need(&[1]), now).is_empty(), "not at once");
        let due = lanes.due_at().unwrap();
        assert_eq!(lanes.want(&need(&[1]), due), [place]);
        lanes.failed(place, "refused".into(), due, &mut backoff());
        assert!(lanes.due_at().unwrap() > due + Duration::from_millis(150));
        let due = lanes.due_at().unwrap();
        lanes.want(&need(&[1]), due);
        lanes.connected(place, LaneId(9));
        assert_eq!(lanes.trouble(1, CORE), None);
        assert_eq!(lanes.unproven(), need(&[1]));
        lanes.answered(1, CORE);
        assert!(lanes.unproven().is_empty());
    }

    #[test]
    fn a_lane_that_nobody_needs_is_not_made_again() {
        let now = Instant::now();
        let mut lanes = LaneTable::new(0);
        let place = lanes.want(&need(&[1]), now)[0];
        lanes.connected(place, LaneId(7));
        lanes.want(&need(&[2]), now);
        lanes.closed(LaneId(7), "idle", now, &mut backoff());
        let later = now + Duration::from_secs(60);
        assert!(lanes.want(&need(&[2]), later).iter().all(|place| place.broker != 1));
    }

    #[test]
    fn only_so_many_are_connected_at_once() {
        let now = Instant::now();
        let mut lanes = LaneTable::new(1);
        let brokers: Vec<i32> = (0..100).collect();
        let start = lanes.want(&need(&brokers), now);
        assert_eq!(start.len(), CONNECTING_MAX);
        lanes.connected(start[0], LaneId(1));
        assert_eq!(lanes.want(&need(&brokers), now).len(), 1);
    }
}
