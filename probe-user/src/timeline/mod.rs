//! The timeline of a recording: what checks, threads, queues, disks and softirqs did, each on a
//! track of its own, for Perfetto.
//!
//! Outputs of a pipeline that [tells activities](crate::pipeline::Collector::telling_activities)
//! come in, a trace goes out. Pure; the same recording gives the same bytes.

mod lane;
mod perfetto;
#[cfg(test)]
mod tests;

use crate::attribution::{Activity, Doing, Entry, Judged, Offender, Verdict};
use crate::clock::{ClockAnchor, DurNs, MonoNs};
use crate::event::{Fact, InterfaceId, TaskId};
use crate::flame::Empty;
use crate::host::CounterFact;
use crate::journey::{Journey, JourneyId, Outcome, QdiscStay};
use crate::pipeline::Output;
use crate::sink::{Names, printable};
use lane::Lanes;
use perfetto::{Trace, Track};
use probe_wire::QdiscBody;
use std::collections::{BTreeMap, HashMap};

/// Most slices of a trace; viewers become slow beyond it.
const MAX_SLICES: usize = 2_000_000;
/// Shorter stretches of threads are left out: a switch takes about as long.
const SHORTEST: DurNs = DurNs(1_000);

/// A slice on a track, perhaps with slices in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slice {
    from: MonoNs,
    to: MonoNs,
    name: String,
    /// Names and values.
    facts: Vec<(&'static str, String)>,
    inner: Vec<Slice>,
}

impl Slice {
    fn new(from: MonoNs, to: MonoNs, name: impl Into<String>) -> Self {
        Self { from, to: to.max(from), name: name.into(), facts: Vec::new(), inner: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        let value = value.into();
        if !value.is_empty() {
            self.facts.push((name, printable(&value).into_owned()));
        }
        self
    }

    fn count(&self) -> usize {
        1 + self.inner.iter().map(Self::count).sum::<usize>()
    }
}

/// Lays a stream of outputs out in time.
#[derive(Debug, Default)]
pub struct Timeline {
    names: Names,
    clock: Option<ClockAnchor>,
    lanes: Lanes,
    /// The last word on each check that is still open.
    open: HashMap<JourneyId, (String, Slice)>,
    /// Levels of queues, by name, in the order of time.
    levels: BTreeMap<String, Vec<(MonoNs, u64)>>,
    values: usize,
    slices: usize,
    left_out: u64,
}

impl Timeline {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one output in.
    pub fn push(&mut self, output: &Output) {
        match output {
            Output::Fact(fact) => self.learn(fact),
            Output::Journey(judged) => self.check(judged),
            Output::Activity(activity) => self.activity(activity),
            Output::Softirq { cpu, from, to, vector } => {
                let slice = Slice::new(*from, *to, crate::attribution::softirq_name(*vector));
                self.add(Group::Softirqs, &format!("softirqs of CPU {cpu}"), slice);
            }
            _ => {}
        }
    }

    fn learn(&mut self, fact: &Fact) {
        if let Fact::Clock(anchor) = fact {
            self.clock = Some(*anchor);
        }
        if let Fact::Levels { at, levels, .. } = fact {
            levels.iter().for_each(|level| self.level(*at, level));
        }
        if Names::learns_from(fact) {
            self.names.learn(fact);
        }
    }

    fn level(&mut self, at: MonoNs, level: &CounterFact) {
        if self.values >= MAX_SLICES {
            self.left_out += 1;
            return;
        }
        self.values += 1;
        self.levels.entry(level.name.clone()).or_default().push((at, level.value));
    }

    fn add(&mut self, group: Group, track: &str, slice: Slice) {
        let more = slice.count();
        if self.slices + more > MAX_SLICES {
            self.left_out += more as u64;
            return;
        }
        self.slices += more;
        self.lanes.add(group, track, slice);
    }

    fn check(&mut self, judged: &Judged) {
        let journey = &judged.journey;
        let track = format!("{} {}", self.names.target(journey.target), self.names.signature(journey.signature));
        for stay in &journey.qdisc {
            if let Some((track, slice)) = self.stay(journey, stay) {
                self.add(Group::Queues, &track, slice);
            }
        }
        let slice = check(judged);
        if journey.outcome == Outcome::Open {
            self.open.insert(journey.id, (track, slice));
        } else {
            self.open.remove(&journey.id);
            self.add(Group::Checks, &track, slice);
        }
    }

    fn stay(&self, journey: &Journey, stay: &QdiscStay) -> Option<(String, Slice)> {
        let QdiscBody { netns, ifindex, queue_len, backlog_bytes, kind, .. } = stay.entered;
        let device = self.names.target(InterfaceId { netns, ifindex });
        let kind = String::from_utf8_lossy(&kind);
        let track = format!("{device} {}", kind.trim_end_matches('\0'));
        let slice = Slice::new(stay.entered_at, stay.left_at?, format!("check {}", journey.id.0))
            .with("packets before it", queue_len.to_string())
            .with("bytes before it", backlog_bytes.to_string());
        Some((track, slice))
    }

