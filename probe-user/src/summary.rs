//! What happened at each target: counts, percentiles, and causes ranked by the time they took.
//!
//! Judged journeys come in; an [`Episode`] per target, a [`Snapshot`] for a live view and a
//! [`RunSummary`] go out. A check that is reported many times while it is open counts once.
//! Memory is bounded by the number of targets and of open checks.

mod loss_rate;

use crate::attribution::baseline::{Baselines, Excess, Times, share, times};
use crate::attribution::verdict::conclude;
use crate::attribution::{
    Absence, CAUSES, Cause, Episode, EpisodeCause, Judged, Offender, Service, Stall, Stalls, Unresolved, Verdict,
};
use crate::clock::{DurNs, MonoNs};
use crate::counters::{CounterTable, ThreadCounters};
use crate::event::{InterfaceId, RunFact};
use crate::journey::{JourneyId, Loss, Outcome};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

pub use loss_rate::{LossRate, Losses};

/// Most targets kept apart.
const MAX_TARGETS: usize = 1_024;
/// Most open checks kept: as many as a table of 131,072 places takes.
const MAX_OPEN: usize = 114_688;
/// Most offenders of one cause, and most reasons, kept apart.
const MAX_NAMES: usize = 32;
/// Causes of a target in a snapshot.
const TOP_CAUSES: usize = 5;

/// Everything that happened so far, per target.
#[derive(Debug)]
pub struct Summary {
    lost_after: DurNs,
    baselines: Baselines,
    targets: BTreeMap<InterfaceId, Target>,
    names: Names,
    counters: CounterTable,
    /// Requests that were due and did not come.
    never_arrived: u64,
    /// The latest instant that any journey tells of.
    now: MonoNs,
}

/// The state of every target at one instant, for a live view.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The latest instant that any journey tells of.
    pub at: MonoNs,
    /// In the order of their interfaces.
    pub targets: Vec<TargetSnapshot>,
}

/// The state of one target.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetSnapshot {
    /// Its interface.
    pub target: InterfaceId,
    /// Checks, the open ones counted once.
    pub checks: u64,
    /// Median time of the answered checks.
    pub p50: DurNs,
    /// 99th percentile of the answered checks.
    pub p99: DurNs,
    /// Longest time of an answered check.
    pub max: DurNs,
    /// Slow checks, the lost not counted.
    pub slow: u64,
    /// Lost checks.
    pub lost: u64,
    /// Open checks.
    pub open: u64,
    /// Age of the oldest open check.
    pub oldest_open: Option<DurNs>,
    /// The causes that took the most time, largest first.
    pub causes: Vec<EpisodeCause>,
    /// Time of slow and lost checks for which no cause is proven.
    pub unexplained: DurNs,
}

/// A whole run in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Start of the first check.
    pub started_at: MonoNs,
    /// The latest instant that any journey tells of.
    pub ended_at: MonoNs,
    /// Targets.
    pub targets: u64,
    /// Checks.
    pub checks: u64,
    /// Slow checks, the lost not counted.
    pub slow: u64,
    /// Lost checks.
    pub lost: u64,
    /// Checks still open.
    pub open: u64,
    /// Checks that could not be told apart.
    pub ambiguous: u64,
    /// Checks whose stages contradict each other, or that were evicted.
    pub broken: u64,
    /// Slow or lost checks without a verdict.
    pub unresolved: u64,
    /// Lost checks by span and by place.
    pub losses: Losses,
    /// Requests of periodic signatures that were due and did not come; they are no checks of this host.
    pub never_arrived: u64,
}

impl Summary {
    /// A dropped check counts with the time that its client waits in vain: the run's limit.
    #[must_use]
    pub fn new(run: &RunFact) -> Self {
        Self {
            lost_after: run.lost_after,
            baselines: Baselines::default(),
            targets: BTreeMap::new(),
            names: Names { reasons: Latest::new(), offenders: Latest::new() },
            counters: CounterTable::default(),
            never_arrived: 0,
            now: MonoNs::default(),
        }
    }

    /// Takes in a judged check: one that has ended, or a report of an open one.
    pub fn push(&mut self, judged: &Judged) {
        let journey = &judged.journey;
        self.now = self.now.max(journey.known_until);
        if self.targets.len() >= MAX_TARGETS && !self.targets.contains_key(&journey.target) {
            return;
        }
        let baseline = self.baselines.of(journey.target, journey.signature);
        let part = judged.slow.then(|| {
            let excess = baseline.excess(journey.elapsed(), &times(&judged.ledger));
            Part::new(judged, excess, self.lost_after, &mut self.names)
        });
        if judged.verdict == Verdict::Healthy && journey.outcome == Outcome::Replied && !judged.brief {
            baseline.push(journey.elapsed(), times(&judged.ledger));
        }
        self.targets.entry(journey.target).or_insert_with(|| Target::new(journey.started_at())).push(judged, part);
    }

