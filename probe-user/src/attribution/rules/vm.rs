//! `vm.*` and `host.forwarding`: places that the stages alone prove.

use super::guest::Guest;
use super::pause;
use super::thread::{Role, Seat, charge};
use super::transmit::{NOTICEABLE, stays};
use super::{Leg, answer, counted, receive};
use crate::attribution::cause::{Cause, Family};
use crate::attribution::frame::Wait;
use crate::attribution::ledger::Offender;
use crate::attribution::piece::{Charge, Found, Piece};
use crate::attribution::thread::{Interval, State};
use crate::attribution::walk::{NOT_RUN_YET, is_contradicted};
use crate::clock::{DurNs, MonoNs};
use crate::event::{InterfaceFact, TaskId};
use crate::journey::Stage;
use std::rc::Rc;

/// Between two devices of the host. What leaves a VM by a macvtap may wait in the queueing discipline of that.
pub(in crate::attribution) fn forwarding(leg: &Leg<'_>) -> Vec<Piece> {
    let mut pieces = stays(leg);
    // One that began before is another device's, and its end was not seen.
    pieces.retain(|piece| piece.from > leg.from);
    let Some(end) = leg.end else {
        receive::fill(&mut pieces, leg, &leg.out_of_sight());
        return pieces;
    };
    let names = (leg.evidence.interface(leg.start.interface), leg.evidence.interface(end.interface));
    for (from, to) in receive::gaps(&mut pieces, leg.from, leg.to) {
        let fact = format!("{} from {} to {}", to.since(from), names.0, names.1);
        let charge = neighbour(&Leg { from, to, ..*leg }, fact.clone());
        let charge = charge.unwrap_or_else(|| Charge::new(Cause::HostForwarding, None, fact));
        pieces.push(Piece::charged(from, to, leg.span, charge));
    }
    pieces.sort_by_key(|piece| piece.from);
    pieces
}

/// The wait ended when a neighbour became known: the kernel then sends what waited for it.
pub(super) fn neighbour(leg: &Leg<'_>, fact: String) -> Option<Charge> {
    let device = leg.end?.interface;
    let soon = leg.to.before(NOTICEABLE);
    if leg.from >= soon || !leg.evidence.neighbour_known(device, soon, leg.to) {
        return None;
    }
    let name = leg.evidence.interface(device);
    let known = format!("it went on as soon as a neighbour's link address was known on {name}");
    let charge = Charge::new(Cause::HostForwarding, None, fact).with(Some(known));
    Some(charge.meaning("held until a neighbour answered (ARP or neighbour discovery)"))
}

/// From the host end of a tap or veth on: first in its queueing discipline, then in the tap's ring.
pub(in crate::attribution) fn handed_over(leg: &Leg<'_>) -> Vec<Piece> {
    let mut pieces = stays(leg);
    let from = pieces.iter().map(|piece| piece.to).fold(leg.from, MonoNs::max);
    if from < leg.to || pieces.is_empty() {
        let rest = Leg { from, ..*leg };
        let taken = leg.end.is_some_and(|end| end.stage == Stage::BackendRx);
        pieces.extend(if taken { backend(&rest) } else { inside(&rest) });
    }
    pieces
}

/// Inside a VM, or a namespace that is not looked into. Whether a packet that was handed to a tap
/// reached the VM is known only from its being taken out of the ring, or from nobody's running
/// who could have taken it.
pub(in crate::attribution) fn inside(leg: &Leg<'_>) -> Vec<Piece> {
    let to_tap = leg.start.stage == Stage::VnicTx && is_tap(leg);
    if waits_in_ring(leg) {
        return backend(leg);
    }
    let untaken = if to_tap { untaken(leg) } else { None };
    let mut pieces = Vec::new();
    let mut from = leg.from;
    if let Some(Untaken { until, charge }) = untaken {
        pieces.push(Piece::charged(leg.from, until, leg.span, charge));
        from = until;
    }
    if from < leg.to || pieces.is_empty() {
        let guest = if is_tap(leg) { Guest::of(leg, from) } else { None };
        let held = match &guest {
            Some(guest) if !blind_end(leg) => guest.held(),
            Some(_) | None => vec![unproven(leg, from).unwrap_or_else(|| opaque(leg, from))],
        };
        pieces.extend(answer::behind_taker(leg, guest.as_ref(), held));
        let ring = unseen_ring(leg);
        pieces
            .iter_mut()
            .filter(|piece| piece.from >= from)
            .for_each(|piece| ring.iter().for_each(|fact| piece.learn(fact.clone())));
    }
    pieces
}

