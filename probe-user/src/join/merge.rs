//! One check of two halves.
//!
//! Where in its stay with the VM the check was inside the guest, no clock tells. Its time there is laid
//! where the host knows nothing better, in the middle of that, so that way in and way out are as long.
//! Only places depend on that, no time does: what the host has proof for stays the host's.

use super::stay::{End, Stay};
use super::{GuestHalf, Pairing, Residence};
use crate::attribution::baseline::{Baselines, times};
use crate::attribution::piece::sum_up;
use crate::attribution::verdict::{conclude, main_reason};
use crate::attribution::{Cause, Entry, Gap, Judged, Ledger, Unresolved, Verdict};
use crate::clock::{DurNs, MonoNs};
use crate::event::InterfaceId;
use crate::journey::{Loss, Outcome, Span, Stage, Stamp};

/// By one part in so many may two clocks differ that are each right within 100 ppm.
const DRIFT: u64 = 5_000;
const OVERHEAD: &str = "beyond its time inside the guest: hypervisor, backend and vCPU between the two; which of them \
                        is not seen";
const REPLY_GONE: &str = "the guest had sent its reply by then, and it did not come out of the VM";
const GUEST_ENDS: &str = "the guest's half tells nothing of it any more";

/// Joins the guest's half to the host's, or says there why not.
pub(super) fn merge(mut host: Judged, guest: &Judged, baselines: &mut Baselines) -> Judged {
    let residence = |with_vm: Stay| Residence { host: with_vm.time(), guest: time_in(guest) };
    let stay = Stay::with_vm(&host.journey);
    let residence = stay.map(residence);
    let pairing = match (stay, residence) {
        (Some(stay), Some(residence)) => pairing(&host, stay, guest, residence),
        _ => Pairing::Alone,
    };
    if let (Some(stay), Pairing::Joined) = (stay, &pairing) {
        refine(&mut host, stay, guest);
        conclude_anew(&mut host, guest, stay, baselines);
    }
    host.guest = Some(Box::new(GuestHalf { pairing, id: Some(guest.journey.id), residence }));
    host
}

/// All of a ledger: from the check's coming in at the guest's NIC to its end there.
const fn time_in(guest: &Judged) -> DurNs {
    guest.ledger.to.since(guest.ledger.from)
}

fn pairing(host: &Judged, stay: Stay, guest: &Judged, residence: Residence) -> Pairing {
    if guest.lost_events > 0 {
        return Pairing::Doubted(format!("the guest's run lost {} events while it was under way", guest.lost_events));
    }
    if host.brief || guest.brief {
        return Pairing::Doubted("it came with more others than could be looked into".to_owned());
    }
    let answered = guest.journey.outcome == Outcome::Replied;
    let dropped = matches!(host.journey.outcome, Outcome::Lost(Loss::Dropped(_)));
    match stay.end {
        End::Unseen => Pairing::Doubted("it was not seen to come back from the VM".to_owned()),
        End::Answered if !answered => Pairing::Mismatched("it came back from the VM, and the guest did not answer it"),
        End::Never if dropped => Pairing::Mismatched("the host dropped it on its way to the VM, and the guest had it"),
        _ if answered && residence.guest > longest(residence.host) => Pairing::Negative,
        End::Answered | End::Never => Pairing::Joined,
    }
}

/// What the guest's clock may count for a time of the host's.
const fn longest(host: DurNs) -> DurNs {
    host.plus(host.part(DRIFT))
}

/// The guest's ledger, laid into the stay.
struct Inlay<'a> {
    ledger: &'a Ledger,
    /// Where it begins, and where it ends or is cut, by the host's clock.
    from: MonoNs,
    to: MonoNs,
    tail: Tail,
}

/// What the time behind it is.
#[derive(Debug, Clone, PartialEq)]
enum Tail {
    /// The way out of the guest.
    Overhead,
    /// Time that a drop inside the guest costs.
    Dropped(Box<Entry>),
    /// Nobody's, for a reason.
    Unknown(&'static str),
}

fn refine(host: &mut Judged, stay: Stay, guest: &Judged) {
    let inlay = inlay(&host.ledger, stay, guest);
    host.journey.stamps = stamps(&host.journey.stamps, &inlay, stay, guest);
    let ledger = std::mem::replace(&mut host.ledger, sum_up(Vec::new(), Vec::new(), MonoNs(0), MonoNs(0)));
    host.ledger = inlay.into_ledger(ledger);
}

fn inlay<'a>(host: &Ledger, stay: Stay, guest: &'a Judged) -> Inlay<'a> {
    let answered = guest.journey.outcome == Outcome::Replied;
    let (from, tail) = match stay.end {
        End::Answered => (place(host, stay, time_in(guest)), Tail::Overhead),
        _ if answered => (stay.from, Tail::Unknown(REPLY_GONE)),
        _ => (stay.from, unanswered(guest)),
    };
    let to = from.after(time_in(guest)).min(stay.to);
    Inlay { ledger: &guest.ledger, from, to, tail }
}

