//! The clock of the lab's truth: `CLOCK_MONOTONIC`, which the kernel programs read too.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now, nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn mono_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds to add to `CLOCK_MONOTONIC` to get nanoseconds since 1970, at this moment.
#[must_use]
pub fn wall_offset_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime)).saturating_sub(mono_ns())
}

fn nanoseconds(time: Timespec) -> u64 {
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
