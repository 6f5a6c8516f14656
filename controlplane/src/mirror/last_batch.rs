//! Whether the source still has our last batch: the only sign of a recreated topic where the source
//! gives no topic ids and the new log has grown past our end in the same epoch.

use bytes::Bytes;
use storage::batch::{BatchInfo, BatchLimits};
use storage::{LogReader, Offset};

/// The longest header of any format is within this.
const HEADER_BYTES: usize = 128;
const ANY_BATCH: BatchLimits = BatchLimits { batch_bytes_max: i32::MAX as u32 };

/// What tells a batch from another one at the same offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastBatch {
    pub(super) base_offset: Offset,
    pub(super) size_bytes: u32,
    crc: u32,
    magic: i8,
}

/// The batch at the end of a log; `None` for an empty log, or one that cannot be read now.
pub(super) fn last_batch(log: &LogReader) -> Option<LastBatch> {
    let end = log.log_end();
    if end <= log.log_start() {
        return None;
    }
    let slice = log.read(Offset(end.0 - 1), end, HEADER_BYTES, false).ok()??;
    read_header(&slice.to_vec())
}

/// Whether what the source sent from our last batch's offset on shows another history. A batch that
/// compaction has removed since is not there to compare, and shows nothing.
pub(super) fn contradicts(ours: LastBatch, source: &Bytes) -> bool {
    match read_header(source) {
        Some(theirs) => theirs.base_offset <= ours.base_offset && theirs != ours,
        None => false,
    }
}

fn read_header(bytes: &[u8]) -> Option<LastBatch> {
    let info = BatchInfo::from_header(bytes, &ANY_BATCH).ok()??;
    Some(LastBatch {
        base_offset: info.base_offset,
        size_bytes: info.size_bytes,
        crc: info.crc,
        magic: info.magic,
    })
}

#[cfg(test)]
mod tests {
    use storage::LeaderEpoch;
    use storage::batch::BatchBuilder;

    use super::*;

    fn batch(base: i64, value: &[u8]) -> Bytes {
        let mut builder = BatchBuilder::new(Offset(base), LeaderEpoch(0));
        builder.push(5, None, Some(value), &[]);
        builder.finish().into()
    }

    #[test]
    fn the_same_batch_agrees_and_another_at_its_offset_contradicts() {
        let ours = read_header(&batch(10, b"a")).unwrap();
        assert!(!contradicts(ours, &batch(10, b"a")));
        assert!(contradicts(ours, &batch(10, b"b")));
        assert!(contradicts(ours, &batch(9, b"a")), "one that begins earlier and holds our offset");
    }

    #[test]
    fn what_compaction_removed_and_what_was_left_out_show_nothing() {
        let ours = read_header(&batch(10, b"a")).unwrap();
        assert!(!contradicts(ours, &batch(12, b"b")));
        assert!(!contradicts(ours, &Bytes::new()));
        assert!(!contradicts(ours, &batch(10, b"b").slice(..20)));
    }
}
