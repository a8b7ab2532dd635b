//! A graph in the formats of other tools, each complete in itself. Times are exact in all of them.

mod firefox;
mod pprof;
mod speedscope;

pub(super) use firefox::firefox;
pub(super) use pprof::pprof;
pub(super) use speedscope::speedscope;

use super::tower::{Kind, Level};
use std::collections::HashMap;
use std::hash::Hash;

/// Values once each, by number from 0.
#[derive(Debug)]
struct Numbered<T> {
    numbers: HashMap<T, usize>,
}

impl<T: Eq + Hash> Numbered<T> {
    fn new() -> Self {
        Self { numbers: HashMap::new() }
    }

    /// Its number, and whether it is new.
    fn number(&mut self, value: T) -> (usize, bool) {
        let next = self.numbers.len();
        let number = *self.numbers.entry(value).or_insert(next);
        (number, number == next)
    }
}

/// The name of a level in tools that know no kinds.
fn name(level: &Level) -> &str {
    &level.text
}

/// What a group of levels is called where they are grouped.
const fn group(kind: Kind) -> &'static str {
    match kind {
        Kind::Custody | Kind::Span => "Path",
        Kind::Cause | Kind::Unexplained => "Cause",
        Kind::Thread | Kind::Waker | Kind::Instead | Kind::Cgroup | Kind::Device => "Who",
        Kind::User => "Program",
        Kind::Kernel | Kind::Ready => "Kernel",
    }
}

#[cfg(test)]
mod tests;
