//! The timeline: how long checks took over the run, the slow ones with their stages, and what
//! threads, queues and disks did under them.

use super::Report;
use super::chart::{self, Window, axis, custody, lanes_height, place};
use super::detail;
use super::kept::Chosen;
use super::lane::{Lane, Lanes, Segment, lanes};
use super::words::{clock, counted, percent_of_width, real, shown};
use crate::attribution::Judged;
use crate::clock::{DurNs, MonoNs};
use crate::journey::{JourneyId, Outcome, stretches};
use maud::{Markup, html};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Delays with a line across the part that shows them.
const TICKS: [DurNs; 4] = [DurNs(1_000), DurNs(1_000_000), DurNs::from_secs(1), DurNs::from_secs(60)];
/// Height of the part that shows delays.
const DELAYS: u32 = 110;
/// Height of all rows of checks together, of one at most, and rows at most.
const ROWS: u32 = 400;
const ROW: u32 = 18;
const MAX_ROWS: usize = 50;
/// Lanes at most.
const MAX_LANES: usize = 12;
/// Stretches of a lane that are shorter than this part of the run are not drawn here; each check's
/// own drawing has them.
const FINEST: u64 = 20_000;
/// Room between two checks of a row, as a part of the run.
const APART: u64 = 400;

pub(super) fn section(report: &Report) -> Markup {
    let drawn = report.kept.drawn();
    let told = report.kept.told();
    html! {
        (overview(report, &drawn, &told))
        (report.levels.section(report, &drawn.checks, window(report, &drawn.checks)))
        h3 id="check-details" { "Slow checks in full" }
        @if (told.checks.len() as u64) < told.of {
            p class="note" { "The " (told.checks.len()) " longest of each kind, of "
                (counted(told.of, "slow check")) "; "
                (told.of - told.checks.len() as u64) " more are counted and not told in full." }
        }
        div id="details" {
            @for judged in &told.checks { (detail::article(judged, &report.names)) }
        }
    }
}

fn overview(report: &Report, drawn: &Chosen<'_>, told: &Chosen<'_>) -> Markup {
    let window = window(report, &drawn.checks);
    let rows = Rows::of(&drawn.checks, window);
    let Lanes { lanes, left_out } = lanes(&drawn.checks, &report.names, (MAX_LANES, window.length()));
    let lanes: Vec<_> = lanes.into_iter().map(|lane| coarse(lane, window)).collect();
    let rows_top = DELAYS + 24;
    let lanes_top = rows_top + rows.height() * rows.count() + 20;
    let bottom = lanes_top + lanes_height(lanes.len());
    let told: BTreeSet<JourneyId> = told.checks.iter().map(|judged| judged.journey.id).collect();
    html! {
        (controls())
        (chart::custodies())
        (chart::states())
        svg id="timeline" class="chart zoomable" height=(bottom + 20) role="group" data-ns=(window.length().0)
            aria-label="Timeline of the run: delays, slow checks with their stages, threads, queues and disks" {
            (axis(window, bottom))
            text class="lanename" x="0" y="12" { "Delay of checks (grey: healthy)" }
            (delays(report, &drawn.checks, window))
            text class="lanename" x="0" y=(rows_top - 6) { "Slow checks and who held them" }
            @for (judged, row) in rows.placed() {
                (bar(judged, window, (rows_top + rows.height() * row, rows.height()), &told))
            }
            (chart::lanes(&lanes, window, lanes_top))
        }
        p class="note" {
            "From " (clock(&report.names, window.from)) " over " (window.length()) ". "
            (counted(drawn.checks.len() as u64, "slow check")) " of " (drawn.of) " drawn"
            @if rows.left_out > 0 { "; " (rows.left_out) " of them have no room in the rows" }
            @if left_out > 0 { "; " (counted(left_out as u64, "more lane")) " with less time left out" }
            ". A ring is a lost or open check. Lanes tell only what was seen under slow checks; where a lane is empty, nothing is known."
        }
    }
}

/// The run, as far as checks tell.
fn window(report: &Report, checks: &[&Judged]) -> Window {
    let from = checks.iter().map(|judged| judged.journey.started_at()).chain(began(report)).min().unwrap_or_default();
    let to = checks.iter().map(|judged| judged.journey.known_until).chain([report.run.ended_at]).max();
    Window { from, to: to.unwrap_or(from).max(from.after(DurNs(1))) }
}

fn began(report: &Report) -> Option<MonoNs> {
    Some(report.run.started_at).filter(|start| start.0 > 0)
}

fn controls() -> Markup {
    html! {
        div class="controls scripted" {
            button type="button" data-zoom="in" { "Zoom in" }
            button type="button" data-zoom="out" { "Zoom out" }
            button type="button" data-zoom="left" aria-label="Move earlier" { "←" }
            button type="button" data-zoom="right" aria-label="Move later" { "→" }
            button type="button" data-zoom="reset" { "Whole run" }
            span class="hint" {
                "Keys: ← → go from check to check, Enter shows one, + − zoom, Shift+← → move, Esc whole run."
            }
        }
    }
}

