//! How much a request asks for, and for how long it may wait. Pure functions of the link's settings.

use crate::handle::LinkSettings;

/// The bounds of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestSize {
    /// Milliseconds the broker may wait for `bytes_min`.
    pub(super) wait_max_ms: i32,
    /// Bytes worth an answer.
    pub(super) bytes_min: i32,
    /// Whole response, except its first batch.
    pub(super) bytes_max: i32,
    /// One partition's records, except the first batch.
    pub(super) partition_bytes_max: i32,
}

/// A long poll over every member of a session.
pub(super) fn tail(settings: &LinkSettings) -> RequestSize {
    let bytes_max = settings.response_bytes_max.max(1);
    RequestSize {
        wait_max_ms: i32::try_from(settings.fetch_wait_max.as_millis()).unwrap_or(i32::MAX),
        bytes_min: settings.fetch_min_bytes.max(0),
        bytes_max,
        partition_bytes_max: settings.partition_bytes_max.clamp(1, bytes_max),
    }
}

/// A catch-up request has one partition where a tail answer has many: it asks for this many times the
/// bytes of one. On loopback four doubles the throughput of one partition and halves the source's
/// processor time, as a broker's cost is by request; eight gains no more.
const CATCH_UP_PARTITION_BYTES_FACTOR: i32 = 4;

/// One cursor's next piece. It never waits at the broker: a request that waits holds up all the
/// requests behind it on the connection.
pub(super) fn catch_up(settings: &LinkSettings) -> RequestSize {
    let wanted = settings.partition_bytes_max.saturating_mul(CATCH_UP_PARTITION_BYTES_FACTOR);
    let bytes_max = wanted.clamp(1, settings.response_bytes_max.max(1));
    RequestSize { wait_max_ms: 0, bytes_min: 1, bytes_max, partition_bytes_max: bytes_max }
}

/// Whether a cursor this far behind leaves the tail for a catch-up lane.
pub(super) fn is_behind(settings: &LinkSettings, lag: i64) -> bool {
    lag > settings.catch_up_lag_min.max(0)
}

/// Whether a cursor this far behind goes back to the tail. Half of what sends it away, so that a
/// cursor at the threshold does not travel with every answer.
pub(super) fn has_caught_up(settings: &LinkSettings, lag: i64) -> bool {
    lag <= settings.catch_up_lag_min.max(0) / 2
}
