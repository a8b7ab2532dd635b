//! Flame graphs of delay: in whose hands slow checks spent their time, and on whom that rested.
//!
//! Outputs of the pipeline come in, a [`Graph`] goes out. Each part of a ledger is a tower of
//! levels: custody, span, causes, thread, its kernel stack, whoever it waited for. The towers of a
//! check sum to its time, to the nanosecond. Pure; the same recording gives the same bytes.

mod against;
mod block;
mod export;
mod graph;
mod svg;
mod threads;
mod tower;

#[cfg(test)]
mod tests;

pub(crate) use block::{Block, Blocks};
pub use graph::Graph;
pub use threads::ThreadTimes;

use crate::attribution::{Judged, Unresolved, Verdict, counted};
use crate::clock::{ClockAnchor, DurNs, MonoNs};
use crate::event::{Fact, InterfaceId};
use crate::journey::{JourneyId, Outcome};
use crate::pipeline::Output;
use crate::stack::StackTable;
use graph::{Share, Width};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};
use thiserror::Error;
use tower::{Levels, Plan, Step, Tower};

/// Most different towers kept apart; what comes later counts for its custody only.
const MAX_TOWERS: usize = 16_384;

/// Why there is nothing to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Empty {
    /// No check at all.
    #[error("it holds no check; `whylag replay FILE` says what was recorded")]
    NoCheck,
    /// No slow one.
    #[error(
        "none of its {checks} checks was slow, so there is no delay to draw; `whylag replay FILE` shows what they \
         took, and with a lower --threshold `whylag attach --record` calls more of them slow"
    )]
    NoSlow {
        /// Checks.
        checks: u64,
    },
    /// No sample of a thread on a CPU.
    #[error(
        "it holds no samples of threads on a CPU; record with `whylag attach --record FILE --stacks on` to take them"
    )]
    NoSample,
    /// No thread slept.
    #[error("no watched thread was seen to leave its CPU; `whylag replay FILE` says what was recorded")]
    NoWait,
    /// The other recording has nothing to compare with.
    #[error("the two recordings have no signature in common with checks in both of them")]
    NothingInCommon,
    /// No healthy one to compare with.
    #[error(
        "no healthy check of the same target and signature is there to compare the {slow} slow ones with; --kind \
         delay draws them alone"
    )]
    NoHealthy {
        /// Slow checks.
        slow: u64,
    },
}

/// Sums up the time of judged checks.
#[derive(Debug, Default)]
pub struct Flame {
    towers: Towers,
    stacks: StackTable,
    groups: BTreeMap<(InterfaceId, usize), Group>,
    /// The last word on each slow check that is still open.
    open: HashMap<JourneyId, ((InterfaceId, usize), Parts)>,
    checks: u64,
    started_at: MonoNs,
    clock: Option<ClockAnchor>,
    signatures: Vec<String>,
    lost_events: u64,
    unreported: u64,
    stacks_left_out: u64,
}

/// Checks of one target and signature.
#[derive(Debug, Default)]
struct Group {
    slow: Population,
    healthy: Population,
}

#[derive(Debug, Default, Clone)]
struct Population {
    checks: u64,
    times: BTreeMap<usize, DurNs>,
}

/// Times of one check by the number of the tower.
type Parts = Box<[(usize, DurNs)]>;

impl Flame {
    /// One that has seen no check.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one output of the pipeline in.
    pub fn push(&mut self, output: &Output) {
        match output {
            Output::Journey(judged) => self.check(judged),
            Output::Loss(report) => {
                self.lost_events = report.lost.saturating_add(report.unreadable);
                self.unreported = report.unreported;
            }
            Output::Summary(run) => (self.checks, self.started_at) = (run.checks, run.started_at),
            Output::Fact(Fact::Clock(anchor)) => self.clock = Some(*anchor),
            Output::Fact(Fact::Run(run)) => {
                self.signatures = run.signatures.iter().map(|signature| signature.name.clone()).collect();
            }
            Output::Fact(Fact::StackCounts(counts)) => self.stacks_left_out = counts.left_out(),
            Output::Fact(fact) => self.stacks.learn(fact),
            Output::Lapse { .. } | Output::Absence(_) | Output::Gone { .. } => {}
            Output::Episode(_) | Output::Queue(_) | Output::Receive(_) | Output::RxRing(_) => {}
            Output::Activity(_) | Output::Softirq { .. } | Output::Join(_) => {}
        }
    }

