//! From the marks of a thread's life to what it did: intervals that fill a stretch of time.
//!
//! Two witnesses are heard beside the switches: what the kernel charged to the thread, and who was
//! seen on a CPU. Where they contradict a state, it is [`State::Unknown`] with the reason.

use super::frame::Frame;
use super::symbol::StackRef;
use super::thread::{
    Arrival, Blocked, Interval, Leave, Mark, Ready, Runnable, Slice, SoftirqRuns, State, Switch, Wake, spread,
};
use crate::clock::{DurNs, MonoNs};

/// Longest time between a wake-up and the end of the slice in which its thread was already on
/// the way to sleep. The kernel wakes such a thread before `sched_switch` says that it left.
pub(super) const FALLING_ASLEEP: DurNs = DurNs(50_000);

/// What a switch-out means.
pub(super) enum Kind {
    Ready(Ready),
    Asleep,
    Stopped,
    Ended,
}

impl Kind {
    /// Bits of `prev_state`, the same on all kernels: 1 interruptible, 2 uninterruptible,
    /// 4 stopped, 8 traced, 0x10, 0x20 and 0x80 dead, 0x40 parked, 0x1000 waiting for a real-time
    /// lock, 0x8000 frozen. Others only qualify these; a state with none of them can run, such as
    /// 256, by which some kernels mark a preempted or throttled thread.
    pub(super) const fn of(leave: Leave) -> Self {
        const STOPPED: u32 = 0x4 | 0x8 | 0x8000;
        const ENDED: u32 = 0x10 | 0x20 | 0x80;
        const ASLEEP: u32 = 0x1 | 0x2 | 0x40 | 0x1000;
        match leave {
            Leave { preempted: true, .. } => Self::Ready(Ready::Preempted),
            Leave { state, .. } if state & ENDED != 0 => Self::Ended,
            Leave { state, .. } if state & STOPPED != 0 => Self::Stopped,
            Leave { state, .. } if state & ASLEEP != 0 => Self::Asleep,
            Leave { .. } => Self::Ready(Ready::Yielded),
        }
    }
}

const MISSING: &str = "a switch record of the thread is missing";
const PRESENT: &str = "the thread was seen on a CPU, and the record of how it got there is missing";
const GONE: &str = "another thread was seen on its CPU, and the record of how it left is missing";
const RAN_UNSEEN: &str =
    "the kernel charged CPU time to the thread meanwhile, and the records of that slice are missing";
const UNCHARGED: &str = "on a CPU, and how much of that the kernel charged to the thread is not known";
pub(super) const WAKE_UNSEEN: &str = "asleep, and then on a CPU: its wake-up was not seen";
pub(super) const NOT_RUN_YET: &str = "runnable and not seen on a CPU yet: its next switch tells what it waited for";
pub(super) const STILL_ON: &str = "it got a CPU, and whether it still had it shows at its next switch";
const NOT_YET_KNOWN: &str = "before the first record of the thread";
const ENDED: &str = "the thread had ended";

/// Whether a state is unknown because a record of it is missing, and not for want of any.
pub(super) fn is_in_doubt(reason: &str) -> bool {
    ![NOT_YET_KNOWN, ENDED].contains(&reason)
}

/// The same of a thread that may have been held up: one that got a CPU may well have it still.
pub(super) fn is_contradicted(reason: &str) -> bool {
    is_in_doubt(reason) && reason != STILL_ON
}

