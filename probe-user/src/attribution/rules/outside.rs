//! `external.outside_host`: the check was on its way elsewhere, or came late.

use super::{Leg, pending};
use crate::attribution::cause::Cause;
use crate::attribution::piece::{Charge, Piece};
use crate::attribution::place::LossPlace;
use crate::attribution::unseen::UnseenLoss;
use crate::clock::{DurNs, MonoNs};
use crate::event::InterfaceId;
use crate::journey::{Arrival, JourneyId, Span};
use std::collections::{BTreeMap, HashMap};

/// Most flows whose last request is remembered.
const MAX_FLOWS: usize = 65_536;

/// Out of this host.
pub(in crate::attribution) fn outside(leg: &Leg<'_>) -> Vec<Piece> {
    pieces(leg, leg.from)
}

/// Out of this host from `from` on. What comes in is seen when its CPU takes it in: if that was behind,
/// it may have been there before.
pub(super) fn pieces(leg: &Leg<'_>, from: MonoNs) -> Vec<Piece> {
    let behind = leg.end.map_or(DurNs::ZERO, |end| pending::backed_up(leg, end.cpu, leg.to));
    let cut = leg.to.before(behind).max(from);
    let cpu = leg.end.map_or(0, |end| end.cpu);
    let reason = format!("on its way to this host, or there while CPU {cpu} was {behind} behind with receiving");
    let pieces = [piece(leg, from, cut), Piece::unexplained(cut, leg.to, Span::Outside, reason)];
    pieces.into_iter().filter(|piece| piece.from < piece.to).collect()
}

/// An answer that never came may have been lost by this host's own NIC, if that lost any packet meanwhile.
fn piece(leg: &Leg<'_>, from: MonoNs, to: MonoNs) -> Piece {
    if let Some(loss) = lost_unseen(leg, from) {
        let device = leg.evidence.interface(leg.start.interface);
        return Piece::unexplained(from, to, Span::Outside, loss.sentence(&device));
    }
    let fact = match leg.end {
        Some(end) => format!(
            "left at {}, came back at {} {} later",
            leg.start.stage.name(),
            end.stage.name(),
            leg.to.since(from)
        ),
        None => format!("left at {} and was not answered for {}", leg.start.stage.name(), leg.to.since(from)),
    };
    Piece::charged(from, to, Span::Outside, Charge::new(Cause::ExternalOutsideHost, None, fact))
}

fn lost_unseen(leg: &Leg<'_>, from: MonoNs) -> Option<UnseenLoss> {
    match leg.end {
        Some(_) => None,
        None => leg.evidence.unseen_loss(leg.start.interface, from, leg.to),
    }
}

/// A periodic request that came late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lapse {
    /// When it was due: the request before it plus the signature's interval, `CLOCK_MONOTONIC`.
    pub due_at: MonoNs,
    /// How much later it came.
    pub late_by: DurNs,
}

impl Lapse {
    /// What a late request means on a host that serves it.
    pub const CAUSE: Cause = Cause::ExternalOutsideHost;
}

/// Requests that were due by their interval and did not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Index of their signature in the run's list.
    pub signature: usize,
    /// Where the request before them was first seen.
    pub interface: InterfaceId,
    /// When the first was due, `CLOCK_MONOTONIC`.
    pub due_at: MonoNs,
    /// Until when they had not come, `CLOCK_MONOTONIC`.
    pub until: MonoNs,
    /// How many.
    pub requests: u64,
    /// What that interface itself lost in this time, before the kernel had it.
    pub unseen: Option<UnseenLoss>,
    /// Its counters are read, but were not so that all that it lost in this time shows.
    pub unread: bool,
}

impl Absence {
    /// Where such requests ended.
    pub const PLACE: LossPlace = LossPlace::NeverArrived;

