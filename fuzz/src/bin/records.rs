//! Records inside batches of any format: what is read lies inside its batch and its ceiling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use storage::Offset;
use storage::batch::{BatchInfo, BatchLimits, first_at_or_after, record_of_max_timestamp, records};

const INFLATED_BYTES_MAX: usize = 1 << 16;

fuzz_target!(|batch: &[u8]| {
    let limits = BatchLimits { batch_bytes_max: u32::MAX };
    let Ok(Some(info)) = BatchInfo::from_header(batch, &limits) else { return };
    let mut scratch = Vec::new();
    let Ok(all) = records(batch, INFLATED_BYTES_MAX, &mut scratch) else { return };
    let mut seen_bytes = 0;
    let mut count = 0;
    for record in all.map_while(Result::ok) {
        count += 1;
        assert!(record.offset <= info.last_offset || info.magic < 2);
        assert!(record.offset >= info.base_offset || info.magic < 2);
        seen_bytes += record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        assert_eq!(record.headers.count(), record.headers.len());
        seen_bytes += record.headers.map(|(key, _)| key.len()).sum::<usize>();
    }
    assert!(seen_bytes + count <= INFLATED_BYTES_MAX.max(batch.len()));
    assert!(scratch.len() <= INFLATED_BYTES_MAX);

    let mut find = |from| first_at_or_after(batch, (0, from), INFLATED_BYTES_MAX, &mut scratch);
    if let Ok(Some(found)) = find(Offset(0)) {
        assert!(found.timestamp_ms >= 0);
    }
    if let Ok(Some(found)) = record_of_max_timestamp(batch, INFLATED_BYTES_MAX, &mut scratch) {
        assert_eq!(found.timestamp_ms, info.max_timestamp);
    }
});
