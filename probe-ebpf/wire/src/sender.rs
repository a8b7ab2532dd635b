//! Who sends through the transmit queues of watched interfaces: counted, not told packet by packet.

use crate::Sampler;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Senders and flows that can be counted between two readings. Packets of a sender that finds no room
/// are counted as [`Uncounted`]; those of a flow are in its sender's count alone.
pub const MOST_SENT: usize = 2048;
/// Senders that a CPU counts in a turn without looking for them; a power of two.
pub const NEAR_SENDERS: usize = 128;
/// Sockets whose sender is remembered; the one used longest ago makes room.
pub const MOST_SENDERS: usize = 16_384;
/// Bits of the set of watched interfaces, by index modulo this. One bit can stand for several: the
/// collector leaves out what it does not watch.
pub const DEVICE_BITS: u32 = 65_536;

/// Whose packets on which queue. An entry of the map counts between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SentKey {
    /// Cookie of the interface's network namespace.
    pub netns: u64,
    /// Cookie of the socket that sent; 0 where the packet has none, or one without a cookie.
    pub socket: u64,
    /// 0 for all that a sender sends. Of what does not go through a connected socket, another number
    /// for each flow besides: then this entry is a part of the other.
    pub flow: u64,
    /// Interface.
    pub ifindex: u32,
    /// Transmit queue.
    pub queue: u32,
    /// Without a socket, index of the interface through which the packet came into the host, in its
    /// namespace; 0 if it did not.
    pub came_in: u32,
    /// 0 or 1: whether the entry belongs to an even or an odd reading.
    pub turn: u32,
}

/// What was handed to the driver, on one CPU.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SentCount {
    /// Packets; several segments that the device is to cut apart are one.
    pub packets: u64,
    /// Their bytes, link header included.
    pub bytes: u64,
    /// Variance of the bytes, at most; 0 where each packet was counted. [`variance`](crate::variance)
    pub squares: u64,
    /// Source address; IPv4 as `::ffff:a.b.c.d`. Zeros in the counts of the other CPUs.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// Source port, 0 without one.
    pub source_port: u16,
    /// Destination port, 0 without one.
    pub destination_port: u16,
    /// IP protocol; 0 if it is no IP.
    pub protocol: u32,
}

/// A sender that one CPU counts in one turn, packet by packet: what a [`SentKey`] without a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NearSender {
    /// Address of the interface's device.
    pub device: u64,
    /// Cookie of the interface's network namespace.
    pub netns: u64,
    /// Cookie of the socket; without one, [`CAME_IN`] and the index of the interface through which the
    /// packets came in.
    pub who: u64,
    /// Packets; 0 if the place has never been taken.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Interface.
    pub ifindex: u32,
    /// Transmit queue.
    pub queue: u32,
    /// The number of the turn, not modulo 2; in any other the place is free.
    pub turn: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Bit of [`NearSender::who`] that no socket's cookie has: the kernel counts them from 1 on.
pub const CAME_IN: u64 = 1 << 63;

impl NearSender {
    /// The entry of the map that the place is a part of.
    #[must_use]
    pub const fn key(&self) -> SentKey {
        let Self { netns, who, ifindex, queue, turn, .. } = *self;
        let (socket, came_in) = if who & CAME_IN == 0 { (who, 0) } else { (0, (who & 0xffff_ffff) as u32) };
        SentKey { netns, socket, flow: 0, ifindex, queue, came_in, turn: turn % 2 }
    }
}

/// What one CPU counts in the even or in the odd turns.
///
/// The first senders of a turn have a place each, by a hash. The others are counted in the map of
/// [`SentKey`], and so are flows: what that takes is bounded by the [`Sampler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NearSenders {
    /// Which packets are looked for in the map.
    pub sampler: Sampler,
    /// The places.
    pub senders: [NearSender; NEAR_SENDERS],
}

/// Packets that found no room among the senders, on one CPU since attach.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Uncounted {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The thread that sends through a socket: the one seen last to call from the process that did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sender {
    /// When the thread began.
    pub start_time_ns: u64,
    /// Its name, NUL-padded.
    pub comm: [u8; 16],
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// 1 if several processes have sent through the socket.
    pub shared: u32,
    /// Always 0.
    pub reserved: u32,
}
