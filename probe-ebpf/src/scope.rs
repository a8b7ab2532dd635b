//! Which packets, processes and sockets are watched: the only policy in the kernel.

use probe_packet::{Start, sight};
use probe_wire::{DEVICE_BITS, Settings};

use crate::atomic;
use crate::maps::{
    AWAITED, CACHE_LINE, DEVICES, SCRATCH, SETTINGS, Scratch, ScratchSlot, TOLD_SOCKS, WAITERS, WATCHED_PORTS,
    WATCHED_SKBS, WATCHED_SOCKS, WATCHED_TGIDS, Whereabouts,
};
use crate::read::{self, offsets};

/// Looks for a signature in the `len` bytes of a scratch, of a frame of `frame_len` bytes; on true
/// its sighting is filled. `flags` are those that the packet's metadata tell.
#[inline(always)]
pub(crate) fn recognise(slot: ScratchSlot, len: u32, frame_len: u32, flags: u16) -> bool {
    match_frame(slot as u32, len, frame_len, flags.into()) != 0
}

/// A function of numbers with a global name: the verifier walks it once by itself, instead of
/// once for each path that leads to it.
/// <https://docs.ebpf.io/linux/concepts/functions/> (global functions; kernel 5.6)
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn match_frame(slot: u32, len: u32, frame_len: u32, flags: u32) -> u32 {
    let Some(scratch) = SCRATCH.get_ptr_mut(slot) else {
        return 0;
    };
    // SAFETY: the caller has taken the scratch.
    let Scratch { sighting, bytes, .. } = unsafe { &mut *scratch };
    let Settings { rules, rule_count, .. } = SETTINGS.get();
    let flags = flags as u16;
    sight(bytes, len, frame_len, Start::Ethernet, rules, *rule_count, flags, sighting).into()
}

/// Whether a process is watched.
#[inline(always)]
pub(crate) fn is_watched(tgid: u32) -> bool {
    WATCHED_TGIDS.get(tgid / 64) & bit(tgid) != 0
}

/// Watches a process from now on.
#[inline(always)]
pub(crate) fn watch(tgid: u32) {
    // SAFETY: the word lies in a global, only ever written atomically.
    unsafe { atomic::or(WATCHED_TGIDS.at(tgid / 64), bit(tgid)) };
}

/// Forgets a process.
#[inline(always)]
pub(crate) fn unwatch(tgid: u32) {
    // SAFETY: as in `watch`.
    unsafe { atomic::and(WATCHED_TGIDS.at(tgid / 64), !bit(tgid)) };
}

/// Whether an interface with this index is watched, in some namespace.
#[inline(always)]
pub(crate) fn is_watched_device(ifindex: u32) -> bool {
    DEVICES.get(ifindex % DEVICE_BITS / 64) & bit(ifindex) != 0
}

#[inline(always)]
fn bit(tgid: u32) -> u64 {
    1 << (tgid % 64)
}

/// Whether a watched thread waits for a CPU.
#[inline(always)]
pub(crate) fn is_awaited(cpu: u32) -> bool {
    AWAITED.get(cpu * CACHE_LINE) as i64 > 0
}

/// A watched thread waits for a CPU from now on, and for no other.
#[inline(always)]
pub(crate) fn waits_for(tid: u32, cpu: u32) {
    let cpu = u64::from(cpu);
    let before = match WAITERS.get_ptr_mut(u64::from(tid)) {
        // SAFETY: the value is a word of the map, only ever written as a whole.
        Some(known) => unsafe { atomic::swap(known, cpu) },
        None if WAITERS.insert(u64::from(tid), cpu, 0).is_ok() => NO_CPU,
        None => return,
    };
    if before != cpu {
        count_waiter(before, -1);
        count_waiter(cpu, 1);
    }
}

/// A watched thread got a CPU, or went to sleep.
#[inline(always)]
pub(crate) fn waits_no_more(tid: u32) {
    let tid = u64::from(tid);
    if let Some(known) = WAITERS.get_ptr(tid) {
        // SAFETY: the value is a word of the map, only ever written as a whole.
        let cpu = unsafe { *known };
        if WAITERS.remove(tid).is_ok() {
            count_waiter(cpu, -1);
        }
    }
}

/// No CPU.
const NO_CPU: u64 = u64::MAX;

#[inline(always)]
fn count_waiter(cpu: u64, by: i64) {
    if cpu != NO_CPU {
        // SAFETY: the word lies in a global, only ever written atomically.
        unsafe { atomic::add(AWAITED.at(cpu as u32 * CACHE_LINE), by as u64) };
    }
}

/// Whether drops of packets with this local port are watched.
#[inline(always)]
pub(crate) fn is_watched_port(port: u16) -> bool {
    let port = u32::from(port);
    WATCHED_PORTS.get(port / 64).is_some_and(|word| word & bit(port) != 0)
}

/// Watches drops of packets with this local port from now on.
#[inline(always)]
pub(crate) fn watch_port(port: u16) {
    let number = u32::from(port);
    if !is_watched_port(port)
        && let Some(word) = WATCHED_PORTS.get_ptr_mut(number / 64)
    {
        // SAFETY: the word is a map slot, only ever written atomically.
        unsafe { atomic::or(word, bit(number)) };
    }
}