/// The logarithmic place of a delay between 1 µs and the longest, 0 at the bottom.
fn height(delay: DurNs, longest: DurNs) -> f64 {
    let log = |time: u64| real(time.max(1_000)).ln() - 1_000_f64.ln();
    (log(delay.0) / log(longest.0.max(1_000_000))).clamp(0.0, 1.0)
}

fn delays(report: &Report, checks: &[&Judged], window: Window) -> Markup {
    let healthy = report.strip.ranges(window.length()).into_iter().map(|(.., range)| range.most);
    let longest = checks.iter().map(|judged| judged.journey.elapsed()).chain(healthy).max().unwrap_or_default();
    let y = |delay| 16.0 + (1.0 - height(delay, longest)) * f64::from(DELAYS - 20);
    html! {
        @for tick in TICKS.into_iter().filter(|tick| *tick <= longest) {
            line class="grid" x1="0" x2="100%" y1=(format!("{:.1}", y(tick))) y2=(format!("{:.1}", y(tick))) {}
            text class="tick" x="100%" text-anchor="end" y=(format!("{:.1}", y(tick) - 2.0)) { (tick) }
        }
        @for (from, to, range) in report.strip.ranges(window.length()) {
            @let (top, low) = (y(range.most), y(range.least));
            @let part = window.part(from.max(window.from), to.min(window.to));
            (place(part, 0, DELAYS, "segment", &html! {
                rect class="healthy" width="100%" y=(format!("{top:.1}"))
                    height=(format!("{:.1}", (low - top).max(3.0))) {

                }
            }))
        }
        @for judged in checks {
            @let x = window.at(judged.journey.started_at());
            circle class=(if judged.journey.outcome == Outcome::Replied { "dot" } else { "dot ring" }) cx=(percent_of_width(x)) r="3"
                cy=(format!("{:.1}", y(judged.journey.elapsed()))) {}
        }
    }
}

/// A check in the timeline; one that is told in full leads there, with and without script.
fn bar(judged: &Judged, window: Window, (y, height): (u32, u32), told: &BTreeSet<JourneyId>) -> Markup {
    let journey = &judged.journey;
    let part = window.part(journey.started_at(), journey.known_until);
    let name = detail::headline(judged);
    let inner = html! {
        title { (name) }
        rect class="bar" width="100%" height="100%" {}
        (custody(&stretches(journey), height * 4 / 5))
    };
    let drawn = place(part, y, height * 4 / 5, "check", &inner);
    if told.contains(&journey.id) {
        html! { a class="checklink" href={ "#check-" (journey.id.0) } aria-label=(shown(&name)) { (drawn) } }
    } else {
        drawn
    }
}

/// Rows in which no two checks overlap.
#[derive(Debug)]
struct Rows<'a> {
    placed: Vec<(&'a Judged, u32)>,
    ends: Vec<Vec<(MonoNs, MonoNs)>>,
    left_out: usize,
}

impl<'a> Rows<'a> {
    /// The longest first, so that they have room.
    fn of(checks: &[&'a Judged], window: Window) -> Self {
        let mut rows = Self { placed: Vec::new(), ends: Vec::new(), left_out: 0 };
        let mut sorted = checks.to_vec();
        sorted.sort_by_key(|judged| (Reverse(judged.journey.elapsed()), judged.journey.id));
        let apart = window.length().part(APART);
        sorted.into_iter().for_each(|judged| rows.add(judged, apart));
        rows.placed.sort_by_key(|(judged, _)| (judged.journey.started_at(), judged.journey.id));
        rows
    }

    fn add(&mut self, judged: &'a Judged, apart: DurNs) {
        let (from, to) = (judged.journey.started_at(), judged.journey.known_until.after(apart));
        let free = |row: &Vec<(MonoNs, MonoNs)>| row.iter().all(|(begin, end)| to <= *begin || *end <= from);
        let row = self.ends.iter().position(free).unwrap_or(self.ends.len());
        if row >= MAX_ROWS {
            self.left_out += 1;
            return;
        }
        if row == self.ends.len() {
            self.ends.push(Vec::new());
        }
        if let Some(taken) = self.ends.get_mut(row) {
            taken.push((from, to));
        }
        self.placed.push((judged, u32::try_from(row).unwrap_or(0)));
    }

    fn placed(&self) -> impl Iterator<Item = (&'a Judged, u32)> {
        self.placed.iter().copied()
    }

    /// Height of a row with the space below it.
    fn height(&self) -> u32 {
        (ROWS / self.count().max(1)).min(ROW)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(0)
    }
}

/// A lane without what is too fine for the whole run.
fn coarse(lane: Lane, window: Window) -> Lane {
    let finest = window.length().part(FINEST);
    let mut segments: Vec<Segment> = Vec::new();
    for segment in lane.segments {
        if segment.to.since(segment.from) < finest {
            continue;
        }
        match segments.last_mut() {
            Some(last)
                if last.state == segment.state && last.what == segment.what && segment.from.since(last.to) < finest =>
            {
                last.to = segment.to;
            }
            _ => segments.push(segment),
        }
    }
    Lane { owner: lane.owner, segments }
}
