//! Deadlines of open checks: four queues that run through the checks themselves.
//!
//! In each queue all waits are equally long, and time never runs backwards, so whoever enters last
//! is due last: no heap, no allocation, and the order of expiry depends on events alone.

use super::check::Check;
use super::slab::{NONE, Slab};

/// What a check waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The run's limit for an answer.
    Answer = 0,
    /// Its next report as open.
    Report = 1,
    /// A last stage that may still follow.
    Grace = 2,
    /// The hand-over of the reply to the driver, when no queueing discipline has said it holds it.
    HandOver = 3,
}

impl Wait {
    pub(super) const ALL: [Self; 4] = [Self::Grace, Self::HandOver, Self::Answer, Self::Report];
}

/// A check's place in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    prev: u32,
    next: u32,
}

impl Link {
    /// In no queue: no check has two neighbours of this number.
    pub(super) const OUT: Self = Self { prev: NONE - 1, next: NONE - 1 };
}

/// First and last of a queue.
#[derive(Debug, Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

/// The four queues.
#[derive(Debug)]
pub(super) struct Deadlines {
    ends: [Ends; 4],
}

impl Deadlines {
    pub(super) const fn new() -> Self {
        Self { ends: [Ends { first: NONE, last: NONE }; 4] }
    }

    /// The check that is due first.
    pub(super) fn first(&self, wait: Wait) -> Option<u32> {
        let first = self.ends[wait as usize].first;
        (first != NONE).then_some(first)
    }

    /// Puts a check at the end of a queue, leaving its old place.
    pub(super) fn arm(&mut self, checks: &mut Slab<Check>, slot: u32, wait: Wait) {
        self.disarm(checks, slot, wait);
        let ends = &mut self.ends[wait as usize];
        checks[slot].links[wait as usize] = Link { prev: ends.last, next: NONE };
        if ends.last == NONE {
            ends.first = slot;
        } else {
            checks[ends.last].links[wait as usize].next = slot;
        }
        ends.last = slot;
    }

    /// Takes a check out of a queue, if it is in it.
    pub(super) fn disarm(&mut self, checks: &mut Slab<Check>, slot: u32, wait: Wait) {
        let link = std::mem::replace(&mut checks[slot].links[wait as usize], Link::OUT);
        if link == Link::OUT {
            return;
        }
        let ends = &mut self.ends[wait as usize];
        match link.prev {
            NONE => ends.first = link.next,
            prev => checks[prev].links[wait as usize].next = link.next,
        }
        match link.next {
            NONE => ends.last = link.prev,
            next => checks[next].links[wait as usize].prev = link.prev,
        }
    }
}
