//! Searches by time, for ListOffsets.
//!
//! Any thread that may block: a search reads an index, some headers and one batch, which it may have
//! to decompress. It must never hold the log's lock meanwhile.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::batch::{BatchInfo, first_at_or_after, record_of_max_timestamp};
use crate::index::{Found, TailSearch, TimeEntry, entries_in, entry_at, search};
use crate::reader::{LogReader, LookupError, ReadError, TimestampOffset};
use crate::scan::scan_headers;
use crate::segment::{Segment, SegmentFile, read_exact_at};

/// Most bytes a batch may have once decompressed; a search gives up on a larger one.
const INFLATED_BYTES_MAX: usize = 256 << 20;

impl LogReader {
    /// The first record with a timestamp at or after `timestamp_ms`, looking inside its batch.
    pub fn offset_for_timestamp(
        &self,
        timestamp_ms: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        self.retry(|| {
            for segment in self.segments() {
                if self.largest_of(&segment)?.is_some_and(|at| at.timestamp_ms >= timestamp_ms)
                    && let Some(found) = self.search_segment(&segment, timestamp_ms)?
                {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        })
    }

    /// The record with the largest timestamp (ListOffsets -3, KIP-734).
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimestampOffset>, ReadError> {
        self.retry(|| {
            let mut best: Option<(Arc<Segment>, TimeEntry)> = None;
            for segment in self.segments() {
                if let Some(largest) = self.largest_of(&segment)?
                    && best
                        .as_ref()
                        .is_none_or(|(_, best)| best.timestamp_ms < largest.timestamp_ms)
                {
                    best = Some((segment, largest));
                }
            }
            let Some((segment, largest)) = best else { return Ok(None) };
            let offset = segment.base().plus(i64::from(largest.relative));
            let end = segment.len_bytes();
            match self.first_ending_at(&segment, offset, end)? {
                Some((position, info)) => self.look_inside(&segment, position, &info, |batch| {
                    record_of_max_timestamp(batch, INFLATED_BYTES_MAX, &mut Vec::new())
                }),
                None => Ok(None),
            }
        })
    }

    fn search_segment(
        &self,
        segment: &Arc<Segment>,
        timestamp_ms: i64,
    ) -> Result<Option<TimestampOffset>, LookupError> {
        let log_start = self.log_start();
        // Up to the last entry below the time there is nothing at or after it.
        let below = self.search_times(segment, |entry| entry.timestamp_ms < timestamp_ms)?.before;
        let from = below
            .map_or(segment.base(), |entry| segment.base().plus(i64::from(entry.relative) + 1));
        let mut position = self.position_before(segment, from.max(log_start))?;
        let end = segment.len_bytes();
        let candidate = |position, info: &BatchInfo| {
            if info.max_timestamp >= timestamp_ms && info.last_offset >= log_start {
                ControlFlow::Break((position, info.clone()))
            } else {
                ControlFlow::Continue(())
            }
        };
        // Compaction may have removed the very record that the header's timestamp speaks of.
        while let Some((at, info)) = self.scan(segment, position, end, candidate)? {
            let found = self.look_inside(segment, at, &info, |batch| {
                let wanted = (timestamp_ms, log_start);
                first_at_or_after(batch, wanted, INFLATED_BYTES_MAX, &mut Vec::new())
            })?;
            if found.is_some() {
                return Ok(found);
            }
            position = at + u64::from(info.size_bytes);
        }
        Ok(None)
    }

    fn look_inside<E: std::error::Error + Send + Sync + 'static>(
        &self,
        segment: &Arc<Segment>,
        position: u64,
        info: &BatchInfo,
        look: impl FnOnce(&[u8]) -> Result<Option<TimestampOffset>, E>,
    ) -> Result<Option<TimestampOffset>, LookupError> {
        let file = segment.readable_log_file(&self.folder(), self.budget())?;
        let mut batch = vec![0; info.size_bytes as usize];
        read_exact_at(&file, &mut batch, position)?;
        look(&batch).map_err(|error| LookupError::Io(std::io::Error::other(error)))
    }

    fn segments(&self) -> Vec<Arc<Segment>> {
        self.read_state().segments.clone()
    }

    /// The largest timestamp of a segment and its offset.
    fn largest_of(&self, segment: &Arc<Segment>) -> Result<Option<TimeEntry>, LookupError> {
        {
            let state = self.read_state();
            if state.is_active(segment) {
                return Ok(state.largest);
            }
        }
        if let Some(known) = segment.largest() {
            return Ok(known);
        }
        let file = std::fs::File::open(self.time_index_path(segment));
        let file = file.map_err(|error| self.missing(segment, error))?;
        let entries = entries_in::<TimeEntry>(file.metadata()?.len());
        let largest = match entries.checked_sub(1) {
            Some(last) => Some(entry_at::<TimeEntry>(&file, last)?),
            None => self.largest_by_scan(segment)?,
        };
        segment.set_largest(largest);
        Ok(largest)
    }

    /// For a segment without time index entries: old messages have no time, or the file was lost.
    fn largest_by_scan(&self, segment: &Arc<Segment>) -> Result<Option<TimeEntry>, LookupError> {
        let mut largest: Option<TimeEntry> = None;
        let file = segment.readable_log_file(&self.folder(), self.budget())?;
        scan_headers(&file, 0, segment.len_bytes(), |_, info| {
            if info.max_timestamp > largest.map_or(-1, |largest| largest.timestamp_ms) {
                let relative = u32::try_from(info.last_offset.0 - segment.base().0);
                largest = Some(TimeEntry {
                    timestamp_ms: info.max_timestamp,
                    relative: relative.unwrap_or(u32::MAX),
                });
            }
            ControlFlow::<()>::Continue(())
        })?;
        Ok(largest)
    }

    fn search_times(
        &self,
        segment: &Arc<Segment>,
        holds: impl Fn(&TimeEntry) -> bool,
    ) -> Result<Found<TimeEntry>, LookupError> {
        let entries = {
            let state = self.read_state();
            if state.is_active(segment) {
                match state.times.search(&holds) {
                    TailSearch::Found(found) => return Ok(found),
                    TailSearch::OnDisk { entries, .. } => Some(entries),
                }
            } else {
                None
            }
        };
        let file = std::fs::File::open(self.time_index_path(segment));
        let file = file.map_err(|error| self.missing(segment, error))?;
        let entries = match entries {
            Some(entries) => entries,
            None => entries_in::<TimeEntry>(file.metadata()?.len()),
        };
        Ok(search(&file, entries, holds)?)
    }

    /// A file that is not there belongs to a segment that was removed meanwhile, or was lost.
    fn missing(&self, segment: &Arc<Segment>, error: std::io::Error) -> LookupError {
        let there = self.read_state().segments.iter().any(|known| Arc::ptr_eq(known, segment));
        if there { LookupError::Io(error) } else { LookupError::Moved }
    }

    fn time_index_path(&self, segment: &Segment) -> std::path::PathBuf {
        SegmentFile::TimeIndex.path(&self.folder(), segment.base())
    }
}
