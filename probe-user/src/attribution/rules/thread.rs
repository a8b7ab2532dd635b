//! `app.on_cpu`, `app.runqueue`, `app.quota_throttle` and `host.cpu_gap`: what the thread that
//! held a check did.
//!
//! A wait is handed to the rules for waits, which come back here for the waker's own timeline.

use super::receive::vector;
use super::starvation::{self, starved};
use super::{counted, wait};
use crate::attribution::cause::Cause;
use crate::attribution::evidence::{Evidence, described, text};
use crate::attribution::flow::Flow;
use crate::attribution::ledger::{Offender, Sampled};
use crate::attribution::piece::{Charge, Found, Piece, came_by};
use crate::attribution::run::Share;
use crate::attribution::softirq::{Taken, Tally};
use crate::attribution::spin::Spin;
use crate::attribution::storage::Reclaim;
use crate::attribution::symbol::StackRef;
use crate::attribution::thread::{Arrival, Interval, Named, Ready, Runnable, Slice, State, spread};
use crate::attribution::walk::is_in_doubt;
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use crate::journey::Span;
use probe_wire::NET_RX;
use std::collections::HashMap;
use std::sync::Arc;

/// Most waits followed from the check's own thread.
pub(super) const MAX_HOPS: usize = 8;
const NOTHING_KNOWN: &str = "no records of the thread that held it";

/// Intervals from which on those that are alike are charged alike.
const MANY: usize = 256;
/// Of so many alike waits for a CPU, softirqs are left out that took less than this part of one.
const MINOR: u64 = 8;

/// What a thread is to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::attribution) enum Role {
    /// It should read the check, whose data is ready.
    Reader,
    /// It has read the check and owes the reply.
    Server,
    /// Another thread waits for it.
    Peer,
}

/// A thread, and how the check's time came to depend on it.
#[derive(Debug, Clone)]
pub(in crate::attribution) struct Seat {
    pub(super) task: TaskId,
    pub(super) role: Role,
    pub(super) span: Span,
    /// Waits followed so far, outermost first.
    pub(super) waits: Vec<Cause>,
    /// The threads that waited, outermost first.
    pub(super) waiters: Vec<TaskId>,
    /// The stack it slept in before the check came: where it waits for work.
    pub(super) home: Option<StackRef>,
    /// Several threads read the check's socket, so a wake-up may have been another's work.
    pub(super) shared: bool,
    /// A packet that came in ended its last wait, so an answer from elsewhere may have.
    pub(super) answered: bool,
    /// The socket the check came by.
    pub(super) own: Own,
}

/// The socket by which a check came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Own {
    /// 0 if unknown.
    pub(super) socket: u64,
    /// What belongs to the check may come in many parts.
    pub(super) stream: bool,
    /// How long such a check is usually held, if known.
    pub(super) usual_hold: Option<DurNs>,
    /// Between the check's client and this host.
    pub(super) flow: Flow,
    /// When the check came in.
    pub(super) since: MonoNs,
    /// It came to this host's NIC and from there to the socket, with nothing between that queues.
    pub(super) direct: bool,
    /// The last wake-up of the thread that answered it.
    pub(super) answered_after: Option<MonoNs>,
    /// The thread that answered it, and when.
    pub(super) answer: Option<(TaskId, MonoNs)>,
}

impl Own {
    const NONE: Self = Self {
        socket: 0,
        stream: false,
        usual_hold: None,
        flow: Flow { peer: [0; 16], peer_port: 0, local_port: 0, protocol: 0 },
        since: MonoNs(0),
        direct: false,
        answered_after: None,
        answer: None,
    };
}

impl Seat {
    pub(in crate::attribution) const fn new(task: TaskId, role: Role, span: Span) -> Self {
        Self {
            task,
            role,
            span,
            waits: Vec::new(),
            waiters: Vec::new(),
            home: None,
            shared: false,
            answered: true,
            own: Own::NONE,
        }
    }

    /// The same seat, with a wait for it before.
    pub(super) fn behind(mut self, wait: Cause) -> Self {
        self.waits.push(wait);
        self
    }