    /// A check is still open at `at`, and nothing more is told of it.
    pub fn left_open(&mut self, id: JourneyId, target: InterfaceId, started_at: MonoNs, at: MonoNs) {
        self.now = self.now.max(at);
        if self.targets.len() >= MAX_TARGETS && !self.targets.contains_key(&target) {
            return;
        }
        self.targets.entry(target).or_insert_with(|| Target::new(started_at)).left_open(id, started_at, at);
    }

    /// Requests did not come that were due.
    pub fn miss(&mut self, absence: &Absence) {
        self.never_arrived = self.never_arrived.saturating_add(absence.requests);
    }

    /// The targets seen, in order.
    pub fn targets(&self) -> impl Iterator<Item = InterfaceId> {
        self.targets.keys().copied()
    }

    /// What happened at a target over the run; `None` if it had no check.
    #[must_use]
    pub fn episode(&self, target: InterfaceId) -> Option<Episode> {
        let state = self.targets.get(&target)?;
        let total = state.total();
        Some(Episode {
            target,
            started_at: state.started_at,
            ended_at: state.ended_at,
            checks: state.counts.checks + state.open_count(),
            slow: total.slow,
            lost: state.counts.lost,
            open: state.open_count(),
            unresolved: total.unresolved,
            baseline_p50: (!state.healthy.is_empty()).then(|| quantile(&state.healthy, 0.5)),
            causes: total.ranked().into_iter().map(|cause| self.with_counted(cause)).collect(),
            stalls: self.stalls(target, state),
            unexplained: total.unexplained(),
            service: total.service(),
            verdict: total.verdict(),
            losses: state.losses,
        })
    }

    /// The stalls of a target, each with the VMs of others that it held up too.
    fn stalls(&self, target: InterfaceId, state: &Target) -> Vec<Stall> {
        let mut stalls = state.stalls.told();
        let others = self.targets.iter().filter(|(other, _)| **other != target);
        others.for_each(|(_, other)| stalls.iter_mut().for_each(|stall| other.stalls.add_vms(stall)));
        stalls
    }

    /// What a thread counted over a while.
    pub(crate) fn count(&mut self, window: &ThreadCounters) {
        self.counters.push(window);
    }

    fn with_counted(&self, cause: EpisodeCause) -> EpisodeCause {
        let thread = cause.offender.as_ref().map(|offender| offender.task).filter(|task| task.tid != 0);
        EpisodeCause { counted: thread.and_then(|task| self.counters.of(task)), ..cause }
    }

    /// The state of every target, for a live view.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let targets = self.targets.iter().map(|(target, state)| state.snapshot(*target, self.now)).collect();
        Snapshot { at: self.now, targets }
    }

    /// The whole run in numbers.
    #[must_use]
    pub fn run(&self) -> RunSummary {
        let started_at = self.targets.values().map(|target| target.started_at).min().unwrap_or_default();
        let start =
            RunSummary { started_at, ended_at: self.now, never_arrived: self.never_arrived, ..RunSummary::default() };
        self.targets.values().fold(start, |sum, target| {
            let total = target.total();
            RunSummary {
                targets: sum.targets + 1,
                checks: sum.checks + target.counts.checks + target.open_count(),
                slow: sum.slow + total.slow,
                lost: sum.lost + target.counts.lost,
                open: sum.open + target.open_count(),
                ambiguous: sum.ambiguous + target.counts.ambiguous,
                broken: sum.broken + target.counts.broken,
                unresolved: sum.unresolved + total.unresolved,
                losses: sum.losses.plus(&target.losses),
                ..sum
            }
        })
    }
}

/// What one slow or lost check adds. Every open check has one, so it is small.
#[derive(Debug, Clone)]
struct Part {
    lost: bool,
    unresolved: bool,
    /// The cause of its verdict, by its index, and `CAUSES.len()` without a verdict.
    owner: usize,
    delay: DurNs,
    unexplained: Taken,
    /// Why that time is unexplained.
    reason: Option<Arc<String>>,
    /// `None` where no cause is proven.
    charged: Option<Box<Charged>>,
    /// It ended with a drop.
    dropped: bool,
    service: Option<Box<Service>>,
}

