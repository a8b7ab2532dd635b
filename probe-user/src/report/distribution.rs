//! How long checks took: a histogram for each target on a logarithmic axis, slow ones and the
//! threshold marked.

use super::Report;
use super::chart::swatch;
use super::words::{counted, percent_of_width, real, shown};
use crate::attribution::Judged;
use crate::attribution::verdict::FALLBACK;
use crate::attribution::verdict::FLOOR;
use crate::clock::DurNs;
use crate::event::{InterfaceId, Threshold};
use crate::journey::Outcome;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Bins of a decade.
const FINE: usize = 8;
/// From 1 µs to 1000 s.
const DECADES: usize = 9;
const BINS: usize = FINE * DECADES;
/// Targets with a histogram.
const MAX_TARGETS: usize = 8;
/// Height of the bars.
const HEIGHT: f64 = 120.0;

/// Counts by delay and target.
#[derive(Debug, Default)]
pub(super) struct Distributions {
    targets: BTreeMap<InterfaceId, Box<Bins>>,
}

#[derive(Debug)]
struct Bins {
    healthy: [u64; BINS],
    slow: [u64; BINS],
    /// Lost ones and open ones, at the time that is known of them.
    unanswered: [u64; BINS],
}

impl Default for Bins {
    fn default() -> Self {
        Self { healthy: [0; BINS], slow: [0; BINS], unanswered: [0; BINS] }
    }
}

impl Distributions {
    pub(super) fn push(&mut self, judged: &Judged) {
        let target = judged.journey.target;
        if self.targets.len() >= MAX_TARGETS && !self.targets.contains_key(&target) {
            return;
        }
        let bins = self.targets.entry(target).or_default();
        let row = match (&judged.journey.outcome, judged.slow) {
            (Outcome::Replied, false) => &mut bins.healthy,
            (Outcome::Replied, true) => &mut bins.slow,
            (Outcome::Lost(_) | Outcome::Open, true) => &mut bins.unanswered,
            _ => return,
        };
        if let Some(count) = row.get_mut(bin(judged.journey.elapsed())) {
            *count += 1;
        }
    }
}

