//! How threads use the sockets that carry checks, and how full these are, over time.
//!
//! Single calls are not kept. Those of a millisecond are gathered, and those of longer stretches
//! where more time has to be remembered, so that memory is bounded and nothing is forgotten while a
//! check is open. In steady state a push allocates nothing.

use super::symbol::Fast;
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use std::collections::{HashMap, VecDeque};

/// Calls this close together are gathered.
const WIDTH: DurNs = DurNs::from_millis(1);
/// Most slices kept of one thread or socket, about 140 bytes each.
const MAX_SLICES: usize = 256;
/// Most threads and sockets looked at.
const MAX_LOGS: usize = 1_024;
/// A slice that reaches out of a stretch may be this part of it at most; a coarser one tells nothing.
const LEAST_SLICES: u64 = 8;

/// Who or what is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum User {
    Thread(TaskId),
    /// By its cookie.
    Socket(u64),
}

/// Calls of one kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) count: u64,
    first: MonoNs,
    last: MonoNs,
    /// Longest time between two of them.
    pause: DurNs,
}

impl Calls {
    const fn one(at: MonoNs) -> Self {
        Self { count: 1, first: at, last: at, pause: DurNs::ZERO }
    }

    /// These, then `later` ones.
    fn then(self, later: Self) -> Self {
        match (self.count, later.count) {
            (0, _) => later,
            (_, 0) => self,
            _ => Self {
                count: self.count + later.count,
                first: self.first,
                last: later.last,
                pause: self.pause.max(later.pause).max(later.first.since(self.last)),
            },
        }
    }

    /// Longest time without one, between `from` and `to`.
    pub(super) fn longest_pause(&self, from: MonoNs, to: MonoNs) -> DurNs {
        if self.count == 0 {
            return to.since(from);
        }
        self.pause.max(self.first.since(from)).max(to.since(self.last))
    }
}

/// Bytes of receive memory charged to a socket as data came to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) first: u32,
    pub(super) peak: u32,
    pub(super) last: u32,
}

/// What happened in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    from: MonoNs,
    to: MonoNs,
    /// Data taken from sockets that carry checks.
    pub(super) receives: Calls,
    /// Data taken from any socket.
    pub(super) takes: Calls,
    /// Data given to any socket.
    pub(super) sends: Calls,
    /// Of a socket to which data came.
    pub(super) backlog: Option<Backlog>,
}

impl Slice {
    const fn at(at: MonoNs) -> Self {
        let none = Calls { count: 0, first: at, last: at, pause: DurNs::ZERO };
        Self { from: at, to: at, receives: none, takes: none, sends: none, backlog: None }
    }

    fn then(self, later: &Self) -> Self {
        let backlog = match (self.backlog, later.backlog) {
            (Some(one), Some(two)) => Some(Backlog { first: one.first, peak: one.peak.max(two.peak), last: two.last }),
            (one, two) => one.or(two),
        };
        Self {
            from: self.from,
            to: later.to,
            receives: self.receives.then(later.receives),
            takes: self.takes.then(later.takes),
            sends: self.sends.then(later.sends),
            backlog,
        }
    }
}

/// What is known of one thread or socket.
#[derive(Debug, Default)]
struct Log {
    slices: VecDeque<Slice>,
    /// How many times [`WIDTH`] a new slice may be long, as a power of two.
    coarse: u32,
    /// It has sent before.
    sends: bool,
}

impl Log {
    fn add(&mut self, slice: &Slice) {
        let width = WIDTH.0 << self.coarse;
        if let Some(last) = self.slices.back_mut()
            && slice.to.since(last.from).0 < width
        {
            *last = last.then(slice);
            return;
        }
        if self.slices.len() >= MAX_SLICES {
            self.coarsen();
        }
        self.slices.push_back(*slice);
    }

    /// Makes one of every two.
    fn coarsen(&mut self) {
        for pair in 0..self.slices.len() / 2 {
            if let (Some(one), Some(two)) = (self.slices.get(pair * 2), self.slices.get(pair * 2 + 1)) {
                self.slices[pair] = one.then(two);
            }
        }
        self.slices.truncate(self.slices.len() / 2);
        self.coarse = (self.coarse + 1).min(32);
    }

    fn trim(&mut self, before: MonoNs) {
        let old = self.slices.partition_point(|slice| slice.to < before);
        self.slices.drain(..old);
        if self.slices.len() < MAX_SLICES / 4 {
            self.coarse = self.coarse.saturating_sub(1);
        }
    }

    /// What lies between `from` and `to`; `None` where that cannot be told from what lies beside it.
    fn over(&self, from: MonoNs, to: MonoNs) -> Option<Slice> {
        let mut whole = Slice::at(from);
        for slice in self.slices.iter().filter(|slice| from <= slice.to && slice.from <= to) {
            if from <= slice.from && slice.to <= to {
                whole = whole.then(slice);
            } else if slice.to.since(slice.from).0 > to.since(from).0 / LEAST_SLICES {
                return None;
            }
        }
        Some(whole)
    }
}

/// Calls and backlogs of all threads and sockets that have to do with checks.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    logs: HashMap<User, Log, Fast>,
}

impl Traffic {
    /// A thread took data from a socket that carries checks.
    pub(super) fn received(&mut self, task: TaskId, at: MonoNs) {
        if let Some(log) = self.log(User::Thread(task)) {
            log.add(&Slice { receives: Calls::one(at), takes: Calls::one(at), ..Slice::at(at) });
        }
    }

    /// A thread took data from another socket.
    pub(super) fn took(&mut self, task: TaskId, at: MonoNs) {
        if let Some(log) = self.log(User::Thread(task)) {
            log.add(&Slice { takes: Calls::one(at), ..Slice::at(at) });
        }
    }

