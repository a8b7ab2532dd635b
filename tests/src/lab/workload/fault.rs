//! What a thread does while it is at fault, and when.

use super::super::message::announce_fault;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keeps the CPU busy in user code for `time`.
pub(super) fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        compute_rounds(1);
    }
}

/// Does so much work in user code, however long that takes.
pub(super) fn compute_rounds(rounds: u64) {
    let mut state = 1_u64;
    for _ in 0..rounds * 1_000 {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// A fault that waits for the next check to strike.
#[derive(Debug, Default)]
pub(super) struct Armed(AtomicU64);

impl Armed {
    /// The next check is hit for this long.
    pub(super) fn arm(&self, ms: u64) {
        self.0.store(ms, Ordering::Relaxed);
    }

    /// Whether it is armed; a fault strikes once.
    pub(super) fn take(&self) -> Option<Duration> {
        match self.0.swap(0, Ordering::Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// Strikes with `fault` if it is armed.
    pub(super) fn strike(&self, fault: impl FnOnce(Duration)) {
        if let Some(time) = self.take() {
            announce_fault(|| fault(time));
        }
    }
}