    pub(super) fn at_home(mut self, home: Option<StackRef>) -> Self {
        self.home = home;
        self
    }

    pub(super) fn answered(mut self, answered: bool) -> Self {
        self.answered = answered;
        self
    }

    pub(super) fn of(mut self, own: Own) -> Self {
        self.own = own;
        self
    }

    pub(super) fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// The seat of `task`, for which this one's thread waits.
    pub(super) fn peer(&self, task: TaskId, wait: Cause) -> Self {
        let mut waiters = self.waiters.clone();
        waiters.push(self.task);
        let mut waits = self.waits.clone();
        waits.push(wait);
        let own = Own::NONE;
        Self { task, role: Role::Peer, span: self.span, waits, waiters, home: None, shared: false, answered: true, own }
    }

    /// Whether `task` already waits further out, or waits are too many to follow another.
    pub(super) fn ends_at(&self, task: TaskId) -> bool {
        task == self.task || self.waiters.contains(&task) || self.waiters.len() >= MAX_HOPS
    }

    /// A cause of its own, behind the waits.
    pub(super) fn leaf(&self, cause: Cause, offender: Option<Offender>, fact: impl Into<String>) -> Charge {
        Charge::new(cause, offender, fact).after(&self.waits)
    }

    /// The wait itself as the cause: the other side was working, or what it did is not known.
    pub(super) fn terminal(&self, offender: Option<Offender>, fact: impl Into<String>) -> Option<Charge> {
        let (last, before) = self.waits.split_last()?;
        Some(Charge::new(*last, offender, fact).after(before))
    }

    /// Why nothing is charged where the thread's records contradict each other: not even the wait
    /// for it, which one that is missing may have led further.
    pub(super) fn doubt(&self, evidence: &Evidence, at: MonoNs, reason: &str) -> String {
        if self.role == Role::Peer { format!("{}: {reason}", evidence.name(self.task, at)) } else { reason.to_owned() }
    }

    /// Not charged, unless a wait for this thread is proven: then the wait is.
    pub(super) fn unknown(&self, evidence: &Evidence, at: Interval<'_>, reason: impl Into<String>) -> Piece {
        let reason = reason.into();
        if self.role == Role::Peer {
            let name = evidence.name(self.task, at.to);
            let who = if self.waits.last() == Some(&Cause::VmBackend) { "worker of the tap" } else { "waker" };
            let fact = format!("{who} {name}: {reason}");
            if let Some(charge) = self.terminal(Some(evidence.offender(self.task, at.to)), fact) {
                return Piece::charged(at.from, at.to, self.span, charge);
            }
        }
        Piece::unexplained(at.from, at.to, self.span, reason)
    }
}

/// Charges what the thread in `seat` did between `from` and `to`.
pub(in crate::attribution) fn charge(evidence: &Evidence, seat: &Seat, from: MonoNs, to: MonoNs) -> Vec<Piece> {
    let whole = Interval { from, to, state: State::Unknown(NOTHING_KNOWN) };
    let intervals = evidence.intervals(seat.task, from, to);
    if intervals.is_empty() {
        return if from < to { vec![seat.unknown(evidence, whole, NOTHING_KNOWN)] } else { Vec::new() };
    }
    let mut work = Work::of(evidence, seat.task, &intervals, (from, to));
    work.starved = starved(evidence, seat, work.on_cpu, from, to);
    work.samples = evidence.sampled(seat.task, from, to);
    if intervals.len() > MANY {
        return alike(evidence, seat, intervals, &work);
    }
    intervals.into_iter().flat_map(|interval| state(evidence, seat, interval, &work)).collect()
}

