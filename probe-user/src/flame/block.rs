//! A graph as boxes: each with its level, its start and its width.

use super::graph::{Graph, Share, Width};
use super::tower::{Kind, Level};
use crate::clock::DurNs;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Most lines of source that are told of a function.
const MOST_LINES: usize = 3;

/// A level of one or more towers that stand side by side on the same levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// How many are below it.
    pub(crate) level: u32,
    /// Time of what stands left of it.
    pub(crate) start: DurNs,
    /// Its width.
    pub(crate) now: DurNs,
    /// In a differential graph, its width for healthy checks.
    pub(crate) before: Option<DurNs>,
    /// What it is a block of; `None` for the one under all.
    of: Option<Rc<Level>>,
    /// Where in its source it was.
    lines: Lines,
}

/// What of a block falls to each line of source, by levels that differ in nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Lines(Vec<(Rc<Level>, u64)>);

impl Lines {
    fn add(&mut self, level: &Rc<Level>, width: Width) {
        if level.place.is_none() {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| Rc::ptr_eq(known, level)) {
            Some((_, time)) => *time = time.saturating_add(width.now().0),
            None => self.0.push((Rc::clone(level), width.now().0)),
        }
    }

    /// `; at src/server.rs:120 80%, src/server.rs:131 20%`, in parts of a block as wide as `whole`;
    /// nothing where no line is known.
    fn told(&self, whole: u64) -> String {
        let mut times: BTreeMap<String, u64> = BTreeMap::new();
        for (place, time) in self.0.iter().filter_map(|(level, time)| Some((level.place.as_ref()?, time))) {
            let sum = times.entry(place.short()).or_default();
            *sum = sum.saturating_add(*time);
        }
        let mut lines: Vec<_> = times.into_iter().collect();
        lines.sort_by_key(|(_, time)| Reverse(*time));
        let lines = lines.into_iter().take(MOST_LINES).map(|(place, time)| {
            let percent = u128::from(time) * 100 / u128::from(whole.max(1));
            if percent == 100 { place } else { format!("{place} {percent}%") }
        });
        let lines: Vec<_> = lines.collect();
        if lines.is_empty() { String::new() } else { format!("; at {}", lines.join(", ")) }
    }
}

/// The blocks of a graph that are wide enough for it.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// From left to right, each before those that stand on it; the first is the one under all.
    pub(crate) wide: Vec<Block>,
    /// How many are too narrow.
    pub(crate) left_out: usize,
    /// The greatest difference of any block, in a differential graph.
    pub(super) greatest: u64,
}

/// Blocks that are not at their right edge yet, from below, with their numbers from left to right.
struct Standing {
    open: Vec<(usize, Block)>,
    opened: usize,
    narrow: u64,
    wide: Vec<(usize, Block)>,
    left_out: usize,
    greatest: u64,
}

impl Standing {
    fn open(&mut self, start: DurNs, of: Option<&Rc<Level>>) {
        let level = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        self.open.push((self.opened, Block::new(level, start, of.cloned())));
        self.opened += 1;
    }

    /// Ends all but so many. The lowest level is kept: all of it together is the full width.
    fn close(&mut self, but: usize) {
        while self.open.len() > but {
            let Some((number, block)) = self.open.pop() else { return };
            let difference = block.before.map_or(0, |before| block.now.0.abs_diff(before.0));
            self.greatest = self.greatest.max(difference);
            if block.level <= 1 || block.now.0 >= self.narrow {
                self.wide.push((number, block));
            } else {
                self.left_out += 1;
            }
        }
    }
}

impl Graph {
    /// The blocks that are at least one of so many `parts` of the full width. Of very many towers
    /// most blocks are narrower, and none of those is kept.
    pub(crate) fn blocks(&self, parts: u64) -> Blocks {
        let whole = self.shares.iter().fold(DurNs::ZERO, |sum, share| sum.plus(share.width.now()));
        let (open, wide) = (Vec::new(), Vec::new());
        let narrow = whole.0 / parts;
        let mut standing = Standing { open, opened: 0, narrow, wide, left_out: 0, greatest: 0 };
        standing.open(DurNs::ZERO, None);
        let (mut last, mut start): (&[Rc<Level>], DurNs) = (&[], DurNs::ZERO);
        for Share { tower, width } in &self.shares {
            let shared = last.iter().zip(tower).take_while(|(one, two)| one.is_drawn_as(two)).count();
            standing.close(shared + 1);
            tower.iter().skip(shared).for_each(|level| standing.open(start, Some(level)));
            let levels = std::iter::once(None).chain(tower.iter().map(Some));
            standing.open.iter_mut().zip(levels).for_each(|((_, block), level)| block.add(*width, level));
            start = start.plus(width.now());
            last = tower;
        }
        standing.close(0);
        let Standing { mut wide, left_out, greatest, .. } = standing;
        wide.sort_unstable_by_key(|(number, _)| *number);
        Blocks { wide: wide.into_iter().map(|(_, block)| block).collect(), left_out, greatest }
    }

    /// What it is, in a line.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// What a reader must know of it.
    pub(crate) fn told(&self) -> &str {
        &self.note
    }
}

impl Block {
    const fn new(level: u32, start: DurNs, of: Option<Rc<Level>>) -> Self {
        Self { level, start, now: DurNs::ZERO, before: None, of, lines: Lines(Vec::new()) }
    }

    /// What it is; `None` for the one under all.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.of.as_ref().map(|level| level.kind)
    }

    /// A word for what it is.
    pub(crate) fn word(&self) -> &'static str {
        self.kind().map_or("all", word)
    }

    /// What is written on it.
    pub(crate) fn text(&self) -> String {
        self.of.as_ref().map_or_else(|| "all".to_owned(), |level| level.label())
    }

    /// `; at` the lines of source where it was; nothing where none is known.
    pub(crate) fn lines(&self) -> String {
        self.lines.told(self.now.0)
    }

    /// Time of what stands left of its right edge.
    pub(super) const fn end(&self) -> DurNs {
        self.start.plus(self.now)
    }

    fn add(&mut self, width: Width, level: Option<&Rc<Level>>) {
        self.now = self.now.plus(width.now());
        self.before = width.before().map(|before| before.plus(self.before.unwrap_or_default())).or(self.before);
        if let Some(level) = level {
            self.lines.add(level, width);
        }
    }
}

const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Custody | Kind::Span => "custody",
        Kind::Cause => "cause",
        Kind::Thread => "thread",
        Kind::Waker | Kind::Instead => "waker",
        Kind::Cgroup | Kind::Device => "device",
        Kind::User => "user",
        Kind::Kernel => "kernel",
        Kind::Ready => "ready",
        Kind::Unexplained => "unexplained",
    }
}
