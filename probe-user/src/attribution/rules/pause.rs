//! `vm.paused`: the VMM stopped all vCPUs together, and started them again.

use super::guest::Guest;
use super::transmit::NOTICEABLE;
use super::vcpu::{Does, Vcpu, polled};
use super::{Leg, counted};
use crate::attribution::cause::Cause;
use crate::attribution::frame::Wait;
use crate::attribution::piece::Charge;
use crate::attribution::thread::Wake;
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use crate::journey::Stage;

/// A VMM starts its vCPUs within so long of one another.
const TOGETHER: DurNs = DurNs::from_millis(10);

/// A stretch in which a VM was paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
    how: How,
}

/// How a VM was paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// This thread of the VMM's started the vCPUs again.
    Resumed(TaskId),
    /// The threads of all vCPUs, of which this is one, were stopped or frozen from outside.
    Stopped(TaskId),
    /// The same of threads that slept then; this one of another process let them go on.
    Frozen(TaskId),
}

/// The pause within a leg, if there was one: of an emulator's VM, which packets that are `untaken`
/// have to prove.
pub(super) fn find(guest: &Guest<'_>, leg: &Leg<'_>, untaken: bool) -> Option<Pause> {
    let resumed = || resumed(guest, leg).filter(|pause| untaken || pause.is_proven(guest, leg));
    stopped(guest, leg).or_else(|| frozen(guest)).or_else(resumed)
}

/// A packet wakes its guest's vCPU at once. Here all slept in a futex of their VMM when it was handed
/// over, and none was woken before a thread of another process did that: no thread of another process
/// can end such a sleep but by letting go what it froze. A thread that is frozen in its sleep neither
/// switches nor is woken, so nothing else tells.
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/freezer.c> (`__freeze_task`)
fn frozen(guest: &Guest<'_>) -> Option<Pause> {
    let (from, to, wake) = guest.slept_since_delivery()?;
    let by = wake.filter(|wake| guest.is_outsider(wake))?.waker.task;
    Some(Pause { from, to, how: How::Frozen(by) })
}

/// A stretch in which an emulator's VM was paused or its guest halted, which looks the same: it went
/// on because some thread told its event loop to, and not because of a timer or a packet.
pub(super) fn suspected(guest: &Guest<'_>, leg: &Leg<'_>) -> Option<Pause> {
    resumed(guest, leg).filter(|pause| !pause.is_proven(guest, leg) && pause.was_told(leg))
}

/// The threads of all vCPUs were stopped at one time.
fn stopped(guest: &Guest<'_>, leg: &Leg<'_>) -> Option<Pause> {
    let stops = |vcpu: &Vcpu<'_>| {
        let stops = vcpu.turns.iter().filter(|turn| turn.does == Does::Stopped).map(|turn| turn.interval);
        stops.max_by_key(|at| at.time()).map(|at| (at.from, at.to))
    };
    let stops: Vec<(MonoNs, MonoNs)> = guest.vcpus.iter().map(stops).collect::<Option<_>>()?;
    let from = stops.iter().map(|(from, _)| *from).max()?.max(leg.from);
    let to = stops.iter().map(|(_, to)| *to).min()?.min(leg.to);
    let task = guest.vcpus.first()?.task;
    (from < to && to.since(from) >= NOTICEABLE).then_some(Pause { from, to, how: How::Stopped(task) })
}

/// Every vCPU slept in its VMM all that time, no one woke any of them, and one thread of the VMM,
/// which had waited in its event loop, started all together. An emulator's vCPUs sleep so too while
/// their guest is halted.
fn resumed(guest: &Guest<'_>, leg: &Leg<'_>) -> Option<Pause> {
    let sleeps: Vec<(MonoNs, &Wake)> = guest.vcpus.iter().map(|vcpu| slept(leg, vcpu)).collect::<Option<_>>()?;
    let from = sleeps.iter().map(|(from, _)| *from).max()?.max(leg.from);
    let (first, last) = (sleeps.iter().map(|(_, wake)| wake.at).min()?, sleeps.iter().map(|(_, wake)| wake.at).max()?);
    let resumer = sleeps.first()?.1.waker.task;
    let by_one = sleeps.iter().all(|(_, wake)| wake.by_thread() && wake.waker.task == resumer);
    let of_vmm = guest.vcpus.iter().any(|vcpu| vcpu.task.tgid == resumer.tgid && vcpu.task != resumer);
    let to = first.min(leg.to);
    let together = last.since(first) <= TOGETHER && to.since(from) >= NOTICEABLE && from < to;
    let rested = together && by_one && of_vmm && polled(leg.evidence, resumer, from, to);
    (rested && !woken_by_packet(leg, resumer, from, to)).then_some(Pause { from, to, how: How::Resumed(resumer) })
}

