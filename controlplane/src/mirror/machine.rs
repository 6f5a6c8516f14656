//! The state of one partition: KIP-1279's words, driven by what happened.
//!
//! Takes time and events as arguments and does nothing itself; the mirror's task carries out what
//! a step asks for.

use std::time::{Duration, Instant};

use storage::{LeaderEpoch, Offset};

use super::backoff::Backoff;

/// A partition that ran this long without a fault has recovered from the one before.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// An unreachable or leaderless source is looked at again at least this often, whatever the cap
/// for other faults: its return is not announced by anybody else.
const LEADER_WAIT_MAX: Duration = Duration::from_secs(30);
/// Looks in a row at an older epoch before it is believed.
const FALLEN_LOOKS: u8 = 3;
/// The attempt number that says "not by itself" (KIP-1279).
const NOT_RETRIED: i16 = -1;

/// Who leads a partition at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leader {
    /// Node id.
    pub(super) broker: i32,
    /// Epoch; unknown from a source before 2.1.
    pub(super) epoch: LeaderEpoch,
}

/// How a fault may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultClass {
    /// By another leader, or a newer epoch: refresh the metadata.
    Leader,
    /// By reaching the broker again.
    Unreachable,
    /// By aligning again.
    Position,
    /// By time, or by an operator elsewhere (a full disk, a permission).
    Retry,
}

/// What a partition does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// To be aligned as soon as it has a leader.
    Align,
    /// The questions are out.
    Asked,
    /// Its log is being made.
    Preparing,
    /// Its cursor runs.
    Mirroring {
        /// Since when.
        since: Instant,
    },
    /// Waits to be tried again.
    Waiting {
        /// Until when.
        until: Instant,
        /// What else may end the wait.
        class: FaultClass,
    },
    /// Stopped for good; an operator has to act.
    Stopped,
}

/// What `describe` shows of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// KIP-1279's word.
    pub(super) state: &'static str,
    /// Cause.
    pub(super) message: Option<String>,
    /// Attempts.
    pub(super) attempts: i16,
}

/// One partition's state.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    phase: Phase,
    leader: Option<Leader>,
    /// Tells the answer to the last question from answers to earlier ones.
    question: u32,
    attempts: i16,
    message: Option<Box<str>>,
    /// Looks in a row that found an older epoch: see [`Machine::epoch_fell`].
    fallen_looks: u8,
    /// Our end at the last fault: attempts start anew when it moved.
    end_at_fault: Offset,
}