/// A drop that ended the check inside the guest costs all the time that follows.
fn unanswered(guest: &Judged) -> Tail {
    let Verdict::Cause { cause, .. } = guest.verdict else { return Tail::Unknown(GUEST_ENDS) };
    if !matches!(guest.journey.outcome, Outcome::Lost(Loss::Dropped(_))) {
        return Tail::Unknown(GUEST_ENDS);
    }
    let last = guest.ledger.entries.iter().rfind(|entry| entry.cause == cause);
    let mut evidence = last.map_or_else(Vec::new, |entry| entry.evidence.clone());
    evidence.push("it was dropped there, so nobody answers it".to_owned());
    Tail::Dropped(Box::new(Entry {
        cause,
        from: guest.ledger.to,
        to: guest.ledger.to,
        span: last.map_or(Span::Receive, |entry| entry.span),
        offender: last.and_then(|entry| entry.offender.clone()),
        path: vec![cause],
        hops: Vec::new(),
        evidence,
        meaning: last.map_or(cause.row().must_be_true, |entry| entry.meaning),
        stalled: Vec::new(),
    }))
}

/// Where the time inside the guest begins: where it covers most of what only the guest can explain, and
/// of all such places nearest to the middle.
fn place(host: &Ledger, stay: Stay, time: DurNs) -> MonoNs {
    let (first, last) = (stay.from, stay.to.before(time).max(stay.from));
    let middle = first.after(last.since(first).part(2));
    let opaque: Vec<_> = opaque(host, stay).collect();
    let covered = |from: MonoNs| {
        let parts = opaque.iter().map(|(one, other)| (*other).min(from.after(time)).since((*one).max(from)));
        parts.fold(DurNs::ZERO, DurNs::plus)
    };
    let edges = opaque.iter().flat_map(|(from, to)| [*from, *to, from.before(time), to.before(time)]);
    let places = std::iter::once(middle).chain(edges).map(|at| at.clamp(first, last));
    let distance = |at: MonoNs| at.since(middle).plus(middle.since(at));
    places.max_by_key(|at| (covered(*at), std::cmp::Reverse((distance(*at), *at)))).unwrap_or(middle)
}

/// What of the stay only the guest can explain.
fn opaque(host: &Ledger, stay: Stay) -> impl Iterator<Item = (MonoNs, MonoNs)> {
    let entries = host.entries.iter().filter(|entry| entry.cause == Cause::VmGuestInternal);
    entries.map(move |entry| (entry.from.max(stay.from), entry.to.min(stay.to))).filter(|(from, to)| from < to)
}

/// The host's stages and the guest's: where a check came in and left inside, and what its socket saw.
fn stamps(host: &[Stamp], inlay: &Inlay<'_>, stay: Stay, guest: &Judged) -> Vec<Stamp> {
    let inside = guest.journey.stamps.iter().filter_map(|stamp| {
        let stage = match stamp.stage {
            Stage::SockEnqueue | Stage::SockRead | Stage::AppSend => stamp.stage,
            _ if stamp.at == guest.ledger.from => Stage::GuestRx,
            _ if stamp.at == guest.ledger.to && guest.journey.outcome == Outcome::Replied => Stage::GuestTx,
            _ => return None,
        };
        let at = inlay.shifted(stamp.at);
        (at <= stay.to).then_some(Stamp { stage, at, interface: InterfaceId::default(), ..*stamp })
    });
    let mut stamps: Vec<Stamp> = host.iter().copied().chain(inside).collect();
    stamps.sort_by_key(|stamp| (stamp.at, stamp.stage));
    stamps.dedup_by_key(|stamp| stamp.stage);
    stamps
}

