//! `vm.vcpu_steal` and `vm.guest_internal`: what the VM that holds a check did, by its vCPUs.
//!
//! Of several vCPUs, those count that the packet's delivery woke and that gave the reply back, and
//! who woke those. Where these disagree, which of them held the check is not known from outside.

use super::thread::{Role, Seat, charge};
use super::transmit::NOTICEABLE;
use super::vcpu::{Does, Turn, Vcpu, vcpus};
use super::{Leg, counted, pause, vm};
use crate::attribution::cause::{Cause, Family};
use crate::attribution::exits::Handled;
use crate::attribution::frame::Wait;
use crate::attribution::ledger::Offender;
use crate::attribution::piece::{Charge, Found, Piece};
use crate::attribution::thread::{State, Wake};
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use crate::journey::Stage;
use std::collections::HashMap;
use std::rc::Rc;

/// Stretches of one kind that are looked at one by one, the longest; others are charged alike.
const MOST_LOOKED_AT: usize = 256;

const COMPUTES: &str = "delivered to the guest, and the guest computes";
const WAITS: &str = "delivered to the guest, and the guest waits by its own choice";
const HELD: &str = "a vCPU has work and does not run it: it waits inside its VMM";
const EXITS: &str = "a vCPU has work and does not run it: the host handles exits of its guest";
const UNTOLD: &str = "its vCPU was on a CPU, and whether that ran the guest or handled an exit of it is not watched";
const PAUSED_OR_HALTED: &str = "in the VM: its vCPUs slept until its VMM was told something, and whether it was paused or its guest halted looks the same";
const NOT_WOKEN: &str =
    "in the VM: no vCPU was woken since the packet was handed over: it is paused, frozen, or was not told";
const SWALLOWED: &str = "the VMM took the check out of the tap while the VM was paused, and threw it away";
const GONE_OR_GIVEN: &str =
    "in the VM: it was paused when it had the check or was to get it, and whether its guest got it then is not known";
const STOPPED: &str = "a vCPU has work and does not run it: its thread is stopped or frozen";
const DISAGREE: &str =
    "a vCPU ran or was halted while another waited, and which of them held the check is not known from the host";

/// A VM, as far as its threads are known.
pub(super) struct Guest<'a> {
    leg: &'a Leg<'a>,
    holders: &'a [u32],
    from: MonoNs,
    pub(super) vcpus: Vec<Vcpu<'a>>,
}

/// What the VM did over a stretch of time, and by which vCPU that is so.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stretch {
    from: MonoNs,
    to: MonoNs,
    /// Index of the vCPU.
    by: usize,
    does: Does,
}

impl Stretch {
    const fn time(&self) -> DurNs {
        self.to.since(self.from)
    }
}

impl<'a> Guest<'a> {
    /// The VM that holds a leg's tap, if vCPUs of it are known.
    pub(super) fn of(leg: &'a Leg<'a>, from: MonoNs) -> Option<Self> {
        let evidence = leg.evidence;
        let holders = evidence.tap(leg.start.interface)?.holders.as_slice();
        if leg.to.since(from) < NOTICEABLE || !evidence.sees().switches || holders.is_empty() {
            return None;
        }
        let vcpus = vcpus(leg, holders, from);
        (!vcpus.is_empty()).then_some(Self { leg, holders, from, vcpus })
    }

    /// What the VM did with the check from when it had it.
    pub(super) fn held(&self) -> Vec<Piece> {
        let span = self.leg.span;
        let paused = if let Some(pause) = pause::find(self, self.leg, false) {
            let charge = pause.charge(self.leg, self.count());
            if let Some(fact) = pause.swallowed(self.leg) {
                let charge = charge.with(Some(fact)).meaning(SWALLOWED);
                return vec![Piece::charged(self.from, self.leg.to, span, charge)];
            }
            Piece::charged(pause.from, pause.to, span, charge)
        } else if let Some(pause) = self.suspected_pause() {
            Piece::unexplained(pause.from, pause.to, span, PAUSED_OR_HALTED)
        } else if let Some((from, to, None)) = self.slept_since_delivery() {
            Piece::unexplained(from, to, span, NOT_WOKEN)
        } else {
            return self.worked();
        };
        let pause = (paused.from, paused.to);
        let until = if self.keeps_check_over(pause.0) { self.leg.to } else { pause.1 };
        let outside = self.worked().into_iter().flat_map(|piece| piece.without(pause.0, pause.1));
        let mut pieces: Vec<Piece> = outside.filter(|piece| piece.from < until).chain([paused]).collect();
        pieces.extend((until < self.leg.to).then(|| Piece::unexplained(until, self.leg.to, span, GONE_OR_GIVEN)));
        pieces.sort_by_key(|piece| piece.from);
        pieces
    }

