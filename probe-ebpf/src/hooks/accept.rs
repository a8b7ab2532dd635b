//! Connection requests that find no room at their listener.
//!
//! The kernel ignores them without a drop: it answers nothing and frees them as used up.

use core::{mem, ptr};

use aya_ebpf::{
    bindings::{__sk_buff, bpf_fib_lookup, bpf_sock_tuple},
    helpers::generated::{bpf_fib_lookup as fib_lookup, bpf_sk_release, bpf_skc_lookup_tcp, bpf_skc_to_tcp_sock},
};
use probe_wire::{AcceptFullBody, EventKind, FLAG_TUNNEL, Sighting, UNKNOWN_OFFSET};

use crate::{
    emit::{emit, zero},
    read::{self, Typed, offsets},
};

const TCP: u8 = 6;
const SYN: u8 = 2;
const ACK: u8 = 16;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// `TCP_LISTEN`. A half-open connection has a socket of its own, which answers a copy of its request.
const LISTEN: u32 = 10;
/// `BPF_F_CURRENT_NETNS`.
const THIS_NETNS: u64 = u64::MAX;
/// `BPF_FIB_LKUP_RET_NOT_FWDED` and `BPF_FIB_LKUP_RET_FWD_DISABLED`: for this host, if for anyone.
const NOT_FORWARDED: i64 = 4;
const FORWARDING_OFF: i64 = 5;

/// Queues of a listener.
#[derive(Clone, Copy)]
struct Queues {
    socket: u64,
    waiting: u32,
    limit: u32,
    half_open: u32,
}

/// Reports a connection request for this host whose listener has a full accept queue. `seq` is the
/// number of its ingress record.
#[inline(always)]
pub(crate) fn look(skb: *mut __sk_buff, ifindex: u32, seq: u64, sighting: &Sighting) {
    let asks = sighting.protocol == TCP && sighting.tcp_flags & (SYN | ACK) == SYN;
    if asks && sighting.flags & FLAG_TUNNEL == 0 && offsets().sock_sk_ack_backlog != UNKNOWN_OFFSET {
        look_closely(skb, ifindex, seq, sighting);
    }
}

/// Apart, so that other packets save no registers for it.
#[inline(never)]
fn look_closely(skb: *mut __sk_buff, ifindex: u32, seq: u64, sighting: &Sighting) {
    let Some(queues) = listener(skb, sighting) else { return };
    // <https://github.com/torvalds/linux/blob/v6.12/include/net/sock.h#L1015> (`sk_acceptq_is_full`)
    if queues.waiting > queues.limit && is_for_this_host(skb, ifindex, sighting) {
        let Queues { socket, waiting, limit, half_open } = queues;
        emit(EventKind::AcceptFull, |body: &mut AcceptFullBody| {
            *body = AcceptFullBody {
                socket,
                skb: skb as u64,
                packet_seq: seq,
                waiting,
                limit,
                half_open,
                local_port: u32::from(sighting.destination_port),
            };
        });
    }
}

/// Queues of the listener that a request is for, if there is one in the interface's namespace.
#[inline(always)]
fn listener(skb: *mut __sk_buff, sighting: &Sighting) -> Option<Queues> {
    // SAFETY: any bytes are a value of it.
    let mut tuple: bpf_sock_tuple = unsafe { mem::transmute([zero() as u32; size_of::<bpf_sock_tuple>() / 4]) };
    let (source, destination) = (words(&sighting.source), words(&sighting.destination));
    let (sport, dport) = (sighting.source_port.to_be(), sighting.destination_port.to_be());
    // SAFETY: fields of a union of plain integers; the kernel takes the one that the size names.
    let size = unsafe {
        if is_ipv4(&source) {
            let to = &mut tuple.__bindgen_anon_1.ipv4;
            (to.saddr, to.daddr, to.sport, to.dport) = (source[3], destination[3], sport, dport);
            size_of_val(to)
        } else {
            let to = &mut tuple.__bindgen_anon_1.ipv6;
            (to.saddr, to.daddr, to.sport, to.dport) = (source, destination, sport, dport);
            size_of_val(to)
        }
    };
    // SAFETY: the context and a tuple of this size.
    let sock = unsafe { bpf_skc_lookup_tcp(skb.cast(), &raw mut tuple, size as u32, THIS_NETNS, 0) };
    if sock.is_null() {
        return None;
    }
    // SAFETY: the socket is ours until it is given back; the verifier rewrites the read.
    let state = unsafe { ptr::read_volatile(&raw const (*sock).state) };
    // SAFETY: the socket is ours until it is given back.
    let tcp: Typed = unsafe { bpf_skc_to_tcp_sock(sock.cast()) }.cast_const().cast();
    let queues = if state == LISTEN && !tcp.is_null() { Some(queues(tcp)) } else { None };
    // SAFETY: the lookup gave it, and this is the one place where it is given back.
    unsafe { bpf_sk_release(sock.cast()) };
    queues
}

#[inline(always)]
fn queues(tcp: Typed) -> Queues {
    let at = offsets();
    Queues {
        socket: read::typed(tcp, at.sock_skc_cookie, 0),
        waiting: read::typed(tcp, at.sock_sk_ack_backlog, 0),
        limit: read::typed(tcp, at.sock_sk_max_ack_backlog, u32::MAX),
        half_open: read::typed(tcp, at.icsk_accept_queue_qlen, 0),
    }
}

/// Whether the routing table does not send it elsewhere: a wildcard listener fits any address.
#[inline(always)]
fn is_for_this_host(skb: *mut __sk_buff, ifindex: u32, sighting: &Sighting) -> bool {
    // SAFETY: any bytes are a value of it.
    let mut route: bpf_fib_lookup = unsafe { mem::transmute([zero(); size_of::<bpf_fib_lookup>() / 8]) };
    let (source, destination) = (words(&sighting.source), words(&sighting.destination));
    let ipv4 = is_ipv4(&source);
    route.family = if ipv4 { AF_INET } else { AF_INET6 };
    route.l4_protocol = TCP;
    route.ifindex = ifindex;
    if ipv4 {
        route.__bindgen_anon_3.ipv4_src = source[3];
        route.__bindgen_anon_4.ipv4_dst = destination[3];
    } else {
        route.__bindgen_anon_3.ipv6_src = source;
        route.__bindgen_anon_4.ipv6_dst = destination;
    }
    // SAFETY: the context and parameters of this size.
    let result = unsafe { fib_lookup(skb.cast(), &raw mut route, size_of::<bpf_fib_lookup>() as i32, zero() as u32) };
    result == NOT_FORWARDED || result == FORWARDING_OFF
}

/// An address as the kernel has it in four words.
#[inline(always)]
fn words(address: &[u8; 16]) -> [u32; 4] {
    zerocopy::transmute!(*address)
}

#[inline(always)]
fn is_ipv4(address: &[u32; 4]) -> bool {
    address[0] == 0 && address[1] == 0 && address[2] == 0xffff_u32.to_be()
}
