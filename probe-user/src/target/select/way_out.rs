//! What lies between a host's physical NICs and the world: devices below a NIC are passed by what
//! passes the NIC, so none of them leads to a guest.

use crate::event::InterfaceId;
use crate::target::discovery::Discovery;
use crate::target::model::Interface;
use std::collections::BTreeSet;

/// Kinds whose ports all lead where they lead.
const AGGREGATES: [&str; 2] = ["bond", "team"];

/// The devices below a host's physical NICs.
#[derive(Debug, Default)]
pub(super) struct WayOut {
    below: BTreeSet<InterfaceId>,
    /// Ports of bridges that lead to another namespace, of which one at least leads outside: which, is
    /// not known.
    doubtful: BTreeSet<InterfaceId>,
}

impl WayOut {
    /// What lies below these NICs, and below that.
    pub(super) fn below(discovery: &Discovery, physical: impl Iterator<Item = InterfaceId>) -> Self {
        let mut way = Self::default();
        let mut upper: Vec<InterfaceId> = physical.collect();
        while let Some(interface) = upper.pop().and_then(|id| discovery.interface(id)) {
            for lower in way.next(discovery, interface) {
                if way.below.insert(lower) {
                    upper.push(lower);
                }
            }
        }
        way
    }

    /// Whether an interface is passed by what leaves the host.
    pub(super) fn holds(&self, interface: &Interface) -> bool {
        self.below.contains(&interface.id)
    }

    /// Whether it may be.
    pub(super) fn may_hold(&self, interface: &Interface) -> bool {
        self.doubtful.contains(&interface.id)
    }

    fn next(&mut self, discovery: &Discovery, upper: &Interface) -> Vec<InterfaceId> {
        match upper.kind.as_str() {
            kind if AGGREGATES.contains(&kind) => ports(discovery, upper).map(|port| port.id).collect(),
            "bridge" => self.uplinks(discovery, upper),
            // The other end of a veth is no device below it.
            "veth" => Vec::new(),
            _ => {
                let lower = upper.peer.filter(|peer| peer.netns == Some(upper.id.netns));
                lower.map(|peer| InterfaceId { netns: upper.id.netns, ifindex: peer.ifindex }).into_iter().collect()
            }
        }
    }

    /// The ports of a bridge that lead outside: all that can lead nowhere else; where there are none,
    /// the veth that leads to the world rather than to a guest.
    fn uplinks(&mut self, discovery: &Discovery, bridge: &Interface) -> Vec<InterfaceId> {
        let (to_namespaces, others): (Vec<_>, Vec<_>) =
            ports(discovery, bridge).filter(|port| port.kind != "tap").partition(|port| leads_away(port));
        if !others.is_empty() {
            return others.into_iter().map(|port| port.id).collect();
        }
        let candidates: Vec<_> = to_namespaces.iter().filter(|port| !leads_to_guest(discovery, port)).collect();
        match (candidates.as_slice(), to_namespaces.as_slice()) {
            ([only], _) => vec![only.id],
            ([], [only]) => vec![only.id],
            _ => {
                self.doubtful.extend(to_namespaces.iter().map(|port| port.id));
                Vec::new()
            }
        }
    }
}

fn ports<'a>(discovery: &'a Discovery, upper: &Interface) -> impl Iterator<Item = &'a Interface> {
    let InterfaceId { netns, ifindex } = upper.id;
    discovery.interfaces_in(netns).filter(move |port| port.master == Some(ifindex))
}

/// Whether it is a part of a bond or team, and leads where that leads.
pub(super) fn is_aggregated(discovery: &Discovery, interface: &Interface) -> bool {
    let mut others = discovery.interfaces_in(interface.id.netns);
    let master = others.find(|other| Some(other.id.ifindex) == interface.master);
    master.is_some_and(|master| AGGREGATES.contains(&master.kind.as_str()))
}

/// It is a veth whose other end is in another namespace, or in one that could not be reached.
pub(super) fn leads_away(interface: &Interface) -> bool {
    interface.kind == "veth" && interface.peer.is_some_and(|peer| peer.netns != Some(interface.id.netns))
}

/// Whether what is at the other end of a veth is behind this host rather than before it: it reaches the
/// world outside through this host, or is a container.
pub(super) fn leads_to_guest(discovery: &Discovery, interface: &Interface) -> bool {
    let Some(place) = interface.peer.and_then(|peer| discovery.namespace(peer.netns?)) else { return false };
    let host = Some(interface.id.netns);
    let depends = || {
        discovery
            .interfaces_in(place.cookie)
            .any(|inner| inner.outward && inner.peer.is_some_and(|peer| peer.netns == host))
    };
    let contained = || discovery.containers.iter().any(|one| one.netns == Some(place.cookie));
    !place.home && (depends() || contained())
}