/// The state after the last mark.
#[derive(Debug, Clone, Copy)]
enum Now<'a> {
    Unknown(&'static str),
    OnCpu {
        since: &'a Switch,
        waking: Option<&'a Wake>,
    },
    Asleep {
        out: &'a Switch,
        leave: Leave,
        /// A wake-up that came while it was falling asleep.
        waking: Option<&'a Wake>,
    },
    /// Asleep since before it was looked at.
    SeenAsleep {
        at: MonoNs,
        asleep_in: &'a Frame,
    },
    Stopped {
        out: &'a Switch,
        state: u32,
    },
    Runnable(Runnable<'a>),
}

/// Goes over the marks and cuts what lies in the wanted stretch into intervals.
pub(super) struct Walk<'a, 's> {
    from: MonoNs,
    to: MonoNs,
    pub(super) cursor: MonoNs,
    now: Now<'a>,
    done: Vec<Interval<'a>>,
    /// When the thread was last known to have the CPU that it got last.
    seen: MonoNs,
    /// What the thread was said to do, and from when on, before it was seen on a CPU all the same.
    doubted: Option<(Now<'a>, MonoNs)>,
    softirqs: &'s dyn SoftirqRuns,
}

impl<'a, 's> Walk<'a, 's> {
    pub(super) const fn new(from: MonoNs, to: MonoNs, seen: MonoNs, softirqs: &'s dyn SoftirqRuns) -> Self {
        let now = Now::Unknown(NOT_YET_KNOWN);
        Self { from, to, cursor: MonoNs(0), now, done: Vec::new(), seen, doubted: None, softirqs }
    }

    /// What comes next may still prove wrong what was concluded of the time before.
    pub(super) const fn is_on_trial(&self) -> bool {
        self.doubted.is_some() || matches!(self.now, Now::Runnable(Runnable { ready: Ready::Woken, out: Some(_), .. }))
    }

    pub(super) fn step(&mut self, mark: &'a Mark) {
        match mark {
            Mark::In(switch) => self.got_cpu(switch),
            Mark::Out(switch, leave) => self.left_cpu(switch, *leave),
            Mark::Waking(wake) => self.woken(wake),
            Mark::Read { .. } | Mark::Call(_) => {}
            Mark::Seen { at, asleep_in } => self.looked_at(*at, asleep_in.as_deref()),
            Mark::Present(at) => {
                let doubted = Some((self.now, self.cursor));
                self.contradicted(*at, PRESENT);
                self.doubted = doubted;
            }
            Mark::Gone(at) => self.contradicted(*at, GONE),
            Mark::Born(at) => {
                self.emit_open(*at);
                self.now = Now::Runnable(Runnable { ready: Ready::Born, from: *at, to: None, out: None });
            }
            Mark::Ended(at) => {
                // It ends itself, so it is on a CPU then.
                self.seen = self.seen.max(*at);
                self.emit_open(*at);
                self.now = Now::Unknown(ENDED);
            }
        }
    }

    /// A record shows that what the marks say cannot be.
    fn contradicted(&mut self, at: MonoNs, reason: &'static str) {
        self.doubted = None;
        self.emit(at, State::Unknown(if let Now::Unknown(known) = self.now { known } else { reason }));
        self.now = Now::Unknown(reason);
    }

    /// Nothing is sure since `since`: what was concluded of the time from there on is taken back.
    fn doubt(&mut self, since: MonoNs) {
        let since = since.max(self.from);
        while self.done.last().is_some_and(|last| last.from >= since) {
            self.done.pop();
        }
        if let Some(last) = self.done.last_mut() {
            last.to = last.to.min(since);
        }
        self.cursor = self.cursor.min(since);
    }

    /// The end of its last slice, while it is on no CPU.
    const fn left(&self) -> Option<&'a Switch> {
        match self.now {
            Now::Runnable(Runnable { out, .. }) => out,
            Now::Asleep { out, .. } | Now::Stopped { out, .. } => Some(out),
            Now::Unknown(_) | Now::OnCpu { .. } | Now::SeenAsleep { .. } => None,
        }
    }

    /// The switch-out before, if the thread ran since then and that was not seen.
    fn ran_unseen(&self, back: &Switch) -> Option<MonoNs> {
        let out = self.left()?;
        (back.account.exec? > out.account.exec?).then_some(out.at)
    }

    fn got_cpu(&mut self, switch: &'a Switch) {
        self.doubted = None;
        let unseen = self.ran_unseen(switch);
        if let Some(since) = unseen {
            self.doubt(since);
        }
        let state = match self.now {
            _ if unseen.is_some() => State::Unknown(RAN_UNSEEN),
            Now::Runnable(runnable) => State::Runnable(Runnable { to: Some(Arrival::recorded(switch)), ..runnable }),
            Now::Asleep { out, waking: Some(_), .. } => {
                let to = Some(Arrival::recorded(switch));
                State::Runnable(Runnable { ready: Ready::Woken, from: out.at, to, out: Some(out) })
            }
            Now::Asleep { waking: None, .. } | Now::SeenAsleep { .. } | Now::Stopped { .. } => {
                State::Unknown(WAKE_UNSEEN)
            }
            Now::Unknown(reason) => State::Unknown(reason),
            Now::OnCpu { .. } => State::Unknown(MISSING),
        };
        self.emit(switch.at, state);
        self.now = Now::OnCpu { since: switch, waking: None };
    }

    fn left_cpu(&mut self, switch: &'a Switch, leave: Leave) {
        let waking = if let Now::OnCpu { waking, .. } = self.now { waking } else { None };
        let begun = leave.ran.map(|ran| switch.at.before(ran));
        match (self.now, begun) {
            (Now::OnCpu { since, .. }, begun) if fits(since, switch, begun) => {
                self.emit(switch.at, self.slice(since, switch.at, Some(switch)));
            }
            (_, Some(begun)) => self.left_after(begun, switch),
            (Now::Unknown(reason), None) => self.emit(switch.at, State::Unknown(reason)),
            (_, None) => self.emit(switch.at, State::Unknown(MISSING)),
        }
        self.doubted = None;
        let waking = waking.filter(|wake| switch.at.since(wake.at) <= FALLING_ASLEEP);
        self.now = match Kind::of(leave) {
            Kind::Ready(ready) => Now::Runnable(Runnable { ready, from: switch.at, to: None, out: Some(switch) }),
            Kind::Asleep => Now::Asleep { out: switch, leave, waking },
            Kind::Stopped => Now::Stopped { out: switch, state: leave.state },
            Kind::Ended => Now::Unknown(ENDED),
        };
    }

    /// The switch that began the slice is missing. The kernel itself tells when that was.
    fn left_after(&mut self, begun: MonoNs, out: &'a Switch) {
        if let Some((now, since)) = self.doubted.take() {
            self.doubt(since);
            self.now = now;
        }
        if begun.after(tolerance(out.at.since(begun))) < self.cursor {
            return self.emit(out.at, State::Unknown(MISSING));
        }
        let arrival = Arrival::told_by(out, begun);
        let before = self.left();
        let whole = before.is_none_or(|before| is_one_slice(before, out, begun));
        let state = match self.now {
            _ if !whole => State::Unknown(RAN_UNSEEN),
            Now::Runnable(runnable) => State::Runnable(Runnable { to: Some(arrival), ..runnable }),
            Now::Asleep { out, waking: Some(_), .. } => {
                State::Runnable(Runnable { ready: Ready::Woken, from: out.at, to: Some(arrival), out: Some(out) })
            }
            Now::Asleep { .. } | Now::SeenAsleep { .. } | Now::Stopped { .. } => State::Unknown(WAKE_UNSEEN),
            Now::Unknown(reason) => State::Unknown(reason),
            Now::OnCpu { .. } => State::Unknown(MISSING),
        };
        // Whether the group was throttled before the thread got the CPU, or while it ran, is not told.
        let plain = before.is_none_or(|before| before.throttled == out.throttled);
        let state = if plain { state } else { State::Unknown(MISSING) };
        self.emit(begun, state);
        self.emit(out.at, self.told_slice(begun, before.filter(|_| whole), out));
    }

    /// A slice of which only the end is recorded. `before` is the end of the one before it.
    fn told_slice(&self, begun: MonoNs, before: Option<&Switch>, out: &Switch) -> State<'a> {
        let (from, to) = (begun.max(self.from), out.at.min(self.to));
        let (part, whole) = (to.since(from), out.at.since(begun));
        if before.is_none() && out.account.exec.is_some() {
            return State::Unknown(UNCHARGED);
        }
        let charged = before.and_then(|before| Some(out.account.exec?.minus(before.account.exec?)));
        let uncharged = charged.map_or(DurNs::ZERO, |charged| whole.minus(charged));
        let unknown = if uncharged > tolerance(whole) { uncharged } else { DurNs::ZERO };
        let mut slice = Slice { cpu: out.cpu, softirq: self.softirqs.within(out.cpu, from, to), ..Slice::default() };
        slice.account(&Taken { steal: DurNs::ZERO, interrupts: DurNs::ZERO, unknown }, part, whole);
        State::OnCpu(slice.within(part))
    }

    fn woken(&mut self, wake: &'a Wake) {
        self.doubted = None;
        let (state, out) = match &mut self.now {
            Now::OnCpu { waking, .. } => {
                *waking = Some(wake);
                return;
            }
            Now::Runnable(_) | Now::Unknown(ENDED) => return,
            Now::Asleep { out, leave, .. } => (State::Blocked(blocked(out, *leave, Some(wake))), Some(*out)),
            Now::SeenAsleep { at, asleep_in } => (State::Blocked(seen_blocked(*at, asleep_in, Some(wake))), None),
            Now::Stopped { out, state } => (State::Stopped { state: *state }, Some(*out)),
            Now::Unknown(reason) => (State::Unknown(reason), None),
        };
        self.emit(wake.at, state);
        self.now = Now::Runnable(Runnable { ready: Ready::Woken, from: wake.at, to: None, out });
    }

    /// `/proc` tells of a thread whose records do not begin yet; records tell more.
    fn looked_at(&mut self, at: MonoNs, asleep_in: Option<&'a Frame>) {
        if let (Now::Unknown(reason), Some(asleep_in)) = (&self.now, asleep_in) {
            self.emit(at, State::Unknown(reason));
            self.now = Now::SeenAsleep { at, asleep_in };
        }
    }

    pub(super) fn finish(mut self) -> Vec<Interval<'a>> {
        self.emit_open(self.to);
        self.done
    }

    /// What is known of a state that has not ended yet.
    fn emit_open(&mut self, until: MonoNs) {
        let state = match self.now {
            Now::Unknown(reason) => State::Unknown(reason),
            Now::OnCpu { since, .. } => {
                let sure = self.seen.clamp(since.at, until.max(since.at));
                self.emit(sure, self.slice(since, sure, None));
                State::Unknown(STILL_ON)
            }
            Now::Asleep { out, leave, waking: None } => State::Blocked(blocked(out, leave, None)),
            Now::SeenAsleep { at, asleep_in } => State::Blocked(seen_blocked(at, asleep_in, None)),
            Now::Stopped { state, .. } => State::Stopped { state },
            Now::Asleep { .. } | Now::Runnable(_) => State::Unknown(NOT_RUN_YET),
        };
        self.emit(until, state);
    }

    fn emit(&mut self, until: MonoNs, state: State<'a>) {
        let (from, to) = (self.cursor.max(self.from), until.min(self.to));
        if from < to {
            self.add(Interval { from, to, state });
        }
        self.cursor = self.cursor.max(until);
    }

    fn add(&mut self, next: Interval<'a>) {
        match (self.done.last_mut(), next.state) {
            (Some(last), State::Unknown(reason)) if matches!(last.state, State::Unknown(same) if same == reason) => {
                last.to = next.to;
            }
            _ => self.done.push(next),
        }
    }

    /// On CPU: what of the wanted stretch was not the thread's. Long softirqs are placed exactly;
    /// what short ones took of the slice is spread evenly over it.
    fn slice(&self, since: &Switch, end: MonoNs, out: Option<&Switch>) -> State<'a> {
        let cpu = since.cpu;
        let (from, to) = (since.at.max(self.from), end.min(self.to));
        let (part, whole) = (to.since(from), end.since(since.at));
        let long = self.softirqs.within(cpu, from, to);
        let all_long = self.softirqs.within(cpu, since.at, end);
        let total = out.map_or(all_long, |out| out.softirq.minus(since.softirq));
        let short = match out {
            Some(_) => spread(total.minus(all_long), part, whole),
            None => self.softirqs.short_within(cpu, from, to),
        };
        let mut slice = Slice { cpu, softirq: long.plus(short), ..Slice::default() };
        if let Some(out) = out {
            slice.account(&Taken::of(since, out, total), part, whole);
        }
        State::OnCpu(slice.within(part))
    }
}

