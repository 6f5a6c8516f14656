//! Which leader epoch started at which offset, and the file that remembers it.
//!
//! Owned by the thread that writes the log; plain data, no I/O. The rules are those by which
//! brokers find where two replicas' histories part (KIP-101, KIP-279). It must never answer for an
//! epoch it does not know: unknown is `None`.

use crate::reader::EpochEnd;
use crate::{LeaderEpoch, Offset};

/// Most epochs kept per log. A leader change a minute for six weeks stays below it; each costs 16
/// bytes, so the largest cache is 1 MiB.
pub const EPOCHS_MAX: usize = 65_536;

/// Format number of `leader-epoch-checkpoint`.
const VERSION: &str = "0";

/// One epoch and the first offset written in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its first offset.
    pub start_offset: Offset,
}

/// Why an epoch cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpochError {
    /// A negative epoch or offset.
    #[error("epoch {epoch} at offset {start_offset} cannot be: neither is ever negative")]
    Negative {
        /// The epoch.
        epoch: LeaderEpoch,
        /// The offset.
        start_offset: Offset,
    },
    /// The cache is at its bound.
    #[error("more than {EPOCHS_MAX} leader epochs in one log")]
    Full,
}

/// Why `leader-epoch-checkpoint` cannot be read. The log itself can always rebuild it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpochParseError {
    /// A version this code does not know.
    #[error("line 1: version {0:?}, expected \"0\"")]
    Version(String),
    /// The count is not a number, or too large.
    #[error("line 2: {0:?} is no count of at most {EPOCHS_MAX}")]
    Count(String),
    /// A line is not `epoch offset`.
    #[error("line {line}: {text:?} is not an epoch and an offset")]
    Entry {
        /// Line number, from 1.
        line: usize,
        /// The line, cut to a readable length.
        text: String,
    },
    /// Epochs or offsets do not rise.
    #[error("line {line}: epoch or offset does not rise")]
    Order {
        /// Line number, from 1.
        line: usize,
    },
    /// Fewer or more lines than the count says.
    #[error("{found} entries, the count says {counted}")]
    Entries {
        /// The count.
        counted: usize,
        /// Entries found, counting no further than one too many.
        found: usize,
    },
    /// The bytes are not text.
    #[error("not a text file")]
    NotText,
}

/// Epochs of one log, oldest first; epochs and offsets both rise strictly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochCache {
    entries: Vec<EpochStart>,
}

impl EpochCache {
    /// Reads the contents of a `leader-epoch-checkpoint` file.
    pub fn parse(bytes: &[u8]) -> Result<Self, EpochParseError> {
        let text = std::str::from_utf8(bytes).map_err(|_| EpochParseError::NotText)?;
        let mut lines = text.lines();
        let version = lines.next().unwrap_or_default();
        if version.trim() != VERSION {
            return Err(EpochParseError::Version(shortened(version)));
        }
        let count = lines.next().unwrap_or_default();
        let counted = count.trim().parse().ok().filter(|counted| *counted <= EPOCHS_MAX);
        let counted = counted.ok_or_else(|| EpochParseError::Count(shortened(count)))?;
        let mut entries: Vec<EpochStart> = Vec::new();
        for (index, text) in lines.enumerate() {
            if entries.len() == counted {
                return Err(EpochParseError::Entries { counted, found: counted + 1 });
            }
            let line = index + 3;
            let entry = parse_entry(text)
                .ok_or_else(|| EpochParseError::Entry { line, text: shortened(text) })?;
            if entries.last().is_some_and(|last| {
                entry.epoch <= last.epoch || entry.start_offset <= last.start_offset
            }) {
                return Err(EpochParseError::Order { line });
            }
            entries.push(entry);
        }
        if entries.len() < counted {
            return Err(EpochParseError::Entries { counted, found: entries.len() });
        }
        Ok(Self { entries })
    }

