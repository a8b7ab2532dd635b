//! UDP, TCP and ICMP: where the message begins, how long it is, and who speaks.

use crate::frame::Frame;
use crate::network::{Datagram, FRAGMENT, JUMBO};
use probe_wire::Sighting;

pub(crate) const PROTOCOL_ICMP: u8 = 1;
pub(crate) const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_UDP: u8 = 17;
pub(crate) const PROTOCOL_ICMPV6: u8 = 58;
pub(crate) const UDP_LEN: u32 = 8;
const TCP_LEN: u32 = 20;
const ICMP_LEN: u32 = 8;

/// What a rule is compared with.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    /// First byte of the payload; of ICMP, of its header.
    pub(crate) at: u32,
    /// End of the valid bytes.
    pub(crate) seen_end: u32,
    /// Payload bytes by the headers.
    pub(crate) len: u32,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    /// As rules have it: 1 for ICMP of either family.
    pub(crate) protocol: u8,
    pub(crate) tcp_flags: u8,
}

/// Reads the transport header, and what [`Sighting`] has of it. `None` if it is cut or malformed,
/// or none of the four.
#[inline(always)]
pub(crate) fn message(frame: Frame<'_>, datagram: Datagram, out: &mut Sighting) -> Option<Message> {
    out.protocol = datagram.protocol;
    out.tcp_seq = 0;
    out.tcp_ack = 0;
    let message = match datagram.protocol {
        PROTOCOL_UDP => udp(frame, datagram),
        PROTOCOL_TCP => tcp(frame, datagram, out),
        PROTOCOL_ICMP | PROTOCOL_ICMPV6 => icmp(frame, datagram),
        _ => None,
    }?;
    let message = Message {
        at: frame.forget(message.at),
        seen_end: frame.forget(message.seen_end),
        len: frame.forget(message.len),
        ..message
    };
    out.payload_len = message.len;
    out.source_port = message.source_port;
    out.destination_port = message.destination_port;
    out.tcp_flags = message.tcp_flags;
    Some(message)
}

/// Whether the datagram has `count` bytes and they are at hand.
#[inline(always)]
fn has(frame: Frame<'_>, datagram: Datagram, count: u32) -> bool {
    frame.holds(datagram.at, count) && datagram.at + count <= datagram.seen_end
}

#[inline(always)]
fn seen_end(frame: Frame<'_>, end: u32) -> u32 {
    if end < frame.len() { end } else { frame.len() }
}

#[inline(always)]
fn udp(frame: Frame<'_>, datagram: Datagram) -> Option<Message> {
    let at = datagram.at;
    if !has(frame, datagram, UDP_LEN) {
        return None;
    }
    let claimed = frame.be16(at + 4) as u32;
    let end = if claimed == 0 && datagram.traits & JUMBO != 0 { datagram.end } else { at + claimed };
    // the kernel drops a datagram that is longer than what carries it, unless more is to come
    if end < at + UDP_LEN || (end > datagram.end && datagram.traits & FRAGMENT == 0) {
        return None;
    }
    let bound = if end < datagram.seen_end { end } else { datagram.seen_end };
    Some(Message {
        at: at + UDP_LEN,
        seen_end: seen_end(frame, bound),
        len: end - at - UDP_LEN,
        source_port: frame.be16(at),
        destination_port: frame.be16(at + 2),
        protocol: PROTOCOL_UDP,
        tcp_flags: 0,
    })
}

#[inline(always)]
fn tcp(frame: Frame<'_>, datagram: Datagram, out: &mut Sighting) -> Option<Message> {
    let at = datagram.at;
    if !has(frame, datagram, TCP_LEN) {
        return None;
    }
    let header = (frame.byte(at + 12) as u32 >> 4) * 4;
    if header < TCP_LEN || at + header > datagram.end {
        return None;
    }
    out.tcp_seq = frame.be32(at + 4);
    out.tcp_ack = frame.be32(at + 8);
    Some(Message {
        at: at + header,
        seen_end: seen_end(frame, datagram.seen_end),
        len: datagram.end - at - header,
        source_port: frame.be16(at),
        destination_port: frame.be16(at + 2),
        protocol: PROTOCOL_TCP,
        tcp_flags: frame.byte(at + 13),
    })
}

#[inline(always)]
fn icmp(frame: Frame<'_>, datagram: Datagram) -> Option<Message> {
    if !has(frame, datagram, ICMP_LEN) {
        return None;
    }
    Some(Message {
        at: datagram.at,
        seen_end: seen_end(frame, datagram.seen_end),
        len: datagram.end - datagram.at,
        source_port: 0,
        destination_port: 0,
        protocol: PROTOCOL_ICMP,
        tcp_flags: 0,
    })
}