/// Why not even that it was in the guest is said: a VM that does not get to run looks the same.
fn unproven(leg: &Leg<'_>, from: MonoNs) -> Option<Piece> {
    let evidence = leg.evidence;
    if !is_tap(leg) || leg.to.since(from) < NOTICEABLE {
        return None;
    }
    let name = evidence.interface(leg.start.interface);
    if evidence.blind().switches {
        let reason =
            format!("in the VM behind {name}: whether its vCPUs could run is not known, switches are not watched");
        return Some(Piece::unexplained(from, leg.to, leg.span, reason));
    }
    let holders = &evidence.tap(leg.start.interface)?.holders;
    let waits = |task: &TaskId| {
        let intervals = evidence.intervals(*task, from, leg.to);
        let may_be_held_up = |interval: &&Interval<'_>| match interval.state {
            State::Runnable(_) | State::Stopped { .. } => true,
            State::Unknown(reason) => is_contradicted(reason),
            State::OnCpu(_) | State::Blocked(_) => false,
        };
        intervals.iter().filter(may_be_held_up).fold(DurNs::ZERO, |sum, interval| sum.plus(interval.time()))
    };
    let threads = evidence.threads_of(holders);
    let (most, task) = threads.iter().map(|task| (waits(task), *task)).max()?;
    (most.0 >= leg.to.since(from).part(MINOR).0.max(1)).then(|| {
        let who = evidence.name(task, leg.to);
        let reason = format!("in the VM behind {name}: which of its threads run the guest is not known, and {who} could not run for {most}, or that is not known");
        Piece::unexplained(from, leg.to, leg.span, reason)
    })
}

/// A thread of a VM that is held up for less than this part of a check's time does not matter to it.
const MINOR: u64 = 4;

/// A check that is not answered may have been dropped, and drops are not watched.
fn blind_end(leg: &Leg<'_>) -> bool {
    leg.end.is_none() && leg.evidence.blind().drops
}

/// Where it was not seen when a packet left a tap's ring, that it may have waited there.
fn unseen_ring(leg: &Leg<'_>) -> Option<String> {
    let name = leg.evidence.interface(leg.start.interface);
    let is_veth = leg.evidence.interface_fact(leg.start.interface).is_some_and(|fact| fact.kind == "veth");
    (leg.start.stage == Stage::VnicTx && !is_veth)
        .then(|| format!("the wait in {name}'s ring is part of it: when it was taken out was not seen"))
}

/// Handed to a tap, and not taken out of its ring.
pub(super) fn waits_in_ring(leg: &Leg<'_>) -> bool {
    leg.start.stage == Stage::VnicTx && is_tap(leg) && leg.end.is_none() && leg.evidence.sees().rings
}

fn opaque(leg: &Leg<'_>, from: MonoNs) -> Piece {
    let time = leg.to.since(from);
    let fact = match leg.end {
        Some(end) => format!("{time} from {} to {}", leg.start.stage.name(), end.stage.name()),
        None => format!("no answer for {time} since {}", leg.start.stage.name()),
    };
    if blind_end(leg) {
        return Piece::unexplained(from, leg.to, leg.span, format!("{fact}, and drops are not watched"));
    }
    let name = leg.evidence.interface(leg.start.interface);
    let veth = leg.evidence.interface_fact(leg.start.interface).is_some_and(|fact| fact.kind == "veth");
    let why = if veth {
        format!("the namespace behind {name} was not looked into")
    } else {
        format!("the guest behind {name} is opaque from here; whylag inside it can refine this")
    };
    let charge = Charge::new(Cause::VmGuestInternal, Some(device(leg)), fact).with(Some(why));
    Piece::charged(from, leg.to, leg.span, charge)
}

fn is_tap(leg: &Leg<'_>) -> bool {
    let fact = leg.evidence.interface_fact(leg.start.interface);
    fact.is_some_and(InterfaceFact::has_ring)
}

fn device(leg: &Leg<'_>) -> Offender {
    Offender { device: leg.evidence.interface(leg.start.interface), ..Offender::default() }
}

/// A packet that nobody can have taken out of the ring yet.
struct Untaken {
    until: MonoNs,
    charge: Charge,
}

