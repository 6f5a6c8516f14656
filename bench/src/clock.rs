//! A clock that all processes of this machine share.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock: the same moment has the same number in every process and network
/// namespace of this machine, which is what makes a delay from one process to another measurable.
#[must_use]
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Processor time of the calling thread.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Milliseconds since 1970, as records carry them.
#[must_use]
pub fn wall_ms() -> i64 {
    i64::try_from(nanoseconds(ClockId::Realtime) / 1_000_000).unwrap_or(i64::MAX)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
