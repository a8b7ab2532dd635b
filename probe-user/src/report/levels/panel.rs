//! A small drawing of one level: its course, what belongs beside it, and when checks were slow.

use super::track::{COLUMNS, Spans, Track};
use crate::level::{Level, Measure};
use crate::report::chart::Window;
use crate::report::words::{counted, real, shown};
use maud::{Markup, html};
use std::fmt::Write as _;

/// Units of the drawing across and down; it is stretched to the width that it has.
const WIDTH: usize = COLUMNS * 5;
const HEIGHT: f64 = 60.0;
/// What is narrower is drawn that wide, so that it is seen.
const NARROWEST: f64 = 4.0;

/// One level to be drawn.
#[derive(Debug)]
pub(super) struct Panel<'a> {
    pub(super) level: Level<'a>,
    pub(super) track: Track<'a>,
    /// How much it moved while checks were slow.
    pub(super) moved: u64,
    /// Other levels of the same queue.
    pub(super) beside: Vec<(Measure, Track<'a>)>,
}

impl Panel<'_> {
    pub(super) fn draw(&self, about: &str, (slow, window): (&Spans, Window)) -> Markup {
        let columns = self.track.columns(window);
        let limit = self.beside(Measure::ByteLimit).map(|track| track.columns(window));
        let drops = self.beside(Measure::Drops).map(|track| track.columns(window)).unwrap_or_default();
        let highest = columns.iter().chain(limit.iter().flatten()).fold(1e-9_f64, |most, value| most.max(*value));
        let (title, told) = (self.title(), self.told(&columns));
        html! {
            figure class="level" {
                figcaption { span class="about" { (about) } strong { (title) } " " span { (told) } }
                svg class={ "spark " (self.class()) } viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none"
                    role="img" aria-label=(format!("{about}, {title}: {told}")) {
                    @for (from, to) in slow.all() { (band(window.part(*from, *to))) }
                    path class="course" d=(course(&columns, highest, true)) {}
                    @if let Some(limit) = limit { path class="limit" d=(course(&limit, highest, false)) {} }
                    @for (column, _) in drops.iter().enumerate().filter(|(_, drops)| **drops > 0.0) {
                        rect class="lost" x=(column * 5) y="0" width="5" height="5" {}
                    }
                    path class="ground" d=(format!("M0 {HEIGHT}H{WIDTH}")) {}
                }
            }
        }
    }

    fn beside(&self, wanted: Measure) -> Option<&Track<'_>> {
        self.beside.iter().find(|(measure, _)| *measure == wanted).map(|(_, track)| track)
    }

    fn title(&self) -> String {
        let Level { measure, of, counter } = self.level;
        match measure {
            Measure::CpuDropped | Measure::CpuSqueezed => format!("{of} {}", measure.suffix()),
            _ if counter.is_empty() => shown(of.trim_end_matches(':')),
            _ => format!("{} {}", shown(of), shown(counter)),
        }
    }

    fn class(&self) -> &'static str {
        match self.level.measure {
            Measure::Drops
            | Measure::CpuDropped
            | Measure::RingDrops
            | Measure::XdpDrops
            | Measure::NicDrops
            | Measure::NicErrors => "loses",
            _ => "holds",
        }
    }

    /// The numbers of the drawing.
    fn told(&self, columns: &[f64]) -> String {
        let row = self.level.measure.row();
        let total = self.track.total();
        let mut told = match row.counts {
            true => format!("{}, at most {} a second", amount(total, row.unit), rounded(columns)),
            false => format!("at most {}", amount(total, row.unit)),
        };
        for (measure, track) in &self.beside {
            let word = match measure {
                Measure::ByteLimit => "limit at most",
                measure => measure.suffix(),
            };
            let total =
                if *measure == Measure::ByteLimit { amount(track.total(), "bytes") } else { track.total().to_string() };
            if track.total() > 0 {
                let _ = write!(told, ", {word} {total}");
            }
        }
        told
    }
}

/// A stretch in which checks were slow.
fn band((x, width): (f64, f64)) -> Markup {
    let across = real(WIDTH as u64);
    html! {
        rect class="slowband" x=(format!("{:.1}", x * across)) y="0" height=(HEIGHT)
            width=(format!("{:.1}", (width * across).max(NARROWEST))) {}
    }
}

/// Columns as one line with steps, closed at the ground if it is filled.
fn course(columns: &[f64], highest: f64, filled: bool) -> String {
    let y = |value: f64| (1.0 - value / highest) * (HEIGHT - 4.0) + 4.0;
    let mut path =
        if filled { format!("M0 {HEIGHT}") } else { format!("M0 {:.1}", y(columns.first().copied().unwrap_or(0.0))) };
    let mut last = None;
    for (column, value) in columns.iter().enumerate() {
        let height = format!("{:.1}", y(*value));
        if last.as_ref() != Some(&height) {
            let _ = write!(path, "H{}V{height}", column * 5);
            last = Some(height);
        }
    }
    let _ = write!(path, "H{WIDTH}");
    if filled {
        let _ = write!(path, "V{HEIGHT}Z");
    }
    path
}

/// The highest column, without a fraction where it has more than one digit.
fn rounded(columns: &[f64]) -> String {
    let most = columns.iter().fold(0.0_f64, |most, value| most.max(*value));
    if most < 10.0 { format!("{most:.1}") } else { format!("{most:.0}") }
}

fn amount(value: u64, unit: &str) -> String {
    match unit {
        "bytes" if value >= 1_000_000 => format!("{:.1} MB", real(value) / 1e6),
        "bytes" if value >= 1_000 => format!("{:.1} kB", real(value) / 1e3),
        unit => counted(value, unit.trim_end_matches('s')),
    }
}

#[cfg(test)]
mod tests {
    use super::{amount, course};

    #[test]
    fn a_course_has_a_step_only_where_it_changes() {
        assert_eq!(course(&[0.0, 0.0, 2.0, 2.0], 2.0, true), "M0 60H0V60.0H10V4.0H1200V60Z");
        assert_eq!(course(&[1.0, 1.0], 2.0, false), "M0 32.0H0V32.0H1200");
    }

    #[test]
    fn amounts_are_short() {
        let told = [amount(1, "packets"), amount(1_905, "times"), amount(366_000, "bytes"), amount(7_340_032, "bytes")];
        assert_eq!(told, ["1 packet", "1905 times", "366.0 kB", "7.3 MB"]);
    }
}