impl Inlay<'_> {
    /// An instant of the guest by the host's clock, as far as durations tell.
    const fn shifted(&self, at: MonoNs) -> MonoNs {
        self.from.after(at.since(self.ledger.from))
    }

    /// The host's ledger with this in it.
    fn into_ledger(self, host: Ledger) -> Ledger {
        let mut split =
            Split { entries: Vec::new(), unexplained: DurNs::ZERO, overhead: DurNs::ZERO, behind: DurNs::ZERO };
        for entry in host.entries {
            match entry.cause {
                Cause::VmGuestInternal => self.split(entry.from, entry.to, &mut split),
                _ => split.entries.push(entry),
            }
        }
        let mut gaps = host.gaps;
        gaps.extend(self.reasons(split.unexplained));
        gaps.extend(gap(split.overhead, OVERHEAD));
        if let Tail::Unknown(reason) = self.tail {
            gaps.extend(gap(split.behind, reason));
        }
        sum_up(split.entries, gaps, host.from, host.to)
    }

    /// Splits a part of the stay that only the guest can explain.
    fn split(&self, from: MonoNs, to: MonoNs, into: &mut Split) {
        let (inner_from, inner_to) = (self.from.clamp(from, to), self.to.clamp(from, to));
        into.overhead = into.overhead.plus(inner_from.since(from));
        let mut explained = DurNs::ZERO;
        for entry in &self.ledger.entries {
            let part = (self.shifted(entry.from).max(inner_from), self.shifted(entry.to).min(inner_to));
            if part.0 < part.1 {
                let entry = inside(entry, part);
                explained = explained.plus(entry.time());
                into.entries.push(entry);
            }
        }
        into.unexplained = into.unexplained.plus(inner_to.since(inner_from).minus(explained));
        self.behind(inner_to.max(inner_from), to, into);
    }

    /// What follows the check's time in the guest.
    fn behind(&self, from: MonoNs, to: MonoNs, into: &mut Split) {
        match &self.tail {
            Tail::Overhead => into.overhead = into.overhead.plus(to.since(from)),
            Tail::Unknown(_) => into.behind = into.behind.plus(to.since(from)),
            Tail::Dropped(entry) if from < to => into.entries.push(inside(entry, (from, to))),
            Tail::Dropped(_) => {}
        }
    }

    /// The guest's reasons for so much time, the longest first.
    fn reasons(&self, mut time: DurNs) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for Gap { time: of_reason, reason } in &self.ledger.gaps {
            let part = (*of_reason).min(time);
            time = time.minus(part);
            gaps.extend(gap(part, &format!("in the guest: {reason}")));
        }
        gaps
    }
}

/// What became of the parts that only the guest can explain.
struct Split {
    entries: Vec<Entry>,
    unexplained: DurNs,
    overhead: DurNs,
    behind: DurNs,
}

fn gap(time: DurNs, reason: &str) -> Option<Gap> {
    (time > DurNs::ZERO).then(|| Gap { time, reason: reason.to_owned() })
}

/// A part of the guest's ledger, in the host's.
fn inside(entry: &Entry, (from, to): (MonoNs, MonoNs)) -> Entry {
    let mut entry = Entry { from, to, ..entry.clone() };
    entry.offender.iter_mut().for_each(|offender| offender.guest = true);
    entry.evidence.iter_mut().for_each(|fact| fact.insert_str(0, "in the guest: "));
    entry
}

/// The verdict over both halves. What made the host's no verdict at all still does.
fn conclude_anew(host: &mut Judged, guest: &Judged, stay: Stay, baselines: &mut Baselines) {
    let baseline = baselines.of(host.journey.target, host.journey.signature);
    match &host.verdict {
        Verdict::Healthy => {
            if host.journey.outcome == Outcome::Replied {
                baseline.push(host.journey.elapsed(), times(&host.ledger));
            }
            return;
        }
        Verdict::Unresolved(Unresolved::EventsLost { .. } | Unresolved::Journey(_)) => return,
        _ if matches!(host.journey.outcome, Outcome::Lost(Loss::Dropped(_))) => return,
        _ => {}
    }
    let excess = baseline.excess(host.journey.elapsed(), &times(&host.ledger));
    host.verdict = match lost_inside(guest, stay) {
        Some(verdict) => verdict,
        None => conclude(&excess, || main_reason(&host.ledger)),
    };
    let owner = |verdict: &Verdict| match verdict {
        Verdict::Cause { cause, .. } => Some(*cause),
        _ => None,
    };
    let same = owner(&host.verdict).is_some() && owner(&host.verdict) == owner(&guest.verdict);
    host.service = guest.service.filter(|_| same);
}

/// The verdict on a check that did not come back, if the guest's half settles it.
fn lost_inside(guest: &Judged, stay: Stay) -> Option<Verdict> {
    if stay.end != End::Never {
        return None;
    }
    match (&guest.journey.outcome, &guest.verdict) {
        (Outcome::Replied, _) => Some(Verdict::Unresolved(Unresolved::NoTrace(REPLY_GONE.to_owned()))),
        (Outcome::Lost(Loss::Dropped(_)), verdict) => Some(verdict.clone()),
        (_, verdict @ Verdict::Unresolved(_)) => Some(verdict.clone()),
        _ => None,
    }
}
