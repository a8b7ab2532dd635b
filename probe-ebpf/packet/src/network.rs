//! Ethernet, VLAN tags, PPPoE, IPv4, IPv6 and its extension headers.

use crate::frame::{ETHERTYPE_BRIDGED, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Frame, Layer};
use core::mem::offset_of;
use probe_wire::{FLAG_FRAGMENT, FLAG_VLAN, Sighting};

pub(crate) const ETHERNET_LEN: u32 = 14;
pub(crate) const ETHERTYPE_VLAN: u16 = 0x8100;
pub(crate) const ETHERTYPE_QINQ: u16 = 0x88a8;
/// QinQ as it was numbered before IEEE 802.1ad.
pub(crate) const ETHERTYPE_OLD_QINQ: u16 = 0x9100;
/// A PPP session over Ethernet (RFC 2516).
const ETHERTYPE_PPPOE: u16 = 0x8864;
/// Version and code, session, length (6 bytes), and the number of the PPP protocol.
const PPPOE_LEN: u32 = 8;
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
/// Authentication header, of either IP version (RFC 4302).
pub(crate) const PROTOCOL_AH: u8 = 51;
const PROTOCOL_HOP_BY_HOP: u8 = 0;
const PROTOCOL_ROUTING: u8 = 43;
const PROTOCOL_FRAGMENT: u8 = 44;
const PROTOCOL_DESTINATION_OPTIONS: u8 = 60;

const MAX_TAGS: u32 = 3;
const MAX_EXTENSIONS: u32 = 8;
const IPV4_LEN: u32 = 20;
const IPV6_LEN: u32 = 40;

/// Only the first fragment is here; lengths in the headers that follow are of the whole.
pub(crate) const FRAGMENT: u32 = 1;
/// The IP header leaves the length to the frame, as Linux does in segments of more than 64 KiB.
pub(crate) const JUMBO: u32 = 2;

/// What an IP header and its extensions carry.
#[derive(Clone, Copy)]
pub(crate) struct Datagram {
    /// First byte behind the IP headers.
    pub(crate) at: u32,
    /// End that the IP header claims, from the start of the frame; it can lie behind the frame.
    pub(crate) end: u32,
    /// End of what this layer has in the frame: `end`, or the end of the layer around it.
    pub(crate) seen_end: u32,
    /// Protocol number.
    pub(crate) protocol: u8,
    /// [`FRAGMENT`] and [`JUMBO`].
    pub(crate) traits: u32,
}

/// Reads everything up to the transport header, and the addresses into `out`. `None` for what is
/// not IP, is cut or malformed, or is a fragment that is not the first.
#[inline(always)]
pub(crate) fn datagram(frame: Frame<'_>, layer: Layer, flags: &mut u16, out: &mut Sighting) -> Option<Datagram> {
    let layer = skip_link(frame, layer, flags)?;
    let datagram = match layer.ethertype {
        ETHERTYPE_IPV4 => ipv4(frame, layer, out),
        ETHERTYPE_IPV6 => ipv6(frame, layer, out),
        _ => None,
    }?;
    let datagram = skip_extensions(frame, datagram)?;
    if datagram.traits & FRAGMENT != 0 {
        *flags |= FLAG_FRAGMENT;
    }
    Some(datagram)
}

#[inline(always)]
fn skip_link(frame: Frame<'_>, layer: Layer, flags: &mut u16) -> Option<Layer> {
    if layer.ethertype != ETHERTYPE_BRIDGED {
        return Some(layer);
    }
    if !frame.holds(layer.at, ETHERNET_LEN) {
        return None;
    }
    let mut ethertype = frame.be16(layer.at + 12);
    let mut at = layer.at + ETHERNET_LEN;
    let mut tags = 0;
    while tags < MAX_TAGS && is_tag(ethertype) {
        if !frame.holds(at, 4) {
            return None;
        }
        ethertype = frame.be16(at + 2);
        at = frame.forget(at + 4);
        *flags |= FLAG_VLAN;
        tags += 1;
    }
    if ethertype == ETHERTYPE_PPPOE {
        if !frame.holds(at, PPPOE_LEN) {
            return None;
        }
        ethertype = match frame.be16(at + 6) {
            PPP_IPV4 => ETHERTYPE_IPV4,
            PPP_IPV6 => ETHERTYPE_IPV6,
            _ => return None,
        };
        at += PPPOE_LEN;
    }
    Some(Layer { at: frame.forget(at), ethertype, ..layer })
}

#[inline(always)]
fn is_tag(ethertype: u16) -> bool {
    ethertype == ETHERTYPE_VLAN || ethertype == ETHERTYPE_QINQ || ethertype == ETHERTYPE_OLD_QINQ
}

