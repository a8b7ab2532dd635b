//! Who sends through the transmit queues of watched interfaces.
//!
//! What a queue carried over a while comes in ([`QueueFact`]); who filled it while checks waited goes
//! out ([`QueueShare`], by [`QueueTable`]). Pure; who reads the kernel's counts stands at the edge.

mod advice;
mod table;

pub use advice::Advice;
pub use table::{QueueShare, QueueTable, SenderShare};

use crate::clock::MonoNs;
use crate::event::{InterfaceId, TaskId};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr};

/// What one transmit queue handed to its driver over a while. The windows of a queue follow each
/// other without overlap; one in which nothing was sent has no fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueFact {
    /// Interface.
    pub interface: InterfaceId,
    /// Queue, from 0 on.
    pub queue: u32,
    /// Start of the window.
    pub from: MonoNs,
    /// Its end.
    pub to: MonoNs,
    /// CPUs that handed the packets to the driver, and how many each.
    pub cpus: Vec<(u32, u64)>,
    /// Who sent, the one with the most bytes first.
    pub senders: Vec<SenderFact>,
    /// Senders beyond those, together.
    #[serde(default, skip_serializing_if = "Rest::is_none")]
    pub rest: Rest,
    /// Packets of all queues together that found no room to be counted.
    #[serde(default, skip_serializing_if = "Sent::is_nothing")]
    pub uncounted: Sent,
}

/// Packets, and their bytes with link headers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Packets; several segments that the device is to cut apart are one.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Sent {
    /// Both sums.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        let packets = self.packets.saturating_add(other.packets);
        Self { packets, bytes: self.bytes.saturating_add(other.bytes) }
    }

    const fn is_nothing(&self) -> bool {
        self.packets == 0
    }
}

/// Senders that are not told one by one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// How many.
    pub senders: u64,
    /// What they sent.
    pub sent: Sent,
}

impl Rest {
    const fn is_none(&self) -> bool {
        self.senders == 0
    }
}

/// What one sender sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderFact {
    /// Who.
    pub who: Who,
    /// What.
    pub sent: Sent,
    /// Its largest flows.
    pub flows: Vec<FlowFact>,
    /// All of its flows.
    pub flow_count: u64,
}

/// A sender, as far as it is proven.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Who {
    /// A thread of this host, by the socket through which the packets went.
    Task {
        /// Which: the thread that was seen to use the socket first, in the process that used it last.
        id: TaskId,
        /// When it began, nanoseconds of `CLOCK_MONOTONIC`.
        start_time_ns: u64,
        /// Its name.
        comm: String,
        /// Its cgroup, as in [`TaskFact`](crate::event::TaskFact).
        cgroup: String,
        /// Several processes have used the socket.
        shared: bool,
    },
    /// Packets that came into the host through an interface, such as a VM's tap.
    Interface {
        /// Its index in the same namespace.
        ifindex: u32,
    },
    /// The kernel itself, or a socket that nobody was seen to use.
    Unknown,
}

/// One flow of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowFact {
    /// Source address.
    #[serde(with = "plain")]
    pub source: [u8; 16],
    /// Destination address.
    #[serde(with = "plain")]
    pub destination: [u8; 16],
    /// Source port; 0 without one.
    pub source_port: u16,
    /// Destination port; 0 without one.
    pub destination_port: u16,
    /// IP protocol; 0 if it is no IP.
    pub protocol: u8,
    /// What it sent.
    pub sent: Sent,
}

/// Addresses as people write them.
mod plain {
    use super::{IpAddr, Ipv6Addr};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(address: &[u8; 16], to: S) -> Result<S::Ok, S::Error> {
        Ipv6Addr::from(*address).to_canonical().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 16], D::Error> {
        Ok(match IpAddr::deserialize(from)? {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Body, Fact, decode, fact_record};

    #[test]
    fn a_window_survives_the_round_trip_and_shows_addresses_as_people_write_them() {
        let mapped = |last| std::net::Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().octets();
        let sent = Sent { packets: 3, bytes: 300 };
        let (source, destination) = (mapped(1), Ipv6Addr::LOCALHOST.octets());
        let flow = FlowFact { source, destination, source_port: 7, destination_port: 0, protocol: 17, sent };
        let sender = SenderFact { who: Who::Interface { ifindex: 3 }, sent, flows: vec![flow], flow_count: 9 };
        let fact = QueueFact {
            interface: InterfaceId { netns: 1, ifindex: 2 },
            queue: 1,
            from: MonoNs(5),
            to: MonoNs(9),
            cpus: vec![(0, 3)],
            senders: vec![sender],
            rest: Rest { senders: 1, sent },
            uncounted: sent,
        };
        let record = fact_record(MonoNs(9), &Fact::Queue(Box::new(fact.clone()))).unwrap();
        let text = String::from_utf8_lossy(&record).into_owned();
        assert!(text.contains(r#""source":"10.0.0.1","destination":"::1""#), "{text}");
        assert_eq!(decode(&record).unwrap().body, Body::Fact(Box::new(Fact::Queue(Box::new(fact)))));
    }
}