/// Until a thread of those who hold the tap first ran, none of them took the packet.
fn untaken(leg: &Leg<'_>) -> Option<Untaken> {
    let evidence = leg.evidence;
    let holders = &evidence.tap(leg.start.interface)?.holders;
    if leg.time() < NOTICEABLE || !evidence.sees().switches || holders.is_empty() {
        return None;
    }
    let threads = evidence.threads_of(holders);
    let first = threads.iter().map(|thread| first_run(leg, *thread)).min()?;
    if first.since(leg.from) < NOTICEABLE {
        return None;
    }
    let main = holders.first().map(|tgid| TaskId { tgid: *tgid, tid: *tgid })?;
    let name = evidence.interface(leg.start.interface);
    let fact = format!(
        "in {name}'s ring for {} or more: of the {} that could take it, none ran meanwhile",
        first.since(leg.from),
        counted(threads.len() as u64, "thread")
    );
    let charge = Charge::new(Cause::VmBackend, Some(evidence.offender(main, leg.to)), fact);
    Some(Untaken { until: first, charge })
}

/// When a thread first ran in the leg, or may have.
fn first_run(leg: &Leg<'_>, thread: TaskId) -> MonoNs {
    let intervals = leg.evidence.intervals(thread, leg.from, leg.to);
    let may_run = |interval: &&Interval<'_>| matches!(interval.state, State::OnCpu(_) | State::Unknown(_));
    match intervals.iter().find(may_run) {
        Some(interval) => interval.from,
        None if intervals.is_empty() => leg.from,
        None => leg.to,
    }
}

/// In the tap's ring until its worker takes it. A worker that waits for something else than its
/// turn (storage, reclaim, a lock) is followed to that; runnable, throttled, asleep or busy it
/// is `vm.backend`. While nobody has taken it, the worker is whoever took the packet before.
/// While the VM is paused, nothing is taken: that time is the pause's.
fn backend(leg: &Leg<'_>) -> Vec<Piece> {
    let guest = Guest::of(leg, leg.from);
    let pause = guest.as_ref().and_then(|guest| Some((guest, pause::find(guest, leg, true)?)));
    let Some((guest, pause)) = pause else { return in_ring(leg) };
    let charge = pause.charge(leg, guest.count()).with(Some(format!("{} took nothing out meanwhile", "its backend")));
    let mut pieces = vec![Piece::charged(pause.from, pause.to, leg.span, charge)];
    for (from, to) in [(leg.from, pause.from), (pause.to, leg.to)] {
        pieces.extend((from < to).then(|| in_ring(&Leg { from, to, ..*leg })).into_iter().flatten());
    }
    pieces.sort_by_key(|piece| piece.from);
    pieces
}

fn in_ring(leg: &Leg<'_>) -> Vec<Piece> {
    let evidence = leg.evidence;
    let tap = evidence.tap(leg.start.interface);
    let known = leg
        .end
        .map_or_else(|| tap.and_then(|tap| tap.taker(leg.from)), |end| Some(end.task))
        .filter(|task| task.tid != 0);
    let holder = tap.and_then(|tap| tap.holders.first()).map(|tgid| TaskId { tgid: *tgid, tid: *tgid });
    let name = evidence.interface(leg.start.interface);
    let mut fact = match (leg.end, known) {
        (Some(end), _) => {
            format!("in {name}'s ring for {}, then {} took it", leg.time(), evidence.name(end.task, leg.to))
        }
        (None, Some(taker)) => {
            let taker = evidence.name(taker, leg.to);
            format!("in {name}'s ring for {}, and not taken out; {taker} took the one before", leg.time())
        }
        (None, None) => format!("in {name}'s ring for {}, and nobody has been seen to take any out", leg.time()),
    };
    let Some(worker) = known else {
        let offender = holder.map_or_else(|| device(leg), |holder| evidence.offender(holder, leg.to));
        return vec![Piece::charged(leg.from, leg.to, leg.span, Charge::new(Cause::VmBackend, Some(offender), fact))];
    };
    if evidence.life_at(worker, leg.to).is_none() {
        fact += "; what that thread did meanwhile was not watched";
    }
    self::worker(leg, worker, &fact)
}

