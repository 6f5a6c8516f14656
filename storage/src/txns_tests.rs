//! Tests of open transactions and the aborted index.

use proptest::prelude::*;

use super::*;
use crate::LeaderEpoch;
use crate::batch::{BatchBuilder, BatchLimits, walk};

#[derive(Clone, Copy, Debug)]
enum Step {
    Data(i64),
    Plain,
    Commit(i64),
    Abort(i64),
}

/// One batch at `offset`, through its real bytes.
fn batch(offset: i64, step: Step) -> BatchInfo {
    let at = Offset(offset);
    let (epoch, producer_epoch) = (LeaderEpoch(0), ProducerEpoch(4));
    let mut data = BatchBuilder::new(at, epoch);
    data.push(1, None, Some(b"v"), &[]);
    let marker = |producer, marker| {
        let who = (ProducerId(producer), producer_epoch);
        BatchBuilder::end_of_transaction(at, epoch, who, marker, (1, 0))
    };
    let bytes = match step {
        Step::Plain => data.finish(),
        Step::Data(producer) => {
            data.producer(ProducerId(producer), producer_epoch, 0).transactional().finish()
        }
        Step::Commit(producer) => marker(producer, ControlMarker::Commit),
        Step::Abort(producer) => marker(producer, ControlMarker::Abort),
    };
    walk(&bytes, BatchLimits { batch_bytes_max: 4096 }).next().unwrap().unwrap().info
}

/// A log of one-record batches from offset 0: the table after it, and the index it writes.
fn run(steps: &[Step]) -> (OpenTransactions, Vec<AbortedTxn>) {
    let mut open = OpenTransactions::default();
    let mut index = Vec::new();
    for (offset, step) in steps.iter().enumerate() {
        index.extend(open.append(&batch(offset as i64, *step)).unwrap());
    }
    (open, index)
}

fn encoded(entries: &[AbortedTxn]) -> Vec<u8> {
    entries.iter().flat_map(AbortedTxn::encode).collect()
}