    /// A check that was told as open is told again, and counts once.
    fn check(&mut self, judged: &Judged) {
        let journey = &judged.journey;
        let key = (journey.target, journey.signature);
        self.open.remove(&journey.id);
        let healthy = judged.verdict == Verdict::Healthy && journey.outcome == Outcome::Replied && !judged.brief;
        if !judged.slow && !healthy {
            return;
        }
        let parts = self.towers.parts(judged);
        let group = self.groups.entry(key).or_default();
        match journey.outcome {
            Outcome::Open => drop(self.open.insert(journey.id, (key, parts))),
            _ if judged.slow => group.slow.add(&parts),
            _ => group.healthy.add(&parts),
        }
    }

    /// The delay of all slow and lost checks, and of open ones that are late.
    ///
    /// # Errors
    /// When there is none.
    pub fn delay(&self) -> Result<Graph, Empty> {
        let mut slow = Population::default();
        self.slow_groups().iter().for_each(|(_, group)| slow.join(group));
        if slow.checks == 0 {
            return Err(self.nothing());
        }
        let shares = slow.times.iter().map(|(tower, time)| (*tower, Width::Of(*time)));
        let title = format!(
            "whylag: the delay of {} of {}; the full width is {}",
            counted(slow.checks, "slow check"),
            self.checks,
            slow.whole()
        );
        let stack = if self.stacks.is_empty() { "kernel stack" } else { "stack" };
        let levels = format!("from below: custody, span, cause, thread, its {stack}, whom it waited for");
        Ok(self.graph(title, levels, shares))
    }

    /// A slow check against a healthy one: means over the slow checks, each compared with the
    /// healthy ones of its own target and signature, in nanoseconds rounded down.
    ///
    /// # Errors
    /// When there is no slow one, or no healthy one to compare it with.
    pub fn diff(&self) -> Result<Graph, Empty> {
        let mut pair = Pair::default();
        let mut slow = 0;
        for (key, population) in self.slow_groups() {
            slow += population.checks;
            if let Some(healthy) = self.groups.get(&key).map(|group| &group.healthy).filter(|group| group.checks > 0) {
                pair.add(&population, healthy);
            }
        }
        match (slow, pair.slow) {
            (0, _) => return Err(self.nothing()),
            (slow, 0) => return Err(Empty::NoHealthy { slow }),
            _ => {}
        }
        let title = format!(
            "whylag: a slow check (the full width, {}) against a healthy one ({})",
            pair.mean(|times| times.0),
            pair.mean(|times| times.1)
        );
        let alone = match slow - pair.slow {
            0 => String::new(),
            alone => format!(", {alone} slow left out for want of healthy ones"),
        };
        let note = format!(
            "red: more time than in a healthy check, blue: less; means of {} slow and {} healthy checks{alone}",
            pair.slow, pair.healthy
        );
        let shares = pair.times.iter().map(|(tower, (slow, healthy))| {
            (*tower, Width::Against { now: pair.per_check(*slow), before: pair.per_check(*healthy) })
        });
        Ok(self.graph(title, note, shares))
    }

    /// The slow checks of each group, open ones included.
    fn slow_groups(&self) -> BTreeMap<(InterfaceId, usize), Population> {
        let ended = self.groups.iter().map(|(key, group)| (*key, group.slow.clone()));
        let mut slow: BTreeMap<_, _> = ended.collect();
        for (key, parts) in self.open.values() {
            slow.entry(*key).or_default().add(parts);
        }
        slow.retain(|_, group| group.checks > 0);
        slow
    }

    /// With the time when the first check began, where a clock tells it.
    fn dated(&self, note: String) -> String {
        let wall = |clock: ClockAnchor| SystemTime::UNIX_EPOCH + Duration::from_nanos(clock.unix_ns(self.started_at));
        let began = self.clock.map(|clock| humantime::format_rfc3339_seconds(wall(clock)));
        began.map_or(note.clone(), |began| format!("{began}; {note}"))
    }

    const fn nothing(&self) -> Empty {
        match self.checks {
            0 => Empty::NoCheck,
            checks => Empty::NoSlow { checks },
        }
    }

