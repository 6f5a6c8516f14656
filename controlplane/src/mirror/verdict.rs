//! Whether our log is still a prefix of the source's history, and what to do when it is not.
//!
//! Pure: questions out, answers in. Runs before the first fetch of a partition after a start, a
//! change of leader, and an offset that the source calls out of range.

use storage::{EpochEnd, LeaderEpoch, Offset};

use crate::client::EpochAnswer;

/// Rounds of epoch questions for one partition. Each goes down at least one epoch that our log has.
const ROUNDS_MAX: u32 = 1_000;

/// Our log, as it stands when the questions begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OurLog {
    /// First offset.
    pub(super) start: Offset,
    /// One past the last.
    pub(super) end: Offset,
    /// Epoch of the last batch; unknown for an empty log and for old message formats.
    pub(super) epoch: LeaderEpoch,
}

/// The source's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceLog {
    /// First offset.
    pub(super) start: Offset,
    /// High watermark.
    pub(super) end: Offset,
}

/// Up to where both logs are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommonPoint {
    /// One past the last common offset.
    pub(super) offset: Offset,
    /// The source's epoch that ends there; unknown when it has none of ours.
    pub(super) source_epoch: LeaderEpoch,
}

/// Searches the common point, one epoch question at a time (KIP-101, KIP-279).
#[derive(Clone, Debug)]
pub(super) struct Search {
    ours: OurLog,
    asked: LeaderEpoch,
    /// Where our batches of epochs up to `asked` end.
    bound: Offset,
    rounds: u32,
}

/// What the search wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask where this epoch ends.
    Ask(LeaderEpoch),
    /// Found.
    Found(CommonPoint),
    /// The answer is none that a Kafka broker gives.
    Nonsense,
}

impl Search {
    /// A search, and its first question; `None` when our log has no epoch to ask about.
    pub(super) fn begin(ours: OurLog) -> Option<Self> {
        (ours.epoch.0 >= 0).then_some(Self { ours, asked: ours.epoch, bound: ours.end, rounds: 0 })
    }

    /// The epoch in question.
    pub(super) fn asked(&self) -> LeaderEpoch {
        self.asked
    }

    /// Takes an answer. `our_end_of` says where our batches of epochs up to the given one end.
    pub(super) fn answer(
        &mut self,
        answer: EpochAnswer,
        our_end_of: impl Fn(LeaderEpoch) -> Option<EpochEnd>,
    ) -> Step {
        self.rounds += 1;
        if answer.epoch > self.asked || self.rounds > ROUNDS_MAX {
            return Step::Nonsense;
        }
        let source_known = answer.epoch.0 >= 0 && answer.end_offset.0 >= 0;
        if source_known && answer.epoch == self.asked {
            return self.found(self.bound.min(answer.end_offset), answer.epoch);
        }
        // The source has an older epoch at this place, or (unknown) none as new as ours: what we
        // have of that older epoch may still be common.
        let below = if source_known { answer.epoch } else { LeaderEpoch(self.asked.0 - 1) };
        let older = if below.0 < 0 { None } else { our_end_of(below) };
        let Some(older) = older.filter(|older| older.epoch.0 >= 0) else {
            return self.found(self.ours.start, LeaderEpoch::UNKNOWN);
        };
        if source_known {
            self.bound = self.bound.min(older.end_offset).min(answer.end_offset);
        } else {
            self.bound = self.bound.min(older.end_offset);
        }
        if source_known && older.epoch == answer.epoch {
            return self.found(self.bound, answer.epoch);
        }
        self.asked = older.epoch;
        Step::Ask(older.epoch)
    }

    fn found(&self, offset: Offset, source_epoch: LeaderEpoch) -> Step {
        Step::Found(CommonPoint { offset, source_epoch })
    }
}

/// What to do with a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// We have nothing yet: begin at the source's log start.
    Begin(Offset),
    /// Go on from our end.
    GoOn,
    /// The source deleted what lies between our end and its start.
    Gap {
        /// Our end.
        from: Offset,
        /// The source's start.
        to: Offset,
    },
    /// Our log has what the source's history does not.
    Diverged {
        /// Up to where they agree.
        common: CommonPoint,
        /// Our end.
        end: Offset,
        /// The source's start, which may lie beyond the common point.
        source_start: Offset,
    },
    /// The source has another batch than our last one at this offset, in a topic without an id: the
    /// topic was recreated.
    Replaced(Offset),
    /// Our end is beyond the source's, and no epoch says whether that is a high watermark that
    /// lags behind or lost data. Look again.
    Beyond {
        /// Our end.
        end: Offset,
        /// The source's.
        source_end: Offset,
    },
}

