//! Packets that the kernel drops.

use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use probe_packet::{Load, Start, may_match};
use probe_wire::{DROP_UNPARSED, DropBody, EventKind, Sighting};

use crate::{
    emit::{self, emit, zero},
    hooks::packet,
    maps::{PREFILTER, Scratch, ScratchSlot, cpu_state},
    read::{self, ETHERNET, Typed, offsets},
    scope,
};

/// `skb->protocol` as it lies in memory.
const IPV4: u16 = 0x0800_u16.to_be();
const IPV6: u16 = 0x86dd_u16.to_be();

/// The network header of a dropped packet and what is readable from there on.
struct Datagram {
    at: u64,
    /// Bytes in one piece.
    linear: u32,
    /// Bytes in all.
    len: u32,
    /// `skb->protocol`, in packet order.
    ethertype: u16,
}

impl Datagram {
    /// `None` when the packet has no IP header where the kernel says, or none yet.
    #[inline(always)]
    fn of_skb(skb: Typed) -> Option<Self> {
        let at = offsets();
        let protocol: u16 = read::typed(skb, at.sk_buff_protocol, 0);
        if protocol != IPV4 && protocol != IPV6 {
            return None;
        }
        // The verifier takes these two for pointers, but they are wanted as numbers.
        let head: u64 = read::untyped(skb as u64, at.sk_buff_head);
        let data: u64 = read::untyped(skb as u64, at.sk_buff_data);
        let network = u32::from(read::typed::<u16>(skb, at.sk_buff_network_header, 0));
        let tail: u32 = read::typed(skb, at.sk_buff_tail, 0);
        let end = (data.wrapping_sub(head) as u32).wrapping_add(read::typed(skb, at.sk_buff_len, 0));
        if head == 0 || network == 0 || network >= tail || tail > end {
            return None;
        }
        let at = head + u64::from(network);
        Some(Self { at, linear: tail - network, len: end - network, ethertype: protocol })
    }
}

impl Load for Datagram {
    #[inline(always)]
    fn ne16(&self, offset: u32) -> Option<u16> {
        if offset + 2 > self.linear {
            return None;
        }
        Some(read::untyped(self.at, offset))
    }
}

/// The prefilter, for bytes known by their address. Apart for the verifier's sake, like
/// `match_frame`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn may_match_at(at: u64, linear: u32) -> u32 {
    let datagram = Datagram { at, linear, len: linear, ethertype: 0 };
    u32::from(may_match(&datagram, Start::Network, PREFILTER.get()))
}

/// `kfree_skb` as the kernel passes it from 5.17 on, with a reason. Packets that are merely used
/// up do not pass here.
/// <https://github.com/torvalds/linux/commit/c504e5c2f9648a1e5c2be01e8c3f59d394192bd3>
#[inline(always)]
pub(crate) fn with_reason(ctx: &BtfTracePointContext) {
    dropped(ctx, ctx.arg(2));
}

/// `kfree_skb` before that. Reason 0.
#[inline(always)]
pub(crate) fn without_reason(ctx: &BtfTracePointContext) {
    dropped(ctx, 0);
}

#[inline(always)]
fn dropped(ctx: &BtfTracePointContext, reason: u32) {
    let skb: Typed = ctx.arg(0);
    if skb.is_null() {
        return;
    }
    let drop = Dropped { ctx, skb, location: ctx.arg(1), reason };
    let watched = scope::is_watched_skb(skb as u64);
    let datagram = Datagram::of_skb(skb);
    let known = datagram.is_some_and(|datagram| drop.examine(&datagram));
    // A tap's full ring drops a packet that was handed over already.
    if watched || known {
        scope::unwatch_skb(skb as u64);
    }
    if watched && !known {
        drop.report(None);
    }
}

struct Dropped<'a> {
    ctx: &'a BtfTracePointContext,
    skb: Typed,
    location: u64,
    reason: u32,
}

impl Dropped<'_> {
    /// Reports the drop if the packet matches a signature; whether it did.
    #[inline(always)]
    fn examine(&self, datagram: &Datagram) -> bool {
        may_match_at(datagram.at, datagram.linear) != 0 && self.examine_closely(datagram)
    }

    #[inline(always)]
    fn examine_closely(&self, datagram: &Datagram) -> bool {
        let Some(scratch) = Scratch::take(ScratchSlot::Drop) else {
            emit::lose(EventKind::Drop);
            return true;
        };
        let Datagram { at, linear, len, ethertype } = *datagram;
        let copied = read::datagram(at, linear, ethertype, &mut scratch.bytes);
        if copied == 0 {
            warn!(self.ctx, "a drop was not looked at: its bytes cannot be read");
        }
        let known = scope::recognise(ScratchSlot::Drop, copied, len + ETHERNET, 0);
        if known {
            self.report(Some(&scratch.sighting));
        }
        scratch.give_back();
        known
    }

    #[inline(always)]
    fn report(&self, sighting: Option<&Sighting>) {
        if let Some(state) = cpu_state() {
            state.forget_rx(self.skb as u64);
        }
        let skb = self.skb as u64;
        let known = zero() + u64::from(if sighting.is_some() { 1 } else { DROP_UNPARSED });
        let [signature_known, reserved @ ..] = known.to_le_bytes();
        emit(EventKind::Drop, |body: &mut DropBody| {
            *body = DropBody {
                skb,
                netns: packet::netns(skb),
                location: self.location,
                ifindex: packet::ifindex(skb),
                reason: self.reason,
                sighting: sighting.copied().unwrap_or_else(nothing),
                signature_known,
                reserved,
            };
        });
    }
}

/// What is reported of a packet that could not be parsed.
#[inline(always)]
fn nothing() -> Sighting {
    zerocopy::transmute!([zero(); size_of::<Sighting>() / size_of::<u64>()])
}