    /// What it means on a host that serves them, if that is proven: of at least half of them, that the
    /// host's own NIC did not lose them.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        (!self.unread && !self.is_mostly_unseen()).then_some(Cause::ExternalOutsideHost)
    }

    /// What may be the cause where none is proven: the host's own NIC is known to have lost so many that
    /// more than half may be among them.
    #[must_use]
    pub fn suspect(&self) -> Option<Cause> {
        self.is_mostly_unseen().then_some(Cause::NicDrop)
    }

    fn is_mostly_unseen(&self) -> bool {
        let unseen = self.unseen.as_ref().map_or(0, |loss| loss.packets);
        unseen.saturating_mul(2) > self.requests
    }

    /// How many of them may be among what the NIC is known to have lost itself.
    #[must_use]
    pub fn perhaps_by_nic(&self) -> u64 {
        self.unseen.as_ref().map_or(0, |loss| loss.packets.min(self.requests))
    }

    /// What else is to be known, in words; `device` is the interface.
    #[must_use]
    pub fn remark(&self, device: &str) -> Option<String> {
        let lost = self.unseen.as_ref().map(|loss| format!("{}: {}", loss.sentence(device), self.share()));
        let unread = format!("the own counters of {device} were not read for all of that time");
        match lost {
            None if self.unread => Some(format!("{unread}, and it may have lost these itself")),
            Some(lost) if self.unread => Some(format!("{lost}; {unread}, and it may have lost more")),
            lost => lost,
        }
    }

    fn share(&self) -> String {
        let perhaps = self.perhaps_by_nic();
        match self.requests - perhaps {
            0 => "perhaps each of these requests".to_owned(),
            _ if self.unread => format!("perhaps {perhaps} of these requests"),
            rest => format!("perhaps {perhaps} of these requests, while {rest} at least were lost elsewhere"),
        }
    }
}

/// Watches the requests of periodic signatures: those that come late, and those that do not come.
///
/// A lapse is time before a check, so it is in no check's ledger. It proves
/// [`Lapse::CAUSE`]: the first stage on this host saw the request late. Checks that this host
/// sends itself have no lapse here.
///
/// A request that came out of turn may be one that was overdue, so that requests are missing is said
/// only once two intervals more have gone by, or after a silence of three.
#[derive(Debug)]
pub struct Lapses {
    intervals: Vec<Option<DurNs>>,
    courses: BTreeMap<Flow, Course>,
    /// Checks that came late and have not ended.
    late: HashMap<JourneyId, Lapse>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    signature: usize,
    source: ([u8; 16], u16),
    destination: ([u8; 16], u16),
}

/// How the requests of a flow have come so far.
#[derive(Debug, Clone, Copy)]
struct Course {
    interface: InterfaceId,
    last: MonoNs,
    /// Those that are missing and of which nothing was said.
    missing: u64,
    /// When the first of these was due.
    due_at: MonoNs,
    /// When the one behind them came.
    until: MonoNs,
    /// Those of the present silence of which something was said.
    said: u64,
}

/// Intervals without a request after which they are missing though none has come since.
const SILENCE: u64 = 3;
/// How often a silence is told.
const SAID_EVERY: DurNs = DurNs::from_secs(1);

impl Lapses {
    /// Watches signatures with these expected intervals, in the order of the run's list.
    pub fn new(intervals: impl IntoIterator<Item = Option<DurNs>>) -> Self {
        Self { intervals: intervals.into_iter().collect(), courses: BTreeMap::new(), late: HashMap::new() }
    }

    /// Takes in that a request has come.
    pub fn arrived(&mut self, arrival: &Arrival) {
        let Some(interval) = self.interval(arrival.signature) else { return };
        if self.courses.len() >= MAX_FLOWS {
            self.courses.clear();
            self.late.clear();
        }
        let fresh = Course {
            interface: arrival.interface,
            last: arrival.at,
            missing: 0,
            due_at: arrival.at,
            until: arrival.at,
            said: 0,
        };
        let course = self.courses.entry(flow(arrival)).or_insert(fresh);
        let due_at = course.last.after(interval);
        let late_by = arrival.at.since(due_at);
        if late_by.0 > 0 && late_by.0 >= interval.0 / 2 {
            self.late.insert(arrival.id, Lapse { due_at, late_by });
        }
        course.take(arrival.at, interval);
    }

    /// By how much the request of a check that has ended came late, when that was at least half an
    /// interval.
    pub fn ended(&mut self, id: JourneyId) -> Option<Lapse> {
        self.late.remove(&id)
    }