/// Charges intervals that are alike as the longest of them: a busy thread has thousands, and
/// wording each would cost more than all the rest.
fn alike(evidence: &Evidence, seat: &Seat, mut intervals: Vec<Interval<'_>>, work: &Work) -> Vec<Piece> {
    intervals.sort_by_key(|interval| std::cmp::Reverse(interval.time()));
    let mut known: HashMap<Alike, Found> = HashMap::new();
    let mut pieces = Vec::with_capacity(intervals.len());
    for interval in intervals {
        let Interval { from, to, .. } = interval;
        let alike = Alike::of(evidence, seat.task, &interval);
        if let Some(found) = alike.and_then(|alike| known.get(&alike)) {
            pieces.push(Piece { from, to, span: seat.span, found: found.clone() });
            continue;
        }
        let new = state(evidence, seat, interval, work);
        if let (Some(alike), [piece]) = (alike, new.as_slice()) {
            known.insert(alike, piece.found.clone());
        }
        pieces.extend(new);
    }
    pieces
}

/// What intervals have in common that are charged as a whole, and alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Alike {
    OnCpu,
    Queued(Ready, Option<TaskId>, Option<u32>),
    Asleep(StackRef, u32, Option<u32>),
}

impl Alike {
    fn of(evidence: &Evidence, task: TaskId, interval: &Interval<'_>) -> Option<Self> {
        match interval.state {
            State::OnCpu(slice) if slice.gaps() == DurNs::ZERO => {
                let none = evidence.storage().reclaims(task, interval.from, interval.to).next().is_none()
                    && evidence.spins().within(task, interval.from, interval.to).next().is_none();
                none.then_some(Self::OnCpu)
            }
            State::Runnable(runnable) => {
                let back = runnable.to?;
                let plain = runnable.throttled().is_none_or(|grown| grown.time == DurNs::ZERO);
                let none = evidence.softirqs(back.cpu, interval.from, interval.to).next().is_none();
                let short = short_softirqs(evidence, *interval, &runnable, back);
                let calm = none && short.0 <= interval.time().0 / MINOR;
                let instead = Instead::of(evidence, task, interval, &runnable).who().map(|named| named.task);
                (plain && calm).then_some(Self::Queued(runnable.ready, instead, evidence.user_stack(task, interval)))
            }
            State::Blocked(blocked) => {
                let own = evidence.wait(&blocked).is_some_and(|(wait, _)| wait.own());
                own.then_some(Self::Asleep(blocked.stack, blocked.state, evidence.user_stack(task, interval)))
            }
            State::OnCpu(_) | State::Stopped { .. } | State::Unknown(_) => None,
        }
    }
}

fn state(evidence: &Evidence, seat: &Seat, interval: Interval<'_>, work: &Work) -> Vec<Piece> {
    let mut pieces = match interval.state {
        State::OnCpu(slice) => running(evidence, seat, interval, &slice, work),
        State::Runnable(runnable) => queued(evidence, seat, interval, &runnable, work),
        State::Blocked(blocked) => wait::blocked(evidence, seat, interval, &blocked),
        State::Stopped { state } => vec![stopped(evidence, seat, interval, &format!("kernel state {state:#x}"))],
        State::Unknown(reason) if is_in_doubt(reason) => {
            vec![Piece::unexplained(interval.from, interval.to, seat.span, seat.doubt(evidence, interval.to, reason))]
        }
        State::Unknown(reason) => vec![seat.unknown(evidence, interval, reason)],
    };
    if let Some(hop) = evidence.hop(seat.task, &interval, &work.samples) {
        came_by(&mut pieces, &hop);
    }
    pieces
}

/// What is true of a stretch as a whole.
struct Work {
    /// How much of it the thread was on CPU, softirqs and waits for kernel locks taken out.
    on_cpu: DurNs,
    whole: DurNs,
    /// It received all the while and sent nothing, as a fact.
    starved: Option<String>,
    /// What each CPU that it ran on or waited for spent in softirqs.
    softirqs: Vec<(u32, Tally)>,
    /// What the thread did on its CPUs, if that is told.
    samples: Arc<[Sampled]>,
}