/// What causes took of a check.
#[derive(Debug, Clone)]
struct Charged {
    /// Causes by their index; those with time only.
    times: Box<[(usize, Taken)]>,
    offenders: Box<[(Cause, Arc<Offender>, DurNs)]>,
    meanings: Box<[(Cause, &'static str, DurNs)]>,
}

/// What a cause took.
#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    time: DurNs,
    /// What that counts in shares.
    weight: DurNs,
}

impl Taken {
    fn plus(self, other: Self) -> Self {
        Self { time: self.time.plus(other.time), weight: self.weight.plus(other.weight) }
    }
}

impl Part {
    fn new(judged: &Judged, excess: Excess, lost_after: DurNs, names: &mut Names) -> Self {
        if judged.brief {
            return Self::brief(judged);
        }
        let dropped = matches!(judged.journey.outcome, Outcome::Lost(Loss::Dropped(_)));
        let excess = believed(judged, excess, dropped);
        // The client of a dropped check waits on, and all of that is the drop's.
        let waited = dropped.then(|| DurNs(excess.total.0.max(lost_after.0)));
        let owner = owner(&judged.verdict);
        let taken =
            |index: usize, time: DurNs| Taken { time, weight: waited.filter(|_| index == owner).unwrap_or(time) };
        let [causes @ .., unexplained] = &excess.times;
        let times = causes.iter().enumerate().map(|(index, time)| (index, taken(index, *time)));
        let times: Box<[_]> = times.filter(|(_, taken)| taken.weight > DurNs::ZERO).collect();
        let charged = (!times.is_empty()).then(|| {
            let offenders = offenders(judged, &excess, &mut names.offenders);
            Box::new(Charged { times, offenders, meanings: meanings(judged).into_boxed_slice() })
        });
        Self {
            lost: matches!(judged.journey.outcome, Outcome::Lost(_)),
            unresolved: matches!(judged.verdict, Verdict::Unresolved(_)),
            owner,
            delay: waited.unwrap_or(excess.total),
            unexplained: taken(CAUSES.len(), *unexplained),
            reason: reason(judged).map(|reason| names.reasons.shared(reason)),
            charged,
            dropped,
            service: judged.service.map(Box::new),
        }
    }
}

impl Part {
    /// Counted, and its time ascribed to nothing: those that were looked into speak for it.
    fn brief(judged: &Judged) -> Self {
        Self {
            lost: matches!(judged.journey.outcome, Outcome::Lost(_)),
            unresolved: true,
            owner: CAUSES.len(),
            delay: DurNs::ZERO,
            unexplained: Taken::default(),
            reason: None,
            charged: None,
            dropped: false,
            service: None,
        }
    }
}

/// The latest values, so that open checks with an equal one share it.
#[derive(Debug)]
struct Latest<T>(VecDeque<Arc<T>>);

impl<T: PartialEq> Latest<T> {
    const fn new() -> Self {
        Self(VecDeque::new())
    }

