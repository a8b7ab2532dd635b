//! Checks' packets in queueing disciplines, in the order in which they came.
//!
//! That a packet waits is concluded from what was not seen: that it left. A kernel can hand a packet
//! on where no program runs, and then others tell: one of the same flow that came later has left, or
//! the discipline is empty.

use super::check::Check;
use super::correlator::Correlator;
use super::socket::CheckRef;
use super::{Outcome, Perspective};
use crate::event::InterfaceId;
use probe_wire::{QdiscBody, Sighting};
use std::collections::{HashMap, VecDeque};

/// Disciplines that are remembered; of others nothing is concluded.
const MOST: usize = 1_024;
/// Checks remembered of each; the oldest make room.
const MOST_WAITING: usize = 4_096;
/// Checks that are looked at when one leaves.
const LOOK: usize = 64;

/// Why nothing is told of a reply's way to the driver.
pub(super) const HAND_OVER_UNSEEN: &str = "the reply reached the NIC, but its hand-over to the driver was not seen";

/// An interface's discipline, by its handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Discipline {
    interface: InterfaceId,
    handle: u32,
}

/// Which checks have packets in which discipline.
#[derive(Debug, Default)]
pub(super) struct Disciplines {
    waiting: HashMap<Discipline, VecDeque<CheckRef>>,
    /// Buffer of those that cannot be there any more.
    gone: Vec<CheckRef>,
}

impl Disciplines {
    fn of(&mut self, discipline: Discipline) -> Option<&mut VecDeque<CheckRef>> {
        if self.waiting.len() >= MOST && !self.waiting.contains_key(&discipline) {
            self.waiting.retain(|_, waiting| !waiting.is_empty());
        }
        let room = self.waiting.len() < MOST || self.waiting.contains_key(&discipline);
        room.then(|| self.waiting.entry(discipline).or_default())
    }
}

impl Correlator {
    /// The discipline that a record tells of, if its handle tells it from all others: those that the
    /// kernel itself gives to the queues of a device have none.
    fn discipline(&self, body: &QdiscBody) -> Option<Discipline> {
        let interface = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        let alone = || self.interface(interface).is_some_and(|known| known.tx_queues == 1);
        (body.handle != 0 || alone()).then_some(Discipline { interface, handle: body.handle })
    }

    /// A check's packet came into a discipline. If it is the only one there, no other is.
    pub(super) fn came_in(&mut self, slot: u32, body: &QdiscBody) {
        let Some(discipline) = self.discipline(body) else { return };
        let check = self.reference(slot);
        let mut gone = std::mem::take(&mut self.disciplines.gone);
        if let Some(waiting) = self.disciplines.of(discipline) {
            if body.queue_len == 1 {
                gone.extend(waiting.drain(..));
            }
            if waiting.len() >= MOST_WAITING {
                waiting.pop_front();
            }
            waiting.push_back(check);
        }
        self.slipped_out(gone);
    }

    /// A check's packet has left a discipline: none of its flow that came before is still there.
    pub(super) fn went_out(&mut self, slot: u32, body: &QdiscBody) {
        let Some(discipline) = self.discipline(body) else { return };
        let check = self.reference(slot);
        let mut gone = std::mem::take(&mut self.disciplines.gone);
        let Some(mut waiting) = self.disciplines.waiting.get_mut(&discipline).map(std::mem::take) else { return };
        if let Some(place) = waiting.iter().take(LOOK).position(|other| *other == check) {
            waiting.remove(place);
            for other in (0..place).rev() {
                let before = waiting[other];
                let stays =
                    self.still_open(before).is_some_and(|open| !self.checks[open].is_of_flow(&self.checks[slot]));
                if !stays {
                    waiting.remove(other);
                    gone.push(before);
                }
            }
        }
        self.disciplines.waiting.insert(discipline, waiting);
        self.slipped_out(gone);
    }

    /// These checks' packets are not where they seemed to be. What was handed over may yet be told of.
    fn slipped_out(&mut self, mut gone: Vec<CheckRef>) {
        for check in gone.drain(..) {
            let Some(slot) = self.still_open(check).filter(|slot| self.checks[*slot].in_qdisc()) else { continue };
            self.checks[slot].overtaken = true;
            if self.checks[slot].perspective == Perspective::Served && self.checks[slot].answered() {
                self.wait_grace(slot);
            }
        }
        self.disciplines.gone = gone;
    }
}

impl Check {
    fn is_of_flow(&self, other: &Self) -> bool {
        let flow = |of: &Sighting| (of.source, of.destination, of.source_port, of.destination_port, of.protocol);
        self.answered() == other.answered() && flow(&self.request) == flow(&other.request)
    }

    /// Its end, when what was to be waited for has not been told of.
    pub(super) fn unless_overtaken(&self) -> Option<Outcome> {
        self.overtaken.then_some(Outcome::Broken(HAND_OVER_UNSEEN))
    }
}