/// Judges a partition. `common` is the search's result, `None` when there was no epoch to ask for.
pub(super) fn judge(
    ours: Option<OurLog>,
    common: Option<CommonPoint>,
    source: SourceLog,
) -> Verdict {
    let Some(ours) = ours else {
        return Verdict::Begin(source.start);
    };
    if let Some(common) = common.filter(|common| common.offset < ours.end) {
        return Verdict::Diverged { common, end: ours.end, source_start: source.start };
    }
    if ours.end < source.start {
        return Verdict::Gap { from: ours.end, to: source.start };
    }
    // With the epochs in agreement an end beyond the source's high watermark is no divergence: a
    // new leader learns the high watermark later than the records.
    if common.is_none() && ours.end > source.end {
        return Verdict::Beyond { end: ours.end, source_end: source.end };
    }
    Verdict::GoOn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::KafkaCode;

    const fn log(start: i64, end: i64, epoch: i32) -> OurLog {
        OurLog { start: Offset(start), end: Offset(end), epoch: LeaderEpoch(epoch) }
    }

    fn answer(epoch: i32, end: i64) -> EpochAnswer {
        EpochAnswer { code: KafkaCode::NONE, epoch: LeaderEpoch(epoch), end_offset: Offset(end) }
    }

    /// Epochs as (epoch, first offset), with the log's end.
    fn end_of(epochs: &[(i32, i64)], end: i64, epoch: i32) -> Option<EpochEnd> {
        let index = epochs.iter().rposition(|(known, _)| *known <= epoch)?;
        let end = epochs.get(index + 1).map_or(end, |(_, start)| *start);
        Some(EpochEnd { epoch: LeaderEpoch(epochs[index].0), end_offset: Offset(end) })
    }

    /// A broker's answer, by the rules of its epoch cache.
    fn broker(epochs: &[(i32, i64)], end: i64, asked: LeaderEpoch) -> EpochAnswer {
        let latest = epochs.last().map(|(epoch, _)| *epoch);
        if latest == Some(asked.0) {
            return answer(asked.0, end);
        }
        let Some(higher) = epochs.iter().find(|(epoch, _)| *epoch > asked.0) else {
            return answer(-1, -1);
        };
        let floor = epochs.iter().rfind(|(epoch, _)| *epoch <= asked.0);
        answer(floor.map_or(asked.0, |(epoch, _)| *epoch), higher.1)
    }

    fn search(ours: &[(i32, i64)], end: i64, source: &[(i32, i64)], source_end: i64) -> i64 {
        let start = ours[0].1;
        let mut search = Search::begin(log(start, end, ours[ours.len() - 1].0)).unwrap();
        loop {
            let answer = broker(source, source_end, search.asked());
            match search.answer(answer, |epoch| end_of(ours, end, epoch.0)) {
                Step::Ask(_) => {}
                Step::Found(common) => return common.offset.0,
                Step::Nonsense => panic!("nonsense"),
            }
        }
    }

    #[test]
    fn a_prefix_has_all_of_itself_in_common() {
        assert_eq!(search(&[(0, 0), (2, 50)], 80, &[(0, 0), (2, 50)], 100), 80);
        assert_eq!(search(&[(0, 0), (2, 50)], 80, &[(0, 0), (2, 50), (3, 80)], 100), 80);
        assert_eq!(search(&[(0, 0)], 80, &[(3, 90)], 100), 80, "trimmed at the source");
    }

    #[test]
    fn an_unclean_election_is_found_where_it_happened() {
        // Ours has 60..80 of epoch 2; the new leader began epoch 3 at 60.
        assert_eq!(search(&[(0, 0), (2, 50)], 80, &[(0, 0), (2, 50), (3, 60)], 70), 60);
        // The new leader never saw epoch 2.
        assert_eq!(search(&[(0, 0), (2, 50)], 80, &[(0, 0), (3, 40)], 70), 40);
        assert_eq!(search(&[(0, 0), (2, 50)], 80, &[(0, 0), (3, 55)], 70), 50);
    }

    #[test]
    fn several_epochs_that_only_one_side_has_are_walked_down() {
        let ours = [(1, 0), (4, 30), (6, 60)];
        let source = [(1, 0), (3, 20), (5, 45), (7, 55)];
        assert_eq!(search(&ours, 90, &source, 99), 20);
    }

    #[test]
    fn a_recreated_topic_has_nothing_or_only_its_shorter_log_in_common() {
        assert_eq!(search(&[(5, 10)], 80, &[(0, 0)], 20), 10, "our log start: nothing");
        assert_eq!(search(&[(0, 0)], 80, &[(0, 0)], 20), 20);
    }

    #[test]
    fn an_answer_above_the_question_is_refused() {
        let mut search = Search::begin(log(0, 9, 3)).unwrap();
        assert_eq!(search.answer(answer(4, 9), |_| None), Step::Nonsense);
    }

    #[test]
    fn verdicts() {
        let source = SourceLog { start: Offset(10), end: Offset(20) };
        let at =
            |offset| Some(CommonPoint { offset: Offset(offset), source_epoch: LeaderEpoch(1) });
        assert_eq!(judge(None, None, source), Verdict::Begin(Offset(10)));
        assert_eq!(judge(Some(log(0, 15, 1)), at(15), source), Verdict::GoOn);
        assert_eq!(
            judge(Some(log(0, 4, 1)), at(4), source),
            Verdict::Gap { from: Offset(4), to: Offset(10) }
        );
        assert!(matches!(judge(Some(log(0, 15, 1)), at(12), source), Verdict::Diverged { .. }));
        // The epochs agree: the high watermark lags.
        assert_eq!(judge(Some(log(0, 25, 1)), at(25), source), Verdict::GoOn);
        // No epoch to ask about: unknown.
        let beyond = Verdict::Beyond { end: Offset(25), source_end: Offset(20) };
        assert_eq!(judge(Some(log(0, 25, -1)), None, source), beyond);
        // An empty log that begins where the source's does.
        assert_eq!(judge(Some(log(10, 10, -1)), None, source), Verdict::GoOn);
    }
}
