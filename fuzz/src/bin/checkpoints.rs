//! What a disk gives back: epoch checkpoint, aborted index, snapshot of open transactions. What
//! is accepted must be what would be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use storage::Offset;
use storage::epochs::EpochCache;
use storage::txns::{OpenTransactions, aborted_entries, collect_aborted};

fuzz_target!(|input: &[u8]| {
    let Some((reader, bytes)) = input.split_first() else { return };
    match reader % 3 {
        0 => epochs(bytes),
        1 => aborted(bytes),
        _ => open_transactions(bytes),
    }
});

fn epochs(bytes: &[u8]) {
    let Ok(cache) = EpochCache::parse(bytes) else { return };
    assert_eq!(EpochCache::parse(&cache.encode()).as_ref(), Ok(&cache));
    for entry in cache.entries() {
        assert_eq!(cache.epoch_for_offset(entry.start_offset), Some(entry.epoch));
        assert!(cache.end_offset_for(entry.epoch, Offset(i64::MAX)).is_some());
    }
}

fn aborted(bytes: &[u8]) {
    let entries: Vec<_> = aborted_entries(bytes).map_while(Result::ok).collect();
    let encoded: Vec<u8> = entries.iter().flat_map(|entry| entry.encode()).collect();
    assert!(bytes.starts_with(&encoded));
    let mut found = Vec::new();
    let _ = collect_aborted(bytes, Offset(3), Offset(1000), &mut found);
    assert!(found.len() <= entries.len());
}

fn open_transactions(bytes: &[u8]) {
    // The checksum is made right, so that what lies behind it is reached.
    let mut bytes = bytes.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_be_bytes());
    let Ok(open) = OpenTransactions::parse(&bytes) else { return };
    assert_eq!(OpenTransactions::parse(&open.encode()).as_ref(), Ok(&open));
    assert!(open.last_stable_offset(Offset(i64::MAX)).0 >= 0);
}
