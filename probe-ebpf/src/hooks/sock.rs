//! Sockets that a health check has reached.

use aya_ebpf::{helpers::bpf_get_current_cgroup_id, programs::BtfTracePointContext};
use probe_wire::{EventKind, OtherCallBody, OtherPeerBody, SendHeldBody, SockCallBody, SockEnqueueBody};

use crate::{
    emit::{emit, now, zero},
    maps::{CpuState, cpu_state},
    read::{self, Typed, offsets},
    scope,
};

const PROTOCOL_ICMP: u16 = 1;
const PROTOCOL_TCP: u16 = 6;
const PROTOCOL_ICMPV6: u16 = 58;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// A packet enters its socket within this long of its coming in, nanoseconds.
const FRESH: u64 = 1_000_000;

/// A `sock`.
#[derive(Clone, Copy)]
struct Sock(Typed);

impl Sock {
    #[inline(always)]
    fn address(self) -> u64 {
        self.0 as u64
    }

    #[inline(always)]
    fn local_port(self) -> u16 {
        read::typed(self.0, offsets().sock_skc_num, 0)
    }

    /// 0 while it is not connected.
    #[inline(always)]
    fn remote_port(self) -> u16 {
        u16::from_be(read::typed(self.0, offsets().sock_skc_dport, 0))
    }

    /// Zeros while it is not connected.
    #[inline(always)]
    fn ipv4_peer(self) -> [u8; 16] {
        let address: u32 = read::typed(self.0, offsets().sock_skc_daddr, 0);
        let mark = if address == 0 { 0 } else { 0xffff_u32.to_be() };
        zerocopy::transmute!([zero() as u32, zero() as u32, mark, address])
    }

    #[inline(always)]
    fn ipv6_peer(self) -> [u8; 16] {
        let at = offsets().sock_skc_v6_daddr;
        let high: u64 = read::untyped(self.address(), at);
        let low: u64 = read::untyped(self.address(), at.saturating_add(8));
        zerocopy::transmute!([high, low])
    }

    #[inline(always)]
    fn family(self) -> u16 {
        read::typed(self.0, offsets().sock_skc_family, 0)
    }

    #[inline(always)]
    fn protocol(self) -> u16 {
        read::typed(self.0, offsets().sock_sk_protocol, 0)
    }

    #[inline(always)]
    fn cookie(self) -> u64 {
        read::socket_cookie(self.0)
    }

    /// Its cookie if it is watched. An entry left by a dead socket at this address is removed.
    #[inline(always)]
    fn watched(self) -> Option<u64> {
        let remembered = scope::watched_sock(self.address())?;
        let cookie = self.cookie();
        if remembered == cookie {
            return Some(cookie);
        }
        scope::unwatch_sock(self.address());
        None
    }
}

/// A packet that this CPU has taken in: address and number of its ingress record.
#[derive(Clone, Copy)]
struct Arrival {
    skb: u64,
    seq: u64,
}

/// `sk_data_ready`: runs in softirq right behind the packet, on the CPU that took it in. Data
/// that the kernel queued while a thread held the socket comes later, and without the packet.
#[inline(always)]
pub(crate) fn data_ready(ctx: &BtfTracePointContext) {
    let sock = Sock(ctx.arg(0));
    if let Some(state) = cpu_state()
        && let Some(arrival) = take_arrival(state, sock)
    {
        let cookie = sock.cookie();
        scope::watch_sock(sock.address(), cookie);
        enqueued(sock, cookie, arrival);
    } else if let Some(cookie) = sock.watched() {
        enqueued(sock, cookie, Arrival { skb: zero(), seq: zero() });
    }
}

/// The newest arrival, if it is for this socket. Every raw ICMP socket gets a copy of a message,
/// so that arrival stays; any other reaches one socket only.
#[inline(always)]
fn take_arrival(state: &CpuState, sock: Sock) -> Option<Arrival> {
    let arrival = Arrival { skb: state.last_rx_skb.get(), seq: state.last_rx_seq.get() };
    let protocol = state.last_rx_protocol.get();
    if arrival.skb == 0 || protocol != sock.protocol() {
        return None;
    }
    if protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6 {
        return Some(arrival);
    }
    if state.last_rx_port.get() != sock.local_port() {
        return None;
    }
    state.last_rx_skb.set(0);
    // An older one waits elsewhere: for a part of its stream, or while a thread holds the socket.
    let is_fresh = now().wrapping_sub(state.last_rx_ns.get()) < FRESH;
    is_fresh.then_some(arrival)
}

