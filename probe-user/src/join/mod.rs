//! The two halves of a VM's checks as one: what its host saw, and what whylag saw inside it.
//!
//! ```text
//!  host's records  ──▶ Collector ──▶ Judged ─┐
//!                                            ├─ pairs ──▶ merge ──▶ Judged ──▶ sinks
//!  guest's records ──▶ Collector ──▶ Judged ─┘
//! ```
//!
//! Halves are told to be one check by what its packet carries, never by when it came: a host and its
//! guest have clocks of their own, so only durations are taken from each. What the host charges to
//! `vm.guest_internal` is split as the guest's ledger says; what the check took beyond its time in the
//! guest is what the hypervisor added. Of halves that do not fit together nothing is taken over.

mod merge;
mod pairs;
mod stay;
#[cfg(test)]
mod tests;

use crate::attribution::Judged;
use crate::attribution::baseline::Baselines;
use crate::clock::DurNs;
use crate::event::{Fact, RunFact};
use crate::journey::{JourneyId, Outcome};
use crate::loss::LossReport;
use crate::pipeline::Output;
use crate::summary::Summary;
use hdrhistogram::Histogram;
use pairs::{Pairs, Resolved};
use std::collections::BTreeMap;

pub use pairs::Comparable;

/// Open checks of each half that are kept until the end.
const MOST_OPEN: usize = 1_024;
/// Longest overhead that is kept apart, nanoseconds.
const LONGEST: u64 = 86_400_000_000_000;

/// Which half of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What the host saw: its NICs, and the VM's from outside.
    Host,
    /// What was seen inside the guest.
    Guest,
}

/// How long a check was with the VM, by each clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residence {
    /// From its being offered to the VM, or taken off the tap where that was seen, to its coming back.
    pub host: DurNs,
    /// From its coming in inside the guest to its being handed to the guest's driver.
    pub guest: DurNs,
}

impl Residence {
    /// What the hypervisor added, nanoseconds; below zero if the guest's clock counts more than the
    /// host's.
    #[must_use]
    pub const fn overhead(&self) -> i64 {
        self.host.0.wrapping_sub(self.guest.0).cast_signed()
    }
}

/// Whether the two halves of a check were joined, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pairing {
    /// They were.
    Joined,
    /// One of them proves too little.
    Doubted(String),
    /// The check was longer inside the guest than with the VM.
    Negative,
    /// They tell of different ends.
    Mismatched(&'static str),
    /// Another check has the same identity.
    Ambiguous,
    /// There is no other half.
    Alone,
}

impl Pairing {
    /// The public name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Doubted(_) => "doubted",
            Self::Negative => "negative",
            Self::Mismatched(_) => "mismatched",
            Self::Ambiguous => "ambiguous",
            Self::Alone => "alone",
        }
    }

    /// Why they were not joined; `None` if they were.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Joined => None,
            Self::Doubted(reason) => Some(reason),
            Self::Negative => Some("the guest had it for longer than the host gave it away"),
            Self::Mismatched(reason) => Some(reason),
            Self::Ambiguous => Some("several checks have its identity"),
            Self::Alone => Some("the guest's half tells nothing of it"),
        }
    }
}

/// What a join knows of a check besides its ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestHalf {
    /// Whether its halves were joined.
    pub pairing: Pairing,
    /// Its identity in the guest's run; `None` without another half.
    pub id: Option<JourneyId>,
    /// How long it was there; `None` without another half.
    pub residence: Option<Residence>,
}

/// Where all halves went. Of each side: halves == joined + doubted + negative + mismatched +
/// ambiguous + alone.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct JoinReport {
    /// Checks that the host gave to a VM.
    pub host: HalfCounts,
    /// Checks that came in inside the guest.
    pub guest: HalfCounts,
    /// Median of what the hypervisor added to those that were joined and answered; `None` without any.
    pub overhead_p50: Option<DurNs>,
    /// The most that it added.
    pub overhead_max: Option<DurNs>,
    /// Records that the guest's run lost.
    pub guest_lost: u64,
}