    fn activity(&mut self, activity: &Activity) {
        if activity.time() < SHORTEST {
            return;
        }
        let Activity { task, comm, from, to, doing } = activity;
        let slice = doing_slice(*from, *to, doing);
        if let Doing::Asleep { device, .. } = doing
            && !device.is_empty()
        {
            self.add(Group::Disks, device, Slice::new(*from, *to, format!("{comm} waits")));
        }
        self.add(Group::Thread { task: *task }, comm, slice);
    }

    /// The whole as a Perfetto trace, and how many slices had no room.
    ///
    /// # Errors
    /// When there is no check and no thread.
    pub fn perfetto(mut self) -> Result<(Vec<u8>, u64), Empty> {
        if self.slices == 0 && self.open.is_empty() {
            return Err(Empty::NoCheck);
        }
        let mut open: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        open.sort_by_key(|(id, _)| *id);
        for (_, (track, slice)) in open {
            self.add(Group::Checks, &track, slice);
        }
        let mut trace = Trace::new(self.clock);
        for (group, track, number, slices) in self.lanes.into_tracks() {
            trace.track(&Track { group, name: &track, number }, &slices);
        }
        for (name, values) in &self.levels {
            trace.counter(name, values);
        }
        Ok((trace.encode(), self.left_out))
    }
}

/// What a track belongs to; groups stand in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Group {
    Checks,
    Queues,
    Disks,
    Softirqs,
    Thread { task: TaskId },
}

impl Group {
    /// What the tracks are called together; threads stand under their process.
    const fn name(self) -> &'static str {
        match self {
            Self::Checks => "health checks",
            Self::Queues => "queues",
            Self::Disks => "disks",
            Self::Softirqs => "softirqs",
            Self::Thread { .. } => "threads",
        }
    }
}

/// A check with the parts of its ledger in it.
fn check(judged: &Judged) -> Slice {
    let journey = &judged.journey;
    let (from, to) = (journey.started_at(), journey.known_until);
    let word = match (&journey.outcome, judged.slow) {
        (Outcome::Replied, false) => "check",
        (Outcome::Replied, true) => "slow check",
        (Outcome::Lost(_), _) => "lost check",
        (Outcome::Open, _) => "open check",
        (Outcome::Ambiguous, _) => "ambiguous check",
        (Outcome::Broken(_), _) => "broken check",
    };
    let mut slice = Slice::new(from, to, format!("{word} {}", journey.elapsed()))
        .with("id", journey.id.0.to_string())
        .with("verdict", verdict(&judged.verdict));
    for stamp in &journey.stamps {
        slice = slice.with(stamp.stage.name(), format!("+{}", stamp.at.since(from)));
    }
    slice.inner = judged.ledger.entries.iter().map(|entry| part(entry, from, to)).collect();
    slice
}

fn part(entry: &Entry, from: MonoNs, to: MonoNs) -> Slice {
    let (start, end) = (entry.from.clamp(from, to), entry.to.clamp(from, to));
    let offender = entry.offender.as_ref().map_or(String::new(), Offender::name);
    Slice::new(start, end, format!("{} in {}", entry.cause.row().name, entry.span.name()))
        .with("offender", offender)
        .with("evidence", entry.evidence.join("; "))
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Healthy => "healthy".to_owned(),
        Verdict::Cause { cause, share } => format!("{} {:.0} %", cause.row().name, share * 100.0),
        Verdict::Split { cause, share } => format!("split, most of it {} {:.0} %", cause.row().name, share * 100.0),
        Verdict::Unresolved(reason) => format!("unresolved: {reason}"),
    }
}

fn doing_slice(from: MonoNs, to: MonoNs, doing: &Doing) -> Slice {
    match doing {
        Doing::OnCpu { cpu, not_its_own } => {
            let others = if not_its_own.0 > 0 { not_its_own.to_string() } else { String::new() };
            Slice::new(from, to, format!("on CPU {cpu}")).with("of it not its own", others)
        }
        Doing::Runnable { instead } => {
            Slice::new(from, to, "waits for a CPU").with("which had", instead.clone().unwrap_or_default())
        }
        Doing::Asleep { frames, waker, device, .. } => {
            let place = frames.last().map_or_else(|| "asleep".to_owned(), |frame| format!("asleep in {frame}"));
            Slice::new(from, to, place)
                .with("kernel stack", frames.join(" > "))
                .with("ended by", waker.clone().unwrap_or_default())
                .with("device", device.clone())
        }
        Doing::Stopped => Slice::new(from, to, "stopped"),
        Doing::Unknown(reason) => Slice::new(from, to, "unknown").with("why", *reason),
    }
}
