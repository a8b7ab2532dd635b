//! The slow checks that are kept: the longest of each kind.

use crate::attribution::{Cause, Judged, Unresolved, Verdict};
use crate::event::InterfaceId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Most kept of one kind.
const OF_A_KIND: usize = 128;
/// Most kinds kept apart; what comes later is counted.
const KINDS: usize = 32;
/// Most that are drawn in the timeline.
const DRAWN: usize = 400;
/// Most that are told in full.
const TOLD: usize = 16;

/// Checks of one target and signature with the same verdict.
type Kind = (InterfaceId, usize, Option<Cause>);

/// Slow checks by kind.
#[derive(Debug, Default)]
pub(super) struct Kept {
    kinds: BTreeMap<Kind, Vec<Judged>>,
    seen: u64,
}

/// Some of the slow checks, and how many there were.
#[derive(Debug)]
pub(super) struct Chosen<'a> {
    /// In the order of their start.
    pub(super) checks: Vec<&'a Judged>,
    /// All slow ones.
    pub(super) of: u64,
}

impl Kept {
    pub(super) fn push(&mut self, judged: &Judged) {
        self.seen += 1;
        let key = (judged.journey.target, judged.journey.signature, cause(&judged.verdict));
        if self.kinds.len() >= KINDS && !self.kinds.contains_key(&key) {
            return;
        }
        let kind = self.kinds.entry(key).or_default();
        kind.push(judged.clone());
        if kind.len() > 2 * OF_A_KIND {
            keep_longest(kind);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seen == 0
    }

    /// Those for the timeline.
    pub(super) fn drawn(&self) -> Chosen<'_> {
        self.chosen(DRAWN)
    }

    /// Those that are told in full; all of them are drawn.
    pub(super) fn told(&self) -> Chosen<'_> {
        self.chosen(TOLD)
    }

    /// The longest of each kind first, then the next of each, so that no kind crowds another out.
    fn chosen(&self, most: usize) -> Chosen<'_> {
        let mut kinds: Vec<Vec<&Judged>> = self.kinds.values().map(|kind| longest(kind)).collect();
        kinds.sort_by_key(|kind| kind.first().map(|first| rank(first)));
        let deepest = kinds.iter().map(Vec::len).max().unwrap_or(0);
        let turns = (0..deepest).flat_map(|turn| kinds.iter().filter_map(move |kind| kind.get(turn)));
        let mut checks: Vec<_> = turns.take(most).copied().collect();
        checks.sort_by_key(|judged| (judged.journey.started_at(), judged.journey.id));
        Chosen { checks, of: self.seen }
    }
}

/// Whether what is charged of a check may be told: not where events were lost meanwhile.
pub(super) const fn is_believed(judged: &Judged) -> bool {
    !matches!(judged.verdict, Verdict::Unresolved(Unresolved::EventsLost { .. }))
}

/// The cause of a verdict.
pub(super) const fn cause(verdict: &Verdict) -> Option<Cause> {
    match verdict {
        Verdict::Cause { cause, .. } | Verdict::Split { cause, .. } => Some(*cause),
        Verdict::Healthy | Verdict::Unresolved(_) => None,
    }
}

fn rank(judged: &Judged) -> (Reverse<u64>, u64) {
    (Reverse(judged.journey.elapsed().0), judged.journey.id.0)
}

fn longest(kind: &[Judged]) -> Vec<&Judged> {
    let mut sorted: Vec<_> = kind.iter().collect();
    sorted.sort_by_key(|judged| rank(judged));
    sorted.truncate(OF_A_KIND);
    sorted
}

fn keep_longest(kind: &mut Vec<Judged>) {
    kind.sort_by_key(rank);
    kind.truncate(OF_A_KIND);
}
