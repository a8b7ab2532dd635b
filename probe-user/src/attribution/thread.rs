//! One life of a thread: what is known of it, and what it did over a stretch of time.
//!
//! Switches, wake-ups and reads go in, in the order of their time; [`Life::intervals`] gives
//! back intervals that fill the stretch without overlap. Where a record is missing the state is
//! [`State::Unknown`] with the reason, never a guess.

use super::frame::Frame;
use super::futex::FutexWord;
use super::questions::Questions;
use super::symbol::StackRef;
use super::walk::{Kind, Walk};
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use probe_wire::{CpuAccount, Interrupt};
use std::collections::VecDeque;

/// A thread as another record names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) task: TaskId,
    pub(super) comm: [u8; 16],
}

impl Named {
    /// Whether it is a thread of the kernel's that mostly runs for microseconds at a time.
    pub(super) fn is_kernel_worker(&self) -> bool {
        const WORKERS: [&[u8]; 5] = [b"kworker/", b"ksoftirqd/", b"migration/", b"rcu_", b"rcuc/"];
        self.task.tid == self.task.tgid && WORKERS.iter().any(|name| self.comm.starts_with(name))
    }
}

/// How much the thread's CPU bandwidth groups have been throttled since they exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Throttled {
    pub(super) time: DurNs,
    pub(super) count: u64,
}

/// A thread's CPU time by the kernel's own account, and what its CPU kept out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    /// Charged to the thread so far, if the kernel tells. It grows only while the thread is on a
    /// CPU, and is up to date at both ends of a slice: before it tells of a switch, the kernel
    /// charges who leaves.
    pub(super) exec: Option<DurNs>,
    /// Taken by the hypervisor on that CPU so far.
    pub(super) steal: DurNs,
    /// Taken by interrupts on that CPU so far, softirqs included.
    pub(super) irq: DurNs,
}

impl From<CpuAccount> for Account {
    fn from(CpuAccount { exec_ns, steal_ns, irq_ns }: CpuAccount) -> Self {
        let exec = (exec_ns != CpuAccount::UNKNOWN.exec_ns).then_some(DurNs(exec_ns));
        Self { exec, steal: DurNs(steal_ns), irq: DurNs(irq_ns) }
    }
}

/// What both ends of a slice on a CPU have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) at: MonoNs,
    pub(super) cpu: u32,
    /// Softirq time of that CPU since attach.
    pub(super) softirq: DurNs,
    pub(super) throttled: Throttled,
    pub(super) account: Account,
    /// Who left for it, or who got the CPU after it.
    pub(super) other: Named,
}

/// How a thread gave up its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) state: u32,
    pub(super) preempted: bool,
    pub(super) stack: StackRef,
    /// How long it had had the CPU by the kernel's account, if that tells.
    pub(super) ran: Option<DurNs>,
    /// The futex that it went to sleep for, if that was told.
    pub(super) futex: Option<FutexWord>,
}

/// Who woke a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wake {
    pub(super) at: MonoNs,
    /// In an interrupt: the thread that it interrupted.
    pub(super) waker: Named,
    /// Softirq vector plus 1, 0 outside softirq.
    pub(super) softirq: u32,
    /// Whether softirqs are watched: else the waker may be what one of them interrupted.
    pub(super) softirqs_told: bool,
    /// What the wake-up interrupted.
    pub(super) interrupt: Interrupt,
    /// CPU the woken thread last ran on.
    pub(super) cpu: u32,
    /// What entered a watched socket right before, on the waker's CPU.
    pub(super) data: Option<Data>,
}

/// Data that entered a watched socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) socket: u64,
    /// A packet of a check brought it.
    pub(super) of_check: bool,
}

/// The record of what a wait is for is made by a program right behind that of the switch.
pub(super) const SAME_SWITCH: DurNs = DurNs(1_000_000);
/// Most sockets whose questions are looked at.
const MAX_SOCKETS: usize = 64;
/// Softirq vectors.
const TIMER: u32 = 1;
const NET_RX: u32 = 3;
const HRTIMER: u32 = 8;

/// Who ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The waker itself.
    Thread,
    /// A softirq of this vector, on top of the waker.
    Softirq(u32),
    /// A hard interrupt, on top of the waker: of all waits, a timer's.
    Interrupt,
    /// The waker, or an interrupt on top of it.
    Unsure,
}

