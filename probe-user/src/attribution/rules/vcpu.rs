//! What the threads did that run a guest's code.
//!
//! A name says that a thread is a vCPU, and its kernel frames prove it or prove otherwise: KVM's
//! vCPUs sleep in KVM, those of an emulator in a futex, and none of them ever polls or naps.

use super::Leg;
use super::transmit::NOTICEABLE;
use crate::attribution::evidence::{Evidence, text};
use crate::attribution::frame::Wait;
use crate::attribution::thread::{Blocked, By, Interval, State, Wake};
use crate::attribution::walk::is_contradicted;
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use crate::target::VmThreadRole;

/// Wake-ups looked through for one by the VMM.
const MAX_WAKES: usize = 64;
const UNKNOWN_WAKER: &str = "a vCPU slept, and whether its guest had halted is not known";
const IN_THE_VMM: &str = "a vCPU slept in its VMM, and what for is not known";

/// What a vCPU's thread did, as far as its guest is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Does {
    /// It was on a CPU.
    Runs,
    /// It could run, and did not.
    Waits,
    /// The guest had nothing for it to do.
    Halted,
    /// It slept inside the VMM or the kernel: for a lock, a disk, memory.
    Held,
    /// Its thread was stopped or frozen.
    Stopped,
    Unknown(String),
    /// Its records contradict each other, so it may have done anything.
    Doubted(&'static str),
}

/// A stretch of what a vCPU did.
#[derive(Debug, Clone)]
pub(super) struct Turn<'a> {
    pub(super) interval: Interval<'a>,
    pub(super) does: Does,
}

/// A thread that runs guest code.
#[derive(Debug)]
pub(super) struct Vcpu<'a> {
    pub(super) task: TaskId,
    /// It was seen in the kernel's run of a guest.
    pub(super) kvm: bool,
    /// More than its name says that it is one.
    pub(super) sure: bool,
    /// What it did, in the order of time, without gaps.
    pub(super) turns: Vec<Turn<'a>>,
}

impl Vcpu<'_> {
    /// The waits of its thread in which the guest may have had nothing to do.
    pub(super) fn sleeps(&self) -> impl Iterator<Item = (&Blocked<'_>, &Interval<'_>, &Does)> {
        self.turns.iter().filter_map(|turn| match &turn.interval.state {
            State::Blocked(blocked) => Some((blocked, &turn.interval, &turn.does)),
            _ => None,
        })
    }
}

/// The vCPUs of the VM that holds a leg's tap, and what they did from `from` on.
pub(super) fn vcpus<'a>(leg: &Leg<'a>, holders: &[u32], from: MonoNs) -> Vec<Vcpu<'a>> {
    let evidence = leg.evidence;
    let threads = evidence.threads_of(holders);
    threads.into_iter().filter_map(|task| vcpu(evidence, holders, task, (from, leg.to))).collect()
}

fn vcpu<'a>(evidence: &'a Evidence, holders: &[u32], task: TaskId, (from, to): (MonoNs, MonoNs)) -> Option<Vcpu<'a>> {
    let life = evidence.life_at(task, to)?;
    let named = is_named_vcpu(evidence, task, to);
    let slept_in_kvm = evidence.slept_in_guest_run(task, to) || evidence.exits().any(task);
    if !named && !slept_in_kvm {
        return None;
    }
    let intervals = evidence.intervals(task, from, to);
    let halts =
        |interval: &Interval<'_>| matches!(&interval.state, State::Blocked(wait) if evidence.is_guest_halt(wait));
    let kvm = slept_in_kvm || intervals.iter().any(halts);
    let belied = !kvm && evidence.last_wait(task, from).is_some_and(is_no_vcpu_s);
    let turn = |interval: Interval<'a>| Some(Turn { does: does(evidence, holders, (task, kvm), &interval)?, interval });
    let turns = intervals.into_iter().map(turn).collect::<Option<Vec<_>>>()?;
    let by_vmm = |wake: &Wake| wake.by_thread() && holders.contains(&wake.waker.task.tgid) && wake.waker.task != task;
    let sure = kvm || life.wakes_before(to).take(MAX_WAKES).any(by_vmm);
    (!belied && !turns.is_empty()).then_some(Vcpu { task, kvm, sure, turns })
}

fn is_named_vcpu(evidence: &Evidence, task: TaskId, at: MonoNs) -> bool {
    let comm = evidence.life_at(task, at).map_or(String::new(), |life| text(&life.comm));
    VmThreadRole::by_name(&comm) == VmThreadRole::Vcpu
}

/// What no vCPU waits for: it answers its guest, and nobody else.
const fn is_no_vcpu_s(wait: Wait) -> bool {
    matches!(wait, Wait::Poll | Wait::Sleep | Wait::Receive | Wait::Accept | Wait::Connect | Wait::SendBuffer)
}

