//! A check's stay with the VM, as one half saw it.

use crate::clock::{DurNs, MonoNs};
use crate::journey::{Journey, Outcome, Perspective, Stage};

/// How a stay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The reply left.
    Answered,
    /// It did not, as far as this half is known.
    Never,
    /// It must have, and was not seen.
    Unseen,
}

/// From when to when, by the clock of that half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
    pub(super) end: End,
}

impl Stay {
    pub(super) const fn time(&self) -> DurNs {
        self.to.since(self.from)
    }

    /// With a VM, as its host sees it: `None` if the check was not given to one, or if the host looked
    /// inside itself, as it does with its own containers.
    pub(super) fn with_vm(journey: &Journey) -> Option<Self> {
        let inside = [Stage::GuestRx, Stage::SockEnqueue, Stage::SockRead, Stage::AppSend, Stage::GuestTx];
        let offered = journey.stamp(Stage::VnicTx).filter(|_| is_served(journey))?;
        if inside.iter().any(|stage| journey.stamp(*stage).is_some()) {
            return None;
        }
        let from = journey.stamp(Stage::BackendRx).unwrap_or(offered).at;
        let (to, end) = match (journey.stamp(Stage::VnicRx), &journey.outcome) {
            (Some(back), _) => (back.at, End::Answered),
            (None, Outcome::Replied) => (journey.known_until, End::Unseen),
            (None, _) => (journey.known_until, End::Never),
        };
        (from <= to).then_some(Self { from, to, end })
    }

    /// Inside the guest, as it sees it: from its own NIC to its driver.
    pub(super) fn in_guest(journey: &Journey) -> Option<Self> {
        let first = journey.stamps.first().filter(|_| is_served(journey))?;
        let end = if journey.outcome == Outcome::Replied { End::Answered } else { End::Never };
        matches!(first.stage, Stage::PnicRx | Stage::GuestRx).then_some(Self {
            from: first.at,
            to: journey.known_until.max(first.at),
            end,
        })
    }
}

/// A check that came from outside, and whose stages can be trusted.
fn is_served(journey: &Journey) -> bool {
    journey.perspective == Perspective::Served && !matches!(journey.outcome, Outcome::Ambiguous | Outcome::Broken(_))
}
