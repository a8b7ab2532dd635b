//! What proves the causes: for each, the part of a check that it took most of.

use super::words::{named, sentence};
use crate::attribution::{Cause, Entry, Judged};
use crate::clock::DurNs;
use crate::journey::JourneyId;
use maud::{Markup, html};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Facts told of a cause.
const FACTS: usize = 6;

/// The longest part of each cause.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    causes: BTreeMap<Cause, Witness>,
}

/// A part of a check, and what its cause took in all.
#[derive(Debug)]
pub(super) struct Witness {
    pub(super) entry: Entry,
    pub(super) check: JourneyId,
    pub(super) whole: DurNs,
}

impl Witnesses {
    pub(super) fn push(&mut self, judged: &Judged) {
        for entry in &judged.ledger.entries {
            match self.causes.get_mut(&entry.cause) {
                None => {
                    let witness = Witness { entry: entry.clone(), check: judged.journey.id, whole: entry.time() };
                    self.causes.insert(entry.cause, witness);
                }
                Some(known) => {
                    known.whole = known.whole.plus(entry.time());
                    if entry.time() > known.entry.time() {
                        (known.entry, known.check) = (entry.clone(), judged.journey.id);
                    }
                }
            }
        }
    }

    /// The one of a cause.
    pub(super) fn of(&self, cause: Cause) -> Option<&Witness> {
        self.causes.get(&cause)
    }

    pub(super) fn section(&self) -> Markup {
        let mut ranked: Vec<_> = self.causes.values().filter(|witness| !witness.entry.evidence.is_empty()).collect();
        ranked.sort_by_key(|witness| (Reverse(witness.whole), witness.entry.cause));
        html! {
            @for witness in ranked {
                @let Witness { entry, check, .. } = witness;
                div class="witness" {
                    h3 { (entry.cause.name()) span class="meaning" { (entry.meaning) } }
                    p { "Longest part: " (entry.time()) " of check " (check.0) ", in " (entry.span.name())
                        @if let Some(offender) = &entry.offender { ", " (named(offender)) } }
                    ul class="facts" { @for fact in entry.evidence.iter().take(FACTS) { li { (sentence(fact)) } } }
                    p class="note" { "What proves it: " (entry.cause.row().proof) }
                }
            }
        }
    }
}
