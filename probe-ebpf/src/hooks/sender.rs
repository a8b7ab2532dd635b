//! Who sends through the transmit queues of watched interfaces.
//!
//! The queue is known for sure, and the packet was not dropped before it, only where it is handed
//! to the driver; that may be on another CPU, in softirq, long after it was sent. Who sent it is
//! known at the egress hook, in the sending thread's call. The socket's cookie joins the two.

use core::mem::MaybeUninit;

use aya_ebpf::{
    helpers::{
        bpf_get_socket_cookie,
        generated::{bpf_get_prandom_u32, bpf_probe_read_kernel},
    },
    programs::TcContext,
};
use probe_wire::{CAME_IN, NEAR_SENDERS, NearSender, NearSenders, Sender, SentCount, SentKey, variance};

use crate::{
    emit::zero,
    hooks::packet::Device,
    maps::{KNOWN_SENDERS, KNOWN_SENDERS_KEPT, KnownSender, NEAR, SENDERS, SENT, SETTINGS, TURN, UNCOUNTED, cpu_state},
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
///
/// The kernel comes here with softirqs and preemption held off, and does not let a program of a
/// tracepoint interrupt itself, so what this CPU counts is nobody else's meanwhile.
/// <https://github.com/torvalds/linux/blob/v6.12/net/core/dev.c#L4370> (`__dev_queue_xmit`)
#[inline(always)]
pub(crate) fn count(skb: Typed, device: Device) {
    let ifindex = device.ifindex();
    if SETTINGS.get().senders == 0 || !scope::is_watched_device(ifindex) {
        return;
    }
    let turn = TURN.get(0) as u32;
    let Some(near) = NEAR.get_ptr_mut(turn % 2) else { return };
    // SAFETY: the slot is this CPU's, and this program's alone while it runs.
    let near = unsafe { &mut *near };
    let packet = Packet::of(skb, device, turn);
    let is_counted = packet.add_near(near);
    // A connected socket has one flow.
    if is_counted && packet.is_connected() {
        return;
    }
    if !near.sampler.is_of(turn) {
        // SAFETY: the helper takes no argument.
        near.sampler.begin(turn, unsafe { bpf_get_prandom_u32() });
    }
    let weight = near.sampler.weigh();
    if weight > 0 || !is_counted {
        closely(skb, device.0, near, weight, is_counted);
    }
}

/// What most packets need not: the first of a sender, those of senders without a place, and those
/// whose flow is looked at. The packet stands for `weight`.
#[inline(never)]
fn closely(skb: Typed, device: Typed, near: &mut NearSenders, weight: u32, is_counted: bool) {
    let packet = Packet::of(skb, Device(device), near.sampler.turn());
    let key = packet.key();
    let is_counted = is_counted || packet.take_place(near, &key);
    if weight == 0 {
        return;
    }
    if !is_counted && !add(skb, &key, weight, packet.bytes()) {
        miss(weight, packet.bytes());
    }
    if !packet.is_connected() {
        add(skb, &SentKey { flow: Ends::of(skb).hash(), ..key }, weight, packet.bytes());
    }
}

/// A packet that is handed to the driver.
struct Packet {
    skb: Typed,
    device: Device,
    sock: Typed,
    /// As in [`NearSender`].
    who: u64,
    turn: u32,
}

impl Packet {
    #[inline(always)]
    fn of(skb: Typed, device: Device, turn: u32) -> Self {
        let at = offsets();
        let sock = read::typed_pointer(skb, at.sk_buff_sk);
        let who = match read::typed(sock, at.sock_skc_cookie, 0) {
            0 if sock.is_null() => CAME_IN | u64::from(read::typed::<u32>(skb, at.sk_buff_skb_iif, 0)),
            0 => CAME_IN,
            socket => socket,
        };
        Self { skb, device, sock, who, turn }
    }

    #[inline(always)]
    fn bytes(&self) -> u64 {
        read::typed::<u32>(self.skb, offsets().sk_buff_len, 0).into()
    }

    #[inline(always)]
    fn queue(&self) -> u32 {
        read::typed::<u16>(self.skb, offsets().sk_buff_queue_mapping, 0).into()
    }

    /// Whether its socket sends to one peer alone.
    #[inline(always)]
    fn is_connected(&self) -> bool {
        read::typed::<u16>(self.sock, offsets().sock_skc_dport, 0) != 0
    }

    /// What it is counted under, whatever its flow.
    #[inline(always)]
    fn key(&self) -> SentKey {
        let came_in = self.who & CAME_IN != 0;
        SentKey {
            netns: self.device.netns(),
            socket: if came_in { zero() } else { self.who },
            flow: zero(),
            ifindex: self.device.ifindex(),
            queue: self.queue(),
            came_in: if came_in { self.who as u32 } else { zero() as u32 },
            turn: self.turn % 2,
        }
    }

    /// Where its sender is, if it has a place.
    #[inline(always)]
    fn place<'a>(&self, near: &'a mut NearSenders) -> &'a mut NearSender {
        let of = self.who ^ u64::from(self.device.ifindex()) << 32 ^ u64::from(self.queue()) << 48;
        let place = (of.wrapping_mul(SPREAD) >> (u64::BITS - NEAR_SENDERS.trailing_zeros())) as usize;
        // SAFETY: the number has no more bits than there are places.
        unsafe { near.senders.get_unchecked_mut(place) }
    }

    /// Counts it, if its sender has a place.
    #[inline(always)]
    fn add_near(&self, near: &mut NearSenders) -> bool {
        let known = self.place(near);
        let is_same = known.who == self.who
            && known.turn == self.turn
            && known.device == self.device.0 as u64
            && known.ifindex == self.device.ifindex()
            && known.queue == self.queue()
            // A socket belongs to one namespace; the address of a device may be used again.
            && (known.who & CAME_IN == 0 || known.netns == self.device.netns());
        if is_same {
            known.packets += 1;
            known.bytes += self.bytes();
        }
        is_same
    }

    /// Counts the first packet of a sender in the place that is its, unless another's is there. The
    /// map has what is seen of that packet.
    #[inline(always)]
    fn take_place(&self, near: &mut NearSenders, key: &SentKey) -> bool {
        let known = self.place(near);
        let is_free = known.packets == 0 || known.turn != self.turn;
        if !is_free || !add(self.skb, key, 0, 0) {
            return false;
        }
        *known = NearSender {
            device: self.device.0 as u64,
            netns: key.netns,
            who: self.who,
            packets: 1,
            bytes: self.bytes(),
            ifindex: key.ifindex,
            queue: key.queue,
            turn: self.turn,
            reserved: zero() as u32,
        };
        true
    }
}

