//! Packets at an interface: the stamps that every journey hangs on.

use aya_ebpf::{
    bindings::__sk_buff,
    helpers::{bpf_get_socket_cookie, generated::bpf_skb_load_bytes},
    programs::TcContext,
};
use aya_log_ebpf::warn;
use probe_packet::{Head, Load, SNAP, Start, may_match};
use probe_wire::{EventKind, FLAG_VLAN, PacketBody, Sighting};

use crate::{
    emit::{self, emit_at, now},
    hooks::accept,
    maps::{PREFILTER, Scratch, ScratchSlot, cpu_state},
    read::{self, DATAGRAM, ETHERNET, Typed, offsets},
    scope,
};

/// Which way a packet passes the interface, seen from the host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// It comes in.
    Ingress,
    /// It goes out.
    Egress,
}

impl Direction {
    #[inline(always)]
    fn kind(self) -> EventKind {
        match self {
            Self::Ingress => EventKind::PacketIngress,
            Self::Egress => EventKind::PacketEgress,
        }
    }

    #[inline(always)]
    fn slot(self) -> ScratchSlot {
        match self {
            Self::Ingress => ScratchSlot::Ingress,
            Self::Egress => ScratchSlot::Egress,
        }
    }
}

/// A `net_device` whose type the verifier knows.
#[derive(Clone, Copy)]
pub(crate) struct Device(pub(crate) Typed);

impl Device {
    /// The device of a packet that is on its way out.
    #[inline(always)]
    pub(crate) fn of_skb(skb: Typed) -> Self {
        Self(read::typed_pointer(skb, offsets().sk_buff_dev))
    }

    /// Cookie of its network namespace; 0 without a device.
    #[inline(always)]
    pub(crate) fn netns(self) -> u64 {
        let net = read::typed_pointer(self.0, offsets().net_device_nd_net);
        read::typed(net, offsets().net_net_cookie, 0)
    }

    /// Its index; 0 without a device.
    #[inline(always)]
    pub(crate) fn ifindex(self) -> u32 {
        read::typed(self.0, offsets().net_device_ifindex, 0)
    }

    /// What it does with a packet, by the kind that its driver gave it (`rtnl_link_ops.kind`).
    /// <https://github.com/torvalds/linux/blob/v6.12/drivers/net/tun.c#L2399> (`tun_link_ops`)
    /// <https://github.com/torvalds/linux/blob/v6.12/drivers/net/bonding/bond_netlink.c> (`bond_link_ops`)
    /// <https://github.com/torvalds/linux/blob/v6.12/net/bridge/br_netlink.c> (`br_link_ops`)
    /// <https://github.com/torvalds/linux/blob/v6.12/net/8021q/vlan_netlink.c> (`vlan_link_ops`)
    #[inline(always)]
    pub(crate) fn role(self) -> DeviceRole {
        let ops = read::typed_pointer(self.0, offsets().net_device_rtnl_link_ops);
        match kind(ops as u64) as u32 {
            TUN => DeviceRole::Tun,
            BOND | TEAM | BRIDGE | VLAN | MACVLAN | IPVLAN => DeviceRole::HandsOn,
            _ => DeviceRole::Sends,
        }
    }
}

/// The first eight bytes of the kind of a device, by the address of its `rtnl_link_ops`.
#[inline(always)]
fn kind(ops: u64) -> u64 {
    read::untyped(read::untyped(ops, offsets().rtnl_link_ops_kind), 0)
}

/// A tap on another device.
const MACVTAP: u64 = u64::from_ne_bytes(*b"macvtap\0");
/// The first four bytes of kinds of devices.
const TUN: u32 = u32::from_ne_bytes(*b"tun\0");
const BOND: u32 = u32::from_ne_bytes(*b"bond");
const TEAM: u32 = u32::from_ne_bytes(*b"team");
const BRIDGE: u32 = u32::from_ne_bytes(*b"brid");
const VLAN: u32 = u32::from_ne_bytes(*b"vlan");
const MACVLAN: u32 = u32::from_ne_bytes(*b"macv");
const IPVLAN: u32 = u32::from_ne_bytes(*b"ipvl");

/// What a device does with a packet that is on its way out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceRole {
    /// Sends it.
    Sends,
    /// A tun or tap: puts it into a ring, out of which somebody else takes it.
    Tun,
    /// Hands it on to a device below.
    HandsOn,
}

/// The directly readable part of a packet.
struct Linear {
    start: usize,
    end: usize,
}

impl Linear {
    #[inline(always)]
    fn of(ctx: &TcContext) -> Self {
        Self { start: ctx.data(), end: ctx.data_end() }
    }
}

