//! Who held a check between its read and its reply, when one thread read it and another sent it.

use super::Leg;
use super::thread::{MAX_HOPS, Own, Role, Seat, charge};
use super::transmit::NOTICEABLE;
use super::{drops, lost};
use crate::attribution::cause::Cause;
use crate::attribution::evidence::Evidence;
use crate::attribution::flow::Flow;
use crate::attribution::piece::{Charge, Piece};
use crate::attribution::place::Sent;
use crate::attribution::sent::SendCall;
use crate::attribution::thread::{Interval, State, Wake};
use crate::attribution::walk::is_in_doubt;
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use crate::journey::{Journey, Perspective, Stage};

/// How far back a drop may lie for which a stream still waits.
const LOOK_BACK: DurNs = DurNs::from_secs(1);

/// Why a part of a stream was not read.
const BEHIND: &str = "the thread slept on, and the way into the socket was not seen: \
                      an earlier part of the connection may have been missing";

/// Errors of a send call that found no room, as `asm-generic/errno-base.h` and `errno.h` number them.
const EAGAIN: i32 = 11;
const ENOBUFS: i32 = 105;

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

/// What is true of `app.socket_queue` where the socket does not take an answer.
const NO_ROOM: &str = "the socket's send buffer had no room for the reply";

/// Its answer was not taken by the socket, or that may be so.
fn refused(leg: &Leg<'_>) -> Option<Piece> {
    let call = lost::refused(leg);
    let failed = call.or_else(|| lost::failed(leg)?.next())?;
    let sender = leg.evidence.name(failed.task, failed.at);
    let fact = format!("the send call of {sender} failed with {}", Sent::of(failed.result));
    let full = matches!(-failed.result, EAGAIN | ENOBUFS);
    let Some(call) = call.filter(|_| full) else {
        let reason = format!("{fact}: whether it was for this check, and where it failed, is not known");
        return Some(Piece::unexplained(leg.from, leg.to, leg.span, reason));
    };
    let charge = Charge::new(Cause::AppSocketQueue, Some(leg.evidence.offender(call.task, call.at)), fact);
    let charge = charge.with(Some(behind_what(leg, call))).meaning(NO_ROOM);
    Some(Piece::charged(leg.from, leg.to, leg.span, charge))
}

/// Behind what its socket had no room.
fn behind_what(leg: &Leg<'_>, call: &SendCall) -> String {
    match lost::behind(leg, call) {
        Ok(wait) => format!("answers before it waited in a queueing discipline: {}", wait.sentence(leg.evidence)),
        Err(reason) => format!("who filled what its socket waits for is not known: {reason}"),
    }
}

/// With the threads that serve it.
pub(in crate::attribution) fn hold(leg: &Leg<'_>) -> Vec<Piece> {
    if let Some(piece) = refused(leg) {
        return vec![piece];
    }
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
    let own = own(leg, last.map(|wake| wake.at));
    let seat = Seat::new(holder, Role::Server, leg.span).at_home(home).answered(answered).of(own);
    charge(leg.evidence, &seat, from, to)
}

/// By what socket the check came; its thread woke up last at `woken`.
fn own(leg: &Leg<'_>, woken: Option<MonoNs>) -> Own {
    let Journey { request, socket, stamps, .. } = leg.journey;
    let flow = Flow {
        peer: request.source,
        peer_port: request.source_port,
        local_port: request.destination_port,
        protocol: request.protocol,
    };
    Own {
        socket: if *socket == 0 { socket_read(leg) } else { *socket },
        stream: request.protocol == 6,
        usual_hold: leg.usual_hold,
        flow,
        since: leg.journey.started_at(),
        direct: stamps.first().is_some_and(|stamp| stamp.stage == Stage::PnicRx)
            && !stamps.iter().any(|stamp| [Stage::VnicTx, Stage::GuestRx].contains(&stamp.stage)),
        answered_after: woken.filter(|_| leg.end.is_some()),
        answer: leg.end.map(|end| (end.task, end.at)),
    }
}

/// The socket that the thread which answered read from right after the check came; 0 if unknown.
fn socket_read(leg: &Leg<'_>) -> u64 {
    let holder = leg.end.map(|end| end.task).and_then(|task| leg.evidence.life_at(task, leg.to));
    let read = holder.and_then(|life| life.read_after(leg.journey.started_at()));
    read.filter(|(at, _)| at.since(leg.journey.started_at()) <= NOTICEABLE).map_or(0, |(_, socket)| socket)
}

/// The read was not seen, as on kernels without socket tracepoints: until the packet wakes it,
/// the thread should read; from then on it holds the check.
fn read_and_held(leg: &Leg<'_>, holder: TaskId) -> Vec<Piece> {
    let soon = leg.from.after(NOTICEABLE).min(leg.to);
    let life = leg.evidence.life_at(holder, leg.to);
    let wakes = life.into_iter().flat_map(|life| life.wakes_before(soon)).take_while(|wake| wake.at >= leg.from);
    let woken = wakes.filter(|wake| wake.by_packet()).last().map_or(leg.from, |wake| wake.at);
    if woken == leg.from && leg.journey.request.protocol == 6 {
        return read_or_behind(leg, holder, soon);
    }
    let mut pieces = charge(leg.evidence, &Seat::new(holder, Role::Reader, leg.span), leg.from, woken);
    pieces.extend(held(leg, holder, woken, leg.to));
    pieces
}

