//! The first look at a packet. It refuses nearly all packets of a host by four or five bytes, with
//! sets that hold for all rules at once: no table is walked, and no length is checked twice.

use crate::Start;
use crate::frame::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use crate::network::{ETHERNET_LEN, is_extension, is_wrapping};
use crate::transport::{PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::tunnel::{TUNNEL_PORTS, is_tunnel};
use probe_wire::Rule;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Reads the first bytes of a packet, where it lies. Every offset is a constant.
pub trait Head {
    /// Whether the first `LEN` bytes are directly readable.
    fn holds<const LEN: usize>(&self) -> bool;

    /// One of the bytes that [`holds`](Self::holds) has granted.
    fn byte(&self, at: u32) -> u8;

    /// Two of them, at an even offset, as they lie in memory.
    fn half(&self, at: u32) -> u16;
}

/// Ports, by the last six bits of each. It can hold a port too many, and then the rules decide.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
struct Ports(u64);

impl Ports {
    const ALL: Self = Self(u64::MAX);

    fn add(&mut self, port: u16) {
        self.0 |= 1 << (port & 63);
    }

    /// Adds a rule's port, of which 0 is any.
    fn add_of_rule(&mut self, port: u16) {
        match port {
            0 => *self = Self::ALL,
            port => self.add(port),
        }
    }
}

/// Ports at which a packet is not foreign: either is enough.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PortPair {
    source: Ports,
    destination: Ports,
}

impl PortPair {
    fn add_of_rule(&mut self, port: u16) {
        self.source.add_of_rule(port);
        self.destination.add_of_rule(port);
    }

    /// Whether neither of the ports at this place is here, by the last byte of each.
    #[inline(always)]
    fn exclude<H: Head>(self, head: &H, at: u32) -> bool {
        let by_source = self.source.0 >> (head.byte(at + 1) & 63);
        let by_destination = self.destination.0 >> (head.byte(at + 3) & 63);
        (by_source | by_destination) & 1 == 0
    }
}

/// All rules, as far as a first look goes: one line of the processor's cache.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Glance {
    tcp: PortPair,
    udp: PortPair,
    /// A bit for each protocol that wants a closer look whatever its ports.
    others: [u64; 4],
}

impl Glance {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut glance = Self::default();
        TUNNEL_PORTS.into_iter().for_each(|port| glance.udp.destination.add(port));
        (0..=u8::MAX).filter(|protocol| is_extension(*protocol) || is_tunnel(*protocol)).for_each(|p| glance.add(p));
        for rule in rules {
            match rule.protocol {
                PROTOCOL_TCP => glance.tcp.add_of_rule(rule.port),
                PROTOCOL_UDP => glance.udp.add_of_rule(rule.port),
                PROTOCOL_ICMP => [PROTOCOL_ICMP, PROTOCOL_ICMPV6].into_iter().for_each(|p| glance.add(p)),
                _ => {}
            }
        }
        glance
    }

    fn add(&mut self, protocol: u8) {
        self.others[usize::from(protocol >> 6)] |= 1 << (protocol & 63);
    }

    /// Whether [`sight`](crate::sight) cannot recognise this packet: true is certain, false is not.
    #[inline(always)]
    pub fn is_foreign<H: Head>(&self, head: &H, start: Start) -> bool {
        match start {
            Start::Ethernet => head.holds::<{ ETHERNET + IPV4 }>() && self.frame_is_foreign(head),
            Start::Network => head.holds::<IPV4>() && self.datagram_is_foreign(head),
        }
    }

    #[inline(always)]
    fn frame_is_foreign<H: Head>(&self, head: &H) -> bool {
        const IPV4_BE: u16 = ETHERTYPE_IPV4.to_be();
        const IPV6_BE: u16 = ETHERTYPE_IPV6.to_be();
        match head.half(12) {
            IPV4_BE => self.ipv4_is_foreign(head, ETHERNET_LEN),
            IPV6_BE => head.holds::<{ ETHERNET + IPV6 }>() && self.ipv6_is_foreign(head, ETHERNET_LEN),
            ethertype => !is_wrapping(u16::from_be(ethertype)),
        }
    }

    #[inline(always)]
    fn datagram_is_foreign<H: Head>(&self, head: &H) -> bool {
        match head.byte(0) >> 4 {
            4 => self.ipv4_is_foreign(head, 0),
            6 => head.holds::<IPV6>() && self.ipv6_is_foreign(head, 0),
            _ => false,
        }
    }

    /// What looks like ports in a later fragment does not matter: such a fragment is never
    /// recognised.
    #[inline(always)]
    fn ipv4_is_foreign<H: Head>(&self, head: &H, at: u32) -> bool {
        head.byte(at) == 0x45 && self.transport_is_foreign(head, head.byte(at + 9), at + 20)
    }

    #[inline(always)]
    fn ipv6_is_foreign<H: Head>(&self, head: &H, at: u32) -> bool {
        self.transport_is_foreign(head, head.byte(at + 6), at + 40)
    }

    #[inline(always)]
    fn transport_is_foreign<H: Head>(&self, head: &H, protocol: u8, at: u32) -> bool {
        match protocol {
            PROTOCOL_TCP => self.tcp.exclude(head, at),
            PROTOCOL_UDP => self.udp.exclude(head, at),
            _ => self.others[(protocol >> 6) as usize] >> (protocol & 63) & 1 == 0,
        }
    }
}

/// Bytes of an Ethernet header, and of an IP header without options and two ports.
const ETHERNET: usize = ETHERNET_LEN as usize;
const IPV4: usize = 24;
const IPV6: usize = 44;
