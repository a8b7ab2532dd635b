//! Drops: the kernel dropped the check's packet, and the wait that follows belongs to the drop.

use super::{Leg, counted};
use crate::attribution::cause::Cause;
use crate::attribution::evidence::Evidence;
use crate::attribution::ledger::Offender;
use crate::attribution::piece::{Charge, Piece};
use crate::attribution::place::{LossPlace, Sent};
use crate::attribution::queue;
use crate::attribution::sent::SendCall;
use crate::attribution::thread::State;
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use crate::journey::{Custody, Loss, Outcome, PacketDrop, Perspective, Stage};
use crate::target::VmThreadRole;

/// How far back to look at what the reader of a full socket did.
const LOOK_BACK: DurNs = DurNs::from_secs(2);
/// Most vCPUs of which is said what they did.
const MOST_VCPUS: usize = 4;

/// The drop that a leg's wait belongs to: it lost the check, or the check went on only because
/// the packet was sent again.
pub(in crate::attribution) fn within<'a>(leg: &Leg<'a>) -> Option<&'a PacketDrop> {
    let (journey, end) = (leg.journey, leg.end);
    if let (Outcome::Lost(Loss::Dropped(drop)), None) = (&journey.outcome, end) {
        return Some(drop);
    }
    let resent = journey.request.protocol == 6 || journey.retransmissions > 0;
    let inside = |drop: &&PacketDrop| leg.from <= drop.at && drop.at < leg.to;
    journey.drops.iter().filter(inside).min_by_key(|drop| drop.at).filter(|_| resent)
}

/// What is true of `app.socket_queue` where a packet found no room.
pub(super) const FULL: &str = "lost because an accept queue or receive buffer was full";

/// The reason that iptables, nftables and the tracking of connections give, and what is true of `host.forwarding` then.
const NETFILTER: &str = "NETFILTER_DROP";
const FILTERED: &str = "a rule of this host's firewall, or its full table of connections, drops the packet";
/// What is true of `external.outside_host` where a packet came damaged.
const DAMAGED: &str = "the packet came to this host with a wrong checksum";

/// The same where another namespace of the machine, behind this host's NIC, dropped it.
const BEHIND: &str = "the packet left this host in time, and was dropped behind it";

/// From `from` to the leg's end, after `drop`.
pub(in crate::attribution) fn wait_after(leg: &Leg<'_>, drop: &PacketDrop, from: MonoNs) -> Piece {
    match cause(leg, drop) {
        Some(cause) => Piece::charged(from, leg.to, leg.span, charge(leg, drop, cause)),
        None => Piece::unexplained(from, leg.to, leg.span, unproven(leg, drop)),
    }
}

/// Why a drop proves no cause.
pub(in crate::attribution) fn unproven(leg: &Leg<'_>, drop: &PacketDrop) -> String {
    format!("{}, which proves no cause", what(leg, drop))
}

/// The cause that a drop proves: by its place, else by who held the packet.
pub(in crate::attribution) fn cause(leg: &Leg<'_>, drop: &PacketDrop) -> Option<Cause> {
    match place(leg, drop) {
        _ if is_behind(leg, drop) => Some(Cause::ExternalOutsideHost),
        Some(LossPlace::Checksum) => came_damaged(leg, drop).then_some(Cause::ExternalOutsideHost),
        Some(place) if place.row().cause.is_some() => place.row().cause,
        _ => match leg.span.custody() {
            Custody::Forwarding => Some(Cause::HostForwarding),
            Custody::TransmitPath => Some(Cause::NicDrop),
            Custody::Outside | Custody::ReceivePath | Custody::Vm | Custody::Socket | Custody::Thread => None,
        },
    }
}

/// Whether it took place behind this host: its NIC had passed the packet on to another namespace of
/// the machine, which stands for the world outside. A ring that has no room is still the NIC's.
pub(super) fn is_behind(leg: &Leg<'_>, drop: &PacketDrop) -> bool {
    let here = leg.start.interface.netns;
    leg.start.stage == Stage::PnicXmit
        && drop.interface.netns != 0
        && drop.interface.netns != here
        && !matches!(place(leg, drop), Some(LossPlace::NicRing | LossPlace::Device | LossPlace::Qdisc))
}