impl Wake {
    /// Who ended the wait.
    pub(super) const fn by(&self) -> By {
        match (self.interrupt, self.softirq, self.waker.task.tid) {
            (Interrupt::Hard | Interrupt::Nmi, ..) => By::Interrupt,
            (_, 1.., _) => By::Softirq(self.softirq - 1),
            _ if !self.softirqs_told => By::Unsure,
            (Interrupt::Unknown, 0, 0) => By::Interrupt,
            (Interrupt::None, 0, 1..) => By::Thread,
            // An idle CPU also runs what other CPUs ask of it.
            (Interrupt::Unknown, ..) | (Interrupt::None, ..) => By::Unsure,
        }
    }

    /// Whether a thread woke it, and not something that interrupted that thread.
    pub(super) const fn by_thread(&self) -> bool {
        matches!(self.by(), By::Thread)
    }

    /// Whether receive softirq woke it.
    pub(super) const fn by_packet(&self) -> bool {
        matches!(self.by(), By::Softirq(NET_RX))
    }

    /// Whether a timer woke it: no device ends a wait for a futex, and no lock is released there.
    pub(super) const fn by_timer(&self) -> bool {
        matches!(self.by(), By::Interrupt | By::Softirq(TIMER | HRTIMER))
    }
}

/// Calls in a row on one socket that carries no checks, all alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) first: MonoNs,
    pub(super) last: MonoNs,
    pub(super) socket: u64,
    /// Received data, not sent some.
    pub(super) received: bool,
}

/// One thing that happened to a thread.
#[derive(Debug, Clone)]
pub(super) enum Mark {
    In(Switch),
    Out(Switch, Leave),
    Waking(Wake),
    /// It read from a watched socket, once or several times without anything else in between.
    Read {
        first: MonoNs,
        last: MonoNs,
        socket: u64,
        /// It found the end of a stream, and no data.
        ended: bool,
    },
    /// It sent or received on a socket without checks.
    Call(Call),
    /// Userspace looked at it; asleep in that kernel function, or unknown what it does.
    Seen {
        at: MonoNs,
        asleep_in: Option<Box<Frame>>,
    },
    /// It was the current thread of a CPU, though no switch says that it had got one.
    Present(MonoNs),
    /// Another thread was the current one of the CPU that it had got, though no switch says that
    /// it had left.
    Gone(MonoNs),
    Born(MonoNs),
    Ended(MonoNs),
}

impl Mark {
    /// When it happened; a run of reads counts from its first.
    pub(super) const fn at(&self) -> MonoNs {
        match self {
            Self::In(switch) | Self::Out(switch, _) => switch.at,
            Self::Waking(wake) => wake.at,
            Self::Read { first, .. } | Self::Call(Call { first, .. }) => *first,
            Self::Seen { at, .. } | Self::Present(at) | Self::Gone(at) | Self::Born(at) | Self::Ended(at) => *at,
        }
    }

    /// Takes in a mark that only says that the same went on.
    pub(super) fn absorbs(&mut self, next: &Self) -> bool {
        match (self, next) {
            (
                Self::Read { last, socket, ended, .. },
                Self::Read { last: now, socket: same_socket, ended: same_end, .. },
            ) if (&*socket, &*ended) == (same_socket, same_end) => {
                *last = *now;
                true
            }
            (Self::Call(call), Self::Call(next)) if (call.socket, call.received) == (next.socket, next.received) => {
                call.last = next.last;
                true
            }
            _ => false,
        }
    }

    /// From here on the state is known without looking further back.
    const fn settles(&self) -> bool {
        matches!(self, Self::In(_) | Self::Born(_) | Self::Seen { .. })
    }
}

/// Why a thread could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ready {
    Woken,
    Preempted,
    Yielded,
    Born,
}

/// How a thread got a CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) at: MonoNs,
    pub(super) cpu: u32,
    pub(super) throttled: Throttled,
    /// Softirq time of that CPU since attach, if the switch was recorded.
    pub(super) softirq: Option<DurNs>,
    /// Who left for it.
    pub(super) before: Option<Named>,
}

impl Arrival {
    pub(super) const fn recorded(switch: &Switch) -> Self {
        let Switch { at, cpu, throttled, softirq, other, .. } = *switch;
        Self { at, cpu, throttled, softirq: Some(softirq), before: Some(other) }
    }

