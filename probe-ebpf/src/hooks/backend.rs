//! Packets that a VM's backend takes out of a tap's ring.

use aya_ebpf::programs::BtfTracePointContext;
use probe_wire::{BackendRxBody, EventKind};

use crate::{
    emit::{emit, zero},
    hooks::packet::Device,
    read::Typed,
    scope,
};

/// `consume_skb` as the kernel passes it from 6.3 on, with the place. It fires for every packet
/// that is used up; one in a tap's ring is used up by the read that copies it to the VM.
/// <https://github.com/torvalds/linux/commit/dd1b527831a3ed659afa01b672d8e1f7e6ca95a5>
#[inline(always)]
pub(crate) fn taken(ctx: &BtfTracePointContext) {
    if let Some(skb) = in_ring(ctx) {
        report(skb, ctx.arg(1));
    }
}

/// `consume_skb` before that. Place 0.
#[inline(always)]
pub(crate) fn taken_old(ctx: &BtfTracePointContext) {
    if let Some(skb) = in_ring(ctx) {
        report(skb, 0);
    }
}

#[inline(always)]
fn in_ring(ctx: &BtfTracePointContext) -> Option<Typed> {
    let skb: Typed = ctx.arg(0);
    scope::is_in_ring(skb as u64).then_some(skb)
}

#[inline(always)]
fn report(skb: Typed, location: u64) {
    scope::unwatch_skb(skb as u64);
    let device = Device::of_skb(skb);
    emit(EventKind::BackendRx, |body: &mut BackendRxBody| {
        *body = BackendRxBody {
            skb: skb as u64,
            netns: device.netns(),
            location,
            ifindex: device.ifindex(),
            reserved: zero() as u32,
        };
    });
}
