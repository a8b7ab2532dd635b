//! Where a lost check ended: at a drop, or behind the last stage that it reached.

use super::{Leg, drops, vm};
use crate::attribution::place::{LossPlace, LostAt, Sent};
use crate::attribution::queue::{self, QueueWait};
use crate::attribution::sent::SendCall;
use crate::event::{InterfaceId, TaskId};
use crate::journey::{Outcome, PacketDrop, Perspective, Span, Stage};

/// Where a lost check ended, by the last leg of its way; `None` if it is not lost.
pub(in crate::attribution) fn lost_at(leg: &Leg<'_>) -> Option<LostAt> {
    if leg.end.is_some() || !matches!(leg.journey.outcome, Outcome::Lost(_)) {
        return None;
    }
    Some(drops::within(leg).map_or_else(|| without_drop(leg), |drop| at_drop(leg, drop)))
}

fn at_drop(leg: &Leg<'_>, drop: &PacketDrop) -> LostAt {
    if drops::is_behind(leg, drop) {
        return LostAt { drop: Some(drop.clone()), ..ended(leg, LossPlace::LeftInTime, None) };
    }
    let by_custody = (leg.span == Span::Transmit).then_some(LossPlace::Device);
    let call = drops::sent(leg, drop);
    LostAt {
        place: drops::place(leg, drop).or(by_custody).unwrap_or(LossPlace::Elsewhere),
        reply: drop.reply,
        drop: Some(drop.clone()),
        interface: if drop.interface.ifindex == 0 { leg.start.interface } else { drop.interface },
        filled: queue::filled(leg.evidence, leg.journey, drop),
        ..ended(leg, LossPlace::Elsewhere, call)
    }
}

fn without_drop(leg: &Leg<'_>) -> LostAt {
    let refused = refused(leg);
    let place = place(leg, refused);
    LostAt { filled: filled(leg, place, refused), ..ended(leg, place, refused) }
}

/// Why nobody but the socket's own threads is named.
const OWN_DATA: &str = "of a stream, the socket holds what its own threads sent before";

/// Who filled what had no room for its answer, or still holds it.
fn filled(leg: &Leg<'_>, place: LossPlace, refused: Option<&SendCall>) -> Option<Result<QueueWait, &'static str>> {
    match (place, refused) {
        (LossPlace::SendBuffer, Some(call)) => Some(behind(leg, call)),
        (LossPlace::SendBuffer, None) => Some(Err(OWN_DATA)),
        (LossPlace::Qdisc, _) => {
            let stay = leg.journey.qdisc.iter().rfind(|stay| stay.left_at.is_none())?;
            let through = queue::taken_through(leg.journey, stay.interface());
            Some(leg.evidence.queues().wait(through, stay.entered_at, leg.to))
        }
        _ => None,
    }
}

/// Who filled the queue behind which the socket had no room.
pub(super) fn behind(leg: &Leg<'_>, call: &SendCall) -> Result<QueueWait, &'static str> {
    let wait = queue::behind_socket(leg.evidence, call)?;
    Ok(QueueWait { time: call.at.since(leg.from), ..wait })
}

fn ended(leg: &Leg<'_>, place: LossPlace, call: Option<&SendCall>) -> LostAt {
    LostAt {
        place,
        stage: leg.start.stage,
        span: leg.span,
        reply: leg.start.stage >= Stage::AppSend && leg.journey.perspective == Perspective::Served
            || leg.start.stage <= Stage::SockRead && leg.journey.perspective == Perspective::Sent,
        drop: None,
        interface: device(leg),
        sent: call.map(|call| Sent::of(call.result)),
        sender: call.map_or_else(TaskId::default, |call| call.task),
        filled: None,
    }
}

/// Only what leaves by a device is at one.
fn device(leg: &Leg<'_>) -> InterfaceId {
    if matches!(leg.span, Span::Queue | Span::Hold) { InterfaceId::default() } else { leg.start.interface }
}

fn place(leg: &Leg<'_>, refused: Option<&SendCall>) -> LossPlace {
    let ignored = leg.journey.refusals.iter().any(|refusal| leg.from <= refusal.at);
    match leg.span {
        Span::Receive if ignored => LossPlace::AcceptQueue,
        Span::Receive | Span::Forward => LossPlace::Unseen,
        Span::Vm if vm::waits_in_ring(leg) => LossPlace::TapRing,
        Span::Vm if leg.evidence.blind().drops => LossPlace::Unseen,
        Span::Vm => LossPlace::Guest,
        Span::Queue => LossPlace::Unread,
        Span::Hold if refused.is_some() => LossPlace::SendBuffer,
        Span::Hold if leg.start.stage == Stage::SockRead => LossPlace::Unanswered,
        Span::Hold => LossPlace::Unseen,
        Span::Send if leg.journey.request.protocol == 6 => LossPlace::SendBuffer,
        Span::Transmit if leg.journey.qdisc.iter().any(|stay| stay.left_at.is_none()) => LossPlace::Qdisc,
        Span::Send | Span::Transmit => LossPlace::Unseen,
        Span::Outside if leg.journey.perspective == Perspective::Sent => LossPlace::LeftInTime,
        Span::Outside => LossPlace::Unseen,
    }
}

/// The call that was to send the answer of a check that a thread holds, if it failed: the first after
/// the thread had read this check and no other.
pub(super) fn refused<'a>(leg: &Leg<'a>) -> Option<&'a SendCall> {
    failed(leg)?.find(|call| call.read_at == Some(leg.start.at))
}

/// The send calls that failed while a thread held a check that has no answer.
pub(super) fn failed<'a>(leg: &Leg<'a>) -> Option<impl Iterator<Item = &'a SendCall>> {
    let holder = leg.start.task;
    let held = leg.span == Span::Hold && leg.end.is_none() && leg.start.stage == Stage::SockRead && holder.tid != 0;
    held.then(|| leg.evidence.send_calls().failed(holder, leg.from, leg.to))
}
