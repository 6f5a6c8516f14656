//! Tests of dump and verify on partition folders written by hand.

use std::fs;
use std::ops::ControlFlow;

use super::*;
use crate::batch::{
    BatchBuilder, BatchError, BatchInfo, BatchLimits, Compression, ControlMarker, RecordError, walk,
};
use crate::epochs::{EpochCache, EpochParseError};
use crate::txns::{AbortedTxn, OpenTransactions};
use crate::{LeaderEpoch, ProducerEpoch, ProducerId};

const SECRET_AT: usize = 70;

/// A right partition folder: two segments, an aborted transaction across both, epochs 3 and 5.
struct Fixture {
    root: tempfile::TempDir,
    folder: PathBuf,
}

fn transactional(offset: i64, epoch: i32, producer: i64) -> BatchBuilder {
    BatchBuilder::new(Offset(offset), LeaderEpoch(epoch))
        .producer(ProducerId(producer), ProducerEpoch(0), 0)
        .transactional()
}

fn data(mut batch: BatchBuilder, timestamp_ms: i64) -> Vec<u8> {
    batch.push(timestamp_ms, Some(b"key"), Some(b"some value"), &[]);
    batch.push(timestamp_ms - 1, None, None, &[]);
    batch.finish()
}

fn marker(offset: i64, epoch: i32, producer: i64, marker: ControlMarker) -> Vec<u8> {
    let who = (ProducerId(producer), ProducerEpoch(0));
    BatchBuilder::end_of_transaction(Offset(offset), LeaderEpoch(epoch), who, marker, (50, 0))
}

