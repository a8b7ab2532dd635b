//! What is missing: events that were lost, and what this recording cannot tell.

use super::words::{clock, counted, sentence, shown};
use super::{Absent, Report};
use crate::attribution::{Cause, Lapse};
use crate::loss::LossReport;
use maud::{Markup, html};
use std::cmp::Reverse;

/// Reasons told for time without a cause.
const REASONS: usize = 8;

pub(super) fn section(report: &Report) -> Markup {
    html! {
        @if let Some(damage) = &report.damage {
            p class="warn" { strong { "Only a part of the recording could be read: " } (shown(damage)) }
        }
        @match &report.loss {
            Some(loss) => (counts(loss)),
            None => p class="warn" { "The recording ends without an account of its events." }
        }
        (stacks(report))
        (gaps(report))
        (notices(report))
        (unseen(report))
    }
}

fn counts(loss: &LossReport) -> Markup {
    let rows = [
        (loss.received, "received"),
        (loss.lost, "lost: a ring was full"),
        (loss.unreadable, "unreadable: where the recording is damaged"),
        (loss.late, "late: after the reorder window"),
        (loss.unmatched, "unmatched: of no check"),
        (loss.undecodable, "undecodable"),
        (loss.ambiguous, "ambiguous: fitted several checks"),
        (loss.evicted, "checks given up for newer ones"),
        (loss.brief, "checks only counted, because too many came at once"),
        (loss.unreported, "reports of open checks left out"),
    ];
    html! {
        p { @if loss.lost == 0 { "No event was lost." } @else {
            strong class="warn" { (counted(loss.lost, "event")) " of " (loss.emitted) " lost. " }
            "A check under which events were lost has no verdict." } }
        @if loss.unreadable > 0 {
            p { strong class="warn" { (counted(loss.unreadable, "record")) " of the recording could not be read, where it is \
                damaged. " } "A check that was under way there has no verdict." }
        }
        table class="narrow" { caption { "Events" }
            tbody { @for (count, name) in rows { @if count > 0 { tr { td class="number" { (count) } td { (name) } } } }
                @for row in loss.by_kind.iter().filter(|row| row.lost > 0) {
                    tr { td class="number" { (row.lost) } td { "lost of kind " (row.kind) } }
                }
                @for run in &loss.skipped_runs { tr { td class="number" { (run.count) }
                    td { "runs skipped by the kernel: " (shown(&run.program)) } } } } }
    }
}

fn stacks(report: &Report) -> Markup {
    let left_out = report.facts.stacks_left_out();
    html! {
        @if !left_out.is_empty() {
            table class="narrow" { caption { "Stacks that were due and are left out" }
                tbody { @for (count, why) in left_out { tr { td class="number" { (count) } td { (why) } } } } }
        }
    }
}

fn gaps(report: &Report) -> Markup {
    let mut gaps: Vec<_> = report.gaps.iter().filter(|(_, time)| time.0 > 0).collect();
    gaps.sort_by_key(|(reason, time)| (Reverse(**time), reason.as_str()));
    html! {
        @if !gaps.is_empty() {
            h3 { "Time without a proven cause" }
            ul { @for (reason, time) in gaps.iter().take(REASONS) { li { (time) ": " (shown(reason)) } }
                @if gaps.len() > REASONS { li { (counted((gaps.len() - REASONS) as u64, "more reason")) } } }
        }
    }
}

fn notices(report: &Report) -> Markup {
    html! {
        @if !report.gone.is_empty() {
            h3 { "Interfaces that went" }
            ul { @for (at, interface, reason) in &report.gone {
                li { (shown(&report.names.target(*interface))) " at " (clock(&report.names, *at)) ": "
                    (shown(reason)) } } }
        }
        (absent(&report.absent))
        @if report.late_requests > 0 {
            h3 { "Requests that came late" }
            p { (counted(report.late_requests, "request"))
                " of a periodic check came late; that is time before the check ("
                (Lapse::CAUSE.name()) "), in no ledger." }
            ul { @for (target, lapse) in &report.lapses {
                li { (lapse.late_by) " late at " (shown(&report.names.target(*target))) ", due at "
                    (clock(&report.names, lapse.due_at)) } } }
        }
    }
}

fn absent(absent: &Absent) -> Markup {
    html! {
        @if absent.requests > 0 {
            h3 { "Requests that never arrived" }
            p { (counted(absent.requests, "request"))
                " of a periodic check did not come to this host"
                @if absent.unproven == 0 { " (" (Cause::ExternalOutsideHost.name()) ")." }
                @else { "; of " (absent.unproven) " it is not proven that they were lost outside it: perhaps its own NIC \
                    lost them (" (Cause::NicDrop.name()) ")." } }
            ul { @for remark in &absent.remarks { li { (sentence(remark)) } } }
        }
    }
}

fn unseen(report: &Report) -> Markup {
    let without = report.facts.without();
    html! {
        @if !without.is_empty() {
            h3 { "Not attached in this run" }
            ul { @for (hook, tells) in without { li { code { (hook) } ", which tells " (tells) } } }
        }
    }
}
