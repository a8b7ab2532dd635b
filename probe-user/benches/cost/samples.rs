//! Numbers that were measured again and again, and the clock that they are measured with.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread so far: what other programs take does not count.
pub(crate) fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// Nanoseconds of CPU time since `begun`, for each of `count`.
pub(crate) fn each_ns(begun: Duration, count: u32) -> f64 {
    cpu_time().saturating_sub(begun).as_secs_f64() * 1e9 / f64::from(count)
}

/// Samples in ascending order, never empty.
#[derive(Debug, Clone)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// `None` if there are none.
    pub(crate) fn new(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        (!samples.is_empty()).then_some(Self(samples))
    }

    /// What cannot vary.
    pub(crate) fn one(sample: f64) -> Self {
        Self(vec![sample])
    }

    pub(crate) fn median(&self) -> f64 {
        let half = self.0.len() / 2;
        self.0.get(half).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}