/// Whether an IP header may follow what this type announces, somewhere behind it.
#[inline(always)]
pub(crate) fn is_wrapping(ethertype: u16) -> bool {
    is_tag(ethertype) || ethertype == ETHERTYPE_PPPOE
}

#[inline(always)]
fn ipv4(frame: Frame<'_>, layer: Layer, out: &mut Sighting) -> Option<Datagram> {
    let at = layer.at;
    if !frame.holds(at, IPV4_LEN) {
        return None;
    }
    let first = frame.byte(at) as u32;
    let header = (first & 15) * 4;
    let total = frame.be16(at + 2) as u32;
    let fragment = frame.be16(at + 6);
    if first >> 4 != 4 || header < IPV4_LEN || (total != 0 && total < header) {
        return None;
    }
    // 13 bits of fragment offset; bit 13 says that more follow
    if fragment & 0x1fff != 0 {
        return None;
    }
    let more = if fragment & 0x2000 != 0 { FRAGMENT } else { 0 };
    let end = if total == 0 { layer.end } else { at + total };
    out.ip_id = frame.be16(at + 4);
    mapped_addresses(frame, at + 12, out);
    Some(Datagram {
        at: frame.forget(at + header),
        end: frame.forget(end),
        seen_end: frame.forget(if end < layer.end { end } else { layer.end }),
        protocol: frame.byte(at + 9),
        traits: frame.forget(more | if total == 0 { JUMBO } else { 0 }),
    })
}

#[inline(always)]
fn ipv6(frame: Frame<'_>, layer: Layer, out: &mut Sighting) -> Option<Datagram> {
    let at = layer.at;
    if !frame.holds(at, IPV6_LEN) || frame.byte(at) >> 4 != 6 {
        return None;
    }
    let payload = frame.be16(at + 4) as u32;
    let end = if payload == 0 { layer.end } else { at + IPV6_LEN + payload };
    out.ip_id = 0;
    address(frame, at + 8, &mut out.source);
    address(frame, at + 24, &mut out.destination);
    Some(Datagram {
        at: frame.forget(at + IPV6_LEN),
        end: frame.forget(end),
        seen_end: frame.forget(if end < layer.end { end } else { layer.end }),
        protocol: frame.byte(at + 6),
        traits: frame.forget(if payload == 0 { JUMBO } else { 0 }),
    })
}

#[inline(always)]
fn skip_extensions(frame: Frame<'_>, mut datagram: Datagram) -> Option<Datagram> {
    let mut count = 0;
    while count < MAX_EXTENSIONS && is_extension(datagram.protocol) {
        let at = datagram.at;
        if !frame.holds(at, 8) {
            return None;
        }
        let length = frame.byte(at + 1) as u32;
        let header = match datagram.protocol {
            PROTOCOL_FRAGMENT => 8,
            PROTOCOL_AH => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        datagram.at = frame.forget(at + header);
        if datagram.protocol == PROTOCOL_FRAGMENT {
            let fragment = frame.be16(at + 2);
            // 13 bits of offset, two reserved, one "more"
            if fragment >> 3 != 0 {
                return None;
            }
            let more = if fragment & 1 != 0 { FRAGMENT } else { 0 };
            datagram.traits = frame.forget(datagram.traits | more);
        }
        datagram.protocol = frame.byte(at);
        count += 1;
    }
    Some(datagram)
}

#[inline(always)]
pub(crate) fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        PROTOCOL_HOP_BY_HOP | PROTOCOL_ROUTING | PROTOCOL_FRAGMENT | PROTOCOL_AH | PROTOCOL_DESTINATION_OPTIONS
    )
}

/// Writes both addresses as `::ffff:a.b.c.d`. By words: ten zero bytes become a call of `memset`
/// in a BPF object.
#[inline(always)]
fn mapped_addresses(frame: Frame<'_>, at: u32, out: &mut Sighting) {
    const _: () = assert!(offset_of!(Sighting, source) == 0);
    const _: () = assert!(offset_of!(Sighting, destination) == 16);
    let words: &mut [u32; size_of::<Sighting>() / 4] = zerocopy::transmute_mut!(out);
    let prefix = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
    words[0] = 0;
    words[1] = 0;
    words[2] = prefix;
    words[3] = ipv4_address(frame, at);
    words[4] = 0;
    words[5] = 0;
    words[6] = prefix;
    words[7] = ipv4_address(frame, at + 4);
}

/// Four bytes as they lie in memory.
#[inline(always)]
fn ipv4_address(frame: Frame<'_>, at: u32) -> u32 {
    u32::from_ne_bytes([frame.byte(at), frame.byte(at + 1), frame.byte(at + 2), frame.byte(at + 3)])
}

#[inline(always)]
fn address(frame: Frame<'_>, at: u32, to: &mut [u8; 16]) {
    let mut i = 0;
    while i < 16 {
        to[i as usize] = frame.byte(at + i);
        i += 1;
    }
}
