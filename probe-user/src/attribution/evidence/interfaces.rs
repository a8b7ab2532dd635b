//! Interfaces: who takes packets in there, and who takes them out.

use super::{Evidence, receives_packets, text};
use crate::attribution::symbol::Fast;
use crate::attribution::tap::Tap;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Event, InterfaceFact, InterfaceId, TaskId};
use probe_wire::{BackendRxBody, NeighbourBody, PacketBody, Sighting, XmitBody};
use std::hash::BuildHasher;

/// Most interfaces that have gone of which something is kept.
const MAX_DEPARTED: usize = 1_024;
/// Most neighbours of an interface of which it is kept when they became known.
const MAX_NEIGHBOURS: usize = 256;

impl Evidence {
    /// Who takes packets in there, and since when, if it is softirq. What comes in through a macvtap is in
    /// its ring with that.
    pub(super) fn ingress(&mut self, event: &Event, body: &PacketBody) {
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        if let Some(macvtap) = self.macvtap(id) {
            let queue = if macvtap.rx_queues == 1 { 0 } else { flow(&body.sighting) };
            self.taps.hand(id, event.at, body.skb, queue);
        }
        let by_thread = event.softirq == 0 && !self.blind.softirqs;
        match self.receivers.get_mut(&id) {
            Some(receiver) => *receiver = if by_thread { event.task } else { TaskId::default() },
            None if by_thread && self.interfaces.contains_key(&id) => drop(self.receivers.insert(id, event.task)),
            None => {}
        }
        if let (Some(vector), 1..) = (event.softirq.checked_sub(1), body.softirq_ns) {
            self.softirqs.see(event.cpu, event.at.before(DurNs(body.softirq_ns.into())), event.at, vector);
        }
    }

    fn macvtap(&self, id: InterfaceId) -> Option<&InterfaceFact> {
        self.interfaces.get(&id).filter(|fact| fact.is_macvtap())
    }

    /// A packet was handed to a driver: to that of a tap, it is in its ring with that. What leaves through
    /// a macvtap is its VM's.
    pub(super) fn handed(&mut self, event: &Event, body: &XmitBody) {
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        if self.macvtap(id).is_none() {
            self.taps.hand(id, event.at, body.skb, body.queue);
        }
    }

    /// A softirq takes nothing out of a ring.
    pub(super) fn taken(&mut self, event: &Event, body: &BackendRxBody) {
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        if event.softirq == 0 && self.interfaces.contains_key(&id) {
            self.taps.take(id, event.at, body.skb, event.task);
        }
    }

    pub(super) fn neighbour(&mut self, at: MonoNs, body: &NeighbourBody) {
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        if self.interfaces.contains_key(&id) {
            let known = self.neighbours.entry(id).or_default();
            if known.len() >= MAX_NEIGHBOURS {
                known.pop_front();
            }
            known.push_back(at);
        }
    }

    /// The thread of the kernel's that takes packets in at an interface, if no softirq does.
    pub(in crate::attribution) fn receiver(&self, id: InterfaceId, at: MonoNs) -> Option<TaskId> {
        let task = self.receivers.get(&id).copied()?;
        self.life_at(task, at).is_some_and(|life| receives_packets(&text(&life.comm))).then_some(task)
    }

    /// Whether a neighbour on `id` became known, for which packets waited, between these times.
    pub(in crate::attribution) fn neighbour_known(&self, id: InterfaceId, from: MonoNs, to: MonoNs) -> bool {
        self.neighbours.get(&id).is_some_and(|known| known.iter().rev().any(|at| (from..=to).contains(at)))
    }

    /// The name of an interface, or its number.
    pub(in crate::attribution) fn interface(&self, id: InterfaceId) -> String {
        self.interfaces.get(&id).map_or_else(|| format!("interface {}", id.ifindex), |fact| fact.name.clone())
    }

    /// What is known of an interface.
    pub(in crate::attribution) fn interface_fact(&self, id: InterfaceId) -> Option<&InterfaceFact> {
        self.interfaces.get(&id)
    }

    /// Who takes packets out of a tap's ring.
    pub(in crate::attribution) fn tap(&self, id: InterfaceId) -> Option<&Tap> {
        self.taps.get(id)
    }

    /// The tap of the VM that a thread belongs to, the first of several.
    pub(in crate::attribution) fn vm_of(&self, task: TaskId) -> Option<InterfaceId> {
        self.taps.held_by(task.tgid).min()
    }

    /// The label of the VM or tap that a process holds, if it holds one.
    pub(in crate::attribution) fn machine(&self, tgid: u32) -> Option<&str> {
        let facts = self.taps.held_by(tgid).filter_map(|id| self.interfaces.get(&id));
        facts.map(|fact| fact.label.as_str()).min()
    }

    /// What is known of an interface that has gone is kept for what is still to be told.
    pub(super) fn gone(&mut self, at: MonoNs, interface: InterfaceId) {
        self.departed.leave(interface, at);
        if let Some(old) = self.departed.beyond(MAX_DEPARTED) {
            self.interfaces.remove(&old);
            self.taps.forget(old);
            self.receivers.remove(&old);
            self.neighbours.remove(&old);
        }
    }
}

/// A number of a packet's flow. By the flow, a macvtap chooses one of several rings.
/// <https://github.com/torvalds/linux/blob/v6.12/drivers/net/tap.c> (`tap_get_queue`)
#[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
fn flow(sighting: &Sighting) -> u32 {
    let Sighting { source, destination, source_port, destination_port, protocol, .. } = sighting;
    let number = Fast::default().hash_one((source, destination, source_port, destination_port, protocol));
    (number ^ number >> 32) as u32
}