/// Whether a slice began with `since` and ended with `out`, as far as the kernel tells.
pub(super) fn fits(since: &Switch, out: &Switch, begun: Option<MonoNs>) -> bool {
    let wall = out.at.since(since.at);
    since.cpu == out.cpu && begun.is_none_or(|begun| begun.0.abs_diff(since.at.0) <= tolerance(wall).0)
}

/// Whether all that was charged between two ends of slices belongs to the last slice.
fn is_one_slice(before: &Switch, out: &Switch, begun: MonoNs) -> bool {
    let ran = out.at.since(begun);
    let charged = before.account.exec.zip(out.account.exec).map(|(before, after)| after.minus(before));
    charged.is_none_or(|charged| charged <= ran.plus(tolerance(ran)))
}

/// What of a slice the kernel did not charge to the thread.
struct Taken {
    steal: DurNs,
    /// Beside softirqs that were seen.
    interrupts: DurNs,
    /// Charged to nobody that is known: a switch away and back may be missing.
    unknown: DurNs,
}

impl Taken {
    fn of(since: &Switch, out: &Switch, softirq: DurNs) -> Self {
        let steal = out.account.steal.minus(since.account.steal);
        let irq = out.account.irq.minus(since.account.irq);
        let wall = out.at.since(since.at);
        let unknown = match (since.account.exec, out.account.exec) {
            (Some(before), Some(after)) => wall.minus(after.minus(before)).minus(steal).minus(irq),
            _ => DurNs::ZERO,
        };
        let unknown = if unknown > tolerance(wall) { unknown } else { DurNs::ZERO };
        Self { steal, interrupts: irq.minus(softirq), unknown }
    }
}