/// `None` if no vCPU does that.
fn does(evidence: &Evidence, holders: &[u32], vcpu: (TaskId, bool), interval: &Interval<'_>) -> Option<Does> {
    Some(match &interval.state {
        State::OnCpu(_) => Does::Runs,
        State::Runnable(_) => Does::Waits,
        State::Stopped { .. } => Does::Stopped,
        State::Unknown(reason) if is_contradicted(reason) => Does::Doubted(reason),
        State::Unknown(reason) => Does::Unknown((*reason).to_owned()),
        State::Blocked(blocked) if evidence.is_guest_halt(blocked) => Does::Halted,
        State::Blocked(blocked) => match evidence.wait(blocked).map(|(wait, _)| wait) {
            Some(wait) if is_no_vcpu_s(wait) => return None,
            Some(Wait::Stopped) => Does::Stopped,
            Some(Wait::Futex) => in_futex(evidence, holders, vcpu, (interval, blocked)),
            Some(_) => Does::Held,
            None => Does::Unknown(evidence.unknown_wait(blocked)),
        },
    })
}

/// A vCPU of an emulator sleeps in a futex when its guest halts, and any vCPU while it waits for a
/// lock of its VMM. What the thread that ended it did meanwhile tells which: who has the lock works.
fn in_futex(
    evidence: &Evidence,
    holders: &[u32],
    (task, kvm): (TaskId, bool),
    (interval, blocked): (&Interval<'_>, &Blocked<'_>),
) -> Does {
    let unsure = || Does::Unknown(if kvm { IN_THE_VMM } else { UNKNOWN_WAKER }.to_owned());
    let main = TaskId { tgid: task.tgid, tid: task.tgid };
    let other = match blocked.wake.map(|wake| (wake.by(), wake.waker.task)) {
        None => main,
        // One vCPU ends another's halt by an interrupt to it; the other is looked at by itself.
        Some((By::Thread, waker)) if !kvm && is_named_vcpu(evidence, waker, interval.to) => return Does::Halted,
        Some((By::Thread, waker)) if holders.contains(&waker.tgid) => waker,
        // By a signal, or by letting go what was frozen.
        Some((By::Unsure | By::Thread, _)) => return unsure(),
        Some(_) => return if kvm { unsure() } else { Does::Halted },
    };
    match (rest(evidence, other, interval.from, interval.to), blocked.wake) {
        _ if !kvm && interval.time() < NOTICEABLE => Does::Halted,
        (Rest::Idle, _) if !kvm => Does::Halted,
        (Rest::Stuck, Some(_)) => Does::Held,
        // Who works need not have the lock, and a halted guest has no use for that.
        (Rest::Works, Some(_)) if kvm => Does::Held,
        (Rest::Idle | Rest::Works | Rest::Stuck | Rest::Unknown, _) => unsure(),
    }
}

/// What a thread did for at least half of a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// It waited for work.
    Idle,
    /// It was on a CPU.
    Works,
    /// It had work, and waited for a CPU, a disk, memory or a lock.
    Stuck,
    /// None of these.
    Unknown,
}

/// What `task` did for at least half of the time.
pub(super) fn rest(evidence: &Evidence, task: TaskId, from: MonoNs, to: MonoNs) -> Rest {
    let mut sums = [(Rest::Idle, DurNs::ZERO), (Rest::Works, DurNs::ZERO), (Rest::Stuck, DurNs::ZERO)];
    for interval in evidence.intervals(task, from, to) {
        let did = match &interval.state {
            State::OnCpu(_) => Rest::Works,
            State::Runnable(_) => Rest::Stuck,
            State::Blocked(blocked) => match evidence.wait(blocked).map(|(wait, _)| wait) {
                Some(Wait::Poll | Wait::Sleep | Wait::Receive | Wait::Accept) => Rest::Idle,
                Some(_) => Rest::Stuck,
                None => Rest::Unknown,
            },
            State::Stopped { .. } | State::Unknown(_) => Rest::Unknown,
        };
        let sum = sums.iter_mut().find(|(known, _)| *known == did);
        sum.into_iter().for_each(|(_, sum)| *sum = sum.plus(interval.time()));
    }
    let half = to.since(from).0.div_ceil(2);
    sums.into_iter().find(|(_, sum)| sum.0 >= half).map_or(Rest::Unknown, |(did, _)| did)
}

/// Whether `task` waited in an event loop for at least half of the time.
pub(super) fn polled(evidence: &Evidence, task: TaskId, from: MonoNs, to: MonoNs) -> bool {
    let polls = |interval: &&Interval<'_>| {
        let State::Blocked(blocked) = &interval.state else { return false };
        evidence.wait(blocked).is_some_and(|(wait, _)| wait == Wait::Poll)
    };
    let intervals = evidence.intervals(task, from, to);
    let time = intervals.iter().filter(polls).fold(DurNs::ZERO, |sum, interval| sum.plus(interval.time()));
    time.0 >= to.since(from).0.div_ceil(2)
}