    /// The contents of a `leader-epoch-checkpoint` file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{VERSION}\n{}\n", self.entries.len());
        for entry in &self.entries {
            text.push_str(&format!("{} {}\n", entry.epoch, entry.start_offset));
        }
        text.into_bytes()
    }

    /// Notes that a batch of `epoch` was appended at `start_offset`. Entries that contradict it
    /// (an epoch or an offset at or above it) are history that did not happen and go away.
    ///
    /// Returns whether anything changed, so that the file must be written again. Batches without
    /// an epoch (formats before v2) are not noted: call this only for known epochs.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> Result<bool, EpochError> {
        if epoch.0 < 0 || start_offset.0 < 0 {
            return Err(EpochError::Negative { epoch, start_offset });
        }
        if let Some(last) = self.entries.last()
            && last.epoch == epoch
            && start_offset >= last.start_offset
        {
            return Ok(false);
        }
        let kept = self
            .entries
            .partition_point(|entry| entry.epoch < epoch && entry.start_offset < start_offset);
        if kept >= EPOCHS_MAX {
            return Err(EpochError::Full);
        }
        self.entries.truncate(kept);
        self.entries.push(EpochStart { epoch, start_offset });
        Ok(true)
    }

    /// The log now ends at `log_end`: epochs that start there or later are gone. Returns whether
    /// anything changed.
    pub fn truncate_from_end(&mut self, log_end: Offset) -> bool {
        let kept = self.entries.partition_point(|entry| entry.start_offset < log_end);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// The log now starts at `log_start`: earlier epochs are gone, and the one that was current
    /// there starts there. Returns whether anything changed.
    pub fn truncate_from_start(&mut self, log_start: Offset) -> bool {
        let reached = self.entries.partition_point(|entry| entry.start_offset <= log_start);
        let Some(current) = reached.checked_sub(1) else { return false };
        if current == 0 && self.entries[0].start_offset == log_start {
            return false;
        }
        self.entries.drain(..current);
        self.entries[0].start_offset = log_start;
        true
    }

    /// Forgets everything. Returns whether there was anything.
    pub fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }

    /// The newest epoch.
    #[must_use]
    pub fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// The oldest epoch.
    #[must_use]
    pub fn earliest(&self) -> Option<EpochStart> {
        self.entries.first().copied()
    }

    /// All entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The epoch that the record at `offset` was, or would be, written in. `None` below the first
    /// known epoch.
    #[must_use]
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start_offset <= offset);
        after.checked_sub(1).map(|index| self.entries[index].epoch)
    }

    /// Where `epoch` ended, answered as a broker answers OffsetsForLeaderEpoch: for the newest
    /// epoch the log end; for an older one the largest known epoch not above it and the start of
    /// the next; for one older than all, that epoch itself and the start of the first. `None` for
    /// an epoch above the newest, and for [`LeaderEpoch::UNKNOWN`].
    #[must_use]
    pub fn end_offset_for(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<EpochEnd> {
        if epoch == LeaderEpoch::UNKNOWN {
            return None;
        }
        if self.latest()?.epoch == epoch {
            return Some(EpochEnd { epoch, end_offset: log_end });
        }
        let after = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let end_offset = self.entries.get(after)?.start_offset;
        let floor = after.checked_sub(1).map_or(epoch, |index| self.entries[index].epoch);
        Some(EpochEnd { epoch: floor, end_offset })
    }
}

fn parse_entry(line: &str) -> Option<EpochStart> {
    let (epoch, offset) = line.trim_end().split_once(' ')?;
    let epoch: i32 = epoch.parse().ok()?;
    let start_offset: i64 = offset.trim_start().parse().ok()?;
    (epoch >= 0 && start_offset >= 0)
        .then_some(EpochStart { epoch: LeaderEpoch(epoch), start_offset: Offset(start_offset) })
}