impl Work {
    fn of(evidence: &Evidence, task: TaskId, intervals: &[Interval<'_>], (from, to): (MonoNs, MonoNs)) -> Self {
        let on_cpu = intervals.iter().filter_map(|interval| match interval.state {
            State::OnCpu(slice) => {
                let spun = evidence.spins().time(task, interval.from, interval.to);
                Some(interval.time().minus(slice.gaps()).minus(spun))
            }
            _ => None,
        });
        let mut softirqs: Vec<(u32, Tally)> = Vec::new();
        for cpu in intervals.iter().filter_map(shared_cpu) {
            if softirqs.iter().all(|(known, _)| *known != cpu) {
                softirqs.push((cpu, evidence.softirq_tally(cpu, from, to)));
            }
        }
        Self {
            on_cpu: on_cpu.fold(DurNs::ZERO, DurNs::plus),
            whole: to.since(from),
            starved: None,
            softirqs,
            samples: Arc::default(),
        }
    }

    /// The softirqs that took most of what softirqs took of a CPU.
    fn main_softirq(&self, cpu: u32) -> Option<(u32, Taken)> {
        self.softirqs.iter().find(|(known, _)| *known == cpu)?.1.main()
    }
}

/// The CPU that a thread may have shared with softirqs.
const fn shared_cpu(interval: &Interval<'_>) -> Option<u32> {
    match interval.state {
        State::OnCpu(slice) if slice.softirq.0 > 0 => Some(slice.cpu),
        State::Runnable(Runnable { to: Some(back), .. }) => Some(back.cpu),
        _ => None,
    }
}

/// What a thread did on the CPU that was not its own work.
enum Inside<'a> {
    Reclaim(&'a Reclaim),
    Spin(&'a Spin),
}

/// All of that in an interval, in the order of time.
fn inside<'a>(evidence: &'a Evidence, task: TaskId, at: &Interval<'_>) -> Vec<(MonoNs, MonoNs, Inside<'a>)> {
    let reclaims = evidence.storage().reclaims(task, at.from, at.to);
    let mut all: Vec<_> =
        reclaims.map(|reclaim| (reclaim.from.max(at.from), reclaim.to.min(at.to), Inside::Reclaim(reclaim))).collect();
    let spins = evidence.spins().within(task, at.from, at.to);
    all.extend(spins.map(|((from, to), spin)| (from, to, Inside::Spin(spin))));
    all.sort_by_key(|(from, ..)| *from);
    all
}

/// On CPU: what the thread spent looking for memory itself or waiting for a kernel lock, and the
/// rest of it.
fn running(evidence: &Evidence, seat: &Seat, interval: Interval<'_>, slice: &Slice, work: &Work) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut cursor = interval.from;
    let mut add = |to: MonoNs, inside: Option<&Inside<'_>>| {
        let part = Interval { from: cursor, to, ..interval };
        if part.from < part.to {
            let slice = slice.part(part.time(), interval.time());
            let charge = match inside {
                Some(Inside::Reclaim(reclaim)) => reclaiming(evidence, seat, part, reclaim),
                Some(Inside::Spin(spin)) => spinning(evidence, seat, part, spin),
                None => working(evidence, seat, part, work),
            };
            pieces.extend(on_cpu(evidence, seat, part, &slice, (work, charge)));
            cursor = to;
        }
    };
    for (from, to, inside) in inside(evidence, seat.task, &interval) {
        add(from, None);
        add(to, Some(&inside));
    }
    add(interval.to, None);
    pieces
}

/// It was in the kernel's search for free memory, between two records of that.
fn reclaiming(evidence: &Evidence, seat: &Seat, at: Interval<'_>, reclaim: &Reclaim) -> Charge {
    let name = evidence.name(seat.task, at.to);
    let whose = if reclaim.cgroup { "its cgroup's limit left none" } else { "the machine had none free" };
    let took = reclaim.to.since(reclaim.from);
    let fact =
        format!("{name} looked for memory itself for {took}, because {whose}, and freed {} pages", reclaim.pages);
    seat.leaf(Cause::MemoryReclaim, Some(evidence.offender(seat.task, at.to)), fact)
}

