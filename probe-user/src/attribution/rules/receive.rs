//! `nic.rx_softirq`: in the ring or backlog while receive softirq is slow or not run; and
//! `nic.tx_queue` where the ring is a veth's, and the thread that empties it is behind.

use super::thread::{kept_from, softirq_offender};
use super::{Leg, accept, counted, pending, transmit};
use crate::attribution::cause::Cause;
use crate::attribution::ledger::Offender;
use crate::attribution::piece::{Charge, Piece};
use crate::attribution::softirq::SoftirqRun;
use crate::attribution::thread::{Interval, Runnable, Slice, State};
use crate::clock::MonoNs;
use crate::event::TaskId;
use crate::journey::{Stage, Stamp};

/// Names of softirq vectors, in the order of their numbers.
const VECTORS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// The name of a softirq vector.
pub(crate) fn vector(number: u32) -> &'static str {
    VECTORS.get(number as usize).copied().unwrap_or("unknown")
}

/// From a NIC to the socket, or across a veth: queues first, then long softirqs on the CPU that
/// took it in. The rest is the length of the path itself, for which no one is to blame.
pub(in crate::attribution) fn receive(leg: &Leg<'_>) -> Vec<Piece> {
    if let Some(pieces) = accept::refused(leg) {
        return pieces;
    }
    let Some(end) = leg.end else {
        return vec![Piece::unexplained(leg.from, leg.to, leg.span, leg.out_of_sight())];
    };
    let mut pieces = taken_in(leg, end, transmit::stays(leg));
    fill(&mut pieces, leg, &unseen(leg, end));
    pieces
}

/// After `stays` in queueing disciplines: in a ring or backlog, until a softirq or a thread takes it
/// in. A discipline whose device is stopped waits for that thread too.
pub(super) fn taken_in(leg: &Leg<'_>, end: &Stamp, stays: Vec<Piece>) -> Vec<Piece> {
    let queued_until = stays.iter().map(|piece| piece.to).fold(leg.from, MonoNs::max);
    let veth = leg.evidence.interface_fact(end.interface).is_some_and(|fact| fact.kind == "veth");
    let Some(thread) = leg.evidence.receiver(end.interface, leg.to).filter(|_| veth) else {
        let runs = leg.evidence.softirqs(end.cpu, queued_until, leg.to);
        let mut pieces: Vec<Piece> = stays.into_iter().chain(runs.map(|run| held(leg, run, end.cpu))).collect();
        let gaps = gaps(&mut pieces, queued_until, leg.to);
        pieces.extend(gaps.into_iter().flat_map(|(from, to)| not_run(leg, end.cpu, from, to)));
        return pieces;
    };
    let stays = stays.into_iter().flat_map(|stay| behind(leg, end, thread, stay));
    stays.chain(by_thread(leg, end, thread, queued_until, leg.to)).collect()
}

/// A stay in a discipline whose device was stopped, as what the thread did that empties its ring.
fn behind(leg: &Leg<'_>, end: &Stamp, thread: TaskId, stay: Piece) -> Vec<Piece> {
    if stay.cause() != Some(Cause::NicTxQueue) {
        return vec![stay];
    }
    let pieces = by_thread(leg, end, thread, stay.from, stay.to);
    let settle = |mut piece: Piece| {
        if piece.cause().is_none() {
            return Piece { from: piece.from, to: piece.to, ..stay.clone() };
        }
        stay.facts().iter().for_each(|fact| piece.learn(fact.clone()));
        piece
    };
    pieces.into_iter().map(settle).collect()
}

/// In the ring of a veth, which a kernel thread empties (threaded NAPI).
fn by_thread(leg: &Leg<'_>, end: &Stamp, thread: TaskId, from: MonoNs, to: MonoNs) -> Vec<Piece> {
    let name = leg.evidence.name(thread, leg.to);
    let role = format!("{name}, which takes packets in at {},", leg.evidence.interface(end.interface));
    let intervals = leg.evidence.intervals(thread, from, to);
    if intervals.is_empty() {
        return vec![Piece::unexplained(from, to, leg.span, format!("what {role} did is not known"))];
    }
    intervals.iter().flat_map(|interval| thread_did(leg, thread, &role, interval)).collect()
}

fn thread_did(leg: &Leg<'_>, thread: TaskId, role: &str, interval: &Interval<'_>) -> Vec<Piece> {
    let Interval { from, to, state } = *interval;
    let time = interval.time();
    match state {
        State::OnCpu(slice) => at_work(leg, thread, role, interval, &slice),
        State::Runnable(runnable) => {
            vec![Piece::charged(from, to, leg.span, starved(leg, (role, thread), interval, &runnable))]
        }
        State::Blocked(_) | State::Stopped { .. } => {
            vec![Piece::unexplained(from, to, leg.span, format!("{role} slept for {time}"))]
        }
        State::Unknown(reason) => vec![Piece::unexplained(from, to, leg.span, format!("{role} did: {reason}"))],
    }
}

