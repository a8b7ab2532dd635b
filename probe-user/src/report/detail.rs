//! One slow check in full: what happened, its stages, its lanes, and the parts of its time.

use super::chart::{self, Window, axis, custody, lanes_height};
use super::custody::{class, name};
use super::kept::is_believed;
use super::lane::{Lanes, lanes};
use super::words::{clock, counted, named, sentence, shortened, shown};
use crate::attribution::{Cause, Entry, Judged, Offender, Verdict};
use crate::clock::{DurNs, MonoNs};
use crate::journey::{Journey, Outcome, Span, Stamp, stretches};
use crate::signature::readable;
use crate::sink::{By, Names, endpoint, main_offender, outcome_reason, percent, verdict_sentence};
use maud::{Markup, html};
use std::cmp::Reverse;

/// Lanes of one check at most.
const MAX_LANES: usize = 8;
/// Parts of one check that are told.
const PARTS: usize = 10;
/// Facts told of the largest part, and of another.
const FACTS: usize = 4;
const FACTS_OF_OTHERS: usize = 2;

/// The check in a line.
pub(super) fn headline(judged: &Judged) -> String {
    let journey = &judged.journey;
    let word = match journey.outcome {
        Outcome::Lost(_) => "lost after",
        Outcome::Open => "open for",
        Outcome::Replied => "took",
        Outcome::Ambiguous => "ambiguous,",
        Outcome::Broken(_) => "broken,",
    };
    let verdict = match &judged.verdict {
        Verdict::Healthy => String::new(),
        Verdict::Cause { cause, share } => format!(": {} {}", cause.name(), percent(*share)),
        Verdict::Split { cause, share } => format!(": several causes, most {} {}", cause.name(), percent(*share)),
        Verdict::Unresolved(_) => ": unresolved".to_owned(),
    };
    format!("Check {} {word} {}{verdict}", journey.id.0, journey.elapsed())
}

pub(super) fn article(judged: &Judged, names: &Names) -> Markup {
    let journey = &judged.journey;
    let request = &journey.request;
    html! {
        article class="check" id={ "check-" (journey.id.0) } tabindex="-1" {
            h4 { (headline(judged)) }
            p { (clock(names, journey.started_at())) " at " (shown(&names.target(journey.target))) ", "
                (endpoint(request, request.source, request.source_port)) " → "
                (endpoint(request, request.destination, request.destination_port)) ", "
                (shown(&readable(names.signature(journey.signature)))) }
            @if let Some(reason) = outcome_reason(&journey.outcome, names) { p { strong { (shown(&reason)) } } }
            p { (verdict(judged)) }
            @if let Some(service) = judged.service { p { strong { (service.of_check()) } } }
            (drawing(judged, names))
            @if is_believed(judged) { (parts(judged)) } @else {
                p class="warn" { "What its threads did is not told: events were lost while it was under way." }
            }
            (stages(journey, names))
        }
    }
}

fn verdict(judged: &Judged) -> String {
    let by = main_offender(judged).map(|by| (shortened(by.offender), by));
    let by = by.as_ref().map(|(offender, by)| By { offender, ..*by });
    verdict_sentence(&judged.verdict, by, None)
}

fn drawing(judged: &Judged, names: &Names) -> Markup {
    let journey = &judged.journey;
    let stretches = stretches(journey);
    let (from, to) = (journey.started_at(), journey.known_until);
    if to <= from {
        return html! {};
    }
    let window = Window { from, to };
    let Lanes { lanes, left_out } = lanes(&[judged], names, (MAX_LANES, window.length()));
    let bottom = 26 + lanes_height(lanes.len());
    html! {
        svg class="chart" height=(bottom + 20) role="img"
            aria-label={ "Who held check " (journey.id.0) ", and what threads, queues and devices did" } {
            (axis(window, bottom))
            svg x="0" width="100%" y="2" height="18" { (custody(&stretches, 18)) }
            (chart::lanes(&lanes, window, 24))
        }
        ul class="legend" {
            @for stretch in &stretches {
                li {
                    (chart::swatch(class(stretch.holder), stretch.holder.letter())) (name(stretch.holder)) " "
                        (stretch.time())
                }
            }
        }
        @if left_out > 0 { p class="note" { (counted(left_out as u64, "lane")) " with less time left out." } }
    }
}

/// Parts of a ledger with the same cause, place and offender.
struct Part<'a> {
    cause: Cause,
    span: Span,
    offender: Option<&'a Offender>,
    time: DurNs,
    longest: &'a Entry,
}