impl Head for Linear {
    #[inline(always)]
    fn holds<const LEN: usize>(&self) -> bool {
        read::past::<LEN>(self.start) <= self.end
    }

    #[inline(always)]
    fn byte(&self, at: u32) -> u8 {
        // SAFETY: `holds` has compared the end of these bytes with that of the packet.
        unsafe { *((self.start + at as usize) as *const u8) }
    }

    #[inline(always)]
    fn half(&self, at: u32) -> u16 {
        // SAFETY: as in `byte`.
        unsafe { *((self.start + at as usize) as *const u16) }
    }
}

impl Load for Linear {
    #[inline(always)]
    fn ne16(&self, offset: u32) -> Option<u16> {
        let at = self.start + offset as usize;
        // The verifier knows this comparison, not `end - 2` that the compiler would make of it.
        if read::past::<2>(at) > self.end {
            return None;
        }
        // SAFETY: the two bytes lie before the end that the kernel gave for this packet.
        Some(unsafe { *(at as *const u16) })
    }
}

/// Whether a packet is plainly no health check. All that most packets of a host pay.
#[inline(always)]
pub(crate) fn is_foreign(ctx: &TcContext, start: Start) -> bool {
    PREFILTER.get().glance.is_foreign(&Linear::of(ctx), start)
}

/// Stamps a packet that matches a signature.
#[inline(always)]
pub(crate) fn stamp(ctx: &TcContext, direction: Direction, start: Start) {
    if may_match(&Linear::of(ctx), start, PREFILTER.get()) {
        examine(ctx, direction, start);
    }
}

#[inline(always)]
fn examine(ctx: &TcContext, direction: Direction, start: Start) {
    let time_ns = now();
    let Some(scratch) = Scratch::take(direction.slot()) else {
        emit::lose(direction.kind());
        warn!(ctx, "a packet was not looked at: the scratch is in use");
        return;
    };
    let (len, added) = match start {
        Start::Ethernet => (load_frame(ctx, &mut scratch.bytes), 0),
        Start::Network => (load_datagram(ctx, &mut scratch.bytes), ETHERNET),
    };
    if len == 0 {
        warn!(ctx, "a packet was not looked at: its bytes cannot be loaded");
    }
    if scope::recognise(direction.slot(), len, ctx.len() + added, metadata_flags(ctx)) {
        report(ctx, direction, time_ns, &scratch.sighting);
    }
    scratch.give_back();
}

/// Copies the first bytes of a frame, wherever they are; how many.
#[inline(always)]
fn load_frame(ctx: &TcContext, to: &mut [u8; SNAP]) -> u32 {
    load::<{ SNAP as u32 }>(ctx, to.as_mut_ptr())
}

/// As [`load_frame`], of a device without Ethernet headers: one is put before them.
#[inline(always)]
fn load_datagram(ctx: &TcContext, to: &mut [u8; SNAP]) -> u32 {
    let behind = read::link_header(fields(ctx).protocol as u16, to);
    match load::<DATAGRAM>(ctx, behind) {
        0 => 0,
        len => ETHERNET + len,
    }
}

/// Copies at most `MOST` bytes to where there is room for them; how many, 0 if none.
#[inline(always)]
fn load<const MOST: u32>(ctx: &TcContext, to: *mut u8) -> u32 {
    let len = read::within::<MOST>(ctx.len());
    // SAFETY: the caller has room for `MOST` bytes. The helper refuses a packet that is shorter.
    let error = unsafe { bpf_skb_load_bytes(ctx.skb.skb.cast(), 0, to.cast(), len) };
    if error == 0 { len } else { 0 }
}

#[inline(always)]
fn metadata_flags(ctx: &TcContext) -> u16 {
    if fields(ctx).vlan_present != 0 { FLAG_VLAN } else { 0 }
}

#[inline(always)]
fn fields(ctx: &TcContext) -> &__sk_buff {
    // SAFETY: the kernel passes a valid context, whose reads the verifier rewrites.
    unsafe { &*ctx.skb.skb }
}

#[inline(always)]
fn report(ctx: &TcContext, direction: Direction, time_ns: u64, sighting: &Sighting) {
    // The context is the packet's `sk_buff`, whose fields the verifier renames.
    let skb = ctx.skb.skb as u64;
    let seq = emit_at(time_ns, direction.kind(), |body: &mut PacketBody| {
        *body = PacketBody {
            skb,
            netns: netns(skb),
            ifindex: fields(ctx).ifindex,
            queue: queue(ctx, direction),
            sighting: *sighting,
            frame_len: ctx.len(),
            softirq_ns: softirq_ns(direction, time_ns),
        };
    });
    match direction {
        Direction::Ingress if is_macvtap(skb) => enters_ring(skb),
        Direction::Ingress => {
            scope::watch_port(sighting.destination_port);
            arrived(skb, seq, time_ns, sighting);
            accept::look(ctx.skb.skb, fields(ctx).ifindex, seq, sighting);
        }
        Direction::Egress => {
            scope::watch_port(sighting.source_port);
            left(ctx, skb);
        }
    }
}

