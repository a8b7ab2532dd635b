//! Counted towers, ready to be written.

use super::svg;
use super::tower::Tower;
use crate::clock::DurNs;
use std::fmt::Write;
use std::io;

/// Towers with their times, in the order in which they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    pub(super) title: String,
    pub(super) note: String,
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
    pub(super) const fn is_nothing(self) -> bool {
        match self {
            Self::Of(time) => time.0 == 0,
            Self::Against { now, before } => now.0 == 0 && before.0 == 0,
        }
    }
}

impl Graph {
    pub(super) fn new(title: String, note: String, mut shares: Vec<Share>) -> Self {
        shares.sort_by(|one, two| one.tower.cmp(&two.tower));
        Self { title, note, shares }
    }

    /// Adds something that a reader of the graph must know.
    pub fn note(&mut self, note: &str) {
        self.note = format!("{}; {note}", self.note);
    }

    /// A line for each tower: its levels from below with `;` between them, a space, its time in
    /// nanoseconds. A differential graph has two times: in a healthy check, then in a slow one.
    #[must_use]
    pub fn folded(&self) -> String {
        self.lines().into_iter().fold(String::new(), |all, line| all + &line + "\n")
    }

    /// One self-contained SVG document.
    ///
    /// # Errors
    /// When the drawing fails, as for times that no recording can hold.
    pub fn svg(&self) -> io::Result<String> {
        svg::draw(self)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.shares.iter().map(Share::line).collect()
    }
}

impl Share {
    fn line(&self) -> String {
        let texts: Vec<_> = self.tower.iter().map(|level| level.text.as_str()).collect();
        let mut line = texts.join(";");
        let _ = match self.width {
            Width::Of(time) => write!(line, " {}", time.0),
            Width::Against { now, before } => write!(line, " {} {}", before.0, now.0),
        };
        line
    }
}