/// What a tap's worker did while packets waited for it, which `fact` proves.
pub(super) fn worker(leg: &Leg<'_>, worker: TaskId, fact: &str) -> Vec<Piece> {
    let seat = Seat::new(worker, Role::Peer, leg.span).behind(Cause::VmBackend);
    let mut pieces = charge(leg.evidence, &seat, leg.from, leg.to);
    let doubts = doubts(leg, worker);
    let doubted = |piece: &Piece| doubts.iter().any(|(from, to)| *from < piece.to && piece.from < *to);
    let in_doubt = |piece: &Piece| matches!(piece.found, Found::Unexplained(_)) && doubted(piece);
    let roomless = roomless(leg, worker);
    for piece in pieces.iter_mut().filter(|piece| !in_doubt(piece)) {
        if roomless.iter().any(|(from, to)| *from <= piece.from && piece.to <= *to) {
            piece.found = Found::Unexplained(format!("{fact}; {NO_ROOM}"));
        } else {
            settle(piece, leg, worker, fact);
        }
    }
    pieces
}

const NO_ROOM: &str = "that slept where a packet wakes it while the guest was busy: the guest had no room for packets, or \
                       the backend served the others first";

/// When a worker slept where it is told of all that it watches, and the packet did not wake it, while
/// the guest was busy: QEMU and vhost stop watching a tap for which the guest has no room, and so does a
/// backend with a limit of its own.
fn roomless(leg: &Leg<'_>, worker: TaskId) -> Vec<(MonoNs, MonoNs)> {
    let Some(guest) = Guest::of(leg, leg.from) else { return Vec::new() };
    let intervals = leg.evidence.intervals(worker, leg.from, leg.to);
    let polls = |interval: &&Interval<'_>| match &interval.state {
        State::Blocked(blocked) => leg.evidence.wait(blocked).is_some_and(|(wait, _)| wait == Wait::Poll),
        _ => false,
    };
    let busy = |interval: &&Interval<'_>| {
        let ran = guest.was_busy(interval.from, interval.to);
        interval.time() >= NOTICEABLE && ran.0 >= interval.time().0.div_ceil(2)
    };
    intervals.iter().filter(polls).filter(busy).map(|interval| (interval.from, interval.to)).collect()
}

/// When it is not known whether a worker waited for its turn, or for something that is not its own.
fn doubts(leg: &Leg<'_>, worker: TaskId) -> Vec<(MonoNs, MonoNs)> {
    let intervals = leg.evidence.intervals(worker, leg.from, leg.to);
    let in_doubt = |interval: &&Interval<'_>| match interval.state {
        State::Unknown(reason) => is_contradicted(reason) && reason != NOT_RUN_YET,
        _ => false,
    };
    intervals.iter().filter(in_doubt).map(|interval| (interval.from, interval.to)).collect()
}

/// The VM of a thread that had the CPU of one of a VM's threads, `of`.
pub(super) fn machine(leg: &Leg<'_>, offender: &Offender, of: TaskId) -> Option<String> {
    let machine = leg.evidence.machine(offender.task.tgid)?;
    let whose = if offender.task.tgid == of.tgid { "the same VM" } else { "the VM" };
    Some(format!("that is a thread of {whose} {machine}"))
}

fn settle(piece: &mut Piece, leg: &Leg<'_>, worker: TaskId, fact: &str) {
    let offender = || leg.evidence.offender(worker, leg.to);
    match &mut piece.found {
        Found::Charged(charge) => {
            let charge = Rc::make_mut(charge);
            let cause = charge.path.last().copied().unwrap_or(Cause::VmBackend);
            // A packet that wakes a worker is this one as well as an answer from elsewhere.
            if matches!(cause.row().family, Family::App | Family::Vm | Family::Host | Family::Dependency) {
                charge.path = vec![Cause::VmBackend];
                // Who had its CPU, or which group was out of quota, if that is known.
                let others = matches!(cause, Cause::AppRunqueue | Cause::AppQuotaThrottle);
                let neighbour = charge.offender.take().filter(|_| others);
                charge.evidence.extend(neighbour.as_ref().and_then(|offender| machine(leg, offender, worker)));
                charge.offender = Some(neighbour.unwrap_or_else(offender));
            }
            charge.evidence.insert(0, fact.to_owned());
        }
        Found::Unexplained(reason) => {
            let charge = Charge::new(Cause::VmBackend, Some(offender()), fact).with(Some(std::mem::take(reason)));
            piece.found = Found::Charged(Rc::new(charge));
        }
    }
}
