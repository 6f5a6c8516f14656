//! What the stand-in knows of its topics: batches as bytes, leaders, epochs, errors to give.

/// A topic.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id; zero for a cluster that has none.
    pub id: [u8; 16],
    /// Its partitions, by index.
    pub partitions: Vec<PartitionLog>,
}

/// A partition.
#[derive(Clone, Debug)]
pub struct PartitionLog {
    /// Node id of its leader, -1 for none.
    pub leader: i32,
    /// Its epoch as metadata tells it.
    pub leader_epoch: i32,
    /// First offset kept.
    pub log_start: i64,
    /// High watermark, `None` for the end of the log.
    pub high_watermark: Option<i64>,
    /// Last stable offset, `None` for the high watermark.
    pub last_stable_offset: Option<i64>,
    /// Error that Fetch and ListOffsets give, 0 for none.
    pub error: i16,
    batches: Vec<Stored>,
}

#[derive(Clone, Debug)]
struct Stored {
    end_offset: i64,
    leader_epoch: i32,
    start_offset: i64,
    bytes: Vec<u8>,
}

impl PartitionLog {
    pub(crate) fn new(leader: i32) -> Self {
        Self {
            leader,
            leader_epoch: 0,
            log_start: 0,
            high_watermark: None,
            last_stable_offset: None,
            error: 0,
            batches: Vec::new(),
        }
    }

    /// Appends a batch and follows its epoch.
    pub fn append(&mut self, batch: &crate::Batch) {
        self.append_bytes(
            batch.base_offset..batch.end_offset(),
            batch.leader_epoch,
            batch.encode(),
        );
        self.leader_epoch = self.leader_epoch.max(batch.leader_epoch);
    }

    /// Appends any bytes as what is stored for these offsets; the leader epoch stays.
    pub fn append_bytes(
        &mut self,
        offsets: std::ops::Range<i64>,
        leader_epoch: i32,
        bytes: Vec<u8>,
    ) {
        let (start_offset, end_offset) = (offsets.start, offsets.end);
        self.batches.push(Stored { end_offset, leader_epoch, start_offset, bytes });
    }

    /// Removes every batch that reaches beyond `offset`, as an unclean election does.
    pub fn truncate(&mut self, offset: i64) {
        self.batches.retain(|batch| batch.end_offset <= offset);
    }

    /// The end of the log.
    #[must_use]
    pub fn end_offset(&self) -> i64 {
        self.batches.last().map_or(self.log_start, |batch| batch.end_offset.max(self.log_start))
    }

    /// The high watermark.
    #[must_use]
    pub fn readable_end(&self) -> i64 {
        self.high_watermark.unwrap_or_else(|| self.end_offset())
    }

    /// The last stable offset.
    #[must_use]
    pub fn stable_end(&self) -> i64 {
        self.last_stable_offset.unwrap_or_else(|| self.readable_end())
    }

    /// All bytes kept, in order: what a mirror's segments must hold.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.batches.iter().flat_map(|batch| batch.bytes.iter().copied()).collect()
    }

    /// Bytes from the batch that holds `offset` up to the high watermark, at most `bytes_max` of
    /// them, but for a first batch that is whole where `whole_first` says so.
    pub(crate) fn read(&self, offset: i64, bytes_max: usize, whole_first: bool) -> Vec<u8> {
        let end = self.readable_end();
        let mut read = Vec::new();
        for batch in self.batches.iter().filter(|batch| batch.end_offset > offset) {
            if batch.end_offset > end
                || read.len() >= bytes_max && !(read.is_empty() && whole_first)
            {
                break;
            }
            read.extend_from_slice(&batch.bytes);
            if read.len() > bytes_max && !(read.len() == batch.bytes.len() && whole_first) {
                read.truncate(bytes_max);
            }
        }
        read
    }

    /// The largest epoch at or below `epoch` and where it ends. For one before the first, that one
    /// and where the first begins; for one nobody has reached, `None`.
    pub(crate) fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        if epoch >= self.leader_epoch {
            return (epoch == self.leader_epoch).then(|| (epoch, self.end_offset()));
        }
        let below = self.batches.iter().map(|batch| batch.leader_epoch).filter(|e| *e <= epoch);
        let next = self.batches.iter().find(|batch| batch.leader_epoch > epoch);
        let end = next.map_or_else(|| self.end_offset(), |batch| batch.start_offset);
        Some((below.max().unwrap_or(epoch), end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;

    fn log() -> PartitionLog {
        let mut log = PartitionLog::new(1);
        log.append(&Batch::filled(0, 1, 10, 50));
        log.append(&Batch::filled(10, 1, 10, 50));
        log.append(&Batch::filled(20, 4, 10, 50));
        log
    }

    #[test]
    fn a_first_batch_is_whole_and_a_last_one_is_cut() {
        let log = log();
        let batch = log.batches[0].bytes.len();
        assert_eq!(log.read(5, 10, true).len(), batch);
        assert_eq!(log.read(5, 10, false).len(), 10);
        assert_eq!(log.read(5, batch + 10, true).len(), batch + 10);
        assert_eq!(log.read(0, usize::MAX, true), log.bytes());
        assert_eq!(log.read(30, 1000, true), b"");
    }

    #[test]
    fn nothing_beyond_the_high_watermark_is_read() {
        let mut log = log();
        log.high_watermark = Some(20);
        assert_eq!(log.read(20, 1000, true), b"");
        assert_eq!(log.read(0, usize::MAX, true), log.bytes()[..2 * log.batches[0].bytes.len()]);
    }

    #[test]
    fn epochs_end_where_the_next_begins() {
        let log = log();
        assert_eq!(log.end_of_epoch(0), Some((0, 0)));
        assert_eq!(log.end_of_epoch(1), Some((1, 20)));
        assert_eq!(log.end_of_epoch(3), Some((1, 20)));
        assert_eq!(log.end_of_epoch(4), Some((4, 30)));
        assert_eq!(log.end_of_epoch(5), None);
    }
}