/// It waited for a kernel lock without leaving the CPU.
fn spinning(evidence: &Evidence, seat: &Seat, at: Interval<'_>, spin: &Spin) -> Charge {
    let name = evidence.name(seat.task, at.to);
    let took = spin.to.since(spin.from);
    let fact = if spin.waits <= 1 {
        format!("{name} waited {} on CPU for a kernel {}", spin.spun, spin.kind())
    } else {
        format!(
            "{name} waited on CPU for kernel locks {} times, {} of {took}, longest for a {}",
            spin.waits,
            spin.spun,
            spin.kind()
        )
    };
    let who = match &spin.owner {
        Some(owner) => format!("{} had it when the wait began", described(owner.task, &text(&owner.comm))),
        None => format!("who had it is not known: a {} does not tell", spin.kind()),
    };
    let owner = spin.owner.as_ref().map(|owner| evidence.offender_named(owner, at.to));
    seat.leaf(Cause::KernelLock, owner, fact).with(Some(who)).meaning("the thread spins for a kernel lock")
}

fn on_cpu(
    evidence: &Evidence,
    seat: &Seat,
    interval: Interval<'_>,
    slice: &Slice,
    (work, charge): (&Work, Charge),
) -> Vec<Piece> {
    let Slice { cpu, softirq, interrupts, steal, unknown } = *slice;
    let cut = interval.to.before(slice.gaps()).max(interval.from);
    let held = format!("of the {} the thread held CPU {cpu}", interval.time());
    let mut pieces = vec![Piece::charged(interval.from, cut, seat.span, charge)];
    let mut cursor = cut;
    let mut next = |time: DurNs| {
        let from = cursor;
        cursor = cursor.after(time).min(interval.to);
        (from, cursor)
    };
    let gap = |(from, to), who, fact: String| {
        Piece::charged(from, to, seat.span, seat.leaf(Cause::HostCpuGap, Some(device(who)), fact))
    };
    let (from, to) = next(softirq);
    let softirqs = stolen(evidence, seat, interval.to, cpu, (work, format!("softirqs took {softirq} {held}")));
    pieces.push(Piece::charged(from, to, seat.span, softirqs));
    let fact = format!("interrupts took {interrupts} {held}, by the run queue's account");
    pieces.push(gap(next(interrupts), format!("interrupts CPU {cpu}"), fact));
    let fact = format!("the hypervisor took {steal} {held}, by the run queue's account");
    pieces.push(gap(next(steal), format!("hypervisor CPU {cpu}"), fact));
    let (from, to) = next(unknown);
    let reason = format!("the kernel charged the thread {unknown} less than it seems to have held CPU {cpu}");
    pieces.push(Piece::unexplained(from, to, seat.span, seat.doubt(evidence, to, &reason)));
    pieces.retain(|piece| piece.from < piece.to);
    pieces
}

fn working(evidence: &Evidence, seat: &Seat, interval: Interval<'_>, work: &Work) -> Charge {
    let name = evidence.name(seat.task, interval.to);
    let offender = Some(evidence.offender(seat.task, interval.to));
    let Work { on_cpu, whole, starved, .. } = work;
    let (who, what) = match (seat.role, seat.waits.last()) {
        (Role::Reader, _) => ("reader", " while the check waited in the socket"),
        (Role::Server, _) => ("holder of the check", ""),
        (Role::Peer, Some(Cause::AppFutex | Cause::KernelLock)) => ("holder", " wait"),
        (Role::Peer, Some(Cause::VmBackend)) => ("worker of the tap", " wait"),
        (Role::Peer, Some(Cause::VmGuestInternal)) => ("vCPU", ""),
        (Role::Peer, _) => ("the other side", " wait"),
    };
    let fact = format!("{who} ({name}) was on CPU {on_cpu} of the {whole}{what}");
    if let Some(calls) = starved {
        return seat.leaf(Cause::AppOnCpu, offender, format!("{fact}: {calls}")).meaning(starvation::MEANING);
    }
    let terminal = (seat.role == Role::Peer).then(|| seat.terminal(offender.clone(), fact.clone())).flatten();
    terminal.unwrap_or_else(|| seat.leaf(Cause::AppOnCpu, offender, fact))
}

fn device(name: String) -> Offender {
    Offender { device: name, ..Offender::default() }
}