/// Whether the peer of the socket at this address has yet to be told; it counts as told from now on.
#[inline(always)]
pub(crate) fn is_peer_untold(address: u64, cookie: u64) -> bool {
    // SAFETY: the entry is not freed while the program runs; a cookie of another socket fails the
    // comparison, and its peer is told again.
    if TOLD_SOCKS.get_ptr(address).is_some_and(|told| unsafe { *told } == cookie) {
        return false;
    }
    let _ = TOLD_SOCKS.insert(address, cookie, 0);
    true
}

/// Follows an outgoing packet until it is with the driver or dropped.
#[inline(always)]
pub(crate) fn watch_skb(skb: u64) {
    put_skb(skb, Whereabouts::Stack);
}

/// Follows a packet further, until it leaves the ring of the tap that it was handed to.
#[inline(always)]
pub(crate) fn put_in_ring(skb: u64) {
    put_skb(skb, Whereabouts::Ring);
}

#[inline(always)]
fn put_skb(skb: u64, place: Whereabouts) {
    // A full table evicts; a table that refuses loses the queue stamps of one packet, not the packet.
    let _ = WATCHED_SKBS.insert(skb, packet_at(skb, place), 0);
}

/// Whether an outgoing packet is followed and has not been handed to its driver.
#[inline(always)]
pub(crate) fn is_watched_skb(skb: u64) -> bool {
    is_at(skb, Whereabouts::Stack)
}

/// Whether a packet is followed and in the ring of a tap.
#[inline(always)]
pub(crate) fn is_in_ring(skb: u64) -> bool {
    is_at(skb, Whereabouts::Ring)
}

/// An address alone is no proof: a packet may leave by a way that no program sees (a filter that takes
/// it, a driver that is handed it past the hooks), and another, of somebody else, lies there next.
#[inline(always)]
fn is_at(skb: u64, place: Whereabouts) -> bool {
    let Some(followed) = WATCHED_SKBS.get_ptr(skb) else { return false };
    // SAFETY: the entry is not freed while the program runs; if the LRU reuses it meanwhile, its
    // value is that of another packet, which is not this one's.
    let followed = unsafe { *followed };
    if followed & PLACE != place as u64 {
        return false;
    }
    let is_it = followed == packet_at(skb, place);
    if !is_it {
        unwatch_skb(skb);
    }
    is_it
}

/// The bit of an entry that is a [`Whereabouts`]; the others tell which packet it is.
const PLACE: u64 = 1;

/// An entry of this packet.
#[inline(always)]
fn packet_at(skb: u64, place: Whereabouts) -> u64 {
    fingerprint(skb) & !PLACE | place as u64
}

/// A packet's length, identification, addresses and ports: what neither a mark of congestion nor a
/// checksum that is made late changes on the way to the driver. The same for all packets whose header
/// cannot be read. A function of its own, as few packets need it.
#[inline(never)]
fn fingerprint(skb: u64) -> u64 {
    /// All but the traffic class, of either protocol.
    const WITHOUT_CLASS: u64 = u64::from_le_bytes([0xf0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    /// All but IPv4's checksum.
    const WITHOUT_CHECKSUM: u64 = u64::from_le_bytes([0xff, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    /// Ports and the length of UDP, behind 40 bytes of IPv6.
    const PORTS: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    let at = offsets();
    let network: u16 = read::untyped(skb, at.sk_buff_network_header);
    let header = read::untyped::<u64>(skb, at.sk_buff_head).wrapping_add(network.into());
    let [begin, middle, end] = [0, 8, 16].map(|offset| read::untyped::<u64>(header, offset));
    let behind = if begin & 0xf0 == 0x60 { read::untyped::<u64>(header, 40) & PORTS } else { 0 };
    let words = [begin & WITHOUT_CLASS, middle & WITHOUT_CHECKSUM, end, behind];
    let mixed = words.iter().fold(0, |mixed: u64, word| (mixed ^ word).wrapping_mul(SPREAD));
    mixed ^ mixed >> 32
}

/// An odd number without a pattern: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Forgets a packet.
#[inline(always)]
pub(crate) fn unwatch_skb(skb: u64) {
    let _ = WATCHED_SKBS.remove(skb);
}

/// Watches the socket at this address, by its cookie.
#[inline(always)]
pub(crate) fn watch_sock(address: u64, cookie: u64) {
    if watched_sock(address) != Some(cookie) {
        let _ = WATCHED_SOCKS.insert(address, cookie, 0);
    }
}

/// Cookie of the watched socket at this address. The address may since belong to another socket.
#[inline(always)]
pub(crate) fn watched_sock(address: u64) -> Option<u64> {
    let cookie = WATCHED_SOCKS.get_ptr(address)?;
    // SAFETY: the entry is not freed while the program runs; if the LRU reuses it meanwhile, the
    // cookie is another socket's and the caller's comparison with the real one fails.
    Some(unsafe { *cookie })
}

/// Forgets the socket at this address.
#[inline(always)]
pub(crate) fn unwatch_sock(address: u64) {
    let _ = WATCHED_SOCKS.remove(address);
}
