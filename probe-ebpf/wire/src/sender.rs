//! Who sends through the transmit queues of watched interfaces: counted, not told packet by packet.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Senders and flows that can be counted between two readings; what finds no room is counted as
/// [`Uncounted`].
pub const MOST_SENT: usize = 2048;
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
    /// Tells the flows apart that are one sender's; 0 for a connected socket, which has one flow.
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