/// Where the halves of one side went.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct HalfCounts {
    /// All of them.
    pub halves: u64,
    /// Joined.
    pub joined: u64,
    /// Of a pair of which one half proves too little.
    pub doubted: u64,
    /// Of a pair that was longer in the guest than with the VM.
    pub negative: u64,
    /// Of a pair that ended differently.
    pub mismatched: u64,
    /// With the identity of another.
    pub ambiguous: u64,
    /// Without another half.
    pub alone: u64,
}

impl HalfCounts {
    const fn count(&mut self, pairing: &Pairing) {
        self.halves += 1;
        match pairing {
            Pairing::Joined => self.joined += 1,
            Pairing::Doubted(_) => self.doubted += 1,
            Pairing::Negative => self.negative += 1,
            Pairing::Mismatched(_) => self.mismatched += 1,
            Pairing::Ambiguous => self.ambiguous += 1,
            Pairing::Alone => self.alone += 1,
        }
    }
}

/// Joins what two collectors give.
#[derive(Debug)]
pub struct Join {
    pairs: Pairs,
    baselines: Baselines,
    /// Made when the host's run says how it judges.
    summary: Option<Summary>,
    /// Checks that were told as open last, of each side.
    open: [BTreeMap<JourneyId, Box<Judged>>; 2],
    /// Open checks are told again and again while they are open.
    tells_open: bool,
    report: JoinReport,
    overheads: Histogram<u64>,
    host_loss: Option<LossReport>,
}

impl Join {
    /// Of halves whose identity can be compared so far. With `patience`, a half of the host whose other
    /// half has not come after so much of the host's time is given away alone, and open checks are
    /// told while they are open; without, nothing is given up before the end.
    #[must_use]
    pub fn new(comparable: Comparable, patience: Option<DurNs>) -> Self {
        Self {
            pairs: Pairs::new(comparable, patience),
            baselines: Baselines::default(),
            summary: None,
            open: [BTreeMap::new(), BTreeMap::new()],
            tells_open: patience.is_some(),
            report: JoinReport::default(),
            overheads: Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are valid"),
            host_loss: None,
        }
    }

    /// Halves that wait for the other one, of each side: who reads both reads next what has fewer.
    #[must_use]
    pub fn waiting(&self, side: Side) -> usize {
        self.pairs.waiting(side)
    }

    /// Takes what the collector of one side gave.
    pub fn push(&mut self, side: Side, output: Output, out: &mut impl FnMut(Output)) {
        match (side, output) {
            (_, Output::Journey(judged)) => self.journey(side, judged, out),
            (Side::Guest, Output::Fact(Fact::Run(run))) => self.pairs.learn(side, &run),
            (Side::Guest, Output::Loss(loss)) => self.report.guest_lost = loss.lost,
            (Side::Host, Output::Loss(loss)) => self.host_loss = Some(loss),
            (Side::Host, Output::Fact(fact)) => {
                if let Fact::Run(run) = &fact {
                    self.begin(run);
                }
                out(Output::Fact(fact));
            }
            (
                Side::Host,
                output @ (Output::Lapse { .. }
                | Output::Absence(_)
                | Output::Gone { .. }
                | Output::Queue(_)
                | Output::Receive(_)
                | Output::RxRing(_)),
            ) => {
                out(output);
            }
            // Those of one half; the whole has its own.
            (_, Output::Episode(_) | Output::Summary(_)) => {}
            (_, Output::Fact(_) | Output::Lapse { .. } | Output::Absence(_) | Output::Gone { .. }) => {}
            (_, Output::Activity(_) | Output::Softirq { .. }) => {}
            (_, Output::Queue(_) | Output::Receive(_) | Output::RxRing(_) | Output::Join(_)) => {}
        }
    }

    fn begin(&mut self, run: &RunFact) {
        self.pairs.learn(Side::Host, run);
        self.summary.get_or_insert_with(|| Summary::new(run));
    }