fn segments() -> [(Offset, Vec<Vec<u8>>); 2] {
    let plain = BatchBuilder::new(Offset(12), LeaderEpoch(3)).compression(Compression::Zstd);
    [
        (
            Offset(10),
            vec![
                data(transactional(10, 3, 7), 100),
                data(plain, 90),
                data(transactional(14, 3, 8), 120),
            ],
        ),
        (
            Offset(20),
            vec![
                data(transactional(20, 5, 7), 80),
                marker(22, 5, 7, ControlMarker::Abort),
                data(transactional(30, 5, 7), 130),
                marker(32, 5, 8, ControlMarker::Commit),
                marker(33, 5, 7, ControlMarker::Abort),
            ],
        ),
    ]
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("orders-0");
        fs::create_dir(&folder).unwrap();
        let mut transactions = OpenTransactions::default();
        let mut epochs = EpochCache::default();
        for (base, batches) in segments() {
            fs::write(SegmentFile::OpenTransactions.path(&folder, base), transactions.encode())
                .unwrap();
            let (mut offsets, mut times, mut aborted) = (Vec::new(), Vec::new(), Vec::new());
            let mut largest = -1;
            for batch in walk(&batches.concat(), BatchLimits { batch_bytes_max: 4096 }) {
                let batch = batch.unwrap();
                let info: BatchInfo = batch.info;
                epochs.assign(info.leader_epoch, info.base_offset).unwrap();
                let relative = (info.last_offset.0 - base.0) as u32;
                if batch.position > 0 {
                    offsets.extend(relative.to_be_bytes());
                    offsets.extend((batch.position as u32).to_be_bytes());
                }
                if info.max_timestamp > largest {
                    largest = info.max_timestamp;
                    times.extend(largest.to_be_bytes());
                    times.extend(relative.to_be_bytes());
                }
                if let Some(entry) = transactions.append(&info).unwrap() {
                    aborted.extend(entry.encode());
                }
            }
            fs::write(SegmentFile::Log.path(&folder, base), batches.concat()).unwrap();
            fs::write(SegmentFile::OffsetIndex.path(&folder, base), offsets).unwrap();
            fs::write(SegmentFile::TimeIndex.path(&folder, base), times).unwrap();
            fs::write(SegmentFile::AbortedIndex.path(&folder, base), aborted).unwrap();
        }
        fs::write(folder.join("leader-epoch-checkpoint"), epochs.encode()).unwrap();
        Self { root, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Changes a file and gives what verification then finds.
    fn after(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<Finding> {
        let fixture = Self::new();
        let path = fixture.path(name);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        fixture.verify().findings
    }

    fn verify(&self) -> PartitionReport {
        let options = InspectOptions { records: true, ..InspectOptions::default() };
        verify_partition(&self.folder, &options)
    }
}

const FIRST: &str = "00000000000000000010";
const SECOND: &str = "00000000000000000020";

fn file(base: &str, suffix: &str) -> String {
    format!("{base}.{suffix}")
}

macro_rules! assert_found {
    ($findings:expr, $($pattern:pat),+) => {{
        let findings: Vec<Finding> = $findings;
        let damages: Vec<&Damage> = findings.iter().map(|finding| &finding.damage).collect();
        assert!(matches!(damages[..], [$($pattern),+]), "{findings:#?}");
    }};
}

#[test]
fn a_right_partition_is_whole_and_counted() {
    let report = Fixture::new().verify();
    assert!(report.is_whole(), "{:#?}", report.findings);
    assert_eq!((report.segments, report.batches, report.records), (2, 8, 13));
    assert_eq!((report.first_offset, report.next_offset), (Some(Offset(10)), Offset(34)));
    assert_eq!((report.gap_offsets, report.open_transactions), (11, 0));
    let bytes: usize = segments().iter().flat_map(|(_, batches)| batches).map(Vec::len).sum();
    assert_eq!(report.bytes, bytes as u64);
}

#[test]
fn a_flipped_byte_is_found_and_what_follows_is_still_checked() {
    let findings = Fixture::after(&file(FIRST, "log"), |log| {
        log[SECRET_AT] ^= 1;
        *log.last_mut().unwrap() ^= 1;
    });
    assert_found!(
        findings,
        Damage::Batch(BatchError::Checksum { base_offset: 10, .. }),
        Damage::Batch(BatchError::Checksum { base_offset: 14, .. })
    );
    assert_eq!(findings_position(FIRST, |log| log[SECRET_AT] ^= 1), Some(0));
}

fn findings_position(base: &str, change: impl FnOnce(&mut Vec<u8>)) -> Option<u64> {
    Fixture::after(&file(base, "log"), change)[0].position
}

#[test]
fn tails_are_found_whatever_they_are() {
    let zeros = Fixture::after(&file(SECOND, "log"), |log| log.resize(log.len() + 500, 0));
    assert_found!(zeros, Damage::Tail { len_bytes: 500, fault: Some(BatchError::TooShort { .. }) });
    let cut = Fixture::after(&file(FIRST, "log"), |log| log.truncate(log.len() - 5));
    assert_found!(
        cut,
        Damage::Tail { fault: None, .. },
        Damage::OffsetIndex { offset: Offset(15), .. },
        Damage::TimeIndex { offset: Offset(15), .. },
        Damage::OpenTransactions(_),
        Damage::Aborted { log: Some(_), index: Some(_) }
    );
}

#[test]
fn offsets_and_epochs_must_rise() {
    let twice = Fixture::after(&file(SECOND, "log"), |log| {
        let last = log.len() - marker(33, 5, 7, ControlMarker::Abort).len();
        log.extend_from_within(last..);
    });
    assert_found!(twice, Damage::OffsetOrder { expected: Offset(34), found: Offset(33) });
    // The epoch of the last batch of the first segment, which the checksum does not cover.
    let lengths: Vec<usize> = segments()[0].1.iter().map(Vec::len).collect();
    let fallen = Fixture::after(&file(FIRST, "log"), |log| log[lengths[0] + lengths[1] + 15] = 2);
    assert_found!(
        fallen,
        Damage::EpochOrder { previous: LeaderEpoch(3), found: LeaderEpoch(2), .. },
        Damage::EpochEntry { stored: Some(LeaderEpoch(3)), found: LeaderEpoch(2), .. }
    );
}

#[test]
fn the_epoch_checkpoint_must_say_what_the_log_says() {
    let name = "leader-epoch-checkpoint";
    let wrong = Fixture::after(name, |text| *text = b"0\n2\n3 10\n5 21\n".to_vec());
    assert_found!(
        wrong,
        Damage::EpochEntry { offset: Offset(20), stored: Some(LeaderEpoch(3)), .. }
    );
    let beyond = Fixture::after(name, |text| *text = b"0\n3\n3 10\n5 20\n6 35\n".to_vec());
    assert_found!(beyond, Damage::EpochBeyondEnd { epoch: LeaderEpoch(6), .. });
    let garbage = Fixture::after(name, |text| *text = b"0\n2\n".to_vec());
    assert_found!(
        garbage.into_iter().take(1).collect(),
        Damage::EpochFile(EpochParseError::Entries { counted: 2, found: 0 })
    );
    // What a moved log start and a leader without a batch leave behind is right.
    for text in ["0\n2\n3 12\n5 20\n", "0\n3\n3 10\n4 16\n5 20\n", "0\n3\n3 10\n5 20\n9 34\n"] {
        let fine = Fixture::after(name, |file| *file = text.as_bytes().to_vec());
        assert!(fine.is_empty(), "{text}: {fine:?}");
    }
}

#[test]
fn index_entries_must_name_batches() {
    let offsets = file(FIRST, "index");
    assert_found!(Fixture::after(&offsets, |index| index[7] ^= 1), Damage::OffsetIndex { .. });
    assert_found!(Fixture::after(&offsets, |index| index[3] ^= 1), Damage::OffsetIndex { .. });
    assert_found!(
        Fixture::after(&offsets, |index| index.push(0)),
        Damage::OddBytes { odd_bytes: 1 }
    );
    assert_found!(
        Fixture::after(&offsets, |index| index.extend([0; 8])),
        Damage::OffsetIndex { offset: Offset(10), .. }
    );
    let times = file(FIRST, "timeindex");
    assert_found!(Fixture::after(&times, |index| index[7] += 1), Damage::TimeIndex { .. });
    assert_found!(Fixture::after(&times, |index| index[11] += 2), Damage::TimeIndex { .. });
    // The active segment of a running broker: indexes preallocated with zeros.
    for suffix in ["index", "timeindex"] {
        let fine = Fixture::after(&file(SECOND, suffix), |index| index.extend([0; 240]));
        assert!(fine.is_empty(), "{suffix}: {fine:?}");
    }
}

#[test]
fn the_aborted_index_must_be_what_the_markers_say() {
    let name = file(SECOND, "txnindex");
    assert_found!(
        Fixture::after(&name, |index| index.truncate(34)),
        Damage::Aborted { log: Some(_), index: None }
    );
    assert_found!(
        Fixture::after(&name, |index| {
            index.drain(..34);
        }),
        Damage::Aborted { log: Some(AbortedTxn { last_offset: Offset(22), .. }), index: None }
    );
    assert_found!(
        Fixture::after(&name, |index| index.extend_from_within(34..)),
        Damage::Aborted { log: None, index: Some(_) }
    );
    assert_found!(
        Fixture::after(&name, |index| index[17] ^= 1),
        Damage::Aborted { log: Some(_), index: Some(_) }
    );
    assert_found!(
        Fixture::after(&name, |index| index[1] = 9),
        Damage::AbortedFile(_),
        Damage::Aborted { log: Some(_), index: None }
    );
    // A stable offset too high while a transaction is open hides aborted data from readers.
    assert_found!(
        Fixture::after(&name, |index| index[33] += 3),
        Damage::Aborted { log: Some(_), index: Some(_) }
    );
    // With none open, a broker that appended more at once may have seen further.
    let fine = Fixture::after(&name, |index| index[67] += 3);
    assert!(fine.is_empty(), "{fine:?}");
}

#[test]
fn the_topic_id_must_be_readable() {
    let fixture = Fixture::new();
    let path = fixture.path("partition.metadata");
    fs::write(&path, "version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n").unwrap();
    assert!(fixture.verify().is_whole());
    fs::write(&path, "version: 0\ntopic_id: ABE\n").unwrap();
    assert_found!(fixture.verify().findings, Damage::Io(_));
}

#[test]
fn a_snapshot_of_open_transactions_must_agree() {
    let name = file(SECOND, "opentxns");
    let wrong = OpenTransactions::default().encode();
    assert_found!(Fixture::after(&name, |snapshot| *snapshot = wrong), Damage::OpenTransactions(_));
    assert_found!(Fixture::after(&name, |snapshot| snapshot[8] ^= 1), Damage::OpenTransactions(_));
}

#[test]
fn records_are_looked_at_only_when_asked() {
    let fixture = Fixture::new();
    let log = fixture.path(&file(FIRST, "log"));
    // Breaks the second record's length and makes the checksum right again.
    let mut bytes = fs::read(&log).unwrap();
    let end = segments()[0].1[0].len();
    bytes[end - 7] = 0x7f;
    let crc = crc32c::crc32c(&bytes[21..end]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    fs::write(&log, bytes).unwrap();
    assert!(verify_partition(&fixture.folder, &InspectOptions::default()).is_whole());
    assert_found!(
        fixture.verify().findings,
        Damage::Records(RecordError::Malformed { index: 1, .. })
    );
}

#[test]
fn endless_damage_is_counted_not_kept() {
    let fixture = Fixture::new();
    fs::write(fixture.path(&file(SECOND, "txnindex")), vec![0xff; 34 * 5000]).unwrap();
    let report = fixture.verify();
    assert_eq!(report.findings.len(), 100);
    assert!(report.findings_more > 4000);
}

#[test]
fn a_data_directory_is_verified_folder_by_folder() {
    let fixture = Fixture::new();
    let root = fixture.root.path();
    fs::create_dir(root.join("empty-3")).unwrap();
    fs::create_dir(root.join("gone-0.1234-delete")).unwrap();
    fs::create_dir(root.join(".longhaul")).unwrap();
    fs::write(root.join("orders-1"), b"a file").unwrap();
    let mut seen = Vec::new();
    let whole = verify(root, &InspectOptions::default(), &mut |report| {
        seen.push((report.folder.file_name().unwrap().to_owned(), report.batches));
    });
    assert!(whole.unwrap());
    assert_eq!(seen, [("empty-3".into(), 0), ("orders-0".into(), 8)]);
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(matches!(
        verify(elsewhere.path(), &InspectOptions::default(), &mut |_| {}),
        Err(InspectError::NotALog(_))
    ));
    let named_as_one = elsewhere.path().join("orders-0");
    fs::create_dir(&named_as_one).unwrap();
    assert!(matches!(
        verify(&named_as_one, &InspectOptions::default(), &mut |_| {}),
        Err(InspectError::NotALog(_))
    ));
    let file = elsewhere.path().join("00000000000000000000.log");
    fs::write(&file, []).unwrap();
    assert!(matches!(
        verify(&file, &InspectOptions::default(), &mut |_| {}),
        Err(InspectError::File(_))
    ));
    assert!(matches!(
        verify(&root.join("missing"), &InspectOptions::default(), &mut |_| {}),
        Err(InspectError::Io { .. })
    ));
}

#[test]
fn a_dump_lists_batches_records_and_tails() {
    let fixture = Fixture::new();
    let log = fixture.path(&file(SECOND, "log"));
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend([0; 40]);
    bytes[SECRET_AT] ^= 1;
    fs::write(&log, bytes).unwrap();

    let options = InspectOptions { records: true, ..InspectOptions::default() };
    let mut lines = Vec::new();
    let mut scratch = Vec::new();
    let mut visit = |line: &DumpedBatch<'_>| {
        match line {
            DumpedBatch::Batch { info, fault, .. } => {
                let records = line.records(&options, &mut scratch).unwrap().unwrap();
                lines.push((info.base_offset.0, records.count(), fault.is_some()));
            }
            DumpedBatch::Tail { len_bytes, .. } => lines.push((-1, *len_bytes as usize, true)),
        }
        ControlFlow::Continue(())
    };
    dump(fixture.root.path(), &options, &mut visit).unwrap();
    assert_eq!(
        lines,
        [
            (10, 2, false),
            (12, 2, false),
            (14, 2, false),
            (20, 2, true),
            (22, 1, false),
            (30, 2, false),
            (32, 1, false),
            (33, 1, false),
            (-1, 40, true)
        ]
    );
    let mut count = 0;
    dump(&log, &options, &mut |_| {
        count += 1;
        if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!(count, 2);
    assert!(matches!(
        dump(
            &fixture.path("leader-epoch-checkpoint"),
            &options,
            &mut |_| ControlFlow::Continue(())
        ),
        Err(InspectError::NotALog(_))
    ));
}

#[test]
fn a_directory_is_in_use_while_it_is_open() {
    let root = tempfile::tempdir().unwrap();
    assert!(!is_in_use(root.path()));
    let config = crate::StorageConfig {
        directories: vec![root.path().to_owned()],
        descriptors_max: 8,
        mappings_max: 8,
        recycle_bytes_max: 0,
    };
    let storage = crate::Storage::open(config).unwrap();
    assert!(is_in_use(root.path()));
    fs::create_dir(root.path().join("orders-0")).unwrap();
    assert!(is_in_use(&root.path().join("orders-0")));
    drop(storage);
    assert!(!is_in_use(root.path()));
}
