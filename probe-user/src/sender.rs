//! Who sends through the transmit queues of watched interfaces.
//!
//! What a queue carried over a while comes in ([`QueueFact`]); who filled it while checks waited goes
//! out ([`QueueShare`], by [`QueueTable`]). Pure; who reads the kernel's counts stands at the edge.

mod advice;
mod table;

pub use advice::Advice;
pub use table::{QueueShare, QueueTable, SenderShare};

use crate::attribution::percent;
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
    /// Half of the interval around them in which the true bytes are in 95 of 100 cases; 0 where every
    /// packet was counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub error_bytes: u64,
}

impl Sent {
    /// Both sums; the errors are of independent draws.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let [one, two] = [self, other].map(|sent| u128::from(sent.error_bytes).pow(2));
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
            error_bytes: u64::try_from(one.saturating_add(two).isqrt()).unwrap_or(u64::MAX),
        }
    }

    /// Its part of the bytes of `all`, percent, with half of the interval in which that is where it is an
    /// estimate: "42 %" or "42 ± 2 %".
    pub(crate) fn share_of(self, all: Self) -> String {
        let part = percent(self.bytes, all.bytes);
        match self.share_error(all) {
            0 => format!("{part} %"),
            error => format!("{part} ± {} %", percent(error, all.bytes).max(1)),
        }
    }

    /// Whether it is surely more than half of the bytes of `all`.
    pub(crate) fn is_most_of(self, all: Self) -> bool {
        let least = self.bytes.saturating_sub(self.share_error(all));
        least > all.bytes / 2
    }

    /// Half of the interval around its part of `all` in which the true part is, in bytes of `all`; at
    /// most, since what errs in both is taken to err in opposite ways.
    pub(crate) fn share_error(self, all: Self) -> u64 {
        let of_all = u128::from(all.error_bytes) * u128::from(self.bytes) / u128::from(all.bytes.max(1));
        self.error_bytes.saturating_add(u64::try_from(of_all).unwrap_or(u64::MAX)).min(all.bytes)
    }

    const fn is_nothing(&self) -> bool {
        self.packets == 0
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "likewise")]
const fn is_false(flag: &bool) -> bool {
    !*flag
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
    /// All of its flows; where they are sampled, those that were seen.
    pub flow_count: u64,
    /// Of its packets only some were looked at for their flow.
    #[serde(default, skip_serializing_if = "is_false")]
    pub flows_sampled: bool,
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

impl Who {
    /// The thread, if it is one.
    pub(crate) const fn task(&self) -> Option<TaskId> {
        match self {
            Self::Task { id, .. } => Some(*id),
            Self::Interface { .. } | Self::Unknown => None,
        }
    }
}

/// One flow of a sender.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
        let sent = Sent { packets: 3, bytes: 300, error_bytes: 7 };
        let (source, destination) = (mapped(1), Ipv6Addr::LOCALHOST.octets());
        let flow = FlowFact { source, destination, source_port: 7, destination_port: 0, protocol: 17, sent };
        let sender = SenderFact {
            who: Who::Interface { ifindex: 3 },
            sent,
            flows: vec![flow],
            flow_count: 9,
            flows_sampled: true,
        };
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

    #[test]
    fn what_was_counted_has_no_error_and_estimates_say_theirs() {
        let sent = |bytes, error_bytes| Sent { packets: 1, bytes, error_bytes };
        let sent_of_all = sent(1_000, 0);
        assert_eq!(sent(1, 3).plus(sent(2, 4)), Sent { packets: 2, bytes: 3, error_bytes: 5 });
        assert_eq!(sent(420, 0).share_of(sent(1_000, 0)), "42 %");
        assert_eq!(sent(420, 20).share_of(sent(1_000, 0)), "42 ± 2 %");
        assert_eq!(sent(420, 1).share_of(sent(1_000, 0)), "42 ± 1 %");
        assert_eq!(sent(500, 20).share_error(sent(1_000, 60)), 50);
        let most = [sent(510, 0), sent(500, 0), sent(510, 20)].map(|sent| sent.is_most_of(sent_of_all));
        assert_eq!(most, [true, false, false]);
        assert_eq!((sent(0, 0).share_of(sent(0, 0)), sent(5, 900).share_error(sent(10, 900))), ("0 %".to_owned(), 10));
    }
}