    /// What is missing by now.
    pub fn missing(&mut self, now: MonoNs) -> Vec<Absence> {
        let Self { intervals, courses, .. } = self;
        let told = courses.iter_mut().filter_map(|(flow, course)| {
            let interval = intervals.get(flow.signature).copied().flatten()?;
            course.absence(flow.signature, interval, now)
        });
        told.collect()
    }

    /// Nothing is seen at an interface any more.
    pub fn gone(&mut self, interface: InterfaceId) {
        self.courses.retain(|_, course| course.interface != interface);
    }

    fn interval(&self, signature: usize) -> Option<DurNs> {
        (*self.intervals.get(signature)?).filter(|interval| interval.0 > 0)
    }
}

impl Course {
    fn take(&mut self, at: MonoNs, interval: DurNs) {
        let gap = at.since(self.last);
        let passed = (gap.0 + interval.0 / 2) / interval.0;
        let skipped = passed.saturating_sub(1).saturating_sub(self.said);
        if skipped > 0 {
            if self.missing == 0 {
                self.due_at = self.last.after(DurNs(interval.0.saturating_mul(self.said + 1)));
            }
            self.missing += skipped;
            self.until = at;
        } else if passed == 0 {
            self.missing = self.missing.saturating_sub(1);
        }
        (self.last, self.said) = (self.last.max(at), 0);
    }

    fn absence(&mut self, signature: usize, interval: DurNs, now: MonoNs) -> Option<Absence> {
        let silent = now.since(self.last);
        if silent.0 >= SILENCE * interval.0 {
            let overdue = (silent.0 / interval.0).saturating_sub(1);
            let fresh = overdue.saturating_sub(self.said) + self.missing;
            let often = self.said > 0 && now.since(self.until) < SAID_EVERY;
            if fresh == 0 || often {
                return None;
            }
            if self.missing == 0 {
                self.due_at = self.last.after(DurNs(interval.0.saturating_mul(self.said + 1)));
            }
            (self.missing, self.said, self.until) = (0, overdue, now);
            return Some(self.tell(signature, fresh));
        }
        if self.missing == 0 || now.since(self.until).0 < 2 * interval.0 {
            return None;
        }
        let requests = std::mem::take(&mut self.missing);
        Some(self.tell(signature, requests))
    }

    const fn tell(&self, signature: usize, requests: u64) -> Absence {
        let Self { interface, due_at, until, .. } = *self;
        Absence { signature, interface, due_at, until, requests, unseen: None, unread: false }
    }
}

fn flow(arrival: &Arrival) -> Flow {
    let request = &arrival.request;
    Flow {
        signature: arrival.signature,
        source: (request.source, request.source_port),
        destination: (request.destination, request.destination_port),
    }
}

#[cfg(test)]
mod tests {
    use super::{Absence, Arrival, Cause, DurNs, Lapse, Lapses, UnseenLoss};
    use crate::attribution::story::{ETH, MS, at};
    use crate::journey::JourneyId;
    use probe_wire::Sighting;

    struct Course {
        lapses: Lapses,
        next: u64,
    }

    impl Course {
        fn new() -> Self {
            Self { lapses: Lapses::new([Some(DurNs::from_millis(100))]), next: 0 }
        }

        /// A request comes; by how much late, if it is.
        fn comes(&mut self, us: u64, source_port: u16) -> Option<Lapse> {
            self.next += 1;
            let (id, request) = (JourneyId(self.next), Sighting { source_port, ..Sighting::default() });
            self.lapses.arrived(&Arrival { id, signature: 0, interface: ETH, request, at: at(us) });
            self.lapses.ended(id)
        }

        fn sends(&mut self, us: u64) {
            self.comes(us, 1);
        }

        /// How many are told to be missing, and since when.
        fn missing(&mut self, us: u64) -> Vec<(u64, u64)> {
            self.lapses.missing(at(us)).iter().map(|told| (told.requests, told.due_at.since(at(0)).0 / 1_000)).collect()
        }
    }

    #[test]
    fn a_late_request_of_a_flow_is_a_lapse() {
        let mut course = Course::new();
        assert_eq!(course.comes(0, 1), None);
        assert_eq!(course.comes(101 * MS, 1), None, "jitter is no lapse");
        assert_eq!(course.comes(150 * MS, 2), None, "another flow");
        let late = course.comes(501 * MS, 1);
        assert_eq!(late, Some(Lapse { due_at: at(201 * MS), late_by: DurNs::from_millis(300) }));
        assert_eq!(course.comes(601 * MS, 1), None, "counted from the late one on");
    }