    /// As the switch at the end of the slice tells it.
    pub(super) const fn told_by(out: &Switch, at: MonoNs) -> Self {
        Self { at, cpu: out.cpu, throttled: out.throttled, softirq: None, before: None }
    }

    pub(super) const fn is_recorded(&self) -> bool {
        self.before.is_some()
    }
}

/// A wait for a CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runnable<'a> {
    pub(super) ready: Ready,
    /// Its whole length, which may reach beyond the interval.
    pub(super) from: MonoNs,
    /// `None` while it lasts.
    pub(super) to: Option<Arrival>,
    /// The switch-out before it.
    pub(super) out: Option<&'a Switch>,
}

impl Runnable<'_> {
    /// By how much throttling grew from switch-out to switch-in, if both were seen.
    pub(super) fn throttled(&self) -> Option<Throttled> {
        let (out, back) = (self.out?.throttled, self.to?.throttled);
        Some(Throttled { time: back.time.minus(out.time), count: back.count.saturating_sub(out.count) })
    }

    /// Who ran instead: the thread that left for it, else the one that took over from it. Of the
    /// two, a worker of the kernel's that came between is not meant. Who got the CPU when a thread
    /// fell asleep is not whom it waited for after its wake-up.
    pub(super) fn instead(&self) -> Option<&Named> {
        let back = self.to.as_ref().and_then(|arrival| arrival.before.as_ref());
        let took_over = matches!(self.ready, Ready::Preempted | Ready::Yielded);
        let gone = self.out.filter(|_| took_over).map(|switch| &switch.other);
        let known = || [back, gone].into_iter().flatten().filter(|named| named.task.tid != 0);
        known().find(|named| !named.is_kernel_worker()).or_else(|| known().next())
    }
}

/// A wait for something else than a CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocked<'a> {
    pub(super) state: u32,
    pub(super) stack: StackRef,
    /// Kernel function it sleeps in, where no stack but `/proc` told it.
    pub(super) asleep_in: Option<&'a Frame>,
    /// The futex that it is for, if that was told.
    pub(super) futex: Option<FutexWord>,
    /// Its start, which may lie before the interval.
    pub(super) from: MonoNs,
    /// The end of the wait and who ended it, also when that lies behind the interval; `None` while
    /// it lasts.
    pub(super) wake: Option<&'a Wake>,
}

/// Time on a CPU, and how much of the interval was not the thread's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) cpu: u32,
    /// The CPU was in softirq.
    pub(super) softirq: DurNs,
    /// The CPU was in interrupts otherwise.
    pub(super) interrupts: DurNs,
    /// The hypervisor had the CPU.
    pub(super) steal: DurNs,
    /// Who had the CPU is not known: the kernel charged nobody that is known for it.
    pub(super) unknown: DurNs,
}

impl Slice {
    /// What of it falls to `part` of `whole`.
    pub(super) fn part(&self, part: DurNs, whole: DurNs) -> Self {
        let of = |time| spread(time, part, whole);
        let Self { cpu, softirq, interrupts, steal, unknown } = *self;
        Self { cpu, softirq: of(softirq), interrupts: of(interrupts), steal: of(steal), unknown: of(unknown) }
    }

    /// All that was not the thread's, or may not have been.
    pub(super) fn gaps(&self) -> DurNs {
        self.softirq.plus(self.interrupts).plus(self.steal).plus(self.unknown)
    }
}

/// What a thread does.
#[derive(Debug, Clone, Copy)]
pub(super) enum State<'a> {
    OnCpu(Slice),
    Runnable(Runnable<'a>),
    Blocked(Blocked<'a>),
    /// Stopped, traced or frozen, with the kernel's state.
    Stopped {
        state: u32,
    },
    Unknown(&'static str),
}

/// A stretch of time in one state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval<'a> {
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
    pub(super) state: State<'a>,
}

impl Interval<'_> {
    pub(super) const fn time(&self) -> DurNs {
        self.to.since(self.from)
    }
}

/// Softirq time of a CPU over a stretch, as far as single records tell it.
pub(super) trait SoftirqRuns {
    /// Time of long softirqs on `cpu` between `from` and `to`.
    fn within(&self, cpu: u32, from: MonoNs, to: MonoNs) -> DurNs;

    /// Time of the short ones there, of which only sums are known.
    fn short_within(&self, cpu: u32, from: MonoNs, to: MonoNs) -> DurNs;
}

