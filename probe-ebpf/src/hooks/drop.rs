//! Packets that the kernel drops.

use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use probe_packet::{Load, Start, may_match};
use probe_wire::{DROP_OF_PORT, DROP_OF_PORT_LAST, DROP_STRETCH_NS, DROP_UNPARSED, DropBody, EventKind, Sighting};

use crate::{
    emit::{self, emit, now, zero},
    hooks::packet,
    maps::{PREFILTER, Scratch, ScratchSlot, cpu_state},
    read::{self, ETHERNET, Typed, offsets},
    scope,
};

/// `skb->protocol` as it lies in memory.
const IPV4: u16 = 0x0800_u16.to_be();
const IPV6: u16 = 0x86dd_u16.to_be();

/// The network header of a dropped packet and what is readable from there on.
#[derive(Clone, Copy)]
struct Datagram {
    at: u64,
    /// Bytes in one piece.
    linear: u32,
    /// Bytes in all.
    len: u32,
    /// `skb->protocol`, in packet order.
    ethertype: u16,
}

impl Datagram {
    /// `None` when the packet has no IP header where the kernel says, or none yet.
    #[inline(always)]
    fn of_skb(skb: Typed) -> Option<Self> {
        let at = offsets();
        let protocol: u16 = read::typed(skb, at.sk_buff_protocol, 0);
        if protocol != IPV4 && protocol != IPV6 {
            return None;
        }
        // The verifier takes these two for pointers, but they are wanted as numbers.
        let head: u64 = read::untyped(skb as u64, at.sk_buff_head);
        let data: u64 = read::untyped(skb as u64, at.sk_buff_data);
        let network = u32::from(read::typed::<u16>(skb, at.sk_buff_network_header, 0));
        let tail: u32 = read::typed(skb, at.sk_buff_tail, 0);
        let end = (data.wrapping_sub(head) as u32).wrapping_add(read::typed(skb, at.sk_buff_len, 0));
        if head == 0 || network == 0 || network >= tail || tail > end {
            return None;
        }
        let at = head + u64::from(network);
        Some(Self { at, linear: tail - network, len: end - network, ethertype: protocol })
    }
}

impl Load for Datagram {
    #[inline(always)]
    fn ne16(&self, offset: u32) -> Option<u16> {
        if offset + 2 > self.linear {
            return None;
        }
        Some(read::untyped(self.at, offset))
    }
}

/// The prefilter, for bytes known by their address. Apart for the verifier's sake, like
/// `match_frame`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn may_match_at(at: u64, linear: u32) -> u32 {
    let datagram = Datagram { at, linear, len: linear, ethertype: 0 };
    u32::from(may_match(&datagram, Start::Network, PREFILTER.get()))
}

/// `kfree_skb` as the kernel passes it from 5.17 on, with a reason. Packets that are merely used
/// up do not pass here.
/// <https://github.com/torvalds/linux/commit/c504e5c2f9648a1e5c2be01e8c3f59d394192bd3>
#[inline(always)]
pub(crate) fn with_reason(ctx: &BtfTracePointContext) {
    dropped(ctx, ctx.arg(2));
}

/// `kfree_skb` before that. Reason 0.
#[inline(always)]
pub(crate) fn without_reason(ctx: &BtfTracePointContext) {
    dropped(ctx, 0);
}

#[inline(always)]
fn dropped(ctx: &BtfTracePointContext, reason: u32) {
    let skb: Typed = ctx.arg(0);
    if skb.is_null() {
        return;
    }
    let drop = Dropped { ctx, skb, location: ctx.arg(1), reason };
    let watched = scope::is_watched_skb(skb as u64);
    match Datagram::of_skb(skb) {
        Some(datagram) => drop.consider(&datagram, watched),
        None if watched => drop.unparsed(),
        None => {}
    }
}

/// Drops that one CPU reports for their port alone in a stretch of time; the last says so.
const MOST_PORT_DROPS: u64 = 256;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Addresses and ports of a datagram, read where they are.
struct Transport {
    source: [u8; 16],
    destination: [u8; 16],
    /// Source and destination.
    ports: [u16; 2],
    protocol: u8,
    /// Where the TCP or UDP header is.
    at: u64,
    /// Bytes from there on.
    len: u32,
}

impl Transport {
    /// `None` if it has no watched port: that is looked at first.
    #[inline(always)]
    fn of(datagram: &Datagram) -> Option<Self> {
        let at = datagram.at;
        let (protocol, header) = if datagram.ethertype == IPV4 {
            let fragment = u16::from_be(read::untyped::<u16>(at, 6)) & 0x1fff;
            let len = u32::from(read::untyped::<u8>(at, 0) & 15) * 4;
            if fragment != 0 {
                return None;
            }
            (read::untyped::<u8>(at, 9), len)
        } else {
            (read::untyped::<u8>(at, 6), 40)
        };
        if protocol != TCP && protocol != UDP || header + 8 > datagram.linear {
            return None;
        }
        let ports =
            [u16::from_be(read::untyped::<u16>(at, header)), u16::from_be(read::untyped::<u16>(at, header + 2))];
        if !scope::is_watched_port(ports[0]) && !scope::is_watched_port(ports[1]) {
            return None;
        }
        let (source, destination) = if datagram.ethertype == IPV4 {
            (mapped(read::untyped(at, 12)), mapped(read::untyped(at, 16)))
        } else {
            (ipv6(at, 8), ipv6(at, 24))
        };
        let (at, len) = (at + u64::from(header), datagram.len - header);
        Some(Self { source, destination, ports, protocol, at, len })
    }

