//! The causes of each target, ranked.

use super::Report;
use super::words::{named, percent_of_width, shown};
use crate::attribution::{Episode, EpisodeCause};
use crate::sink::{By, percent};
use maud::{Markup, html};

pub(super) fn section(report: &Report) -> Markup {
    html! {
        @for episode in report.episodes.iter().filter(|episode| has_causes(episode)) {
            (table(episode, &shown(&report.names.target(episode.target))))
        }
    }
}

fn has_causes(episode: &Episode) -> bool {
    !episode.causes.is_empty() || episode.unexplained.0 > 0
}

fn table(episode: &Episode, target: &str) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label={ "Causes at " (target) } {
            table {
                caption { (target) ": time above the usual, summed over slow and lost checks"
                    @if episode.lost > 0 { "; in shares, a dropped check counts with the time that its client waits" } }
                thead { tr {
                    th scope="col" { "Cause" } th scope="col" class="number" { "Time" }
                    th scope="col" { "Share" } th scope="col" class="number" { "Checks" } th scope="col" { "Who" }
                } }
                tbody {
                    @for cause in &episode.causes { (row(cause)) }
                    @if episode.unexplained.0 > 0 { (unexplained(episode)) }
                }
            }
        }
    }
}

fn row(cause: &EpisodeCause) -> Markup {
    html! {
        tr {
            th scope="row" { span class="name" { (cause.cause.name()) }
                span class="meaning" { (cause.meaning.unwrap_or(cause.cause.row().must_be_true)) } }
            td class="number" { (cause.time) }
            td class="share" { (percent(cause.share)) (bar(cause.share)) }
            td class="number" data-head="Checks" { (cause.checks) @if cause.lost > 0 { " (" (cause.lost) " lost)" } }
            td { @match By::of(cause) { Some(by) => (most(by)), None => "not known" }
                @if let Some(counted) = &cause.counted { span class="meaning" { (counted.said()) " while checks were slow" } } }
        }
    }
}

/// Others may have taken some of it too.
fn most(by: By<'_>) -> String {
    let who = named(by.offender);
    if by.is_part() { format!("most by {who}: {} of {}", by.time, by.of) } else { who }
}

fn bar(share: f64) -> Markup {
    html! {
        svg class="sharebar" aria-hidden="true" { rect class="track" width="100%" height="100%" {}
            rect class="fill" width=(percent_of_width(share.clamp(0.0, 1.0))) height="100%" {} }
    }
}

fn unexplained(episode: &Episode) -> Markup {
    html! {
        tr class="unexplained" {
            th scope="row" { span class="name" { "unexplained" }
                span class="meaning" { "no cause is proven; see what the recording cannot tell" } }
            td class="number" { (episode.unexplained) }
            td {} td class="number" { @if episode.unresolved > 0 { (episode.unresolved) " unresolved" } } td {}
        }
    }
}
