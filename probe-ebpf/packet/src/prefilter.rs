//! The question that a packet which is not plainly foreign is asked: can it match at all?
//!
//! Two-byte loads at constant offsets and compares with precomputed numbers; everything unusual
//! (options, extensions, tunnels, tags, what cannot be loaded) is "maybe" and left to
//! [`sight`](crate::sight). Numbers are kept as they lie in packets, so nothing is swapped.

use crate::frame::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use crate::network::{ETHERNET_LEN, is_extension, is_wrapping};
use crate::transport::{PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, UDP_LEN};
use crate::tunnel::{is_tunnel, is_tunnel_port};
use crate::{Glance, Start};
use probe_wire::{FieldMatch, MAX_RULES, Pattern, Rule};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Reads a packet where it lies.
pub trait Load {
    /// The two bytes at `offset`, which is even, as they lie in memory; `None` behind the bytes
    /// that are directly readable. One aligned load where the packet starts at an even address.
    ///
    /// Every offset is a constant, at most 66.
    fn ne16(&self, offset: u32) -> Option<u16>;

    /// The same at an offset that is not known before; it can be odd in a malformed packet. A
    /// program must bound it for the verifier and compare it with the end of the packet.
    #[inline(always)]
    fn payload_ne16(&self, offset: u32) -> Option<u16> {
        self.ne16(offset)
    }
}

/// What any match of one rule has in common, request or reply.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PrefilterRow {
    /// Four payload bytes at `anchor_offset`, masked, in packet order.
    anchor: [u16; 2],
    /// Which of their bits count; zeros for a rule without such bytes.
    anchor_mask: [u16; 2],
    /// Even offset in the payload.
    anchor_offset: u16,
    /// Port in packet order, 0 for any.
    port: u16,
    protocol: u8,
    tcp_flags_mask: u8,
    tcp_flags: u8,
    reserved: u8,
}

/// All rules, boiled down for [`may_match`]. Plain bytes, so that a loader can hand it to the
/// programs as a read-only global.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Prefilter {
    rows: [PrefilterRow; MAX_RULES],
    /// For the first look.
    pub glance: Glance,
    row_count: u32,
    /// Bit `n & 31` is set when a rule has protocol `n`.
    protocols: u32,
}

impl Prefilter {
    /// Boils down the first `rule_count` rules.
    pub fn new(rules: &[Rule; MAX_RULES], rule_count: u32) -> Self {
        let count = (rule_count as usize).min(MAX_RULES);
        let mut filter = Prefilter { glance: Glance::new(&rules[..count]), ..Prefilter::default() };
        for (row, rule) in filter.rows.iter_mut().zip(rules).take(count) {
            *row = PrefilterRow::new(rule);
            filter.protocols |= protocol_bit(rule.protocol);
            filter.row_count += 1;
        }
        filter
    }
}

impl PrefilterRow {
    fn new(rule: &Rule) -> Self {
        let (anchor_offset, mask, bytes) = best_anchor(rule);
        let (request, reply) = (&rule.request, &rule.reply);
        let tcp_flags_mask = request.tcp_flags_mask & reply.tcp_flags_mask & !(request.tcp_flags ^ reply.tcp_flags);
        PrefilterRow {
            anchor: halves(bytes),
            anchor_mask: halves(mask),
            anchor_offset,
            port: rule.port.to_be(),
            protocol: rule.protocol,
            tcp_flags_mask,
            tcp_flags: request.tcp_flags & tcp_flags_mask,
            reserved: 0,
        }
    }
}

fn halves([a, b, c, d]: [u8; 4]) -> [u16; 2] {
    [u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])]
}

/// The even offset below 64 whose four bytes say most about a match: (offset, mask, bytes).
fn best_anchor(rule: &Rule) -> (u16, [u8; 4], [u8; 4]) {
    let mut best = (0, [0; 4], [0; 4]);
    for offset in (0..64).step_by(2) {
        let (mut mask, mut bytes) = ([0; 4], [0; 4]);
        for (i, at) in (0..4).zip(offset..) {
            (mask[i], bytes[i]) = wanted_by_both(rule, at);
        }
        if u32::from_ne_bytes(mask).count_ones() > u32::from_ne_bytes(best.1).count_ones() {
            best = (offset, mask, bytes);
        }
    }
    best
}

/// The bits of a payload byte on which request and reply agree: (mask, bits).
fn wanted_by_both(rule: &Rule, at: u16) -> (u8, u8) {
    let (request_mask, request) = wanted(&rule.request, at);
    let (reply_mask, reply) = wanted(&rule.reply, at);
    let mask = request_mask & reply_mask & !(request ^ reply);
    (mask, request & mask)
}