impl Machine {
    /// A partition that has to be aligned.
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Align,
            leader: None,
            question: 0,
            attempts: 0,
            message: None,
            fallen_looks: 0,
            end_at_fault: Offset(-1),
        }
    }

    /// A partition that had stopped for good before the node's last stop.
    pub(super) fn stopped(message: &str) -> Self {
        Self { phase: Phase::Stopped, message: Some(message.into()), ..Self::new() }
    }

    /// Metadata or a broker's hint names the leader. Returns whether a running cursor has to be
    /// parked. An epoch below the known one comes from a broker that lags behind.
    pub(super) fn leader_is(&mut self, leader: Option<Leader>) -> bool {
        if leader == self.leader {
            return false;
        }
        if let (Some(new), Some(known)) = (leader, self.leader)
            && new.epoch.0 >= 0
            && new.epoch < known.epoch
        {
            return false;
        }
        self.leader = leader;
        if leader.is_none() {
            return false;
        }
        match self.phase {
            Phase::Mirroring { .. } => {
                self.phase = Phase::Align;
                true
            }
            Phase::Asked
            | Phase::Waiting { class: FaultClass::Leader | FaultClass::Unreachable, .. } => {
                self.phase = Phase::Align;
                false
            }
            Phase::Align | Phase::Preparing | Phase::Waiting { .. } | Phase::Stopped => false,
        }
    }

    /// For a source without topic ids: metadata names a leader of an epoch below the known one. Once,
    /// that is a broker that lags behind; again, the topic was recreated or its cluster restored, and
    /// the news must not be taken for old any more: aligning will tell.
    pub(super) fn epoch_fell(&mut self, leader: Leader) {
        let fell =
            self.leader.is_some_and(|known| leader.epoch.0 >= 0 && leader.epoch < known.epoch);
        self.fallen_looks = if fell { self.fallen_looks.saturating_add(1) } else { 0 };
        if self.fallen_looks >= FALLEN_LOOKS {
            self.fallen_looks = 0;
            // Known by its broker only, so that whatever epoch comes is newer.
            self.leader = Some(Leader { broker: leader.broker, epoch: LeaderEpoch::UNKNOWN });
        }
    }

    /// Takes the partition into the next round of questions, if it waits for one: the leader to
    /// ask, and the question's number.
    pub(super) fn ask(&mut self) -> Option<(Leader, u32)> {
        let leader = self.leader?;
        if self.phase != Phase::Align {
            return None;
        }
        self.phase = Phase::Asked;
        self.question = self.question.wrapping_add(1);
        Some((leader, self.question))
    }

    /// Whether an answer belongs to the question that is out.
    pub(super) fn expects(&self, question: u32) -> bool {
        self.phase == Phase::Asked && self.question == question
    }

    /// The log is being made.
    pub(super) fn prepares(&mut self) {
        self.phase = Phase::Preparing;
    }

    /// Aligned once more from the start: the log appeared or moved under the question.
    pub(super) fn align_again(&mut self) {
        self.phase = Phase::Align;
    }

    /// The cursor was sent on.
    pub(super) fn runs(&mut self, now: Instant) {
        self.phase = Phase::Mirroring { since: now };
    }

    /// A fault that may end. `end` is our log end.
    pub(super) fn fails(
        &mut self,
        class: FaultClass,
        message: &str,
        end: Offset,
        now: Instant,
        backoff: &mut Backoff,
    ) {
        if self.phase == Phase::Stopped {
            return;
        }
        let settled = match self.phase {
            Phase::Mirroring { since } => now.duration_since(since) >= SETTLED_AFTER,
            _ => false,
        };
        if settled || end > self.end_at_fault && self.end_at_fault.0 >= 0 {
            self.attempts = 0;
        }
        self.end_at_fault = end;
        self.attempts = self.attempts.saturating_add(1);
        self.message = Some(message.into());
        if class == FaultClass::Position && self.attempts == 1 {
            self.phase = Phase::Align;
            return;
        }
        let cap = match class {
            FaultClass::Leader | FaultClass::Unreachable => LEADER_WAIT_MAX,
            FaultClass::Position | FaultClass::Retry => Duration::MAX,
        };
        let until = now + backoff.delay(self.attempts, cap);
        self.phase = Phase::Waiting { until, class };
    }

    /// A fault that does not end by itself.
    pub(super) fn stop(&mut self, message: &str) {
        self.phase = Phase::Stopped;
        self.message = Some(message.into());
    }

    /// An operator starts a stopped partition again, or what stopped it proved wrong.
    pub(super) fn restart(&mut self) {
        self.phase = Phase::Align;
        self.attempts = 0;
        self.message = None;
    }

    /// Wakes a partition whose time has come. Returns whether fresh metadata should be asked for.
    pub(super) fn due(&mut self, now: Instant) -> bool {
        match self.phase {
            Phase::Waiting { until, class } if until <= now => {
                self.phase = Phase::Align;
                matches!(class, FaultClass::Leader | FaultClass::Unreachable)
            }
            _ => false,
        }
    }

    /// When [`Machine::due`] has something to do.
    pub(super) fn due_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting { until, .. } => Some(until),
            _ => None,
        }
    }

    /// The broker answers again: whoever waited for that goes on.
    pub(super) fn reached(&mut self, broker: i32) {
        if self.leader.is_some_and(|leader| leader.broker == broker)
            && matches!(self.phase, Phase::Waiting { class: FaultClass::Unreachable, .. })
        {
            self.phase = Phase::Align;
        }
    }

    /// What it does.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Its leader.
    pub(super) fn leader(&self) -> Option<Leader> {
        self.leader
    }

    /// For `describe`. `end` is our log end.
    pub(super) fn shown(&self, end: Offset, now: Instant) -> Shown {
        let message = || self.message.as_deref().map(str::to_owned);
        match self.phase {
            Phase::Stopped => Shown { state: "FAILED", message: message(), attempts: NOT_RETRIED },
            Phase::Waiting { .. } => {
                Shown { state: "FAILED", message: message(), attempts: self.attempts }
            }
            Phase::Align if self.leader.is_none() => Shown {
                state: "FAILED",
                message: message().or_else(|| Some("the source names no leader yet".to_owned())),
                attempts: self.attempts,
            },
            Phase::Align | Phase::Asked | Phase::Preparing => {
                Shown { state: "LOG_ALIGNMENT", message: message(), attempts: self.attempts }
            }
            Phase::Mirroring { since } => {
                let settled = end > self.end_at_fault && self.end_at_fault.0 >= 0
                    || now.duration_since(since) >= SETTLED_AFTER;
                if settled || self.attempts == 0 {
                    Shown { state: "MIRRORING", message: None, attempts: 0 }
                } else {
                    Shown { state: "MIRRORING", message: message(), attempts: self.attempts }
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
