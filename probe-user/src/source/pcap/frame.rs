//! From a captured packet to what the parser takes: the link header of each capture type.

use pcap_parser::Linktype;
use probe_packet::{SNAP, Start};
use probe_wire::FLAG_VLAN;

use crate::signature::FrameHead;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Tags that are skipped in a cooked header, as many as the parser skips in an Ethernet header.
const MAX_TAGS: usize = 3;
/// Raw IP as some systems number it.
const RAW_BSD: [i32; 2] = [12, 14];

/// The beginning of a captured packet.
#[derive(Debug, Clone, Copy)]
pub struct CapturedFrame {
    /// Nanoseconds since 1970, UTC.
    pub time_ns: u64,
    /// Bytes of the frame on the wire, link header included.
    pub wire_len: u32,
    /// See [`CapturedPacket::interface_index`](super::CapturedPacket::interface_index).
    pub interface_index: u32,
    bytes: [u8; SNAP],
    len: u32,
    /// Bytes on the wire from the first of `bytes`.
    frame_len: u32,
    start: Start,
    flags: u16,
}

impl CapturedFrame {
    /// As the parser takes it.
    pub fn head(&self) -> FrameHead<'_> {
        FrameHead { bytes: &self.bytes, len: self.len, frame_len: self.frame_len, start: self.start, flags: self.flags }
    }
}

/// What a frame is whose inside is not looked at, by the EtherType behind its tags.
const WRAPPINGS: [(u16, &str); 6] = [
    (0x8847, "MPLS"),
    (0x8848, "MPLS"),
    (0x88e5, "MACsec"),
    (0x88e7, "provider backbone bridging"),
    (0x8863, "PPPoE discovery"),
    (0x8864, "PPPoE without IP"),
];

impl CapturedFrame {
    /// The name of what the parser does not look into, if the frame is wrapped in such.
    pub fn wrapping(&self) -> Option<&'static str> {
        let tags = |ethertype| matches!(ethertype, 0x8100 | 0x88a8 | 0x9100);
        let mut at = 12;
        if self.start != Start::Ethernet {
            return None;
        }
        while tags(self.be16(at)?) {
            at += 4;
        }
        let ethertype = self.be16(at)?;
        let ip_in_session = ethertype == 0x8864 && matches!(self.be16(at + 8), Some(0x0021 | 0x0057));
        WRAPPINGS.iter().find(|(number, _)| *number == ethertype && !ip_in_session).map(|(_, name)| *name)
    }

    fn be16(&self, at: usize) -> Option<u16> {
        let bytes = self.bytes.get(..usize::try_from(self.len).ok()?)?.get(at..)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    }
}

/// What a capture's link type is called that is not looked into.
pub(super) const fn link_name(link: Linktype) -> &'static str {
    match link.0 {
        9 | 50 => "PPP",
        51 => "PPPoE captured without Ethernet",
        105 | 119 | 127 | 163 => "802.11",
        147..=162 => "private link type",
        189 | 220 => "USB",
        201 | 187 => "Bluetooth",
        _ => "unknown link type or cut header",
    }
}

/// A packet as the file has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawPacket<'a> {
    pub(super) time_ns: u64,
    pub(super) wire_len: u32,
    pub(super) interface_index: u32,
    pub(super) link: Linktype,
    pub(super) data: &'a [u8],
}

/// Behind the link header.
struct Network {
    header_len: usize,
    start: Start,
    flags: u16,
    interface_index: Option<u32>,
}

impl RawPacket<'_> {
    /// `None` for a link type that is not understood, and for a link header that is cut.
    pub(super) fn frame(self) -> Option<CapturedFrame> {
        let network = self.network()?;
        let rest = self.data.get(network.header_len..)?;
        let mut bytes = [0; SNAP];
        for (to, from) in bytes.iter_mut().zip(rest) {
            *to = *from;
        }
        let header_len = u32::try_from(network.header_len).ok()?;
        Some(CapturedFrame {
            time_ns: self.time_ns,
            wire_len: self.wire_len,
            interface_index: network.interface_index.unwrap_or(self.interface_index),
            bytes,
            len: u32::try_from(rest.len().min(SNAP)).ok()?,
            frame_len: self.wire_len.saturating_sub(header_len),
            start: network.start,
            flags: network.flags,
        })
    }

    fn network(&self) -> Option<Network> {
        match self.link {
            Linktype::ETHERNET => {
                Some(Network { header_len: 0, start: Start::Ethernet, flags: 0, interface_index: None })
            }
            Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => Some(ip(0)),
            Linktype::NULL | Linktype::LOOP => Some(ip(4)),
            Linktype::LINUX_SLL => self.cooked(14, 16, None),
            Linktype::LINUX_SLL2 => self.cooked(0, 20, self.be32(4)),
            Linktype(number) if RAW_BSD.contains(&number) => Some(ip(0)),
            _ => None,
        }
    }

    /// Linux cooked capture: the protocol stands at `protocol_at`, of a header of `header_len`.
    fn cooked(&self, protocol_at: usize, header_len: usize, interface_index: Option<u32>) -> Option<Network> {
        let mut ethertype = self.be16(protocol_at)?;
        let mut network = Network { interface_index, ..ip(header_len) };
        for _ in 0..MAX_TAGS {
            if !ETHERTYPE_TAGS.contains(&ethertype) {
                break;
            }
            ethertype = self.be16(network.header_len + 2)?;
            network.header_len += 4;
            network.flags = FLAG_VLAN;
        }
        if !matches!(ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6) {
            // a network header that the parser refuses: ARP and the like cannot match
            network.header_len = self.data.len();
        }
        Some(network)
    }

    fn be16(&self, at: usize) -> Option<u16> {
        let bytes = self.data.get(at..)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    }

    fn be32(&self, at: usize) -> Option<u32> {
        let bytes = self.data.get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    }
}

/// An IP header follows; which one, its first four bits say.
fn ip(header_len: usize) -> Network {
    Network { header_len, start: Start::Network, flags: 0, interface_index: None }
}