    #[test]
    fn requests_that_do_not_come_are_missing_once_those_behind_them_have() {
        let mut course = Course::new();
        [0, 100, 200, 500, 600].iter().for_each(|ms| course.sends(ms * MS));
        assert_eq!(course.missing(620 * MS), [], "overdue ones may still come");
        course.comes(700 * MS, 1);
        assert_eq!(course.missing(720 * MS), [(2, 300 * MS)]);
        assert_eq!(course.missing(730 * MS), [], "told once");
    }

    #[test]
    fn requests_that_come_late_together_are_not_missing() {
        let mut course = Course::new();
        [0, 100, 200, 600, 601, 602, 603, 700, 800].iter().for_each(|ms| course.sends(ms * MS));
        assert_eq!(course.missing(820 * MS), []);
    }

    #[test]
    fn a_silence_is_told_while_it_lasts_and_counted_once() {
        let mut course = Course::new();
        [0, 100].iter().for_each(|ms| course.sends(ms * MS));
        assert_eq!(course.missing(390 * MS), []);
        assert_eq!(course.missing(410 * MS), [(2, 200 * MS)]);
        assert_eq!(course.missing(900 * MS), [], "not so soon again");
        assert_eq!(course.missing(1_450 * MS), [(10, 400 * MS)]);
        [1_600, 1_700, 1_800].iter().for_each(|ms| course.sends(ms * MS));
        assert_eq!(course.missing(1_850 * MS), [(2, 1_400 * MS)], "the rest of 14");
    }

    #[test]
    fn what_the_nic_may_have_lost_itself_is_not_proven_to_be_lost_outside() {
        let loss = |packets| UnseenLoss { packets, counter: String::new(), after: at(0), until: at(1) };
        let absence = |lost: Option<u64>| {
            let (due_at, until, unseen) = (at(0), at(1), lost.map(loss));
            Absence { signature: 0, interface: ETH, due_at, until, requests: 10, unseen, unread: false }
        };
        let told = |lost| (absence(lost).cause(), absence(lost).suspect(), absence(lost).perhaps_by_nic());
        assert_eq!(told(None), (Some(Cause::ExternalOutsideHost), None, 0));
        assert_eq!(told(Some(5)), (Some(Cause::ExternalOutsideHost), None, 5), "five at least were not the NIC's");
        assert_eq!(told(Some(6)), (None, Some(Cause::NicDrop), 6));
        assert_eq!(told(Some(60)), (None, Some(Cause::NicDrop), 10));
        let remark = |lost| absence(lost).remark("eth0").unwrap_or_default();
        assert_eq!(remark(None), "");
        assert!(remark(Some(6)).ends_with("perhaps 6 of these requests, while 4 at least were lost elsewhere"));
        assert!(remark(Some(10)).ends_with("perhaps each of these requests"), "{}", remark(Some(10)));
        let unread = |lost| Absence { unread: true, ..absence(lost) };
        let told = |lost| (unread(lost).cause(), unread(lost).suspect(), unread(lost).perhaps_by_nic());
        assert_eq!(told(None), (None, None, 0));
        assert_eq!(told(Some(5)), (None, None, 5));
        assert_eq!(told(Some(6)), (None, Some(Cause::NicDrop), 6));
        let remark = |lost| unread(lost).remark("eth0").unwrap_or_default();
        assert!(remark(None).starts_with("the own counters of eth0 were not read for all of that time"));
        assert!(!remark(Some(6)).contains("elsewhere"), "{}", remark(Some(6)));
        assert!(remark(Some(6)).ends_with("and it may have lost more"));
    }

    #[test]
    fn what_is_not_periodic_or_not_watched_is_never_missing() {
        let mut course = Course::new();
        course.lapses.intervals = vec![None];
        course.comes(0, 1);
        assert_eq!((course.comes(900 * MS, 1), course.missing(5_000 * MS)), (None, vec![]));
        let mut course = Course::new();
        course.comes(0, 1);
        course.lapses.gone(ETH);
        assert_eq!(course.missing(5_000 * MS), []);
    }
}