    /// Whether the check is with the guest behind a pause that begins at `from`. One that has no answer may
    /// have been lost with that, unless it was in the guest's memory before: the kernel's worker puts it there.
    fn keeps_check_over(&self, from: MonoNs) -> bool {
        let in_memory = || self.leg.evidence.slept_in_vhost(self.leg.start.task, self.leg.to);
        self.leg.end.is_some() || from > self.from && in_memory()
    }

    /// For how long of a stretch that one of its vCPUs was on a CPU that was so for longest.
    pub(super) fn was_busy(&self, from: MonoNs, to: MonoNs) -> DurNs {
        let within = |turn: &Turn<'_>| turn.interval.to.min(to).since(turn.interval.from.max(from).min(to));
        let of_vcpu = |vcpu: &Vcpu<'_>| {
            let ran = vcpu.turns.iter().filter(|turn| turn.does == Does::Runs);
            ran.map(within).fold(DurNs::ZERO, DurNs::plus)
        };
        self.vcpus.iter().map(of_vcpu).max().unwrap_or(DurNs::ZERO)
    }

    /// When one of its vCPUs last ran, or may have.
    pub(super) fn last_ran(&self) -> MonoNs {
        let may_run = |turn: &&Turn<'_>| matches!(turn.does, Does::Runs | Does::Unknown(_) | Does::Doubted(_));
        let turns = self.vcpus.iter().flat_map(|vcpu| &vcpu.turns).filter(may_run);
        turns.map(|turn| turn.interval.to).max().unwrap_or(self.from)
    }

    /// One of its vCPUs, and how many there are.
    pub(super) fn count(&self) -> (TaskId, usize) {
        (self.vcpus.first().map_or_else(TaskId::default, |vcpu| vcpu.task), self.vcpus.len())
    }

    /// The stretch from when the packet was handed over in which all vCPUs slept in a futex of their
    /// VMM, and what ended it; nothing if it lasts.
    pub(super) fn slept_since_delivery<'s>(&'s self) -> Option<(MonoNs, MonoNs, Option<&'s Wake>)> {
        let sleep = |vcpu: &'s Vcpu<'a>| -> Option<(MonoNs, Option<&'s Wake>)> {
            let (blocked, at, _) = vcpu.sleeps().next().filter(|(_, at, _)| at.from <= self.from)?;
            let in_vmm = self.leg.evidence.wait(blocked).is_some_and(|(wait, _)| wait == Wait::Futex);
            (in_vmm && !vcpu.kvm).then_some((at.to, blocked.wake))
        };
        let sleeps = self.vcpus.iter().map(sleep).collect::<Option<Vec<_>>>()?;
        let (to, wake) = sleeps.into_iter().min_by_key(|(to, _)| *to)?;
        let delivered = self.leg.start.stage == Stage::BackendRx && to.since(self.from) >= NOTICEABLE;
        delivered.then_some((self.from, to, wake))
    }

    /// Whether a thread of neither the VMM nor another that holds its tap did that.
    pub(super) fn is_outsider(&self, wake: &Wake) -> bool {
        wake.by_thread() && !self.holders.contains(&wake.waker.task.tgid)
    }

    fn suspected_pause(&self) -> Option<pause::Pause> {
        pause::suspected(self, self.leg).filter(|_| self.disk(self.on_the_way().as_deref()).is_none())
    }

    fn worked(&self) -> Vec<Piece> {
        let of = self.on_the_way();
        let stretches = self.stretches(of.as_deref());
        let mut order: Vec<&Stretch> = stretches.iter().collect();
        order.sort_by_key(|stretch| std::cmp::Reverse(stretch.time()));
        let disk = self.disk(of.as_deref());
        let mut looked: HashMap<(usize, u8), (usize, Option<Found>)> = HashMap::new();
        let mut pieces = Vec::with_capacity(stretches.len());
        for stretch in order {
            if let Some(disk) = disk.as_ref().filter(|disk| disk.holds(stretch)) {
                pieces.extend(self.behind_disk(stretch, disk));
                continue;
            }
            let key = (stretch.by, kind(&stretch.does));
            let (count, found) = looked.entry(key).or_default();
            *count += 1;
            if let Some(found) = found.as_ref().filter(|_| *count > MOST_LOOKED_AT) {
                pieces.push(Piece { from: stretch.from, to: stretch.to, span: self.leg.span, found: found.clone() });
                continue;
            }
            let new = self.pieces(stretch);
            // Not its first: what a softirq took of a wait comes before who ran instead.
            let most = new.iter().max_by_key(|piece| piece.time());
            *found = found.take().or_else(|| most.map(|piece| piece.found.clone()));
            pieces.extend(new);
        }
        pieces.sort_by_key(|piece| piece.from);
        pieces
    }

    /// The vCPUs that the check went by: whom its delivery woke, who gave the reply back, and who
    /// woke those. `None` where none is known of several.
    fn on_the_way(&self) -> Option<Vec<usize>> {
        let index = |task: TaskId| self.vcpus.iter().position(|vcpu| vcpu.task == task);
        if self.vcpus.len() == 1 {
            return Some(vec![0]);
        }
        let soon = self.from.after(NOTICEABLE);
        let woken = |vcpu: &Vcpu<'_>| {
            vcpu.sleeps().filter_map(|(blocked, ..)| blocked.wake).any(|wake| wake.at <= soon && self.is_by_vmm(wake))
        };
        let mut way: Vec<usize> = (0..self.vcpus.len()).filter(|index| woken(&self.vcpus[*index])).collect();
        way.extend(self.replier().and_then(index));
        let mut next = 0;
        while let Some(vcpu) = way.get(next).and_then(|index| self.vcpus.get(*index)) {
            let wakers = vcpu.sleeps().filter_map(|(blocked, ..)| blocked.wake).filter(|wake| wake.by_thread());
            for waker in wakers.filter_map(|wake| index(wake.waker.task)).collect::<Vec<_>>() {
                if !way.contains(&waker) {
                    way.push(waker);
                }
            }
            next += 1;
        }
        way.sort_unstable();
        way.dedup();
        (!way.is_empty()).then_some(way)
    }

    fn is_by_vmm(&self, wake: &Wake) -> bool {
        let waker = wake.waker.task;
        wake.by_thread() && self.holders.contains(&waker.tgid) && self.vcpus.iter().all(|vcpu| vcpu.task != waker)
    }

    /// The vCPU that gave the reply to the tap, or made the thread do so that did.
    fn replier(&self) -> Option<TaskId> {
        let writer = self.leg.end.map(|end| end.task).filter(|task| task.tid != 0)?;
        let is_vcpu = |task: &TaskId| self.vcpus.iter().any(|vcpu| vcpu.task == *task);
        let life = self.leg.evidence.life_at(writer, self.leg.to);
        let kicks = life.into_iter().flat_map(|life| life.wakes_before(self.leg.to));
        let kick = || kicks.take_while(|wake| wake.at >= self.from).find(|wake| wake.by_thread());
        Some(writer).filter(is_vcpu).or_else(|| kick().map(|wake| wake.waker.task).filter(is_vcpu))
    }

    /// The VM's time, cut where one of its vCPUs changed what it did.
    fn stretches(&self, way: Option<&[usize]>) -> Vec<Stretch> {
        let all: Vec<usize> = (0..self.vcpus.len()).collect();
        let mut cuts: Vec<MonoNs> =
            self.vcpus.iter().flat_map(|vcpu| &vcpu.turns).map(|turn| turn.interval.from).collect();
        cuts.push(self.leg.to);
        cuts.sort_unstable();
        cuts.dedup();
        let mut places = vec![0; self.vcpus.len()];
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut from = self.from;
        for to in cuts.into_iter().filter(|cut| *cut > self.from && *cut <= self.leg.to) {
            let now: Vec<&Does> = all.iter().map(|index| self.at(*index, &mut places[*index], from)).collect();
            let (by, does) = decide(&now, way);
            match stretches.last_mut().filter(|last| last.by == by && last.does == does) {
                Some(last) => last.to = to,
                None => stretches.push(Stretch { from, to, by, does }),
            }
            from = to;
        }
        stretches
    }

    fn at(&self, vcpu: usize, place: &mut usize, at: MonoNs) -> &Does {
        const NONE: &Does = &Does::Unknown(String::new());
        let turns: &[Turn<'a>] = &self.vcpus[vcpu].turns;
        while turns.get(*place + 1).is_some_and(|next| next.interval.from <= at) {
            *place += 1;
        }
        turns.get(*place).map_or(NONE, |turn| &turn.does)
    }

    fn pieces(&self, stretch: &Stretch) -> Vec<Piece> {
        let vcpu = &self.vcpus[stretch.by];
        match &stretch.does {
            Does::Unknown(reason) => vec![self.unexplained(stretch, reason)],
            Does::Doubted(reason) => vec![self.unexplained(stretch, reason)],
            Does::Halted => vec![self.charged(stretch, self.halted(stretch))],
            Does::Runs => self.ran(stretch, vcpu),
            Does::Waits | Does::Held | Does::Stopped if !vcpu.sure => {
                let name = self.leg.evidence.name(vcpu.task, stretch.to);
                vec![self.unexplained(stretch, &format!("that {name} is a vCPU, only its name says"))]
            }
            Does::Stopped => vec![self.charged(stretch, self.stopped(stretch))],
            Does::Waits | Does::Held => self.followed(stretch, vcpu.task, Cause::VmVcpuSteal),
        }
    }

    /// On a CPU: its guest, or KVM for it.
    fn ran(&self, stretch: &Stretch, vcpu: &Vcpu<'_>) -> Vec<Piece> {
        let evidence = self.leg.evidence;
        if vcpu.kvm && !evidence.sees().guests {
            return vec![self.unexplained(stretch, UNTOLD)];
        }
        let handled = evidence.exits().handled(vcpu.task, stretch.from, stretch.to);
        let cut = handled.as_ref().map_or(stretch.to, |handled| stretch.to.before(handled.time).max(stretch.from));
        let guest = Stretch { to: cut, ..stretch.clone() };
        let mut pieces = self.followed(&guest, vcpu.task, Cause::VmGuestInternal);
        if vcpu.kvm && stretch.time() >= NOTICEABLE {
            let fact = busy(stretch.time(), handled.as_ref());
            pieces.iter_mut().for_each(|piece| piece.learn(fact.clone()));
        }
        let Some(handled) = handled.filter(|_| cut < stretch.to) else { return pieces };
        let fact = format!(
            "the host handled {} of the guest on CPU for {}, the longest for {} ({})",
            counted(handled.count, "exit"),
            handled.time,
            handled.longest,
            handled.reason
        );
        let offender = evidence.offender(vcpu.task, stretch.to);
        let charge = Charge::new(Cause::VmVcpuSteal, Some(offender), fact).meaning(EXITS);
        pieces.push(Piece::charged(cut, stretch.to, self.leg.span, charge));
        pieces
    }

    fn charged(&self, stretch: &Stretch, charge: Charge) -> Piece {
        Piece::charged(stretch.from, stretch.to, self.leg.span, charge)
    }

    fn unexplained(&self, stretch: &Stretch, reason: &str) -> Piece {
        Piece::unexplained(stretch.from, stretch.to, self.leg.span, format!("in the VM: {reason}"))
    }

    fn device(&self) -> Offender {
        Offender { device: self.leg.evidence.interface(self.leg.start.interface), ..Offender::default() }
    }

    fn halted(&self, stretch: &Stretch) -> Charge {
        let name = self.leg.evidence.interface(self.leg.start.interface);
        let fact = format!(
            "of the {} of the guest behind {name} none ran or could run for {}: it was halted, and waited",
            counted(self.vcpus.len() as u64, "vCPU"),
            stretch.time()
        );
        Charge::new(Cause::VmGuestInternal, Some(self.device()), fact).with(Some(opaque())).meaning(WAITS)
    }

    fn stopped(&self, stretch: &Stretch) -> Charge {
        let (evidence, task) = (self.leg.evidence, self.vcpus[stretch.by].task);
        let fact = format!("{} was stopped or frozen for {}", evidence.name(task, stretch.to), stretch.time());
        Charge::new(Cause::VmVcpuSteal, Some(evidence.offender(task, stretch.to)), fact).meaning(STOPPED)
    }

    /// What a vCPU's thread did, by the rules for threads, told as what that means for its guest.
    fn followed(&self, stretch: &Stretch, task: TaskId, cause: Cause) -> Vec<Piece> {
        let seat = Seat::new(task, Role::Peer, self.leg.span).behind(cause);
        let mut pieces = charge(self.leg.evidence, &seat, stretch.from, stretch.to);
        pieces.iter_mut().for_each(|piece| self.settle(piece, stretch, task));
        pieces
    }

    /// A root that is the host's own stays; what the thread itself did or waited for is the VM's.
    fn settle(&self, piece: &mut Piece, stretch: &Stretch, task: TaskId) {
        let Found::Charged(charge) = &mut piece.found else { return };
        let charge = Rc::make_mut(charge);
        let runs = stretch.does == Does::Runs;
        let family = charge.path.last().map_or(Family::Vm, |cause| cause.row().family);
        match family {
            Family::Host if runs => {}
            Family::App | Family::Vm | Family::Host | Family::Dependency if runs => {
                charge.path = vec![Cause::VmGuestInternal];
                charge.offender = Some(self.device());
                charge.evidence.push(opaque());
                charge.mean(COMPUTES);
            }
            Family::App | Family::Vm | Family::Host | Family::Dependency => {
                charge.path = vec![Cause::VmVcpuSteal];
                charge
                    .evidence
                    .extend(charge.offender.as_ref().and_then(|offender| vm::machine(self.leg, offender, task)));
                if stretch.does == Does::Held {
                    charge.mean(HELD);
                }
            }
            _ => {}
        }
    }
}

