//! A part of `nic.rx_softirq`: received packets are there, the softirq that takes them in is due, and
//! its CPU does something else.

use super::Leg;
use super::receive::starved;
use super::thread::had_cpu;
use crate::attribution::cause::Cause;
use crate::attribution::evidence::{described, text};
use crate::attribution::ledger::Offender;
use crate::attribution::piece::{Charge, Piece};
use crate::attribution::softirq_wait::{SoftirqWait, Top};
use crate::attribution::thread::{Interval, State};
use crate::clock::{DurNs, MonoNs};

/// Softirqs that are no further apart follow each other; what is shorter is not told.
const BESIDE: DurNs = DurNs(1_000_000);

/// So long after a softirq is due its thread is woken: the kernel does both in one function.
const AT_ONCE: DurNs = DurNs(50_000);

/// What of a stretch the packets on `cpu` waited for a softirq that was due.
pub(super) fn pending(leg: &Leg<'_>, cpu: u32, from: MonoNs, to: MonoNs) -> Vec<Piece> {
    let waits = leg.evidence.softirq_waits(cpu, from, to);
    waits.flat_map(|wait| pieces(leg, cpu, wait, (wait.from.max(from), wait.to.min(to)))).collect()
}

fn pieces(leg: &Leg<'_>, cpu: u32, wait: &SoftirqWait, (from, to): (MonoNs, MonoNs)) -> Vec<Piece> {
    let whole = wait.to.since(wait.from);
    let due = format!("packets on CPU {cpu} waited {whole} for a NET_RX softirq that was due");
    if wait.steal.0 >= whole.0.div_ceil(2) {
        let reason = format!("{due}, and the hypervisor had the CPU for {} of that", wait.steal);
        return vec![Piece::unexplained(from, to, leg.span, reason)];
    }
    if leg.evidence.softirq_thread(cpu) == Some(wait.thread.task) {
        return by_thread(leg, cpu, (from, to), &due);
    }
    let charge = match &wait.top {
        Top::HeldOff(function) if wait.same_slice && wait.thread.task.tid != 0 => held_off(leg, wait, function, due),
        Top::Interrupt if wait.left_over => left_over(leg, cpu, wait, due),
        Top::HeldOff(_) | Top::Interrupt if is_starved(leg, cpu, wait) => left_to_thread(leg, cpu, wait, due),
        _ => return vec![Piece::unexplained(from, to, leg.span, format!("{due}, and what kept it is not known"))],
    };
    vec![Piece::charged(from, to, leg.span, charge)]
}

/// A thread was in the kernel, in a function that lets no softirq run on its CPU.
fn held_off(leg: &Leg<'_>, wait: &SoftirqWait, function: &str, due: String) -> Charge {
    let who = described(wait.thread.task, &text(&wait.thread.comm));
    let fact = format!("{who} held softirqs off there meanwhile; {function} let them run again");
    let charge = Charge::new(Cause::NicRxSoftirq, Some(offender(leg, wait)), due).with(Some(fact));
    charge.meaning("a thread in the kernel lets no softirq run on the CPU that receives")
}

/// A softirq had used up its time or its budget, and the thread for what it leaves did not get the CPU
/// before an interrupt came.
fn left_over(leg: &Leg<'_>, cpu: u32, wait: &SoftirqWait, due: String) -> Charge {
    let rest = format!("it was left to ksoftirqd/{cpu} by a softirq that had used up its time or budget");
    kept(leg, cpu, wait, (due, rest))
}

/// The thread for softirqs was to take them in, and an interrupt did before it got the CPU.
fn left_to_thread(leg: &Leg<'_>, cpu: u32, wait: &SoftirqWait, due: String) -> Charge {
    let rest = format!("it was left to ksoftirqd/{cpu}, which could run all the while and did not get the CPU");
    kept(leg, cpu, wait, (due, rest))
}

/// Whether the thread for softirqs could run all the while.
fn is_starved(leg: &Leg<'_>, cpu: u32, wait: &SoftirqWait) -> bool {
    let Some(thread) = leg.evidence.softirq_thread(cpu) else { return false };
    let intervals = leg.evidence.intervals(thread, wait.from.after(AT_ONCE).min(wait.to), wait.to);
    !intervals.is_empty() && intervals.iter().all(|interval| matches!(interval.state, State::Runnable(_)))
}

/// Who had the CPU meanwhile: one thread all the while, else whoever had it for the longest by the records
/// of that CPU.
fn kept(leg: &Leg<'_>, cpu: u32, wait: &SoftirqWait, (due, rest): (String, String)) -> Charge {
    let alone = wait.same_slice && wait.thread.task.tid != 0;
    let by = if alone {
        let who = described(wait.thread.task, &text(&wait.thread.comm));
        Some((offender(leg, wait), format!("{who} had the CPU meanwhile")))
    } else {
        let waiter = leg.evidence.softirq_thread(cpu).unwrap_or_default();
        had_cpu(leg.evidence, waiter, cpu, (wait.from, wait.to))
    };
    let (offender, had) = by.unzip();
    let charge = Charge::new(Cause::NicRxSoftirq, offender, due).with(Some(rest)).with(had);
    charge.meaning("the thread that takes packets in did not get a CPU")
}

/// The thread for softirqs took them in: what it waited for.
fn by_thread(leg: &Leg<'_>, cpu: u32, (from, to): (MonoNs, MonoNs), due: &str) -> Vec<Piece> {
    let Some(thread) = leg.evidence.softirq_thread(cpu) else { return Vec::new() };
    let role = format!("{}, to which that was left,", leg.evidence.name(thread, to));
    let intervals = leg.evidence.intervals(thread, from, to);
    let piece = |interval: &Interval<'_>| match interval.state {
        State::Runnable(runnable) => {
            let charge = starved(leg, (&role, thread), interval, &runnable).with(Some(due.to_owned()));
            Piece::charged(interval.from, interval.to, leg.span, charge)
        }
        _ => {
            let reason = format!("{due}, {role} took them in, and did not only wait for its CPU");
            Piece::unexplained(interval.from, interval.to, leg.span, reason)
        }
    };
    intervals.iter().map(piece).collect()
}

fn offender(leg: &Leg<'_>, wait: &SoftirqWait) -> Offender {
    leg.evidence.offender_in(&wait.thread, wait.start_ns, wait.to)
}

/// For how long before `at` packets on `cpu` may have been there already: the CPU had softirqs that
/// were due or at work, one behind the other, up to then.
pub(super) fn backed_up(leg: &Leg<'_>, cpu: u32, at: MonoNs) -> DurNs {
    let mut since = at;
    let waits = leg.evidence.softirq_waits(cpu, leg.from, at).map(|wait| (wait.from, wait.to));
    let runs = leg.evidence.softirqs(cpu, leg.from, at).map(|run| (run.from, run.to));
    let mut busy: Vec<_> = waits.chain(runs).collect();
    busy.sort_by_key(|(_, to)| *to);
    for (from, to) in busy.into_iter().rev() {
        if since.since(to) > BESIDE {
            break;
        }
        since = since.min(from);
    }
    let behind = at.since(since.max(leg.from));
    if behind < BESIDE { DurNs::ZERO } else { behind }
}