/// The CPU of a thread ran softirqs instead; `fact` proves it where no record tells which.
fn stolen(evidence: &Evidence, seat: &Seat, at: MonoNs, cpu: u32, (work, fact): (&Work, String)) -> Charge {
    let Some((number, Taken { time, longest })) = work.main_softirq(cpu) else {
        return seat.leaf(Cause::HostCpuGap, Some(softirq_offender(None, cpu)), fact);
    };
    let at_once = if longest > DurNs::ZERO { format!(", up to {longest} at a time") } else { String::new() };
    let share = time.0.saturating_mul(100) / work.whole.0.max(1);
    let whole =
        format!("CPU {cpu} spent {time} of the {} ({share} %) in {} softirqs{at_once}", work.whole, vector(number));
    let same = format!("they run on the CPU of {}", evidence.name(seat.task, at));
    let offender = softirq_offender(Some(number), cpu);
    let charge = seat.leaf(Cause::HostCpuGap, Some(offender), whole).with(Some(same));
    if number == NET_RX { charge.meaning("the thread's CPU was busy receiving packets") } else { charge }
}

/// Softirqs of a CPU, of one vector if it is known.
pub(in crate::attribution) fn softirq_offender(number: Option<u32>, cpu: u32) -> Offender {
    let name = number.map_or(String::new(), |number| format!("{} ", vector(number)));
    device(format!("softirq {name}CPU {cpu}"))
}

/// Runnable: out of quota, behind interrupt work on its CPU, or behind other threads.
fn queued(
    evidence: &Evidence,
    seat: &Seat,
    interval: Interval<'_>,
    runnable: &Runnable<'_>,
    work: &Work,
) -> Vec<Piece> {
    let throttled = quota_part(interval, runnable);
    let cut = interval.from.after(throttled);
    let mut pieces = Vec::new();
    if throttled > DurNs::ZERO {
        let charge = quota(evidence, seat, interval, runnable);
        pieces.push(Piece::charged(interval.from, cut, seat.span, charge));
    }
    pieces.extend(behind(evidence, seat, Interval { from: cut, ..interval }, runnable, work));
    pieces
}

/// The throttled part of a wait for a CPU. Growth that covers most of the gap is all of it: the
/// kernel accounts throttling only from its own next look at the group.
fn quota_part(interval: Interval<'_>, runnable: &Runnable<'_>) -> DurNs {
    let (Some(grown), Some(back)) = (runnable.throttled(), runnable.to) else {
        return DurNs::ZERO;
    };
    let gap = back.at.since(runnable.from);
    if grown.time.0 >= gap.0.div_ceil(2) && grown.time > DurNs::ZERO {
        return interval.time();
    }
    spread(DurNs(grown.time.0.min(gap.0)), interval.time(), gap)
}

fn quota(evidence: &Evidence, seat: &Seat, interval: Interval<'_>, runnable: &Runnable<'_>) -> Charge {
    let grown = runnable.throttled().unwrap_or_default();
    let thread = evidence.offender(seat.task, interval.to);
    let name = if thread.cgroup.is_empty() { "its cgroup".to_owned() } else { thread.cgroup.clone() };
    let fact = format!(
        "{name} was throttled {} more (in {}) while {} was off the CPU for {}",
        grown.time,
        counted(grown.count, "period"),
        evidence.name(seat.task, interval.to),
        runnable.to.map_or(interval.to, |back| back.at).since(runnable.from)
    );
    let group = Offender { cgroup: thread.cgroup.clone(), ..Offender::default() };
    let offender = if thread.cgroup.is_empty() { thread } else { group };
    seat.leaf(Cause::AppQuotaThrottle, Some(offender), fact)
}