/// What the exits of a guest of KVM's say of its vCPU's time on a CPU: a guest that computes leaves it
/// seldom, and one that is held up by the host is away from it for long.
fn busy(time: DurNs, handled: Option<&Handled>) -> String {
    match handled {
        None => {
            format!("KVM ran the guest's code for it: of {time}, the host handled exits for less than {UNTOLD_EXITS}")
        }
        Some(Handled { time: away, count, .. }) => {
            let exits = counted(*count, "exit");
            format!("KVM ran the guest's code for it: of {time}, the host handled {exits} for {away}")
        }
    }
}

/// Exits that come to less than this are not told.
const UNTOLD_EXITS: DurNs = DurNs(probe_wire::EXITS_TOLD_NS);

fn opaque() -> String {
    "what it did inside is opaque from here; whylag in the guest can refine this".to_owned()
}

const fn kind(does: &Does) -> u8 {
    match does {
        Does::Runs => 0,
        Does::Waits => 1,
        Does::Halted => 2,
        Does::Held => 3,
        Does::Stopped => 4,
        Does::Unknown(_) | Does::Doubted(_) => 5,
    }
}

/// What the VM did at one moment: `way` are the vCPUs that the check went by.
fn decide(now: &[&Does], way: Option<&[usize]>) -> (usize, Does) {
    let all: Vec<usize> = (0..now.len()).collect();
    let of = way.unwrap_or(&all);
    let first = |among: &[usize], is: &dyn Fn(&Does) -> bool| among.iter().copied().find(|index| is(now[*index]));
    let held_up = |does: &Does| matches!(does, Does::Waits | Does::Held | Does::Stopped);
    // What was not seen of a vCPU may have put it on the way, too.
    let doubted = first(&all, &|does| matches!(does, Does::Doubted(_)));
    if let Some(index) = first(of, &|does| matches!(does, Does::Unknown(_))).or(doubted) {
        return (index, now[index].clone());
    }
    let (runs, waits) = (first(of, &|does| *does == Does::Runs), first(of, &held_up));
    let elsewhere = first(&all, &held_up).is_some();
    let anyone_rests = first(&all, &|does| *does == Does::Halted).is_some();
    match (runs, waits) {
        (Some(index), None) if elsewhere => (index, Does::Unknown(DISAGREE.to_owned())),
        (Some(index), Some(_)) => (index, Does::Unknown(DISAGREE.to_owned())),
        (None, Some(index)) if way.is_none() && anyone_rests => (index, Does::Unknown(DISAGREE.to_owned())),
        (Some(index), None) | (None, Some(index)) => (index, now[index].clone()),
        (None, None) => (of.first().copied().unwrap_or(0), Does::Halted),
    }
}

