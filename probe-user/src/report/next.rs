//! What to try next: what helps against the causes that were measured, each with its measure.

use super::Report;
use super::words::{capital, counted, named, sentence, shown};
use crate::attribution::{Episode, EpisodeCause, Verdict};
use crate::rx_ring::RxRingShare;
use crate::sink::percent;
use maud::{Markup, html};

/// Least share of a cause for which something is proposed.
const LEAST: f64 = 0.1;

pub(super) fn section(report: &Report) -> Markup {
    let several = report.episodes.len() > 1;
    html! {
        ol class="next" {
            @for episode in &report.episodes {
                @let target = if several { format!("{}: ", shown(&report.names.target(episode.target))) }
                    else { String::new() };
                @for cause in episode.causes.iter().filter(|cause| cause.share >= LEAST) {
                    (step(report, cause, &target))
                }
                @if let Verdict::Unresolved(reason) = &episode.verdict {
                    li { (target) "Get the missing proof: " code { "whylag doctor" }
                        " tells which this host could give and does not."
                        p class="because" { "Because " (episode.unresolved) " of " (bad(episode))
                            " have no verdict: " (shown(&reason.to_string())) } }
                }
            }
            @for share in report.rx_rings.iter().filter(|share| share.absent.perhaps > 0) { (rx_ring(report, share)) }
            @if let Some(loss) = report.loss.as_ref().filter(|loss| loss.lost > 0) {
                li { "Record again with a larger " code { "--ring-size" } "."
                    p class="because" { "Because " (counted(loss.lost, "event")) " of " (loss.emitted)
                        " found the ring full." } }
            }
        }
    }
}

/// A NIC that may have lost requests itself.
fn rx_ring(report: &Report, share: &RxRingShare) -> Markup {
    html! {
        @for advice in share.advice(&report.names.device(share.interface)) {
            li { (sentence(&capital(&advice.step))) "."
                p class="because" { "Because " (sentence(&advice.fact)) "." } }
        }
    }
}

fn bad(episode: &Episode) -> String {
    counted(episode.slow + episode.lost, "slow or lost check")
}

fn step(report: &Report, cause: &EpisodeCause, target: &str) -> Markup {
    let row = cause.cause.row();
    let proof = report.witnesses.of(cause.cause).and_then(|witness| witness.entry.evidence.first());
    html! {
        li { (target) (capital(row.remedy)) "."
            p class="because" { "Because " (row.name) " took " (cause.time) " (" (percent(cause.share)) ") of "
                (counted(cause.checks, "check"))
                @if let Some(offender) = &cause.offender { ", by " (named(offender)) }
                @if let Some(proof) = proof { ": " (sentence(proof)) } }
            p class="note" {
                "Easily taken for: " (row.looks_like) ". " code { "whylag explain " (row.name) } " tells more."
            }
        }
    }
}
