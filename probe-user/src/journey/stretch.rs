//! Who held a check when, from its stages.

use super::{Custody, Journey, Perspective, Span, Stage, Stamp};
use crate::clock::{DurNs, MonoNs};

/// A stretch of a check's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) from: MonoNs,
    pub(crate) to: MonoNs,
    pub(crate) holder: Holder,
}

/// Who holds a check: a span, or the host, when no stage tells where in it; nobody, when its packet was
/// dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Span(Span),
    Host,
    Nobody,
}

impl Stretch {
    pub(crate) fn time(&self) -> DurNs {
        self.to.since(self.from)
    }
}

impl Holder {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Span(span) => span.name(),
            Self::Host => "somewhere on this host",
            Self::Nobody => "dropped on this host",
        }
    }

    /// What it is drawn with where there is no room for a name.
    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Span(span) => span.letter(),
            Self::Host => '?',
            Self::Nobody => 'x',
        }
    }

    /// Whose part of the path it is, if a stage tells.
    pub(crate) const fn custody(self) -> Option<Custody> {
        match self {
            Self::Span(span) => Some(span.custody()),
            Self::Host | Self::Nobody => None,
        }
    }
}

/// The stretches between a journey's stages, and from its last stage to what is known of it, in the order
/// of their time; those of one holder that follow each other are joined, empty ones left out.
pub(crate) fn stretches(journey: &Journey) -> Vec<Stretch> {
    let ends = journey.stamps.iter().skip(1).map(|next| (Some(next.stage), next.at));
    let ends = ends.chain(std::iter::once((None, journey.known_until)));
    let mut all = Vec::new();
    for (stamp, (next, to)) in journey.stamps.iter().zip(ends) {
        let holder = holder_after(stamp, next, journey.perspective);
        let dropped = journey.drops.iter().map(|drop| drop.at).filter(|at| stamp.at <= *at && *at < to).min();
        let dropped = dropped.filter(|_| holder == Holder::Host).unwrap_or(to);
        add(&mut all, Stretch { from: stamp.at, to: dropped, holder });
        add(&mut all, Stretch { from: dropped, to, holder: Holder::Nobody });
    }
    all
}

/// Whether a check has entered a span and left it again.
pub(crate) fn passes(journey: &Journey, span: Span) -> bool {
    let pairs = journey.stamps.iter().zip(journey.stamps.iter().skip(1));
    let mut passed = pairs.map(|(stamp, next)| holder_after(stamp, Some(next.stage), journey.perspective));
    passed.any(|holder| holder == Holder::Span(span))
}

/// The span behind the last stage, if that tells one.
pub(crate) fn last_span(journey: &Journey) -> Option<Span> {
    match holder_after(journey.stamps.last()?, None, journey.perspective) {
        Holder::Span(span) => Some(span),
        Holder::Host | Holder::Nobody => None,
    }
}

fn add(all: &mut Vec<Stretch>, next: Stretch) {
    match all.last_mut() {
        _ if next.to <= next.from => {}
        Some(last) if last.holder == next.holder => last.to = next.to,
        _ => all.push(next),
    }
}

/// Who holds the check between `stamp` and the stage `next`.
fn holder_after(stamp: &Stamp, next: Option<Stage>, perspective: Perspective) -> Holder {
    let inbound = next.is_some_and(|next| next <= Stage::SockRead);
    Holder::Span(match (stamp.stage, next) {
        (stage, _) if perspective == Perspective::Sent && stage >= Stage::AppSend && inbound => Span::Outside,
        (Stage::PnicRx, Some(Stage::VnicTx)) => Span::Forward,
        (Stage::PnicRx, _) if !inbound => return Holder::Host,
        (stage, _) => stage.row().then,
    })
}
