//! Who held a check when, from its stages.

use super::{Journey, Perspective, Span, Stage, Stamp};
use crate::clock::MonoNs;

/// A stretch of a check's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) from: MonoNs,
    pub(crate) to: MonoNs,
    /// `None` when no stage tells where on this host it was.
    pub(crate) span: Option<Span>,
}

/// The stretches of a check in the order of their time, without gaps, empty ones left out.
pub(crate) fn stretches(journey: &Journey) -> Vec<Stretch> {
    let ends = journey.stamps.iter().skip(1).map(|next| (Some(next.stage), next.at));
    let ends = ends.chain(std::iter::once((None, journey.known_until)));
    let mut all: Vec<Stretch> = Vec::new();
    for (stamp, (next, to)) in journey.stamps.iter().zip(ends) {
        let span = span_after(stamp, next, journey.perspective);
        match all.last_mut() {
            Some(last) if last.span == span => last.to = to,
            _ => all.push(Stretch { from: stamp.at, to, span }),
        }
    }
    all.retain(|stretch| stretch.to > stretch.from);
    all
}

fn span_after(stamp: &Stamp, next: Option<Stage>, perspective: Perspective) -> Option<Span> {
    let inbound = next.is_some_and(|next| next <= Stage::SockRead);
    match (stamp.stage, next) {
        (stage, _) if perspective == Perspective::Sent && stage >= Stage::AppSend && inbound => Some(Span::Outside),
        (Stage::PnicRx, Some(Stage::VnicTx)) => Some(Span::Forward),
        (Stage::PnicRx, _) if !inbound => None,
        (stage, _) => Some(stage.row().then),
    }
}