/// What is known of one life of a thread.
#[derive(Debug)]
pub(super) struct Life {
    /// Kernel start time, 0 if unknown.
    pub(super) start_ns: u64,
    /// `start_ns` is the kernel's own, not rounded to a clock tick by `/proc`.
    pub(super) exact: bool,
    pub(super) comm: [u8; 16],
    pub(super) cgroup: String,
    pub(super) marks: VecDeque<Mark>,
    /// First record.
    pub(super) since: MonoNs,
    /// Up to when it has been told what the thread did.
    pub(super) told_until: MonoNs,
    /// What it had asked before the first of its marks.
    questions: Questions,
    course: Course,
}

/// Where the marks of a life have come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// On no CPU, or not known to be on one.
    Off,
    /// It got this CPU.
    On(u32),
    /// It is known to be on a CPU, and which switches are missing is not.
    Present,
}

impl Life {
    pub(super) const fn new(start_ns: u64, exact: bool, since: MonoNs) -> Self {
        Self {
            start_ns,
            exact,
            comm: [0; 16],
            cgroup: String::new(),
            marks: VecDeque::new(),
            since,
            told_until: MonoNs(0),
            questions: Questions::NONE,
            course: Course::Off,
        }
    }

    /// Whether being the current thread of `cpu` is news.
    pub(super) fn denies_presence(&self, cpu: u32) -> bool {
        !matches!(self.course, Course::Present) && self.course != Course::On(cpu)
    }

    /// Whether it is on `cpu` as far as its marks tell.
    pub(super) fn is_on(&self, cpu: u32) -> bool {
        self.course == Course::On(cpu)
    }

    /// The CPU that it is on as far as its marks tell.
    pub(super) const fn cpu(&self) -> Option<u32> {
        match self.course {
            Course::On(cpu) => Some(cpu),
            Course::Off | Course::Present => None,
        }
    }

    /// Adds a mark, unless the last one takes it in; whether it was added.
    pub(super) fn add(&mut self, mark: Mark) -> bool {
        if self.marks.back_mut().is_some_and(|last| last.absorbs(&mark)) {
            return false;
        }
        self.course = match (&mark, self.course) {
            (Mark::In(switch), _) => Course::On(switch.cpu),
            (Mark::Present(_), _) => Course::Present,
            (Mark::Read { .. } | Mark::Call(_), course)
            | (Mark::Waking(_) | Mark::Seen { .. }, course @ Course::On(_)) => course,
            _ => Course::Off,
        };
        self.marks.push_back(mark);
        true
    }

    /// Forgets what is not needed to tell the state from `before` on; returns how many marks.
    pub(super) fn trim(&mut self, before: MonoNs) -> usize {
        let end = self.marks.partition_point(|mark| mark.at() <= before);
        let keep_from = self.settled_before(end).unwrap_or(0);
        let forgotten = self.marks.drain(..keep_from).filter_map(|mark| match mark {
            Mark::Call(call) => Some(call),
            _ => None,
        });
        self.questions.take(forgotten);
        if self.marks.capacity() > 1024 && self.marks.len() < self.marks.capacity() / 4 {
            self.marks.shrink_to(self.marks.len() * 2);
        }
        keep_from
    }

    /// Start of the slice in which it was on CPU at `at`; `at` when it was not.
    pub(super) fn on_cpu_since(&self, at: MonoNs) -> MonoNs {
        let end = self.marks.partition_point(|mark| mark.at() <= at);
        let switch = self.marks.range(..end).rev().find(|mark| matches!(mark, Mark::In(_) | Mark::Out(..)));
        switch.filter(|mark| matches!(mark, Mark::In(_))).map_or(at, Mark::at)
    }

    /// When its state last changed before `at`, wake-ups aside.
    pub(super) fn last_change_before(&self, at: MonoNs) -> Option<MonoNs> {
        let end = self.marks.partition_point(|mark| mark.at() < at);
        let changes = |mark: &&Mark| !matches!(mark, Mark::Read { .. } | Mark::Call(_) | Mark::Waking(_));
        self.marks.range(..end).rev().find(changes).map(Mark::at)
    }

    /// Whether it ended, and nothing of it lies behind `before`.
    pub(super) fn over_before(&self, before: MonoNs) -> bool {
        let ended = self.marks.iter().rev().take(3).any(|mark| matches!(mark, Mark::Ended(_)));
        ended && self.marks.back().is_some_and(|mark| mark.at() < before)
    }