    #[inline(always)]
    fn sighting(&self) -> Sighting {
        let mut sighting = nothing();
        (sighting.source, sighting.destination) = (self.source, self.destination);
        [sighting.source_port, sighting.destination_port] = self.ports;
        sighting.protocol = self.protocol;
        let mut header = 8;
        if self.protocol == TCP {
            sighting.tcp_seq = u32::from_be(read::untyped(self.at, 4));
            sighting.tcp_ack = u32::from_be(read::untyped(self.at, 8));
            sighting.tcp_flags = read::untyped(self.at, 13);
            header = u32::from(read::untyped::<u8>(self.at, 12) >> 4) * 4;
        }
        sighting.payload_len = self.len.saturating_sub(header);
        sighting
    }
}

/// An IPv4 address as IPv6 writes it.
#[inline(always)]
fn mapped(address: u32) -> [u8; 16] {
    zerocopy::transmute!([zero() as u32, zero() as u32, 0xffff_u32.to_be(), address])
}

#[inline(always)]
fn ipv6(at: u64, offset: u32) -> [u8; 16] {
    zerocopy::transmute!([read::untyped::<u64>(at, offset), read::untyped::<u64>(at, offset + 8)])
}

/// As what this CPU may report another drop for its port alone.
#[inline(always)]
fn port_drop() -> Option<u8> {
    let state = cpu_state()?;
    let stretch = now() / DROP_STRETCH_NS;
    let told = if state.port_drops_at.get() == stretch { state.port_drops.get() } else { 0 };
    state.port_drops_at.set(stretch);
    state.port_drops.set(told + 1);
    match told + 1 {
        MOST_PORT_DROPS => Some(DROP_OF_PORT_LAST),
        count if count < MOST_PORT_DROPS => Some(DROP_OF_PORT),
        _ => None,
    }
}

struct Dropped<'a> {
    ctx: &'a BtfTracePointContext,
    skb: Typed,
    location: u64,
    reason: u32,
}

impl Dropped<'_> {
    #[inline(always)]
    fn consider(&self, datagram: &Datagram, watched: bool) {
        if self.examine(datagram) {
            // A tap's full ring drops a packet that was handed over already.
            scope::unwatch_skb(self.skb as u64);
        } else if watched {
            self.unparsed();
        } else {
            self.examine_port(datagram);
        }
    }

    /// A packet that is followed and shows nothing that could be recognised.
    #[inline(always)]
    fn unparsed(&self) {
        scope::unwatch_skb(self.skb as u64);
        self.report(DROP_UNPARSED, None);
    }

    /// Reports the drop if the packet matches a signature; whether it did.
    #[inline(always)]
    fn examine(&self, datagram: &Datagram) -> bool {
        may_match_at(datagram.at, datagram.linear) != 0 && self.examine_closely(datagram)
    }

    #[inline(always)]
    fn examine_closely(&self, datagram: &Datagram) -> bool {
        let Some(scratch) = Scratch::take(ScratchSlot::Drop) else {
            emit::lose(EventKind::Drop);
            return true;
        };
        let Datagram { at, linear, len, ethertype } = *datagram;
        let copied = read::datagram(at, linear, ethertype, &mut scratch.bytes);
        if copied == 0 {
            warn!(self.ctx, "a drop was not looked at: its bytes cannot be read");
        }
        let known = scope::recognise(ScratchSlot::Drop, copied, len + ETHERNET, 0);
        if known {
            self.report(1, Some(&scratch.sighting));
        }
        scratch.give_back();
        known
    }

    /// Reports the drop if the packet has a watched port: it may be part of what a check needs. A
    /// function of its own, as [`report`](Self::report) is.
    #[inline(never)]
    fn examine_port(&self, datagram: &Datagram) {
        let Some(transport) = Transport::of(datagram) else { return };
        if let Some(known) = port_drop() {
            self.report(known, Some(&transport.sighting()));
        }
    }

    /// A function of its own, so that its stack is not there while the packet is looked at: kernels
    /// before 6.8 count all that a path of calls may use, and refuse more than 512 bytes.
    #[inline(never)]
    fn report(&self, known: u8, sighting: Option<&Sighting>) {
        if let Some(state) = cpu_state() {
            state.forget_rx(self.skb as u64);
        }
        let skb = self.skb as u64;
        // What has come in has the number of the device that it came in by.
        let own = u64::from(read::typed::<u32>(self.skb, offsets().sk_buff_skb_iif, 1) == 0);
        let device = match packet::device(skb) {
            0 if own != 0 => packet::route_device(skb),
            device => device,
        };
        let queue = u64::from(read::typed::<u16>(self.skb, offsets().sk_buff_queue_mapping, u16::MAX)) + 1;
        let known = zero() + u64::from(known) + (own << 8) + ((queue & 0xffff) << 16);
        let [signature_known, own, low, high, reserved @ ..] = known.to_le_bytes();
        emit(EventKind::Drop, |body: &mut DropBody| {
            *body = DropBody {
                skb,
                netns: packet::netns_of(device),
                location: self.location,
                ifindex: packet::ifindex_of(device),
                reason: self.reason,
                sighting: sighting.copied().unwrap_or_else(nothing),
                signature_known,
                own,
                queue_mapping: u16::from_le_bytes([low, high]),
                reserved,
            };
        });
    }
}

/// What is reported of a packet that could not be parsed.
#[inline(always)]
fn nothing() -> Sighting {
    zerocopy::transmute!([zero(); size_of::<Sighting>() / size_of::<u64>()])
}