    fn graph(&self, title: String, note: String, shares: impl Iterator<Item = (usize, Width)>) -> Graph {
        let shares = shares.filter(|(_, width)| !width.is_nothing());
        let mut levels = Levels::default();
        let shares = shares.map(|(plan, width)| Share { tower: self.built(plan, &mut levels), width });
        let mut graph = Graph::new("Delay", title, self.dated(note), shares.collect());
        self.note_losses(&mut graph);
        graph
    }

    /// A tower with the names that are known by now.
    fn built(&self, plan: usize, levels: &mut Levels) -> Tower {
        tower::built(self.towers.get(plan), &self.stacks, levels)
    }

    fn note_losses(&self, graph: &mut Graph) {
        if self.lost_events > 0 {
            graph.note(&format!("incomplete: {} lost", counted(self.lost_events, "event")));
        }
        if self.stacks_left_out > 0 {
            graph.note(&format!("{} left out", counted(self.stacks_left_out, "stack")));
        }
        if self.unreported > 0 {
            graph.note(&format!("{} on open checks left out", counted(self.unreported, "report")));
        }
    }
}

impl Population {
    fn add(&mut self, parts: &[(usize, DurNs)]) {
        self.checks += 1;
        for (tower, time) in parts {
            let sum = self.times.entry(*tower).or_default();
            *sum = sum.plus(*time);
        }
    }

    fn join(&mut self, other: &Self) {
        self.checks += other.checks;
        for (tower, time) in &other.times {
            let sum = self.times.entry(*tower).or_default();
            *sum = sum.plus(*time);
        }
    }

    fn whole(&self) -> DurNs {
        self.times.values().fold(DurNs::ZERO, |sum, time| sum.plus(*time))
    }
}

/// Times of slow checks, and of as many healthy ones of the same groups.
#[derive(Debug, Default)]
struct Pair {
    slow: u64,
    healthy: u64,
    /// Slow, healthy.
    times: BTreeMap<usize, (u128, u128)>,
}

impl Pair {
    fn add(&mut self, slow: &Population, healthy: &Population) {
        self.slow += slow.checks;
        self.healthy += healthy.checks;
        for (tower, time) in &slow.times {
            self.times.entry(*tower).or_default().0 += u128::from(time.0);
        }
        for (tower, time) in &healthy.times {
            let as_many = u128::from(time.0) * u128::from(slow.checks) / u128::from(healthy.checks);
            self.times.entry(*tower).or_default().1 += as_many;
        }
    }

    fn per_check(&self, sum: u128) -> DurNs {
        DurNs(u64::try_from(sum / u128::from(self.slow.max(1))).unwrap_or(u64::MAX))
    }

    fn mean(&self, of: impl Fn(&(u128, u128)) -> u128) -> DurNs {
        self.per_check(self.times.values().map(of).sum())
    }
}

/// Plans of towers by number, each kept once.
#[derive(Debug, Default)]
struct Towers {
    numbers: HashMap<Plan, usize>,
    plans: Vec<Plan>,
}

impl Towers {
    /// What is charged of a check under which events were lost is not believed.
    fn parts(&mut self, judged: &Judged) -> Parts {
        if let Verdict::Unresolved(Unresolved::EventsLost { .. }) = judged.verdict {
            return Box::new([(self.number(tower::of_loss()), judged.journey.elapsed())]);
        }
        let ledger = &judged.ledger;
        let charged = ledger.entries.iter().flat_map(tower::of_entry);
        let rest = ledger.gaps.iter().map(|gap| (tower::of_gap(gap), gap.time));
        charged.chain(rest).map(|(tower, time)| (self.number(tower), time)).collect()
    }

    fn number(&mut self, plan: Plan) -> usize {
        if let Some(number) = self.numbers.get(&plan) {
            return *number;
        }
        if self.plans.len() >= MAX_TOWERS
            && let Some(base) = tower::base(&plan).filter(|base| *base != plan)
        {
            return self.number(base);
        }
        let number = self.plans.len();
        self.numbers.insert(plan.clone(), number);
        self.plans.push(plan);
        number
    }

    fn get(&self, number: usize) -> &[Step] {
        self.plans.get(number).map_or(&[], Vec::as_slice)
    }
}