#[inline(always)]
fn enqueued(sock: Sock, cookie: u64, arrival: Arrival) {
    emit(EventKind::SockEnqueue, |body: &mut SockEnqueueBody| {
        *body = SockEnqueueBody {
            socket: cookie,
            skb: arrival.skb,
            packet_seq: arrival.seq,
            receive_bytes: read::typed(sock.0, offsets().sock_sk_rmem_alloc, 0),
            receive_limit_bytes: read::typed(sock.0, offsets().sock_sk_rcvbuf, 0),
            local_port: u32::from(sock.local_port()),
            protocol: u32::from(sock.protocol()),
        };
    });
}

/// `sock_recv_length`: runs in the calling thread as the call returns.
#[inline(always)]
pub(crate) fn received(ctx: &BtfTracePointContext) {
    called(ctx, EventKind::SockRead, EventKind::OtherRead);
}

/// `sock_send_length`: runs in the calling thread as the call returns.
#[inline(always)]
pub(crate) fn sent(ctx: &BtfTracePointContext) {
    called(ctx, EventKind::SockSend, EventKind::OtherSend);
}

/// On a watched socket the thread's process is watched from here on; on another one the call is
/// told if it is.
#[inline(always)]
fn called(ctx: &BtfTracePointContext, kind: EventKind, other: EventKind) {
    let sock = Sock(ctx.arg(0));
    let task = read::current_task();
    let tgid = read::typed(task, offsets().task_tgid, 0);
    if let Some(cookie) = sock.watched() {
        scope::watch(tgid);
        called_watched(ctx, kind, sock, cookie, task);
        if kind as u16 == EventKind::SockSend as u16 && sock.protocol() == PROTOCOL_TCP {
            tell_held(sock, cookie);
        }
    } else if scope::is_watched(tgid) {
        called_other(ctx, other, sock);
    }
}

#[inline(always)]
fn called_watched(ctx: &BtfTracePointContext, kind: EventKind, sock: Sock, cookie: u64, task: Typed) {
    emit(kind, |body: &mut SockCallBody| {
        *body = SockCallBody {
            socket: cookie,
            // SAFETY: the helper takes no argument.
            cgroup: unsafe { bpf_get_current_cgroup_id() },
            result: ctx.arg(1),
            flags: ctx.arg(2),
            local_port: u32::from(sock.local_port()),
            protocol: u32::from(sock.protocol()),
            comm: read::name(task, offsets().task_comm),
        };
    });
}

/// What a watched process does with other services. Local sockets and the kernel's own are none.
#[inline(always)]
fn called_other(ctx: &BtfTracePointContext, kind: EventKind, sock: Sock) {
    let family = sock.family();
    if family != AF_INET && family != AF_INET6 {
        return;
    }
    let cookie = sock.cookie();
    if scope::is_peer_untold(sock.address(), cookie) {
        scope::watch_port(sock.local_port());
        tell_peer(sock, cookie, family);
    }
    emit(kind, |body: &mut OtherCallBody| {
        *body = OtherCallBody {
            socket: cookie,
            result: ctx.arg(1),
            flags: ctx.arg(2),
            local_port: u32::from(sock.local_port()),
            remote_port: u32::from(sock.remote_port()),
            protocol: u32::from(sock.protocol()),
            family: u32::from(family),
        };
    });
}

#[inline(always)]
fn tell_peer(sock: Sock, cookie: u64, family: u16) {
    let peer = if family == AF_INET { sock.ipv4_peer() } else { sock.ipv6_peer() };
    emit(EventKind::OtherPeer, |body: &mut OtherPeerBody| {
        *body = OtherPeerBody {
            socket: cookie,
            peer,
            remote_port: u32::from(sock.remote_port()),
            local_port: u32::from(sock.local_port()),
        };
    });
}

/// What a TCP socket holds back, if anything.
#[inline(always)]
fn tell_held(sock: Sock, cookie: u64) {
    let at = offsets();
    let field = |offset| read::untyped::<u32>(sock.address(), offset);
    let next = field(at.tcp_sock_snd_nxt);
    let unsent = field(at.tcp_sock_write_seq).wrapping_sub(next);
    if unsent == 0 {
        return;
    }
    emit(EventKind::SendHeld, |body: &mut SendHeldBody| {
        *body = SendHeldBody {
            socket: cookie,
            unsent,
            in_flight: next.wrapping_sub(field(at.tcp_sock_snd_una)),
            window: field(at.tcp_sock_snd_wnd),
            packets_out: field(at.tcp_sock_packets_out),
            congestion_window: field(at.tcp_sock_snd_cwnd),
            segment: field(at.tcp_sock_mss_cache),
        };
    });
}