    /// The futex of the wait that began right before `at`.
    pub(super) fn learn_futex(&mut self, at: MonoNs, word: FutexWord) {
        // It may have been woken already.
        let mut last = self.marks.iter_mut().rev().skip_while(|mark| matches!(mark, Mark::Waking(_)));
        let begun = last.next().and_then(|mark| match mark {
            Mark::Out(switch, leave) => Some((switch.at, leave)),
            _ => None,
        });
        if let Some((left, leave)) = begun
            && at.since(left) <= SAME_SWITCH
        {
            leave.futex = Some(word);
        }
    }

    /// The futex that it waits for, as far as is known.
    pub(super) fn waits_for_futex(&self) -> Option<FutexWord> {
        match self.marks.back()? {
            Mark::Out(_, leave) => leave.futex,
            _ => None,
        }
    }

    /// Whether it had a CPU, or may have had one, between `from` and `to`.
    pub(super) fn ran_within(&self, from: MonoNs, to: MonoNs) -> bool {
        let begin = self.marks.partition_point(|mark| mark.at() < from);
        let within = self.marks.range(begin..).take_while(|mark| mark.at() < to);
        within.into_iter().any(|mark| !matches!(mark, Mark::Waking(_) | Mark::Seen { .. }))
    }

    /// What the thread did between `from` and `to`: intervals without gap or overlap. `seen` is
    /// when it was last known to be the current thread of the CPU that it got last.
    pub(super) fn intervals<'a>(
        &'a self,
        from: MonoNs,
        to: MonoNs,
        seen: MonoNs,
        softirqs: &dyn SoftirqRuns,
    ) -> Walked<'a> {
        let begin = self.marks.partition_point(|mark| mark.at() <= from);
        let start = self.settled_before(begin).unwrap_or(0);
        let mut walk = Walk::new(from, to, seen, softirqs);
        let mut steps = 0;
        for mark in self.marks.range(start..) {
            walk.step(mark);
            steps += 1;
            if walk.cursor >= to && !walk.is_on_trial() {
                break;
            }
        }
        let open_since = Some(walk.cursor).filter(|since| *since > MonoNs(0) && *since < to);
        Walked { intervals: walk.finish(), steps, open_since }
    }

    /// What it did first on any socket after a wake-up, before it slept again.
    pub(super) fn next_call(&self, wake: &Wake) -> Option<NextCall> {
        let begin = self.marks.partition_point(|mark| mark.at() <= wake.at);
        let awake = self.marks.range(begin..).take_while(|mark| match mark {
            Mark::Out(_, leave) => matches!(Kind::of(*leave), Kind::Ready(_)),
            _ => true,
        });
        awake.into_iter().find_map(|mark| match mark {
            Mark::Read { socket, ended, .. } => Some(NextCall::Read { socket: *socket, ended: *ended }),
            Mark::Call(call) => Some(NextCall::Other(*call)),
            _ => None,
        })
    }

    /// Whether a question of its own was open on `socket` at `at`: the last that it did there was
    /// to send.
    pub(super) fn asked(&self, socket: u64, at: MonoNs) -> bool {
        self.calls_before(at).find(|call| call.socket == socket).is_some_and(|call| !call.received)
    }

    /// The sockets on which the last that it did from `from` to `to` was to send, the latest first.
    pub(super) fn open_questions(&self, from: MonoNs, to: MonoNs) -> Vec<u64> {
        let (mut seen, mut open) = (Vec::new(), Vec::new());
        for call in self.calls_before(to).take_while(|call| call.last >= from) {
            if seen.len() < MAX_SOCKETS && !seen.contains(&call.socket) {
                seen.push(call.socket);
                open.extend((!call.received).then_some(call.socket));
            }
        }
        open
    }

    /// Its last call before `at` on a socket that carries no checks.
    pub(super) fn last_call_before(&self, at: MonoNs) -> Option<&Call> {
        self.calls_before(at).next()
    }

    /// Its calls before `at` on sockets that carry no checks, the latest first.
    fn calls_before(&self, at: MonoNs) -> impl Iterator<Item = &Call> {
        let end = self.marks.partition_point(|mark| mark.at() <= at);
        let kept = self.marks.range(..end).rev().filter_map(|mark| match mark {
            Mark::Call(call) => Some(call),
            _ => None,
        });
        kept.chain(self.questions.latest_first().filter(move |call| call.first <= at))
    }

    /// When it first read from a watched socket from `from` on, and from which.
    pub(super) fn read_after(&self, from: MonoNs) -> Option<(MonoNs, u64)> {
        let begin = self.marks.partition_point(|mark| mark.at() < from).saturating_sub(1);
        self.marks.range(begin..).find_map(|mark| match mark {
            Mark::Read { first, last, socket, .. } if *last >= from => Some(((*first).max(from), *socket)),
            _ => None,
        })
    }

    /// Its wake-ups up to `to`, the latest first.
    pub(super) fn wakes_before(&self, to: MonoNs) -> impl Iterator<Item = &Wake> {
        let end = self.marks.partition_point(|mark| mark.at() <= to);
        self.marks.range(..end).rev().filter_map(|mark| match mark {
            Mark::Waking(wake) => Some(wake),
            _ => None,
        })
    }

    /// The last wait before `at`: the stack it slept in.
    pub(super) fn last_sleep_before(&self, at: MonoNs) -> Option<StackRef> {
        let end = self.marks.partition_point(|mark| mark.at() <= at);
        self.marks.range(..end).rev().find_map(|mark| match mark {
            Mark::Out(_, leave) if matches!(Kind::of(*leave), Kind::Asleep) => Some(leave.stack),
            _ => None,
        })
    }

    fn settled_before(&self, end: usize) -> Option<usize> {
        (0..end).rev().find(|index| self.marks.get(*index).is_some_and(Mark::settles))
    }
}