fn summed(entries: &[Entry]) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    for entry in entries {
        let key = (entry.cause, entry.span, entry.offender.as_ref());
        match parts.iter_mut().find(|part| (part.cause, part.span, part.offender) == key) {
            Some(part) => {
                part.time = part.time.plus(entry.time());
                if entry.time() > part.longest.time() {
                    part.longest = entry;
                }
            }
            None => parts.push(Part { cause: key.0, span: key.1, offender: key.2, time: entry.time(), longest: entry }),
        }
    }
    parts.sort_by_key(|part| Reverse(part.time));
    parts
}

fn parts(judged: &Judged) -> Markup {
    let all = summed(&judged.ledger.entries);
    let (told, rest): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(rank, part)| is_told(*rank, part, judged));
    let smaller = rest.iter().fold(DurNs::ZERO, |sum, (_, part)| sum.plus(part.time));
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Parts of its time" {
            table {
                caption { "Where its time went" }
                thead {
                    tr {
                        th scope="col" class="number" { "Time" }
                        th scope="col" { "Cause" }
                        th scope="col" { "Who" }
                        th scope="col" { "Evidence" }
                    }
                }
                tbody {
                    @for (rank, part) in told { (row(part, if rank == 0 { FACTS } else { FACTS_OF_OTHERS })) }
                    @if !rest.is_empty() {
                        tr {
                            td class="number" { (smaller) } td colspan="3" {
                                (counted(rest.len() as u64, "smaller part"))
                            }
                        }
                    }
                    (gaps(judged))
                }
            }
        }
    }
}

/// Time without a proven cause; what is short is told in one row.
fn gaps(judged: &Judged) -> Markup {
    let short = hundredth(judged);
    let (told, rest): (Vec<_>, Vec<_>) = judged.ledger.gaps.iter().partition(|gap| gap.time >= short);
    let reasons: Vec<_> = rest.iter().map(|gap| shown(&gap.reason)).collect();
    let smaller = rest.iter().fold(DurNs::ZERO, |sum, gap| sum.plus(gap.time));
    let rows = told.into_iter().map(|gap| (gap.time, shown(&gap.reason)));
    let rows = rows.chain((!rest.is_empty()).then(|| (smaller, reasons.join("; "))));
    html! {
        @for (time, reason) in rows {
            tr class="unexplained" {
                td class="number" { (time) } th scope="row" { "unexplained" } td {} td { (reason) }
            }
        }
    }
}

fn hundredth(judged: &Judged) -> DurNs {
    judged.journey.elapsed().part(100)
}

/// The largest part, and others of at least a hundredth of the check.
fn is_told(rank: usize, part: &Part<'_>, judged: &Judged) -> bool {
    rank == 0 || (rank < PARTS && part.time >= hundredth(judged))
}

fn row(part: &Part<'_>, facts: usize) -> Markup {
    let way: Vec<_> = part.longest.path.iter().map(|cause| cause.name()).collect();
    html! {
        tr {
            td class="number" { (part.time) }
            th scope="row" { span class="name" { (part.cause.name()) } span class="meaning" { "in " (part.span.name())
                @if way.len() > 1 { ", by way of " (way.join(" → ")) } } }
            td { @if let Some(offender) = part.offender { (named(offender)) } }
            td { ul class="facts" { @for fact in part.longest.evidence.iter().take(facts) { li { (sentence(fact)) } } } }
        }
    }
}

fn stages(journey: &Journey, names: &Names) -> Markup {
    html! {
        details {
            summary { "Stages" }
            table {
                thead {
                    tr { th scope="col" { "Stage" } th scope="col" class="number" { "At" } th scope="col" { "Where" } }
                }
                tbody { @for stamp in &journey.stamps { (stage(stamp, journey.started_at(), names)) } }
            }
        }
    }
}

fn stage(stamp: &Stamp, start: MonoNs, names: &Names) -> Markup {
    let interface = names.interface(stamp.interface).map(|known| shown(&known.name));
    html! {
        tr {
            th scope="row" { (stamp.stage.name()) span class="meaning" { (stamp.stage.row().meaning) } }
            td class="number" { "+" (stamp.at.since(start)) }
            td { "CPU " (stamp.cpu)
                @if let Some(interface) = interface { ", " (interface) }
                @if stamp.queue > 0 { ", queue " (stamp.queue - 1) }
                @if stamp.task.tid != 0 { ", thread " (stamp.task.tgid) "/" (stamp.task.tid) } }
        }
    }
}
