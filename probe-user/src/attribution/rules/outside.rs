//! `external.outside_host`: the check was on its way elsewhere, or came late.

use super::Leg;
use crate::attribution::cause::Cause;
use crate::attribution::piece::{Charge, Piece};
use crate::clock::{DurNs, MonoNs};
use crate::journey::{Journey, Perspective, Span};
use std::collections::HashMap;

/// Most flows whose last request is remembered.
const MAX_FLOWS: usize = 65_536;

/// Out of this host.
pub(in crate::attribution) fn outside(leg: &Leg<'_>) -> Vec<Piece> {
    vec![piece(leg, leg.from)]
}

/// Out of this host from `from` on.
pub(super) fn piece(leg: &Leg<'_>, from: MonoNs) -> Piece {
    let fact = match leg.end {
        Some(end) => format!(
            "left at {}, came back at {} {} later",
            leg.start.stage.name(),
            end.stage.name(),
            leg.to.since(from)
        ),
        None => format!("left at {} and was not answered for {}", leg.start.stage.name(), leg.to.since(from)),
    };
    Piece::charged(from, leg.to, Span::Outside, Charge::new(Cause::ExternalOutsideHost, None, fact))
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

/// Watches the requests of periodic signatures for lapses.
///
/// A lapse is time before a check, so it is in no check's ledger. It proves
/// [`Lapse::CAUSE`]: the first stage on this host saw the request late. Checks that this host
/// sends itself have no lapse here.
#[derive(Debug)]
pub struct Lapses {
    intervals: Vec<Option<DurNs>>,
    last: HashMap<Flow, MonoNs>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Flow {
    signature: usize,
    source: ([u8; 16], u16),
    destination: ([u8; 16], u16),
}

impl Lapses {
    /// Watches signatures with these expected intervals, in the order of the run's list.
    pub fn new(intervals: impl IntoIterator<Item = Option<DurNs>>) -> Self {
        Self { intervals: intervals.into_iter().collect(), last: HashMap::new() }
    }

    /// Takes in a check once it has ended; says by how much its request came late, when that is
    /// at least half an interval.
    pub fn push(&mut self, journey: &Journey) -> Option<Lapse> {
        let interval = (*self.intervals.get(journey.signature)?)?;
        if journey.perspective == Perspective::Sent {
            return None;
        }
        let started = journey.started_at();
        if self.last.len() >= MAX_FLOWS {
            self.last.clear();
        }
        let last = self.last.insert(flow(journey), started)?;
        let due_at = last.after(interval);
        let late_by = started.since(due_at);
        (late_by.0 > 0 && late_by.0 >= interval.0 / 2).then_some(Lapse { due_at, late_by })
    }
}

fn flow(journey: &Journey) -> Flow {
    let request = &journey.request;
    Flow {
        signature: journey.signature,
        source: (request.source, request.source_port),
        destination: (request.destination, request.destination_port),
    }
}

#[cfg(test)]
mod tests {
    use super::{DurNs, Lapse, Lapses, Perspective};
    use crate::attribution::story::{MS, Story, at};
    use crate::journey::Stage;

    fn request(us: u64, source_port: u16) -> crate::journey::Journey {
        let mut story = Story::new();
        story.journey.request.source_port = source_port;
        story.stamp(us, Stage::PnicRx, None).journey.clone()
    }

    #[test]
    fn a_late_request_of_a_flow_is_a_lapse() {
        let mut lapses = Lapses::new([Some(DurNs::from_millis(100))]);
        assert_eq!(lapses.push(&request(0, 1)), None);
        assert_eq!(lapses.push(&request(101 * MS, 1)), None, "jitter is no lapse");
        assert_eq!(lapses.push(&request(150 * MS, 2)), None, "another flow");
        let late = lapses.push(&request(501 * MS, 1));
        assert_eq!(late, Some(Lapse { due_at: at(201 * MS), late_by: DurNs::from_millis(300) }));
        assert_eq!(lapses.push(&request(601 * MS, 1)), None, "counted from the late one on");
    }

    #[test]
    fn what_this_host_sends_and_what_is_not_periodic_has_no_lapse() {
        let mut lapses = Lapses::new([Some(DurNs::from_millis(100))]);
        let mut journey = request(0, 1);
        journey.perspective = Perspective::Sent;
        lapses.push(&journey);
        journey = request(900 * MS, 1);
        journey.perspective = Perspective::Sent;
        assert_eq!(lapses.push(&journey), None);
        let mut none = Lapses::new([None]);
        none.push(&request(0, 1));
        assert_eq!(none.push(&request(900 * MS, 1)), None);
    }
}
