//! Stacks of threads in user code: those of waits, and samples of the time on a CPU.

use super::ledger::Sampled;
use super::symbol::{Fast, Symbols};
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use crate::stack::{Taken, TakenFact};
use std::collections::{HashMap, VecDeque};

/// Most stacks of waits kept; the oldest go.
const MAX_WAITS: usize = 65_536;
/// Most samples kept of all threads; what comes then is left out.
const MAX_SAMPLES: usize = 262_144;
/// Most different stacks of one stretch of time; of the others, the time counts.
const MAX_DIFFERENT: usize = 256;

/// A sample of a thread on a CPU.
#[derive(Debug)]
struct Sample {
    at: MonoNs,
    period: DurNs,
    user: Option<u32>,
    kernel: Box<[u64]>,
}

/// The stacks of late, by the numbers that `Stack` facts explain.
#[derive(Debug, Default)]
pub(super) struct TakenStacks {
    /// By thread, and when it left the CPU.
    waits: HashMap<(TaskId, MonoNs), (MonoNs, u32), Fast>,
    /// The same in the order in which they were told: when they had ended, or while they lasted.
    told: VecDeque<(MonoNs, (TaskId, MonoNs))>,
    samples: HashMap<TaskId, VecDeque<Sample>, Fast>,
    sample_count: usize,
}

impl TakenStacks {
    pub(super) fn add(&mut self, at: MonoNs, taken: &TakenFact) {
        match taken.why {
            Taken::Wait { since } => {
                taken.user.into_iter().for_each(|user| self.add_wait(at, (taken.task, since), user));
            }
            Taken::Sample { period } if self.sample_count < MAX_SAMPLES => {
                let sample = Sample { at, period, user: taken.user, kernel: taken.kernel.as_slice().into() };
                self.samples.entry(taken.task).or_default().push_back(sample);
                self.sample_count += 1;
            }
            Taken::Sample { .. } => {}
        }
    }

    fn add_wait(&mut self, at: MonoNs, wait: (TaskId, MonoNs), user: u32) {
        if self.told.len() >= MAX_WAITS
            && let Some((told, oldest)) = self.told.pop_front()
        {
            self.forget(told, oldest);
        }
        self.waits.insert(wait, (at, user));
        self.told.push_back((at, wait));
    }

    /// A wait that was told again later is kept.
    fn forget(&mut self, told: MonoNs, wait: (TaskId, MonoNs)) {
        if self.waits.get(&wait).is_some_and(|(at, _)| *at == told) {
            self.waits.remove(&wait);
        }
    }

    /// Forgets what was told before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        while let Some((told, wait)) = self.told.pop_front_if(|(at, _)| *at < before) {
            self.forget(told, wait);
        }
        self.samples.retain(|_, samples| {
            let old = samples.partition_point(|sample| sample.at < before);
            samples.drain(..old);
            !samples.is_empty()
        });
        self.sample_count = self.samples.values().map(VecDeque::len).sum();
    }

    /// The stack of a thread that left the CPU at `since`, if that was taken.
    pub(super) fn of_wait(&self, task: TaskId, since: MonoNs) -> Option<u32> {
        self.waits.get(&(task, since)).map(|(_, user)| *user)
    }

    /// Where a thread was sampled between `from` and `to`, equal stacks together, in the order in
    /// which they first came.
    pub(super) fn sampled(&self, task: TaskId, (from, to): (MonoNs, MonoNs), symbols: &Symbols) -> Vec<Sampled> {
        let Some(samples) = self.samples.get(&task) else { return Vec::new() };
        let (begin, end) = (samples.partition_point(|one| one.at < from), samples.partition_point(|one| one.at <= to));
        let mut places: HashMap<(Option<u32>, &[u64]), usize, Fast> = HashMap::default();
        let mut sampled: Vec<Sampled> = Vec::new();
        for Sample { period, user, kernel, .. } in samples.range(begin..end) {
            let full = places.len() >= MAX_DIFFERENT && !places.contains_key(&(*user, &**kernel));
            let (user, kernel) = if full { (None, &[][..]) } else { (*user, &**kernel) };
            let place = *places.entry((user, kernel)).or_insert(sampled.len());
            match sampled.get_mut(place) {
                Some(known) => known.time = known.time.plus(*period),
                None => sampled.push(Sampled { user, kernel: named(kernel, symbols), time: *period }),
            }
        }
        sampled
    }
}

/// Kernel functions, outermost first.
fn named(addresses: &[u64], symbols: &Symbols) -> Vec<String> {
    let name = |address: &u64| symbols.at(*address).map_or("[unknown]", |frame| frame.name()).to_owned();
    addresses.iter().rev().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: TaskId = TaskId { tgid: 7, tid: 8 };

    fn sample(user: u32) -> TakenFact {
        let period = DurNs::from_millis(10);
        TakenFact { task: TASK, why: Taken::Sample { period }, user: Some(user), kernel: Vec::new() }
    }

    fn wait(since: u64, user: u32) -> TakenFact {
        TakenFact { task: TASK, why: Taken::Wait { since: MonoNs(since) }, user: Some(user), kernel: Vec::new() }
    }

    #[test]
    fn samples_of_a_stretch_are_counted_by_their_stack() {
        let mut stacks = TakenStacks::default();
        for (at, user) in [(10, 1), (20, 2), (30, 1), (40, 3)] {
            stacks.add(MonoNs(at), &sample(user));
        }
        let sampled = |from, to| {
            let sampled = stacks.sampled(TASK, (MonoNs(from), MonoNs(to)), &Symbols::default());
            sampled.into_iter().map(|one| (one.user.unwrap(), one.time.0 / 1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(sampled(10, 30), [(1, 20), (2, 10)]);
        assert_eq!(sampled(31, 39), []);
    }

    #[test]
    fn what_was_over_is_forgotten() {
        let mut stacks = TakenStacks::default();
        stacks.add(MonoNs(20), &wait(1, 5));
        stacks.add(MonoNs(20), &wait(2, 6));
        stacks.add(MonoNs(40), &wait(2, 6));
        stacks.add(MonoNs(20), &sample(1));
        stacks.trim(MonoNs(30));
        assert_eq!((stacks.of_wait(TASK, MonoNs(1)), stacks.of_wait(TASK, MonoNs(2))), (None, Some(6)));
        assert_eq!((stacks.sample_count, stacks.samples.len()), (0, 0));
    }

    #[test]
    fn very_many_different_stacks_of_a_stretch_keep_their_time() {
        let mut stacks = TakenStacks::default();
        let many = u32::try_from(MAX_DIFFERENT).unwrap() + 50;
        (0..many).for_each(|user| stacks.add(MonoNs(9), &sample(user)));
        let sampled = stacks.sampled(TASK, (MonoNs(0), MonoNs(9)), &Symbols::default());
        assert_eq!(sampled.len(), MAX_DIFFERENT + 1);
        let sum = sampled.iter().fold(DurNs::ZERO, |sum, one| sum.plus(one.time));
        assert_eq!(sum, DurNs::from_millis(10 * u64::from(many)));
    }
}
