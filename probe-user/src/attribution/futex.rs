//! Futexes that watched threads wait for, and who woke those that did.
//!
//! Whoever frees a lock wakes one of those that wait for it. Another may take it meanwhile, whose own
//! wait was for the same futex and ended by a timeout just then: nobody woke that one.

use super::evidence::Evidence;
use super::storage::{forget, keep};
use super::symbol::Fast;
use super::thread::Wake;
use crate::clock::MonoNs;
use crate::event::TaskId;
use std::collections::{HashMap, VecDeque};

/// Most futexes whose wake-ups are kept, and most of one.
const MAX_FUTEXES: usize = 8_192;
const MAX_PER_FUTEX: usize = 1_024;

/// A futex of a process. The two words of a condition variable of glibc's, for which threads wait in
/// turn, count as one: they fill an aligned word of eight bytes.
/// <https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/nptl/bits/thread-shared-types.h;hb=glibc-2.36>
/// (`__pthread_cond_s.__g_signals`)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FutexWord(u64);

impl FutexWord {
    /// As a record tells it.
    pub(super) const fn of_word(word: u64) -> Self {
        Self(word)
    }
}

/// A thread that waited for a futex was woken by another.
#[derive(Debug, Clone, Copy)]
struct Woken {
    who: TaskId,
    wake: Wake,
}

/// Wake-ups by the process and the futex.
#[derive(Debug, Default)]
pub(super) struct Futexes {
    wakes: HashMap<(u32, FutexWord), VecDeque<Woken>, Fast>,
    told: bool,
}

impl Futexes {
    /// Of one at least it was told.
    pub(super) const fn learn(&mut self) {
        self.told = true;
    }

    /// Whether this kernel tells which futex a thread waits for.
    pub(super) const fn told(&self) -> bool {
        self.told
    }

    pub(super) fn wakes(&mut self, who: TaskId, word: FutexWord, wake: Wake) {
        if wake.by_thread() {
            keep(&mut self.wakes, (who.tgid, word), Woken { who, wake }, (MAX_FUTEXES, MAX_PER_FUTEX));
        }
    }

    /// Forgets what happened before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        forget(&mut self.wakes, |woken| woken.wake.at < before);
    }

    /// Whether `task` woke one that waited for a futex of its process, from `from` to `to`.
    pub(super) fn freed_by(&self, task: TaskId, word: FutexWord, from: MonoNs, to: MonoNs) -> bool {
        let within = |woken: &&Woken| from <= woken.wake.at && woken.wake.at <= to;
        let all = self.wakes.get(&(task.tgid, word)).into_iter().flatten();
        all.filter(within).any(|woken| woken.wake.waker.task == task)
    }

    fn last(&self, process: u32, word: FutexWord, from: MonoNs, to: MonoNs) -> Option<&Woken> {
        let all = self.wakes.get(&(process, word))?;
        let last = all.range(..all.partition_point(|woken| woken.wake.at <= to)).next_back()?;
        (last.wake.at >= from).then_some(last)
    }
}

impl Evidence {
    /// The wake-up by which a futex became free that `taker` had at `to`, and for which it had waited
    /// since `from`: the last of another that waited for it, which did not run before `to`.
    pub(super) fn freed(&self, taker: TaskId, word: FutexWord, from: MonoNs, to: MonoNs) -> Option<&Wake> {
        let Woken { who, wake } = self.futexes().last(taker.tgid, word, from, to)?;
        let ran = self.life_at(*who, to).is_none_or(|life| life.ran_within(wake.at, to));
        (!ran && *who != taker && wake.waker.task != taker).then_some(wake)
    }
}
