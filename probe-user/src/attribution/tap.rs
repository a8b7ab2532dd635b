//! Taps: which processes hold one, which threads take packets out of its queues, and whose VM a
//! process is.

use crate::clock::{DurNs, MonoNs};
use crate::event::{InterfaceId, TaskId};
use std::collections::{HashMap, VecDeque};

/// Most packets of a tap of which it is kept by which queue they went.
const MAX_HANDED: usize = 256;
/// Most queues of a tap of which it is kept who empties them: as many as a tap can have. Those of a macvtap
/// are known by the flows of their packets, of which there may be more.
const MAX_TAKERS: usize = 256;
/// Longest time from a packet's leaving by TCX egress to its hand-over to the tap: what a queueing
/// discipline holds longer has another hand-over.
const SOON: DurNs = DurNs(1_000_000);

/// A packet that was handed to a tap.
#[derive(Debug, Clone, Copy)]
struct Handed {
    at: MonoNs,
    skb: u64,
    queue: u32,
    taken: Option<MonoNs>,
}

/// Who takes packets out of a tap's rings.
#[derive(Debug, Default)]
pub(super) struct Tap {
    /// Processes that hold the tap.
    pub(super) holders: Vec<u32>,
    /// The thread that took the last packet out, by queue.
    takers: Vec<(u32, TaskId)>,
    /// Packets that were handed to it, the oldest first.
    handed: VecDeque<Handed>,
}

impl Tap {
    /// The thread that took the last packet out of the queue of the packet that came to the tap at
    /// `at`; of another queue's, nothing is concluded.
    pub(super) fn taker(&self, at: MonoNs) -> Option<TaskId> {
        let after = self.handed.partition_point(|handed| handed.at < at);
        let handed = self.handed.get(after).filter(|handed| handed.at.since(at) <= SOON);
        let of = |queue| self.takers.iter().find(|(known, _)| *known == queue).map(|(_, taker)| *taker);
        match (handed, self.takers.as_slice()) {
            (Some(handed), _) => of(handed.queue),
            (None, [(_, only)]) => Some(*only),
            (None, _) => None,
        }
    }

    fn hand(&mut self, at: MonoNs, skb: u64, queue: u32) {
        if self.handed.len() >= MAX_HANDED {
            self.handed.pop_front();
        }
        self.handed.push_back(Handed { at, skb, queue, taken: None });
    }

    /// Whether a packet that was handed to it between `from` and `to` lay there until `to`.
    pub(super) fn left(&self, from: MonoNs, to: MonoNs) -> bool {
        let begin = self.handed.partition_point(|handed| handed.at < from);
        let within = self.handed.range(begin..).take_while(|handed| handed.at < to);
        let lay = |handed: &Handed| to.since(handed.at) >= SOON && handed.taken.is_none_or(|taken| taken >= to);
        within.into_iter().any(lay)
    }

    fn take(&mut self, at: MonoNs, skb: u64, task: TaskId) {
        let handed = self.handed.iter_mut().rev().find(|handed| handed.skb == skb);
        let queue = handed.map_or(0, |handed| {
            handed.taken = Some(at);
            handed.queue
        });
        match self.takers.iter_mut().find(|(known, _)| *known == queue) {
            Some((_, taker)) => *taker = task,
            None => {
                if self.takers.len() >= MAX_TAKERS {
                    self.takers.remove(0);
                }
                self.takers.push((queue, task));
            }
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Taps(HashMap<InterfaceId, Tap>);

impl Taps {
    pub(super) fn get(&self, id: InterfaceId) -> Option<&Tap> {
        self.0.get(&id)
    }

    pub(super) fn forget(&mut self, id: InterfaceId) {
        self.0.remove(&id);
    }

    /// These processes hold it now.
    pub(super) fn hold(&mut self, id: InterfaceId, holders: &[u32]) {
        self.0.entry(id).or_default().holders = holders.to_vec();
    }

    /// A packet was handed to an interface, which is none of these if nobody holds it.
    pub(super) fn hand(&mut self, id: InterfaceId, at: MonoNs, skb: u64, queue: u32) {
        if let Some(tap) = self.0.get_mut(&id) {
            tap.hand(at, skb, queue);
        }
    }

    /// A thread took a packet out.
    pub(super) fn take(&mut self, id: InterfaceId, at: MonoNs, skb: u64, task: TaskId) {
        self.0.entry(id).or_default().take(at, skb, task);
    }

    /// The taps that a process holds.
    pub(super) fn held_by(&self, tgid: u32) -> impl Iterator<Item = InterfaceId> {
        self.0.iter().filter(move |(_, tap)| tap.holders.contains(&tgid)).map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_HANDED, MAX_TAKERS, Taps};
    use crate::attribution::story::{SERVER, TAP, WORKER, at};

    #[test]
    fn each_queue_has_its_own_taker() {
        let mut taps = Taps::default();
        taps.hold(TAP, &[SERVER.0]);
        for (us, skb, queue, who) in [(10, 1, 0, SERVER), (20, 2, 1, WORKER)] {
            taps.hand(TAP, at(us), skb, queue);
            taps.take(TAP, at(us + 2), skb, who.id());
        }
        taps.hand(TAP, at(103), 3, 1);
        taps.hand(TAP, at(5_000), 4, 2);
        let tap = taps.get(TAP).unwrap();
        assert_eq!(tap.taker(at(100)), Some(WORKER.id()));
        assert_eq!(tap.taker(at(4_999)), None, "nobody was seen to empty that queue");
        assert_eq!(tap.taker(at(9_000)), None, "which queue it is in is not known");
        assert!(tap.left(at(100), at(4_000)) && !tap.left(at(0), at(50)) && !tap.left(at(104), at(4_000)));
        assert_eq!(taps.held_by(SERVER.0).collect::<Vec<_>>(), [TAP]);
    }

    #[test]
    fn a_tap_that_hands_over_much_keeps_the_last() {
        let mut taps = Taps::default();
        taps.hold(TAP, &[SERVER.0]);
        for us in 0..1_000 {
            taps.hand(TAP, at(us), us, u32::try_from(us).unwrap());
            taps.take(TAP, at(us), us, SERVER.id());
        }
        let tap = taps.get(TAP).unwrap();
        assert_eq!((tap.handed.len(), tap.takers.len()), (MAX_HANDED, MAX_TAKERS));
    }
}
