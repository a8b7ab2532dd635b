//! Gaps in the sequence numbers of a CPU, and when they happened.

use crate::clock::{DurNs, MonoNs};
use std::collections::VecDeque;

/// Sequence numbers that may be out of order: an interrupt's records stand behind that of the
/// program it interrupted, and programs nest a few deep.
const REACH: usize = 64;
/// A record stands at most this far from its place in time.
const DISORDER: DurNs = DurNs::from_millis(1);
/// Gaps kept apart; beyond it the oldest two become one that covers both.
const MOST_GAPS: usize = 4096;

/// Missing records between two that arrived.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from: MonoNs,
    to: MonoNs,
    lost: u64,
}

/// All gaps.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    gaps: VecDeque<Gap>,
    total: u64,
}

impl Gaps {
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn between(&self, from: MonoNs, to: MonoNs) -> u64 {
        self.gaps.iter().filter(|gap| gap.from <= to && gap.to >= from).fold(0, |sum, gap| gap.lost.saturating_add(sum))
    }

    /// A record that is missing though it arrived; none of those that are lost.
    pub(super) fn add_late(&mut self, at: MonoNs) {
        self.keep(Gap { from: at, to: at, lost: 1 });
    }

    /// Records that no program was run to make; none of those that are lost.
    pub(super) fn add_unsaid(&mut self, from: MonoNs, to: MonoNs, count: u64) {
        self.keep(Gap { from, to, lost: count });
    }

    fn add(&mut self, gap: Gap) {
        self.total = self.total.saturating_add(gap.lost);
        self.keep(gap);
    }

    fn keep(&mut self, gap: Gap) {
        if self.gaps.len() >= MOST_GAPS
            && let (Some(one), Some(other)) = (self.gaps.pop_front(), self.gaps.pop_front())
        {
            let lost = one.lost.saturating_add(other.lost);
            self.gaps.push_front(Gap { from: one.from.min(other.from), to: one.to.max(other.to), lost });
        }
        self.gaps.push_back(gap);
    }
}

/// What of one CPU's sequence has arrived: all below `base` is decided, the window above it not.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    base: u64,
    /// Times of the records `base..base + REACH` that have arrived.
    window: VecDeque<Option<MonoNs>>,
    /// Time of the last record that was decided.
    before: MonoNs,
    /// Missing records at the end of what is decided.
    missing: u64,
    lost: u64,
}

impl Sequence {
    pub(super) fn new() -> Self {
        Self { base: 1, window: VecDeque::with_capacity(REACH), before: MonoNs(0), missing: 0, lost: 0 }
    }

    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Time of the last record that was decided: what is lost and not decided came after it.
    pub(super) const fn before(&self) -> MonoNs {
        self.before
    }

    /// A record arrived; one that was seen or given up before changes nothing.
    pub(super) fn take(&mut self, seq: u64, at: MonoNs, gaps: &mut Gaps) {
        let Some(ahead) = seq.checked_sub(self.base) else { return };
        let room = REACH as u64;
        if ahead >= room {
            self.advance(ahead - room + 1, gaps);
        }
        let Ok(place) = usize::try_from(seq - self.base) else { return };
        if self.window.len() <= place {
            self.window.resize(place + 1, None);
        }
        self.window[place].get_or_insert(at);
        // In order, nothing waits: the window stays empty.
        while let Some(Some(_)) = self.window.front() {
            self.decide_first(gaps);
        }
    }

    /// Everything earlier than `at` has been read: what is missing before a record that is surely
    /// earlier will not come.
    pub(super) fn settle(&mut self, at: MonoNs, gaps: &mut Gaps) {
        let sure = |time: &Option<MonoNs>| time.is_some_and(|time| time.after(DISORDER) <= at);
        while self.window.iter().any(sure) {
            self.decide_first(gaps);
        }
    }

    /// Decides `count` numbers, without walking over those of which nothing has arrived.
    fn advance(&mut self, count: u64, gaps: &mut Gaps) {
        let mut left = count;
        while left > 0 && !self.window.is_empty() {
            self.decide_first(gaps);
            left -= 1;
        }
        self.base = self.base.saturating_add(left);
        self.missing = self.missing.saturating_add(left);
    }

    fn decide_first(&mut self, gaps: &mut Gaps) {
        let Some(first) = self.window.pop_front() else { return };
        self.base = self.base.saturating_add(1);
        match first {
            None => self.missing = self.missing.saturating_add(1),
            Some(at) => {
                self.close(at, gaps);
                self.before = self.before.max(at);
            }
        }
    }

    fn close(&mut self, at: MonoNs, gaps: &mut Gaps) {
        let missing = std::mem::take(&mut self.missing);
        if missing > 0 {
            self.lost = self.lost.saturating_add(missing);
            gaps.add(Gap { from: self.before.min(at), to: at.max(self.before), lost: missing });
        }
    }
}
