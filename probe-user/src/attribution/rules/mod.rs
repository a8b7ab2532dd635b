//! One rule per cause or closely related group: a stretch of a check's path comes in, pieces of
//! its time go out.

pub(super) mod accept;
mod answer;
pub(super) mod drops;
mod exchange;
mod guest;
pub(super) mod handover;
pub(super) mod lost;
pub(super) mod outside;
mod pause;
mod pending;
pub(super) mod receive;
mod starvation;
pub(super) mod thread;
pub(super) mod transmit;
mod vcpu;
pub(super) mod vm;
mod wait;

pub(super) use starvation::LONG_SILENCE;

use super::evidence::Evidence;
use crate::clock::{DurNs, MonoNs};
use crate::journey::{Journey, Span, Stamp};

/// A stretch of a check's path: from a stage to the next one that was seen, or to now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leg<'a> {
    pub(super) journey: &'a Journey,
    pub(super) evidence: &'a Evidence,
    /// How long a thread usually holds such a check, if that is known and matters.
    pub(super) usual_hold: Option<DurNs>,
    pub(super) span: Span,
    pub(super) start: &'a Stamp,
    /// `None` for the last leg of a check that is open or lost.
    pub(super) end: Option<&'a Stamp>,
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
}

impl Leg<'_> {
    pub(super) const fn time(&self) -> DurNs {
        self.to.since(self.from)
    }

    /// Why nothing is known of an open or lost check from this leg on. What was not watched is not
    /// said to have been unseen.
    fn out_of_sight(&self) -> String {
        let blind = self.evidence.blind();
        let stage = self.start.stage.name();
        match (blind.sockets, blind.drops) {
            (true, true) => format!("nothing was seen of it after {stage}, and neither sockets nor drops are watched"),
            (false, true) => format!("nothing was seen of it after {stage}, and drops are not watched"),
            (_, false) => format!("nothing was seen of it after {stage}, and no drop"),
        }
    }
}

/// `1 packet`, `2 packets`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
