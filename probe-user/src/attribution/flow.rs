//! Drops of packets that no check was joined to: the rest of a request, a question to another
//! service, its answer.

use crate::clock::MonoNs;
use crate::event::{Event, InterfaceId};
use probe_wire::{DROP_OF_PORT_LAST, DROP_STRETCH_NS, DROP_UNPARSED, DropBody};
use std::collections::VecDeque;

/// Most drops kept; the oldest go.
const MAX_DROPS: usize = 8_192;

/// Packets from one end to another that carry data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Flow {
    /// Address of the far end; IPv4 as `::ffff:a.b.c.d`.
    pub(super) peer: [u8; 16],
    pub(super) peer_port: u16,
    pub(super) local_port: u16,
    /// IP protocol number.
    pub(super) protocol: u8,
}

/// A drop of a packet with data.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowDrop {
    pub(super) at: MonoNs,
    pub(super) reason: u32,
    pub(super) location: u64,
    pub(super) interface: InterfaceId,
    /// It came from the far end.
    pub(super) incoming: bool,
    flow: Flow,
}

/// The latest drops, in the order of their time.
#[derive(Debug, Default)]
pub(super) struct FlowDrops {
    drops: VecDeque<FlowDrop>,
    /// Stretches of time in which more were dropped than were told.
    untold: VecDeque<(MonoNs, MonoNs)>,
}

impl FlowDrops {
    /// Takes in a drop, if it is one of a packet that is known and carries data.
    pub(super) fn add(&mut self, event: &Event, body: &DropBody) {
        if body.signature_known == DROP_OF_PORT_LAST {
            let end = (event.at.0 / DROP_STRETCH_NS + 1) * DROP_STRETCH_NS;
            self.untold.push_back((event.at, MonoNs(end)));
        }
        let seen = &body.sighting;
        if body.signature_known == DROP_UNPARSED || seen.payload_len == 0 {
            return;
        }
        let incoming = Flow {
            peer: seen.source,
            peer_port: seen.source_port,
            local_port: seen.destination_port,
            protocol: seen.protocol,
        };
        let outgoing = Flow {
            peer: seen.destination,
            peer_port: seen.destination_port,
            local_port: seen.source_port,
            protocol: seen.protocol,
        };
        let interface = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        for (flow, incoming) in [(incoming, true), (outgoing, false)] {
            let DropBody { reason, location, .. } = *body;
            self.drops.push_back(FlowDrop { at: event.at, reason, location, interface, incoming, flow });
        }
        while self.drops.len() > MAX_DROPS {
            self.drops.pop_front();
        }
    }

    /// Forgets what happened before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        let old = self.drops.partition_point(|drop| drop.at < before);
        self.drops.drain(..old);
        self.untold.retain(|(_, to)| *to >= before);
    }

    /// Whether there may have been drops between `from` and `to` that were not told.
    pub(super) fn may_lack(&self, from: MonoNs, to: MonoNs) -> bool {
        self.untold.iter().any(|(begin, end)| *begin < to && from < *end)
    }

    /// The first drop of a flow in either direction between `from` and `to`.
    pub(super) fn first(&self, flow: &Flow, from: MonoNs, to: MonoNs) -> Option<&FlowDrop> {
        let begin = self.drops.partition_point(|drop| drop.at < from);
        self.drops.range(begin..).take_while(|drop| drop.at < to).find(|drop| drop.flow == *flow)
    }
}