/// A wait for a CPU without quota: softirqs on the CPU that it got, then other threads.
fn behind(
    evidence: &Evidence,
    seat: &Seat,
    interval: Interval<'_>,
    runnable: &Runnable<'_>,
    work: &Work,
) -> Vec<Piece> {
    let charge = ran_instead(evidence, seat, interval, runnable);
    let Some(back) = runnable.to else {
        return vec![Piece::charged(interval.from, interval.to, seat.span, charge)];
    };
    let mut short = short_softirqs(evidence, interval, runnable, back);
    let softirq = |from: MonoNs, to: MonoNs, runs: &str| {
        let fact = format!("{runs} {} on CPU {}, for which the thread waited", to.since(from), back.cpu);
        Piece::charged(from, to, seat.span, stolen(evidence, seat, to, back.cpu, (work, fact)))
    };
    let mut pieces = Vec::new();
    let mut cursor = interval.from;
    let mut others = |from: MonoNs, to: MonoNs, pieces: &mut Vec<Piece>| {
        let cut = from.after(DurNs(short.0.min(to.since(from).0)));
        short = short.minus(cut.since(from));
        pieces.push(softirq(from, cut, "short softirqs took"));
        pieces.push(Piece::charged(cut, to, seat.span, charge.clone()));
    };
    for run in evidence.softirqs(back.cpu, interval.from, interval.to) {
        let (from, to) = (run.from.max(cursor), run.to.min(interval.to));
        others(cursor, from, &mut pieces);
        pieces.push(softirq(from, to, &format!("a {} softirq ran", vector(run.vector))));
        cursor = to.max(cursor);
    }
    others(cursor, interval.to, &mut pieces);
    pieces.retain(|piece| piece.from < piece.to);
    pieces
}

/// Time of short softirqs on the CPU that it got. If it was taken off this very CPU, the switches
/// tell the sum; after a wake-up, only what records tell is known.
fn short_softirqs(evidence: &Evidence, interval: Interval<'_>, runnable: &Runnable<'_>, back: Arrival) -> DurNs {
    let taken_off = matches!(runnable.ready, Ready::Preempted | Ready::Yielded);
    let out = runnable.out.filter(|out| taken_off && out.cpu == back.cpu);
    let Some((out, softirq)) = out.zip(back.softirq) else {
        return evidence.short_softirqs(back.cpu, interval.from, interval.to);
    };
    let long = evidence.long_softirqs(back.cpu, out.at, back.at);
    let short = softirq.minus(out.softirq).minus(long);
    spread(short, interval.time(), back.at.since(out.at))
}

/// Who ran while a thread waited for a CPU.
enum Instead<'a> {
    /// By the records of that CPU, which cover most of the wait.
    Seen { cpu: u32, shares: Vec<Share> },
    /// By the switches before and after the wait.
    Beside(Option<&'a Named>),
}

impl<'a> Instead<'a> {
    /// Of the CPU that it got, else of the one for which it waited before it was moved.
    fn of(evidence: &Evidence, task: TaskId, at: &Interval<'_>, runnable: &'a Runnable<'_>) -> Self {
        let cpus = [runnable.to.map(|back| back.cpu), runnable.out.map(|out| out.cpu)];
        let seen = cpus
            .into_iter()
            .flatten()
            .find_map(|cpu| ran_most(evidence, task, cpu, (at.from, at.to)).map(|shares| Self::Seen { cpu, shares }));
        seen.unwrap_or_else(|| Self::Beside(runnable.instead()))
    }

    /// Who had most of it.
    fn who(&self) -> Option<&Named> {
        match self {
            Self::Seen { shares, .. } => shares.first().map(|share| &share.who),
            Self::Beside(named) => *named,
        }
    }
}

/// Who but `waiter` had a CPU, longest first, if records cover most of the time.
fn ran_most(evidence: &Evidence, waiter: TaskId, cpu: u32, (from, to): (MonoNs, MonoNs)) -> Option<Vec<Share>> {
    let shares = evidence.runs(cpu, waiter, from, to);
    let known = shares.iter().fold(DurNs::ZERO, |sum, share| sum.plus(share.time));
    (known.0 >= to.since(from).0.div_ceil(2)).then_some(shares)
}

/// Who but `waiter` had a CPU for the longest, and how that is known, if records cover most of the time.
pub(super) fn had_cpu(
    evidence: &Evidence,
    waiter: TaskId,
    cpu: u32,
    (from, to): (MonoNs, MonoNs),
) -> Option<(Offender, String)> {
    let shares = ran_most(evidence, waiter, cpu, (from, to))?;
    Some((evidence.offender_of(shares.first()?, to), shares_of(cpu, &shares)))
}