/// Where a drop took place, if its reason or function tells.
pub(super) fn place(leg: &Leg<'_>, drop: &PacketDrop) -> Option<LossPlace> {
    place_of(leg.evidence, drop.reason, drop.location)
}

fn place_of(evidence: &Evidence, reason: u32, location: u64) -> Option<LossPlace> {
    LossPlace::of_drop(&evidence.drop_reason(reason), evidence.symbol(location).unwrap_or_default())
}

/// The cause that reason and place of a drop prove by themselves.
pub(super) fn told(evidence: &Evidence, reason: u32, location: u64) -> Option<Cause> {
    place_of(evidence, reason, location)?.row().cause
}

/// Whether a packet that was found damaged had come from the NIC, and passed no device of this host
/// that could have damaged it.
fn came_damaged(leg: &Leg<'_>, drop: &PacketDrop) -> bool {
    let incoming = drop.reply == (leg.journey.perspective == Perspective::Sent);
    let passed = |stage| leg.journey.stamp(stage).is_some();
    incoming && passed(Stage::PnicRx) && ![Stage::VnicTx, Stage::BackendRx, Stage::GuestRx].into_iter().any(passed)
}

fn charge(leg: &Leg<'_>, drop: &PacketDrop, cause: Cause) -> Charge {
    let (offender, fact) = match cause {
        Cause::AppSocketQueue => full_socket(leg, drop),
        Cause::NicDrop => {
            let (offender, filled) = full_queue(leg, drop);
            (offender, filled.or_else(|| full_ring(leg, drop)))
        }
        _ => (Some(device(leg, drop)), None),
    };
    let offender = offender.filter(|offender| *offender != Offender::default());
    let call = if cause == Cause::AppSocketQueue { None } else { sent(leg, drop) };
    let charge = Charge::new(cause, offender, what(leg, drop)).with(fact);
    let charge = charge.with(call.map(|call| said(leg, call))).with(again(leg));
    match cause {
        Cause::AppSocketQueue => charge.meaning(FULL),
        Cause::ExternalOutsideHost if is_behind(leg, drop) => charge.meaning(BEHIND),
        Cause::ExternalOutsideHost => charge.meaning(DAMAGED),
        Cause::HostForwarding if leg.evidence.drop_reason(drop.reason) == NETFILTER => charge.meaning(FILTERED),
        _ => charge,
    }
}

fn what(leg: &Leg<'_>, drop: &PacketDrop) -> String {
    let packet = if drop.reply { "the reply" } else { "the request" };
    sentence(leg.evidence, packet, drop.reason, drop.location)
}

/// `the kernel dropped the reply in kfree_skb_list: QDISC_DROP`.
pub(super) fn sentence(evidence: &Evidence, packet: &str, reason: u32, location: u64) -> String {
    let reason = evidence.drop_reason(reason);
    let place = evidence.symbol(location).map_or(String::new(), |name| format!(" in {name}"));
    let rule =
        if reason == NETFILTER { ", a rule of iptables or nftables, or a full table of connections" } else { "" };
    format!("the kernel dropped {packet}{place}: {reason}{rule}")
}

/// The call with which the dropped packet was sent, if it was dropped within that.
pub(super) fn sent<'a>(leg: &Leg<'a>, drop: &PacketDrop) -> Option<&'a SendCall> {
    let sender = leg.journey.stamp(Stage::AppSend).filter(|stamp| stamp.task == drop.task && drop.task.tid != 0)?;
    leg.evidence.send_calls().that_dropped(drop.task, sender.at, drop.at)
}

fn said(leg: &Leg<'_>, call: &SendCall) -> String {
    let sender = leg.evidence.name(call.task, call.at);
    match Sent::of(call.result) {
        Sent::Success => format!("the send call of {sender} returned success all the same"),
        failed @ Sent::Failed(_) => format!("the send call of {sender} failed with {failed}"),
    }
}

fn again(leg: &Leg<'_>) -> Option<String> {
    let copies = leg.journey.retransmissions;
    (copies > 0).then(|| format!("it was sent {} more", counted(u64::from(copies), "time")))
}

