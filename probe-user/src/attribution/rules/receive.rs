//! `nic.rx_softirq`: in the ring or backlog while receive softirq is slow or not run.

use super::{Leg, accept, counted, transmit};
use crate::attribution::cause::Cause;
use crate::attribution::evidence::SoftirqRun;
use crate::attribution::ledger::Offender;
use crate::attribution::piece::{Charge, Piece};
use crate::clock::MonoNs;
use crate::journey::{Stage, Stamp};

/// Names of softirq vectors, in the order of their numbers.
const VECTORS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// The name of a softirq vector.
pub(super) fn vector(number: u32) -> &'static str {
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
    let mut pieces = transmit::stays(leg);
    let queued_until = pieces.iter().map(|piece| piece.to).fold(leg.from, MonoNs::max);
    pieces.extend(leg.evidence.softirqs(end.cpu, queued_until, leg.to).map(|run| held(leg, run, end.cpu)));
    fill(&mut pieces, leg, &unseen(leg, end));
    pieces
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
        0 => "in the receive path, where no long softirq was seen".to_owned(),
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
    let device = Offender { device: format!("softirq {} CPU {cpu}", vector(run.vector)), ..Offender::default() };
    Piece::charged(from, to, leg.span, Charge::new(Cause::NicRxSoftirq, Some(device), fact))
}

/// Adds an unexplained piece with `reason` for every stretch that no piece covers.
pub(super) fn fill(pieces: &mut Vec<Piece>, leg: &Leg<'_>, reason: &str) {
    pieces.sort_by_key(|piece| piece.from);
    let mut cursor = leg.from;
    let mut gaps = Vec::new();
    for piece in &*pieces {
        if cursor < piece.from {
            gaps.push(Piece::unexplained(cursor, piece.from, leg.span, reason));
        }
        cursor = cursor.max(piece.to);
    }
    if cursor < leg.to {
        gaps.push(Piece::unexplained(cursor, leg.to, leg.span, reason));
    }
    pieces.append(&mut gaps);
}