fn aborted(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTxn {
    AbortedTxn {
        producer_id: ProducerId(producer),
        first_offset: Offset(first),
        last_offset: Offset(last),
        last_stable_offset: Offset(stable),
    }
}

#[test]
fn the_last_stable_offset_waits_for_the_earliest_open_transaction() {
    use Step::{Commit, Data, Plain};
    let stable = |steps: &[Step]| run(steps).0.last_stable_offset(Offset(steps.len() as i64)).0;
    assert_eq!(stable(&[Plain, Plain]), 2);
    assert_eq!(stable(&[Plain, Data(1), Plain, Data(2)]), 1);
    assert_eq!(stable(&[Plain, Data(1), Plain, Data(2), Commit(1)]), 3);
    assert_eq!(stable(&[Plain, Data(1), Plain, Data(2), Commit(1), Commit(2)]), 6);
}

#[test]
fn an_aborted_transaction_is_indexed_with_what_stayed_open() {
    use Step::{Abort, Commit, Data};
    let (open, index) = run(&[
        Data(7),
        Data(8),
        Data(8),
        Abort(8),
        Data(9),
        Abort(9),
        Commit(7),
        Data(8),
        Abort(8),
    ]);
    assert_eq!(index, [aborted(8, 1, 3, 0), aborted(9, 4, 5, 0), aborted(8, 7, 8, 9)]);
    assert!(open.is_empty());
}

#[test]
fn markers_without_data_and_batches_without_producers_change_nothing() {
    let (open, index) = run(&[Step::Abort(1), Step::Commit(2), Step::Plain]);
    assert!(open.is_empty() && index.is_empty());

    let mut open = OpenTransactions::default();
    let mut emptied = batch(0, Step::Abort(1));
    emptied.control = None;
    let mut other = batch(1, Step::Abort(1));
    other.control = Some(ControlMarker::Other(5));
    let mut idempotent = batch(2, Step::Data(1));
    idempotent.attributes.0 = 0;
    open.append(&batch(3, Step::Data(1))).unwrap();
    for info in [emptied, other, idempotent] {
        assert_eq!(open.append(&info), Ok(None));
        assert_eq!(open.len(), 1);
    }
}

#[test]
fn open_transactions_are_listed_earliest_first_with_their_latest_epoch() {
    let (mut open, _) = run(&[Step::Data(9), Step::Data(3)]);
    let mut bumped = batch(2, Step::Data(9));
    bumped.producer_epoch = ProducerEpoch(5);
    open.append(&bumped).unwrap();
    let listed: Vec<_> = open
        .iter()
        .map(|open| (open.producer_id.0, open.producer_epoch.0, open.first_offset.0))
        .collect();
    assert_eq!(listed, [(9, 5, 0), (3, 4, 1)]);
}

#[test]
fn the_table_is_bounded() {
    let mut open = OpenTransactions::default();
    let mut info = batch(0, Step::Data(0));
    for producer in 0..OPEN_TRANSACTIONS_MAX as i64 {
        info.producer_id = ProducerId(producer);
        info.base_offset = Offset(producer);
        open.append(&info).unwrap();
    }
    assert_eq!(open.append(&info), Ok(None), "a known producer goes on");
    info.producer_id = ProducerId(-2);
    assert_eq!(open.append(&info), Ok(None));
    info.producer_id = ProducerId(i64::MAX);
    assert!(matches!(open.append(&info), Err(TransactionError::TooMany { .. })));
    assert_eq!(OpenTransactions::parse(&open.encode()), Ok(open));
}

#[test]
fn an_index_entry_has_kafkas_layout() {
    let bytes = aborted(1, 2, 3, 4).encode();
    let mut expected = vec![0, 0];
    for field in 1..=4i64 {
        expected.extend_from_slice(&field.to_be_bytes());
    }
    assert_eq!(bytes.to_vec(), expected);
}

#[test]
fn a_damaged_index_gives_what_came_before_the_damage() {
    let good = encoded(&[aborted(1, 0, 5, 6), aborted(2, 3, 9, 10)]);
    let read = |bytes: &[u8]| aborted_entries(bytes).collect::<Vec<_>>();
    assert!(matches!(read(&good)[..], [Ok(_), Ok(_)]));
    let cut = read(&good[..60]);
    assert!(matches!(cut[..], [Ok(_), Err(TransactionParseError::Length { len_bytes: 60 })]));
    let mut version = good.clone();
    version[ABORTED_ENTRY_BYTES + 1] = 1;
    assert!(matches!(
        read(&version)[..],
        [Ok(_), Err(TransactionParseError::Version { index: 1, version: 1 })]
    ));
    for entry in [aborted(1, -1, 5, 6), aborted(1, 6, 5, 6), aborted(1, 0, 5, -6)] {
        let bytes = encoded(&[entry]);
        assert!(matches!(read(&bytes)[..], [Err(TransactionParseError::Entry { index: 0 })]));
    }
    let backwards = encoded(&[aborted(1, 0, 5, 6), aborted(2, 0, 5, 6)]);
    assert!(matches!(
        read(&backwards)[..],
        [Ok(_), Err(TransactionParseError::Entry { index: 1 })]
    ));
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let (open, _) = run(&[Step::Data(9), Step::Data(3)]);
    let bytes = open.encode();
    assert_eq!(OpenTransactions::parse(&bytes), Ok(open));
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        assert!(OpenTransactions::parse(&flipped).is_err(), "byte {at}");
        assert!(OpenTransactions::parse(&bytes[..at]).is_err(), "cut at {at}");
    }
    let sealed = |mut body: Vec<u8>| {
        let crc = crc32c::crc32c(&body);
        body.extend_from_slice(&crc.to_be_bytes());
        OpenTransactions::parse(&body)
    };
    let body = &bytes[..bytes.len() - 4];
    let twice = [&[0, 1, 0, 0, 0, 2], &body[6..24], &body[6..24]].concat();
    assert_eq!(sealed(twice), Err(TransactionParseError::Entry { index: 1 }));
    let counted = [&[0, 1, 0xff, 0xff, 0xff, 0xff], &body[6..]].concat();
    assert!(matches!(sealed(counted), Err(TransactionParseError::Length { .. })));
    let version = [&[0, 2, 0, 0, 0, 0][..]].concat();
    assert!(matches!(sealed(version), Err(TransactionParseError::Version { .. })));
}