/// How far a slice may differ from what the kernel charged for it: the tracepoint comes a little
/// after the run queue's clock was read, a CPU that looks for work before it is idle included, and
/// the two clocks are steered apart by up to 500 ppm.
const fn tolerance(wall: DurNs) -> DurNs {
    DurNs(1_000_000 + wall.0 / 1_024)
}

impl Slice {
    /// Takes out what was taken of the whole slice. Where in it is not told: of a part, only what
    /// does not fit into the rest is sure, and what fits into both is nobody's.
    fn account(&mut self, taken: &Taken, part: DurNs, whole: DurNs) {
        let rest = whole.minus(part);
        self.steal = taken.steal.minus(rest);
        self.interrupts = taken.interrupts.minus(rest);
        let unsure = DurNs(taken.steal.plus(taken.interrupts).0.min(rest.0).min(part.0));
        let unsure = if unsure > tolerance(part) { unsure } else { DurNs::ZERO };
        self.unknown = DurNs(taken.unknown.0.min(part.0)).plus(unsure);
    }

    /// The same, with no more gaps than there is time.
    fn within(mut self, part: DurNs) -> Self {
        let mut left = part;
        for gap in [&mut self.softirq, &mut self.interrupts, &mut self.steal, &mut self.unknown] {
            *gap = DurNs(gap.0.min(left.0));
            left = left.minus(*gap);
        }
        self
    }
}

const fn blocked<'a>(out: &Switch, leave: Leave, wake: Option<&'a Wake>) -> Blocked<'a> {
    Blocked { state: leave.state, stack: leave.stack, asleep_in: None, futex: leave.futex, from: out.at, wake }
}

const fn seen_blocked<'a>(at: MonoNs, asleep_in: &'a Frame, wake: Option<&'a Wake>) -> Blocked<'a> {
    Blocked { state: 1, stack: StackRef::NotTaken, asleep_in: Some(asleep_in), futex: None, from: at, wake }
}
