//! `nic.qdisc`, `nic.tx_queue` and the send half of `app.socket_queue`.

use super::receive::{self, fill};
use super::{Leg, counted, outside, vm};
use crate::attribution::cause::Cause;
use crate::attribution::evidence::text;
use crate::attribution::held::{HeldBy, HeldSend};
use crate::attribution::ledger::Offender;
use crate::attribution::piece::{Charge, Piece};
use crate::attribution::queue::taken_through;
use crate::clock::{DurNs, MonoNs};
use crate::event::InterfaceId;
use crate::journey::{QdiscStay, Stage};
use probe_wire::{QdiscBody, SendHeldBody};

/// Disciplines that hold packets back by design while the device could take them.
const SHAPERS: [&str; 9] = ["tbf", "htb", "hfsc", "cbq", "fq", "etf", "taprio", "cake", "netem"];
/// Bits of `netdev_queue.state`: stopped by the driver, stopped by BQL, frozen.
const STOPPED_BITS: u32 = 1 | 2 | 4;
/// How long Linux delays an acknowledgement: a reply held by Nagle waits for it.
const DELAYED_ACK: std::ops::Range<u64> = 35_000_000..50_000_000;

/// How long data that was held back counts as what a later answer is appended to.
const HELD_KEPT: DurNs = DurNs::from_secs(1);
/// Whether the answer has left is not known.
const APPENDED: &str = "sent to the socket, which still held an earlier answer back: one that is appended to that, and \
                        does not begin a segment, is not recognised when it leaves";

/// Between the reply's send call and its first packet.
pub(in crate::attribution) fn send(leg: &Leg<'_>) -> Vec<Piece> {
    let time = leg.time();
    if let Some(charge) = vm::neighbour(leg, format!("{time} from the send call to the device")) {
        return vec![Piece::charged(leg.from, leg.to, leg.span, charge)];
    }
    let tcp = leg.journey.request.protocol == 6;
    if !tcp {
        let reason = "between the send call and the device, where no socket holds a datagram";
        return vec![Piece::unexplained(leg.from, leg.to, leg.span, reason)];
    }
    let fact = match leg.end {
        Some(end) => format!("sent to the socket {time} before it reached {}", end.stage.name()),
        None => format!("sent to the socket {time} ago, and nothing has left yet"),
    };
    let until = leg.to.min(leg.from.after(NOTICEABLE)).max(leg.from);
    match leg.evidence.held_send(leg.start.task, leg.from, until).or_else(|| later_part(leg)) {
        Some(held) if leg.end.is_none() && leg.evidence.held_earlier(held, held.at.before(HELD_KEPT)) => {
            vec![Piece::unexplained(leg.from, leg.to, leg.span, APPENDED)]
        }
        Some(held) => vec![held_back(leg, held, fact)],
        None => {
            let reason = "sent to the socket, which held nothing back: an answer that does not begin a segment \
                          is not recognised";
            vec![Piece::unexplained(leg.from, leg.to, leg.span, reason)]
        }
    }
}

/// What held the last part of an answer that was sent in several.
fn later_part<'a>(leg: &Leg<'a>) -> Option<&'a HeldSend> {
    leg.end.and_then(|_| leg.evidence.held_send(leg.start.task, leg.from, leg.to))
}

/// Whose it is that the socket held the answer back.
fn held_back(leg: &Leg<'_>, held: &HeldSend, fact: String) -> Piece {
    let offender = leg.evidence.offender(leg.start.task, leg.from);
    let SendHeldBody { unsent, in_flight, packets_out, congestion_window, .. } = held.body;
    match held.by() {
        HeldBy::Window => {
            let charge = Charge::new(Cause::ExternalOutsideHost, None, window(held)).with(Some(fact));
            Piece::charged(leg.from, leg.to, leg.span, charge.meaning(NOT_READ))
        }
        HeldBy::Nagle => {
            let why =
                format!("{unsent} bytes waited for an acknowledgement of {in_flight} before them (no TCP_NODELAY)");
            let delayed = DELAYED_ACK.contains(&leg.time().0);
            let delay = if delayed { "about 40 ms, a delayed acknowledgement; " } else { "" };
            let charge = Charge::new(Cause::AppSocketQueue, Some(offender), format!("{delay}{why}")).with(Some(fact));
            Piece::charged(leg.from, leg.to, leg.span, charge.meaning(NAGLE))
        }
        HeldBy::Congestion => {
            let reason = format!(
                "{fact}; {packets_out} packets of at most {congestion_window} were under way: \
                 whether the network or the peer is slow is not known"
            );
            Piece::unexplained(leg.from, leg.to, leg.span, reason)
        }
        HeldBy::Other => {
            let reason = format!("{fact}; {unsent} bytes were held back for no reason that is known");
            Piece::unexplained(leg.from, leg.to, leg.span, reason)
        }
    }
}

