//! A graph as boxes: each with its level, its start and its width.

use super::graph::{Graph, Share, Width};
use super::tower::{Kind, Level, Place};
use crate::clock::DurNs;
use std::cmp::Reverse;
use std::collections::BTreeMap;

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
    /// A word for what it is.
    pub(crate) kind: &'static str,
    /// What is written on it.
    pub(crate) text: String,
    /// Where in its source it was.
    lines: Lines,
}

/// What of a block falls to each line of source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lines(BTreeMap<String, u64>);

impl Lines {
    pub(super) fn add(&mut self, place: &Place, width: Width) {
        let time = self.0.entry(place.short()).or_default();
        *time = time.saturating_add(width.now().0);
    }

    /// `; at src/server.rs:120 80%, src/server.rs:131 20%`, in parts of a block as wide as `whole`;
    /// nothing where no line is known.
    pub(super) fn told(&self, whole: u64) -> String {
        let mut lines: Vec<_> = self.0.iter().collect();
        lines.sort_by_key(|(_, time)| Reverse(**time));
        let lines = lines.iter().take(MOST_LINES).map(|(place, time)| {
            let percent = u128::from(**time) * 100 / u128::from(whole.max(1));
            if percent == 100 { (*place).clone() } else { format!("{place} {percent}%") }
        });
        let lines: Vec<_> = lines.collect();
        if lines.is_empty() { String::new() } else { format!("; at {}", lines.join(", ")) }
    }
}

impl Graph {
    /// All blocks from left to right, each before those that stand on it; the first is the one under
    /// all.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = vec![Block::new(0, DurNs::ZERO, "all", "all".to_owned())];
        let (mut path, mut last): (Vec<usize>, &[Level]) = (Vec::new(), &[]);
        let mut start = DurNs::ZERO;
        for Share { tower, width } in &self.shares {
            let shared = last.iter().zip(tower).take_while(|(one, two)| one.drawn() == two.drawn()).count();
            path.truncate(shared);
            for level in tower.iter().skip(shared) {
                path.push(blocks.len());
                let depth = u32::try_from(path.len()).unwrap_or(u32::MAX);
                blocks.push(Block::new(depth, start, word(level.kind), level.label()));
            }
            for number in path.iter().chain([&0]) {
                if let Some(block) = blocks.get_mut(*number) {
                    block.add(*width);
                }
            }
            for (number, level) in path.iter().zip(tower) {
                if let (Some(block), Some(place)) = (blocks.get_mut(*number), &level.place) {
                    block.lines.add(place, *width);
                }
            }
            start = start.plus(width.now());
            last = tower;
        }
        blocks
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
    fn new(level: u32, start: DurNs, kind: &'static str, text: String) -> Self {
        Self { level, start, now: DurNs::ZERO, before: None, kind, text, lines: Lines::default() }
    }

    /// `; at` the lines of source where it was; nothing where none is known.
    pub(crate) fn lines(&self) -> String {
        self.lines.told(self.now.0)
    }

    fn add(&mut self, width: Width) {
        self.now = self.now.plus(width.now());
        self.before = width.before().map(|before| before.plus(self.before.unwrap_or_default())).or(self.before);
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