/// Whether a packet's device is a macvtap: what comes in through one is for a VM.
/// <https://github.com/torvalds/linux/blob/v6.12/drivers/net/macvtap.c> (`macvtap_link_ops`)
#[inline(always)]
fn is_macvtap(skb: u64) -> bool {
    kind(read::untyped(device(skb), offsets().net_device_rtnl_link_ops)) == MACVTAP
}

/// What comes in through a macvtap goes into its ring next, and into no socket of this host.
/// <https://github.com/torvalds/linux/blob/v6.12/drivers/net/tap.c> (`tap_handle_frame`)
#[inline(always)]
fn enters_ring(skb: u64) {
    if let Some(state) = cpu_state() {
        state.forget_rx(skb);
    }
    scope::put_in_ring(skb);
}

/// Namespace cookie of a packet's device; 0 where the packet has none.
#[inline(always)]
pub(crate) fn netns(skb: u64) -> u64 {
    netns_of(device(skb))
}

/// Address of a packet's device; 0 where the packet has none. In a socket's hands the kernel keeps other
/// things in that field, which are no address, and what is read of the device is 0.
/// <https://github.com/torvalds/linux/blob/v6.12/net/ipv4/udp.c#L1473> (`udp_set_dev_scratch`)
#[inline(always)]
pub(crate) fn device(skb: u64) -> u64 {
    read::untyped(skb, offsets().sk_buff_dev)
}

/// Address of the device by which a packet's route leads; 0 where it has no route.
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/skbuff.h#L1115> (`SKB_DST_PTRMASK`)
#[inline(always)]
pub(crate) fn route_device(skb: u64) -> u64 {
    let route: u64 = read::untyped(skb, offsets().sk_buff_skb_refdst);
    read::untyped(route & !1, offsets().dst_entry_dev)
}

/// Cookie of the namespace of the device at an address.
#[inline(always)]
pub(crate) fn netns_of(device: u64) -> u64 {
    let net: u64 = read::untyped(device, offsets().net_device_nd_net);
    read::untyped(net, offsets().net_net_cookie)
}

/// Index of the device at an address.
#[inline(always)]
pub(crate) fn ifindex_of(device: u64) -> u32 {
    read::untyped(device, offsets().net_device_ifindex)
}

#[inline(always)]
fn queue(ctx: &TcContext, direction: Direction) -> u32 {
    match direction {
        Direction::Ingress => fields(ctx).queue_mapping,
        Direction::Egress => 0,
    }
}

/// How long the softirq has run that takes the packet in.
#[inline(always)]
fn softirq_ns(direction: Direction, time_ns: u64) -> u32 {
    match (direction, cpu_state()) {
        (Direction::Ingress, Some(state)) => match state.softirq_start_ns.get() {
            0 => 0,
            start_ns => time_ns.saturating_sub(start_ns) as u32,
        },
        _ => 0,
    }
}

#[inline(always)]
fn arrived(skb: u64, seq: u64, time_ns: u64, sighting: &Sighting) {
    let Some(state) = cpu_state() else { return };
    state.last_rx_skb.set(skb);
    state.last_rx_seq.set(seq);
    state.last_rx_ns.set(time_ns);
    state.last_rx_port.set(sighting.destination_port);
    state.last_rx_protocol.set(u16::from(sighting.protocol));
}

#[inline(always)]
fn left(ctx: &TcContext, skb: u64) {
    if let Some(state) = cpu_state() {
        state.forget_rx(skb);
    }
    scope::watch_skb(skb);
    watch_sender(ctx);
}

/// Watches the local socket that sent the packet, so that the sending call, which has yet to
/// return, tells who it was.
#[inline(always)]
fn watch_sender(ctx: &TcContext) {
    // SAFETY: the union's pointers are all of the same size; this one is only used as a number.
    let sock = unsafe { fields(ctx).__bindgen_anon_2.sk } as u64;
    if sock != 0 {
        // SAFETY: the helper takes the context.
        scope::watch_sock(sock, unsafe { bpf_get_socket_cookie(ctx.skb.skb.cast()) });
    }
}
