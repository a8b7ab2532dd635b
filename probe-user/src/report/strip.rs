//! The delay of healthy checks over the time of the run, in buckets that grow with it.

use crate::attribution::Judged;
use crate::clock::{DurNs, MonoNs};
use crate::journey::Outcome;
use std::collections::BTreeMap;

/// Buckets at most.
const BUCKETS: usize = 400;
/// Stretches across a drawing at most.
const STRETCHES: u64 = 150;
/// Width of a bucket at first: 1 ms.
const NARROWEST: u64 = 1_000_000;

/// Least and greatest delay of the healthy checks of each bucket.
#[derive(Debug)]
pub(super) struct Strip {
    width: u64,
    buckets: BTreeMap<u64, Range>,
}

/// Delays of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) least: DurNs,
    pub(super) most: DurNs,
}

impl Default for Strip {
    fn default() -> Self {
        Self { width: NARROWEST, buckets: BTreeMap::new() }
    }
}

impl Strip {
    pub(super) fn push(&mut self, judged: &Judged) {
        let journey = &judged.journey;
        if judged.slow || journey.outcome != Outcome::Replied {
            return;
        }
        let elapsed = journey.elapsed();
        self.add(journey.started_at().0 / self.width, Range { least: elapsed, most: elapsed });
        while self.buckets.len() > BUCKETS {
            self.widen();
        }
    }

    fn add(&mut self, bucket: u64, range: Range) {
        let known = self.buckets.entry(bucket).or_insert(range);
        *known = Range { least: known.least.min(range.least), most: known.most.max(range.most) };
    }

    fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
        for (bucket, range) in std::mem::take(&mut self.buckets) {
            self.add(bucket / 2, range);
        }
    }

    /// Start, end and range of each stretch with a healthy check, in order; a stretch is wide enough to be
    /// seen in a drawing of so much time.
    pub(super) fn ranges(&self, drawn: DurNs) -> Vec<(MonoNs, MonoNs, Range)> {
        let together = (drawn.part(STRETCHES).0 / self.width).max(1);
        let width = self.width.saturating_mul(together);
        let mut wide = Self { width, buckets: BTreeMap::new() };
        self.buckets.iter().for_each(|(bucket, range)| wide.add(bucket / together, *range));
        let edge = |bucket: u64| MonoNs(bucket.saturating_mul(width));
        wide.buckets.iter().map(|(bucket, range)| (edge(*bucket), edge(bucket + 1), *range)).collect()
    }
}