/// Most threads named of those that ran instead.
const MOST_NAMED: usize = 3;

fn shares_of(cpu: u32, shares: &[Share]) -> String {
    let of = |share: &Share| format!("{} {}", described(share.who.task, &text(&share.who.comm)), share.time);
    let named: Vec<String> = shares.iter().take(MOST_NAMED).map(of).collect();
    let others = shares.get(MOST_NAMED..).unwrap_or_default();
    let rest = others.iter().fold(DurNs::ZERO, |sum, share| sum.plus(share.time));
    let rest = if others.is_empty() { String::new() } else { format!(", {} others {rest}", others.len()) };
    format!("CPU {cpu} ran instead: {}{rest}", named.join(", "))
}

/// Who kept a CPU from a thread of the kernel's, and how that is known. A worker of the kernel's that
/// ran last does not tell who ran before it, and nobody did all the while if others are known to have run.
pub(super) fn kept_from(
    evidence: &Evidence,
    task: TaskId,
    interval: &Interval<'_>,
    runnable: &Runnable<'_>,
) -> (Option<Offender>, Option<String>) {
    match Instead::of(evidence, task, interval, runnable) {
        Instead::Seen { cpu, shares } => {
            (shares.first().map(|share| evidence.offender_of(share, interval.to)), Some(shares_of(cpu, &shares)))
        }
        Instead::Beside(named) => {
            let others = runnable.to.map(|back| evidence.runs(back.cpu, task, interval.from, interval.to));
            if others.is_some_and(|runs| runs.iter().any(|run| named.is_none_or(|named| named.task != run.who.task))) {
                return (None, Some("who had the CPU for most of that is not known".to_owned()));
            }
            match named.filter(|named| !named.is_kernel_worker()) {
                Some(named) => {
                    let fact = format!("{} ran instead", described(named.task, &text(&named.comm)));
                    (Some(evidence.offender_named(named, interval.to)), Some(fact))
                }
                None => (None, None),
            }
        }
    }
}

fn ran_instead(evidence: &Evidence, seat: &Seat, interval: Interval<'_>, runnable: &Runnable<'_>) -> Charge {
    let name = evidence.name(seat.task, interval.to);
    let since = match runnable.ready {
        Ready::Woken => "it was woken",
        Ready::Preempted => "it was preempted",
        Ready::Yielded => "it yielded",
        Ready::Born => "it was created",
    };
    let gap = runnable.to.map_or(interval.to, |back| back.at).since(runnable.from);
    let fact = format!("{name} waited {gap} for a CPU after {since}");
    let instead = Instead::of(evidence, seat.task, &interval, runnable);
    let told = runnable.to.is_some_and(|arrival| !arrival.is_recorded());
    let told =
        told.then(|| "the switch to it is not recorded; the kernel's account of its slice tells when".to_owned());
    let who = match &instead {
        Instead::Seen { cpu, shares } => shares_of(*cpu, shares),
        Instead::Beside(None) if told.is_some() => "who ran instead is not known".to_owned(),
        Instead::Beside(Some(named)) => format!("{} ran instead", described(named.task, &text(&named.comm))),
        Instead::Beside(None) => "the CPU it got had been idle".to_owned(),
    };
    let offender = match &instead {
        Instead::Seen { shares, .. } => shares.first().map(|share| evidence.offender_of(share, interval.to)),
        Instead::Beside(named) => named.map(|named| evidence.offender_named(named, interval.to)),
    };
    seat.leaf(Cause::AppRunqueue, offender, fact).with(Some(who)).with(told)
}

/// Stopped, traced or frozen.
pub(super) fn stopped(evidence: &Evidence, seat: &Seat, interval: Interval<'_>, proof: &str) -> Piece {
    let name = evidence.name(seat.task, interval.to);
    let fact = format!("{name} was stopped or frozen for {} ({proof})", interval.time());
    let charge = seat.leaf(Cause::AppSelfWait, Some(evidence.offender(seat.task, interval.to)), fact);
    let charge = charge.meaning("the thread is stopped or frozen");
    Piece::charged(interval.from, interval.to, seat.span, charge)
}
