//! Counted towers, ready to be written.

use super::export;
use super::svg;
use super::tower::{Kind, Level, Tower};
use crate::clock::DurNs;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;

/// Towers with their times, in the order in which they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    pub(super) title: String,
    pub(super) note: String,
    /// What a width is, such as `Delay`.
    pub(super) measure: &'static str,
    /// What a differential graph compares with, such as `healthy`.
    pub(super) compared_with: &'static str,
    pub(super) shares: Vec<Share>,
}

/// A tower and what it takes of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) tower: Tower,
    pub(super) width: Width,
}

/// How wide a tower is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// As wide as this time.
    Of(DurNs),
    /// As wide as the time now, coloured by the difference to the time before.
    Against { now: DurNs, before: DurNs },
}

impl Width {
    /// The time now.
    pub(super) const fn now(self) -> DurNs {
        match self {
            Self::Of(now) | Self::Against { now, .. } => now,
        }
    }

    /// The time before, in a differential graph.
    pub(super) const fn before(self) -> Option<DurNs> {
        match self {
            Self::Of(_) => None,
            Self::Against { before, .. } => Some(before),
        }
    }

    /// Both together; of one graph, so both alike.
    pub(super) fn plus(self, other: Self) -> Self {
        let now = self.now().plus(other.now());
        match (self.before(), other.before()) {
            (None, None) => Self::Of(now),
            (one, two) => Self::Against { now, before: one.unwrap_or_default().plus(two.unwrap_or_default()) },
        }
    }

    pub(super) const fn is_nothing(self) -> bool {
        match self {
            Self::Of(time) => time.0 == 0,
            Self::Against { now, before } => now.0 == 0 && before.0 == 0,
        }
    }
}

impl Graph {
    pub(super) fn new(measure: &'static str, title: String, note: String, mut shares: Vec<Share>) -> Self {
        shares.sort_by(|one, two| one.drawn().cmp(two.drawn()).then_with(|| one.tower.cmp(&two.tower)));
        Self { title, note, measure, compared_with: "healthy", shares }
    }

    /// Adds something that a reader of the graph must know.
    pub fn note(&mut self, note: &str) {
        self.note = format!("{}; {note}", self.note);
    }

    /// A line for each tower: its levels from below with `;` between them, a space, its time in
    /// nanoseconds. A differential graph has two times: in a healthy check, then in a slow one.
    #[must_use]
    pub fn folded(&self) -> String {
        let alike = self.shares.chunk_by(|one, two| one.drawn().eq(two.drawn()));
        alike.fold(String::new(), |all, shares| all + &line(shares) + "\n")
    }

    /// A profile for `pprof`, compressed.
    ///
    /// # Errors
    /// Never in memory, as far as is known.
    pub fn pprof(&self) -> io::Result<Vec<u8>> {
        export::pprof(self)
    }

    /// A file for speedscope, JSON.
    ///
    /// # Errors
    /// Never in memory, as far as is known.
    pub fn speedscope(&self) -> io::Result<Vec<u8>> {
        Ok(export::speedscope(self)?)
    }

    /// A file for the Firefox Profiler, JSON.
    ///
    /// # Errors
    /// Never in memory, as far as is known.
    pub fn firefox(&self) -> io::Result<Vec<u8>> {
        Ok(export::firefox(self)?)
    }

    /// One self-contained SVG document.
    ///
    /// # Errors
    /// When the drawing fails, as for times that no recording can hold.
    pub fn svg(&self) -> io::Result<String> {
        svg::draw(self)
    }
}

impl Share {
    /// What it is drawn by, level by level.
    fn drawn(&self) -> impl Iterator<Item = (Kind, &str)> {
        self.tower.iter().map(Level::drawn)
    }
}

/// Equal towers of different stacks as one.
pub(super) fn gathered(shares: impl Iterator<Item = Share>) -> Vec<Share> {
    let mut widths: HashMap<Tower, Width> = HashMap::new();
    for Share { tower, width } in shares {
        widths.entry(tower).and_modify(|sum| *sum = sum.plus(width)).or_insert(width);
    }
    widths.into_iter().map(|(tower, width)| Share { tower, width }).collect()
}

/// The line of towers that are drawn as one.
fn line(alike: &[Share]) -> String {
    let levels = alike.first().map_or(&[][..], |share| &share.tower);
    let texts: Vec<_> = levels.iter().map(|level| level.text.as_str()).collect();
    let mut line = texts.join(";");
    let sum = alike.iter().map(|share| share.width).reduce(Width::plus);
    let _ = match sum {
        None => Ok(()),
        Some(Width::Of(time)) => write!(line, " {}", time.0),
        Some(Width::Against { now, before }) => write!(line, " {} {}", before.0, now.0),
    };
    line
}
