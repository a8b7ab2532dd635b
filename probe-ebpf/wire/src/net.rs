//! Packets: seen at an interface, in a queueing discipline, at a driver, or dropped.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The packet is a request: its destination port, or its pattern, says so.
pub const ROLE_REQUEST: u8 = 1;
/// The packet is a reply.
pub const ROLE_REPLY: u8 = 2;
/// Request and reply look the same; the first of a pair is the request.
pub const ROLE_EITHER: u8 = 3;

/// A VLAN tag, in the frame or in the packet's metadata.
pub const FLAG_VLAN: u16 = 1;
/// The match is inside VXLAN, Geneve, GRE or IPIP.
pub const FLAG_TUNNEL: u16 = 1 << 1;
/// First fragment of an IP datagram.
pub const FLAG_FRAGMENT: u16 = 1 << 2;

/// [`DropBody::signature_known`] of a drop whose packet could not be parsed but whose address
/// was being watched.
pub const DROP_UNPARSED: u8 = 0;

/// [`DropBody::signature_known`] of a drop whose packet matches no signature, but has a port that
/// is watched. Its sighting tells addresses, ports, protocol and what TCP says of the segment.
pub const DROP_OF_PORT: u8 = 2;

/// As [`DROP_OF_PORT`], of the last that this CPU tells in its stretch of [`DROP_STRETCH_NS`]: more of
/// them may have followed.
pub const DROP_OF_PORT_LAST: u8 = 3;

/// Stretch of `CLOCK_MONOTONIC` in which a CPU tells a bounded number of drops for their port alone.
pub const DROP_STRETCH_NS: u64 = 1 << 27;

/// What the parser found in a packet that matches a signature. Addresses and ports are those of
/// the innermost header, numbers are in host order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sighting {
    /// Source address; IPv4 as `::ffff:a.b.c.d`.
    pub source: [u8; 16],
    /// Destination address; IPv4 as `::ffff:a.b.c.d`.
    pub destination: [u8; 16],
    /// The rule's nonce, left-aligned and zero-padded; zeros when the rule has none.
    pub nonce: [u8; 16],
    /// TCP sequence number; 0 otherwise.
    pub tcp_seq: u32,
    /// TCP acknowledgement number; 0 otherwise.
    pub tcp_ack: u32,
    /// Bytes of UDP or TCP payload, or of the ICMP message.
    pub payload_len: u32,
    /// Source port; 0 for ICMP.
    pub source_port: u16,
    /// Destination port; 0 for ICMP.
    pub destination_port: u16,
    /// `FLAG_*` bits.
    pub flags: u16,
    /// IPv4 identification; 0 for IPv6. Tells a duplicate on the wire from a retransmission.
    pub ip_id: u16,
    /// Index into [`Settings::rules`](crate::Settings).
    pub rule: u8,
    /// `ROLE_*`.
    pub role: u8,
    /// IP protocol number: 1, 6, 17 or 58.
    pub protocol: u8,
    /// TCP flags byte; 0 otherwise.
    pub tcp_flags: u8,
}

/// A matching packet at a hooked interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PacketBody {
    /// Kernel address of the packet's `sk_buff`: its identity while it stays on this host.
    pub skb: u64,
    /// Cookie of the interface's network namespace.
    pub netns: u64,
    /// Interface index in that namespace.
    pub ifindex: u32,
    /// Receive queue plus 1 on ingress, 0 if unknown; on egress the queue is not chosen yet.
    pub queue: u32,
    /// What was recognised.
    pub sighting: Sighting,
    /// Bytes of the frame as the hook saw it.
    pub frame_len: u32,
    /// On ingress, how long the softirq that takes it in has been running, nanoseconds; 0 outside
    /// softirq, or where its begin was not seen.
    pub softirq_ns: u32,
}

/// A watched packet entering or leaving a queueing discipline. Counters are the discipline's
/// own at that moment; `u32::MAX` where the kernel keeps them per CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QdiscBody {
    /// Kernel address of the packet's `sk_buff`.
    pub skb: u64,
    /// Network namespace cookie of the device.
    pub netns: u64,
    /// Device.
    pub ifindex: u32,
    /// Handle of the discipline, `major << 16 | minor`.
    pub handle: u32,
    /// Packets waiting in it.
    pub queue_len: u32,
    /// Bytes waiting in it.
    pub backlog_bytes: u32,
    /// `overlimits`: it held packets back on purpose.
    pub overlimits: u32,
    /// `requeues`: the device refused packets.
    pub requeues: u32,
    /// `drops`.
    pub drops: u32,
    /// `netdev_queue.state` bits: 1 stopped by the driver, 2 stopped by BQL, 4 frozen.
    pub queue_state: u32,
    /// Kind, such as `tbf`, NUL-padded.
    pub kind: [u8; 16],
}

/// In [`XmitBody::queue`]: the device is a bond, a VLAN or another that stands on devices of this
/// host, and hands the packet on to one of them.
pub const XMIT_HANDS_ON: u32 = 1 << 31;

/// A watched packet handed to a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct XmitBody {
    /// Kernel address of the packet's `sk_buff`.
    pub skb: u64,
    /// Network namespace cookie of the device.
    pub netns: u64,
    /// Device.
    pub ifindex: u32,
    /// Transmit queue, perhaps with [`XMIT_HANDS_ON`].
    pub queue: u32,
}

/// A watched packet that was handed to a tap was taken out of its ring; the header's thread, of
/// the VMM or vhost, took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BackendRxBody {
    /// Kernel address of the packet's `sk_buff`.
    pub skb: u64,
    /// Network namespace cookie of the tap.
    pub netns: u64,
    /// Address in the kernel that freed the packet; 0 where the kernel does not tell.
    pub location: u64,
    /// The tap.
    pub ifindex: u32,
    /// Always 0.
    pub reserved: u32,
}

/// A neighbour that was being asked for has answered, or was set: packets that waited for its link
/// address go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NeighbourBody {
    /// Network namespace cookie of the device.
    pub netns: u64,
    /// Device on which it is a neighbour.
    pub ifindex: u32,
    /// Its new state, `NUD_*` of `linux/neighbour.h`.
    pub state: u32,
}

/// A matching packet, or one of a watched port, that the kernel dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DropBody {
    /// Kernel address of the packet's `sk_buff`.
    pub skb: u64,
    /// Network namespace cookie of the device, 0 if the packet had none.
    pub netns: u64,
    /// Address in the kernel that dropped it.
    pub location: u64,
    /// Device, 0 if none; that of its route, where the packet was made on this host and had none yet.
    pub ifindex: u32,
    /// `enum skb_drop_reason` of the running kernel.
    pub reason: u32,
    /// What was recognised; zeros with [`DROP_UNPARSED`], no rule with [`DROP_OF_PORT`].
    pub sighting: Sighting,
    /// 1 when the packet matches a signature, else [`DROP_UNPARSED`],
    /// [`DROP_OF_PORT`] or [`DROP_OF_PORT_LAST`].
    pub signature_known: u8,
    /// 1 when the packet came in through no device: it was made on this host. 0 in recordings of older
    /// versions.
    pub own: u8,
    /// The queue that the packet was mapped to (`skb->queue_mapping`), plus 1: in a queueing discipline that
    /// of the transmit queue, elsewhere whatever was there. 0 in recordings of older versions.
    pub queue_mapping: u16,
    /// Always 0.
    pub reserved: [u8; 4],
}