/// What a thread did first on any socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextCall {
    /// It read from a socket that carries checks, or found the end of a stream there.
    Read { socket: u64, ended: bool },
    /// It used another one.
    Other(Call),
}

/// What a thread did, and what it took to tell.
#[derive(Debug)]
pub(super) struct Walked<'a> {
    pub(super) intervals: Vec<Interval<'a>>,
    /// Marks that were looked at.
    pub(super) steps: u64,
    /// The last interval has not ended: the record on which it rests.
    pub(super) open_since: Option<MonoNs>,
}

/// The part of `amount` that falls to `part` of `whole`.
pub(super) fn spread(amount: DurNs, part: DurNs, whole: DurNs) -> DurNs {
    let share = u128::from(amount.0) * u128::from(part.0) / u128::from(whole.0.max(1));
    DurNs(u64::try_from(share).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::walk::{NOT_RUN_YET, STILL_ON, WAKE_UNSEEN};
    use crate::attribution::story::{Actor, EPOLL, FUTEX, HOG, IDLE, MS, RECEIVE, SERVER, Story, WORKER, at};

    fn rows(rows: &[(u64, u64, &str)]) -> Vec<(u64, u64, String)> {
        rows.iter().map(|(from, to, word)| (*from, *to, (*word).to_owned())).collect()
    }

    fn unknown(reason: &str) -> String {
        format!("unknown: {reason}")
    }

    #[test]
    fn a_life_is_cut_into_intervals() {
        let not_run_yet = unknown(NOT_RUN_YET);
        let mut story = Story::new();
        story.runs(10, SERVER).preempted(20, SERVER, HOG).runs(30, SERVER).sleeps(40, SERVER, 1, FUTEX);
        story.wakes(60, WORKER, SERVER).runs(65, SERVER).leaves(70, SERVER, (0, 0), ([0; 20], 0), HOG);
        let expected = [
            (5, 10, "unknown: before the first record of the thread"),
            (10, 20, "on cpu"),
            (20, 30, "runnable preempted"),
            (30, 40, "on cpu"),
            (40, 60, "blocked, woken by 801"),
            (60, 65, "runnable woken"),
            (65, 70, "on cpu"),
            (70, 90, not_run_yet.as_str()),
        ];
        assert_eq!(story.did(SERVER, 5, 90), rows(&expected));
        assert_eq!(story.did(SERVER, 45, 50), rows(&[(45, 50, "blocked, woken by 801")]));
    }

    #[test]
    fn a_wake_up_while_falling_asleep_makes_the_thread_runnable() {
        let mut story = Story::new();
        story.runs(10, SERVER).wakes(38, WORKER, SERVER).sleeps(40, SERVER, 1, FUTEX).runs(60, SERVER);
        let expected = [(10, 40, "on cpu"), (40, 60, "runnable woken"), (60, 70, &*unknown(STILL_ON))];
        assert_eq!(story.did(SERVER, 10, 70), rows(&expected));
    }

    #[test]
    fn a_wake_up_long_before_a_sleep_is_not_of_that_sleep() {
        let mut story = Story::new();
        story.runs(10, SERVER).wakes(38, WORKER, SERVER).sleeps(900, SERVER, 1, FUTEX).runs(MS, SERVER);
        assert_eq!(story.did(SERVER, 800, MS), rows(&[(800, 900, "on cpu"), (900, MS, &unknown(WAKE_UNSEEN))]));
    }

    #[test]
    fn a_reused_number_does_not_join_two_lives() {
        let mut story = Story::new();
        story.task(1, SERVER, 'S', Some("ep_poll")).runs(10, SERVER).exits(20, SERVER);
        story.leaves(21, SERVER, (0x80, 0), ([0; 20], 0), IDLE);
        story.tell();
        let mut next = Story::new();
        next.evidence = story.evidence;
        let reused = Actor(SERVER.0, SERVER.1, "other");
        next.forks_at(500, WORKER, reused, 501).runs_at(600, reused, 501);
        let expected = [
            (400, 500, "unknown: before the first record of the thread"),
            (500, 600, "runnable born"),
            (600, 700, &unknown(STILL_ON)),
        ];
        assert_eq!(next.did(reused, 400, 700), rows(&expected));
        assert_eq!(next.did(SERVER, 12, 30), rows(&[(12, 20, "on cpu"), (20, 30, "unknown: the thread had ended")]));
    }

    #[test]
    fn proc_tells_the_state_before_the_first_record_and_is_joined_by_its_rounded_start() {
        let mut story = Story::new();
        story.task(5, SERVER, 'S', Some("ep_poll")).packet_wakes(50, SERVER).runs(55, SERVER);
        let expected = [
            (0, 5, "unknown: before the first record of the thread"),
            (5, 50, "blocked, woken by 900"),
            (50, 55, "runnable woken"),
            (55, 60, &unknown(STILL_ON)),
        ];
        assert_eq!(story.did(SERVER, 0, 60), rows(&expected));
    }

    #[test]
    fn softirq_time_is_cut_to_the_stretch() {
        let mut story = Story::new();
        story.softirq_total(100).runs(0, SERVER).softirq_total(100 + 400).sleeps(1_000, SERVER, 1, EPOLL);
        story.softirq(100, 300, 3);
        assert_eq!(story.did(SERVER, 0, 1_000), rows(&[(0, 1_000, "on cpu, softirq 400 µs")]));
        assert_eq!(story.did(SERVER, 500, 1_000), rows(&[(500, 1_000, "on cpu, softirq 100 µs")]));
        assert_eq!(story.did(SERVER, 100, 300), rows(&[(100, 300, "on cpu, softirq 200 µs")]));
    }

    #[test]
    fn trimming_keeps_the_state_at_its_instant() {
        let mut story = Story::new();
        for round in 0..1_000 {
            story.runs(round * 100, SERVER).sleeps(round * 100 + 10, SERVER, 1, RECEIVE);
            story.packet_wakes(round * 100 + 90, SERVER);
        }
        let whole = story.did(SERVER, 90_050, 100_000);
        story.evidence.trim(at(90_050));
        assert_eq!(story.did(SERVER, 90_050, 100_000), whole);
        let early = story.did(SERVER, 10, 50);
        assert_eq!(early, rows(&[(10, 50, "unknown: before the first record of the thread")]));
    }

    #[test]
    fn an_ended_thread_is_forgotten() {
        let mut story = Story::new();
        story.runs(10, SERVER).exits(20, SERVER);
        story.tell().evidence.trim(at(30));
        assert_eq!(story.did(SERVER, 10, 50), rows(&[]));
    }

    #[test]
    fn a_missing_switch_is_unknown() {
        let mut story = Story::new();
        story.runs(10, SERVER).runs(30, SERVER).sleeps(40, SERVER, 1, FUTEX).sleeps(60, SERVER, 1, FUTEX);
        let missing = "unknown: a switch record of the thread is missing";
        let expected = [(10, 30, missing), (30, 40, "on cpu"), (40, 60, missing), (60, 70, "blocked")];
        assert_eq!(story.did(SERVER, 10, 70), rows(&expected));
    }
}
