//! What is normal at a target: the latest healthy checks, and their medians.

use super::cause::{CAUSES, Cause};
use super::ledger::Ledger;
use super::service::Stay;
use super::verdict::ENOUGH;
use crate::clock::DurNs;
use crate::event::InterfaceId;
use std::collections::{HashMap, VecDeque};

/// Healthy checks that the medians are taken over.
const WINDOW: usize = 128;
/// Most targets and signatures whose normal is kept.
const MAX_KEYS: usize = 1_024;

/// Time per cause, in the order of [`CAUSES`], then what is unexplained.
pub(crate) type Times = [DurNs; CAUSES.len() + 1];

/// A ledger's time per cause.
pub(crate) fn times(ledger: &Ledger) -> Times {
    let mut times = [DurNs::ZERO; CAUSES.len() + 1];
    for entry in &ledger.entries {
        add(&mut times, entry.cause as usize, entry.time());
    }
    add(&mut times, CAUSES.len(), ledger.unexplained);
    times
}

fn add(times: &mut Times, index: usize, time: DurNs) {
    if let Some(sum) = times.get_mut(index) {
        *sum = sum.plus(time);
    }
}

/// The latest healthy checks of one target and signature.
#[derive(Debug, Default, Clone)]
pub(crate) struct Baseline {
    checks: VecDeque<(DurNs, Times)>,
    stays: VecDeque<Stay>,
    used: u64,
}

impl Baseline {
    /// Takes in a healthy check.
    pub(crate) fn push(&mut self, elapsed: DurNs, times: Times) {
        if self.checks.len() >= WINDOW {
            self.checks.pop_front();
        }
        self.checks.push_back((elapsed, times));
    }

    /// Takes in how long a healthy check was with the app.
    pub(crate) fn push_stay(&mut self, stay: Stay) {
        if self.stays.len() >= WINDOW {
            self.stays.pop_front();
        }
        self.stays.push_back(stay);
    }

    /// How long healthy checks are with the app; `None` while too few have been seen there.
    pub(crate) fn usual_stay(&self) -> Option<Stay> {
        let of = |part: fn(&Stay) -> DurNs| median(self.stays.iter().map(part));
        (self.stays.len() >= ENOUGH).then(|| Stay { waited: of(|stay| stay.waited), held: of(|stay| stay.held) })
    }

    /// Checks taken in, at most the window.
    pub(crate) fn len(&self) -> usize {
        self.checks.len()
    }

    /// Median of their time; zero without any.
    pub(crate) fn p50(&self) -> DurNs {
        median(self.checks.iter().map(|(elapsed, _)| *elapsed))
    }

    /// What each cause took of `elapsed` above what it takes of a healthy check.
    pub(crate) fn excess(&self, elapsed: DurNs, times: &Times) -> Excess {
        let total = elapsed.minus(self.p50());
        if total == DurNs::ZERO {
            return Excess { total: elapsed, times: *times };
        }
        let mut above = *times;
        for (index, time) in above.iter_mut().enumerate().filter(|(_, time)| **time > DurNs::ZERO) {
            *time = time.minus(median(self.checks.iter().filter_map(|(_, times)| times.get(index).copied())));
        }
        let sum = above.iter().fold(DurNs::ZERO, |sum, time| sum.plus(*time));
        Excess { total: DurNs(total.0.max(sum.0)), times: above }
    }
}

fn median(values: impl Iterator<Item = DurNs>) -> DurNs {
    let mut values: Vec<DurNs> = values.collect();
    let middle = values.len() / 2;
    if values.is_empty() { DurNs::ZERO } else { *values.select_nth_unstable(middle).1 }
}

/// The delay above the baseline, per cause.
#[derive(Debug, Clone)]
pub(crate) struct Excess {
    /// At least the sum of `times`, so that shares are at most 1.
    pub(crate) total: DurNs,
    pub(crate) times: Times,
}

impl Excess {
    /// The cause with the most time, and its share.
    pub(crate) fn largest(&self) -> Option<(Cause, f64)> {
        let causes = CAUSES.iter().zip(&self.times).filter(|(_, time)| **time > DurNs::ZERO);
        let (row, time) = causes.max_by_key(|(_, time)| **time)?;
        Some((row.cause, share(*time, self.total)))
    }

    /// Share for which no cause is proven.
    pub(crate) fn unexplained_share(&self) -> f64 {
        share(self.times.last().copied().unwrap_or_default(), self.total)
    }
}

/// `part` of `whole`, 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "a share needs no more than six digits")]
pub(crate) fn share(part: DurNs, whole: DurNs) -> f64 {
    if whole == DurNs::ZERO { 0.0 } else { (part.0 as f64 / whole.0 as f64).min(1.0) }
}

/// Baselines per target and signature. Of too many, the one used longest ago is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Baselines {
    by_key: HashMap<(InterfaceId, usize), Baseline>,
    clock: u64,
}

impl Baselines {
    /// The baseline of a target and signature.
    pub(crate) fn of(&mut self, target: InterfaceId, signature: usize) -> &mut Baseline {
        let key = (target, signature);
        if self.by_key.len() >= MAX_KEYS && !self.by_key.contains_key(&key) {
            self.forget_oldest();
        }
        self.clock += 1;
        let baseline = self.by_key.entry(key).or_default();
        baseline.used = self.clock;
        baseline
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_key.iter().min_by_key(|(_, baseline)| baseline.used).map(|(key, _)| *key);
        oldest.map(|key| self.by_key.remove(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::{Baseline, CAUSES, Times};
    use crate::attribution::Cause;
    use crate::clock::DurNs;

    fn row(cause: Cause, ms: u64) -> Times {
        let mut times = [DurNs::ZERO; CAUSES.len() + 1];
        times[cause as usize] = DurNs::from_millis(ms);
        times
    }

    #[test]
    fn what_is_normal_is_not_excess() {
        let mut baseline = Baseline::default();
        (0..200).for_each(|_| baseline.push(DurNs::from_millis(10), row(Cause::VmGuestInternal, 10)));
        let excess = baseline.excess(DurNs::from_millis(100), &row(Cause::VmGuestInternal, 100));
        assert_eq!(excess.total, DurNs::from_millis(90));
        assert_eq!(excess.times[Cause::VmGuestInternal as usize], DurNs::from_millis(90));
        let (cause, share) = excess.largest().unwrap();
        assert_eq!((cause, (share * 1000.0).round()), (Cause::VmGuestInternal, 1000.0));
    }

    #[test]
    fn shares_never_exceed_the_whole() {
        let mut baseline = Baseline::default();
        baseline.push(DurNs::from_millis(50), row(Cause::VmGuestInternal, 50));
        let excess = baseline.excess(DurNs::from_millis(60), &row(Cause::AppOnCpu, 60));
        assert_eq!(excess.largest().map(|(_, share)| share.to_bits()), Some(1.0_f64.to_bits()));
    }
}
