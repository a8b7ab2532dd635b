//! Who sends through the transmit queues of watched interfaces.
//!
//! The queue is known for sure, and the packet was not dropped before it, only where it is handed
//! to the driver; that may be on another CPU, in softirq, long after it was sent. Who sent it is
//! known at the egress hook, in the sending thread's call. The socket's cookie joins the two.

use core::mem::MaybeUninit;

use aya_ebpf::{
    helpers::{bpf_get_socket_cookie, generated::bpf_probe_read_kernel},
    programs::TcContext,
};
use probe_wire::{Sender, SentCount, SentKey};

use crate::{
    atomic,
    emit::zero,
    hooks::packet::Device,
    maps::{KNOWN_SENDERS, KNOWN_SENDERS_KEPT, KnownSender, SENDERS, SENT, SETTINGS, TURN, UNCOUNTED, cpu_state},
    read::{self, Typed, offsets},
    scope,
};

/// `skb->protocol` as it lies in memory.
const IPV4: u16 = 0x0800_u16.to_be();
const IPV6: u16 = 0x86dd_u16.to_be();
/// IP protocols whose headers begin with two ports.
const WITH_PORTS: [u32; 3] = [6, 17, 132];
/// `PF_KTHREAD`: a thread of the kernel sends for others.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// A large odd number, to spread the bits of addresses.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Remembers who sends through the packet's socket.
#[inline(always)]
pub(crate) fn learn(ctx: &TcContext) {
    if SETTINGS.get().senders == 0 {
        return;
    }
    // SAFETY: the helper takes the context.
    let socket = unsafe { bpf_get_socket_cookie(ctx.skb.skb.cast()) };
    let Some(known) = KNOWN_SENDERS.get(socket as u32 % KNOWN_SENDERS_KEPT) else { return };
    let tgid = read::typed::<u32>(read::current_task(), offsets().task_tgid, 0);
    if socket != 0 && (known.socket.get() != socket || known.tgid.get() != u64::from(tgid)) {
        remember(socket, tgid, known);
    }
}

/// What few packets need is a function of its own.
#[inline(never)]
fn remember(socket: u64, tgid: u32, known: &KnownSender) {
    let task = read::current_task();
    let in_softirq = cpu_state().is_none_or(|state| state.softirq.get() != 0);
    if in_softirq || !read::is_task(task as u64) {
        return;
    }
    let at = offsets();
    if read::typed::<u32>(task, at.task_flags, KERNEL_THREAD) & KERNEL_THREAD != 0 {
        return;
    }
    let mut shared = 0;
    if let Some(before) = SENDERS.get_ptr(socket) {
        // SAFETY: the entry is not freed while the program runs; if the LRU reuses it meanwhile,
        // this one is written anew.
        let before = unsafe { &*before };
        shared = before.shared;
        if before.tgid != tgid {
            shared = 1;
        }
    }
    let sender = Sender {
        start_time_ns: read::typed(task, at.task_start_time, 0),
        comm: read::name(task, at.task_comm),
        tgid,
        tid: read::typed(task, at.task_pid, 0),
        shared,
        reserved: zero() as u32,
    };
    if SENDERS.insert(socket, sender, 0).is_ok() {
        known.socket.set(socket);
        known.tgid.set(tgid.into());
    }
}

/// Counts a packet that is handed to the driver of a watched interface.
#[inline(always)]
pub(crate) fn count(skb: Typed, device: Device) {
    let ifindex = device.ifindex();
    if SETTINGS.get().senders == 0 || !scope::is_watched_device(ifindex) {
        return;
    }
    let Some(turn) = TURN.get_ptr(0) else { return };
    let at = offsets();
    let sock = read::typed_pointer(skb, at.sk_buff_sk);
    let socket = read::typed(sock, at.sock_skc_cookie, 0);
    // A connected socket has one flow, which is looked at once.
    let connected = read::typed::<u16>(sock, at.sock_skc_dport, 0) != 0;
    let key = SentKey {
        netns: device.netns(),
        socket,
        flow: if connected { 0 } else { Ends::of(skb).hash() },
        ifindex,
        queue: read::typed::<u16>(skb, at.sk_buff_queue_mapping, 0).into(),
        came_in: if sock.is_null() { read::typed(skb, at.sk_buff_skb_iif, 0) } else { zero() as u32 },
        // SAFETY: the collector may write the word meanwhile, so it is read once, as it then is.
        turn: unsafe { turn.read_volatile() } % 2,
    };
    let bytes = read::typed::<u32>(skb, at.sk_buff_len, 0).into();
    match SENT.get_ptr_mut(key) {
        Some(count) => add(count, bytes),
        None => begin(skb, &key, bytes),
    }
}