    /// A thread gave data to a socket.
    pub(super) fn sent(&mut self, task: TaskId, at: MonoNs) {
        if let Some(log) = self.log(User::Thread(task)) {
            log.sends = true;
            log.add(&Slice { sends: Calls::one(at), ..Slice::at(at) });
        }
    }

    /// Data came to a socket, which now holds so many bytes.
    pub(super) fn queued(&mut self, socket: u64, at: MonoNs, bytes: u32) {
        if let Some(log) = self.log(User::Socket(socket)) {
            let backlog = Some(Backlog { first: bytes, peak: bytes, last: bytes });
            log.add(&Slice { backlog, ..Slice::at(at) });
        }
    }

    fn log(&mut self, user: User) -> Option<&mut Log> {
        let full = self.logs.len() >= MAX_LOGS && !self.logs.contains_key(&user);
        if full { None } else { Some(self.logs.entry(user).or_default()) }
    }

    /// Forgets what happened before `before`, and of too many who did nothing since.
    pub(super) fn trim(&mut self, before: MonoNs) {
        self.logs.values_mut().for_each(|log| log.trim(before));
        if self.logs.len() > MAX_LOGS / 2 {
            self.logs.retain(|_, log| !log.slices.is_empty());
        }
    }

    /// What a thread did, or how full a socket was, between `from` and `to`; `None` if unknown.
    pub(super) fn over(&self, user: User, from: MonoNs, to: MonoNs) -> Option<Slice> {
        self.logs.get(&user)?.over(from, to)
    }

    /// Whether a thread has ever sent.
    pub(super) fn sends(&self, task: TaskId) -> bool {
        self.logs.get(&User::Thread(task)).is_some_and(|log| log.sends)
    }

    /// Whether another thread of the same process sent between `from` and `to`, or may have.
    pub(super) fn others_send(&self, task: TaskId, from: MonoNs, to: MonoNs) -> bool {
        let others = self.logs.iter().filter(|(user, _)| match user {
            User::Thread(other) => other.tgid == task.tgid && *other != task,
            User::Socket(_) => false,
        });
        self.logs.len() >= MAX_LOGS
            || others.into_iter().any(|(_, log)| log.over(from, to).is_none_or(|slice| slice.sends.count > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::{DurNs, MAX_LOGS, MAX_SLICES, MonoNs, TaskId, Traffic, User};

    const THREAD: TaskId = TaskId { tgid: 1, tid: 2 };

    const fn ms(ms: u64) -> MonoNs {
        MonoNs(ms * 1_000_000)
    }

    /// A receive every 100 µs, and a send at each of `sends`, milliseconds.
    fn busy(until_ms: u64, sends: &[u64]) -> Traffic {
        let mut traffic = Traffic::default();
        for step in 0..until_ms * 10 {
            traffic.received(THREAD, MonoNs(step * 100_000));
            if step % 10 == 0 && sends.contains(&(step / 10)) {
                traffic.sent(THREAD, MonoNs(step * 100_000 + 1));
            }
        }
        traffic
    }

    #[test]
    fn calls_and_the_longest_time_without_one_are_told() {
        let traffic = busy(100, &[10, 70]);
        let slice = traffic.over(User::Thread(THREAD), ms(0), ms(100)).unwrap();
        assert_eq!((slice.receives.count, slice.sends.count), (1_000, 2));
        assert_eq!(slice.sends.longest_pause(ms(0), ms(100)), DurNs::from_millis(60));
        assert!(slice.receives.longest_pause(ms(0), ms(100)) < DurNs::from_millis(1));
    }

    #[test]
    fn a_long_time_is_remembered_in_little_room_and_short_ones_in_it_are_not_made_up() {
        let traffic = busy(60_000, &[59_000]);
        assert!(traffic.logs[&User::Thread(THREAD)].slices.len() <= MAX_SLICES);
        let whole = traffic.over(User::Thread(THREAD), ms(0), ms(60_000)).unwrap();
        assert_eq!((whole.receives.count, whole.sends.count), (600_000, 1));
        assert!(whole.sends.longest_pause(ms(0), ms(60_000)) >= DurNs::from_millis(58_999));
        assert_eq!(traffic.over(User::Thread(THREAD), ms(30_000), ms(30_020)), None);
    }

    #[test]
    fn what_is_forgotten_makes_room_for_detail() {
        let mut traffic = busy(60_000, &[]);
        (0..10).for_each(|_| traffic.trim(ms(60_001)));
        (0..200).for_each(|step| traffic.received(THREAD, ms(61_000 + step)));
        let slice = traffic.over(User::Thread(THREAD), ms(61_050), ms(61_070)).unwrap();
        assert!((18..=21).contains(&slice.receives.count), "{slice:?}");
    }

    #[test]
    fn a_backlog_is_told_from_its_beginning_to_its_peak_and_end() {
        let mut traffic = Traffic::default();
        for (at, bytes) in [(0, 700), (40, 9_000), (90, 300)] {
            traffic.queued(7, ms(at), bytes);
        }
        let backlog = traffic.over(User::Socket(7), ms(0), ms(100)).unwrap().backlog.unwrap();
        assert_eq!((backlog.first, backlog.peak, backlog.last), (700, 9_000, 300));
    }

    #[test]
    fn many_threads_cannot_grow_it_without_bound() {
        let mut traffic = Traffic::default();
        for tid in 1..=u32::try_from(MAX_LOGS).unwrap() + 10 {
            traffic.received(TaskId { tgid: 1, tid }, ms(1));
        }
        assert_eq!(traffic.logs.len(), MAX_LOGS);
        traffic.trim(ms(2));
        assert!(traffic.logs.is_empty());
    }
}
