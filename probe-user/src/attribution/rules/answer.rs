//! `vm.backend` on the way back: a VM's answer lies in its guest's ring until the tap's backend takes it.
//!
//! That ring is the guest's memory, so it is not seen when an answer is put there. While the thread that takes
//! answers out could run and has no CPU, one may lie there; and only a vCPU that runs puts one there.

use super::guest::Guest;
use super::transmit::NOTICEABLE;
use super::{Leg, vm};
use crate::attribution::cause::Cause;
use crate::attribution::piece::Piece;
use crate::attribution::thread::{Interval, Ready, State};
use crate::attribution::walk::{STILL_ON, is_contradicted};
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use crate::journey::Stage;

/// Who had a CPU for less than this part of the wait before did not look for answers meanwhile.
const BRIEFLY: u64 = 8;

/// A thread that takes a VM's answers, and that had no CPU until right before the leg's end.
struct Starved {
    taker: TaskId,
    /// When it could run.
    from: MonoNs,
    /// The thread that woke it then, if one did.
    woken_by: Option<TaskId>,
}

/// The same as `pieces`, but for the time in which the answer waited for who takes it, or may have.
pub(super) fn behind_taker(leg: &Leg<'_>, guest: Option<&Guest<'_>>, pieces: Vec<Piece>) -> Vec<Piece> {
    let Some(starved) = Starved::of(leg, guest) else { return pieces };
    let lies_since = guest.and_then(|guest| starved.lies_since(leg, guest));
    let until = lies_since.unwrap_or(leg.to);
    let mut pieces: Vec<Piece> = pieces.into_iter().flat_map(|piece| starved.in_doubt(leg, piece, until)).collect();
    if let Some(since) = lies_since {
        pieces = pieces.into_iter().flat_map(|piece| piece.without(since, leg.to)).collect();
        let name = leg.evidence.name(starved.taker, leg.to);
        let fact = format!(
            "the answer was in the ring of the guest behind {} for {}: no vCPU ran since, and {name}, which one had woken for it, had no CPU",
            leg.evidence.interface(leg.start.interface),
            leg.to.since(since)
        );
        pieces.extend(vm::worker(&Leg { from: since, ..*leg }, starved.taker, &fact));
    }
    pieces.sort_by_key(|piece| piece.from);
    pieces
}

impl Starved {
    /// The one who gave the answer back, or while there is none who took the request.
    fn of(leg: &Leg<'_>, guest: Option<&Guest<'_>>) -> Option<Self> {
        if leg.start.stage != Stage::BackendRx {
            return None;
        }
        let holders = &leg.evidence.tap(leg.start.interface)?.holders;
        // A softirq may have passed the answer on, on top of any thread.
        let giver = leg.end.map(|end| end.task).filter(|task| holders.contains(&task.tgid));
        let taker = giver.unwrap_or(leg.start.task);
        let is_vcpu = guest.is_some_and(|guest| guest.vcpus.iter().any(|vcpu| vcpu.task == taker));
        if taker.tid == 0 || is_vcpu {
            return None;
        }
        let intervals = leg.evidence.intervals(taker, leg.from, leg.to);
        let first = first_wait(&intervals)?;
        Some(Self { taker, from: first.from, woken_by: woken_by(leg, taker, first) })
    }

    /// Since when the answer lies in the guest's ring for sure: a vCPU woke the thread, and none ran after that.
    fn lies_since(&self, leg: &Leg<'_>, guest: &Guest<'_>) -> Option<MonoNs> {
        let waker = self.woken_by.filter(|_| leg.end.is_some())?;
        let by_vcpu = guest.vcpus.iter().any(|vcpu| vcpu.task == waker);
        let since = guest.last_ran().max(self.from);
        (by_vcpu && leg.to.since(since) >= NOTICEABLE && since < leg.to).then_some(since)
    }

    /// What blames the guest for time from when the thread could run `until` then is not proven.
    fn in_doubt(&self, leg: &Leg<'_>, piece: Piece, until: MonoNs) -> Vec<Piece> {
        let (from, to) = (piece.from.max(self.from), piece.to.min(until));
        let noticeable = until.since(self.from.min(until)) >= NOTICEABLE;
        if piece.cause() != Some(Cause::VmGuestInternal) || from >= to || !noticeable {
            return vec![piece];
        }
        let name = leg.evidence.name(self.taker, leg.to);
        let reason = format!("in the VM: its answer may have waited in the guest's ring for {name}, which had no CPU");
        let doubt = Piece::unexplained(from, to, piece.span, reason);
        piece.without(from, to).chain([doubt]).collect()
    }
}

/// The first of the waits for a CPU that lasted to the end of a thread's `intervals`, but for moments. What is
/// not known of it for want of a record counts as one.
fn first_wait<'i, 'a>(intervals: &'i [Interval<'a>]) -> Option<&'i Interval<'a>> {
    let (mut first, mut waited, mut ran) = (None, DurNs::ZERO, DurNs::ZERO);
    for interval in intervals.iter().rev() {
        let unknown = match interval.state {
            State::OnCpu(_) | State::Unknown(STILL_ON) => {
                ran = ran.plus(interval.time());
                continue;
            }
            State::Runnable(_) => false,
            State::Unknown(reason) if is_contradicted(reason) => true,
            State::Blocked(_) | State::Stopped { .. } | State::Unknown(_) => break,
        };
        if ran >= NOTICEABLE.max(interval.time().part(BRIEFLY)) {
            break;
        }
        (first, waited, ran) = (Some(interval), waited.plus(interval.time()), DurNs::ZERO);
        if unknown {
            break;
        }
    }
    first.filter(|_| waited >= NOTICEABLE)
}

/// The thread that ended the sleep before a wait for a CPU.
fn woken_by(leg: &Leg<'_>, taker: TaskId, wait: &Interval<'_>) -> Option<TaskId> {
    let State::Runnable(runnable) = wait.state else { return None };
    let life = leg.evidence.life_at(taker, leg.to).filter(|_| runnable.ready == Ready::Woken)?;
    let wake = life.wakes_before(runnable.from).next()?;
    wake.by_thread().then_some(wake.waker.task)
}
