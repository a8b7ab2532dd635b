//! Who took the time of slow checks, over all causes.

use super::words::named;
use crate::attribution::{Cause, Judged, Offender};
use crate::clock::DurNs;
use crate::sink::percent;
use maud::{Markup, html};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// Most kept apart.
const MAX_OFFENDERS: usize = 4_096;
/// Most shown.
const SHOWN: usize = 12;

/// Sums over the ledgers of slow checks.
#[derive(Debug, Default)]
pub(super) struct Offenders {
    /// Threads without their cgroup, which may not be known at first.
    known: HashMap<Offender, Taken>,
    whole: DurNs,
    /// Time of those that came when there were too many.
    others: DurNs,
}

#[derive(Debug, Default)]
struct Taken {
    time: DurNs,
    checks: u64,
    causes: BTreeSet<Cause>,
    /// Of a thread.
    cgroup: String,
}

impl Offenders {
    pub(super) fn push(&mut self, judged: &Judged) {
        self.whole = self.whole.plus(judged.journey.elapsed());
        let mut met: BTreeSet<Offender> = BTreeSet::new();
        for entry in &judged.ledger.entries {
            let Some(offender) = &entry.offender else { continue };
            let key = offender.key();
            let first = met.insert(key.clone());
            if self.known.len() >= MAX_OFFENDERS && !self.known.contains_key(&key) {
                self.others = self.others.plus(entry.time());
                continue;
            }
            let taken = self.known.entry(key).or_default();
            if taken.cgroup.is_empty() {
                taken.cgroup.clone_from(&offender.cgroup);
            }
            taken.time = taken.time.plus(entry.time());
            taken.checks += u64::from(first);
            taken.causes.insert(entry.cause);
        }
    }

    fn ranked(&self) -> Vec<(&Offender, &Taken)> {
        let mut ranked: Vec<_> = self.known.iter().collect();
        ranked.sort_by_key(|(offender, taken)| (Reverse(taken.time), *offender));
        ranked
    }

    pub(super) fn section(&self) -> Markup {
        let ranked = self.ranked();
        let rest = ranked.iter().skip(SHOWN).fold(self.others, |sum, (_, taken)| sum.plus(taken.time));
        if ranked.is_empty() {
            return html! {};
        }
        html! {
            p class="note" { "Time in the ledgers of slow and lost checks, the usual part of it included." }
            div class="scroll" tabindex="0" role="region" aria-label="Table of offenders" {
                table {
                    thead { tr { th scope="col" { "Who" } th scope="col" class="number" { "Time" }
                        th scope="col" class="number" { "Of all" } th scope="col" class="number" { "Checks" }
                            th scope="col" { "As" } } }
                    tbody {
                        @for (offender, taken) in ranked.iter().take(SHOWN) {
                            tr {
                                th scope="row" { (named(&Offender { cgroup: taken.cgroup.clone(), ..(*offender).clone() })) }
                                td class="number" { (taken.time) }
                                td class="number" data-head="Of all" {
                                    (percent(super::words::ratio(taken.time.0, self.whole.0)))
                                }
                                td class="number" data-head="Checks" { (taken.checks) }
                                td { (taken.causes.iter().map(|cause| cause.name()).collect::<Vec<_>>().join(", ")) }
                            }
                        }
                    }
                }
            }
            @if ranked.len() > SHOWN {
                p class="note" {
                    (ranked.len() - SHOWN) " more with " (rest) " in all are left out."
                }
            }
        }
    }
}