/// What a pattern wants of a payload byte, by the first of its fields that covers it.
fn wanted(pattern: &Pattern, at: u16) -> (u8, u8) {
    let bits = |field: &FieldMatch| {
        let i = at.checked_sub(field.offset).filter(|i| *i < field.len)? as usize;
        Some((*field.mask.get(i)?, *field.bytes.get(i)?))
    };
    pattern.fields.iter().find_map(bits).unwrap_or((0, 0))
}

/// Whether [`sight`](crate::sight) could recognise this packet: false is certain, true is not.
#[inline(always)]
pub fn may_match<L: Load>(packet: &L, start: Start, filter: &Prefilter) -> bool {
    decide(packet, start, filter).unwrap_or(true)
}

/// `None` when a byte that decides cannot be loaded.
#[inline(always)]
fn decide<L: Load>(packet: &L, start: Start, filter: &Prefilter) -> Option<bool> {
    let at = match start {
        Start::Ethernet => ETHERNET_LEN,
        Start::Network => 0,
    };
    let ethertype = match start {
        Start::Ethernet => packet.ne16(12)?,
        Start::Network if first_byte(packet.ne16(0)?) >> 4 == 4 => ETHERTYPE_IPV4.to_be(),
        Start::Network => ETHERTYPE_IPV6.to_be(),
    };
    if ethertype == ETHERTYPE_IPV4.to_be() {
        ipv4(packet, at, filter)
    } else if ethertype == ETHERTYPE_IPV6.to_be() {
        ipv6(packet, at, filter)
    } else {
        Some(is_wrapping(u16::from_be(ethertype)))
    }
}

#[inline(always)]
fn ipv4<L: Load>(packet: &L, at: u32, filter: &Prefilter) -> Option<bool> {
    if first_byte(packet.ne16(at)?) != 0x45 {
        return Some(true);
    }
    if packet.ne16(at + 6)? & 0x1fff_u16.to_be() != 0 {
        return Some(false);
    }
    let protocol = second_byte(packet.ne16(at + 8)?);
    transport(packet, at + 20, protocol, filter)
}

#[inline(always)]
fn ipv6<L: Load>(packet: &L, at: u32, filter: &Prefilter) -> Option<bool> {
    let protocol = first_byte(packet.ne16(at + 6)?);
    transport(packet, at + 40, protocol, filter)
}

#[inline(always)]
fn transport<L: Load>(packet: &L, at: u32, protocol: u8, filter: &Prefilter) -> Option<bool> {
    match protocol {
        PROTOCOL_UDP if is_tunnel_port(u16::from_be(packet.ne16(at + 2)?)) => Some(true),
        PROTOCOL_UDP | PROTOCOL_TCP if filter.protocols & protocol_bit(protocol) == 0 => Some(false),
        PROTOCOL_UDP => any_row(packet, at, UDP_LEN, 0, protocol, filter),
        PROTOCOL_TCP => {
            let word = packet.ne16(at + 12)?;
            let header = (first_byte(word) as u32 >> 4) * 4;
            any_row(packet, at, header, second_byte(word), protocol, filter)
        }
        PROTOCOL_ICMP | PROTOCOL_ICMPV6 => Some(filter.protocols & protocol_bit(PROTOCOL_ICMP) != 0),
        _ => Some(is_extension(protocol) || is_tunnel(protocol)),
    }
}

#[inline(always)]
fn any_row<L: Load>(packet: &L, at: u32, header: u32, tcp_flags: u8, protocol: u8, filter: &Prefilter) -> Option<bool> {
    let source_port = packet.ne16(at)?;
    let destination_port = packet.ne16(at + 2)?;
    let mut i = 0;
    while i < MAX_RULES && i < filter.row_count as usize {
        let row = &filter.rows[i];
        if row.protocol == protocol
            && (row.port == 0 || row.port == destination_port || row.port == source_port)
            && tcp_flags & row.tcp_flags_mask == row.tcp_flags
            && anchor_holds(packet, at + header, row)?
        {
            return Some(true);
        }
        i += 1;
    }
    Some(false)
}

#[inline(always)]
fn anchor_holds<L: Load>(packet: &L, payload: u32, row: &PrefilterRow) -> Option<bool> {
    if row.anchor_mask[0] | row.anchor_mask[1] == 0 {
        return Some(true);
    }
    let at = payload + row.anchor_offset as u32;
    let difference = ((packet.payload_ne16(at)? & row.anchor_mask[0]) ^ row.anchor[0])
        | ((packet.payload_ne16(at + 2)? & row.anchor_mask[1]) ^ row.anchor[1]);
    Some(difference == 0)
}

#[inline(always)]
fn protocol_bit(protocol: u8) -> u32 {
    1 << (protocol as u32 & 31)
}

/// The byte that comes first in the packet.
#[inline(always)]
fn first_byte(word: u16) -> u8 {
    word.to_ne_bytes()[0]
}

#[inline(always)]
fn second_byte(word: u16) -> u8 {
    word.to_ne_bytes()[1]
}
