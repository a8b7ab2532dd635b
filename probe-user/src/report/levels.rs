//! What queues held and lost over the run: of all levels that were read, those that moved while checks were
//! slow or lost, one small drawing each.

mod panel;
mod track;

use super::Report;
use super::chart::Window;
use super::words::{clock, counted};
use crate::attribution::Judged;
use crate::clock::{DurNs, MonoNs};
use crate::event::Fact;
use crate::level::{Level, Measure};
use maud::{Markup, html};
use panel::Panel;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use track::{Spans, Track};

/// Most values that are kept; what comes later is counted.
const MOST_VALUES: usize = 1 << 20;
/// Drawings of a group at most.
const MOST_PANELS: usize = 6;
/// A reading tells of the time since the one before, which was no more than that ago.
const AROUND: DurNs = DurNs::from_secs(1);

/// All levels of a recording.
#[derive(Debug, Default)]
pub(super) struct Levels {
    /// When they were read, in order.
    readings: Vec<MonoNs>,
    /// By name; a name has a value from when it is told until it is told again.
    values: BTreeMap<String, Vec<(MonoNs, u64)>>,
    kept: usize,
    left_out: u64,
}

/// What a drawing is about; they stand in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Disciplines,
    ByteLimits,
    Nics,
    Backlogs,
    Sockets,
    Interrupts,
}

impl Group {
    const fn title(self) -> &'static str {
        match self {
            Self::Disciplines => "Waiting in a queueing discipline",
            Self::ByteLimits => "Handed to a device, and its limit",
            Self::Nics => "Lost, refused or paused at a NIC",
            Self::Backlogs => "Dropped, or out of budget, at a receiving CPU",
            Self::Sockets => "Memory of sockets",
            Self::Interrupts => "Interrupts of a queue, by the CPU that took them",
        }
    }

    /// Where a level is drawn, if it is.
    const fn of(measure: Measure) -> Option<Self> {
        Some(match measure {
            Measure::Backlog | Measure::Drops => Self::Disciplines,
            Measure::InFlight => Self::ByteLimits,
            Measure::CpuDropped | Measure::CpuSqueezed => Self::Backlogs,
            Measure::SocketMemory => Self::Sockets,
            Measure::Interrupts => Self::Interrupts,
            Measure::RingDrops | Measure::XdpDrops | Measure::NicDrops | Measure::NicErrors | Measure::Pauses => {
                Self::Nics
            }
            Measure::Packets
            | Measure::Requeues
            | Measure::Overlimits
            | Measure::ByteLimit
            | Measure::CpuBacklog
            | Measure::CpuProcessed
            | Measure::Work => return None,
        })
    }
}

impl Levels {
    pub(super) fn push(&mut self, fact: &Fact) {
        let Fact::Levels { at, levels, .. } = fact else { return };
        if self.readings.last() < Some(at) && self.readings.len() < MOST_VALUES {
            self.readings.push(*at);
        }
        for level in levels {
            if self.kept >= MOST_VALUES {
                self.left_out += 1;
                continue;
            }
            self.kept += 1;
            self.values.entry(level.name.clone()).or_default().push((*at, level.value));
        }
    }

    /// Nothing, where nothing was read.
    pub(super) fn section(&self, report: &Report, checks: &[&Judged], window: Window) -> Markup {
        if self.readings.is_empty() {
            return html! {};
        }
        let slow = slow(report, checks);
        let groups = self.groups(&slow);
        html! {
            h3 id="levels" { "Queues while checks were slow or lost" }
            @if groups.is_empty() {
                p class="note" {
                    "Nothing: of " (counted(self.values.len() as u64, "level")) " that were read, none that counts a "
                    "queue or a loss moved in that time."
                }
            } @else {
                p class="note" {
                    "Only what moved in that time (shaded). Each drawing is the whole run, from "
                    (clock(&report.names, window.from)) " over " (window.length())
                    "; it was read once a second, five times while checks were slow: what came and went in between "
                    "is not in it."
                    @if self.left_out > 0 { " " (counted(self.left_out, "later value")) " left out." }
                }
            }
            (drawings(groups, (&slow, window)))
        }
    }

    /// What moved, by group, the most first.
    fn groups(&self, slow: &Spans) -> BTreeMap<Group, Vec<Panel<'_>>> {
        let mut groups: BTreeMap<Group, Vec<Panel<'_>>> = BTreeMap::new();
        for (name, values) in &self.values {
            let Some(level) = Level::of(name) else { continue };
            let Some(group) = Group::of(level.measure).filter(|_| !self.is_told_elsewhere(&level)) else { continue };
            let track = Track::new(level.measure, values, &self.readings);
            if let Some(moved) = track.moved(slow) {
                groups.entry(group).or_default().push(Panel { level, track, moved, beside: self.beside(&level) });
            }
        }
        groups.values_mut().for_each(|panels| panels.sort_by_key(|panel| (Reverse(panel.moved), panel.level)));
        groups
    }

    /// What a driver counts under the name under which the kernel does; drops of a discipline that has a
    /// drawing of its own.
    fn is_told_elsewhere(&self, level: &Level<'_>) -> bool {
        let twin = match level.measure {
            Measure::Drops => format!("{} {}", level.of, Measure::Backlog.suffix()),
            _ => match level.counter.strip_prefix("driver ") {
                Some(counter) => format!("{} link {counter}", level.of),
                None => return false,
            },
        };
        self.values.contains_key(&twin)
    }

    /// Levels of the same queue that belong into its drawing.
    fn beside(&self, level: &Level<'_>) -> Vec<(Measure, Track<'_>)> {
        let others: &[Measure] = match level.measure {
            Measure::Backlog => &[Measure::Drops, Measure::Requeues, Measure::Overlimits],
            Measure::InFlight => &[Measure::ByteLimit],
            _ => &[],
        };
        let beside = |measure: &Measure| {
            let values = self.values.get(&format!("{} {}", level.of, measure.suffix()))?;
            Some((*measure, Track::new(*measure, values, &self.readings)))
        };
        others.iter().filter_map(beside).collect()
    }
}

/// When checks were slow, lost, or did not come.
fn slow(report: &Report, checks: &[&Judged]) -> Spans {
    let checks = checks.iter().map(|judged| (judged.journey.started_at(), judged.journey.known_until));
    Spans::of(checks.chain(report.absent.times.iter().copied()))
}

fn drawings(groups: BTreeMap<Group, Vec<Panel<'_>>>, drawn: (&Spans, Window)) -> Markup {
    let left_out: usize = groups.values().map(|panels| panels.len().saturating_sub(MOST_PANELS)).sum();
    html! {
        div class="levels" {
            @for (group, panels) in &groups {
                @for panel in panels.iter().take(MOST_PANELS) { (panel.draw(group.title(), drawn)) }
            }
        }
        @if left_out > 0 { p class="note" { (counted(left_out as u64, "more drawing")) " of what moved less left out." } }
    }
}