/// What is true of `app.socket_queue` where a small answer waits for an acknowledgement.
const NAGLE: &str = "Nagle's algorithm holds the reply in the send queue";
/// What is true of `external.outside_host` where the peer does not read.
pub(super) const NOT_READ: &str = "the client does not read what it was sent";

/// The window of the peer when data was held back for it.
pub(super) fn window(held: &HeldSend) -> String {
    let SendHeldBody { unsent, in_flight, window, .. } = held.body;
    let room = window.saturating_sub(in_flight);
    format!("the peer's receive window had room for {room} bytes more, and {unsent} were to be sent")
}

/// From the queueing discipline to the driver, or on to transmit completion.
pub(in crate::attribution) fn transmit(leg: &Leg<'_>) -> Vec<Piece> {
    if leg.start.stage == Stage::PnicXmit {
        let fact = format!("{} from the driver to transmit completion", leg.time());
        let charge = Charge::new(Cause::NicTxQueue, Some(device(leg, leg.start.interface)), fact);
        return vec![Piece::charged(leg.from, leg.to, leg.span, charge)];
    }
    let mut pieces = stays(leg);
    match leg.end.filter(|end| end.stage == Stage::VnicRx) {
        Some(end) => pieces = receive::taken_in(leg, end, pieces),
        None => pieces.extend(after_queue(leg, &pieces)),
    }
    let reason = match leg.evidence.blind().qdiscs {
        true => "in the transmit path, and queueing disciplines are not watched",
        false => "in the transmit path, and no stay in a queueing discipline was seen",
    };
    fill(&mut pieces, leg, reason);
    pieces
}

/// Out of the discipline, and not at the driver yet.
fn after_queue(leg: &Leg<'_>, stays: &[Piece]) -> Option<Piece> {
    let left = stays.iter().map(|piece| piece.to).max().filter(|left| *left < leg.to)?;
    let fact = format!("{} from the queueing discipline to the driver", leg.to.since(left));
    let charge = Charge::new(Cause::NicTxQueue, Some(device(leg, leg.start.interface)), fact);
    leg.end.map(|_| Piece::charged(left, leg.to, leg.span, charge))
}

/// From the queueing discipline to the answer of another host; only the stays were seen.
pub(in crate::attribution) fn transmit_and_outside(leg: &Leg<'_>) -> Vec<Piece> {
    let mut pieces = stays(leg);
    let left = pieces.iter().map(|piece| piece.to).fold(leg.from, MonoNs::max);
    if left < leg.to && leg.evidence.blind().qdiscs {
        let reason = "in the transmit path or outside, and queueing disciplines are not watched";
        pieces.push(Piece::unexplained(left, leg.to, leg.span, reason));
    } else if left < leg.to {
        pieces.extend(outside::pieces(leg, left));
    }
    pieces
}

/// What the stays in queueing disciplines took of the leg.
pub(super) fn stays(leg: &Leg<'_>) -> Vec<Piece> {
    let stays = leg.journey.qdisc.iter().filter(|stay| stay.entered_at < leg.to);
    let pieces = stays.filter_map(|stay| {
        let from = stay.entered_at.max(leg.from);
        let to = stay.left_at.unwrap_or(leg.to).min(leg.to);
        (from < to).then(|| stay_piece(leg, stay, from, to))
    });
    pieces.collect()
}