/// A part of a stream whose way into the socket was not seen. The thread held it if it read just
/// then. If it slept on, the part may have been behind one that was missing, until that came and
/// woke it.
fn read_or_behind(leg: &Leg<'_>, holder: TaskId, soon: MonoNs) -> Vec<Piece> {
    let evidence = leg.evidence;
    let read = evidence
        .life_at(holder, leg.to)
        .is_some_and(|life| life.read_after(leg.from).is_some_and(|(at, _)| at <= soon));
    let woken = match evidence.intervals(holder, soon, leg.to).first().map(|interval| interval.state) {
        Some(State::Blocked(blocked)) if !read && !evidence.blind().sockets => {
            blocked.wake.map_or(leg.to, |wake| wake.at.min(leg.to))
        }
        _ => return held(leg, holder, leg.from, leg.to),
    };
    let mut pieces = vec![behind(leg, woken)];
    pieces.extend(held(leg, holder, woken, leg.to));
    pieces
}

/// Until `to` the stream could not be read, by a drop of one of its packets where one is known.
fn behind(leg: &Leg<'_>, to: MonoNs) -> Piece {
    let flow = own(leg, None).flow;
    let drop = leg.evidence.flow_drop(&flow, leg.journey.started_at().before(LOOK_BACK), to);
    let drop = drop.filter(|drop| drop.incoming && drop.at < to);
    let told = drop.and_then(|drop| Some((drop, drops::told(leg.evidence, drop.reason, drop.location)?)));
    let Some((drop, cause)) = told else { return Piece::unexplained(leg.from, to, leg.span, BEHIND) };
    let fact = drops::sentence(leg.evidence, "an earlier packet of the connection", drop.reason, drop.location);
    Piece::charged(leg.from, to, leg.span, Charge::new(cause, None, fact))
}

/// Each thread from when it was woken by the one before it. A wake-up that is missing may have been
/// the one that handed the check over.
fn handed_over(leg: &Leg<'_>, reader: TaskId, sender: TaskId) -> Vec<Piece> {
    let Chain { hops, is_whole } = chain(leg.evidence, reader, sender, leg.from, leg.to);
    if let Some((task, why)) = doubt(leg, reader, &hops) {
        let reason = format!("when it was handed over is not known: {}: {why}", leg.evidence.name(task, leg.to));
        return vec![Piece::unexplained(leg.from, leg.to, leg.span, reason)];
    }
    if !is_whole {
        let mut pieces = held(leg, sender, leg.from, leg.to);
        let fact = format!("read by {}; no hand-over to the sender was seen", leg.evidence.name(reader, leg.from));
        pieces.iter_mut().for_each(|piece| piece.learn(fact.clone()));
        return pieces;
    }
    let mut pieces = Vec::new();
    let mut until = leg.to;
    for (holder, since) in hops {
        pieces.extend(held(leg, holder, since, until));
        until = since;
    }
    pieces
}

/// The first holder of which it is not known how it came to run before it handed the check on. What
/// it did after that is not asked.
fn doubt(leg: &Leg<'_>, reader: TaskId, hops: &[(TaskId, MonoNs)]) -> Option<(TaskId, &'static str)> {
    let ends = std::iter::once(leg.to).chain(hops.iter().map(|(_, since)| *since));
    let holders = hops.iter().map(|(holder, _)| *holder).zip(ends).filter(|(holder, _)| *holder != reader);
    holders.into_iter().find_map(|(holder, until)| Some((holder, in_doubt(leg, holder, until)?)))
}

/// Why it is not known how a thread came to run, if that is so.
fn in_doubt(leg: &Leg<'_>, task: TaskId, until: MonoNs) -> Option<&'static str> {
    let doubt = |interval: &Interval<'_>| match interval.state {
        State::Unknown(reason) => is_in_doubt(reason).then_some(reason),
        _ => None,
    };
    leg.evidence.intervals(task, leg.from, until).iter().find_map(doubt)
}

/// The holders from the sender back to the reader, each with the time from which it held the check.
struct Chain {
    hops: Vec<(TaskId, MonoNs)>,
    /// It goes back to the reader. If not, no wake-up by a thread led to the last of the holders.
    is_whole: bool,
}

/// Goes backwards, because of many wake-ups only the last before the reply matters.
fn chain(evidence: &Evidence, reader: TaskId, sender: TaskId, from: MonoNs, to: MonoNs) -> Chain {
    let mut hops = Vec::new();
    let (mut holder, mut until) = (sender, to);
    while hops.len() < MAX_HOPS {
        let life = evidence.life_at(holder, until);
        let wakes = life.into_iter().flat_map(|life| life.wakes_before(until));
        let mut wakes = wakes.take(MAX_WAKES).take_while(|wake| wake.at >= from);
        let Some(first) = wakes.find(|wake| wake.by_thread()) else { break };
        let direct = std::iter::once(first).chain(wakes).find(|wake| wake.waker.task == reader && wake.by_thread());
        let wake = direct.unwrap_or(first);
        hops.push((holder, wake.at));
        if direct.is_some() {
            hops.push((reader, from));
            return Chain { hops, is_whole: true };
        }
        (holder, until) = (wake.waker.task, wake.at);
    }
    hops.push((holder, from));
    Chain { hops, is_whole: false }
}
