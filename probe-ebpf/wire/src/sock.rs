//! Sockets that carry health checks.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Data entered the receive queue of a watched socket. A socket becomes watched with the first
/// matching packet that reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SockEnqueueBody {
    /// Socket cookie: never reused while the host is up.
    pub socket: u64,
    /// `sk_buff` address of the matching packet that this CPU took in just before, for this
    /// port; 0 when the data is not a matching packet.
    pub skb: u64,
    /// `EventHeader::seq` of that packet's ingress record on the same CPU; 0 if none.
    pub packet_seq: u64,
    /// Bytes of receive memory charged to the socket now (`sk_rmem_alloc`).
    pub receive_bytes: u32,
    /// Receive limit in bytes (`sk_rcvbuf`).
    pub receive_limit_bytes: u32,
    /// Local port, host order.
    pub local_port: u32,
    /// IP protocol number.
    pub protocol: u32,
}

/// A receive or send call on a watched socket returned; the header's thread made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SockCallBody {
    /// Socket cookie.
    pub socket: u64,
    /// cgroup v2 id of the thread, 0 if unknown.
    pub cgroup: u64,
    /// What the call returned: bytes, or a negated errno.
    pub result: i32,
    /// `MSG_*` flags of the call.
    pub flags: u32,
    /// Local port, host order.
    pub local_port: u32,
    /// IP protocol number.
    pub protocol: u32,
    /// Name of the thread, NUL-padded.
    pub comm: [u8; 16],
}

/// A receive or send call of a watched process on another internet socket returned; the header's
/// thread made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OtherCallBody {
    /// Socket cookie.
    pub socket: u64,
    /// What the call returned: bytes, or a negated errno.
    pub result: i32,
    /// `MSG_*` flags of the call.
    pub flags: u32,
    /// Local port, host order.
    pub local_port: u32,
    /// Port of the peer it is connected to, host order; 0 if it is not connected.
    pub remote_port: u32,
    /// IP protocol number.
    pub protocol: u32,
    /// Address family, `AF_INET` or `AF_INET6`.
    pub family: u32,
}

/// A matching connection request came in for a listener of this host whose accept queue was full
/// then: the kernel ignores such a request, without a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AcceptFullBody {
    /// Cookie of the listener; 0 if it has none yet.
    pub socket: u64,
    /// `sk_buff` address of the request.
    pub skb: u64,
    /// `EventHeader::seq` of its ingress record on the same CPU.
    pub packet_seq: u64,
    /// Connections that wait to be accepted (`sk_ack_backlog`).
    pub waiting: u32,
    /// Most that may wait (`sk_max_ack_backlog`); one more fits in.
    pub limit: u32,
    /// Connections whose handshake is not complete.
    pub half_open: u32,
    /// Port of the listener, host order.
    pub local_port: u32,
}

/// The peer of an internet socket on which a watched process sends, and which carries no checks.
/// Told once for each socket, before the first call on it that is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OtherPeerBody {
    /// Socket cookie.
    pub socket: u64,
    /// Address of the peer; IPv4 as `::ffff:a.b.c.d`, zeros if it is not connected.
    pub peer: [u8; 16],
    /// Port of the peer, host order; 0 if it is not connected.
    pub remote_port: u32,
    /// Local port, host order.
    pub local_port: u32,
}

/// A send call on a watched TCP socket returned, and the kernel holds data that it has not sent;
/// the header's thread made the call. Stands right behind its record of [`SockCallBody`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SendHeldBody {
    /// Socket cookie.
    pub socket: u64,
    /// Bytes that have not been sent.
    pub unsent: u32,
    /// Bytes that have been sent and not acknowledged.
    pub in_flight: u32,
    /// Bytes that the peer has room for, from the first not acknowledged on (`snd_wnd`).
    pub window: u32,
    /// Packets that have been sent and not acknowledged.
    pub packets_out: u32,
    /// Most packets that the congestion control allows to be so.
    pub congestion_window: u32,
    /// Bytes of a full segment.
    pub segment: u32,
}
