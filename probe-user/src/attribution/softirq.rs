//! What each CPU spent in softirqs: long runs one by one, short ones as sums over a window.

use super::symbol::Fast;
use super::thread::{SoftirqRuns, spread};
use crate::clock::{DurNs, MonoNs};
use probe_wire::{SOFTIRQ_VECTORS, SoftirqBody};
use std::collections::{HashMap, VecDeque};

/// Most long softirqs kept of one CPU, and most sums of short ones.
const MAX_SOFTIRQS: usize = 4_096;
/// Longest window of a sum, and then some.
const LONGEST_WINDOW: DurNs = DurNs::from_millis(100);

/// One softirq.
#[derive(Debug, Clone, Copy)]
pub(super) struct SoftirqRun {
    pub(super) from: MonoNs,
    /// Its end, or for one that still runs, when it was last seen.
    pub(super) to: MonoNs,
    pub(super) vector: u32,
}

/// Short softirqs of one vector, together.
#[derive(Debug, Clone, Copy)]
struct SoftirqSum {
    from: MonoNs,
    to: MonoNs,
    time: DurNs,
    vector: u32,
}

#[derive(Debug, Default)]
struct OfCpu {
    runs: VecDeque<SoftirqRun>,
    sums: VecDeque<SoftirqSum>,
    /// The newest that was seen at work, and of which no record has come.
    seen: Option<SoftirqRun>,
}

/// The softirqs of all CPUs.
#[derive(Debug, Default)]
pub(super) struct Softirqs {
    by_cpu: HashMap<u32, OfCpu, Fast>,
}

/// What one CPU spent in softirqs over a stretch, as far as records tell.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    by_vector: [Taken; SOFTIRQ_VECTORS],
}

/// What softirqs of one vector took of a stretch.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) time: DurNs,
    /// The most that a single long run took.
    pub(super) longest: DurNs,
}

impl Tally {
    fn add(&mut self, vector: u32, time: DurNs, run: DurNs) {
        if let Some(taken) = self.by_vector.get_mut(vector as usize) {
            *taken = Taken { time: taken.time.plus(time), longest: taken.longest.max(run) };
        }
    }

    /// The vector that took at least half of all.
    pub(super) fn main(&self) -> Option<(u32, Taken)> {
        let total = self.by_vector.iter().fold(DurNs::ZERO, |sum, taken| sum.plus(taken.time));
        let (vector, taken) = (0_u32..).zip(self.by_vector).max_by_key(|(_, taken)| taken.time)?;
        (taken.time > DurNs::ZERO && taken.time.0 >= total.0.div_ceil(2)).then_some((vector, taken))
    }
}

impl Softirqs {
    /// Takes in a record, which came at `end`.
    pub(super) fn add(&mut self, cpu: u32, end: MonoNs, body: &SoftirqBody) {
        let of_cpu = self.by_cpu.entry(cpu).or_default();
        let time = DurNs(body.duration_ns);
        if body.window_ns != 0 {
            let from = end.before(DurNs(body.window_ns.into()));
            push(&mut of_cpu.sums, SoftirqSum { from, to: end, time, vector: body.vector });
            return;
        }
        let run = SoftirqRun { from: end.before(time), to: end, vector: body.vector };
        of_cpu.seen = of_cpu.seen.filter(|seen| seen.from >= run.to);
        push(&mut of_cpu.runs, run);
    }

    /// A softirq of `vector` that began at `from` was at work at `to`.
    pub(super) fn see(&mut self, cpu: u32, from: MonoNs, to: MonoNs, vector: u32) {
        self.by_cpu.entry(cpu).or_default().seen = Some(SoftirqRun { from, to, vector });
    }

    pub(super) fn trim(&mut self, before: MonoNs) {
        for of_cpu in self.by_cpu.values_mut() {
            let old = of_cpu.runs.partition_point(|run| run.to < before);
            of_cpu.runs.drain(..old);
            let old = of_cpu.sums.partition_point(|sum| sum.to < before);
            of_cpu.sums.drain(..old);
        }
    }

    /// Long softirqs of a CPU that overlap a stretch of time.
    pub(super) fn overlapping(&self, cpu: u32, from: MonoNs, to: MonoNs) -> impl Iterator<Item = &SoftirqRun> {
        let of_cpu = self.by_cpu.get(&cpu);
        let runs = of_cpu.into_iter().flat_map(move |of_cpu| {
            let ended = of_cpu.runs.range(of_cpu.runs.partition_point(|run| run.to <= from)..);
            ended.chain(of_cpu.seen.as_ref().filter(|seen| seen.to > from))
        });
        runs.take_while(move |run| run.from < to)
    }

    /// What lies of each sum in a stretch of time, if its runs lay evenly in its window.
    fn sums(&self, cpu: u32, from: MonoNs, to: MonoNs) -> impl Iterator<Item = (u32, DurNs)> {
        let sums = self.by_cpu.get(&cpu).into_iter();
        let sums = sums.flat_map(move |of_cpu| of_cpu.sums.range(of_cpu.sums.partition_point(|sum| sum.to <= from)..));
        let near = sums.take_while(move |sum| sum.to.before(LONGEST_WINDOW) < to);
        near.filter(move |sum| sum.from < to).map(move |sum| {
            let part = sum.to.min(to).since(sum.from.max(from));
            (sum.vector, spread(sum.time, part, sum.to.since(sum.from)))
        })
    }

    /// What a CPU spent in softirqs between `from` and `to`.
    pub(super) fn tally(&self, cpu: u32, from: MonoNs, to: MonoNs) -> Tally {
        let mut tally = Tally::default();
        for run in self.overlapping(cpu, from, to) {
            let time = run.to.min(to).since(run.from.max(from));
            tally.add(run.vector, time, time);
        }
        self.sums(cpu, from, to).for_each(|(vector, time)| tally.add(vector, time, DurNs::ZERO));
        tally
    }

    #[cfg(test)]
    pub(super) fn count(&self, cpu: u32) -> usize {
        self.by_cpu[&cpu].runs.len()
    }

    #[cfg(test)]
    pub(super) const MOST: usize = MAX_SOFTIRQS;
}

fn push<T>(to: &mut VecDeque<T>, new: T) {
    if to.len() >= MAX_SOFTIRQS {
        to.pop_front();
    }
    to.push_back(new);
}

impl SoftirqRuns for Softirqs {
    fn within(&self, cpu: u32, from: MonoNs, to: MonoNs) -> DurNs {
        let runs = self.overlapping(cpu, from, to);
        runs.fold(DurNs::ZERO, |sum, run| sum.plus(run.to.min(to).since(run.from.max(from))))
    }

    fn short_within(&self, cpu: u32, from: MonoNs, to: MonoNs) -> DurNs {
        self.sums(cpu, from, to).fold(DurNs::ZERO, |sum, (_, time)| sum.plus(time))
    }
}