/// A damaged line may be as long as the file; an error message may not.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        let mut cache = EpochCache::default();
        for (epoch, offset) in entries {
            assert_eq!(cache.assign(LeaderEpoch(*epoch), Offset(*offset)), Ok(true));
        }
        cache
    }

    fn pairs(cache: &EpochCache) -> Vec<(i32, i64)> {
        cache.entries().iter().map(|entry| (entry.epoch.0, entry.start_offset.0)).collect()
    }

    fn end(cache: &EpochCache, epoch: i32) -> Option<(i32, i64)> {
        cache
            .end_offset_for(LeaderEpoch(epoch), Offset(100))
            .map(|end| (end.epoch.0, end.end_offset.0))
    }

    #[test]
    fn more_batches_of_the_same_epoch_change_nothing() {
        let mut cache = cache(&[(2, 6)]);
        assert_eq!(cache.assign(LeaderEpoch(2), Offset(6)), Ok(false));
        assert_eq!(cache.assign(LeaderEpoch(2), Offset(9)), Ok(false));
        assert_eq!(pairs(&cache), [(2, 6)]);
    }

    #[test]
    fn entries_that_contradict_a_new_one_go_away() {
        let mut by_offset = cache(&[(1, 0), (2, 10), (4, 20)]);
        assert_eq!(by_offset.assign(LeaderEpoch(5), Offset(10)), Ok(true));
        assert_eq!(pairs(&by_offset), [(1, 0), (5, 10)]);
        let mut by_epoch = cache(&[(1, 0), (2, 10), (4, 20)]);
        assert_eq!(by_epoch.assign(LeaderEpoch(2), Offset(30)), Ok(true));
        assert_eq!(pairs(&by_epoch), [(1, 0), (2, 30)]);
        let mut earlier = cache(&[(1, 0), (4, 20)]);
        assert_eq!(earlier.assign(LeaderEpoch(4), Offset(15)), Ok(true));
        assert_eq!(pairs(&earlier), [(1, 0), (4, 15)]);
    }

    #[test]
    fn negative_numbers_and_endless_epochs_are_refused() {
        let mut cache = EpochCache::default();
        assert!(matches!(
            cache.assign(LeaderEpoch(-1), Offset(0)),
            Err(EpochError::Negative { .. })
        ));
        assert!(matches!(
            cache.assign(LeaderEpoch(0), Offset(-1)),
            Err(EpochError::Negative { .. })
        ));
        for epoch in 0..EPOCHS_MAX as i32 {
            assert_eq!(cache.assign(LeaderEpoch(epoch), Offset(i64::from(epoch))), Ok(true));
        }
        let next = EPOCHS_MAX as i32;
        assert_eq!(cache.assign(LeaderEpoch(next), Offset(i64::from(next))), Err(EpochError::Full));
        assert_eq!(cache.entries().len(), EPOCHS_MAX);
    }

    #[test]
    fn ends_of_epochs_are_answered_as_a_broker_answers() {
        let cache = cache(&[(2, 5), (3, 20), (6, 50)]);
        assert_eq!(end(&cache, -1), None, "undefined");
        assert_eq!(end(&cache, 6), Some((6, 100)), "the newest ends at the log end");
        assert_eq!(end(&cache, 7), None, "above the newest");
        assert_eq!(end(&cache, 2), Some((2, 20)));
        assert_eq!(end(&cache, 3), Some((3, 50)));
        assert_eq!(end(&cache, 5), Some((3, 50)), "a gap: the epoch below");
        assert_eq!(end(&cache, 0), Some((0, 5)), "before the oldest");
        assert_eq!(end(&EpochCache::default(), 3), None);
    }

    #[test]
    fn offsets_have_the_epoch_that_was_current() {
        let cache = cache(&[(2, 5), (3, 20)]);
        let at = |offset| cache.epoch_for_offset(Offset(offset)).map(|epoch| epoch.0);
        assert_eq!(
            [at(4), at(5), at(19), at(20), at(900)],
            [None, Some(2), Some(2), Some(3), Some(3)]
        );
    }

    #[test]
    fn truncation_from_the_end_drops_epochs_that_start_at_or_after_it() {
        let mut cache = cache(&[(2, 5), (3, 20), (6, 50)]);
        assert!(!cache.truncate_from_end(Offset(51)));
        assert!(cache.truncate_from_end(Offset(50)));
        assert_eq!(pairs(&cache), [(2, 5), (3, 20)]);
        assert!(cache.truncate_from_end(Offset(0)));
        assert!(pairs(&cache).is_empty());
    }

    #[test]
    fn truncation_from_the_start_keeps_the_current_epoch_and_moves_it() {
        let entries = [(2, 5), (3, 20), (6, 50)];
        for (start, expected, changed) in [
            (4, vec![(2, 5), (3, 20), (6, 50)], false),
            (5, vec![(2, 5), (3, 20), (6, 50)], false),
            (6, vec![(2, 6), (3, 20), (6, 50)], true),
            (20, vec![(3, 20), (6, 50)], true),
            (49, vec![(3, 49), (6, 50)], true),
            (90, vec![(6, 90)], true),
        ] {
            let mut cache = cache(&entries);
            assert_eq!(cache.truncate_from_start(Offset(start)), changed, "{start}");
            assert_eq!(pairs(&cache), expected, "{start}");
        }
        assert!(!EpochCache::default().truncate_from_start(Offset(9)));
    }

    #[test]
    fn the_file_is_kafkas() {
        let cache = cache(&[(0, 0), (7, 1234)]);
        assert_eq!(cache.encode(), b"0\n2\n0 0\n7 1234\n");
        assert_eq!(EpochCache::parse(b"0\n2\n0 0\n7 1234\n"), Ok(cache));
        assert_eq!(EpochCache::parse(b"0\n0\n"), Ok(EpochCache::default()));
        assert_eq!(EpochCache::parse(b"0\n0"), Ok(EpochCache::default()));
    }

    #[test]
    fn damage_is_named_and_never_believed() {
        let parse = |text: &str| EpochCache::parse(text.as_bytes()).unwrap_err();
        assert_eq!(parse(""), EpochParseError::Version(String::new()));
        assert_eq!(parse("1\n0\n"), EpochParseError::Version("1".into()));
        assert_eq!(parse("0\n"), EpochParseError::Count(String::new()));
        assert_eq!(parse("0\n-1\n"), EpochParseError::Count("-1".into()));
        assert_eq!(parse("0\n4000000000\n"), EpochParseError::Count("4000000000".into()));
        assert_eq!(parse("0\n2\n0 0\n"), EpochParseError::Entries { counted: 2, found: 1 });
        assert_eq!(parse("0\n1\n0 0\n1 1\n"), EpochParseError::Entries { counted: 1, found: 2 });
        assert_eq!(parse("0\n2\n1 0\n1 1\n"), EpochParseError::Order { line: 4 });
        assert_eq!(parse("0\n2\n1 5\n2 5\n"), EpochParseError::Order { line: 4 });
        for line in ["1", "1 x", "x 1", "-1 0", "0 -1", "1 2 3", "99999999999 1"] {
            assert!(
                matches!(parse(&format!("0\n1\n{line}\n")), EpochParseError::Entry { line: 3, .. }),
                "{line}"
            );
        }
        assert_eq!(EpochCache::parse(&[0xff, 0xfe]), Err(EpochParseError::NotText));
        assert!(parse(&"x".repeat(100_000)).to_string().len() < 100);
    }

    proptest! {
        #[test]
        fn order_holds_and_the_file_round_trips_whatever_happens(
            steps in proptest::collection::vec((0u8..3, 0i32..20, 0i64..200), 0..40),
        ) {
            let mut cache = EpochCache::default();
            for (step, epoch, offset) in steps {
                match step {
                    0 => { cache.truncate_from_end(Offset(offset)); }
                    1 => { cache.truncate_from_start(Offset(offset)); }
                    _ => {
                        cache.assign(LeaderEpoch(epoch), Offset(offset)).unwrap();
                        prop_assert_eq!(cache.latest().unwrap().epoch, LeaderEpoch(epoch));
                        prop_assert_eq!(
                            cache.epoch_for_offset(Offset(offset)),
                            Some(LeaderEpoch(epoch))
                        );
                    }
                }
                let rising = cache.entries().windows(2).all(|pair| {
                    pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset
                });
                prop_assert!(rising);
                prop_assert_eq!(EpochCache::parse(&cache.encode()), Ok(cache.clone()));
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[0-9 \n-]{0,60}") {
            let _ = EpochCache::parse(text.as_bytes());
        }
    }
}