fn any_step() -> impl Strategy<Value = Step> {
    (0u8..6, 0i64..4).prop_map(|(kind, producer)| match kind {
        0..=2 => Step::Data(producer),
        3 => Step::Commit(producer),
        4 => Step::Abort(producer),
        _ => Step::Plain,
    })
}

/// What a read-committed reader keeps: offsets of data that is plain or committed.
fn committed(steps: &[Step], from: usize, upper: usize) -> Vec<usize> {
    let fate = |at: usize, producer: i64| {
        steps[at..].iter().find_map(|step| match step {
            Step::Commit(by) if *by == producer => Some(true),
            Step::Abort(by) if *by == producer => Some(false),
            _ => None,
        })
    };
    (from..upper)
        .filter(|at| match steps[*at] {
            Step::Plain => true,
            Step::Data(producer) => fate(*at, producer) == Some(true),
            _ => false,
        })
        .collect()
}

/// What a consumer delivers when it gets `from` to `upper` and the aborted list: it skips a
/// producer's data from an entry's first offset to the producer's next abort marker.
fn delivered(steps: &[Step], from: usize, upper: usize, mut list: Vec<AbortedTxn>) -> Vec<usize> {
    list.sort_by_key(|entry| entry.first_offset);
    let mut list = list.into_iter().peekable();
    let mut skipped = std::collections::BTreeSet::new();
    let mut kept = Vec::new();
    for (at, step) in steps.iter().enumerate().take(upper).skip(from) {
        while let Some(entry) = list.next_if(|entry| entry.first_offset.0 <= at as i64) {
            skipped.insert(entry.producer_id.0);
        }
        match step {
            Step::Plain => kept.push(at),
            Step::Data(producer) if !skipped.contains(producer) => kept.push(at),
            Step::Abort(producer) => {
                skipped.remove(producer);
            }
            _ => {}
        }
    }
    kept
}

proptest! {
    /// Segments of any size, read from any offset to any end at or below the last stable offset:
    /// the list makes a consumer deliver exactly the committed records.
    #[test]
    fn readers_of_committed_data_get_all_of_it_and_nothing_else(
        steps in proptest::collection::vec(any_step(), 1..60),
        segment in 1usize..20,
        from in any::<proptest::sample::Index>(),
        upper in any::<proptest::sample::Index>(),
    ) {
        let (open, entries) = run(&steps);
        let stable = open.last_stable_offset(Offset(steps.len() as i64)).0 as usize;
        let from = from.index(stable + 1);
        let upper = from + upper.index(stable - from + 1);
        let mut list = Vec::new();
        for number in from / segment..=steps.len() / segment {
            let in_segment: Vec<_> = entries
                .iter()
                .filter(|entry| entry.last_offset.0 as usize / segment == number)
                .copied()
                .collect();
            let (from, upper) = (Offset(from as i64), Offset(upper as i64));
            if collect_aborted(&encoded(&in_segment), from, upper, &mut list).unwrap() {
                break;
            }
        }
        prop_assert_eq!(delivered(&steps, from, upper, list), committed(&steps, from, upper));
    }

    #[test]
    fn a_snapshot_at_any_point_goes_on_as_the_original(
        steps in proptest::collection::vec(any_step(), 1..60),
        at in any::<proptest::sample::Index>(),
    ) {
        let at = at.index(steps.len());
        let (whole, index) = run(&steps);
        let (first, mut resumed_index) = run(&steps[..at]);
        let mut resumed = OpenTransactions::parse(&first.encode()).unwrap();
        for (offset, step) in steps.iter().enumerate().skip(at) {
            resumed_index.extend(resumed.append(&batch(offset as i64, *step)).unwrap());
        }
        prop_assert_eq!(resumed, whole);
        prop_assert_eq!(resumed_index, index);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = OpenTransactions::parse(&bytes);
        let _ = aborted_entries(&bytes).count();
    }
}
