//! What carries another packet: GRE, IP in IP, VXLAN, Geneve.

use crate::frame::{ETHERTYPE_BRIDGED, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Frame, Layer};
use crate::network::Datagram;
use crate::transport::{PROTOCOL_UDP, UDP_LEN};

const PROTOCOL_IPV4: u8 = 4;
const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_GRE: u8 = 47;
/// IANA's port, and the one Linux used before.
const PORTS_VXLAN: [u16; 2] = [4789, 8472];
const PORT_GENEVE: u16 = 6081;
/// Ports of UDP that can carry a packet.
pub(crate) const TUNNEL_PORTS: [u16; 3] = [PORTS_VXLAN[0], PORTS_VXLAN[1], PORT_GENEVE];

#[inline(always)]
pub(crate) fn is_tunnel(protocol: u8) -> bool {
    protocol == PROTOCOL_IPV4 || protocol == PROTOCOL_IPV6 || protocol == PROTOCOL_GRE
}

/// Whether UDP to this port can carry a packet.
#[inline(always)]
pub(crate) fn is_tunnel_port(destination_port: u16) -> bool {
    is_vxlan_port(destination_port) || destination_port == PORT_GENEVE
}

#[inline(always)]
fn is_vxlan_port(port: u16) -> bool {
    port == PORTS_VXLAN[0] || port == PORTS_VXLAN[1]
}

/// The header inside, if there is one.
#[inline(always)]
pub(crate) fn inner(frame: Frame<'_>, datagram: Datagram) -> Option<Layer> {
    let (header, ethertype) = match datagram.protocol {
        PROTOCOL_IPV4 => (0, ETHERTYPE_IPV4),
        PROTOCOL_IPV6 => (0, ETHERTYPE_IPV6),
        PROTOCOL_GRE => gre(frame, datagram.at)?,
        PROTOCOL_UDP => udp(frame, datagram.at)?,
        _ => return None,
    };
    Some(Layer { at: frame.forget(datagram.at + header), end: frame.forget(datagram.seen_end), ethertype })
}

/// Length of a GRE header (RFC 2784, RFC 2890) and what it carries.
#[inline(always)]
fn gre(frame: Frame<'_>, at: u32) -> Option<(u32, u16)> {
    if !frame.holds(at, 4) {
        return None;
    }
    let flags = frame.be16(at);
    // routing of RFC 1701, reserved bits and other versions (PPTP) are not understood
    if flags & 0x4fff != 0 {
        return None;
    }
    let checksum = (flags as u32 >> 15) & 1;
    let key = (flags as u32 >> 13) & 1;
    let sequence = (flags as u32 >> 12) & 1;
    Some((4 + 4 * (checksum + key + sequence), frame.be16(at + 2)))
}

/// Length of the UDP and tunnel headers, and what they carry.
#[inline(always)]
fn udp(frame: Frame<'_>, at: u32) -> Option<(u32, u16)> {
    let tunnel = at + UDP_LEN;
    if !frame.holds(tunnel, 8) {
        return None;
    }
    match frame.be16(at + 2) {
        PORT_GENEVE => geneve(frame, tunnel),
        // the I flag: a VNI is there (RFC 7348)
        port if is_vxlan_port(port) && frame.byte(tunnel) & 0x08 != 0 => Some((UDP_LEN + 8, ETHERTYPE_BRIDGED)),
        _ => None,
    }
}

/// RFC 8926.
#[inline(always)]
fn geneve(frame: Frame<'_>, at: u32) -> Option<(u32, u16)> {
    let first = frame.byte(at) as u32;
    if first >> 6 != 0 {
        return None;
    }
    let options = (first & 0x3f) * 4;
    Some((UDP_LEN + 8 + options, frame.be16(at + 2)))
}