/// The last sleep in a futex of a vCPU, and what ended it.
fn slept<'a>(leg: &Leg<'_>, vcpu: &'a Vcpu<'a>) -> Option<(MonoNs, &'a Wake)> {
    let evidence = leg.evidence;
    let in_vmm = |blocked| evidence.wait(blocked).is_some_and(|(wait, _)| wait == Wait::Futex);
    let sleeps = vcpu.sleeps().filter(|(blocked, ..)| in_vmm(blocked) && !evidence.is_guest_halt(blocked));
    let (blocked, at, _) = sleeps.max_by_key(|(_, at, _)| at.time())?;
    Some((blocked.from.max(at.from.min(leg.from)), blocked.wake?))
}

/// Whether a packet ended the rest of the thread that started them.
fn woken_by_packet(leg: &Leg<'_>, resumer: TaskId, from: MonoNs, to: MonoNs) -> bool {
    let life = leg.evidence.life_at(resumer, to);
    let last = life.and_then(|life| life.wakes_before(to).next()).filter(|wake| wake.at >= from);
    last.is_some_and(Wake::by_packet)
}

impl Pause {
    /// KVM's vCPUs sleep elsewhere while their guest is halted, and a halted guest is handed its packets.
    fn is_proven(self, guest: &Guest<'_>, leg: &Leg<'_>) -> bool {
        let left = || leg.evidence.tap(leg.start.interface).is_some_and(|tap| tap.left(self.from, self.to));
        guest.vcpus.iter().all(|vcpu| vcpu.kvm) || left()
    }

    /// Whether a thread ended the rest of the one that started the vCPUs.
    fn was_told(self, leg: &Leg<'_>) -> bool {
        let How::Resumed(task) = self.how else { return false };
        let life = leg.evidence.life_at(task, self.to);
        let last = life.and_then(|life| life.wakes_before(self.to).next()).filter(|wake| wake.at >= self.from);
        last.is_none_or(|wake| !wake.by_timer() && !wake.by_packet())
    }

    /// Whether the VMM itself took the check's packet out of the tap while its guest was paused, though the
    /// kernel's worker takes those of that queue. That worker is stopped with the guest. When both go on, what
    /// the VMM has taken meanwhile is thrown away, since the queue is the worker's again; the worker that takes
    /// packets since then shows that it is.
    /// <https://gitlab.com/qemu-project/qemu/-/blob/v10.0.0/hw/net/virtio-net.c> (`virtio_net_vhost_status`)
    pub(super) fn swallowed(self, leg: &Leg<'_>) -> Option<String> {
        let (evidence, taker) = (leg.evidence, leg.start.task);
        let How::Resumed(resumer) = self.how else { return None };
        let handed = leg.journey.stamps.iter().rfind(|stamp| stamp.stage == Stage::VnicTx)?;
        let usual = evidence.tap(leg.start.interface)?.taker(handed.at)?;
        let taken = leg.start.stage == Stage::BackendRx && taker.tgid == resumer.tgid;
        let in_its_place = taken && !evidence.slept_in_vhost(taker, leg.to);
        let swallowed = leg.end.is_none() && self.to < leg.to && self.from <= leg.from && in_its_place;
        (swallowed && usual != taker && evidence.slept_in_vhost(usual, leg.to)).then(|| {
            let (taker, usual) = (evidence.name(taker, leg.to), evidence.name(usual, leg.to));
            format!("{taker} took the packet meanwhile in place of {usual}, which has the queue again: it is gone")
        })
    }

    /// It as a cause.
    pub(super) fn charge(self, leg: &Leg<'_>, (vcpu, vcpus): (TaskId, usize)) -> Charge {
        let evidence = leg.evidence;
        let (task, how) = match self.how {
            How::Resumed(task) => (task, format!("{} then started them together", evidence.name(task, self.to))),
            How::Stopped(task) => (task, "their threads were stopped or frozen, not by their VMM".to_owned()),
            How::Frozen(by) => {
                let name = evidence.name(by, self.to);
                (vcpu, format!("nothing woke one for the packet; {name}, of another process, then let them go on"))
            }
        };
        let name = evidence.interface(leg.start.interface);
        let fact = format!(
            "all of the {} of the guest behind {name} were off the CPU for {}, and nothing woke one",
            counted(vcpus as u64, "vCPU"),
            self.to.since(self.from)
        );
        let main = TaskId { tgid: task.tgid, tid: task.tgid };
        let whose = evidence.offender(main, self.to);
        Charge::new(Cause::VmPaused, Some(whose), fact).with(Some(how))
    }
}