    fn shared(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.0.iter().find(|known| ***known == value) {
            return Arc::clone(known);
        }
        if self.0.len() >= MAX_NAMES {
            self.0.pop_front();
        }
        let value = Arc::new(value);
        self.0.push_back(Arc::clone(&value));
        value
    }
}

/// What many open checks say in the same words.
#[derive(Debug)]
struct Names {
    reasons: Latest<String>,
    offenders: Latest<Offender>,
}

const fn owner(verdict: &Verdict) -> usize {
    match verdict {
        Verdict::Cause { cause, .. } | Verdict::Split { cause, .. } => *cause as usize,
        Verdict::Unresolved(_) | Verdict::Healthy => CAUSES.len(),
    }
}

/// A dropped check is the drop's; where records were lost, nothing is believed.
fn believed(judged: &Judged, excess: Excess, dropped: bool) -> Excess {
    match &judged.verdict {
        verdict if dropped => all_of(excess.total, owner(verdict)),
        Verdict::Unresolved(Unresolved::EventsLost { .. }) => all_of(excess.total, CAUSES.len()),
        _ => excess,
    }
}

fn all_of(total: DurNs, index: usize) -> Excess {
    let mut times: Times = [DurNs::ZERO; CAUSES.len() + 1];
    if let Some(time) = times.get_mut(index) {
        *time = total;
    }
    Excess { total, times }
}

fn reason(judged: &Judged) -> Option<String> {
    match &judged.verdict {
        Verdict::Unresolved(Unresolved::Unexplained { .. }) | Verdict::Healthy => None,
        Verdict::Unresolved(reason) => Some(reason.to_string()),
        Verdict::Cause { .. } | Verdict::Split { .. } => None,
    }
    .or_else(|| {
        let first = judged.ledger.unexplained_reasons.first()?;
        Some(first.split_once(": ").map_or(first.as_str(), |(_, reason)| reason).to_owned())
    })
}

/// Who is behind each cause, with the time above the normal, in the ledger's proportions.
fn offenders(judged: &Judged, excess: &Excess, latest: &mut Latest<Offender>) -> Box<[(Cause, Arc<Offender>, DurNs)]> {
    let mut sums: Vec<(Cause, Offender, DurNs)> = Vec::new();
    for entry in &judged.ledger.entries {
        let Some(offender) = &entry.offender else { continue };
        match sums.iter_mut().find(|(same, known, _)| *same == entry.cause && known.is(offender)) {
            Some((_, known, sum)) => {
                known.learn(offender);
                *sum = sum.plus(entry.time());
            }
            None => sums.push((entry.cause, offender.clone(), entry.time())),
        }
    }
    let taken = times(&judged.ledger);
    let above = |cause: Cause, time: DurNs| {
        let (excess, taken) = (excess.times.get(cause as usize)?, taken.get(cause as usize)?);
        (*excess > DurNs::ZERO).then(|| time.in_proportion(*excess, *taken))
    };
    let sums = sums.into_iter().filter_map(|(cause, who, time)| Some((cause, latest.shared(who), above(cause, time)?)));
    sums.collect()
}

/// What is true of each cause's time in this check.
fn meanings(judged: &Judged) -> Vec<(Cause, &'static str, DurNs)> {
    let mut sums: Vec<(Cause, &'static str, DurNs)> = Vec::new();
    for entry in &judged.ledger.entries {
        match sums.iter_mut().find(|(cause, said, _)| (*cause, *said) == (entry.cause, entry.meaning)) {
            Some((.., sum)) => *sum = sum.plus(entry.time()),
            None => sums.push((entry.cause, entry.meaning, entry.time())),
        }
    }
    sums
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    /// Ended ones.
    checks: u64,
    lost: u64,
    ambiguous: u64,
    broken: u64,
}

#[derive(Debug)]
struct Open {
    started_at: MonoNs,
    part: Option<Part>,
}

#[derive(Debug)]
struct Target {
    started_at: MonoNs,
    ended_at: MonoNs,
    counts: Counts,
    answered: Histogram<u64>,
    healthy: Histogram<u64>,
    ended: Total,
    losses: Losses,
    stalls: Stalls,
    open: HashMap<JourneyId, Open>,
}

impl Target {
    fn new(started_at: MonoNs) -> Self {
        Self {
            started_at,
            ended_at: started_at,
            counts: Counts::default(),
            answered: histogram(),
            healthy: histogram(),
            ended: Total::default(),
            losses: Losses::default(),
            stalls: Stalls::default(),
            open: HashMap::new(),
        }
    }

    fn push(&mut self, judged: &Judged, part: Option<Part>) {
        let journey = &judged.journey;
        self.started_at = self.started_at.min(journey.started_at());
        self.ended_at = self.ended_at.max(journey.known_until);
        self.stalls.push(judged);
        if journey.outcome == Outcome::Open {
            if self.open.len() < MAX_OPEN || self.open.contains_key(&journey.id) {
                self.open.insert(journey.id, Open { started_at: journey.started_at(), part });
            }
            return;
        }
        self.open.remove(&journey.id);
        self.count(judged);
        part.iter().for_each(|part| self.ended.add(part));
    }

    fn left_open(&mut self, id: JourneyId, started_at: MonoNs, at: MonoNs) {
        self.started_at = self.started_at.min(started_at);
        self.ended_at = self.ended_at.max(at);
        if self.open.len() < MAX_OPEN {
            self.open.entry(id).or_insert(Open { started_at, part: None });
        }
    }

    fn count(&mut self, judged: &Judged) {
        self.counts.checks += 1;
        self.losses.push(judged);
        let elapsed = judged.journey.elapsed().0.max(1);
        match judged.journey.outcome {
            Outcome::Replied => record(&mut self.answered, elapsed),
            Outcome::Lost(_) => self.counts.lost += 1,
            Outcome::Ambiguous => self.counts.ambiguous += 1,
            Outcome::Broken(_) => self.counts.broken += 1,
            Outcome::Open => {}
        }
        if judged.verdict == Verdict::Healthy {
            record(&mut self.healthy, elapsed);
        }
    }

    fn open_count(&self) -> u64 {
        self.open.len() as u64
    }

    /// The ended checks and the open ones.
    fn total(&self) -> Total {
        let mut open: Vec<(&JourneyId, &Part)> =
            self.open.iter().filter_map(|(id, open)| Some((id, open.part.as_ref()?))).collect();
        open.sort_by_key(|(id, _)| **id);
        let mut total = self.ended.clone();
        open.into_iter().for_each(|(_, part)| total.add(part));
        total
    }

    fn snapshot(&self, target: InterfaceId, now: MonoNs) -> TargetSnapshot {
        let total = self.total();
        let mut causes = total.ranked();
        causes.truncate(TOP_CAUSES);
        TargetSnapshot {
            target,
            checks: self.counts.checks + self.open_count(),
            p50: quantile(&self.answered, 0.5),
            p99: quantile(&self.answered, 0.99),
            max: DurNs(if self.answered.is_empty() { 0 } else { self.answered.max() }),
            slow: total.slow,
            lost: self.counts.lost,
            open: self.open_count(),
            oldest_open: self.open.values().map(|open| now.since(open.started_at)).max(),
            causes,
            unexplained: total.unexplained(),
        }
    }
}

/// Two significant digits are as much as a live view shows.
fn histogram() -> Histogram<u64> {
    Histogram::new(2).expect("two significant digits are within the crate's limits")
}

/// The histogram grows to the value; saturating instead would clip it to what fitted before.
fn record(histogram: &mut Histogram<u64>, elapsed: u64) {
    histogram.record(elapsed).expect("a histogram that grows takes any value");
}

fn quantile(histogram: &Histogram<u64>, quantile: f64) -> DurNs {
    DurNs(if histogram.is_empty() { 0 } else { histogram.value_at_quantile(quantile) })
}

/// Sums over slow and lost checks.
#[derive(Debug, Default, Clone)]
struct Total {
    slow: u64,
    unresolved: u64,
    delay: DurNs,
    causes: BTreeMap<usize, CauseTotal>,
    reasons: Vec<(Arc<String>, DurNs)>,
    /// Of the delay, what dropped checks did not wait.
    kept: DurNs,
    /// What checks show of the app, and their delay.
    services: Vec<(Service, DurNs)>,
}

#[derive(Debug, Default, Clone)]
struct CauseTotal {
    taken: Taken,
    checks: u64,
    lost: u64,
    offenders: Vec<(Arc<Offender>, DurNs)>,
    meanings: Vec<(&'static str, DurNs)>,
}

impl Total {
    fn add(&mut self, part: &Part) {
        self.slow += u64::from(!part.lost);
        self.unresolved += u64::from(part.unresolved);
        self.delay = self.delay.plus(part.delay);
        if part.unexplained.weight > DurNs::ZERO {
            self.charge(CAUSES.len(), part.unexplained, part);
        }
        if let Some(charged) = &part.charged {
            charged.times.iter().for_each(|(index, taken)| self.charge(*index, *taken, part));
            for (cause, offender, time) in &charged.offenders {
                blame(&mut self.causes.entry(*cause as usize).or_default().offenders, offender, *time);
            }
            for (cause, meaning, time) in &charged.meanings {
                tally(&mut self.causes.entry(*cause as usize).or_default().meanings, meaning, *time);
            }
        }
        self.serve(part);
        part.reason.iter().for_each(|reason| tally(&mut self.reasons, reason, part.unexplained.weight));
    }

    fn serve(&mut self, part: &Part) {
        if !part.dropped {
            self.kept = self.kept.plus(part.delay);
        }
        let Some(service) = part.service.as_deref() else { return };
        match self.services.iter_mut().find(|(known, _)| known.condition == service.condition) {
            Some((known, delay)) => (*known, *delay) = (known.plus(service), delay.plus(part.delay)),
            None => self.services.push((*service, part.delay)),
        }
    }

    /// What is true of the app by at least half of the delay of the checks that were not dropped.
    fn service(&self) -> Option<Service> {
        let (service, delay) = self.services.iter().max_by_key(|(_, delay)| *delay)?;
        let proven = !matches!(self.verdict(), Verdict::Unresolved(_)) && *delay >= self.kept.part(2);
        proven.then(|| service.average())
    }

    fn charge(&mut self, index: usize, taken: Taken, part: &Part) {
        let cause = self.causes.entry(index).or_default();
        cause.taken = cause.taken.plus(taken);
        cause.checks += 1;
        cause.lost += u64::from(part.lost && index == part.owner);
    }

    fn unexplained(&self) -> DurNs {
        self.causes.get(&CAUSES.len()).map_or(DurNs::ZERO, |cause| cause.taken.time)
    }

    fn ranked(&self) -> Vec<EpisodeCause> {
        let rows = self.causes.iter().filter_map(|(index, total)| Some((CAUSES.get(*index)?.cause, total)));
        let mut rows: Vec<(Cause, &CauseTotal)> = rows.filter(|(_, total)| total.checks > 0).collect();
        rows.sort_by_key(|(_, total)| std::cmp::Reverse(total.taken.weight));
        let ranked = rows.into_iter().map(|(cause, total)| {
            let most = total.offenders.iter().max_by_key(|(_, time)| *time);
            EpisodeCause {
                cause,
                time: total.taken.time,
                share: share(total.taken.weight, self.delay),
                checks: total.checks,
                lost: total.lost,
                offender: most.map(|(offender, _)| Offender::clone(offender)),
                offender_time: most.map_or(DurNs::ZERO, |(_, time)| *time),
                counted: None,
                meaning: largest(&total.meanings).copied(),
            }
        });
        ranked.collect()
    }

    fn verdict(&self) -> Verdict {
        if self.delay == DurNs::ZERO && self.unresolved > 0 {
            let reason = "checks came with more others than can be looked into";
            return Verdict::Unresolved(Unresolved::NoTrace(reason.to_owned()));
        }
        if self.delay == DurNs::ZERO {
            return Verdict::Healthy;
        }
        let mut times: Times = [DurNs::ZERO; CAUSES.len() + 1];
        for (time, index) in times.iter_mut().zip(0..) {
            *time = self.causes.get(&index).map_or(DurNs::ZERO, |cause| cause.taken.weight);
        }
        let reason = || largest(&self.reasons).map_or("no reason was given", |reason| reason.as_str()).to_owned();
        conclude(&Excess { total: self.delay, times }, reason)
    }
}

/// Adds to what an offender took, whose cgroup may have become known meanwhile.
fn blame(sums: &mut Vec<(Arc<Offender>, DurNs)>, offender: &Arc<Offender>, time: DurNs) {
    match sums.iter_mut().find(|(known, _)| known.is(offender)) {
        Some((known, sum)) => {
            *sum = sum.plus(time);
            if known.cgroup.is_empty() {
                *known = Arc::clone(offender);
            }
        }
        None => tally(sums, offender, time),
    }
}

/// Adds to a bounded list; beyond the bound, the smallest makes room.
fn tally<T: Clone + PartialEq>(sums: &mut Vec<(T, DurNs)>, key: &T, time: DurNs) {
    if let Some((_, sum)) = sums.iter_mut().find(|(known, _)| known == key) {
        *sum = sum.plus(time);
        return;
    }
    if sums.len() >= MAX_NAMES {
        let smallest = sums.iter().enumerate().min_by_key(|(_, (_, sum))| *sum).map(|(index, _)| index);
        smallest.map(|index| sums.swap_remove(index));
    }
    sums.push((key.clone(), time));
}

fn largest<T>(sums: &[(T, DurNs)]) -> Option<&T> {
    sums.iter().max_by_key(|(_, sum)| *sum).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::{Summary, blame};
    use crate::attribution::story::{
        Actor, ETH, HOG, IDLE, MS, NANOSLEEP, RECEIVE, SECOND, SERVER, Story, WORKER, run,
    };
    use crate::attribution::{Attributor, Cause, Offender, Verdict};
    use crate::clock::{DurNs, MonoNs};
    use crate::counters::{Counts, Hardware, ThreadCounters, Unavailable};
    use crate::event::{Fact, TaskId, Threshold};
    use crate::journey::{JourneyId, Loss, Outcome, Stage};
    use std::sync::Arc;

    struct Run {
        attributor: Attributor,
        summary: Summary,
        next: u64,
    }

    impl Run {
        fn new() -> Self {
            let run = run(Threshold::Fixed(DurNs::from_millis(20)));
            Self { attributor: Attributor::new(&run), summary: Summary::new(&run), next: 1 }
        }

        fn see(&mut self, mut story: Story) -> &mut Self {
            story.journey.id = JourneyId(self.next);
            self.next += 1;
            self.again(story)
        }

        fn again(&mut self, mut story: Story) -> &mut Self {
            let judged = story.judge_with(&mut self.attributor);
            self.summary.push(&judged);
            self
        }
    }

    fn computes(us: u64) -> Story {
        let mut story = Story::served(us);
        story.sleeps(us + 10, SERVER, 1, RECEIVE);
        story
    }

    fn waits_for_cpu() -> Story {
        let mut story = Story::queued(90 * MS);
        story.sleeps(0, SERVER, 1, RECEIVE).packet_wakes(106, SERVER).runs_after(89 * MS, SERVER, HOG);
        story
    }

    fn open(us: u64) -> Story {
        let mut story = Story::served(10 * SECOND);
        story.open_after(Stage::SockRead, us);
        story
    }

    #[test]
    fn causes_are_ranked_over_all_slow_checks() {
        let mut run = Run::new();
        (0..30).for_each(|_| {
            run.see(computes(MS));
        });
        run.see(computes(200 * MS)).see(waits_for_cpu());
        let episode = run.summary.episode(ETH).unwrap();
        assert_eq!((episode.checks, episode.slow, episode.lost, episode.open), (32, 2, 0, 0));
        let ranked: Vec<Cause> = episode.causes.iter().take(2).map(|cause| cause.cause).collect();
        assert_eq!(ranked, [Cause::AppOnCpu, Cause::AppRunqueue]);
        assert_eq!(episode.causes[1].offender.as_ref().map(|offender| offender.comm.as_str()), Some("hog"));
        let Verdict::Cause { cause: Cause::AppOnCpu, share } = episode.verdict else {
            panic!("{:?}", episode.verdict);
        };
        assert!((0.6..0.8).contains(&share), "{share}");
    }

    #[test]
    fn of_two_offenders_the_one_that_took_most_is_told_with_its_own_time() {
        let mut run = Run::new();
        run.see(waits_for_cpu());
        let alone = run.summary.episode(ETH).unwrap().causes[0].clone();
        assert_eq!((alone.cause, alone.offender_time), (Cause::AppRunqueue, alone.time), "there is no other");
        let mut other = Story::queued(60 * MS);
        other.sleeps(0, SERVER, 1, RECEIVE).packet_wakes(106, SERVER).runs_after(59 * MS, SERVER, WORKER);
        run.see(other);
        let both = run.summary.episode(ETH).unwrap().causes[0].clone();
        assert_eq!(both.offender.unwrap().comm, "hog");
        assert_eq!(both.offender_time, alone.time);
        assert!(both.time > alone.time.plus(DurNs::from_millis(50)), "{} and {}", both.time, alone.time);
    }

    #[test]
    fn a_thread_of_whylag_is_known_as_its_own() {
        let Actor(tgid, ..) = HOG;
        for (own, is_own) in [(tgid, true), (tgid + 1, false)] {
            let mut run = Run::new();
            let mut story = waits_for_cpu();
            story.fact(0, Fact::Own { tgid: own });
            run.see(story);
            assert_eq!(run.summary.episode(ETH).unwrap().causes[0].offender.as_ref().unwrap().own, is_own);
        }
    }

    #[test]
    fn a_thread_whose_cgroup_becomes_known_is_one_offender() {
        let unknown = Offender { comm: "hog".to_owned(), task: TaskId { tgid: 5, tid: 6 }, ..Offender::default() };
        let known = Offender { cgroup: "/pod".to_owned(), ..unknown.clone() };
        let mut sums = Vec::new();
        for (offender, ms) in [(&unknown, 5), (&known, 7), (&unknown, 9)] {
            blame(&mut sums, &Arc::new(offender.clone()), DurNs::from_millis(ms));
        }
        assert_eq!(sums, [(Arc::new(known.clone()), DurNs::from_millis(21))]);
        let elsewhere = Offender { cgroup: "/other".to_owned(), ..known.clone() };
        let group = Offender { cgroup: "/pod".to_owned(), ..Offender::default() };
        assert!(!known.is(&elsewhere) && !known.is(&group) && !group.is(&Offender::default()));
    }

    #[test]
    fn what_an_offender_counted_stands_beside_it_and_changes_nothing() {
        let mut run = Run::new();
        run.see(computes(200 * MS)).see(waits_for_cpu());
        let plain = run.summary.episode(ETH).unwrap();
        let hardware = Hardware::Unavailable(Unavailable::NoCounter);
        let (task_clock, context_switches) = (DurNs::from_millis(980), 12);
        let counts = Counts { task_clock, context_switches, migrations: 3, page_faults: 0, hardware };
        let Actor(tgid, tid, _) = HOG;
        let second = MonoNs(0).after(DurNs::from_secs(1));
        for task in [TaskId { tgid, tid }, TaskId { tgid: 1, tid: 1 }, TaskId::default()] {
            run.summary.count(&ThreadCounters { task, from: MonoNs(0), to: second, slow: true, counts });
        }
        let mut episode = run.summary.episode(ETH).unwrap();
        let counted = episode.causes[1].counted.take().map(|counted| counted.said());
        assert_eq!(counted.as_deref(), Some("98 % of a CPU, 12 switches/s, 3 migrations"));
        assert_eq!(episode, plain, "of the other offender nothing was counted, and no verdict rests on it");
    }

    #[test]
    fn an_open_check_counts_once_and_is_replaced_by_its_end() {
        let mut run = Run::new();
        run.see(open(SECOND));
        run.next = 1;
        run.see(open(2 * SECOND));
        let snapshot = run.summary.snapshot();
        let target = &snapshot.targets[0];
        assert_eq!((target.checks, target.slow, target.open), (1, 1, 1));
        assert_eq!(target.oldest_open, Some(DurNs(2_000_000_000 - 100_000)));
        run.next = 1;
        run.see(computes(3 * SECOND));
        let episode = run.summary.episode(ETH).unwrap();
        assert_eq!((episode.checks, episode.slow, episode.open), (1, 1, 0));
        assert!(episode.causes[0].time < DurNs::from_secs(3), "{episode:?}");
    }

    #[test]
    fn a_dropped_check_weighs_what_its_client_waits() {
        let mut run = Run::new();
        let mut story = Story::new();
        story.stamp(100, Stage::PnicRx, None).dropped(110, "CPU_BACKLOG", "enqueue_to_backlog");
        run.see(story).see(computes(100 * MS));
        let episode = run.summary.episode(ETH).unwrap();
        assert_eq!((episode.slow, episode.lost), (1, 1));
        let first = &episode.causes[0];
        assert_eq!((first.cause, first.checks, first.lost), (Cause::NicDrop, 1, 1));
        assert_eq!(first.time, DurNs(10_000), "the time of its ledger: no more was seen of it");
        assert!((0.9..1.0).contains(&first.share), "{first:?}");
        assert!(episode.unexplained < DurNs(10_000), "no part of the drop: {episode:?}");
    }

    #[test]
    fn a_drop_that_proves_nothing_is_unexplained_with_the_time_that_was_seen() {
        let mut run = Run::new();
        for _ in 0..3 {
            let mut story = Story::new();
            story.stamp(100, Stage::PnicRx, None).dropped(143, "NO_SOCKET", "udp_rcv");
            run.see(story);
        }
        let episode = run.summary.episode(ETH).unwrap();
        assert_eq!((episode.unexplained, episode.lost, episode.unresolved), (DurNs(3 * 43_000), 3, 3));
        let Verdict::Unresolved(reason) = episode.verdict else { panic!("{:?}", episode.verdict) };
        assert!(reason.to_string().contains("NO_SOCKET"), "{reason}");
    }

    #[test]
    fn what_is_usual_is_unknown_without_a_healthy_check() {
        let mut run = Run::new();
        run.see(computes(100 * MS));
        assert_eq!(run.summary.episode(ETH).unwrap().baseline_p50, None);
        run.see(computes(MS));
        assert!(run.summary.episode(ETH).unwrap().baseline_p50 > Some(DurNs::ZERO));
    }

    #[test]
    fn a_silent_server_and_one_that_sleeps_are_said_to_be_so() {
        let silent = || {
            let mut story = Story::served(2 * SECOND);
            story.sleeps(MS, SERVER, 1, RECEIVE).open_after(Stage::SockRead, 2 * SECOND);
            story.ends(2 * SECOND, Outcome::Lost(Loss::TimedOut));
            story
        };
        let sleepy = || {
            let mut story = Story::served(100 * MS);
            story.sleeps(MS, SERVER, 1, NANOSLEEP).wakes(99 * MS, IDLE, SERVER).runs(99 * MS + 5, SERVER);
            story
        };
        for (story, words) in [(silent(), "without an answer"), (sleepy(), "sleeps by choice")] {
            let mut run = Run::new();
            run.see(story);
            let first = &run.summary.episode(ETH).unwrap().causes[0];
            assert_eq!(first.cause, Cause::AppSelfWait);
            assert!(first.meaning.unwrap().contains(words), "{first:?}");
        }
    }

    #[test]
    fn checks_without_proof_leave_the_episode_unresolved() {
        let mut run = Run::new();
        let mut story = Story::new();
        story.stamp(100, Stage::PnicRx, None).ends(2 * SECOND, Outcome::Lost(Loss::TimedOut));
        run.see(story).see(computes(100 * MS));
        assert!(matches!(run.summary.episode(ETH).unwrap().verdict, Verdict::Unresolved(_)));
        let whole = run.summary.run();
        assert_eq!((whole.checks, whole.lost, whole.slow, whole.unresolved), (2, 1, 1, 1));
    }

    #[test]
    fn percentiles_are_those_of_answered_checks() {
        let mut run = Run::new();
        (1..=100).for_each(|ms| {
            run.see(computes(ms * MS));
        });
        let snapshot = run.summary.snapshot();
        let target = &snapshot.targets[0];
        let near = |found: DurNs, ms: u64| found.0.abs_diff(ms * 1_000_000) < ms * 20_000;
        assert!(near(target.p50, 50) && near(target.p99, 99) && near(target.max, 100), "{target:?}");
        assert_eq!(target.slow, 80);
    }
}