fn device(leg: &Leg<'_>, drop: &PacketDrop) -> Offender {
    let known = drop.interface.ifindex != 0;
    let device = if known { leg.evidence.interface(drop.interface) } else { String::new() };
    Offender { device, ..Offender::default() }
}

/// The queue that was full, and who had filled it, if that is known.
fn full_queue(leg: &Leg<'_>, drop: &PacketDrop) -> (Option<Offender>, Option<String>) {
    let Offender { device, .. } = device(leg, drop);
    match queue::filled(leg.evidence, leg.journey, drop) {
        Some(Ok(wait)) => (Some(wait.offender(device)), Some(wait.sentence(leg.evidence))),
        Some(Err(_)) | None => (Some(Offender { device, ..Offender::default() }), None),
    }
}

/// Whose socket was full, and what its reader did instead of reading.
fn full_socket(leg: &Leg<'_>, drop: &PacketDrop) -> (Option<Offender>, Option<String>) {
    let request = &leg.journey.request;
    let port = if drop.reply { request.source_port } else { request.destination_port };
    let incoming = drop.reply == (leg.journey.perspective == Perspective::Sent);
    let cookie = if incoming { leg.journey.socket } else { 0 };
    let Some(socket) = leg.evidence.socket_of(cookie, request.protocol, port) else {
        return (None, None);
    };
    let (taken, limit) = (socket.receive_bytes, socket.receive_limit_bytes);
    let room = (limit > 0).then(|| format!("{taken} of {limit} bytes of its receive buffer were taken"));
    let reader = Some(socket.reader).filter(|reader| reader.tid != 0);
    let did = reader.and_then(|reader| reader_did(leg, reader, drop.at));
    let facts: Vec<String> = [room, did].into_iter().flatten().collect();
    let offender = reader.map(|reader| leg.evidence.offender(reader, drop.at));
    (offender, (!facts.is_empty()).then(|| facts.join("; ")))
}

/// The state its reader was in when the packet was dropped.
pub(super) fn reader_did(leg: &Leg<'_>, reader: TaskId, at: MonoNs) -> Option<String> {
    did(leg, "its reader", reader, at)
}

/// What those did who could have emptied a tap's ring, when it was too full for the packet: its worker
/// and the VM's vCPUs.
fn full_ring(leg: &Leg<'_>, drop: &PacketDrop) -> Option<String> {
    let evidence = leg.evidence;
    let tap = evidence.tap(drop.interface)?;
    let is_vcpu = |task: &TaskId| VmThreadRole::by_name(&evidence.offender(*task, drop.at).comm) == VmThreadRole::Vcpu;
    let vcpus = evidence.threads_of(&tap.holders).into_iter().filter(is_vcpu).take(MOST_VCPUS);
    let worker = tap.taker(drop.at).map(|task| ("its worker", task));
    let all = worker.into_iter().chain(vcpus.map(|task| ("its vCPU", task)));
    let facts: Vec<String> = all.filter_map(|(who, task)| did(leg, who, task, drop.at)).collect();
    (!facts.is_empty()).then(|| facts.join("; "))
}

fn did(leg: &Leg<'_>, who: &str, task: TaskId, at: MonoNs) -> Option<String> {
    let evidence = leg.evidence;
    let back = at.before(LOOK_BACK);
    let changed = evidence.life_at(task, at).and_then(|life| life.last_change_before(at));
    let intervals = evidence.intervals(task, changed.map_or(back, |changed| changed.max(back)), at);
    let last = intervals.last().map(|interval| (interval.to.since(interval.from), interval.state))?;
    let name = evidence.name(task, at);
    Some(match last {
        (time, State::OnCpu(_)) => format!("{who} ({name}) had been on CPU for {time}"),
        (time, State::Runnable(_)) => format!("{who} ({name}) had waited {time} for a CPU"),
        (time, State::Blocked(blocked)) => match evidence.wait(&blocked) {
            Some((_, frame)) => format!("{who} ({name}) had been asleep in {frame} for {time}"),
            None => format!("{who} ({name}) had been asleep for {time}"),
        },
        (time, State::Stopped { .. }) => format!("{who} ({name}) had been stopped for {time}"),
        (_, State::Unknown(reason)) => format!("what {who} ({name}) did is not known: {reason}"),
    })
}