    fn journey(&mut self, side: Side, judged: Box<Judged>, out: &mut impl FnMut(Output)) {
        let open = &mut self.open[side as usize];
        open.remove(&judged.journey.id);
        if judged.journey.outcome != Outcome::Open {
            return self.ended(side, judged, out);
        }
        if side == Side::Host && self.tells_open {
            out(Output::Journey(judged.clone()));
        }
        let open = &mut self.open[side as usize];
        open.insert(judged.journey.id, judged);
        if open.len() > MOST_OPEN
            && let Some((_, oldest)) = open.pop_first()
            && side == Side::Host
        {
            self.give(oldest, out);
        }
    }

    fn ended(&mut self, side: Side, judged: Box<Judged>, out: &mut impl FnMut(Output)) {
        let mut resolved = Vec::new();
        if let Some(other) = self.pairs.push(side, judged, &mut |pair| resolved.push(pair)) {
            self.pass(side, other, out);
        }
        resolved.into_iter().for_each(|pair| self.resolve(pair, out));
    }

    /// A check that is no half: the host's own are given away as they are.
    fn pass(&mut self, side: Side, judged: Box<Judged>, out: &mut impl FnMut(Output)) {
        if side == Side::Host {
            self.give(judged, out);
        }
    }

    fn resolve(&mut self, resolved: Resolved, out: &mut impl FnMut(Output)) {
        match resolved {
            Resolved::Pair(host, guest) => self.pair(*host, &guest, out),
            Resolved::Single(Side::Guest, _, pairing) => self.report.guest.count(&pairing),
            Resolved::Single(Side::Host, mut host, pairing) => {
                self.report.host.count(&pairing);
                host.guest = Some(Box::new(GuestHalf { pairing, id: None, residence: None }));
                self.give(host, out);
            }
        }
    }

    fn pair(&mut self, host: Judged, guest: &Judged, out: &mut impl FnMut(Output)) {
        let merged = merge::merge(host, guest, &mut self.baselines);
        if let Some(GuestHalf { pairing, residence, .. }) = merged.guest.as_deref() {
            self.report.host.count(pairing);
            self.report.guest.count(pairing);
            let answered = merged.journey.outcome == Outcome::Replied && *pairing == Pairing::Joined;
            if let Some(residence) = residence.filter(|_| answered) {
                self.overheads.saturating_record(residence.overhead().max(0).unsigned_abs());
            }
        }
        self.give(Box::new(merged), out);
    }

    fn give(&mut self, judged: Box<Judged>, out: &mut impl FnMut(Output)) {
        self.summary.get_or_insert_with(|| Summary::new(&RunFact::silent())).push(&judged);
        out(Output::Journey(judged));
    }

    /// Both streams are over: what waits is given away, then the episodes, the counts, the host's
    /// losses and the summary.
    pub fn finish(mut self, out: &mut impl FnMut(Output)) {
        for side in [Side::Guest, Side::Host] {
            for (_, judged) in std::mem::take(&mut self.open[side as usize]) {
                self.ended(side, judged, out);
            }
        }
        let mut resolved = Vec::new();
        self.pairs.finish(&mut |pair| resolved.push(pair));
        resolved.into_iter().for_each(|pair| self.resolve(pair, out));
        let report = self.report();
        let summary = self.summary.unwrap_or_else(|| Summary::new(&RunFact::silent()));
        let episodes = summary.targets().filter_map(|target| summary.episode(target));
        episodes.for_each(|episode| out(Output::Episode(episode)));
        out(Output::Join(report));
        out(Output::Loss(self.host_loss.unwrap_or_else(|| crate::loss::LossLedger::new().report())));
        out(Output::Summary(summary.run()));
    }

    fn report(&self) -> JoinReport {
        let some = !self.overheads.is_empty();
        JoinReport {
            overhead_p50: some.then(|| DurNs(self.overheads.value_at_quantile(0.5))),
            overhead_max: some.then(|| DurNs(self.overheads.max())),
            ..self.report
        }
    }
}
