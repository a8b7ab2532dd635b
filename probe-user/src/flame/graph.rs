//! Counted towers, ready to be written.

use super::export;
use super::svg;
use super::tower::{Level, Tower};
use crate::clock::DurNs;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::rc::Rc;

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
    pub(super) fn new(measure: &'static str, title: String, note: String, shares: Vec<Share>) -> Self {
        Self { title, note, measure, compared_with: "healthy", shares: in_order(shares) }
    }

    /// Adds something that a reader of the graph must know.
    pub fn note(&mut self, note: &str) {
        self.note = format!("{}; {note}", self.note);
    }

    /// A line for each tower: its levels from below with `;` between them, a space, its time in
    /// nanoseconds. A differential graph has two times: in a healthy check, then in a slow one.
    #[must_use]
    pub fn folded(&self) -> String {
        let alike = self.shares.chunk_by(Share::is_drawn_as);
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
    fn is_drawn_as(&self, other: &Self) -> bool {
        self.tower.len() == other.tower.len()
            && self.tower.iter().zip(&other.tower).all(|(one, two)| one.is_drawn_as(two))
    }
}

/// Towers as they stand side by side, by what they are drawn by and then by all else; equal ones as
/// one. Of very many towers the levels are few, so each level's place is found once.
fn in_order(mut shares: Vec<Share>) -> Vec<Share> {
    let ranks = ranks(&shares);
    let (mut places, mut ends) = (Vec::new(), Vec::with_capacity(shares.len()));
    for share in &shares {
        places.extend(share.tower.iter().map(|level| ranks.get(&Rc::as_ptr(level)).copied().unwrap_or(0)));
        ends.push(places.len());
    }
    let key = |index: usize| {
        let start = index.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        places.get(start..ends.get(index).copied().unwrap_or(start)).unwrap_or_default()
    };
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_unstable_by(|one, two| {
        key(*one).cmp(key(*two)).then_with(|| shares[*one].tower.cmp(&shares[*two].tower))
    });
    let mut ordered: Vec<Share> = Vec::with_capacity(shares.len());
    for index in order {
        let Share { tower, width } = &mut shares[index];
        match ordered.last_mut().filter(|last| last.tower == *tower) {
            Some(last) => last.width = last.width.plus(*width),
            None => ordered.push(Share { tower: std::mem::take(tower), width: *width }),
        }
    }
    ordered
}

/// The place of each level among all by what it is drawn by; alike ones have the same.
fn ranks(shares: &[Share]) -> HashMap<*const Level, u32, RandomState> {
    let mut ranks: HashMap<*const Level, u32, RandomState> = HashMap::default();
    let mut levels: Vec<&Rc<Level>> = Vec::new();
    for level in shares.iter().flat_map(|share| &share.tower) {
        if ranks.insert(Rc::as_ptr(level), 0).is_none() {
            levels.push(level);
        }
    }
    levels.sort_unstable_by(|one, two| one.drawn().cmp(&two.drawn()));
    let alike = levels.chunk_by(|one, two| one.is_drawn_as(two));
    for (rank, level) in (0..).zip(alike).flat_map(|(rank, alike)| alike.iter().map(move |level| (rank, level))) {
        ranks.insert(Rc::as_ptr(level), rank);
    }
    ranks
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