fn stay_piece(leg: &Leg<'_>, stay: &QdiscStay, from: MonoNs, to: MonoNs) -> Piece {
    let waited = format!("waited {} in {}", to.since(from), name(leg, &stay.entered));
    let shared = queue_facts(leg, stay);
    let id = stay.interface();
    let filled = leg.evidence.queues().wait(taken_through(leg.journey, id), from, to).ok();
    let filled_by = filled.as_ref().map(|wait| wait.sentence(leg.evidence));
    let charge = |cause, device: String, fact: String| {
        let offender = match &filled {
            Some(wait) => wait.offender(device),
            None => Offender { device, ..Offender::default() },
        };
        let charge = Charge::new(cause, Some(offender), fact).with(filled_by.clone());
        Piece::charged(from, to, leg.span, charge.with(Some(waited.clone())).with(shared.clone()))
    };
    match held_by(stay) {
        Held::Device(fact) => charge(Cause::NicTxQueue, leg.evidence.interface(id), fact),
        Held::Shaper(fact) => charge(Cause::NicQdisc, name(leg, &stay.entered), fact),
        Held::Unknown(reason) => Piece::unexplained(from, to, leg.span, format!("{waited}; {reason}")),
    }
}

/// Who kept a packet in its discipline.
enum Held {
    Device(String),
    Shaper(String),
    Unknown(&'static str),
}

fn held_by(stay: &QdiscStay) -> Held {
    let last = stay.left.as_ref().unwrap_or(&stay.entered);
    let requeues = grown(stay.entered.requeues, last.requeues);
    let overlimits = grown(stay.entered.overlimits, last.overlimits);
    let stopped = (stay.entered.queue_state | last.queue_state) & STOPPED_BITS;
    let kind = text(&stay.entered.kind);
    if requeues.is_some_and(|grown| grown > 0) {
        return Held::Device(format!("the device refused packets: requeues grew by {}", requeues.unwrap_or(0)));
    }
    if stopped != 0 {
        return Held::Device(format!("the device's queue was stopped by {}", stopper(stopped)));
    }
    if overlimits.is_some_and(|grown| grown > 0) {
        let grown = overlimits.unwrap_or(0);
        return Held::Shaper(format!("{kind} held packets back: overlimits grew by {grown}, requeues by 0"));
    }
    if SHAPERS.contains(&kind.as_str()) {
        return Held::Shaper(format!("{kind} shapes, and the device took packets: its queue ran, requeues by 0"));
    }
    match requeues {
        None => Held::Unknown("its counters are kept per CPU, so who held it is not proven"),
        Some(_) => Held::Unknown("it is no shaper, and the device refused nothing"),
    }
}

fn grown(before: u32, after: u32) -> Option<u32> {
    (before != u32::MAX && after != u32::MAX).then(|| after.wrapping_sub(before))
}

const fn stopper(bits: u32) -> &'static str {
    match bits {
        bits if bits & 1 != 0 => "the driver",
        bits if bits & 2 != 0 => "byte queue limits",
        _ => "freezing",
    }
}

fn queue_facts(leg: &Leg<'_>, stay: &QdiscStay) -> Option<String> {
    let QdiscBody { queue_len, backlog_bytes, netns, ifindex, .. } = stay.entered;
    let id = InterfaceId { netns, ifindex };
    let device = leg.evidence.interface_fact(id);
    let queues = device.map_or(String::new(), |fact| {
        format!("; {} has {}", fact.name, counted(u64::from(fact.tx_queues), "transmit queue"))
    });
    let waiting = counted(u64::from(queue_len), "packet");
    (queue_len != u32::MAX).then(|| format!("{waiting} ({backlog_bytes} bytes) queued when it came{queues}"))
}

/// `eth0 tbf 8001:`.
fn name(leg: &Leg<'_>, body: &QdiscBody) -> String {
    let device = leg.evidence.interface(InterfaceId { netns: body.netns, ifindex: body.ifindex });
    let (major, minor) = (body.handle >> 16, body.handle & 0xffff);
    let minor = if minor == 0 { String::new() } else { format!("{minor:x}") };
    format!("{device} {} {major:x}:{minor}", text(&body.kind))
}

fn device(leg: &Leg<'_>, id: InterfaceId) -> Offender {
    Offender { device: leg.evidence.interface(id), ..Offender::default() }
}

/// A time worth a sentence of its own.
pub(super) const NOTICEABLE: DurNs = DurNs::from_millis(1);