/// Adds a packet that stands for `weight` to the map; whether there is room.
#[inline(always)]
fn add(skb: Typed, key: &SentKey, weight: u32, bytes: u64) -> bool {
    let Some(count) = SENT.get_ptr_mut(key) else { return begin(skb, key, weight, bytes) };
    // SAFETY: the counters lie in this CPU's slot, and are this program's alone while it runs.
    let count = unsafe { &mut *count };
    count.packets += u64::from(weight);
    count.bytes += u64::from(weight) * bytes;
    count.squares += variance(weight, bytes);
    true
}

/// Counts the first packet of a sender or flow.
#[inline(never)]
fn begin(skb: Typed, key: &SentKey, weight: u32, bytes: u64) -> bool {
    let ends = Ends::of(skb);
    let ports = u32::from_be(ends.ports);
    let count = SentCount {
        packets: weight.into(),
        bytes: u64::from(weight) * bytes,
        squares: variance(weight, bytes),
        source: zerocopy::transmute!(ends.source),
        destination: zerocopy::transmute!(ends.destination),
        source_port: (ports >> 16) as u16,
        destination_port: ports as u16,
        protocol: ends.protocol,
    };
    SENT.insert(key, count, 0).is_ok()
}

/// Counts a packet of a sender for which there is no room.
#[inline(always)]
fn miss(weight: u32, bytes: u64) {
    if let Some(uncounted) = UNCOUNTED.get_ptr_mut(0) {
        // SAFETY: as in `add`.
        let uncounted = unsafe { &mut *uncounted };
        uncounted.packets += u64::from(weight);
        uncounted.bytes += u64::from(weight) * bytes;
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