/// On a CPU: at work on other packets, and what of the time was not the thread's.
fn at_work(leg: &Leg<'_>, thread: TaskId, role: &str, interval: &Interval<'_>, slice: &Slice) -> Vec<Piece> {
    let Interval { from, to, .. } = *interval;
    let (time, cpu, softirq) = (interval.time(), slice.cpu, slice.softirq);
    let cut = to.before(slice.gaps()).max(from);
    let doubt = cut.after(softirq).min(to);
    let fact = format!("{role} was at work on others for {time}");
    let offender =
        Offender { device: leg.evidence.interface(leg.start.interface), ..leg.evidence.offender(thread, to) };
    let busy = Charge::new(Cause::NicTxQueue, Some(offender), fact).meaning("the consumer of its ring is behind");
    let fact = format!("softirqs took {softirq} of the {time} that {role} held CPU {cpu}");
    let stolen = Charge::new(Cause::NicRxSoftirq, Some(softirq_offender(None, cpu)), fact);
    let reason = format!("interrupts or the hypervisor had CPU {cpu}, which {role} held");
    let pieces = [
        Piece::charged(from, cut, leg.span, busy),
        Piece::charged(cut, doubt, leg.span, stolen),
        Piece::unexplained(doubt, to, leg.span, reason),
    ];
    pieces.into_iter().filter(|piece| piece.from < piece.to).collect()
}

/// The thread, called by its part, waited for a CPU.
pub(super) fn starved(
    leg: &Leg<'_>,
    (role, thread): (&str, TaskId),
    interval: &Interval<'_>,
    runnable: &Runnable<'_>,
) -> Charge {
    let gap = runnable.to.map_or(interval.to, |back| back.at).since(runnable.from);
    let (offender, who) = kept_from(leg.evidence, thread, interval, runnable);
    let fact = format!("{role} waited {gap} for a CPU");
    let charge = Charge::new(Cause::NicRxSoftirq, offender, fact).with(who);
    charge.meaning("the thread that takes packets in did not get a CPU")
}

/// What the rest of the way in came to. A full accept queue ignores a SYN without any drop.
fn unseen(leg: &Leg<'_>, end: &Stamp) -> String {
    let blind = leg.evidence.blind();
    let drops = if blind.drops { "drops are not watched" } else { "no drop was seen" };
    match leg.journey.retransmissions {
        0 if blind.sockets && end.stage > Stage::SockRead => format!(
            "no socket is watched, so what held it between {} and {} is not known",
            leg.start.stage.name(),
            end.stage.name()
        ),
        0 if blind.softirqs => "in the receive path, and softirqs are not watched".to_owned(),
        0 if blind.raises => "in the receive path, where no long softirq was seen".to_owned(),
        0 => format!(
            "in the receive path: CPU {} took it in, where no softirq ran long then, and none for received packets \
             was due for long. With interrupts off there, or an interrupt from another CPU that is late, none is due \
             either: that is not seen",
            end.cpu
        ),
        // What comes after a drop is the drop's.
        _ if leg.journey.drops.iter().any(|drop| drop.at >= leg.from) => {
            "in the receive path, before a drop".to_owned()
        }
        copies => format!("the request had to be sent {} more, and {drops}", counted(u64::from(copies), "time")),
    }
}

fn held(leg: &Leg<'_>, run: &SoftirqRun, cpu: u32) -> Piece {
    let (from, to) = (run.from.max(leg.from), run.to.min(leg.to));
    let fact = format!(
        "a {} softirq ran {} on CPU {cpu}, where it was to be received",
        vector(run.vector),
        run.to.since(run.from)
    );
    let offender = softirq_offender(Some(run.vector), cpu);
    Piece::charged(from, to, leg.span, Charge::new(Cause::NicRxSoftirq, Some(offender), fact))
}

/// No softirq was at work. Where the kernel does not tell for how long one was due, the thread for
/// softirqs may tell.
fn not_run(leg: &Leg<'_>, cpu: u32, from: MonoNs, to: MonoNs) -> Vec<Piece> {
    if leg.evidence.blind().raises { deferred(leg, cpu, from, to) } else { pending::pending(leg, cpu, from, to) }
}

/// Softirqs were left to the thread for them, and that thread did not get its CPU.
fn deferred(leg: &Leg<'_>, cpu: u32, from: MonoNs, to: MonoNs) -> Vec<Piece> {
    let Some(thread) = leg.evidence.softirq_thread(cpu) else { return Vec::new() };
    let role = format!("{}, which is to receive what CPU {cpu} has not received yet,", leg.evidence.name(thread, to));
    let intervals = leg.evidence.intervals(thread, from, to);
    let waits = intervals.iter().filter_map(|interval| match interval.state {
        State::Runnable(runnable) => Some((interval, starved(leg, (&role, thread), interval, &runnable))),
        _ => None,
    });
    waits.map(|(interval, charge)| Piece::charged(interval.from, interval.to, leg.span, charge)).collect()
}

/// Adds an unexplained piece with `reason` for every stretch that no piece covers.
pub(super) fn fill(pieces: &mut Vec<Piece>, leg: &Leg<'_>, reason: &str) {
    let gaps = gaps(pieces, leg.from, leg.to);
    pieces.extend(gaps.into_iter().map(|(from, to)| Piece::unexplained(from, to, leg.span, reason)));
}

/// The stretches that no piece covers; sorts the pieces.
pub(super) fn gaps(pieces: &mut [Piece], from: MonoNs, to: MonoNs) -> Vec<(MonoNs, MonoNs)> {
    pieces.sort_by_key(|piece| piece.from);
    let mut cursor = from;
    let mut gaps = Vec::new();
    for piece in &*pieces {
        if cursor < piece.from {
            gaps.push((cursor, piece.from));
        }
        cursor = cursor.max(piece.to);
    }
    if cursor < to {
        gaps.push((cursor, to));
    }
    gaps
}
