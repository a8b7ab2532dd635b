//! The host's clocks.

use crate::clock::{ClockAnchor, MonoNs};
use rustix::time::{ClockId, clock_gettime};

/// Now, `CLOCK_MONOTONIC`.
pub(super) fn now() -> MonoNs {
    MonoNs(read(ClockId::Monotonic))
}

/// Both clocks at one instant: wall time, with the middle of two monotonic readings around it.
pub(super) fn anchor() -> ClockAnchor {
    let before = read(ClockId::Monotonic);
    let unix_ns = read(ClockId::Realtime);
    let after = read(ClockId::Monotonic);
    ClockAnchor { mono: MonoNs(before.midpoint(after)), unix_ns }
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanoseconds.unwrap_or(0))
}
