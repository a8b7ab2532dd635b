//! The verdict, in a sentence for each target and signature.

use super::words::{capital, counted, shortened, shown};
use super::{Counts, Report};
use crate::attribution::{Cause, Episode, EpisodeCause, Verdict};
use crate::signature::readable;
use crate::sink::{By, verdict_sentence};
use maud::{Markup, html};
use std::cmp::Reverse;

pub(super) fn section(report: &Report) -> Markup {
    html! {
        @for episode in &report.episodes { (target(report, episode)) }
    }
}

fn target(report: &Report, episode: &Episode) -> Markup {
    let usual = episode.baseline_p50.map_or("no usual time is known".to_owned(), |usual| format!("usually {usual}"));
    html! {
        div class=(if episode.verdict == Verdict::Healthy { "verdict healthy" } else { "verdict" }) {
            p class="where" { strong { (shown(&report.names.target(episode.target))) } " – "
                (counted(episode.checks, "check")) ": " (episode.slow) " slow, " (episode.lost) " lost, "
                    (episode.open) " open; " (usual) }
            p class="sentence" { (sentence(episode)) }
            @if let Some(service) = episode.service {
                p class="service" { strong { (capital(&service.of_episode(episode.slow + episode.lost))) } }
            }
            @for stall in episode.stalls.iter().filter(|stall| stall.is_of_several()).take(3) {
                p { (shown(&stall.device)) " held up " (counted(stall.victims.len() as u64, "thread"))
                    @for vm in &stall.vms { ", of the VM at " (shown(&report.names.target(vm.tap))) "," } " for "
                    (stall.to.since(stall.from))
                    ", which made " (counted(stall.checks, "check")) " slow." }
            }
            (signatures(report, episode))
        }
    }
}

/// The cause of the verdict.
fn main_cause(episode: &Episode) -> Option<&EpisodeCause> {
    let (Verdict::Cause { cause, .. } | Verdict::Split { cause, .. }) = episode.verdict else {
        return None;
    };
    episode.causes.iter().find(|part| part.cause == cause)
}

fn sentence(episode: &Episode) -> String {
    let main = main_cause(episode);
    let by = main.and_then(By::of).map(|by| (shortened(by.offender), by));
    let by = by.as_ref().map(|(offender, by)| By { offender, ..*by });
    verdict_sentence(&episode.verdict, by, main.and_then(|cause| cause.meaning))
}

fn signatures(report: &Report, episode: &Episode) -> Markup {
    let counts = report.signatures.iter().filter(|((target, _), _)| *target == episode.target);
    html! {
        ul class="signatures" {
            @for ((_, signature), counts) in counts {
                li {
                    code { (shown(&readable(report.names.signature(*signature)))) }
                    ": " (counts.slow) " slow and " (counts.lost) " lost of " (counts.checks) (verdicts(counts))
                }
            }
        }
    }
}

/// `; verdicts: 38 app.futex, 2 unresolved`.
fn verdicts(counts: &Counts) -> String {
    let mut ranked: Vec<_> = counts.verdicts.iter().collect();
    ranked.sort_by_key(|(cause, checks)| (Reverse(**checks), **cause));
    let told = ranked.iter().map(|(cause, checks)| format!("{checks} {}", cause.map_or("unresolved", Cause::name)));
    let told: Vec<_> = told.collect();
    if told.is_empty() { String::new() } else { format!("; verdicts: {}", told.join(", ")) }
}