/// A thread of the VMM's that was stuck on the host's storage while the guest waited for it.
struct Disk {
    task: TaskId,
    from: MonoNs,
    to: MonoNs,
}

impl Disk {
    fn holds(&self, stretch: &Stretch) -> bool {
        stretch.does == Does::Halted && self.from < stretch.to && stretch.from < self.to
    }
}

impl Guest<'_> {
    /// The wait for storage inside the VMM that ended the guest's last halt of some length: the
    /// guest went on when that was over.
    fn disk(&self, way: Option<&[usize]>) -> Option<Disk> {
        let way = way?;
        let of = way.iter().filter_map(|index| self.vcpus.get(*index));
        let halts = of.flat_map(Vcpu::sleeps).filter(|(_, at, does)| **does == Does::Halted && at.time() >= NOTICEABLE);
        let (blocked, at, _) = halts.max_by_key(|(_, at, _)| at.to)?;
        let wake = blocked.wake.filter(|wake| wake.at <= self.leg.to && self.is_by_vmm(wake))?;
        self.stuck(wake.waker.task, at.from, wake.at)
    }

    /// The thread that was stuck on storage until `to`, among `task` and those whom it waited for.
    fn stuck(&self, task: TaskId, from: MonoNs, to: MonoNs) -> Option<Disk> {
        let evidence = self.leg.evidence;
        let mut next = task;
        for _ in 0..super::thread::MAX_HOPS {
            let intervals = evidence.intervals(next, self.from.min(from), to);
            let last = intervals
                .iter()
                .rev()
                .find(|interval| interval.time() >= NOTICEABLE && matches!(interval.state, State::Blocked(_)))?;
            let State::Blocked(blocked) = &last.state else { return None };
            if to.since(last.to) > NOTICEABLE {
                return None;
            }
            if evidence.wait(blocked).is_some_and(|(wait, _)| wait.is_storage()) {
                return Some(Disk { task: next, from: last.from, to: last.to });
            }
            let wake = blocked.wake.filter(|wake| wake.by_thread() && self.holders.contains(&wake.waker.task.tgid))?;
            next = Some(wake.waker.task).filter(|waker| *waker != next)?;
        }
        None
    }

    /// A halt of the guest while its VMM was stuck on storage for it.
    fn behind_disk(&self, stretch: &Stretch, disk: &Disk) -> Vec<Piece> {
        let (from, to) = (stretch.from.max(disk.from), stretch.to.min(disk.to));
        let seat = Seat::new(disk.task, Role::Peer, self.leg.span).behind(Cause::VmGuestInternal);
        let mut pieces = charge(self.leg.evidence, &seat, from, to);
        let ended = "the guest was halted meanwhile, and went on when its VMM told it that this was done";
        pieces.iter_mut().for_each(|piece| piece.learn(ended.to_owned()));
        let halted = |from, to| {
            let part = Stretch { from, to, ..stretch.clone() };
            self.charged(&part, self.halted(&part))
        };
        pieces.extend((stretch.from < from).then(|| halted(stretch.from, from)));
        pieces.extend((to < stretch.to).then(|| halted(to, stretch.to)));
        pieces
    }
}
