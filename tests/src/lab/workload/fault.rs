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

/// So much work takes so long on this CPU when nothing disturbs it.
pub(super) fn rounds_in(time: Duration) -> u64 {
    let once = || {
        let start = Instant::now();
        compute_rounds(SAMPLE_ROUNDS);
        start.elapsed()
    };
    let sample = (0..SAMPLES).map(|_| once()).min().unwrap_or_default();
    let rounds = time.as_nanos() * u128::from(SAMPLE_ROUNDS) / sample.as_nanos().max(1);
    u64::try_from(rounds).unwrap_or(u64::MAX)
}

/// Work of a sample, and how many are taken: the quickest was not disturbed.
const SAMPLE_ROUNDS: u64 = 4;
const SAMPLES: usize = 20;

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