/// Decades above 1 µs.
fn decades(delay: DurNs) -> f64 {
    (real(delay.0.max(1)).log10() - 3.0).clamp(0.0, real(DECADES as u64))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the bins")]
fn bin(delay: DurNs) -> usize {
    ((decades(delay) * real(FINE as u64)) as usize).min(BINS - 1)
}

pub(super) fn section(report: &Report) -> Markup {
    html! {
        @for (target, bins) in &report.distributions.targets { (histogram(report, *target, bins)) }
        ul class="legend" {
            li { (swatch("d-healthy", ' ')) "healthy" } li { (swatch("d-slow", ' ')) "slow" }
            li { (swatch("d-lost", ' ')) "lost or still open, at the time known of them" }
        }
        @if report.episodes.len() > report.distributions.targets.len() {
            p class="note" {
                (counted((report.episodes.len() - report.distributions.targets.len()) as u64, "more target"))
                    " without a histogram."
            }
        }
    }
}

/// The time above which a check of the target counts as slow, as far as the whole run tells.
fn threshold(report: &Report, target: InterfaceId) -> Option<(DurNs, String)> {
    let usual =
        report.episodes.iter().find(|episode| episode.target == target).and_then(|episode| episode.baseline_p50);
    match (report.names.run()?.threshold, usual) {
        (Threshold::Fixed(limit), _) => Some((limit, format!("slow above {limit}"))),
        (Threshold::Multiple(times), Some(usual)) => {
            let limit = multiplied(usual, times).max(FLOOR);
            Some((limit, format!("slow above about {limit} ({times} × the usual {usual}, {FLOOR} at least)")))
        }
        (Threshold::Multiple(_), None) => {
            Some((FALLBACK, format!("slow above {FALLBACK} while no usual time is known")))
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float to integer saturates")]
fn multiplied(time: DurNs, times: f64) -> DurNs {
    DurNs((real(time.0) * times) as u64)
}

/// The decades that are drawn.
struct Axis {
    first: usize,
    last: usize,
}

impl Axis {
    fn of(bins: &Bins) -> Self {
        let any = |index: &usize| {
            [&bins.healthy, &bins.slow, &bins.unanswered]
                .iter()
                .any(|row| row.get(*index).is_some_and(|count| *count > 0))
        };
        let first = (0..BINS).find(any).unwrap_or(0) / FINE;
        let last = (0..BINS).rev().find(any).unwrap_or(0) / FINE + 1;
        Self { first, last }
    }

    fn count(&self) -> usize {
        self.last - self.first
    }

    /// Where a number of decades above 1 µs is, 0 to 1.
    fn place(&self, decades: f64) -> f64 {
        ((decades - real(self.first as u64)) / real(self.count() as u64)).clamp(0.0, 1.0)
    }
}

fn histogram(report: &Report, target: InterfaceId, bins: &Bins) -> Markup {
    let axis = Axis::of(bins);
    let total = |row: &[u64; BINS]| row.iter().sum::<u64>();
    let label = shown(&report.names.target(target));
    let threshold = threshold(report, target);
    let told = format!(
        "{label}: {} healthy, {} slow, {} lost or open{}",
        total(&bins.healthy),
        total(&bins.slow),
        total(&bins.unanswered),
        threshold.as_ref().map_or_else(String::new, |(_, said)| format!("; {said}"))
    );
    html! {
        figure {
            figcaption { (told) }
            svg class="chart" height="160" role="img" aria-label=(told) {
                @for decade in 0..=axis.count() {
                    @let x = percent_of_width(real(decade as u64) / real(axis.count() as u64));
                    @let anchor = if decade == 0 { "start" } else if decade == axis.count() { "end" } else { "middle" };
                    line class="grid" x1=(x) x2=(x) y1="0" y2="130" {}
                    text class="tick" x=(x) y="146" text-anchor=(anchor) { (decade_name(axis.first + decade)) }
                }
                @for index in axis.first * FINE..axis.last * FINE { (column(bins, index, &axis)) }
                @if let Some((limit, _)) = &threshold { (mark(&axis, *limit)) }
            }
            p class="note" {
                "Number of checks by the time that they took. Height is logarithmic too: a single check is seen."
            }
        }
    }
}

fn decade_name(decade: usize) -> String {
    let exponent = u32::try_from(decade).unwrap_or(0) + 3;
    let name = DurNs(10_u64.saturating_pow(exponent)).to_string();
    name.replace(".00", "").replace(".0", "")
}

/// A column: healthy below, slow and unanswered on it.
fn column(bins: &Bins, index: usize, axis: &Axis) -> Markup {
    let count = |row: &[u64; BINS]| row.get(index).copied().unwrap_or(0);
    let parts =
        [(count(&bins.healthy), "d-healthy"), (count(&bins.slow), "d-slow"), (count(&bins.unanswered), "d-lost")];
    let all: u64 = parts.iter().map(|(count, _)| count).sum();
    if all == 0 {
        return html! {};
    }
    let x = axis.place(real(index as u64) / real(FINE as u64));
    let width = 1.0 / real((axis.count() * FINE) as u64) * 0.92;
    let mut top = 130.0;
    html! {
        @for (part, class) in parts.into_iter().filter(|(count, _)| *count > 0) {
            @let height = tall(all, bins) * real(part) / real(all);
            @let y = { top -= height; top };
            rect class=(class) x=(percent_of_width(x)) width=(percent_of_width(width))
                y=(format!("{y:.1}")) height=(format!("{height:.1}")) {
                title { (counted(part, "check")) }
            }
        }
    }
}

/// Height of a column of so many checks.
fn tall(count: u64, bins: &Bins) -> f64 {
    let all = |index: usize| {
        [&bins.healthy, &bins.slow, &bins.unanswered].iter().filter_map(|row| row.get(index)).sum::<u64>()
    };
    let most = (0..BINS).map(all).max().unwrap_or(1);
    HEIGHT * (real(count).ln() + 1.0) / (real(most).ln() + 1.0)
}

fn mark(axis: &Axis, limit: DurNs) -> Markup {
    let place = axis.place(decades(limit));
    let anchor = if place > 0.5 { "end" } else { "start" };
    let x = percent_of_width(place);
    html! {
        line class="threshold" x1=(x) x2=(x) y1="0" y2="130" {}
        text class="thresholdname" x=(x) y="11" dx=(if place > 0.5 { "-4" } else { "4" }) text-anchor=(anchor) {
            "slow from " (limit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BINS, bin, decade_name};
    use crate::clock::DurNs;

    #[test]
    fn each_delay_has_its_bin() {
        assert_eq!(bin(DurNs(0)), 0);
        assert_eq!(bin(DurNs(999_999)), 23);
        assert_eq!(bin(DurNs(1_000_000)), 24, "a decade begins with its round number");
        assert_eq!(bin(DurNs(u64::MAX)), BINS - 1);
        assert_eq!([0, 3, 5].map(decade_name), ["1 µs", "1 ms", "100 ms"]);
    }
}
