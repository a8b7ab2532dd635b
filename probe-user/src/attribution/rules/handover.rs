//! Who held a check between its read and its reply, when one thread read it and another sent it.

use super::Leg;
use super::thread::{MAX_HOPS, Own, Role, Seat, charge};
use super::transmit::NOTICEABLE;
use crate::attribution::evidence::Evidence;
use crate::attribution::piece::Piece;
use crate::attribution::thread::Wake;
use crate::clock::MonoNs;
use crate::event::TaskId;
use crate::journey::{Perspective, Stage};

/// Wake-ups looked through for each hop, the latest first.
const MAX_WAKES: usize = 4_096;

/// In the receive queue: the thread that should read.
pub(in crate::attribution) fn queue(leg: &Leg<'_>) -> Vec<Piece> {
    let request = &leg.journey.request;
    let port = match leg.journey.perspective {
        Perspective::Served => request.destination_port,
        Perspective::Sent => request.source_port,
    };
    let socket = leg.evidence.socket_of(leg.journey.socket, request.protocol, port);
    let known = leg.end.map(|end| end.task).filter(|task| task.tid != 0);
    let reader = known.or_else(|| socket.map(|socket| socket.reader)).filter(|task| task.tid != 0);
    let Some(reader) = reader else {
        let reason = "in the socket's queue, and nobody has been seen to read this socket";
        return vec![Piece::unexplained(leg.from, leg.to, leg.span, reason)];
    };
    let seat = Seat::new(reader, Role::Reader, leg.span).shared(socket.is_some_and(|socket| socket.shared));
    charge(leg.evidence, &seat, leg.from, leg.to)
}

/// With the threads that serve it.
pub(in crate::attribution) fn hold(leg: &Leg<'_>) -> Vec<Piece> {
    let reader = (leg.start.stage == Stage::SockRead).then_some(leg.start.task).filter(|task| task.tid != 0);
    let sender = leg.end.filter(|end| end.stage == Stage::AppSend).map(|end| end.task).filter(|task| task.tid != 0);
    match (reader, sender) {
        (Some(reader), Some(sender)) if reader != sender => handed_over(leg, reader, sender),
        (Some(holder), _) => held(leg, holder, leg.from, leg.to),
        (None, Some(holder)) => read_and_held(leg, holder),
        (None, None) => {
            vec![Piece::unexplained(leg.from, leg.to, leg.span, "which thread held the check was not seen")]
        }
    }
}

fn held(leg: &Leg<'_>, holder: TaskId, from: MonoNs, to: MonoNs) -> Vec<Piece> {
    let life = leg.evidence.life_at(holder, to);
    let home = life.and_then(|life| life.last_sleep_before(leg.from));
    let last = life.and_then(|life| life.wakes_before(to).next()).filter(|wake| wake.at > from);
    let answered = leg.end.is_some() && last.is_some_and(Wake::by_packet);
    let stream = leg.journey.request.protocol == 6;
    let own = Own { socket: leg.journey.socket, stream, usual_hold: leg.usual_hold };
    let seat = Seat::new(holder, Role::Server, leg.span).at_home(home).answered(answered).of(own);
    charge(leg.evidence, &seat, from, to)
}

/// The read was not seen, as on kernels without socket tracepoints: until the packet wakes it,
/// the thread should read; from then on it holds the check.
fn read_and_held(leg: &Leg<'_>, holder: TaskId) -> Vec<Piece> {
    let soon = leg.from.after(NOTICEABLE).min(leg.to);
    let life = leg.evidence.life_at(holder, leg.to);
    let wakes = life.into_iter().flat_map(|life| life.wakes_before(soon)).take_while(|wake| wake.at >= leg.from);
    let woken = wakes.filter(|wake| wake.by_packet()).last().map_or(leg.from, |wake| wake.at);
    let mut pieces = charge(leg.evidence, &Seat::new(holder, Role::Reader, leg.span), leg.from, woken);
    pieces.extend(held(leg, holder, woken, leg.to));
    pieces
}

/// Each thread from when it was woken by the one before it.
fn handed_over(leg: &Leg<'_>, reader: TaskId, sender: TaskId) -> Vec<Piece> {
    let Some(hops) = chain(leg.evidence, reader, sender, leg.from, leg.to) else {
        let mut pieces = held(leg, sender, leg.from, leg.to);
        let fact = format!("read by {}; no hand-over to the sender was seen", leg.evidence.name(reader, leg.from));
        pieces.iter_mut().for_each(|piece| piece.learn(fact.clone()));
        return pieces;
    };
    let mut pieces = Vec::new();
    let mut until = leg.to;
    for (holder, since) in hops {
        pieces.extend(held(leg, holder, since, until));
        until = since;
    }
    pieces
}

/// The holders from the sender back to the reader, each with the time from which it held the
/// check. Backwards, because of many wake-ups only the last before the reply matters.
fn chain(
    evidence: &Evidence,
    reader: TaskId,
    sender: TaskId,
    from: MonoNs,
    to: MonoNs,
) -> Option<Vec<(TaskId, MonoNs)>> {
    let mut hops = Vec::new();
    let (mut holder, mut until) = (sender, to);
    while hops.len() < MAX_HOPS {
        let life = evidence.life_at(holder, until)?;
        let mut wakes = life.wakes_before(until).take(MAX_WAKES).take_while(|wake| wake.at >= from);
        let first = wakes.find(|wake| wake.by_thread())?;
        let direct = std::iter::once(first).chain(wakes).find(|wake| wake.waker.task == reader && wake.by_thread());
        let wake = direct.unwrap_or(first);
        hops.push((holder, wake.at));
        if direct.is_some() {
            hops.push((reader, from));
            return Some(hops);
        }
        (holder, until) = (wake.waker.task, wake.at);
    }
    None
}