/// Adds a packet. Programs of one CPU interrupt each other here too: process and softirq.
#[inline(always)]
fn add(count: *mut SentCount, bytes: u64) {
    // SAFETY: the counters lie in this CPU's map slot and are only ever written atomically.
    unsafe {
        atomic::add(&raw mut (*count).packets, 1);
        atomic::add(&raw mut (*count).bytes, bytes);
    }
}

/// Counts the first packet of a sender or flow.
#[inline(never)]
fn begin(skb: Typed, key: &SentKey, bytes: u64) {
    let ends = Ends::of(skb);
    let ports = u32::from_be(ends.ports);
    let count = SentCount {
        packets: 1,
        bytes,
        source: zerocopy::transmute!(ends.source),
        destination: zerocopy::transmute!(ends.destination),
        source_port: (ports >> 16) as u16,
        destination_port: ports as u16,
        protocol: ends.protocol,
    };
    if SENT.insert(key, count, 0).is_err()
        && let Some(uncounted) = UNCOUNTED.get_ptr_mut(0)
    {
        // SAFETY: as in `add`.
        unsafe {
            atomic::add(&raw mut (*uncounted).packets, 1);
            atomic::add(&raw mut (*uncounted).bytes, bytes);
        }
    }
}

/// Addresses, ports and protocol of a packet, as they lie in it.
struct Ends {
    source: [u64; 2],
    destination: [u64; 2],
    ports: u32,
    protocol: u32,
}

impl Ends {
    /// Zeros where the packet is no IP, and no ports where it has none or they are not in it.
    #[inline(always)]
    fn of(skb: Typed) -> Self {
        let at = offsets();
        let head: u64 = read::untyped(skb as u64, at.sk_buff_head);
        let header = head + u64::from(read::typed::<u16>(skb, at.sk_buff_network_header, 0));
        match read::typed::<u16>(skb, at.sk_buff_protocol, 0) {
            IPV4 => Self::of_ipv4(&words::<6>(header)),
            IPV6 => Self::of_ipv6(&words::<11>(header)),
            _ => Self { source: [zero(), zero()], destination: [zero(), zero()], ports: 0, protocol: 0 },
        }
    }

    #[inline(always)]
    fn of_ipv4(words: &[u32; 6]) -> Self {
        let [first, second, third, source, destination, ports] = words.map(u32::from_be);
        let mapped = |address: u32| [zero(), u64::from(address.to_be()) << 32 | 0xffff_0000];
        let is_first = second & 0x1fff == 0;
        let protocol = third >> 16 & 0xff;
        let with_ports = first >> 24 == 0x45 && is_first && has_ports(protocol);
        Self {
            source: mapped(source),
            destination: mapped(destination),
            ports: if with_ports { ports.to_be() } else { 0 },
            protocol,
        }
    }

    #[inline(always)]
    fn of_ipv6(words: &[u32; 11]) -> Self {
        let pair = |low: usize| u64::from(words[low]) | u64::from(words[low + 1]) << 32;
        let protocol = u32::from_be(words[1]) >> 8 & 0xff;
        Self {
            source: [pair(2), pair(4)],
            destination: [pair(6), pair(8)],
            ports: if has_ports(protocol) { words[10] } else { 0 },
            protocol,
        }
    }

    /// Never 0.
    #[inline(always)]
    fn hash(&self) -> u64 {
        let source = self.source[0].wrapping_mul(SPREAD) ^ self.source[1];
        let destination = self.destination[0].wrapping_mul(SPREAD) ^ self.destination[1];
        let ends = (source.wrapping_mul(SPREAD) ^ destination).wrapping_mul(SPREAD);
        ((ends ^ u64::from(self.ports) << 8 ^ u64::from(self.protocol)).wrapping_mul(SPREAD) ^ ends >> 29) | 1
    }
}

#[inline(always)]
fn has_ports(protocol: u32) -> bool {
    protocol == WITH_PORTS[0] || protocol == WITH_PORTS[1] || protocol == WITH_PORTS[2]
}

/// Words at a kernel address; zeros on a fault.
#[inline(always)]
fn words<const COUNT: usize>(from: u64) -> [u32; COUNT] {
    let mut words = MaybeUninit::<[u32; COUNT]>::uninit();
    let size = size_of::<[u32; COUNT]>() as u32;
    // SAFETY: there is room for as much; the helper writes all of it, zeros on a fault, and any
    // bytes are words.
    unsafe {
        bpf_probe_read_kernel(words.as_mut_ptr().cast(), size, from as *const _);
        words.assume_init()
    }
}
